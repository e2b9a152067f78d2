//! The dead-letter envelope: a record that can't become a row, whole, with the
//! reason. Pure: bytes in, bytes out.
//!
//! ```json
//! {"original_payload":{"raw_id":"a1"},"failure_reason":"invalid_epoch",
//!  "failed_field":"session_start_time","failed_at":"2023-11-14T22:13:20.000Z",
//!  "worker_instance":"worker-1"}
//! ```
//!
//! `original_payload` gives back exactly the payload:
//! - a JSON object is embedded byte for byte, if every reader will see the same
//!   in it (no doubled keys, no lone surrogates, finite numbers, not too deep, no
//!   blanks around it that a JSON reader would drop);
//! - any other UTF-8 is a JSON string;
//! - anything else is base64, and the header `cdr-payload-encoding` says so.
//!
//! A payload that its topic does not take is cut there, and kept whole in a file:
//! see [`DeadLetter::encode_truncated`] and [`SpooledDeadLetter`].
//!
//! Where the record came from and who judged it are headers: see
//! [`crate::headers`]. The key is that of the record.

mod embed;
mod envelope;
mod oversized;

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cdr_telemetry::trace::TraceContext;
use time::format_description::FormatItem;
use time::macros::format_description;

use crate::headers;
use embed::is_embeddable;
pub use envelope::{Envelope, EnvelopeError};
pub use oversized::{SpoolError, SpooledDeadLetter};

/// Bytes of `detail`, and of the name of a field, that are kept.
pub const MAX_DETAIL_BYTES: usize = 2048;

/// With this, every envelope starts.
const PREFIX: &[u8] = b"{\"original_payload\":";

const ISO_8601_MS: &[FormatItem<'static>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

/// Why a record can't become a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailureReason {
    /// The payload is not one JSON object in UTF-8.
    MalformedJson,
    /// A required field is not there, null or blank.
    MissingRequiredField,
    /// The radio access type is unknown.
    InvalidRatValue,
    /// A time is none, or out of range.
    InvalidEpoch,
    /// Anything else.
    NormalizationError,
}

impl FailureReason {
    /// All reasons, the strongest first.
    pub const ALL: [FailureReason; 5] = [
        FailureReason::MalformedJson,
        FailureReason::MissingRequiredField,
        FailureReason::InvalidRatValue,
        FailureReason::InvalidEpoch,
        FailureReason::NormalizationError,
    ];

    /// The word in the envelope.
    pub fn as_str(self) -> &'static str {
        match self {
            FailureReason::MalformedJson => "malformed_json",
            FailureReason::MissingRequiredField => "missing_required_field",
            FailureReason::InvalidRatValue => "invalid_rat_value",
            FailureReason::InvalidEpoch => "invalid_epoch",
            FailureReason::NormalizationError => "normalization_error",
        }
    }

    /// The reason of a word, if it is one of the five.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }
}

impl fmt::Display for FailureReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Who judged a record.
#[derive(Debug, Clone, Copy)]
pub struct Judge<'a> {
    /// Name of the normalizer.
    pub name: &'a str,
    /// Its version.
    pub version: &'a str,
    /// sha256 of its `.wasm`, hexadecimal.
    pub digest: &'a str,
}

/// A record that can't become a row; [`DeadLetter::encode`] makes the message.
#[derive(Debug, Clone, Copy)]
pub struct DeadLetter<'a> {
    /// Key of the record, and of the dead letter.
    pub key: Option<&'a [u8]>,
    /// Payload of the record; none for a tombstone.
    pub payload: Option<&'a [u8]>,
    /// Why it failed.
    pub reason: FailureReason,
    /// The field that failed, where one did.
    pub failed_field: Option<&'a str>,
    /// What was wrong, for people. Cut to [`MAX_DETAIL_BYTES`].
    pub detail: &'a str,
    /// When it failed, ms since the Unix epoch.
    pub failed_at_ms: i64,
    /// Which worker says so.
    pub worker_instance: &'a str,
    /// Topic it was consumed from.
    pub source_topic: &'a str,
    /// Its partition.
    pub source_partition: i32,
    /// Its offset.
    pub source_offset: i64,
    /// Its Kafka timestamp, ms since the Unix epoch.
    pub source_timestamp_ms: Option<i64>,
    /// When it was first received, ms since the Unix epoch.
    pub received_at_ms: i64,
    /// The normalizer that judged it; none if none did.
    pub normalizer: Option<Judge<'a>>,
    /// How often it was replayed before.
    pub replay_count: u32,
    /// The worker's span in the trace of the record; none if it has no trace.
    pub trace: Option<TraceContext>,
}

/// A message for the dead-letter topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterMessage {
    /// Key of the record.
    pub key: Option<Vec<u8>>,
    /// The envelope.
    pub payload: Vec<u8>,
    /// See [`crate::headers`].
    pub headers: Vec<(&'static str, String)>,
}

impl DeadLetter<'_> {
    /// The message for the dead-letter topic.
    pub fn encode(&self) -> DeadLetterMessage {
        let raw = self.payload.unwrap_or_default();
        let mut out = Vec::with_capacity(raw.len() + 256);
        let mut encoding = self.payload.is_none().then_some(headers::ENCODING_NULL);
        out.extend_from_slice(PREFIX);
        match std::str::from_utf8(raw) {
            Ok(text) if is_embeddable(text) => out.extend_from_slice(raw),
            Ok(text) => push_string(&mut out, text),
            Err(_) => {
                encoding = Some(headers::ENCODING_BASE64);
                push_string(&mut out, &BASE64.encode(raw));
            }
        }
        self.push_rest(&mut out);
        DeadLetterMessage {
            key: self.key.map(<[u8]>::to_vec),
            payload: out,
            headers: self.headers(encoding),
        }
    }

    /// What stands behind the payload.
    fn push_rest(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b",\"failure_reason\":");
        push_string(out, self.reason.as_str());
        out.extend_from_slice(b",\"failed_field\":");
        match self.failed_field {
            Some(field) => push_string(out, bounded(field)),
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(b",\"failed_at\":");
        push_string(out, &iso_8601(self.failed_at_ms));
        out.extend_from_slice(b",\"worker_instance\":");
        push_string(out, self.worker_instance);
        out.push(b'}');
    }

    fn headers(&self, encoding: Option<&str>) -> Vec<(&'static str, String)> {
        let mut all = vec![
            (headers::SOURCE_TOPIC, self.source_topic.to_owned()),
            (headers::SOURCE_PARTITION, self.source_partition.to_string()),
            (headers::SOURCE_OFFSET, self.source_offset.to_string()),
            (headers::RECEIVED_AT, self.received_at_ms.to_string()),
            (headers::DETAIL, bounded(self.detail).to_owned()),
            (headers::REPLAY_COUNT, self.replay_count.to_string()),
        ];
        if let Some(ms) = self.source_timestamp_ms {
            all.push((headers::SOURCE_TIMESTAMP, ms.to_string()));
        }
        if let Some(judge) = &self.normalizer {
            all.push((headers::NORMALIZER, judge.name.to_owned()));
            all.push((headers::NORMALIZER_VERSION, judge.version.to_owned()));
            all.push((headers::NORMALIZER_DIGEST, judge.digest.to_owned()));
        }
        if let Some(trace) = self.trace {
            all.push((headers::TRACEPARENT, trace.to_string()));
        }
        if let Some(encoding) = encoding {
            all.push((headers::PAYLOAD_ENCODING, encoding.to_owned()));
        }
        all
    }
}

fn push_string(out: &mut Vec<u8>, text: &str) {
    // Writing a string to memory can't fail; a Value prints itself without error.
    out.extend_from_slice(serde_json::Value::from(text).to_string().as_bytes());
}

fn bounded(detail: &str) -> &str {
    if detail.len() <= MAX_DETAIL_BYTES {
        return detail;
    }
    let end = (0..=MAX_DETAIL_BYTES)
        .rev()
        .find(|&end| detail.is_char_boundary(end));
    detail.get(..end.unwrap_or(0)).unwrap_or_default()
}

/// `2023-11-14T22:13:20.000Z`; times out of the calendar's range are clamped to it.
fn iso_8601(ms: i64) -> String {
    // 0000-01-01 to 9999-12-31T23:59:59.999Z
    let ms = ms.clamp(-62_167_219_200_000, 253_402_300_799_999);
    time::OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000)
        .ok()
        .and_then(|at| at.format(ISO_8601_MS).ok())
        .unwrap_or_default()
}
