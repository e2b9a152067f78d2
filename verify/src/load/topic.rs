//! What lies in the topic in the end, against what was promised.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use cdr_kafka::{KafkaConfig, admin};
use fixedbitset::FixedBitSet;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};
use serde::Deserialize;

use super::template::{number, raw_id};

/// For one question, and for the next record to come.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between one line of progress and the next.
const PROGRESS: Duration = Duration::from_secs(5);
/// How many are named of those that are not as they must be.
const NAMED: usize = 5;

/// What was found in the topic, in a bit a record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Records in it.
    pub records: u64,
    /// The numbers of those that were sent.
    pub numbers: FixedBitSet,
    /// Records that had come before.
    pub doubled: u64,
    /// Records that nobody has sent, or with a key of another.
    pub foreign: u64,
}

#[derive(Deserialize)]
struct Named<'a> {
    raw_id: &'a str,
}

impl Found {
    /// Counts a record of the topic; those sent have numbers below `issued`.
    pub fn add(&mut self, key: Option<&[u8]>, payload: Option<&[u8]>, issued: u64) {
        self.records += 1;
        let named = payload.and_then(|payload| serde_json::from_slice::<Named>(payload).ok());
        let sent = named
            .filter(|named| key == Some(named.raw_id.as_bytes()))
            .and_then(|named| number(named.raw_id))
            .filter(|number| *number < issued)
            .and_then(|number| usize::try_from(number).ok());
        match sent {
            None => self.foreign += 1,
            Some(number) if self.numbers.contains(number) => self.doubled += 1,
            Some(number) => self.numbers.grow_and_insert(number),
        }
    }
}

/// What landed, judged by what was answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Landed {
    /// Records in the topic.
    pub records: u64,
    /// Accepted and not in the topic.
    pub lost: u64,
    /// The first few of those.
    pub lost_ids: Vec<String>,
    /// In the topic though a 429 said that they are not.
    pub refused: u64,
    /// The first few of those.
    pub refused_ids: Vec<String>,
    /// In the topic, and neither accepted nor refused with 429: a 503 that is ambiguous,
    /// or no answer.
    pub unconfirmed: u64,
    /// In the topic once more than sent.
    pub doubled: u64,
    /// In the topic and never sent.
    pub foreign: u64,
}

impl Landed {
    /// Compares.
    pub fn compare(found: &Found, accepted: &FixedBitSet, refused: &FixedBitSet) -> Self {
        let named = |numbers: &mut dyn Iterator<Item = usize>| -> (u64, Vec<String>) {
            let mut ids = Vec::new();
            let mut count = 0;
            for number in numbers {
                count += 1;
                if ids.len() < NAMED {
                    ids.push(raw_id(number as u64));
                }
            }
            (count, ids)
        };
        let (lost, lost_ids) = named(&mut accepted.difference(&found.numbers));
        let (refused_count, refused_ids) = named(&mut refused.intersection(&found.numbers));
        let unconfirmed = found
            .numbers
            .ones()
            .filter(|number| !accepted.contains(*number) && !refused.contains(*number))
            .count();
        Self {
            records: found.records,
            lost,
            lost_ids,
            refused: refused_count,
            refused_ids,
            unconfirmed: unconfirmed as u64,
            doubled: found.doubled,
            foreign: found.foreign,
        }
    }
}

/// Reads a whole topic, as it is when this begins.
///
/// # Errors
/// Kafka does not answer.
pub async fn read(kafka: KafkaConfig, topic: &str, issued: u64) -> anyhow::Result<Found> {
    let marks = admin::watermarks(&kafka, topic, PATIENCE).await?;
    let ends = marks
        .into_iter()
        .filter(|(_, marks)| marks.low < marks.high)
        .map(|(partition, marks)| (partition, marks.low, marks.high))
        .collect();
    let topic = topic.to_owned();
    tokio::task::spawn_blocking(move || read_to(&kafka.bootstrap, &topic, ends, issued)).await?
}

/// Partitions with their first offset and the one after their last.
type Ends = Vec<(i32, i64, i64)>;

fn read_to(brokers: &str, topic: &str, mut open: Ends, issued: u64) -> anyhow::Result<Found> {
    let client: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        // Never joined and never committed to; assigned partitions want one.
        .set("group.id", "cdr-load")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        // What is fetched ahead, of each partition.
        .set("queued.max.messages.kbytes", "8192")
        .create()
        .context("a consumer")?;
    let mut assignment = TopicPartitionList::new();
    for (partition, low, _) in &open {
        assignment.add_partition_offset(topic, *partition, Offset::Offset(*low))?;
    }
    client.assign(&assignment)?;
    let mut found = Found::default();
    let (mut last_record, mut last_told) = (Instant::now(), Instant::now());
    while !open.is_empty() {
        match client.poll(Duration::from_millis(200)) {
            Some(Ok(message)) => {
                last_record = Instant::now();
                let of = |(partition, _, _): &(i32, i64, i64)| *partition == message.partition();
                let end = open.iter().find(|end| of(end)).map_or(0, |end| end.2);
                if message.offset() < end {
                    found.add(message.key(), message.payload(), issued);
                }
                if message.offset() + 1 >= end {
                    open.retain(|end| !of(end));
                }
            }
            // Offsets before the end may be gaps.
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                open.retain(|end| end.0 != partition);
            }
            Some(Err(KafkaError::MessageConsumptionFatal(code))) => bail!("{topic}: {code}"),
            // The client tries again; patience bounds it.
            Some(Err(_)) | None => {}
        }
        if last_record.elapsed() > PATIENCE {
            bail!(
                "{topic} could not be read to its end: nothing more for {PATIENCE:?} after {} records",
                found.records
            );
        }
        if last_told.elapsed() > PROGRESS {
            last_told = Instant::now();
            eprintln!("      {} records of {topic} read", found.records);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(numbers: &[usize]) -> FixedBitSet {
        let mut set = FixedBitSet::new();
        for number in numbers {
            set.grow_and_insert(*number);
        }
        set
    }

    fn topic(ids: &[&str]) -> Found {
        let mut found = Found::default();
        for id in ids {
            let payload = format!(r#"{{"cell_id":"x","raw_id":"{id}"}}"#);
            found.add(Some(id.as_bytes()), Some(payload.as_bytes()), 1000);
        }
        found
    }

    #[test]
    fn an_accepted_record_that_is_not_there_is_lost_and_named() {
        let found = topic(&["load-0", "load-2"]);
        let landed = Landed::compare(&found, &numbers(&[0, 1, 2, 900]), &numbers(&[]));
        assert_eq!(landed.lost, 2);
        assert_eq!(landed.lost_ids, ["load-1", "load-900"]);
        assert_eq!((landed.records, landed.unconfirmed), (2, 0));
    }

    #[test]
    fn all_are_counted_and_a_few_named() {
        let all: Vec<usize> = (0..500).collect();
        let landed = Landed::compare(&topic(&[]), &numbers(&all), &numbers(&[]));
        assert_eq!(landed.lost, 500);
        assert_eq!(landed.lost_ids.len(), NAMED);
    }

    #[test]
    fn what_is_there_without_a_202_is_ambiguous_unless_a_429_said_it_is_not() {
        let found = topic(&["load-0", "load-1", "load-2"]);
        let landed = Landed::compare(&found, &numbers(&[0]), &numbers(&[2, 3]));
        assert_eq!((landed.lost, landed.unconfirmed), (0, 1));
        assert_eq!(landed.refused_ids, ["load-2"]);
        assert_eq!(landed.refused, 1);
    }

    #[test]
    fn records_that_come_again_or_from_nowhere_are_counted_apart() {
        let mut found = topic(&["load-1", "load-1", "load-1000", "load-x", "s-1"]);
        found.add(Some(b"load-2"), Some(br#"{"raw_id":"load-3"}"#), 1000);
        found.add(Some(b"load-2"), Some(b"no JSON"), 1000);
        found.add(Some(b"load-2"), None, 1000);
        assert_eq!((found.records, found.doubled, found.foreign), (8, 1, 6));
        assert_eq!(found.numbers.ones().collect::<Vec<_>>(), [1]);
    }
}
