//! The envelope gives the payload back, whatever it is.

use cdr_kafka::dead_letter::{DeadLetter, DeadLetterMessage, Envelope, FailureReason, Judge};
use cdr_kafka::headers;
use cdr_telemetry::trace::TraceContext;
use proptest::prelude::*;

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn letter(payload: Option<&[u8]>) -> DeadLetter<'_> {
    DeadLetter {
        key: Some(b"raw-1"),
        payload,
        reason: FailureReason::InvalidEpoch,
        failed_field: Some("session_start_time"),
        detail: "12 is neither seconds nor milliseconds",
        failed_at_ms: 1_700_000_000_123,
        worker_instance: "worker \"1\"",
        source_topic: "cdr.raw",
        source_partition: 2,
        source_offset: 41,
        source_timestamp_ms: Some(1_700_000_000_000),
        received_at_ms: 1_699_999_999_999,
        normalizer: Some(Judge {
            name: "cdr-normalizer",
            version: "1.2.0",
            digest: "abc",
        }),
        replay_count: 3,
        trace: TraceContext::parse(TRACEPARENT),
    }
}

fn header<'a>(message: &'a DeadLetterMessage, name: &str) -> Option<&'a str> {
    message
        .headers
        .iter()
        .find(|(found, _)| *found == name)
        .map(|(_, value)| value.as_str())
}

fn decode(message: &DeadLetterMessage) -> Envelope {
    Envelope::decode(&message.payload, header(message, headers::PAYLOAD_ENCODING))
        .expect("an envelope that was just written")
}

/// `original_payload` as any JSON reader sees it.
fn seen(message: &DeadLetterMessage) -> serde_json::Value {
    let envelope: serde_json::Value =
        serde_json::from_slice(&message.payload).expect("the envelope is JSON");
    envelope["original_payload"].clone()
}

#[test]
fn the_envelope_has_exactly_its_five_fields() {
    let message = letter(Some(br#"{"raw_id":"a"}"#)).encode();
    assert_eq!(
        String::from_utf8(message.payload).expect("UTF-8"),
        r#"{"original_payload":{"raw_id":"a"},"failure_reason":"invalid_epoch","failed_field":"session_start_time","failed_at":"2023-11-14T22:13:20.123Z","worker_instance":"worker \"1\""}"#
    );
    assert_eq!(message.key.as_deref(), Some(&b"raw-1"[..]));
}

#[test]
fn where_it_came_from_and_who_judged_it_are_headers() {
    let message = letter(Some(b"{}")).encode();
    for (name, value) in [
        ("cdr-source-topic", "cdr.raw"),
        ("cdr-source-partition", "2"),
        ("cdr-source-offset", "41"),
        ("cdr-source-timestamp", "1700000000000"),
        ("cdr-received-at", "1699999999999"),
        ("cdr-normalizer", "cdr-normalizer"),
        ("cdr-normalizer-version", "1.2.0"),
        ("cdr-normalizer-digest", "abc"),
        ("cdr-detail", "12 is neither seconds nor milliseconds"),
        ("cdr-replay-count", "3"),
        ("traceparent", TRACEPARENT),
    ] {
        assert_eq!(header(&message, name), Some(value), "{name}");
    }
    assert_eq!(header(&message, headers::PAYLOAD_ENCODING), None);
}

#[test]
fn without_a_trace_there_is_no_header_of_one() {
    let message = DeadLetter {
        trace: None,
        ..letter(Some(b"{}"))
    }
    .encode();
    assert_eq!(header(&message, headers::TRACEPARENT), None);
}

#[test]
fn an_object_is_embedded_byte_for_byte() {
    // Big numbers, escapes and inner blanks survive only if nobody prints them anew.
    let payload = "{ \"n\": 123456789012345678901234567890, \"t\":\"\\u00e9\\/\",\n\"x\":1.50 }";
    let message = letter(Some(payload.as_bytes())).encode();
    assert!(seen(&message).is_object());
    assert_eq!(
        decode(&message).original_payload.as_deref(),
        Some(payload.as_bytes())
    );
}

#[test]
fn what_readers_would_see_differently_is_a_string() {
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(127), "]".repeat(127));
    for payload in [
        r#"{"a":1,"a":2}"#,
        r#"{"a":{"b":1,"\u0062":2}}"#,
        r#"{"a":"\ud800"}"#,
        r#"{"a":1e999}"#,
        r#"{"a":NaN}"#,
        r#"{"a":1} "#,
        "\n{\"a\":1}",
        "\u{feff}{\"a\":1}",
        r#"{"a":1}{"b":2}"#,
        r#"{"a":"#,
        "[1]",
        "null",
        "17",
        "",
        "plain",
        &deep,
    ] {
        let message = letter(Some(payload.as_bytes())).encode();
        assert_eq!(seen(&message).as_str(), Some(payload));
        assert_eq!(
            decode(&message).original_payload.as_deref(),
            Some(payload.as_bytes())
        );
    }
}

#[test]
fn nesting_is_embedded_as_deep_as_common_readers_read() {
    let inside = format!("{{\"a\":{}{}}}", "[".repeat(125), "]".repeat(125));
    let message = letter(Some(inside.as_bytes())).encode();
    assert!(seen(&message).is_object());
}

#[test]
fn bytes_that_are_no_text_are_base64_and_say_so() {
    let message = letter(Some(b"{\"a\":\"\xff\"}")).encode();
    assert_eq!(seen(&message).as_str(), Some("eyJhIjoi/yJ9"));
    assert_eq!(header(&message, headers::PAYLOAD_ENCODING), Some("base64"));
}

#[test]
fn a_tombstone_is_not_an_empty_payload() {
    let tombstone = letter(None).encode();
    assert_eq!(seen(&tombstone).as_str(), Some(""));
    assert_eq!(header(&tombstone, headers::PAYLOAD_ENCODING), Some("null"));
    assert_eq!(decode(&tombstone).original_payload, None);
    assert_eq!(
        decode(&letter(Some(b"")).encode()).original_payload,
        Some(Vec::new())
    );
}

#[test]
fn a_long_detail_is_cut_between_characters() {
    let detail = "é".repeat(5000);
    let message = DeadLetter {
        detail: &detail,
        ..letter(Some(b"{}"))
    }
    .encode();
    let kept = header(&message, headers::DETAIL).expect("a detail");
    assert!(kept.len() <= 2048 && kept.len() >= 2040);
}

#[test]
fn the_five_reasons_are_words_of_the_requirement() {
    let words: Vec<&str> = FailureReason::ALL.iter().map(|r| r.as_str()).collect();
    assert_eq!(
        words,
        [
            "malformed_json",
            "missing_required_field",
            "invalid_rat_value",
            "invalid_epoch",
            "normalization_error"
        ]
    );
    for reason in FailureReason::ALL {
        assert_eq!(FailureReason::parse(reason.as_str()), Some(reason));
    }
}

#[test]
fn foreign_messages_are_refused_in_words() {
    for foreign in ["", "{}", "[]", r#"{"failure_reason":"x"}"#, "\u{0}"] {
        assert!(
            Envelope::decode(foreign.as_bytes(), None).is_err(),
            "{foreign:?}"
        );
    }
}

/// Text that is often almost JSON.
fn almost_json() -> impl Strategy<Value = String> {
    prop::collection::vec(
        prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            "\"",
            ",",
            ":",
            "\\",
            "\\u",
            "d800",
            "1",
            "-",
            "e9",
            ".",
            " ",
            "\n",
            "null",
            "true",
            "a",
            "\"a\":",
            "{\"a\":1}",
            "é",
            "\u{2028}",
            "\u{0}",
        ]),
        0..12,
    )
    .prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_payload_comes_back(payload in prop_oneof![
        prop::collection::vec(any::<u8>(), 0..60),
        almost_json().prop_map(String::into_bytes),
        almost_json().prop_map(|text| format!("{{\"k\":{text}}}").into_bytes()),
        any::<String>().prop_map(String::into_bytes),
    ]) {
        let message = letter(Some(&payload)).encode();
        let value: serde_json::Value = serde_json::from_slice(&message.payload).expect("the envelope is JSON");
        prop_assert_eq!(value.as_object().map(|o| o.len()), Some(5));
        let original = &value["original_payload"];
        prop_assert!(original.is_object() || original.is_string());
        let envelope = decode(&message);
        prop_assert_eq!(envelope.original_payload.as_deref(), Some(&payload[..]));
        prop_assert_eq!(envelope.worker_instance, "worker \"1\"");
    }
}
