//! The publisher against a broker that misbehaves on command.

mod common;

use std::time::Duration;

use cdr_kafka::{KafkaConfig, PublishError, Publisher, PublisherConfig};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

type Mock = MockCluster<'static, DefaultProducerContext>;

fn mock() -> Mock {
    let mock = MockCluster::new(1).expect("a mock cluster");
    mock.create_topic("cdr.raw", 3, 1).expect("a topic");
    mock
}

fn impatient(mock: &Mock) -> Publisher {
    let config = PublisherConfig {
        delivery_timeout: Duration::from_millis(300),
        ..PublisherConfig::default()
    };
    Publisher::new(&KafkaConfig::plaintext(mock.bootstrap_servers()), config).expect("a producer")
}

#[tokio::test]
async fn an_acknowledged_record_has_a_partition_and_an_offset() {
    let mock = mock();
    let publisher = common::publisher(&mock.bootstrap_servers());
    let one = publisher
        .publish("cdr.raw", Some(b"raw-1"), Some(b"{}"), &[])
        .await
        .expect("an acknowledgement");
    let two = publisher
        .publish("cdr.raw", Some(b"raw-1"), Some(b"{}"), &[])
        .await
        .expect("an acknowledgement");
    assert_eq!(one.partition, two.partition, "one key, one partition");
    assert_eq!((one.offset, two.offset), (0, 1));
}

/// Values of murmur2 as in the tests of the Java client.
#[tokio::test]
async fn keys_land_where_the_java_client_puts_them() {
    let mock = mock();
    let publisher = common::publisher(&mock.bootstrap_servers());
    for (key, murmur2) in [
        ("21", -973_932_308_i32),
        ("foobar", -790_332_482),
        ("a-little-bit-long-string", -985_981_536),
    ] {
        let delivery = publisher
            .publish("cdr.raw", Some(key.as_bytes()), Some(b"{}"), &[])
            .await
            .expect("an acknowledgement");
        assert_eq!(delivery.partition, (murmur2 & 0x7fff_ffff) % 3, "{key}");
    }
}

/// PostHog#102639, #43406: 2xx for lost data; requests that hang.
#[tokio::test]
async fn a_broker_that_is_down_is_ambiguous_and_then_forgotten() {
    let mock = mock();
    let publisher = impatient(&mock);
    mock.broker_down(-1).expect("down");
    let error = publisher
        .publish("cdr.raw", None, Some(b"{}"), &[])
        .await
        .expect_err("nobody is there");
    assert!(error.is_ambiguous(), "{error}");
    assert!(
        error.to_string().contains(&mock.bootstrap_servers()),
        "{error}"
    );

    mock.broker_up(-1).expect("up");
    let mut tries = 0;
    while let Err(error) = publisher.publish("cdr.raw", None, Some(b"{}"), &[]).await {
        tries += 1;
        assert!(tries < 200, "it did not recover: {error}");
    }
}

#[tokio::test]
async fn a_record_beyond_the_bound_is_refused_at_once() {
    let mock = mock();
    mock.broker_down(-1).expect("down");
    let config = PublisherConfig {
        max_queued_records: 2,
        delivery_timeout: Duration::from_secs(30),
        ..PublisherConfig::default()
    };
    let publisher =
        Publisher::new(&KafkaConfig::plaintext(mock.bootstrap_servers()), config).expect("one");
    let _first = publisher.publish("cdr.raw", None, Some(b"1"), &[]);
    let _second = publisher.publish("cdr.raw", None, Some(b"2"), &[]);
    let third = publisher.publish("cdr.raw", None, Some(b"3"), &[]).await;
    assert!(
        matches!(third, Err(PublishError::QueueFull { .. })),
        "{third:?}"
    );
    // Errors of the client are in the same queue until its thread looks.
    common::eventually("two are left", || publisher.in_flight() == 2).await;
}

#[tokio::test]
async fn dropping_the_future_does_not_take_the_record_back() {
    let mock = mock();
    let publisher = common::publisher(&mock.bootstrap_servers());
    drop(publisher.publish("cdr.raw", Some(b"21"), Some(b"{}"), &[]));
    publisher.flush(common::PATIENCE).await.expect("flushed");
    let next = publisher
        .publish("cdr.raw", Some(b"21"), Some(b"{}"), &[])
        .await
        .expect("an acknowledgement");
    assert_eq!(next.offset, 1);
}

#[tokio::test]
async fn a_flush_says_how_many_are_left() {
    let mock = mock();
    let config = PublisherConfig {
        delivery_timeout: Duration::from_secs(30),
        ..PublisherConfig::default()
    };
    let publisher =
        Publisher::new(&KafkaConfig::plaintext(mock.bootstrap_servers()), config).expect("one");
    mock.broker_down(-1).expect("down");
    let _waiting = publisher.publish("cdr.raw", None, Some(b"1"), &[]);
    let error = publisher
        .flush(Duration::from_millis(50))
        .await
        .expect_err("nobody is there");
    assert_eq!(error.unacknowledged, 1);
}

#[tokio::test]
async fn a_record_that_is_too_large_is_named_so() {
    let mock = mock();
    let publisher = common::publisher(&mock.bootstrap_servers());
    let large = vec![b'x'; 2_000_000];
    let result = publisher.publish("cdr.raw", None, Some(&large), &[]).await;
    assert!(
        matches!(
            result,
            Err(PublishError::TooLarge {
                bytes: 2_000_000,
                ..
            })
        ),
        "{result:?}"
    );
}

#[tokio::test]
async fn a_refusal_is_not_ambiguous() {
    let mock = mock();
    let publisher = common::publisher(&mock.bootstrap_servers());
    mock.request_errors(
        RDKafkaApiKey::Produce,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED],
    );
    let result = publisher.publish("cdr.raw", None, Some(b"{}"), &[]).await;
    assert!(
        matches!(result, Err(PublishError::Refused { .. })),
        "{result:?}"
    );
}

/// Each class of a delivery error, by the broker's own word for it.
#[tokio::test]
async fn delivery_errors_are_what_the_broker_says() {
    for (error, tag, ambiguous) in [
        (
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
            "too_large",
            false,
        ),
        (
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
            "refused",
            false,
        ),
        (
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_RECORD,
            "refused",
            false,
        ),
        (
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_POLICY_VIOLATION,
            "refused",
            false,
        ),
        // A word that is not known leaves everything open.
        (
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN,
            "unacknowledged",
            true,
        ),
    ] {
        let mock = mock();
        let publisher = common::publisher(&mock.bootstrap_servers());
        mock.request_errors(RDKafkaApiKey::Produce, &[error]);
        let failed = publisher
            .publish("cdr.raw", None, Some(b"{}"), &[])
            .await
            .expect_err("it was refused");
        assert_eq!(
            (failed.tag(), failed.is_ambiguous()),
            (tag, ambiguous),
            "{failed}"
        );
        // The client is as good as before, if not at once.
        let deadline = std::time::Instant::now() + common::PATIENCE;
        while let Err(error) = publisher.publish("cdr.raw", None, Some(b"{}"), &[]).await {
            assert!(std::time::Instant::now() < deadline, "{tag}: {error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test]
async fn passing_errors_of_the_broker_are_retried() {
    let mock = mock();
    let publisher = common::publisher(&mock.bootstrap_servers());
    mock.request_errors(
        RDKafkaApiKey::Produce,
        &[
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__TRANSPORT,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
        ],
    );
    publisher
        .publish("cdr.raw", None, Some(b"{}"), &[])
        .await
        .expect("retried until acknowledged");
}

/// An idempotent producer is dead after a fatal error; the publisher is not.
#[tokio::test]
async fn a_fatal_error_of_the_client_does_not_last() {
    let mock = mock();
    let publisher = common::publisher(&mock.bootstrap_servers());
    publisher
        .publish("cdr.raw", None, Some(b"{}"), &[])
        .await
        .expect("an acknowledgement");
    mock.request_errors(
        RDKafkaApiKey::Produce,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER],
    );
    let mut tries = 0;
    // The injected error hits one of these; afterwards all must go well again.
    let first = publisher.publish("cdr.raw", None, Some(b"{}"), &[]).await;
    while let Err(error) = publisher.publish("cdr.raw", None, Some(b"{}"), &[]).await {
        tries += 1;
        assert!(tries < 2000, "it stayed dead after {first:?}: {error}");
        tokio::task::yield_now().await;
    }
}

#[test]
fn passwords_are_not_shown() {
    let kafka = KafkaConfig {
        sasl_username: Some("user".to_owned()),
        sasl_password: Some(cdr_kafka::Secret::new("hunter2")),
        extra: vec![(
            "ssl.key.password".to_owned(),
            cdr_kafka::Secret::new("swordfish"),
        )],
        ..KafkaConfig::plaintext("127.0.0.1:9092")
    };
    let shown = format!("{kafka:?}");
    assert!(
        !shown.contains("hunter2") && !shown.contains("swordfish"),
        "{shown}"
    );
}

#[test]
fn settings_that_break_the_promise_are_refused_by_name() {
    let kafka = KafkaConfig {
        extra: vec![(
            "enable.auto.commit".to_owned(),
            cdr_kafka::Secret::new("true"),
        )],
        ..KafkaConfig::plaintext("127.0.0.1:9092")
    };
    let refused = Publisher::new(&kafka, PublisherConfig::default()).err();
    assert!(
        refused.is_some_and(|e| e.to_string().contains("enable.auto.commit")),
        "refused by name"
    );
}
