//! Dead letters that are too large for their topic: the cut one and the file.

use cdr_kafka::dead_letter::{
    DeadLetter, DeadLetterMessage, Envelope, FailureReason, SpooledDeadLetter,
};
use cdr_kafka::headers;
use cdr_telemetry::trace::TraceContext;
use proptest::prelude::*;

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn letter<'a>(key: Option<&'a [u8]>, payload: Option<&'a [u8]>) -> DeadLetter<'a> {
    DeadLetter {
        key,
        payload,
        reason: FailureReason::MalformedJson,
        failed_field: None,
        detail: "not one JSON object",
        failed_at_ms: 1_700_000_000_123,
        worker_instance: "worker-1",
        source_topic: "cdr.raw",
        source_partition: 2,
        source_offset: 41,
        source_timestamp_ms: None,
        received_at_ms: 1_699_999_999_999,
        normalizer: None,
        replay_count: 0,
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
    Envelope::decode(&message.payload, header(message, headers::PAYLOAD_ENCODING)).unwrap()
}

#[test]
fn a_cut_dead_letter_says_what_it_lacks_and_where_it_is() {
    let payload = format!("{{\"raw_id\":\"{}", "é".repeat(5000));
    let message = letter(Some(b"k"), Some(payload.as_bytes())).encode_truncated(100, "file.json");
    let envelope = decode(&message);
    assert!(envelope.truncated);
    let kept = envelope.original_payload.unwrap();
    assert!(payload.as_bytes().starts_with(&kept));
    assert!((97..=100).contains(&kept.len()), "{}", kept.len());
    assert_eq!(
        header(&message, headers::PAYLOAD_TRUNCATED),
        Some(payload.len().to_string().as_str())
    );
    assert_eq!(header(&message, headers::PAYLOAD_SHA256).unwrap().len(), 64);
    assert_eq!(header(&message, headers::SPOOL_FILE), Some("file.json"));
    assert_eq!(header(&message, headers::KEY_TRUNCATED), None);
    assert_eq!(header(&message, headers::TRACEPARENT), Some(TRACEPARENT));
    assert_eq!(envelope.failure_reason, "malformed_json");
}

/// Even an object stays a string: no reader may take a part for the record.
#[test]
fn a_cut_object_is_never_embedded_and_a_whole_dead_letter_is_not_called_cut() {
    let payload = br#"{"a":1}"#;
    let cut = letter(None, Some(payload)).encode_truncated(1000, "f");
    assert!(
        cut.payload
            .starts_with(br#"{"original_payload":"{\"a\":1}""#)
    );
    assert!(decode(&cut).truncated);
    assert!(!decode(&letter(None, Some(payload)).encode()).truncated);
}

#[test]
fn a_long_key_is_cut_too() {
    let key = vec![b'k'; 600_000];
    let message = letter(Some(&key), Some(&[0xff; 600_000])).encode_truncated(0, "f");
    assert_eq!(message.key.as_ref().unwrap().len(), 1024);
    assert_eq!(header(&message, headers::KEY_TRUNCATED), Some("600000"));
    assert_eq!(decode(&message).original_payload, Some(Vec::new()));
    let size: usize = message.payload.len()
        + message
            .headers
            .iter()
            .map(|(n, v)| n.len() + v.len())
            .sum::<usize>();
    assert!(size < 4096, "{size}: any topic takes that");
}

#[test]
fn a_damaged_file_is_refused() {
    let spooled = SpooledDeadLetter::new("dlq", letter(None, Some(b"x")).encode());
    let content = spooled.encode().unwrap();
    assert!(SpooledDeadLetter::decode(&content[..content.len() / 2]).is_err());
    let strange = String::from_utf8(content)
        .unwrap()
        .replace(headers::DETAIL, "cdr-strange");
    assert!(SpooledDeadLetter::decode(strange.as_bytes()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_file_gives_back_the_whole_dead_letter(
        key in prop::option::of(prop::collection::vec(any::<u8>(), 0..40)),
        payload in prop::option::of(prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300),
            ".{0,200}".prop_map(String::into_bytes),
            Just(br#"{"raw_id": "a" , "x":[1, 2.50]}"#.to_vec()),
        ]),
    ) {
        let message = letter(key.as_deref(), payload.as_deref()).encode();
        let spooled = SpooledDeadLetter::new("cdr.raw.dlq", message.clone());
        let read = SpooledDeadLetter::decode(&spooled.encode().unwrap()).unwrap();
        prop_assert_eq!(&read, &spooled);
        prop_assert_eq!(header(&read.message, headers::TRACEPARENT), Some(TRACEPARENT));
        prop_assert_eq!(decode(&read.message).original_payload, payload);
    }

    #[test]
    fn what_is_kept_is_a_beginning_of_the_payload(
        payload in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300),
            ".{0,200}".prop_map(String::into_bytes),
        ],
        max in 0usize..400,
    ) {
        let message = letter(None, Some(&payload)).encode_truncated(max, "f");
        let kept = decode(&message).original_payload.unwrap();
        prop_assert!(payload.starts_with(&kept));
        prop_assert!(kept.len() <= max);
        prop_assert!(kept.len() + 3 >= max.min(payload.len()));
    }
}
