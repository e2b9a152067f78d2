//! The trace of a record: taken up where it is well-formed, and otherwise no
//! harm, whatever stands in the headers.

mod common;

use std::ffi::CStr;

use cdr_kafka::dead_letter::{DeadLetter, FailureReason};
use cdr_kafka::headers::{RECEIVED_AT, REPLAY_COUNT, SOURCE_OFFSET, TRACEPARENT};
use cdr_kafka::{KafkaConfig, Outcome};
use cdr_telemetry::trace::TraceContext;
use common::{PATIENCE, consumer_config, ids, publisher, receive, start};
use rdkafka::ClientConfig;
use rdkafka::bindings;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{DefaultProducerContext, FutureProducer, FutureRecord};

const TOPIC: &str = "cdr.raw";
const DLQ: &str = "cdr.raw.dlq";
const GROUP: &str = "cdr-worker";
const FIRST: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const SECOND: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

fn mock() -> MockCluster<'static, DefaultProducerContext> {
    let mock = MockCluster::new(1).expect("a mock cluster");
    mock.create_topic(TOPIC, 1, 1).expect("a topic");
    mock.create_topic(DLQ, 1, 1).expect("a topic");
    mock
}

/// Anything may stand in a header: not only what this project's producer writes.
async fn publish_raw(producer: &FutureProducer, headers: OwnedHeaders) {
    let record = FutureRecord::<[u8], [u8]>::to(TOPIC)
        .payload(b"{}")
        .headers(headers);
    let sent = producer.send_result(record).expect("room in the queue");
    sent.await.expect("a client").expect("an acknowledgement");
}

fn with(values: &[Option<&[u8]>]) -> OwnedHeaders {
    values.iter().fold(OwnedHeaders::new(), |all, value| {
        all.insert(Header {
            key: TRACEPARENT,
            value: *value,
        })
    })
}

/// Adds a header whose name is not UTF-8, which rdkafka's types can't.
fn with_odd_name(headers: OwnedHeaders, name: &CStr) -> OwnedHeaders {
    let native = std::ptr::from_ref(headers.as_borrowed())
        .cast_mut()
        .cast::<bindings::rd_kafka_headers_t>();
    // SAFETY: the list is owned here and has no other reference; librdkafka
    // copies name and value, whose lengths are those given.
    unsafe {
        bindings::rd_kafka_header_add(native, name.as_ptr(), -1, c"v".as_ptr().cast(), 1);
    }
    headers
}

#[tokio::test]
async fn what_is_well_formed_is_taken_up_and_nothing_else_hurts() {
    let mock = mock();
    let brokers = mock.bootstrap_servers();
    let producer: FutureProducer = ClientConfig::new()
        .set("bootstrap.servers", &brokers)
        .create()
        .expect("a producer");
    let huge = [FIRST.as_bytes(), &[b'0'; 300_000]].concat();
    let odd_name = c"\xff\xfe";
    let cases: Vec<(OwnedHeaders, Option<&str>)> = vec![
        (OwnedHeaders::new(), None),
        (with(&[Some(FIRST.as_bytes())]), Some(FIRST)),
        // Of several the last one counts, good or bad.
        (
            with(&[Some(FIRST.as_bytes()), Some(SECOND.as_bytes())]),
            Some(SECOND),
        ),
        (with(&[Some(FIRST.as_bytes()), Some(b"nonsense")]), None),
        (with(&[Some(b"")]), None),
        (with(&[None]), None),
        (with(&[Some(b"\xff\xfe\x00")]), None),
        (with(&[Some(FIRST.to_uppercase().as_bytes())]), None),
        (with(&[Some(&huge)]), None),
        (with(&vec![Some(FIRST.as_bytes()); 5000]), Some(FIRST)),
        (
            with_odd_name(with(&[Some(FIRST.as_bytes())]), odd_name),
            Some(FIRST),
        ),
        (with_odd_name(OwnedHeaders::new(), odd_name), None),
        // The others are still read behind one that can't be.
        (
            [(RECEIVED_AT, "1700000000123"), (REPLAY_COUNT, "2")]
                .into_iter()
                .fold(
                    with_odd_name(with(&[Some(b"nonsense")]), odd_name),
                    |all, (key, value)| {
                        all.insert(Header {
                            key,
                            value: Some(value),
                        })
                    },
                ),
            None,
        ),
    ];
    let expected: Vec<_> = cases
        .iter()
        .map(|(_, trace)| trace.map(|text| TraceContext::parse(text).expect("well-formed")))
        .collect();
    for (headers, _) in cases {
        publish_raw(&producer, headers).await;
    }
    let mut started = start(&brokers, consumer_config(TOPIC, GROUP));
    let records = receive(&mut started.records, expected.len()).await;
    for (index, (record, trace)) in records.iter().zip(&expected).enumerate() {
        assert_eq!(record.trace, *trace, "case {index}");
        assert_eq!(record.payload.as_deref(), Some(&b"{}"[..]), "case {index}");
    }
    let last = records.last().expect("records");
    assert_eq!(
        (last.received_at_ms, last.replay_count),
        (1_700_000_000_123, 2)
    );
    started.consumer.settle(ids(&records), Outcome::Inserted);
    started.consumer.close(PATIENCE).await.expect("closed");
    // Operators' commands read such a topic too.
    let topic = cdr_kafka::admin::read_topic(&KafkaConfig::plaintext(&brokers), TOPIC, PATIENCE)
        .await
        .expect("read");
    assert_eq!(topic[1].header(TRACEPARENT), Some(FIRST));
    assert_eq!(topic[11].headers[0].1, "v");
}

#[tokio::test]
async fn the_dead_letter_of_a_record_is_in_its_trace() {
    let mock = mock();
    let brokers = mock.bootstrap_servers();
    let publisher = publisher(&brokers);
    for traceparent in [FIRST, "nonsense"] {
        let headers = [(TRACEPARENT, traceparent.to_owned())];
        let sent = publisher.publish(TOPIC, Some(b"k"), Some(b"{not JSON"), &headers);
        sent.await.expect("acknowledged");
    }
    let mut started = start(&brokers, consumer_config(TOPIC, GROUP));
    let records = receive(&mut started.records, 2).await;
    for record in &records {
        let message = DeadLetter {
            key: record.key.as_deref(),
            payload: record.payload.as_deref(),
            reason: FailureReason::MalformedJson,
            failed_field: None,
            detail: "not one JSON object",
            failed_at_ms: 1_700_000_000_123,
            worker_instance: "worker-1",
            source_topic: TOPIC,
            source_partition: record.id.partition,
            source_offset: record.id.offset,
            source_timestamp_ms: record.timestamp_ms,
            received_at_ms: record.received_at_ms,
            normalizer: None,
            replay_count: record.replay_count,
            trace: record.trace.map(TraceContext::child),
        }
        .encode();
        let sent = publisher.publish(
            DLQ,
            message.key.as_deref(),
            Some(&message.payload),
            &message.headers,
        );
        sent.await.expect("acknowledged");
    }
    started
        .consumer
        .settle(ids(&records), Outcome::DeadLettered);
    started.consumer.close(PATIENCE).await.expect("closed");
    let letters = cdr_kafka::admin::read_topic(&KafkaConfig::plaintext(&brokers), DLQ, PATIENCE)
        .await
        .expect("read");
    assert_eq!(letters.len(), 2);
    let of_record = TraceContext::parse(FIRST).expect("well-formed");
    for letter in &letters {
        let trace = letter.header(TRACEPARENT).and_then(TraceContext::parse);
        match letter.header(SOURCE_OFFSET) {
            Some("0") => {
                let trace = trace.expect("a trace");
                assert_eq!(trace.trace_id(), of_record.trace_id());
                assert_ne!(trace.span_id(), of_record.span_id());
            }
            _ => assert_eq!(letter.header(TRACEPARENT), None, "no trace, no header"),
        }
    }
}
