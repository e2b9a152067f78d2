//! What the worker counts. All names begin with `cdr_worker_`; all labels are
//! words of the code, or partitions.

use cdr_telemetry::metrics::Maker;
use cdr_telemetry::normalizer::NormalizerMetrics;
use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

/// Where the bounds of normalizing calls lie, in seconds.
const NORMALIZE_BUCKETS: [f64; 10] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.25, 1.0, 10.0,
];
/// Where the bounds of inserts lie, in seconds.
const INSERT_BUCKETS: [f64; 10] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];
/// Where the bounds of latency lie, in seconds: a flush interval and multiples.
const LATENCY_BUCKETS: [f64; 11] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 60.0, 600.0];

/// The counters of one worker.
pub(crate) struct WorkerMetrics {
    pub(crate) inserted: IntCounter,
    pub(crate) dead_lettered: IntCounterVec,
    pub(crate) oversized: IntCounter,
    pub(crate) batches: IntCounter,
    pub(crate) insert_retries: IntCounterVec,
    pub(crate) abandoned: IntCounter,
    pub(crate) faults: IntCounterVec,
    pub(crate) insert_seconds: Histogram,
    pub(crate) normalize_seconds: Histogram,
    pub(crate) latency_seconds: Histogram,
    pub(crate) pending: IntGauge,
    pub(crate) buffered: IntGauge,
    pub(crate) batches_in_flight: IntGauge,
    pub(crate) paused: IntGauge,
    pub(crate) records: IntGaugeVec,
    pub(crate) unaccounted: IntGaugeVec,
    pub(crate) lag: IntGaugeVec,
    pub(crate) stalled: IntGaugeVec,
    pub(crate) consumer: IntGaugeVec,
    pub(crate) fetch_errors: IntGaugeVec,
    pub(crate) normalizer: NormalizerMetrics,
    pub(crate) shadow_records: IntCounterVec,
    pub(crate) shadow_dropped: IntCounter,
}

impl WorkerMetrics {
    /// Registers the metrics; fails if they are registered already.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let make = Maker::new(registry);
        Ok(Self {
            inserted: make.counter(
                "cdr_worker_rows_inserted_total",
                "Rows acknowledged by ClickHouse",
            )?,
            dead_lettered: make.counters(
                "cdr_worker_dead_letters_total",
                "Dead letters acknowledged by Kafka",
                &["reason"],
            )?,
            oversized: make.counter(
                "cdr_worker_dead_letters_oversized_total",
                "Dead letters larger than their topic takes: cut there, whole in WORKER_SPOOL_DIR",
            )?,
            batches: make.counter("cdr_worker_batches_total", "Batches that reached their end")?,
            insert_retries: make.counters(
                "cdr_worker_insert_retries_total",
                "Inserts tried again after a failure of ClickHouse",
                &["class"],
            )?,
            abandoned: make.counter(
                "cdr_worker_rows_abandoned_total",
                "Rows given up because their partitions went to another worker, which inserts them",
            )?,
            faults: make.counters(
                "cdr_worker_normalizer_faults_total",
                "Records on which the normalizer failed",
                &["kind"],
            )?,
            insert_seconds: make.histogram(
                "cdr_worker_insert_seconds",
                "Time of a batch in ClickHouse, retries included",
                &INSERT_BUCKETS,
            )?,
            normalize_seconds: make.histogram(
                "cdr_worker_normalize_seconds",
                "Time of a call of the normalizer, bisection included",
                &NORMALIZE_BUCKETS,
            )?,
            latency_seconds: make.histogram(
                "cdr_worker_latency_seconds",
                "From a record's Kafka timestamp to the acknowledgement of its row",
                &LATENCY_BUCKETS,
            )?,
            pending: make.gauge(
                "cdr_worker_pending_records",
                "Records waiting to be normalized",
            )?,
            buffered: make.gauge("cdr_worker_buffered_rows", "Rows waiting to be inserted")?,
            batches_in_flight: make
                .gauge("cdr_worker_batches_in_flight", "Inserts under way")?,
            paused: make.gauge(
                "cdr_worker_paused",
                "1 while partitions are paused because too much is in flight, or in a drain",
            )?,
            records: make.gauges(
                "cdr_worker_records",
                "Records since the start, by partition and state: consumed = inserted + dead_lettered + in_flight + given_back",
                &["partition", "state"],
            )?,
            unaccounted: make.gauges(
                "cdr_worker_records_unaccounted",
                "consumed less inserted, dead_lettered, in_flight and given_back: anything but 0 is a fault of this program",
                &["partition"],
            )?,
            lag: make.gauges(
                "cdr_worker_lag_records",
                "High watermark less the committed next offset",
                &["partition"],
            )?,
            stalled: make.gauges(
                "cdr_worker_stalled",
                "1 for a partition with lag whose committed offset has not moved for WORKER_PROGRESS_TIMEOUT_SECONDS",
                &["partition"],
            )?,
            consumer: make.gauges(
                "cdr_worker_consumer",
                "The Kafka consumer since the start: commits, commit_failures, rebalances, stale_settles, repeated_settles, steps_back, lost_to_retention, log_resets",
                &["count"],
            )?,
            fetch_errors: make.gauges(
                "cdr_worker_fetch_errors",
                "Errors of polling Kafka since the start, by librdkafka's word",
                &["error"],
            )?,
            normalizer: NormalizerMetrics::new(make, "cdr_worker")?,
            shadow_records: make.counters(
                "cdr_worker_shadow_records_total",
                "Records that a candidate in the shadow was compared on, by what it made of them",
                &["kind"],
            )?,
            shadow_dropped: make.counter(
                "cdr_worker_shadow_dropped_batches_total",
                "Batches that were to be shown to the candidate, and were not for want of time",
            )?,
        })
    }
}
