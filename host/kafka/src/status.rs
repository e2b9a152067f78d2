//! A consumer as it is seen from outside.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::ledger::{Counts, PartitionView};
use crate::losses::LogAccount;
use crate::reachability::Reach;

/// A consumer as it is now; for `/stats` and metrics.
#[derive(Debug, Clone)]
pub struct Status {
    /// The partitions held, with their counts since the assignment.
    pub partitions: Vec<PartitionView>,
    /// Counts of every partition that was ever held.
    pub by_partition: BTreeMap<i32, Counts>,
    /// Counts of all partitions since the start.
    pub totals: Counts,
    /// Bytes of the records in flight.
    pub in_flight_bytes: u64,
    /// Whether the partitions are paused because too much is in flight.
    pub paused: bool,
    /// Whether it was told to stop consuming.
    pub draining: bool,
    /// Time since the thread last polled: seconds are a sign of trouble.
    pub polled_ago: Duration,
    /// Commits acknowledged.
    pub commits: u64,
    /// Commits that failed, retried ones included.
    pub commit_failures: u64,
    /// Assignments and revocations.
    pub rebalances: u64,
    /// Settles that came after their partition was gone.
    pub stale_settles: u64,
    /// Settles of records that had an outcome already.
    pub repeated_settles: u64,
    /// How often a log stepped back under the consumer.
    pub steps_back: u64,
    /// Offsets that retention removed before they were consumed: at most so many
    /// records are lost. All partitions since the start.
    pub lost_to_retention: u64,
    /// How often the group stood beyond the end of a log that was cut or made
    /// again, which was then consumed from its earliest record.
    pub resets: u64,
    /// Both by partition, where there is something to tell.
    pub logs: BTreeMap<i32, LogAccount>,
    /// Errors of polling, by librdkafka's word for them.
    pub fetch_errors: BTreeMap<String, u64>,
    /// How the partitions held get on.
    pub progress: BTreeMap<i32, PartitionProgress>,
    /// Time since the lag of every partition held was read; none before that.
    pub lag_read_ago: Option<Duration>,
    /// Whether the brokers answer.
    pub reach: Reach,
    /// Whether they say that the topic does not exist.
    pub topic_missing: bool,
}

/// How a partition gets on, for a watchdog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionProgress {
    /// Time since it was assigned.
    pub assigned_ago: Duration,
    /// Time since its committed offset changed in this assignment.
    pub committed_ago: Option<Duration>,
}

/// When things happened to the partitions held.
#[derive(Debug, Default)]
pub(crate) struct Progress(BTreeMap<i32, Times>);

#[derive(Debug)]
struct Times {
    assigned: Instant,
    committed: Option<Instant>,
}

impl Progress {
    pub(crate) fn assigned(&mut self, partition: i32) {
        let times = Times {
            assigned: Instant::now(),
            committed: None,
        };
        self.0.insert(partition, times);
    }

    pub(crate) fn committed(&mut self, partition: i32) {
        if let Some(times) = self.0.get_mut(&partition) {
            times.committed = Some(Instant::now());
        }
    }

    pub(crate) fn gone(&mut self, partition: i32) {
        self.0.remove(&partition);
    }

    /// How long a partition has been held; none when it is not.
    pub(crate) fn held_for(&self, partition: i32) -> Option<Duration> {
        self.0.get(&partition).map(|times| times.assigned.elapsed())
    }

    pub(crate) fn view(&self) -> BTreeMap<i32, PartitionProgress> {
        let view = |times: &Times| PartitionProgress {
            assigned_ago: times.assigned.elapsed(),
            committed_ago: times.committed.map(|at| at.elapsed()),
        };
        self.0.iter().map(|(&p, times)| (p, view(times))).collect()
    }
}
