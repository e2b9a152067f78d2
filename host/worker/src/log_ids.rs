//! What a log line about a single record calls it.

use cdr_kafka::consumer::Record;
use cdr_telemetry::trace::TraceContext;

/// The fields that every such line has. Those that are none are left out of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LogIds {
    /// The Kafka key, as text.
    pub(crate) raw_id: Option<String>,
    /// The trace that the record belongs to.
    pub(crate) trace_id: Option<String>,
    /// This worker's span in it.
    pub(crate) span_id: Option<String>,
}

impl LogIds {
    /// Of a record, for which this worker goes on under `span`.
    pub(crate) fn new(record: &Record, span: Option<TraceContext>) -> Self {
        Self {
            raw_id: record
                .key
                .as_deref()
                .map(|key| String::from_utf8_lossy(key).into_owned()),
            trace_id: span.map(|span| span.trace_id()),
            span_id: span.map(|span| span.span_id()),
        }
    }
}
