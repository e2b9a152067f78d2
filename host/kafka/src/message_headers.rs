//! Reading the headers of a message that anyone may have written.
//!
//! rdkafka's own reader panics where the *name* of a header is not UTF-8 (up to
//! 0.39, `BorrowedHeaders::try_get`): one such record would end the polling
//! thread at the same offset at every start. Here names are bytes.

use std::ffi::CStr;
use std::ptr;

use cdr_telemetry::trace::TraceContext;
use rdkafka::bindings;
use rdkafka::error::IsError;
use rdkafka::message::{BorrowedHeaders, BorrowedMessage, Message};

use crate::headers;

/// What the headers of a raw record say. Whatever can't be read counts as absent:
/// no header makes a record worse than it is without.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHeaders {
    /// The first `cdr-received-at`.
    pub(crate) received_at_ms: Option<i64>,
    /// The first `cdr-replay-count`.
    pub(crate) replay_count: Option<u32>,
    /// The last `traceparent`: producers and proxies append theirs, and other
    /// readers of this header take the last one too.
    pub(crate) trace: Option<TraceContext>,
}

impl RecordHeaders {
    /// Of this message.
    pub(crate) fn read(message: &BorrowedMessage<'_>) -> Self {
        let (mut received_at, mut replay_count, mut trace) = (None, None, None);
        for (name, value) in all(message) {
            if name == headers::RECEIVED_AT.as_bytes() {
                received_at.get_or_insert(value);
            } else if name == headers::REPLAY_COUNT.as_bytes() {
                replay_count.get_or_insert(value);
            } else if name == headers::TRACEPARENT.as_bytes() {
                trace = Some(value);
            }
        }
        Self {
            received_at_ms: received_at.and_then(number),
            replay_count: replay_count
                .and_then(number)
                .and_then(|count| u32::try_from(count).ok()),
            trace: trace.and_then(text).and_then(TraceContext::parse),
        }
    }
}

/// All headers as text, for people: what is not UTF-8 is replaced.
pub(crate) fn lossy(message: &BorrowedMessage<'_>) -> Vec<(String, String)> {
    let readable = |bytes| String::from_utf8_lossy(bytes).into_owned();
    all(message)
        .map(|(name, value)| (readable(name), readable(value.unwrap_or_default())))
        .collect()
}

fn text(value: Option<&[u8]>) -> Option<&str> {
    std::str::from_utf8(value?).ok()
}

fn number(value: Option<&[u8]>) -> Option<i64> {
    text(value)?.trim().parse().ok()
}

/// Names and values in their order; a header may have no value.
fn all<'a>(message: &'a BorrowedMessage<'_>) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> {
    let headers = message.headers();
    (0..).map_while(move |index| get(headers?, index))
}

/// The header at this place, if there are so many.
fn get(headers: &BorrowedHeaders, index: usize) -> Option<(&[u8], Option<&[u8]>)> {
    let native = ptr::from_ref(headers).cast::<bindings::rd_kafka_headers_t>();
    let (mut name, mut value, mut size) = (ptr::null(), ptr::null(), 0);
    // SAFETY: a `BorrowedHeaders` is never made but from the address of librdkafka's
    // list of headers, as rdkafka itself reads it. The list belongs to the message,
    // which is borrowed as long as `headers`, and nobody changes it. Where the call
    // gives no error, `name` ends in a zero byte and `value` is null or has `size`
    // bytes, all of them in the list.
    unsafe {
        let error =
            bindings::rd_kafka_header_get_all(native, index, &mut name, &mut value, &mut size);
        if error.is_error() {
            return None;
        }
        let value =
            (!value.is_null()).then(|| std::slice::from_raw_parts(value.cast::<u8>(), size));
        Some((CStr::from_ptr(name).to_bytes(), value))
    }
}
