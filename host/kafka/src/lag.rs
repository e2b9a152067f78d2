//! Lag per partition, read by a thread and a client of their own: these calls
//! block, and the polling thread must not.

use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;

use crate::admin::{AdminError, committed_of, observer};
use crate::config::KafkaConfig;
use crate::consumer::Shared;
use crate::failure::ConsumerError;
use crate::reachability::{PlainContext, is_unreachable};

/// How long one question may take.
const PATIENCE: Duration = Duration::from_secs(5);

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
    /// `low` before the first commit. Never negative, and no more than is there.
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

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct LagWatch {
    _stop: Sender<()>,
}

impl LagWatch {
    pub(crate) fn start(kafka: &KafkaConfig, shared: Arc<Shared>) -> Result<Self, ConsumerError> {
        let (stop, stopped) = channel::<()>();
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
        std::thread::Builder::new()
            .name("kafka-lag".to_owned())
            .spawn(move || {
                loop {
                    refresh(&client, &shared);
                    // Serves this client's log and error callbacks.
                    while client.poll(Duration::ZERO).is_some() {}
                    let wait = stopped.recv_timeout(shared.config.lag_interval);
                    if wait != Err(RecvTimeoutError::Timeout) {
                        break;
                    }
                }
            })?;
        Ok(LagWatch { _stop: stop })
    }
}

fn refresh(client: &BaseConsumer<PlainContext>, shared: &Shared) {
    let held: BTreeMap<i32, Option<i64>> = shared
        .ledger()
        .partitions()
        .iter()
        .map(|view| (view.partition, view.committed))
        .collect();
    match read(client, &shared.config.topic, &held) {
        Ok(read) => {
            if !read.is_empty() {
                shared.reach.up();
            }
            *shared.lag.lock().unwrap_or_else(PoisonError::into_inner) = read;
        }
        // The last values stay; they are better than none.
        Err(error) => match error.rdkafka_error_code() {
            Some(code) if is_unreachable(code) => shared.reach.down(&error.to_string()),
            _ => tracing::debug!(event = "lag_not_read", "lag could not be read: {error}"),
        },
    }
}

fn read(
    client: &BaseConsumer<PlainContext>,
    topic: &str,
    held: &BTreeMap<i32, Option<i64>>,
) -> Result<BTreeMap<i32, PartitionLag>, KafkaError> {
    // The ledger knows its own commits first; only those from before the
    // assignment have to be asked for.
    let unknown: Vec<i32> = held
        .iter()
        .filter(|(_, committed)| committed.is_none())
        .map(|(&partition, _)| partition)
        .collect();
    let before = match unknown.is_empty() {
        true => BTreeMap::new(),
        false => committed_of(client, topic, &unknown, PATIENCE)?,
    };
    held.iter()
        .map(|(&partition, &own)| {
            let committed = own.or_else(|| before.get(&partition).copied().flatten());
            let (low, high) = client.fetch_watermarks(topic, partition, PATIENCE)?;
            Ok((partition, PartitionLag::new(low, high, committed)))
        })
        .collect()
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
