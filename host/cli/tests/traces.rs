//! A trace from the topic on: the worker's log and the dead letter say the same
//! span of it, and what is no trace changes nothing.

mod common;

use cdr_kafka::headers::TRACEPARENT;
use cdr_kafka::{Publisher, PublisherConfig};
use cdr_telemetry::trace::TraceContext;
use common::bed::Bed;
use common::process::PATIENCE;
use common::records::{good, now_s};
use serde_json::Value;
use std::collections::BTreeMap;

/// Key, `traceparent`, and whether the record is good.
const RECORDS: [(&str, Option<&str>, bool); 5] = [
    (
        "traced-dead",
        Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        false,
    ),
    (
        "traced-row",
        Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"),
        true,
    ),
    ("malformed-dead", Some("00-not-a-trace"), false),
    ("malformed-row", Some("00-not-a-trace"), true),
    ("plain-dead", None, false),
];

/// The lines of an event, by `raw_id`.
fn lines_of(log: &[String], event: &str) -> BTreeMap<String, Value> {
    log.iter()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|line| line["event"] == event)
        .map(|line| (line["raw_id"].as_str().unwrap_or_default().to_owned(), line))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_and_the_dead_letter_name_the_trace_of_the_record() {
    let bed = Bed::start().await;
    let worker = bed.worker(&[
        ("BATCH_FLUSH_INTERVAL_SECONDS", "0.2"),
        ("LOG_LEVEL", "info,cdr_worker=debug"),
    ]);
    let subject = bed.subject("http://unused", &worker.url);
    let publisher = Publisher::new(&subject.kafka, PublisherConfig::default()).unwrap();
    let (good, _) = good(7, now_s());
    for (key, traceparent, is_good) in RECORDS {
        let mut record = good.clone();
        record["raw_id"] = Value::from(key);
        if !is_good {
            record["radio_access_type"] = Value::from("no such network");
        }
        let headers: Vec<_> = traceparent
            .map(|text| (TRACEPARENT, text.to_owned()))
            .into_iter()
            .collect();
        publisher
            .publish(
                &subject.names.raw,
                Some(key.as_bytes()),
                Some(record.to_string().as_bytes()),
                &headers,
            )
            .await
            .unwrap();
    }
    let stats = subject.settled(5).await;
    assert_eq!(stats["inserted"], 2, "{stats}");
    let letters = cdr_kafka::admin::read_topic(&subject.kafka, &subject.names.dlq, PATIENCE)
        .await
        .unwrap();
    let letters: BTreeMap<_, _> = letters
        .iter()
        .map(|letter| {
            let key = String::from_utf8(letter.key.clone().unwrap()).unwrap();
            (
                key,
                letter.header(TRACEPARENT).and_then(TraceContext::parse),
            )
        })
        .collect();
    assert_eq!(letters.len(), 3);
    let log = worker.stop();
    let dead = lines_of(&log, "record_dead_lettered");
    let rows = lines_of(&log, "record_inserted");
    for (key, traceparent, is_good) in RECORDS {
        let line = match is_good {
            true => &rows[key],
            false => &dead[key],
        };
        let Some(trace) = traceparent.and_then(TraceContext::parse) else {
            assert_eq!(line.get("trace_id"), None, "{line}");
            assert_eq!(line.get("span_id"), None, "{line}");
            assert_eq!(letters.get(key).copied().flatten(), None, "{key}");
            continue;
        };
        assert_eq!(line["trace_id"], trace.trace_id(), "{line}");
        let span = line["span_id"].as_str().expect("a span");
        assert_eq!(span.len(), 16, "{line}");
        assert_ne!(span, trace.span_id(), "the worker's own, not the sender's");
        assert!(line["offset"].is_number(), "{line}");
        if !is_good {
            let letter = letters[key].expect("the trace goes on");
            assert_eq!(letter.trace_id(), trace.trace_id());
            assert_eq!(letter.span_id(), span, "what is logged");
        }
    }
}

/// One line a record is for who asks for it.
#[tokio::test(flavor = "multi_thread")]
async fn rows_are_not_logged_one_by_one_unless_that_is_wanted() {
    let bed = Bed::start().await;
    let worker = bed.worker(&[("BATCH_FLUSH_INTERVAL_SECONDS", "0.2")]);
    let subject = bed.subject("http://unused", &worker.url);
    let publisher = Publisher::new(&subject.kafka, PublisherConfig::default()).unwrap();
    let (record, _) = good(7, now_s());
    let payload = record.to_string();
    let sent = publisher.publish(
        &subject.names.raw,
        Some(b"one"),
        Some(payload.as_bytes()),
        &[],
    );
    sent.await.unwrap();
    subject.settled(1).await;
    let log = worker.stop();
    assert_eq!(lines_of(&log, "record_inserted").len(), 0);
    assert_eq!(lines_of(&log, "batch_inserted").len(), 1);
}
