//! Lag per partition and what a log lost, read by a thread and a client of their
//! own: these calls block, and the polling thread must not.

mod group;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;

use crate::admin::{AdminError, committed_of, observer};
use crate::config::KafkaConfig;
use crate::consumer::Shared;
use crate::failure::ConsumerError;
use crate::losses::Finding;
use crate::reachability::{PlainContext, is_unreachable};

pub use group::GroupLag;

/// How long one question may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Shortest time between two rounds: a log with many gaps must not make one of
/// every gap.
const SPACING: Duration = Duration::from_millis(100);
/// How soon is tried again what the first commit waits for.
const AGAIN: Duration = Duration::from_millis(250);

/// How far a partition is behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct PartitionLag {
    /// The first offset that is still there.
    pub low: i64,
    /// The offset that the next record will get.
    pub high: i64,
    /// The committed next offset; none before the first commit.
    pub committed: Option<i64>,
    /// Records that are not committed yet: `high` − `committed`, or `high` −
    /// `low` before the first commit. Never negative, and no more than is there;
    /// 0 also when only offsets without records are left.
    pub lag: i64,
}

impl PartitionLag {
    /// Lag from its three parts. A commit below the log's start would make a
    /// phantom lag of records that are gone, so it counts from `low`.
    pub fn new(low: i64, high: i64, committed: Option<i64>) -> Self {
        let from = committed.unwrap_or(low).max(low);
        PartitionLag {
            low,
            high,
            committed,
            lag: high.saturating_sub(from).max(0),
        }
    }
}

/// Where fetching of a partition came to the end of its log.
///
/// The last offsets of a log may be none of records: a transaction ends with a
/// marker, compaction removes what is replaced. Nobody can consume those, and
/// without this they would count as lag for ever.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogEnd {
    /// The next offset to fetch, at which there was nothing.
    pub(crate) offset: i64,
    /// How often the client's queue had been found empty when that was told:
    /// once it is found empty again, all that was fetched before is consumed.
    pub(crate) drained: u64,
}

/// Whether all that can be consumed up to `high` has been, and is committed.
fn is_at_end(shared: &Shared, partition: i32, high: i64) -> bool {
    let drained = shared.drained.load(Ordering::Relaxed);
    let end = shared
        .ends
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get(&partition)
        .copied();
    let fetched = end.is_some_and(|end| end.offset == high && drained > end.drained)
        && !shared.paused.load(Ordering::Relaxed);
    // After the above: what had been fetched by then is in the ledger by now.
    fetched
        && shared.ledger().partitions().iter().any(|view| {
            view.partition == partition
                && view.counts.in_flight == 0
                && view.position == view.committed
        })
}

/// Wakes the lag thread, or ends it.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Mutex<Rung>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Rung {
    again: bool,
    stop: bool,
}

impl Bell {
    /// To be looked at now.
    pub(crate) fn ring(&self) {
        self.lock().again = true;
        self.changed.notify_all();
    }

    fn stop(&self) {
        self.lock().stop = true;
        self.changed.notify_all();
    }

    fn stopped(&self) -> bool {
        self.lock().stop
    }

    /// Waits until it is rung, but not less than [`SPACING`].
    fn wait(&self, at_most: Duration) {
        let pause = SPACING.min(at_most);
        let running = |rung: &mut Rung| !rung.stop;
        let (rung, _) = self
            .changed
            .wait_timeout_while(self.lock(), pause, running)
            .unwrap_or_else(PoisonError::into_inner);
        let silent = |rung: &mut Rung| !rung.again && !rung.stop;
        let (mut rung, _) = self
            .changed
            .wait_timeout_while(rung, at_most - pause, silent)
            .unwrap_or_else(PoisonError::into_inner);
        rung.again = false;
    }

    fn lock(&self) -> MutexGuard<'_, Rung> {
        self.rung.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread; it ends when this is dropped, after the question it has put.
#[derive(Debug)]
pub(crate) struct LagWatch(Arc<Shared>);

impl Drop for LagWatch {
    fn drop(&mut self) {
        self.0.bell.stop();
    }
}

impl LagWatch {
    pub(crate) fn start(kafka: &KafkaConfig, shared: Arc<Shared>) -> Result<Self, ConsumerError> {
        let client = match observer(kafka, Some(&shared.config.group), shared.reach.clone()) {
            Ok(client) => client,
            Err(AdminError::Config(error)) => return Err(error.into()),
            Err(error) => {
                return Err(ConsumerError::Subscribe {
                    topic: shared.config.topic.clone(),
                    reason: error.to_string(),
                });
            }
        };
        let watch = LagWatch(shared.clone());
        std::thread::Builder::new()
            .name("kafka-lag".to_owned())
            .spawn(move || {
                while !shared.bell.stopped() {
                    refresh(&client, &shared);
                    report(&shared);
                    // Serves this client's log and error callbacks.
                    while client.poll(Duration::ZERO).is_some() {}
                    let started = shared.logs().unstarted().is_empty();
                    let wait = shared.config.lag_interval;
                    shared
                        .bell
                        .wait(if started { wait } else { wait.min(AGAIN) });
                }
            })?;
        Ok(watch)
    }
}

fn refresh(client: &BaseConsumer<PlainContext>, shared: &Shared) {
    let held: BTreeMap<i32, Option<i64>> = shared
        .ledger()
        .partitions()
        .iter()
        .map(|view| (view.partition, view.committed))
        .collect();
    let mut done = read(client, shared, &held);
    let group = if held.is_empty() && !shared.bell.stopped() {
        group::read(client, shared)
            .map_err(|error| done = Err(error))
            .ok()
    } else {
        None
    };
    *shared
        .group_lag
        .lock()
        .unwrap_or_else(PoisonError::into_inner) = group;
    match done {
        Ok(()) => {
            shared.reach.up();
            let mut last = shared
                .lag_read
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            *last = Some(Instant::now());
        }
        // The last values stay; they are better than none.
        Err(error) => match error.rdkafka_error_code() {
            Some(code) if is_unreachable(code) => shared.reach.down(&error.to_string()),
            _ => tracing::debug!(event = "lag_not_read", "lag could not be read: {error}"),
        },
    }
}

/// Reads what can be read, and fails with the last error.
fn read(
    client: &BaseConsumer<PlainContext>,
    shared: &Shared,
    held: &BTreeMap<i32, Option<i64>>,
) -> Result<(), KafkaError> {
    let topic = &shared.config.topic;
    let unstarted = shared.logs().unstarted();
    // The ledger knows its own commits first; only those from before the
    // assignment have to be asked for.
    let unknown: Vec<i32> = held
        .iter()
        .filter(|(p, committed)| committed.is_none() || unstarted.iter().any(|(u, _)| u == *p))
        .map(|(&partition, _)| partition)
        .collect();
    let mut failed = None;
    let mut before = BTreeMap::new();
    if !unknown.is_empty() {
        match committed_of(client, topic, &unknown, PATIENCE) {
            Ok(answer) => before = answer,
            Err(error) => failed = Some(error),
        }
    }
    for (partition, asked) in unstarted {
        if let Some(&committed) = before.get(&partition) {
            shared.logs().start_read(partition, asked, committed);
        }
    }
    let watched = shared.logs().watched();
    for partition in watched {
        let own = held.get(&partition).copied().flatten();
        if shared.bell.stopped() {
            break;
        }
        let asked = shared.logs().ask(partition);
        match client.fetch_watermarks(topic, partition, PATIENCE) {
            Ok((low, high)) => {
                if let Some(asked) = asked {
                    let drained = shared.drained.load(Ordering::Relaxed);
                    shared
                        .logs()
                        .watermarks(partition, asked, drained, low, high);
                }
                let committed = own.or_else(|| before.get(&partition).copied().flatten());
                // Not known is not none.
                if own.is_some() || before.contains_key(&partition) {
                    let mut lag = PartitionLag::new(low, high, committed);
                    if lag.lag > 0 && is_at_end(shared, partition, high) {
                        lag.lag = 0;
                    }
                    keep(shared, partition, lag);
                }
            }
            Err(error) => failed = Some(error),
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Keeps the lag of a partition, if it is still held.
fn keep(shared: &Shared, partition: i32, lag: PartitionLag) {
    let mut all = shared.lag.lock().unwrap_or_else(PoisonError::into_inner);
    let held = shared.ledger().counts(partition).is_some();
    if held {
        all.insert(partition, lag);
    }
}

/// Says what was found, each thing once.
fn report(shared: &Shared) {
    let (topic, group) = (&shared.config.topic, &shared.config.group);
    let findings = shared.logs().findings();
    for finding in findings {
        match finding {
            Finding::Lost {
                partition,
                from,
                to,
            } => tracing::error!(
                event = "records_lost_to_retention",
                topic,
                group,
                partition,
                from,
                to,
                count = to - from,
                "retention removed offsets {from} to {} of {topic}/{partition} before group {group} consumed them: \
                 at most {} records are lost. Raise retention.ms (or retention.bytes) of {topic}, or run more workers; \
                 vendors can send the records again",
                to - 1,
                to - from
            ),
            Finding::Reset {
                partition,
                expected,
                found,
            } => tracing::error!(
                event = "log_reset",
                topic,
                group,
                partition,
                expected,
                found,
                "group {group} stood at offset {expected} of {topic}/{partition}, beyond its end: the topic was cut or made again. \
                 Consumption goes on from the earliest record ({found}); what was consumed before is consumed again"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PartitionLag;

    #[test]
    fn lag_counts_from_the_commit_and_is_never_negative() {
        assert_eq!(PartitionLag::new(0, 10, Some(4)).lag, 6);
        assert_eq!(PartitionLag::new(0, 10, Some(12)).lag, 0);
    }

    #[test]
    fn before_the_first_commit_all_that_is_there_is_lag() {
        assert_eq!(PartitionLag::new(3, 10, None).lag, 7);
        assert_eq!(PartitionLag::new(0, 0, None).lag, 0);
    }

    #[test]
    fn a_commit_below_the_start_of_the_log_is_no_phantom_lag() {
        assert_eq!(PartitionLag::new(100, 110, Some(5)).lag, 10);
    }
}
