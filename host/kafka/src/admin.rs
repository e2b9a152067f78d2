//! Questions to Kafka from outside the data path: topics, watermarks, committed
//! offsets, and reading a topic from end to end. For provisioning, operators'
//! commands, the demo and tests; each call opens a client of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::admin::AdminClient;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::{Offset, TopicPartitionList};

use crate::config::{ConfigError, KafkaConfig};
use crate::message_headers;
use crate::reachability::{PlainContext, Reachability};
use crate::topics::FoundTopic;

/// A question that Kafka did not answer.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The settings can't work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Kafka did not answer, or not well.
    #[error(
        "could not {what} at Kafka {brokers}: {reason}. Check that a broker runs there and that KAFKA_BOOTSTRAP_SERVERS names it"
    )]
    Kafka {
        /// What was tried.
        what: &'static str,
        /// The bootstrap addresses.
        brokers: String,
        /// librdkafka's words.
        reason: String,
    },
    /// The topic does not exist.
    #[error("topic {topic} does not exist at {brokers}; create it with `cdr provision`")]
    TopicMissing {
        /// The topic.
        topic: String,
        /// The bootstrap addresses.
        brokers: String,
    },
    /// The budget ran out.
    #[error("could not {what} at Kafka {brokers} within {budget:.1?}")]
    TimedOut {
        /// What was tried.
        what: &'static str,
        /// The bootstrap addresses.
        brokers: String,
        /// The budget.
        budget: Duration,
    },
}

impl AdminError {
    pub(crate) fn new(kafka: &KafkaConfig, what: &'static str, error: &KafkaError) -> Self {
        AdminError::Kafka {
            what,
            brokers: kafka.bootstrap.clone(),
            reason: error.to_string(),
        }
    }
}

pub(crate) fn admin_client(kafka: &KafkaConfig) -> Result<AdminClient<PlainContext>, AdminError> {
    let reach = Arc::new(Reachability::new(kafka.bootstrap.clone(), "admin"));
    kafka
        .client()?
        .create_with_context(PlainContext(reach))
        .map_err(|error| kafka.refused(&error).into())
}

/// A consumer that never joins its group; without a group when none is given.
pub(crate) fn observer(
    kafka: &KafkaConfig,
    group: Option<&str>,
    reach: Arc<Reachability>,
) -> Result<BaseConsumer<PlainContext>, AdminError> {
    let mut config = kafka.client()?;
    config
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("enable.partition.eof", "true")
        .set("allow.auto.create.topics", "false")
        .set("auto.offset.reset", "earliest");
    if let Some(group) = group {
        config.set("group.id", group);
    }
    config
        .create_with_context(PlainContext(reach))
        .map_err(|error| kafka.refused(&error).into())
}

fn lone_observer(
    kafka: &KafkaConfig,
    group: Option<&str>,
) -> Result<BaseConsumer<PlainContext>, AdminError> {
    let reach = Arc::new(Reachability::new(kafka.bootstrap.clone(), "admin"));
    observer(kafka, group, reach)
}

/// Runs blocking calls of librdkafka off the async threads.
async fn blocking<T: Send + 'static>(
    kafka: &KafkaConfig,
    what: &'static str,
    ask: impl FnOnce(&KafkaConfig) -> Result<T, AdminError> + Send + 'static,
) -> Result<T, AdminError> {
    let owned = kafka.clone();
    match tokio::task::spawn_blocking(move || ask(&owned)).await {
        Ok(answer) => answer,
        Err(_) => Err(AdminError::new(kafka, what, &KafkaError::Canceled)),
    }
}

/// All topics. Asks for none by name, so that no broker creates one.
pub async fn topics(kafka: &KafkaConfig, budget: Duration) -> Result<Vec<FoundTopic>, AdminError> {
    blocking(kafka, "list topics", move |kafka| {
        topics_of(&lone_observer(kafka, None)?, kafka, budget)
    })
    .await
}

fn topics_of(
    client: &BaseConsumer<PlainContext>,
    kafka: &KafkaConfig,
    budget: Duration,
) -> Result<Vec<FoundTopic>, AdminError> {
    let metadata = client
        .fetch_metadata(None, budget)
        .map_err(|error| AdminError::new(kafka, "list topics", &error))?;
    Ok(metadata.topics().iter().map(FoundTopic::from).collect())
}

fn partitions_of(
    client: &BaseConsumer<PlainContext>,
    kafka: &KafkaConfig,
    topic: &str,
    budget: Duration,
) -> Result<Vec<i32>, AdminError> {
    topics_of(client, kafka, budget)?
        .into_iter()
        .find(|found| found.name == topic)
        .map(|found| found.partitions.iter().map(|p| p.id).collect())
        .ok_or_else(|| AdminError::TopicMissing {
            topic: topic.to_owned(),
            brokers: kafka.bootstrap.clone(),
        })
}

/// The first offset of a partition and the one after its last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watermarks {
    /// The first offset that is still there.
    pub low: i64,
    /// The offset that the next record will get.
    pub high: i64,
}

/// Watermarks of every partition of a topic.
pub async fn watermarks(
    kafka: &KafkaConfig,
    topic: &str,
    budget: Duration,
) -> Result<BTreeMap<i32, Watermarks>, AdminError> {
    let topic = topic.to_owned();
    blocking(kafka, "read watermarks", move |kafka| {
        watermarks_of(&lone_observer(kafka, None)?, kafka, &topic, budget)
    })
    .await
}

fn watermarks_of(
    client: &BaseConsumer<PlainContext>,
    kafka: &KafkaConfig,
    topic: &str,
    budget: Duration,
) -> Result<BTreeMap<i32, Watermarks>, AdminError> {
    partitions_of(client, kafka, topic, budget)?
        .into_iter()
        .map(|partition| {
            client
                .fetch_watermarks(topic, partition, budget)
                .map(|(low, high)| (partition, Watermarks { low, high }))
                .map_err(|error| AdminError::new(kafka, "read watermarks", &error))
        })
        .collect()
}

/// The next offsets that `group` has committed, by partition of `topic`; none
/// where it has not committed yet.
pub async fn committed_offsets(
    kafka: &KafkaConfig,
    group: &str,
    topic: &str,
    budget: Duration,
) -> Result<BTreeMap<i32, Option<i64>>, AdminError> {
    let (group, topic) = (group.to_owned(), topic.to_owned());
    blocking(kafka, "read committed offsets", move |kafka| {
        let client = lone_observer(kafka, Some(&group))?;
        let partitions = partitions_of(&client, kafka, &topic, budget)?;
        committed_of(&client, &topic, &partitions, budget)
            .map_err(|error| AdminError::new(kafka, "read committed offsets", &error))
    })
    .await
}

pub(crate) fn committed_of(
    client: &BaseConsumer<PlainContext>,
    topic: &str,
    partitions: &[i32],
    budget: Duration,
) -> Result<BTreeMap<i32, Option<i64>>, KafkaError> {
    let mut list = TopicPartitionList::new();
    for &partition in partitions {
        list.add_partition(topic, partition);
    }
    let answer = client.committed_offsets(list, budget)?;
    answer
        .elements()
        .iter()
        .map(|element| {
            element.error()?;
            let committed = match element.offset() {
                Offset::Offset(next) => Some(next),
                _ => None,
            };
            Ok((element.partition(), committed))
        })
        .collect()
}

/// A record as it lies in a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicRecord {
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its payload; none for a tombstone.
    pub payload: Option<Vec<u8>>,
    /// Its Kafka timestamp, ms since the Unix epoch.
    pub timestamp_ms: Option<i64>,
    /// Its headers; what is not UTF-8 in them is replaced.
    pub headers: Vec<(String, String)>,
}

impl TopicRecord {
    /// Value of the first header of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.as_str())
    }
}

/// Reads a topic from its first record to what was its end when the call began,
/// partition by partition in offset order. Holds it all in memory.
pub async fn read_topic(
    kafka: &KafkaConfig,
    topic: &str,
    budget: Duration,
) -> Result<Vec<TopicRecord>, AdminError> {
    let topic = topic.to_owned();
    blocking(kafka, "read a topic", move |kafka| {
        read_all(kafka, &topic, i64::MAX, budget)
    })
    .await
}

/// Reads the last `records` records of a topic, or about as many: an equal share
/// of each partition, by offsets. Changes nothing, and joins no group.
pub async fn read_last(
    kafka: &KafkaConfig,
    topic: &str,
    records: u32,
    budget: Duration,
) -> Result<Vec<TopicRecord>, AdminError> {
    let topic = topic.to_owned();
    blocking(kafka, "read a topic", move |kafka| {
        read_all(kafka, &topic, i64::from(records), budget)
    })
    .await
}

/// The last `last` records of all partitions together.
fn read_all(
    kafka: &KafkaConfig,
    topic: &str,
    last: i64,
    budget: Duration,
) -> Result<Vec<TopicRecord>, AdminError> {
    let failed = |error: &KafkaError| AdminError::new(kafka, "read a topic", error);
    let deadline = Instant::now() + budget;
    // librdkafka wants a group for partitions that are assigned by hand; this
    // one is never joined and never committed to.
    let client = lone_observer(kafka, Some("cdr-read-topic"))?;
    let mut open: BTreeMap<i32, i64> = BTreeMap::new();
    let mut assignment = TopicPartitionList::new();
    let watermarks = watermarks_of(&client, kafka, topic, budget)?;
    let share = last / i64::try_from(watermarks.len().max(1)).unwrap_or(1);
    for (partition, marks) in watermarks {
        let from = marks.low.max(marks.high.saturating_sub(share.max(1)));
        // An empty partition may not even send its end.
        if from < marks.high {
            open.insert(partition, marks.high);
            assignment
                .add_partition_offset(topic, partition, Offset::Offset(from))
                .map_err(|error| failed(&error))?;
        }
    }
    client.assign(&assignment).map_err(|error| failed(&error))?;
    let mut records = Vec::new();
    while !open.is_empty() {
        if Instant::now() >= deadline {
            return Err(AdminError::TimedOut {
                what: "read a topic",
                brokers: kafka.bootstrap.clone(),
                budget,
            });
        }
        match client.poll(Duration::from_millis(200)) {
            None => {}
            Some(Ok(message)) => {
                let end = open.get(&message.partition()).copied().unwrap_or(0);
                if message.offset() < end {
                    records.push(topic_record(&message));
                }
                if message.offset() + 1 >= end {
                    open.remove(&message.partition());
                }
            }
            // Offsets before the end may be gaps.
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                open.remove(&partition);
            }
            Some(Err(KafkaError::MessageConsumptionFatal(code))) => {
                return Err(failed(&KafkaError::MessageConsumptionFatal(code)));
            }
            // The client retries; the deadline bounds it.
            Some(Err(error)) => tracing::debug!(event = "kafka_read_error", "{error}"),
        }
    }
    records.sort_by_key(|record| (record.partition, record.offset));
    Ok(records)
}

fn topic_record(message: &BorrowedMessage<'_>) -> TopicRecord {
    TopicRecord {
        partition: message.partition(),
        offset: message.offset(),
        key: message.key().map(<[u8]>::to_vec),
        payload: message.payload().map(<[u8]>::to_vec),
        timestamp_ms: message.timestamp().to_millis(),
        headers: message_headers::lossy(message),
    }
}

/// Waits until a broker answers. Failures meanwhile are not errors; they are
/// logged once.
pub async fn wait_for_broker(kafka: &KafkaConfig, budget: Duration) -> Result<(), AdminError> {
    let reach = Arc::new(Reachability::new(kafka.bootstrap.clone(), "admin"));
    blocking(kafka, "reach a broker", move |kafka| {
        let client = observer(kafka, None, reach.clone())?;
        let deadline = Instant::now() + budget;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match client.fetch_metadata(None, left.min(Duration::from_secs(2))) {
                Ok(_) => return Ok(()),
                Err(error) if left.is_zero() => {
                    return Err(AdminError::new(kafka, "reach a broker", &error));
                }
                Err(error) => {
                    reach.down(&error.to_string());
                    // An unreachable address fails at once.
                    std::thread::sleep(Duration::from_millis(100).min(left));
                }
            }
        }
    })
    .await
}
