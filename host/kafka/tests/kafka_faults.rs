//! Faults of Kafka that a real broker does not have at will: they are injected
//! into librdkafka's mock broker. Nothing may be skipped by any of them, and what
//! does not pass must stop the consumer.

mod common;

use std::time::Duration;

use cdr_kafka::{CloseError, ConsumerConfig, ConsumerEvent, ConsumerFailure, Outcome, Started};
use common::{
    PATIENCE, committed, consumer_config, eventually, ids, publish_numbered, receive, start,
};
use rdkafka::mocking::{MockCluster, MockCoordinator};
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

const TOPIC: &str = "cdr.raw";
const GROUP: &str = "cdr-worker";

type Mock = MockCluster<'static, DefaultProducerContext>;

fn mock(brokers: i32, partitions: i32) -> Mock {
    let mock = MockCluster::new(brokers).expect("a mock cluster");
    mock.create_topic(TOPIC, partitions, 1).expect("a topic");
    mock
}

fn quick() -> ConsumerConfig {
    ConsumerConfig {
        session_timeout: Duration::from_secs(3),
        ..consumer_config(TOPIC, GROUP)
    }
}

async fn failure(started: &mut Started) -> ConsumerFailure {
    loop {
        let event = tokio::time::timeout(PATIENCE, started.events.recv()).await;
        if let ConsumerEvent::Fatal(failure) = event.expect("in time").expect("it runs") {
            return failure;
        }
    }
}

/// Whether an error must show in what the consumer says of itself.
#[derive(PartialEq)]
enum Met {
    Seen,
    /// librdkafka may repeat the commit by itself often enough that nobody sees it.
    MaybeRetried,
}

/// Ten records, the sixth of which has no outcome; the broker answers some
/// commits with `error`. Five are committed, neither more nor less; and all of
/// them once the sixth has its outcome.
async fn nothing_is_skipped_by(error: RDKafkaRespErr, met: Met) {
    let mock = mock(1, 1);
    let brokers = mock.bootstrap_servers();
    publish_numbered(&brokers, TOPIC, 0..10).await;
    let mut started = start(&brokers, quick());
    let records = receive(&mut started.records, 10).await;
    mock.request_errors(RDKafkaApiKey::OffsetCommit, &[error; 3]);
    let mut open = None;
    for record in records {
        match record.id.offset {
            5 => open = Some(record.id),
            _ => started.consumer.settle([record.id], Outcome::Inserted),
        }
    }
    let committed_now = |started: &Started| {
        let status = started.consumer.status();
        status.partitions.first().and_then(|view| view.committed)
    };
    eventually("five are committed", || {
        // After a rejoin the records come again, and the sixth is open again.
        while let Ok(record) = started.records.try_recv() {
            match record.id.offset {
                5 => open = Some(record.id),
                _ => started.consumer.settle([record.id], Outcome::Inserted),
            }
        }
        assert!(committed_now(&started) <= Some(5), "the sixth was skipped");
        committed_now(&started) == Some(5)
    })
    .await;
    assert_eq!(committed(&brokers, GROUP, TOPIC).await, [Some(5)]);
    eventually("all are committed", || {
        started.consumer.settle(open, Outcome::DeadLettered);
        while let Ok(record) = started.records.try_recv() {
            started.consumer.settle([record.id], Outcome::Inserted);
        }
        committed_now(&started) == Some(10)
    })
    .await;
    let status = started.consumer.status();
    assert!(status.totals.balanced(), "{:?}", status.totals);
    // It was met: as a failure, or by an assignment that ended with it.
    assert!(
        met == Met::MaybeRetried || status.commit_failures > 0 || status.rebalances > 1,
        "{status:?}"
    );
    started.consumer.close(PATIENCE).await.expect("closed");
    assert_eq!(committed(&brokers, GROUP, TOPIC).await, [Some(10)]);
}

/// vector#24543: a failed commit must not let the next one skip anything.
#[tokio::test]
async fn a_commit_refused_by_a_rebalance_skips_nothing() {
    nothing_is_skipped_by(
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS,
        Met::Seen,
    )
    .await;
}

/// The group does not know the member any more: its partitions are lost, and
/// their records come again.
#[tokio::test]
async fn a_commit_of_an_unknown_member_skips_nothing() {
    nothing_is_skipped_by(
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID,
        Met::Seen,
    )
    .await;
}

#[tokio::test]
async fn a_commit_of_an_old_generation_skips_nothing() {
    nothing_is_skipped_by(
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION,
        Met::Seen,
    )
    .await;
}

#[tokio::test]
async fn a_commit_without_a_coordinator_skips_nothing() {
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE;
    nothing_is_skipped_by(error, Met::MaybeRetried).await;
}

/// The connection breaks after the request: whether the commit landed is open.
#[tokio::test]
async fn a_commit_on_a_broken_connection_skips_nothing() {
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR__TRANSPORT;
    nothing_is_skipped_by(error, Met::MaybeRetried).await;
}

#[tokio::test]
async fn a_coordinator_that_moves_to_another_broker_is_followed() {
    let mock = mock(2, 1);
    let brokers = mock.bootstrap_servers();
    let at = |broker| {
        mock.coordinator(MockCoordinator::Group(GROUP.to_owned()), broker)
            .expect("a coordinator");
    };
    at(1);
    publish_numbered(&brokers, TOPIC, 0..10).await;
    let mut started = start(&brokers, quick());
    let records = receive(&mut started.records, 10).await;
    at(2);
    started.consumer.settle(ids(&records), Outcome::Inserted);
    eventually("the commit", || {
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

/// Brokers answer, but never to a commit: that must not go on for ever.
#[tokio::test]
async fn commits_that_never_succeed_stop_the_consumer() {
    let mock = mock(1, 1);
    let brokers = mock.bootstrap_servers();
    publish_numbered(&brokers, TOPIC, 0..10).await;
    let config = ConsumerConfig {
        commit_retry_budget: Duration::from_secs(1),
        ..consumer_config(TOPIC, GROUP)
    };
    let mut started = start(&brokers, config);
    let records = receive(&mut started.records, 10).await;
    mock.request_errors(
        RDKafkaApiKey::OffsetCommit,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS; 1000],
    );
    started.consumer.settle(ids(&records), Outcome::Inserted);
    let failure = failure(&mut started).await;
    assert!(
        matches!(failure, ConsumerFailure::CommitStuck { .. }),
        "{failure}"
    );
    assert!(failure.to_string().contains("coordinator"), "{failure}");
    let closed = started.consumer.close(PATIENCE).await;
    assert!(matches!(closed, Err(CloseError::Failed(_))), "{closed:?}");
    mock.clear_request_errors(RDKafkaApiKey::OffsetCommit);
    assert_eq!(committed(&brokers, GROUP, TOPIC).await, [None]);
}

/// Errors of single fetches are counted by what they are; records go on coming.
#[tokio::test]
async fn fetch_errors_are_counted_and_consumption_goes_on() {
    let mock = mock(1, 1);
    let brokers = mock.bootstrap_servers();
    publish_numbered(&brokers, TOPIC, 0..5).await;
    let mut started = start(&brokers, consumer_config(TOPIC, GROUP));
    let mut records = receive(&mut started.records, 5).await;
    // Not all of them come through the mock broker, but some of each do.
    let errors = [
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_MSG,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN,
    ];
    mock.request_errors(RDKafkaApiKey::Fetch, &errors.repeat(5));
    let of = |word: &str| {
        let errors = started.consumer.status().fetch_errors;
        errors.get(word).copied().unwrap_or(0)
    };
    eventually("the errors are counted", || {
        of("invalid_message") > 0 && of("unknown") > 0
    })
    .await;
    mock.clear_request_errors(RDKafkaApiKey::Fetch);
    publish_numbered(&brokers, TOPIC, 5..10).await;
    records.extend(receive(&mut started.records, 5).await);
    let offsets: Vec<i64> = records.iter().map(|record| record.id.offset).collect();
    assert_eq!(
        offsets,
        (0..10).collect::<Vec<i64>>(),
        "none twice or never"
    );
    started.consumer.settle(ids(&records), Outcome::Inserted);
    started.consumer.close(PATIENCE).await.expect("closed");
}

#[tokio::test]
async fn a_topic_that_may_not_be_read_stops_the_consumer_by_name() {
    let mock = mock(1, 1);
    let brokers = mock.bootstrap_servers();
    publish_numbered(&brokers, TOPIC, 0..5).await;
    mock.request_errors(
        RDKafkaApiKey::Fetch,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED; 3],
    );
    let mut started = start(&brokers, consumer_config(TOPIC, GROUP));
    let failure = failure(&mut started).await;
    assert!(
        matches!(failure, ConsumerFailure::Unauthorized { .. }),
        "{failure}"
    );
    assert!(failure.to_string().contains(TOPIC), "{failure}");
}

/// rust-rdkafka#840, #535: a partition was silent for days. Each partition is
/// led by another broker; each broker goes away and comes back in turn.
#[tokio::test]
async fn no_partition_stays_silent_after_its_broker_came_back() {
    let mock = mock(3, 3);
    let brokers = mock.bootstrap_servers();
    for partition in 0..3 {
        mock.partition_leader(TOPIC, partition, Some(partition + 1))
            .expect("a leader");
    }
    let mut started = start(&brokers, quick());
    let mut sent = 0;
    for broker in 1..=3 {
        mock.broker_down(broker).expect("down");
        mock.broker_up(broker).expect("up");
        publish_numbered(&brokers, TOPIC, sent..sent + 60).await;
        sent += 60;
        eventually("every partition is committed to its end", || {
            while let Ok(record) = started.records.try_recv() {
                started.consumer.settle([record.id], Outcome::Inserted);
            }
            let status = started.consumer.status();
            let committed = status.partitions.iter().filter_map(|view| view.committed);
            let each = status.progress.values().all(|p| p.committed_ago.is_some());
            status.partitions.len() == 3
                && each
                && usize::try_from(committed.sum::<i64>()) == Ok(sent)
        })
        .await;
    }
    started.consumer.close(PATIENCE).await.expect("closed");
}

/// An outage in the middle of everything: half is in flight, half is settled.
#[tokio::test]
async fn closing_without_a_broker_keeps_to_its_budget() {
    let mock = mock(1, 3);
    let brokers = mock.bootstrap_servers();
    publish_numbered(&brokers, TOPIC, 0..30).await;
    let mut started = start(&brokers, consumer_config(TOPIC, GROUP));
    let records = receive(&mut started.records, 30).await;
    mock.broker_down(-1).expect("down");
    started
        .consumer
        .settle(ids(&records[..15]), Outcome::Inserted);
    let budget = Duration::from_secs(2);
    let closing = started.consumer.close(budget);
    // Generous: only a close that waits for the broker takes so long.
    let closed = tokio::time::timeout(PATIENCE / 2, closing).await;
    assert!(
        matches!(closed, Ok(Err(CloseError::Uncommitted { .. }))),
        "{closed:?}"
    );
}

/// What a watchdog looks at.
#[tokio::test]
async fn progress_says_when_a_partition_last_got_on() {
    let mock = mock(1, 1);
    let brokers = mock.bootstrap_servers();
    publish_numbered(&brokers, TOPIC, 0..10).await;
    let mut started = start(&brokers, consumer_config(TOPIC, GROUP));
    assert_eq!(started.consumer.status().lag_read_ago, None);
    let records = receive(&mut started.records, 10).await;
    let before = started.consumer.status().progress[&0];
    assert_eq!(before.committed_ago, None);
    started.consumer.settle(ids(&records), Outcome::Inserted);
    eventually("the commit", || {
        started.consumer.status().progress[&0]
            .committed_ago
            .is_some()
    })
    .await;
    let after = started.consumer.status().progress[&0];
    assert!(after.committed_ago < Some(after.assigned_ago));
    assert!(after.assigned_ago >= before.assigned_ago, "one assignment");
    eventually("the lag is read", || {
        started.consumer.status().lag_read_ago.is_some()
    })
    .await;
    started.consumer.close(PATIENCE).await.expect("closed");
    assert!(started.consumer.status().progress.is_empty());
}
