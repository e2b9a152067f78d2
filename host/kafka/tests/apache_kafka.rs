//! The same against Apache Kafka itself, at `KAFKA_BOOTSTRAP_SERVERS` (`just
//! test-kafka` starts one and sets it). Unset, these tests say that they did
//! not run. Topics and groups are new for every run, so any broker will do.

mod common;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use cdr_kafka::topics::{Action, ProvisionError, TopicSpec, provision};
use cdr_kafka::{
    ConsumerConfig, ConsumerEvent, KafkaConfig, Outcome, PublishError, Publisher, PublisherConfig,
    Record,
};
use common::{
    PATIENCE, broker, committed, consumer_config, eventually, ids, publish_numbered, raw_topic,
    receive, start, unique,
};

#[tokio::test]
async fn apache_kafka_topics_are_created_verified_and_never_changed() {
    let Some(brokers) = broker("provisioning") else {
        return;
    };
    let kafka = KafkaConfig::plaintext(&brokers);
    let specs = [
        TopicSpec::raw(unique("raw")),
        TopicSpec::dead_letters(unique("dlq")),
    ];
    let first = provision(&kafka, &specs, PATIENCE).await.expect("created");
    assert!(first.iter().all(|topic| topic.action == Action::Created));
    let second = provision(&kafka, &specs, PATIENCE).await.expect("verified");
    assert!(second.iter().all(|topic| topic.action == Action::Verified));
    assert!(second.iter().all(|topic| topic.unreported.is_empty()));

    let mut other = specs[0].clone();
    other.partitions = 5;
    other.configs = vec![
        ("retention.ms", "1000".to_owned()),
        ("compression.type", "lz4".to_owned()),
    ];
    let missing = TopicSpec::raw(unique("missing"));
    let error = provision(&kafka, &[missing.clone(), other], PATIENCE)
        .await
        .expect_err("it does not fit");
    let text = error.to_string();
    let ProvisionError::Differs { differences, .. } = error else {
        panic!("{text}");
    };
    let settings: Vec<&str> = differences.iter().map(|d| d.setting.as_str()).collect();
    assert_eq!(settings, ["partitions", "retention.ms"]);
    assert!(
        text.contains("retention.ms must be 1000, found 86400000"),
        "{text}"
    );
    let topics = cdr_kafka::admin::topics(&kafka, PATIENCE)
        .await
        .expect("topics");
    assert!(
        !topics.iter().any(|t| t.name == missing.name),
        "nothing was created"
    );
}

#[tokio::test]
async fn apache_kafka_records_go_there_and_back() {
    let Some(brokers) = broker("publishing and consuming") else {
        return;
    };
    let topic = raw_topic(&brokers, "back", 3).await;
    let group = unique("group");
    publish_numbered(&brokers, &topic, 0..2000).await;
    let publisher = common::publisher(&brokers);
    publisher
        .publish(&topic, None, None, &[])
        .await
        .expect("a tombstone");
    publisher
        .publish(&topic, None, Some(b""), &[])
        .await
        .expect("an empty payload");

    let mut started = start(&brokers, consumer_config(&topic, &group));
    let records = receive(&mut started.records, 2002).await;
    assert_eq!(records.iter().filter(|r| r.payload.is_none()).count(), 1);
    assert_eq!(
        records
            .iter()
            .filter(|r| r.payload.as_deref() == Some(b""))
            .count(),
        1
    );
    started.consumer.settle(ids(&records), Outcome::Inserted);
    started.consumer.close(PATIENCE).await.expect("closed");

    let kafka = KafkaConfig::plaintext(&brokers);
    let marks = cdr_kafka::admin::watermarks(&kafka, &topic, PATIENCE)
        .await
        .expect("marks");
    let high: Vec<Option<i64>> = marks.values().map(|m| Some(m.high)).collect();
    assert_eq!(committed(&brokers, &group, &topic).await, high);
    let all = cdr_kafka::admin::read_topic(&kafka, &topic, PATIENCE)
        .await
        .expect("read");
    assert_eq!(all.len(), 2002);
}

#[tokio::test]
async fn apache_kafka_names_a_topic_that_does_not_exist() {
    let Some(brokers) = broker("a missing topic") else {
        return;
    };
    let publisher = common::publisher(&brokers);
    let topic = unique("nowhere");
    let result = publisher.publish(&topic, None, Some(b"{}"), &[]).await;
    assert!(
        matches!(result, Err(PublishError::TopicMissing { .. })),
        "{result:?}"
    );
    let read =
        cdr_kafka::admin::watermarks(&KafkaConfig::plaintext(&brokers), &topic, PATIENCE).await;
    assert!(read.is_err_and(|e| e.to_string().contains("cdr provision")));
}

/// The topic's own limit decides, not the client's.
#[tokio::test]
async fn apache_kafka_a_record_larger_than_the_topic_takes_is_named_so() {
    let Some(brokers) = broker("a record that is too large") else {
        return;
    };
    let kafka = KafkaConfig::plaintext(&brokers);
    let mut spec = TopicSpec::dead_letters(unique("small"));
    spec.configs.push(("max.message.bytes", "10000".to_owned()));
    provision(&kafka, std::slice::from_ref(&spec), PATIENCE)
        .await
        .expect("provisioned");
    let config = PublisherConfig {
        max_message_bytes: 10_000_000,
        ..PublisherConfig::default()
    };
    let publisher = Publisher::new(&kafka, config).expect("a producer");
    // Bytes that LZ4 can't shrink.
    let mut noise = 1u32;
    let payload: Vec<u8> = std::iter::repeat_with(|| {
        noise ^= noise << 13;
        noise ^= noise >> 17;
        noise ^= noise << 5;
        noise.to_le_bytes()[0]
    })
    .take(2_000_000)
    .collect();
    let refused = publisher
        .publish(&spec.name, None, Some(&payload), &[])
        .await;
    assert!(
        matches!(
            refused,
            Err(PublishError::TooLarge {
                bytes: 2_000_000,
                ..
            })
        ),
        "{refused:?}"
    );
    assert!(refused.is_err_and(|error| !error.is_ambiguous()));
    publisher
        .publish(&spec.name, None, Some(&payload[..5000]), &[])
        .await
        .expect("the next one goes through");
}

/// Workers may be started before `cdr provision`.
#[tokio::test]
async fn apache_kafka_a_topic_that_comes_later_is_found() {
    let Some(brokers) = broker("a late topic") else {
        return;
    };
    let topic = unique("late");
    let mut started = start(&brokers, consumer_config(&topic, &unique("group")));
    // The broker has answered that there is no such topic.
    eventually("an answer", || started.consumer.status().topic_missing).await;
    let spec = TopicSpec::raw(&topic);
    provision(&KafkaConfig::plaintext(&brokers), &[spec], PATIENCE)
        .await
        .expect("provisioned");
    publish_numbered(&brokers, &topic, 0..3).await;
    let records = receive(&mut started.records, 3).await;
    started.consumer.settle(ids(&records), Outcome::Inserted);
    started.consumer.close(PATIENCE).await.expect("closed");
}

/// Two workers share the partitions; one leaves in the middle of its work.
#[tokio::test]
async fn apache_kafka_a_rebalance_loses_nothing() {
    let Some(brokers) = broker("rebalancing") else {
        return;
    };
    let topic = raw_topic(&brokers, "rebalance", 3).await;
    let group = unique("group");
    let config = || ConsumerConfig {
        max_in_flight: 50,
        revoke_budget: Duration::from_millis(500),
        ..consumer_config(&topic, &group)
    };
    publish_numbered(&brokers, &topic, 0..600).await;
    let mut one = start(&brokers, config());
    let mut settled: BTreeSet<(i32, i64)> = BTreeSet::new();
    let settle = |consumer: &cdr_kafka::RawConsumer,
                  records: &[Record],
                  settled: &mut BTreeSet<(i32, i64)>| {
        // As a worker does: whatever has an outcome is settled, also if late.
        settled.extend(records.iter().map(|r| (r.id.partition, r.id.offset)));
        consumer.settle(ids(records), Outcome::Inserted);
    };
    // In flight and never settled: these hold up, and are given back.
    let stuck = receive(&mut one.records, 20).await;
    let mut two = start(&brokers, config());
    eventually("both have partitions", || {
        let held = |s: &cdr_kafka::Started| s.consumer.status().partitions.len();
        held(&one) >= 1 && held(&two) >= 1 && held(&one) + held(&two) == 3
    })
    .await;
    let mut given_back = 0;
    while let Ok(event) = one.events.try_recv() {
        if let ConsumerEvent::Revoked {
            lost,
            given_back: n,
            ..
        } = event
        {
            assert!(!lost);
            given_back += n;
        }
    }
    // Late acknowledgements of what is gone change nothing.
    settle(&one.consumer, &stuck, &mut settled);
    let late = one.consumer.status().stale_settles;
    assert!(late <= given_back, "{late} late of {given_back} given back");

    publish_numbered(&brokers, &topic, 600..900).await;
    let deadline = Instant::now() + PATIENCE;
    while settled.len() < 700 && Instant::now() < deadline {
        for started in [&mut one, &mut two] {
            let mut batch = Vec::new();
            while let Ok(record) = started.records.try_recv() {
                batch.push(record);
            }
            settle(&started.consumer, &batch, &mut settled);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // The second leaves with whatever it still has in flight.
    let _ = two.consumer.close(PATIENCE).await;
    while settled.len() < 900 && Instant::now() < deadline {
        let mut batch = Vec::new();
        while let Ok(record) = one.records.try_recv() {
            batch.push(record);
        }
        settle(&one.consumer, &batch, &mut settled);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(settled.len(), 900, "every record had an outcome");
    // What the second one had in flight may come again, and must be settled again.
    eventually("everything is committed", || {
        while let Ok(record) = one.records.try_recv() {
            one.consumer.settle([record.id], Outcome::Inserted);
        }
        let lag = one.consumer.lag();
        lag.len() == 3 && lag.values().all(|l| l.lag == 0)
    })
    .await;
    one.consumer.close(PATIENCE).await.expect("closed");
    for consumer in [&one.consumer, &two.consumer] {
        assert!(consumer.status().totals.balanced());
    }
    let sum: i64 = committed(&brokers, &group, &topic)
        .await
        .into_iter()
        .flatten()
        .sum();
    assert_eq!(sum, 900);
}

/// Work that finishes within the budget of a revocation is committed, not done twice.
#[tokio::test]
async fn apache_kafka_a_revocation_waits_for_work_in_flight() {
    let Some(brokers) = broker("revocation") else {
        return;
    };
    let topic = raw_topic(&brokers, "revocation", 3).await;
    let group = unique("group");
    let config = || ConsumerConfig {
        revoke_budget: Duration::from_secs(30),
        ..consumer_config(&topic, &group)
    };
    publish_numbered(&brokers, &topic, 0..300).await;
    let mut one = start(&brokers, config());
    let records = receive(&mut one.records, 300).await;
    let mut two = start(&brokers, config());
    loop {
        let event = tokio::time::timeout(PATIENCE, one.events.recv()).await;
        if let ConsumerEvent::Revoking { .. } = event.expect("in time").expect("it runs") {
            break;
        }
    }
    one.consumer.settle(ids(&records), Outcome::Inserted);
    eventually("both have partitions", || {
        let held = |s: &cdr_kafka::Started| s.consumer.status().partitions.len();
        held(&two) >= 1 && held(&one) + held(&two) == 3
    })
    .await;
    assert_eq!(one.consumer.status().totals.given_back, 0);
    one.consumer.close(PATIENCE).await.expect("closed");
    two.consumer.close(PATIENCE).await.expect("closed");
    assert!(
        two.records.recv().await.is_none(),
        "nothing came a second time"
    );
}

/// quickwit#2083, #6014: an outage downstream, longer than
/// `max.poll.interval.ms`, is no reason to be thrown out of the group.
#[tokio::test]
async fn apache_kafka_a_paused_consumer_keeps_its_partitions() {
    let Some(brokers) = broker("a long pause") else {
        return;
    };
    let topic = raw_topic(&brokers, "pause", 3).await;
    let group = unique("group");
    let max_poll_interval = Duration::from_secs(6);
    let config = ConsumerConfig {
        max_in_flight: 10,
        session_timeout: Duration::from_secs(6),
        max_poll_interval,
        revoke_budget: Duration::from_secs(1),
        ..consumer_config(&topic, &group)
    };
    publish_numbered(&brokers, &topic, 0..100).await;
    let mut started = start(&brokers, config);
    eventually("a pause", || started.consumer.status().paused).await;
    let rebalances = started.consumer.status().rebalances;
    // Not a synchronisation: the outage has to last longer than the interval.
    tokio::time::sleep(max_poll_interval * 2).await;
    assert_eq!(started.consumer.status().rebalances, rebalances);
    let mut left = 100;
    while left > 0 {
        let batch = receive(&mut started.records, 1).await;
        started.consumer.settle(ids(&batch), Outcome::Inserted);
        left -= 1;
    }
    started.consumer.close(PATIENCE).await.expect("closed");
    assert_eq!(started.consumer.status().stale_settles, 0);
}
