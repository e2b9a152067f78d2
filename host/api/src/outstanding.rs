//! The bound of what this host holds: records taken in and not yet answered for.
//!
//! A record takes a permit before it is admitted and gives it back when Kafka
//! has acknowledged or failed it, whether or not the client still waits. So
//! nothing queues outside the bound. Refusing new records and counting the old
//! ones is one state under one lock: once [`Outstanding::drain`] has returned,
//! the count only falls.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus::IntGauge;
use tokio::sync::Notify;

/// Why there is no permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoPermit {
    /// The bound is reached.
    Full,
    /// The host is draining.
    Draining,
}

/// The count and its bound. Clones share it.
#[derive(Clone)]
pub(crate) struct Outstanding {
    shared: Arc<Shared>,
}

struct Shared {
    max: usize,
    state: Mutex<State>,
    empty: Notify,
    gauge: IntGauge,
}

#[derive(Default)]
struct State {
    count: usize,
    draining: bool,
}

impl Outstanding {
    /// None yet, at most `max`; `gauge` follows the count.
    pub(crate) fn new(max: usize, gauge: IntGauge) -> Self {
        Outstanding {
            shared: Arc::new(Shared {
                max,
                state: Mutex::default(),
                empty: Notify::new(),
                gauge,
            }),
        }
    }

    /// Takes a permit, or says at once why there is none.
    pub(crate) fn take(&self) -> Result<Permit, NoPermit> {
        let mut state = self.shared.lock();
        if state.draining {
            return Err(NoPermit::Draining);
        }
        if state.count >= self.shared.max {
            return Err(NoPermit::Full);
        }
        state.count += 1;
        self.shared.gauge.inc();
        Ok(Permit {
            shared: self.shared.clone(),
        })
    }

    /// Gives out no more permits, for ever.
    pub(crate) fn drain(&self) {
        self.shared.lock().draining = true;
        self.shared.empty.notify_waiters();
    }

    /// Waits until no permit is out.
    pub(crate) async fn drained(&self) {
        loop {
            // Listening before looking: a permit given back in between is heard.
            let empty = self.shared.empty.notified();
            if self.count() == 0 {
                return;
            }
            empty.await;
        }
    }

    /// Permits out.
    pub(crate) fn count(&self) -> usize {
        self.shared.lock().count
    }

    /// The bound.
    pub(crate) fn max(&self) -> usize {
        self.shared.max
    }

    /// Whether [`drain`](Self::drain) was called.
    pub(crate) fn is_draining(&self) -> bool {
        self.shared.lock().draining
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One record's place; given back when dropped.
pub(crate) struct Permit {
    shared: Arc<Shared>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.count -= 1;
        self.shared.gauge.dec();
        if state.count == 0 {
            self.shared.empty.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(max: usize) -> Outstanding {
        Outstanding::new(max, IntGauge::new("held", "Held.").expect("a valid name"))
    }

    #[test]
    fn the_bound_is_exact_and_recovers() {
        let outstanding = of(2);
        let first = outstanding.take().ok();
        let second = outstanding.take().ok();
        assert!(first.is_some() && second.is_some());
        assert_eq!(outstanding.take().err(), Some(NoPermit::Full));
        drop(first);
        assert_eq!(outstanding.count(), 1);
        assert!(outstanding.take().is_ok());
        drop(second);
        assert_eq!(outstanding.shared.gauge.get(), 0);
    }

    #[tokio::test]
    async fn a_drain_ends_with_the_last_permit_and_gives_out_no_more() {
        let outstanding = of(8);
        let permits: Vec<_> = (0..8).filter_map(|_| outstanding.take().ok()).collect();
        outstanding.drain();
        assert_eq!(outstanding.take().err(), Some(NoPermit::Draining));
        let waiting = tokio::spawn({
            let outstanding = outstanding.clone();
            async move { outstanding.drained().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(permits);
        waiting.await.expect("it ends");
        assert_eq!(outstanding.take().err(), Some(NoPermit::Draining));
        assert!(outstanding.is_draining());
        outstanding.drained().await;
    }
}
