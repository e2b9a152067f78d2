//! What the worker counts, for `/metrics` and `/internal/stats`.

use cdr_kafka::dead_letter::FailureReason;
use cdr_kafka::{PartitionLag, RawConsumer};
use cdr_plugin_host::Provenance;
use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};
use serde_json::{Value, json};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The counters of one worker. All names begin with `cdr_worker_`.
pub struct Stats {
    inserted: IntCounter,
    dead_lettered: IntCounterVec,
    batches: IntCounter,
    insert_retries: IntCounter,
    faults: IntCounterVec,
    insert_seconds: Histogram,
    normalize_seconds: Histogram,
    latency_seconds: Histogram,
    pending: IntGauge,
    buffered: IntGauge,
    batches_in_flight: IntGauge,
    by_partition: IntGaugeVec,
    lag: IntGaugeVec,
    normalizer: IntGaugeVec,
    started: Instant,
    provenance: Mutex<Option<Provenance>>,
    last_error: Mutex<Option<String>>,
}

impl std::fmt::Debug for Stats {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Stats").finish_non_exhaustive()
    }
}

/// Where the bounds of normalizing calls lie, in seconds.
const NORMALIZE_BUCKETS: [f64; 10] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.25, 1.0, 10.0,
];
/// Where the bounds of inserts lie, in seconds.
const INSERT_BUCKETS: [f64; 10] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];
/// Where the bounds of latency lie, in seconds: a flush interval and multiples.
const LATENCY_BUCKETS: [f64; 11] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 60.0, 600.0];

impl Stats {
    /// Registers the metrics.
    ///
    /// # Errors
    /// They are registered already.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            inserted: register(
                registry,
                IntCounter::new(
                    "cdr_worker_rows_inserted_total",
                    "Rows acknowledged by ClickHouse",
                )?,
            )?,
            dead_lettered: register(
                registry,
                IntCounterVec::new(
                    Opts::new(
                        "cdr_worker_dead_letters_total",
                        "Dead letters acknowledged by Kafka",
                    ),
                    &["reason"],
                )?,
            )?,
            batches: register(
                registry,
                IntCounter::new("cdr_worker_batches_total", "Batches that reached their end")?,
            )?,
            insert_retries: register(
                registry,
                IntCounter::new(
                    "cdr_worker_insert_retries_total",
                    "Inserts tried again after a transient failure",
                )?,
            )?,
            faults: register(
                registry,
                IntCounterVec::new(
                    Opts::new(
                        "cdr_worker_normalizer_faults_total",
                        "Records on which the normalizer failed",
                    ),
                    &["kind"],
                )?,
            )?,
            insert_seconds: histogram(
                registry,
                "cdr_worker_insert_seconds",
                "Time of a batch in ClickHouse, retries included",
                &INSERT_BUCKETS,
            )?,
            normalize_seconds: histogram(
                registry,
                "cdr_worker_normalize_seconds",
                "Time of a call of the normalizer, bisection included",
                &NORMALIZE_BUCKETS,
            )?,
            latency_seconds: histogram(
                registry,
                "cdr_worker_latency_seconds",
                "From a record's Kafka timestamp to the acknowledgement of its row",
                &LATENCY_BUCKETS,
            )?,
            pending: register(
                registry,
                IntGauge::new(
                    "cdr_worker_pending_records",
                    "Records waiting to be normalized",
                )?,
            )?,
            buffered: register(
                registry,
                IntGauge::new("cdr_worker_buffered_rows", "Rows waiting to be inserted")?,
            )?,
            batches_in_flight: register(
                registry,
                IntGauge::new("cdr_worker_batches_in_flight", "Inserts under way")?,
            )?,
            by_partition: register(
                registry,
                IntGaugeVec::new(
                    Opts::new(
                        "cdr_worker_records",
                        "Records since the start, by partition and state: consumed = inserted + dead_lettered + in_flight + given_back",
                    ),
                    &["partition", "state"],
                )?,
            )?,
            lag: register(
                registry,
                IntGaugeVec::new(
                    Opts::new(
                        "cdr_worker_lag_records",
                        "High watermark less the committed next offset",
                    ),
                    &["partition"],
                )?,
            )?,
            normalizer: register(
                registry,
                IntGaugeVec::new(
                    Opts::new("cdr_worker_normalizer_info", "The normalizer in use"),
                    &["name", "version", "digest"],
                )?,
            )?,
            started: Instant::now(),
            provenance: Mutex::default(),
            last_error: Mutex::default(),
        })
    }

    pub(crate) fn normalizer_in_use(&self, provenance: &Provenance) {
        self.normalizer.reset();
        self.normalizer
            .with_label_values(&[&provenance.name, &provenance.version, &provenance.digest])
            .set(1);
        *lock(&self.provenance) = Some(provenance.clone());
    }

    pub(crate) fn dead_lettered(&self, reason: FailureReason) {
        self.dead_lettered
            .with_label_values(&[reason.as_str()])
            .inc();
    }

    pub(crate) fn fault(&self, kind: &str) {
        self.faults.with_label_values(&[kind]).inc();
    }

    pub(crate) fn retried(&self, error: &str) {
        self.insert_retries.inc();
        *lock(&self.last_error) = Some(error.to_owned());
    }

    pub(crate) fn normalized(&self, seconds: f64) {
        self.normalize_seconds.observe(seconds);
    }

    pub(crate) fn inserted(&self, latencies_seconds: impl Iterator<Item = f64>) {
        for latency in latencies_seconds {
            self.inserted.inc();
            self.latency_seconds.observe(latency.max(0.0));
        }
    }

    pub(crate) fn batch_ended(&self, seconds: f64) {
        self.batches.inc();
        self.insert_seconds.observe(seconds);
    }

    pub(crate) fn waiting(&self, pending: usize, buffered: usize, in_flight: usize) {
        let gauge = |count| i64::try_from(count).unwrap_or(i64::MAX);
        self.pending.set(gauge(pending));
        self.buffered.set(gauge(buffered));
        self.batches_in_flight.set(gauge(in_flight));
    }

    /// Brings the gauges that are read from the consumer up to date.
    pub fn refresh(&self, consumer: &RawConsumer) {
        let gauge = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let status = consumer.status();
        for (partition, counts) in &status.by_partition {
            let partition = partition.to_string();
            for (state, count) in [
                ("consumed", counts.consumed),
                ("inserted", counts.inserted),
                ("dead_lettered", counts.dead_lettered),
                ("in_flight", counts.in_flight),
                ("given_back", counts.given_back),
            ] {
                self.by_partition
                    .with_label_values(&[partition.as_str(), state])
                    .set(gauge(count));
            }
        }
        self.lag.reset();
        for (partition, lag) in consumer.lag() {
            self.lag
                .with_label_values(&[partition.to_string().as_str()])
                .set(lag.lag);
        }
    }

    /// The state as JSON, for `/internal/stats`.
    pub fn json(&self, consumer: &RawConsumer, instance: &str) -> Value {
        let status = consumer.status();
        let dead_letters: serde_json::Map<String, Value> = FailureReason::ALL
            .iter()
            .map(|reason| {
                let counter = self.dead_lettered.with_label_values(&[reason.as_str()]);
                (reason.as_str().to_owned(), json!(counter.get()))
            })
            .collect();
        let lag = consumer.lag();
        json!({
            "instance": instance,
            "uptime_seconds": self.started.elapsed().as_secs(),
            "normalizer": *lock(&self.provenance),
            "consumed": status.totals.consumed,
            "inserted": status.totals.inserted,
            "dead_lettered": status.totals.dead_lettered,
            "in_flight": status.totals.in_flight,
            "given_back": status.totals.given_back,
            "dead_letters_by_reason": dead_letters,
            "rows_inserted": self.inserted.get(),
            "batches": self.batches.get(),
            "insert_retries": self.insert_retries.get(),
            "last_insert_error": *lock(&self.last_error),
            "pending_records": self.pending.get(),
            "buffered_rows": self.buffered.get(),
            "batches_in_flight": self.batches_in_flight.get(),
            "paused": status.paused,
            "draining": status.draining,
            "commits": status.commits,
            "commit_failures": status.commit_failures,
            "lag": lag.values().map(|lag: &PartitionLag| lag.lag).sum::<i64>(),
            "partitions": status.partitions.iter().map(|view| json!({
                "partition": view.partition,
                "counts": view.counts,
                "position": view.position,
                "committed": view.committed,
                "lag": lag.get(&view.partition).map(|lag| lag.lag),
            })).collect::<Vec<_>>(),
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn register<C: Collector + Clone + 'static>(
    registry: &Registry,
    collector: C,
) -> Result<C, prometheus::Error> {
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}

fn histogram(
    registry: &Registry,
    name: &str,
    help: &str,
    buckets: &[f64],
) -> Result<Histogram, prometheus::Error> {
    register(
        registry,
        Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))?,
    )
}
