//! What the tests share: where the binary and the library are, and clients.
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cdr_embedded::clickhouse::library;
use cdr_embedded::{Broker, ChildLogs, ClickHouse, PartConfig};
use rdkafka::ClientConfig;
use rdkafka::TopicPartitionList;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::topic_partition_list::Offset;

pub const STOP: Duration = Duration::from_secs(30);
pub const REPLY: Duration = Duration::from_secs(30);

pub fn exe() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_cdr-embedded-part"))
}

/// The library, installed if it is not there; once a process.
pub async fn library() -> PathBuf {
    library::ensure(&library::default_cache(), |step| eprintln!("{step}"))
        .await
        .unwrap()
}

pub fn part(data: &Path, port: Option<u16>) -> PartConfig {
    PartConfig {
        exe: exe(),
        data: data.to_owned(),
        port,
        logs: ChildLogs::Files(data.with_added_extension("logs")),
    }
}

pub async fn broker(data: &Path, port: Option<u16>) -> Broker {
    Broker::start(part(data, port)).await.unwrap()
}

pub async fn clickhouse(data: &Path, port: Option<u16>) -> ClickHouse {
    ClickHouse::start(part(data, port), &library().await)
        .await
        .unwrap()
}

/// The body of the answer, or of the refusal.
pub async fn query(clickhouse: &ClickHouse, sql: impl Into<String>) -> Result<String, String> {
    ask(
        &clickhouse.url(),
        clickhouse.user(),
        clickhouse.password(),
        sql,
    )
    .await
}

pub async fn ask(
    url: &str,
    user: &str,
    password: &str,
    sql: impl Into<String>,
) -> Result<String, String> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .proxy(None)
        .timeout_global(Some(REPLY))
        .http_status_as_error(false)
        .build()
        .into();
    let request = agent
        .post(url)
        .header("X-ClickHouse-User", user)
        .header("X-ClickHouse-Key", password);
    let mut response = request
        .send(sql.into())
        .map_err(|error| error.to_string())?;
    let success = response.status().is_success();
    let body = response
        .body_mut()
        .read_to_string()
        .map_err(|error| error.to_string())?;
    let body = body.trim().to_owned();
    if success { Ok(body) } else { Err(body) }
}

pub fn kafka(bootstrap: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap);
    config
}

pub fn admin(bootstrap: &str) -> AdminClient<DefaultClientContext> {
    kafka(bootstrap).create().unwrap()
}

/// Creates a topic as `cdr provision` does.
pub async fn create_topic(bootstrap: &str, name: &str, partitions: i32) {
    let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1))
        .set("cleanup.policy", "delete")
        .set("retention.ms", "86400000")
        .set("compression.type", "lz4");
    let options = AdminOptions::new()
        .operation_timeout(Some(REPLY))
        .request_timeout(Some(REPLY));
    let created = admin(bootstrap)
        .create_topics([&topic], &options)
        .await
        .unwrap();
    assert_eq!(created, [Ok(name.to_owned())]);
}

pub fn producer(bootstrap: &str) -> FutureProducer {
    kafka(bootstrap)
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("compression.type", "lz4")
        .set("linger.ms", "5")
        .set("message.timeout.ms", "60000")
        .create()
        .unwrap()
}

/// Publishes `payload` and gives its partition and offset once it is acknowledged.
pub async fn publish(
    producer: &FutureProducer,
    topic: &str,
    key: &str,
    payload: &str,
) -> Result<(i32, i64), rdkafka::error::KafkaError> {
    let record = FutureRecord::to(topic).key(key).payload(payload);
    let delivered = producer
        .send(record, REPLY)
        .await
        .map_err(|(error, _)| error)?;
    Ok((delivered.partition, delivered.offset))
}

/// The next record. A rebalance ends a poll early, with nothing.
pub fn next_record(consumer: &BaseConsumer) -> BorrowedMessage<'_> {
    let since = Instant::now();
    while since.elapsed() < REPLY {
        if let Some(polled) = consumer.poll(REPLY) {
            return polled.unwrap();
        }
    }
    panic!("no record in {} s", REPLY.as_secs());
}

/// Everything that is in `topic`, in the order of partitions and offsets.
pub fn read_all(bootstrap: &str, topic: &str, partitions: i32) -> Vec<String> {
    let consumer: BaseConsumer = kafka(bootstrap)
        .set("group.id", "reader")
        .set("enable.auto.commit", "false")
        .create()
        .unwrap();
    let mut payloads = vec![];
    for partition in 0..partitions {
        let (low, high) = consumer.fetch_watermarks(topic, partition, REPLY).unwrap();
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, partition, Offset::Offset(low))
            .unwrap();
        consumer.assign(&list).unwrap();
        let mut next = low;
        while next < high {
            let message = next_record(&consumer);
            next = message.offset() + 1;
            payloads.push(String::from_utf8(message.payload().unwrap().to_vec()).unwrap());
        }
    }
    payloads
}
