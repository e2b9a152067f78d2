//! What the tests of this crate share.
#![allow(dead_code, reason = "each test file uses a part")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cdr_kafka::ledger::RecordId;
use cdr_kafka::topics::{TopicSpec, provision};
use cdr_kafka::{
    ConsumerConfig, KafkaConfig, Publisher, PublisherConfig, RawConsumer, Record, Started,
};
use tokio::sync::mpsc::Receiver;

/// More than anything here takes on a loaded machine; only a failure waits so long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// `RUST_LOG=debug cargo test -- --nocapture` shows what happened.
pub fn logs() {
    let _ = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_test_writer()
        .try_init();
}

/// Waits until `done` says so.
pub async fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The broker of `KAFKA_BOOTSTRAP_SERVERS`, or none and a line that says so.
pub fn broker(test: &str) -> Option<String> {
    let brokers = std::env::var("KAFKA_BOOTSTRAP_SERVERS")
        .ok()
        .filter(|b| !b.is_empty());
    if brokers.is_none() {
        eprintln!(
            "NOT RUN: {test} needs a Kafka broker in KAFKA_BOOTSTRAP_SERVERS (just test-kafka)"
        );
    }
    brokers
}

pub fn unique(name: &str) -> String {
    let nanos = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos());
    format!("test.{name}.{nanos}")
}

/// A new topic of raw records.
pub async fn raw_topic(brokers: &str, name: &str, partitions: i32) -> String {
    let topic = unique(name);
    let spec = TopicSpec {
        partitions,
        ..TopicSpec::raw(&topic)
    };
    provision(&KafkaConfig::plaintext(brokers), &[spec], PATIENCE)
        .await
        .expect("provisioned");
    topic
}

pub fn publisher(bootstrap: &str) -> Publisher {
    Publisher::new(
        &KafkaConfig::plaintext(bootstrap),
        PublisherConfig::default(),
    )
    .expect("a producer")
}

/// Publishes `payload-0` … under keys `key-0` … and waits for every acknowledgement.
pub async fn publish_numbered(bootstrap: &str, topic: &str, numbers: std::ops::Range<usize>) {
    let publisher = publisher(bootstrap);
    let waiting: Vec<_> = numbers
        .map(|i| {
            let (key, payload) = (format!("key-{i}"), format!("payload-{i}"));
            publisher.publish(topic, Some(key.as_bytes()), Some(payload.as_bytes()), &[])
        })
        .collect();
    for delivery in waiting {
        delivery.await.expect("an acknowledgement");
    }
}

/// Quick to notice everything.
pub fn consumer_config(topic: &str, group: &str) -> ConsumerConfig {
    ConsumerConfig {
        commit_interval: Duration::from_millis(20),
        session_timeout: Duration::from_secs(10),
        max_poll_interval: Duration::from_secs(60),
        lag_interval: Duration::from_millis(100),
        ..ConsumerConfig::new(topic, group)
    }
}

pub fn start(bootstrap: &str, config: ConsumerConfig) -> Started {
    logs();
    RawConsumer::start(&KafkaConfig::plaintext(bootstrap), config).expect("a consumer")
}

/// The next `count` records.
pub async fn receive(records: &mut Receiver<Record>, count: usize) -> Vec<Record> {
    let mut all = Vec::with_capacity(count);
    while all.len() < count {
        let next = tokio::time::timeout(PATIENCE, records.recv()).await;
        all.push(
            next.unwrap_or_else(|_| panic!("only {} of {count} records came", all.len()))
                .expect("the consumer runs"),
        );
    }
    all
}

pub fn ids(records: &[Record]) -> Vec<RecordId> {
    records.iter().map(|record| record.id).collect()
}

/// Committed next offsets of the group, as the broker has them.
pub async fn committed(bootstrap: &str, group: &str, topic: &str) -> Vec<Option<i64>> {
    cdr_kafka::admin::committed_offsets(&KafkaConfig::plaintext(bootstrap), group, topic, PATIENCE)
        .await
        .expect("committed offsets")
        .into_values()
        .collect()
}
