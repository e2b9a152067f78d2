//! The bound of what this host holds: records taken in and not yet answered for,
//! and the bytes of them and of bodies that are being read.
//!
//! Bytes are held as they are read ([`Held`]). A record takes a permit with them
//! before it is admitted and gives both back when Kafka has acknowledged or failed
//! it, whether or not the client still waits. So nothing queues outside the bound.
//! Refusing new records and counting the old ones is one state under one lock: once
//! [`Outstanding::drain`] has returned, the count only falls.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus::IntGauge;
use tokio::sync::Notify;

/// Why there is no permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoPermit {
    /// The bound of records is reached.
    Records,
    /// The bound of bytes is reached.
    Bytes,
    /// The host is draining.
    Draining,
}

/// What may be held.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) records: usize,
    pub(crate) bytes: usize,
}

/// Gauges that follow what is held.
#[derive(Debug, Clone)]
pub(crate) struct Gauges {
    pub(crate) records: IntGauge,
    pub(crate) bytes: IntGauge,
}

/// What is held, and its bounds. Clones share it.
#[derive(Clone)]
pub(crate) struct Outstanding {
    shared: Arc<Shared>,
}

struct Shared {
    bounds: Bounds,
    state: Mutex<State>,
    empty: Notify,
    gauges: Gauges,
}

#[derive(Default)]
struct State {
    records: usize,
    bytes: usize,
    draining: bool,
}

impl Outstanding {
    /// Nothing yet, at most `bounds`.
    pub(crate) fn new(bounds: Bounds, gauges: Gauges) -> Self {
        Outstanding {
            shared: Arc::new(Shared {
                bounds,
                state: Mutex::default(),
                empty: Notify::new(),
                gauges,
            }),
        }
    }

    /// Bytes that a request will hold while it is read: none as yet.
    pub(crate) fn holding(&self) -> Held {
        Held {
            shared: self.shared.clone(),
            bytes: 0,
        }
    }

    /// Takes a permit for a record whose bytes are held already, or says at once why
    /// there is none.
    pub(crate) fn take(&self, held: Held) -> Result<Permit, NoPermit> {
        let mut state = self.shared.lock();
        if state.draining {
            return Err(NoPermit::Draining);
        }
        if state.records >= self.shared.bounds.records {
            return Err(NoPermit::Records);
        }
        state.records += 1;
        self.shared.gauges.records.inc();
        Ok(Permit {
            shared: self.shared.clone(),
            _held: held,
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
            if self.records() == 0 {
                return;
            }
            empty.await;
        }
    }

    /// Permits out.
    pub(crate) fn records(&self) -> usize {
        self.shared.lock().records
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.shared.lock().bytes
    }

    /// The bounds.
    pub(crate) fn bounds(&self) -> Bounds {
        self.shared.bounds
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

/// Bytes that count against the bound; given back when dropped.
pub(crate) struct Held {
    shared: Arc<Shared>,
    bytes: usize,
}

impl Held {
    /// Holds more, if there is room for it.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), NoPermit> {
        let shared = self.shared.clone();
        let mut state = shared.lock();
        if bytes > shared.bounds.bytes.saturating_sub(state.bytes) {
            return Err(NoPermit::Bytes);
        }
        self.add(&mut state, bytes);
        Ok(())
    }

    /// Holds more, room or not: for what follows from a promise made, the answer
    /// to records that were taken in.
    pub(crate) fn grow_anyway(&mut self, bytes: usize) {
        let shared = self.shared.clone();
        self.add(&mut shared.lock(), bytes);
    }

    fn add(&mut self, state: &mut State, bytes: usize) {
        state.bytes += bytes;
        self.bytes += bytes;
        self.shared.gauges.bytes.add(bytes as i64);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.lock().bytes -= self.bytes;
        self.shared.gauges.bytes.sub(self.bytes as i64);
    }
}

/// One record's place; given back when dropped.
pub(crate) struct Permit {
    shared: Arc<Shared>,
    _held: Held,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.records -= 1;
        self.shared.gauges.records.dec();
        if state.records == 0 {
            self.shared.empty.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(records: usize, bytes: usize) -> Outstanding {
        let gauge = |name| IntGauge::new(name, "Held.").expect("a valid name");
        let gauges = Gauges {
            records: gauge("records"),
            bytes: gauge("bytes"),
        };
        Outstanding::new(Bounds { records, bytes }, gauges)
    }

    fn record(outstanding: &Outstanding, bytes: usize) -> Result<Permit, NoPermit> {
        let mut held = outstanding.holding();
        held.grow(bytes)?;
        outstanding.take(held)
    }

    #[test]
    fn the_bound_of_records_is_exact_and_recovers() {
        let outstanding = of(2, 100);
        let first = record(&outstanding, 1).ok();
        let second = record(&outstanding, 1).ok();
        assert!(first.is_some() && second.is_some());
        assert_eq!(record(&outstanding, 1).err(), Some(NoPermit::Records));
        drop(first);
        assert_eq!(outstanding.records(), 1);
        assert!(record(&outstanding, 1).is_ok());
        drop(second);
        assert_eq!(outstanding.shared.gauges.records.get(), 0);
        assert_eq!(outstanding.shared.gauges.bytes.get(), 0);
    }

    #[test]
    fn the_bound_of_bytes_counts_what_is_being_read_and_what_is_taken_in() {
        let outstanding = of(100, 10);
        let taken = record(&outstanding, 6).ok();
        let mut reading = outstanding.holding();
        assert_eq!(reading.grow(4), Ok(()));
        assert_eq!(reading.grow(1), Err(NoPermit::Bytes));
        assert_eq!(outstanding.bytes(), 10);
        drop(taken);
        assert_eq!(reading.grow(6), Ok(()));
        reading.grow_anyway(5);
        assert_eq!(reading.grow(1), Err(NoPermit::Bytes));
        assert_eq!(reading.grow(usize::MAX), Err(NoPermit::Bytes));
        assert_eq!(outstanding.bytes(), 15);
        drop(reading);
        assert_eq!(outstanding.bytes(), 0);
    }

    #[tokio::test]
    async fn a_drain_ends_with_the_last_permit_and_gives_out_no_more() {
        let outstanding = of(8, 100);
        let permits: Vec<_> = (0..8)
            .filter_map(|_| record(&outstanding, 1).ok())
            .collect();
        outstanding.drain();
        assert_eq!(record(&outstanding, 1).err(), Some(NoPermit::Draining));
        let waiting = tokio::spawn({
            let outstanding = outstanding.clone();
            async move { outstanding.drained().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(permits);
        waiting.await.expect("it ends");
        assert_eq!(record(&outstanding, 1).err(), Some(NoPermit::Draining));
        assert!(outstanding.is_draining());
        outstanding.drained().await;
    }
}
