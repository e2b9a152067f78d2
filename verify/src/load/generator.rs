//! Sends records, in a closed loop or on a schedule.
//!
//! Every connection is a task that takes the next request, waits until that is due,
//! sends it and awaits the answer. So requests that are due while all connections are
//! busy wait for the first that gets free, in the order of the schedule, and take no
//! memory meanwhile.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until};

use super::connection::{Connection, Target};
use super::schedule::Schedule;
use super::tally::Tally;
use super::template::Template;

/// Between one line of progress and the next.
const PROGRESS: Duration = Duration::from_secs(5);
/// After a request that had no answer, in the closed loop: a host that is gone would
/// else be asked as fast as it can refuse connections.
const PAUSE: Duration = Duration::from_millis(10);

/// When requests are sent.
#[derive(Debug, Clone, Copy)]
pub enum Pace {
    /// As soon as the last one was answered, for so long in all; answers of the first
    /// part do not count for the rate.
    Closed {
        /// The first part.
        warm_up: Duration,
        /// In all.
        lasts: Duration,
    },
    /// On a schedule, answered or not.
    Open(Schedule),
}

/// What came of a loop.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// What was answered.
    pub tally: Tally,
    /// Records that were accepted after the warm-up of a closed loop.
    pub counted: u64,
    /// The number of the next record that was never sent.
    pub next: u64,
    /// From the first request to the last answer.
    pub took: Duration,
}

/// What sends.
#[derive(Debug, Clone)]
pub struct Generator {
    /// Where to.
    pub target: Target,
    /// What.
    pub template: Template,
    /// How long a request may wait for a connection, and how long for its answer.
    pub patience: Duration,
}

impl Generator {
    /// Sends records with numbers from `first` on over so many connections, and tells of
    /// it on standard error.
    ///
    /// # Errors
    /// The host does not take the connections.
    pub async fn run(&self, pace: Pace, connections: u32, first: u64) -> anyhow::Result<Outcome> {
        let mut ready = Vec::new();
        for count in 0..connections {
            let mut connection = Connection::new(self.target.clone(), self.patience);
            let connected = connection.connect().await;
            connected.with_context(|| format!("only {count} of {connections} connections"))?;
            ready.push(connection);
        }
        let started = Instant::now();
        let shared = Arc::new(Shared {
            template: self.template.clone(),
            patience: self.patience,
            pace,
            first,
            started,
            next: AtomicU64::new(0),
            counted: AtomicU64::new(0),
            tally: Mutex::default(),
        });
        let mut slots = JoinSet::new();
        for connection in ready {
            slots.spawn(Arc::clone(&shared).serve(connection));
        }
        let mut ticks = interval_at(started + PROGRESS, PROGRESS);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                slot = slots.join_next() => match slot {
                    Some(slot) => slot.context("a connection's task")?,
                    None => break,
                },
                _ = ticks.tick() => eprintln!("{}", shared.progress()),
            }
        }
        let took = started.elapsed();
        let tally = std::mem::take(&mut *shared.tally());
        Ok(Outcome {
            tally,
            counted: shared.counted.load(Ordering::Relaxed),
            next: first + shared.next.load(Ordering::Relaxed),
            took,
        })
    }
}

struct Shared {
    template: Template,
    patience: Duration,
    pace: Pace,
    first: u64,
    started: Instant,
    next: AtomicU64,
    counted: AtomicU64,
    tally: Mutex<Tally>,
}

impl Shared {
    async fn serve(self: Arc<Self>, mut connection: Connection) {
        while let Some(n) = self.next().await {
            // Beyond this a vendor has given up; sending it now would only let those
            // behind it wait longer.
            if self.waited(n) > self.patience {
                self.tally().unsent += 1;
                continue;
            }
            let is_answered = self.send(&mut connection, n).await;
            if !is_answered && matches!(self.pace, Pace::Closed { .. }) {
                sleep(PAUSE).await;
            }
        }
    }

    /// The next request, when it is due; none after the last.
    async fn next(&self) -> Option<u64> {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        match self.pace {
            Pace::Closed { lasts, .. } => (self.started.elapsed() < lasts).then_some(n),
            Pace::Open(schedule) => {
                sleep_until(self.started + schedule.due(n)?).await;
                Some(n)
            }
        }
    }

    /// How long ago this request was due.
    fn waited(&self, n: u64) -> Duration {
        match self.pace {
            Pace::Closed { .. } => Duration::ZERO,
            Pace::Open(schedule) => schedule.late(n, self.started.elapsed()),
        }
    }

    /// Sends a request, and says whether it was answered.
    async fn send(&self, connection: &mut Connection, n: u64) -> bool {
        let number = self.first + n;
        if !connection.is_open() {
            let connected = connection.connect().await;
            let waited = self.waited(n);
            let mut tally = self.tally();
            match connected {
                Ok(()) => tally.reconnects += 1,
                Err(error) => {
                    tally.broken(number, waited, error.word(), &error.to_string());
                    return false;
                }
            }
        }
        let body = self.template.body(number);
        let (waited, sent) = (self.waited(n), Instant::now());
        let answer = connection.post(body).await;
        let took = sent.elapsed();
        match answer {
            Ok(answer) => {
                let is_accepted = self.tally().answered(number, waited, took, &answer);
                if is_accepted && self.is_counted() {
                    self.counted.fetch_add(1, Ordering::Relaxed);
                }
                true
            }
            Err(error) => {
                let how = error.to_string();
                self.tally().broken(number, waited, error.word(), &how);
                false
            }
        }
    }

    /// Whether an answer of now counts for the rate of a closed loop.
    fn is_counted(&self) -> bool {
        match self.pace {
            Pace::Closed { warm_up, lasts } => (warm_up..lasts).contains(&self.started.elapsed()),
            Pace::Open(_) => false,
        }
    }

    fn progress(&self) -> String {
        let now = self.started.elapsed();
        let tally = self.tally();
        let behind = match self.pace {
            Pace::Closed { .. } => String::new(),
            Pace::Open(schedule) => {
                let begun = tally.sent + tally.unsent;
                let under_way = schedule.due_by(now).saturating_sub(begun);
                format!(
                    ", {under_way} due and not answered, {} unsent",
                    tally.unsent
                )
            }
        };
        format!(
            "{:3.0} s: {} answered: {} accepted, {} with 429, {} with 503, {} otherwise; {} without an answer{behind}",
            now.as_secs_f64(),
            tally.sent - tally.transport_errors(),
            tally.status(202),
            tally.status(429),
            tally.status(503),
            tally.other(),
            tally.transport_errors(),
        )
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
