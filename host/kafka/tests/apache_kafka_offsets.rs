//! Offsets that are out of range, on Apache Kafka: retention that overtakes the
//! group, topics that are cut or made again. `DeleteRecords` is retention at
//! will. See `apache_kafka.rs` for how to run it.

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use cdr_kafka::topics::{TopicSpec, provision};
use cdr_kafka::{ConsumerConfig, KafkaConfig, Outcome, RawConsumer, Started};
use common::{
    PATIENCE, broker, committed, consumer_config, eventually, ids, publish_numbered, raw_topic,
    receive, start, unique,
};
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

fn admin(brokers: &str) -> AdminClient<DefaultClientContext> {
    ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .create()
        .expect("an admin client")
}

/// What retention does: everything before `offset` of partition 0 is removed.
async fn retain_from(brokers: &str, topic: &str, offset: i64) {
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, 0, Offset::Offset(offset))
        .expect("an offset");
    let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
    admin(brokers)
        .delete_records(&list, &options)
        .await
        .expect("removed");
}

/// A topic of `records` records, of which a group has consumed ten.
async fn ten_consumed(brokers: &str, name: &str, records: usize) -> (String, String) {
    let topic = raw_topic(brokers, name, 1).await;
    let group = unique("group");
    publish_numbered(brokers, &topic, 0..records).await;
    let config = ConsumerConfig {
        max_in_flight: 10,
        ..consumer_config(&topic, &group)
    };
    let mut started = start(brokers, config);
    let records = receive(&mut started.records, 10).await;
    started.consumer.drain();
    started.consumer.settle(ids(&records), Outcome::Inserted);
    started.consumer.close(PATIENCE).await.expect("closed");
    assert_eq!(committed(brokers, &group, &topic).await, [Some(10)]);
    (topic, group)
}

async fn lost(consumer: &RawConsumer, count: u64) {
    eventually("the loss is counted", || {
        consumer.status().lost_to_retention >= count
    })
    .await;
    let status = consumer.status();
    assert_eq!(status.lost_to_retention, count);
    assert_eq!(status.logs[&0].lost_to_retention, count);
    assert_eq!(status.resets, 0);
}

#[tokio::test]
async fn apache_kafka_what_retention_took_while_the_group_was_away_is_counted() {
    let Some(brokers) = broker("retention") else {
        return;
    };
    let (topic, group) = ten_consumed(&brokers, "retained", 30).await;
    retain_from(&brokers, &topic, 25).await;
    let mut started = start(&brokers, consumer_config(&topic, &group));
    let records = receive(&mut started.records, 5).await;
    assert_eq!(records[0].id.offset, 25);
    started.consumer.settle(ids(&records), Outcome::Inserted);
    lost(&started.consumer, 15).await;
    started.consumer.close(PATIENCE).await.expect("closed");
    assert_eq!(committed(&brokers, &group, &topic).await, [Some(30)]);
}

/// redpanda#30624, librdkafka#1911: nor is there lag below the log's start.
#[tokio::test]
async fn apache_kafka_a_partition_with_nothing_left_says_what_it_lost() {
    let Some(brokers) = broker("retention of everything") else {
        return;
    };
    let (topic, group) = ten_consumed(&brokers, "emptied", 30).await;
    retain_from(&brokers, &topic, 30).await;
    let mut started = start(&brokers, consumer_config(&topic, &group));
    lost(&started.consumer, 20).await;
    eventually("the lag is read", || {
        started.consumer.lag().contains_key(&0)
    })
    .await;
    let lag = started.consumer.lag()[&0];
    assert_eq!((lag.committed, lag.low, lag.lag), (Some(10), 30, 0));
    // What comes next is consumed, and the loss is not told again.
    publish_numbered(&brokers, &topic, 30..31).await;
    let records = receive(&mut started.records, 1).await;
    assert_eq!(records[0].id.offset, 30);
    started.consumer.settle(ids(&records), Outcome::Inserted);
    eventually("the commit", || {
        let status = started.consumer.status();
        status.partitions.first().and_then(|view| view.committed) == Some(31)
    })
    .await;
    lost(&started.consumer, 20).await;
    started.consumer.close(PATIENCE).await.expect("closed");
}

/// A partition that is paused because the worker is slow.
#[tokio::test]
async fn apache_kafka_what_retention_took_from_a_slow_consumer_is_counted() {
    let Some(brokers) = broker("retention under a slow consumer") else {
        return;
    };
    let topic = raw_topic(&brokers, "overtaken", 1).await;
    let group = unique("group");
    publish_numbered(&brokers, &topic, 0..100).await;
    let config = ConsumerConfig {
        max_in_flight: 8,
        ..consumer_config(&topic, &group)
    };
    let Started {
        consumer,
        mut records,
        ..
    } = start(&brokers, config);
    eventually("a pause", || consumer.status().paused).await;
    retain_from(&brokers, &topic, 60).await;
    let mut consumed = BTreeSet::new();
    while !consumed.contains(&99) {
        let batch = receive(&mut records, 1).await;
        consumed.insert(batch[0].id.offset);
        consumer.settle(ids(&batch), Outcome::Inserted);
    }
    let gone = (0..100).filter(|offset| !consumed.contains(offset)).count();
    assert!(gone > 40, "retention came too late: {gone}");
    lost(&consumer, gone as u64).await;
    consumer.close(PATIENCE).await.expect("closed");
    assert_eq!(committed(&brokers, &group, &topic).await, [Some(100)]);
}

/// Markers of transactions and aborted records are offsets without a record.
#[tokio::test]
async fn apache_kafka_gaps_of_transactions_are_no_losses() {
    let Some(brokers) = broker("gaps of transactions") else {
        return;
    };
    let topic = raw_topic(&brokers, "gaps", 1).await;
    let producing = topic.clone();
    let bootstrap = brokers.clone();
    let producer = move || {
        let producer: ThreadedProducer<DefaultProducerContext> = ClientConfig::new()
            .set("bootstrap.servers", &bootstrap)
            .set("transactional.id", &producing)
            .create()
            .expect("a producer");
        producer.init_transactions(PATIENCE).expect("initialised");
        for number in 0..20 {
            producer.begin_transaction().expect("begun");
            let payload = format!("payload-{number}");
            let record = BaseRecord::<str, str>::to(&producing).payload(&payload);
            producer.send(record).map_err(|(e, _)| e).expect("sent");
            match number % 4 {
                3 if producer.flush(PATIENCE).is_ok() => {
                    producer.abort_transaction(PATIENCE).expect("aborted")
                }
                _ => producer.commit_transaction(PATIENCE).expect("committed"),
            }
        }
    };
    tokio::task::spawn_blocking(producer)
        .await
        .expect("produced");
    let group = unique("group");
    let mut started = start(&brokers, consumer_config(&topic, &group));
    let records = receive(&mut started.records, 15).await;
    started.consumer.settle(ids(&records), Outcome::Inserted);
    let next = records.last().map(|record| record.id.offset + 1);
    eventually("the watermarks were read after the commit", || {
        let lag = started.consumer.lag();
        lag.get(&0).and_then(|lag| lag.committed) == next
    })
    .await;
    // Retention comes by later, over what was consumed.
    retain_from(&brokers, &topic, 20).await;
    eventually("the watermark was read", || {
        started
            .consumer
            .lag()
            .get(&0)
            .is_some_and(|lag| lag.low == 20)
    })
    .await;
    let status = started.consumer.status();
    assert_eq!((status.lost_to_retention, status.resets), (0, 0));
    started.consumer.close(PATIENCE).await.expect("closed");
}

#[tokio::test]
async fn apache_kafka_a_commit_beyond_the_end_starts_at_the_earliest_and_says_so() {
    let Some(brokers) = broker("a commit beyond the end") else {
        return;
    };
    let topic = raw_topic(&brokers, "beyond", 1).await;
    let group = unique("group");
    publish_numbered(&brokers, &topic, 0..5).await;
    let (bootstrap, to, by) = (brokers.clone(), topic.clone(), group.clone());
    let commit = move || {
        let client: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", &bootstrap)
            .set("group.id", &by)
            .create()
            .expect("a consumer");
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&to, 0, Offset::Offset(1000))
            .expect("an offset");
        client.commit(&list, CommitMode::Sync).expect("committed");
    };
    tokio::task::spawn_blocking(commit)
        .await
        .expect("committed");
    let mut started = start(&brokers, consumer_config(&topic, &group));
    let records = receive(&mut started.records, 5).await;
    assert_eq!(records[0].id.offset, 0);
    started.consumer.settle(ids(&records), Outcome::Inserted);
    eventually("the reset is counted", || {
        started.consumer.status().resets == 1
    })
    .await;
    started.consumer.close(PATIENCE).await.expect("closed");
    assert_eq!(committed(&brokers, &group, &topic).await, [Some(5)]);
    assert_eq!(started.consumer.status().lost_to_retention, 0);
}

#[tokio::test]
async fn apache_kafka_a_topic_that_is_made_again_is_consumed_from_its_start() {
    let Some(brokers) = broker("a topic made again") else {
        return;
    };
    let topic = raw_topic(&brokers, "again", 1).await;
    let group = unique("group");
    publish_numbered(&brokers, &topic, 0..20).await;
    let mut started = start(&brokers, consumer_config(&topic, &group));
    let records = receive(&mut started.records, 20).await;
    started.consumer.settle(ids(&records), Outcome::Inserted);
    eventually("the commit", || {
        let status = started.consumer.status();
        status.partitions.first().and_then(|view| view.committed) == Some(20)
    })
    .await;
    let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
    let deleted = admin(&brokers).delete_topics(&[&topic], &options).await;
    assert!(deleted.is_ok_and(|all| all.iter().all(Result::is_ok)));
    let spec = TopicSpec {
        partitions: 1,
        ..TopicSpec::raw(&topic)
    };
    let kafka = KafkaConfig::plaintext(&brokers);
    // The name is free again only when the broker is done with deleting.
    let mut tries = 0;
    while let Err(error) = provision(&kafka, std::slice::from_ref(&spec), PATIENCE).await {
        tries += 1;
        assert!(tries < 100, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    publish_numbered(&brokers, &topic, 0..5).await;
    let again = receive(&mut started.records, 5).await;
    assert_eq!(again[0].id.offset, 0);
    started.consumer.settle(ids(&again), Outcome::Inserted);
    eventually("the commit", || {
        let status = started.consumer.status();
        status.partitions.first().and_then(|view| view.committed) == Some(5)
    })
    .await;
    eventually("the reset is counted", || {
        started.consumer.status().resets >= 1
    })
    .await;
    assert!(started.consumer.status().totals.balanced());
    started.consumer.close(PATIENCE).await.expect("closed");
}
