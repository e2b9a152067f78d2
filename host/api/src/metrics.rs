//! What the API host counts. All names begin with `cdr_api_`; all labels are
//! words of the code.

use cdr_telemetry::http::{Outside, Unrouted};
use cdr_telemetry::metrics::Maker;
use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge, Registry};

use crate::outstanding::Bounds;

/// Bounds of times that an idle host answers in milliseconds, and a Kafka outage
/// stretches to the delivery timeout, in seconds.
const SECONDS: [f64; 12] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0,
];
/// Bounds of the records of an admission batch.
const RECORDS: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// The counters of one host. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct ApiMetrics {
    /// Answers by code: `accepted`, `ok`, or an error's.
    pub(crate) answers: IntCounterVec,
    /// Requests whose client went away before the answer.
    pub(crate) hang_ups: IntCounter,
    /// Bytes of the records that were read whole.
    pub(crate) payload_bytes: IntCounter,
    /// Records by what became of them: `acknowledged`, or an error's code.
    pub(crate) records: IntCounterVec,
    /// Records taken in and not yet answered for.
    pub(crate) outstanding: IntGauge,
    /// Bytes of them and of bodies that are being read.
    pub(crate) outstanding_bytes: IntGauge,
    /// Connections that are open.
    pub(crate) connections: IntGauge,
    /// Records of an admission batch.
    pub(crate) batch_records: Histogram,
    /// Time of an admission batch.
    pub(crate) admission_seconds: Histogram,
    /// Time from sending to the acknowledgement.
    pub(crate) delivery_seconds: Histogram,
    /// Time from a request's head to its 202.
    pub(crate) accept_seconds: Histogram,
}

impl ApiMetrics {
    /// Registers the metrics; fails if they are registered already.
    pub(crate) fn new(registry: &Registry, bounds: Bounds) -> Result<Self, prometheus::Error> {
        let make = Maker::new(registry);
        let limit = make.gauge(
            "cdr_api_outstanding_records_limit",
            "Bound of cdr_api_outstanding_records (API_QUEUE_MAX_SIZE).",
        )?;
        limit.set(i64::try_from(bounds.records).unwrap_or(i64::MAX));
        let limit = make.gauge(
            "cdr_api_outstanding_bytes_limit",
            "Bound of cdr_api_outstanding_bytes (API_QUEUE_MAX_BYTES).",
        )?;
        limit.set(i64::try_from(bounds.bytes).unwrap_or(i64::MAX));
        Ok(ApiMetrics {
            answers: make.counters("cdr_api_answers_total", "HTTP answers, by code.", &["code"])?,
            hang_ups: make.counter(
                "cdr_api_hang_ups_total",
                "Requests whose client went away before the answer; their records count as usual.",
            )?,
            payload_bytes: make
                .counter("cdr_api_payload_bytes_total", "Bytes of the records read.")?,
            records: make.counters(
                "cdr_api_records_total",
                "Records by outcome: acknowledged by Kafka, or why not.",
                &["outcome"],
            )?,
            outstanding: make.gauge(
                "cdr_api_outstanding_records",
                "Records taken in and not yet acknowledged or refused.",
            )?,
            outstanding_bytes: make.gauge(
                "cdr_api_outstanding_bytes",
                "Bytes of records taken in and of bodies that are being read.",
            )?,
            connections: make.gauge("cdr_api_connections", "Connections that are open.")?,
            batch_records: make.histogram(
                "cdr_api_admission_batch_records",
                "Records that shared a call of the normalizer.",
                &RECORDS,
            )?,
            admission_seconds: make.histogram(
                "cdr_api_admission_seconds",
                "Time of a call of the normalizer.",
                &SECONDS,
            )?,
            delivery_seconds: make.histogram(
                "cdr_api_delivery_seconds",
                "Time from sending a record to its acknowledgement.",
                &SECONDS,
            )?,
            accept_seconds: make.histogram(
                "cdr_api_accept_seconds",
                "Time from the head of a request to its 202.",
                &SECONDS,
            )?,
        })
    }
}

impl Outside for ApiMetrics {
    fn answered(&self, what: Unrouted) {
        self.answers.with_label_values(&[what.code()]).inc();
        tracing::debug!(event = what.code(), "answered without a route");
    }

    fn hung_up(&self) {
        self.hang_ups.inc();
        tracing::debug!(
            event = "client_hung_up",
            "a client hung up before its answer"
        );
    }

    fn connected(&self) {
        self.connections.inc();
    }

    fn disconnected(&self) {
        self.connections.dec();
    }
}
