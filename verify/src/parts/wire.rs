//! A proxy whose faults may overlap: the one that began last holds, and bytes pass
//! when none is left.

use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::journal::{Event, Journal};
use crate::plan::{Link, Pulse};
use crate::proxy::{Counts, Fault, Proxy};

/// A proxy in front of a peer.
pub struct Wire {
    link: Link,
    proxy: Proxy,
    journal: Journal,
    /// Those that hold, the last one on top, with a number for each.
    held: Mutex<Vec<(u64, Fault)>>,
    /// One change at a time, so that the proxy follows the list.
    changing: tokio::sync::Mutex<u64>,
}

impl Wire {
    /// Starts a proxy in front of `upstream`, on an address that it keeps.
    ///
    /// # Errors
    /// The address can't be had.
    pub fn start(
        link: Link,
        addr: SocketAddr,
        upstream: SocketAddr,
        journal: Journal,
    ) -> io::Result<Self> {
        Ok(Self {
            link,
            proxy: Proxy::start_on(addr, upstream)?,
            journal,
            held: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
        })
    }

    /// Where clients connect to.
    pub fn addr(&self) -> SocketAddr {
        self.proxy.addr()
    }

    /// What the proxy has done since its start.
    pub fn counts(&self) -> Counts {
        self.proxy.counts()
    }

    /// Lets a fault hold for so long, all the time or in pulses.
    pub async fn act(&self, fault: Fault, lasts: Duration, pulse: Option<Pulse>) {
        let end = Instant::now() + lasts;
        let Some(Pulse { on, off }) = pulse else {
            let number = self.begin(fault).await;
            sleep_until(end).await;
            return self.end(number).await;
        };
        while Instant::now() < end {
            let number = self.begin(fault).await;
            sleep_until((Instant::now() + on).min(end)).await;
            self.end(number).await;
            sleep_until((Instant::now() + off).min(end)).await;
        }
    }

    /// Ends all faults.
    pub async fn heal(&self) {
        let _changing = self.changing.lock().await;
        self.held().clear();
        self.follow().await;
    }

    async fn begin(&self, fault: Fault) -> u64 {
        let mut count = self.changing.lock().await;
        *count += 1;
        self.held().push((*count, fault));
        self.follow().await;
        *count
    }

    async fn end(&self, number: u64) {
        let _changing = self.changing.lock().await;
        let held = self.held().len();
        self.held().retain(|(of, _)| *of != number);
        if self.held().len() < held {
            self.follow().await;
        }
    }

    async fn follow(&self) {
        let fault = self.held().last().map_or(Fault::Pass, |(_, fault)| *fault);
        if let Err(error) = self.proxy.set(fault).await {
            self.journal
                .note(Event::Note(format!("the proxy of {}: {error}", self.link)));
        }
        self.journal.note(Event::Network(self.link, fault));
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Vec<(u64, Fault)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Link;

    const SECOND: Duration = Duration::from_secs(1);

    fn wire(journal: &Journal) -> Wire {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Wire::start(Link::Kafka, any, any, journal.clone()).unwrap()
    }

    fn faults(journal: &Journal) -> Vec<Fault> {
        let entries = journal.entries();
        let of = |event: &Event| match event {
            Event::Network(_, fault) => Some(*fault),
            _ => None,
        };
        entries
            .iter()
            .filter_map(|entry| of(&entry.event))
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn of_faults_that_overlap_the_last_holds_and_then_the_other_again() {
        let journal = Journal::default();
        let wire = wire(&journal);
        let later = async {
            tokio::time::sleep(SECOND).await;
            wire.act(Fault::Hang, SECOND, None).await;
        };
        tokio::join!(wire.act(Fault::Cut, 3 * SECOND, None), later);
        assert_eq!(
            faults(&journal),
            [Fault::Cut, Fault::Hang, Fault::Cut, Fault::Pass]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn pulses_come_and_go_until_the_end() {
        let journal = Journal::default();
        let pulse = Pulse {
            on: SECOND,
            off: 2 * SECOND,
        };
        wire(&journal)
            .act(Fault::Cut, 4 * SECOND, Some(pulse))
            .await;
        assert_eq!(
            faults(&journal),
            [Fault::Cut, Fault::Pass, Fault::Cut, Fault::Pass]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn healing_ends_what_holds_for_good() {
        let journal = Journal::default();
        let wire = wire(&journal);
        let healing = async {
            tokio::time::sleep(SECOND).await;
            wire.heal().await;
        };
        tokio::join!(wire.act(Fault::Cut, 3 * SECOND, None), healing);
        assert_eq!(faults(&journal), [Fault::Cut, Fault::Pass]);
    }
}
