//! How the group stands, for a member that holds no partitions: whether it is a
//! spare one in a group that gets on, or one that waits while nobody consumes.

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;

use super::{PATIENCE, PartitionLag};
use crate::admin::committed_of;
use crate::consumer::Shared;
use crate::reachability::PlainContext;

/// The whole topic, as the group has committed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct GroupLag {
    /// The committed next offsets of all partitions, added up: it moves as long as
    /// anybody gets on.
    pub committed: i64,
    /// Records that wait. Of each partition one less than there are offsets, for a
    /// log may end in one that is no record (the marker of a transaction).
    pub lag: i64,
}

pub(super) fn read(
    client: &BaseConsumer<PlainContext>,
    shared: &Shared,
) -> Result<GroupLag, KafkaError> {
    let topic = &shared.config.topic;
    let metadata = client.fetch_metadata(Some(topic), PATIENCE)?;
    let partitions: Vec<i32> = metadata
        .topics()
        .iter()
        .filter(|found| found.name() == topic)
        .flat_map(|found| found.partitions())
        .map(|partition| partition.id())
        .collect();
    let committed = committed_of(client, topic, &partitions, PATIENCE)?;
    let mut all = GroupLag {
        committed: 0,
        lag: 0,
    };
    for partition in partitions {
        let (low, high) = client.fetch_watermarks(topic, partition, PATIENCE)?;
        let committed = committed.get(&partition).copied().flatten();
        let lag = PartitionLag::new(low, high, committed).lag;
        all.committed = all.committed.saturating_add(committed.unwrap_or(0));
        all.lag = all.lag.saturating_add((lag - 1).max(0));
    }
    Ok(all)
}
