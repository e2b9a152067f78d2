//! The consumer against a broker that misbehaves on command.

mod common;

use std::time::Duration;

use cdr_kafka::{CloseError, ConsumerConfig, ConsumerEvent, ConsumerFailure, Outcome};
use common::{
    PATIENCE, committed, consumer_config, eventually, ids, publish_numbered, receive, start,
};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

const TOPIC: &str = "cdr.raw";
const GROUP: &str = "cdr-worker";

fn mock(partitions: i32) -> MockCluster<'static, DefaultProducerContext> {
    let mock = MockCluster::new(1).expect("a mock cluster");
    mock.create_topic(TOPIC, partitions, 1).expect("a topic");
    mock
}

async fn fatal(
    events: &mut tokio::sync::mpsc::UnboundedReceiver<ConsumerEvent>,
) -> ConsumerFailure {
    loop {
        let event = tokio::time::timeout(PATIENCE, events.recv()).await;
        match event.expect("news in time").expect("the consumer runs") {
            ConsumerEvent::Fatal(failure) => return failure,
            _ => continue,
        }
    }
}

#[tokio::test]
async fn what_is_settled_is_committed_and_counted() {
    let mock = mock(3);
    let brokers = mock.bootstrap_servers();
    publish_numbered(&brokers, TOPIC, 0..300).await;
    let mut started = start(&brokers, consumer_config(TOPIC, GROUP));
    let records = receive(&mut started.records, 300).await;
    let (rows, dead) = records.split_at(290);
    // Dead letters first: completion order is not offset order.
    started.consumer.settle(ids(dead), Outcome::DeadLettered);
    started.consumer.settle(ids(rows), Outcome::Inserted);
    eventually("commits", || {
        let views = started.consumer.status().partitions;
        views.len() == 3 && views.iter().all(|v| v.committed == v.position)
    })
    .await;
    let totals = started.consumer.status().totals;
    assert_eq!((totals.consumed, totals.inserted), (300, 290));
    assert_eq!((totals.dead_lettered, totals.in_flight), (10, 0));
    eventually("lag", || {
        let lag = started.consumer.lag();
        lag.len() == 3 && lag.values().all(|l| l.lag == 0)
    })
    .await;
    started.consumer.close(PATIENCE).await.expect("closed");
    let sum: i64 = committed(&brokers, GROUP, TOPIC)
        .await
        .into_iter()
        .flatten()
        .sum();
    assert_eq!(sum, 300);
}

/// vector#24543: only a contiguous prefix is committed.
#[tokio::test]
async fn a_record_without_outcome_holds_back_all_behind_it() {
    let mock = mock(1);
    let brokers = mock.bootstrap_servers();
    publish_numbered(&brokers, TOPIC, 0..20).await;
    let mut started = start(&brokers, consumer_config(TOPIC, GROUP));
    let records = receive(&mut started.records, 20).await;
    started
        .consumer
        .settle(ids(&records[..5]), Outcome::Inserted);
    started
        .consumer
        .settle(ids(&records[6..]), Outcome::Inserted);
    let closed = started.consumer.close(PATIENCE).await;
    assert!(
        matches!(closed, Err(CloseError::Unsettled { in_flight: 1 })),
        "{closed:?}"
    );
    assert_eq!(committed(&brokers, GROUP, TOPIC).await, [Some(5)]);

    // The next worker begins with the one that was held back.
    let mut next = start(&brokers, consumer_config(TOPIC, GROUP));
    let again = receive(&mut next.records, 15).await;
    assert_eq!(again[0].id.offset, 5);
    next.consumer.settle(ids(&again), Outcome::Inserted);
    next.consumer.close(PATIENCE).await.expect("closed");
    assert_eq!(committed(&brokers, GROUP, TOPIC).await, [Some(20)]);
}

/// quickwit#2083, #6014: a slow sink stopped the polling.
#[tokio::test]
async fn a_slow_worker_pauses_the_partitions_and_loses_nothing() {
    let mock = mock(3);
    let brokers = mock.bootstrap_servers();
    publish_numbered(&brokers, TOPIC, 0..500).await;
    let config = ConsumerConfig {
        max_in_flight: 20,
        ..consumer_config(TOPIC, GROUP)
    };
    let mut started = start(&brokers, config);
    let mut seen = Vec::new();
    while seen.len() < 500 {
        eventually("a pause, or the end", || {
            let status = started.consumer.status();
            status.paused || status.totals.consumed == 500
        })
        .await;
        assert!(started.consumer.status().totals.in_flight <= 20);
        let mut batch = receive(&mut started.records, 1).await;
        while let Ok(record) = started.records.try_recv() {
            batch.push(record);
        }
        started.consumer.settle(ids(&batch), Outcome::Inserted);
        seen.extend(batch);
    }
    let mut payloads: Vec<_> = seen.iter().map(|record| record.payload.clone()).collect();
    payloads.sort();
    payloads.dedup();
    assert_eq!(payloads.len(), 500, "each record once");
    for partition in 0..3 {
        let offsets: Vec<i64> = seen
            .iter()
            .filter(|record| record.id.partition == partition)
            .map(|record| record.id.offset)
            .collect();
        assert!(offsets.is_sorted(), "partition {partition} in order");
    }
    started.consumer.close(PATIENCE).await.expect("closed");
    assert_eq!(started.consumer.status().steps_back, 0);
}

#[tokio::test]
async fn the_bound_counts_bytes_too() {
    let mock = mock(1);
    let brokers = mock.bootstrap_servers();
    let publisher = common::publisher(&brokers);
    let payload = vec![b'x'; 10_000];
    for _ in 0..50 {
        publisher
            .publish(TOPIC, None, Some(&payload), &[])
            .await
            .expect("an acknowledgement");
    }
    let config = ConsumerConfig {
        max_in_flight_bytes: 100_000,
        ..consumer_config(TOPIC, GROUP)
    };
    let mut started = start(&brokers, config);
    eventually("a pause", || started.consumer.status().paused).await;
    assert_eq!(started.consumer.status().in_flight_bytes, 100_000);
    let mut left = 50;
    while left > 0 {
        let batch = receive(&mut started.records, 1).await;
        started.consumer.settle(ids(&batch), Outcome::Inserted);
        left -= 1;
    }
    started.consumer.close(PATIENCE).await.expect("closed");
}

#[tokio::test]
async fn draining_takes_nothing_new_and_still_commits() {
    let mock = mock(1);
    let brokers = mock.bootstrap_servers();
    publish_numbered(&brokers, TOPIC, 0..10).await;
    let mut started = start(&brokers, consumer_config(TOPIC, GROUP));
    let records = receive(&mut started.records, 10).await;
    started.consumer.drain();
    eventually("a pause", || started.consumer.status().paused).await;
    publish_numbered(&brokers, TOPIC, 10..20).await;
    started.consumer.settle(ids(&records), Outcome::Inserted);
    started.consumer.close(PATIENCE).await.expect("closed");
    assert_eq!(started.consumer.status().totals.consumed, 10);
    assert_eq!(committed(&brokers, GROUP, TOPIC).await, [Some(10)]);
}

#[tokio::test]
async fn a_refused_commit_is_fatal_and_advances_nothing() {
    let mock = mock(1);
    let brokers = mock.bootstrap_servers();
    publish_numbered(&brokers, TOPIC, 0..10).await;
    let mut started = start(&brokers, consumer_config(TOPIC, GROUP));
    let records = receive(&mut started.records, 10).await;
    mock.request_errors(
        RDKafkaApiKey::OffsetCommit,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED; 20],
    );
    started.consumer.settle(ids(&records), Outcome::Inserted);
    let failure = fatal(&mut started.events).await;
    assert!(
        matches!(
            failure,
            ConsumerFailure::CommitRefused {
                partition: 0,
                next: 10,
                ..
            }
        ),
        "{failure}"
    );
    let closed = started.consumer.close(PATIENCE).await;
    assert!(matches!(closed, Err(CloseError::Failed(_))), "{closed:?}");
    mock.clear_request_errors(RDKafkaApiKey::OffsetCommit);
    assert_eq!(committed(&brokers, GROUP, TOPIC).await, [None]);
}

/// Commits ten records while the broker answers the first two commits with `error`.
async fn commits_in_spite_of(error: RDKafkaRespErr) {
    let mock = mock(1);
    let brokers = mock.bootstrap_servers();
    publish_numbered(&brokers, TOPIC, 0..10).await;
    let config = ConsumerConfig {
        session_timeout: Duration::from_secs(3),
        ..consumer_config(TOPIC, GROUP)
    };
    let mut started = start(&brokers, config);
    let records = receive(&mut started.records, 10).await;
    mock.request_errors(RDKafkaApiKey::OffsetCommit, &[error; 2]);
    started.consumer.settle(ids(&records), Outcome::Inserted);
    eventually("the commit", || {
        // After a rejoin the records may come again.
        while let Ok(record) = started.records.try_recv() {
            started.consumer.settle([record.id], Outcome::Inserted);
        }
        let status = started.consumer.status();
        status.partitions.first().and_then(|view| view.committed) == Some(10)
    })
    .await;
    started.consumer.close(PATIENCE).await.expect("closed");
    assert_eq!(committed(&brokers, GROUP, TOPIC).await, [Some(10)]);
}

#[tokio::test]
async fn a_commit_that_a_moving_group_rejects_is_sent_again() {
    commits_in_spite_of(RDKafkaRespErr::RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS).await;
}

#[tokio::test]
async fn a_commit_that_a_busy_coordinator_rejects_is_sent_again() {
    commits_in_spite_of(RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS).await;
}

/// The mock broker lets the session run out here: the partition is lost, its
/// commit may never be answered, and must not block those of the next assignment.
#[tokio::test]
async fn a_commit_that_dies_with_its_assignment_blocks_nothing() {
    commits_in_spite_of(RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_COORDINATOR).await;
}

#[tokio::test]
async fn a_broker_that_goes_and_comes_back_is_waited_for() {
    let mock = mock(1);
    let brokers = mock.bootstrap_servers();
    publish_numbered(&brokers, TOPIC, 0..10).await;
    let mut started = start(&brokers, consumer_config(TOPIC, GROUP));
    let first = receive(&mut started.records, 10).await;
    mock.broker_down(-1).expect("down");
    eventually("the outage is seen", || {
        started.consumer.status().reach == cdr_kafka::reachability::Reach::Unavailable
    })
    .await;
    // Settled during the outage, committed after it.
    started.consumer.settle(ids(&first), Outcome::Inserted);
    mock.broker_up(-1).expect("up");
    publish_numbered(&brokers, TOPIC, 10..20).await;
    let mut settled_to = 0;
    while settled_to < 20 {
        let record = receive(&mut started.records, 1).await;
        settled_to = record[0].id.offset + 1;
        started.consumer.settle(ids(&record), Outcome::Inserted);
    }
    started.consumer.close(PATIENCE).await.expect("closed");
    assert_eq!(committed(&brokers, GROUP, TOPIC).await, [Some(20)]);
}

#[tokio::test]
async fn closing_during_an_outage_says_what_was_not_committed() {
    let mock = mock(1);
    let brokers = mock.bootstrap_servers();
    publish_numbered(&brokers, TOPIC, 0..10).await;
    let mut started = start(&brokers, consumer_config(TOPIC, GROUP));
    let records = receive(&mut started.records, 10).await;
    mock.broker_down(-1).expect("down");
    started.consumer.settle(ids(&records), Outcome::Inserted);
    let closed = started.consumer.close(Duration::from_millis(200)).await;
    assert!(
        matches!(closed, Err(CloseError::Uncommitted { .. })),
        "{closed:?}"
    );
}

/// vector#24215: a tombstone stalled the offset for ever.
#[tokio::test]
async fn tombstones_empty_payloads_and_headers_come_through() {
    let mock = mock(1);
    let brokers = mock.bootstrap_servers();
    let publisher = common::publisher(&brokers);
    let headers = [
        (cdr_kafka::headers::RECEIVED_AT, "1700000000123".to_owned()),
        (cdr_kafka::headers::REPLAY_COUNT, "2".to_owned()),
    ];
    publisher
        .publish(TOPIC, Some(b"k"), None, &[])
        .await
        .expect("acknowledged");
    publisher
        .publish(TOPIC, None, Some(b"{}"), &headers)
        .await
        .expect("acknowledged");
    let odd = [(cdr_kafka::headers::RECEIVED_AT, "yesterday".to_owned())];
    publisher
        .publish(TOPIC, None, Some(b"{}"), &odd)
        .await
        .expect("acknowledged");
    let mut started = start(&brokers, consumer_config(TOPIC, GROUP));
    let records = receive(&mut started.records, 3).await;
    assert_eq!(records[0].payload, None);
    assert_eq!(records[0].key.as_deref(), Some(&b"k"[..]));
    assert_eq!(
        (records[1].received_at_ms, records[1].replay_count),
        (1_700_000_000_123, 2)
    );
    assert_eq!(Some(records[2].received_at_ms), records[2].timestamp_ms);
    started
        .consumer
        .settle(ids(&records), Outcome::DeadLettered);
    started.consumer.close(PATIENCE).await.expect("closed");
    assert_eq!(committed(&brokers, GROUP, TOPIC).await, [Some(3)]);
}

#[tokio::test]
async fn a_consumer_that_is_dropped_commits_nothing_more_and_ends() {
    let mock = mock(1);
    let brokers = mock.bootstrap_servers();
    publish_numbered(&brokers, TOPIC, 0..5).await;
    let mut started = start(&brokers, consumer_config(TOPIC, GROUP));
    let _records = receive(&mut started.records, 5).await;
    drop(started.consumer);
    let end = tokio::time::timeout(PATIENCE, started.records.recv()).await;
    assert_eq!(end, Ok(None), "the channel ends with the thread");
    assert_eq!(committed(&brokers, GROUP, TOPIC).await, [None]);
}

#[tokio::test]
async fn contradicting_settings_are_refused_with_both_values() {
    let config = ConsumerConfig {
        revoke_budget: Duration::from_secs(400),
        ..ConsumerConfig::new(TOPIC, GROUP)
    };
    let kafka = cdr_kafka::KafkaConfig::plaintext("127.0.0.1:1");
    let error = cdr_kafka::RawConsumer::start(&kafka, config)
        .err()
        .map(|e| e.to_string());
    assert!(
        error
            .as_deref()
            .is_some_and(|e| e.contains("400s") && e.contains("300s")),
        "{error:?}"
    );
}
