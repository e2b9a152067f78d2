//! How the worker stands: counted as it goes, shown in `/metrics` and
//! `/internal/stats`.

use crate::metrics::WorkerMetrics;
use crate::progress::Stall;
use cdr_kafka::RawConsumer;
use cdr_kafka::dead_letter::FailureReason;
use cdr_kafka::ledger::Counts;
use cdr_plugin_host::{Live, LiveState, Provenance, ShadowReport};
use cdr_store::{ErrorClass, StoreError};
use cdr_telemetry::normalizer::NormalizerView;
use prometheus::Registry;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// The counters of one worker, and what else its `/internal/stats` says.
pub struct Stats {
    metrics: WorkerMetrics,
    started: Instant,
    provenance: Mutex<Option<Provenance>>,
    live: OnceLock<Live>,
    shadow: Arc<ShadowReport>,
    last_error: Mutex<Option<String>>,
    stalls: Mutex<Vec<Stall>>,
}

impl std::fmt::Debug for Stats {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Stats").finish_non_exhaustive()
    }
}

impl Stats {
    /// Registers the metrics.
    ///
    /// # Errors
    /// They are registered already.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            metrics: WorkerMetrics::new(registry)?,
            started: Instant::now(),
            provenance: Mutex::default(),
            live: OnceLock::new(),
            shadow: Arc::default(),
            last_error: Mutex::default(),
            stalls: Mutex::default(),
        })
    }

    pub(crate) fn normalizer_in_use(&self, provenance: &Provenance) {
        *lock(&self.provenance) = Some(provenance.clone());
        self.show_normalizer();
    }

    /// What normalizes here, how its activation stands, and what its shadow saw.
    fn show_normalizer(&self) {
        let Some(state) = self.live.get().map(Live::state) else {
            return;
        };
        let in_use = lock(&self.provenance);
        let in_use = in_use.as_ref().unwrap_or(&state.serving);
        self.metrics.normalizer.show(NormalizerView {
            serving: [&in_use.name, &in_use.version, &in_use.digest],
            revision: state.revision,
            refused: state.refused.as_ref().map(|refused| refused.kind),
            swaps: state.swaps,
            refusals: state.refusals,
        });
        let (kinds, dropped) = self.shadow.totals();
        for (kind, total) in kinds {
            let counter = self
                .metrics
                .shadow_records
                .with_label_values(&[kind.word()]);
            counter.inc_by(total.saturating_sub(counter.get()));
        }
        let counter = &self.metrics.shadow_dropped;
        counter.inc_by(dropped.saturating_sub(counter.get()));
    }

    /// Where the state of the normalizer is read from; once.
    pub(crate) fn follow(&self, live: Live) {
        let _ = self.live.set(live);
    }

    /// What was seen of a candidate in the shadow.
    pub(crate) fn shadow(&self) -> &Arc<ShadowReport> {
        &self.shadow
    }

    pub(crate) fn dead_lettered(&self, reason: FailureReason) {
        self.metrics
            .dead_lettered
            .with_label_values(&[reason.as_str()])
            .inc();
    }

    pub(crate) fn fault(&self, kind: &str) {
        self.metrics.faults.with_label_values(&[kind]).inc();
    }

    pub(crate) fn retried(&self, error: &StoreError) {
        self.metrics
            .insert_retries
            .with_label_values(&[error.class.tag()])
            .inc();
        *lock(&self.last_error) = Some(error.to_string());
    }

    pub(crate) fn normalized(&self, seconds: f64) {
        self.metrics.normalize_seconds.observe(seconds);
    }

    pub(crate) fn inserted(&self, latencies_seconds: impl Iterator<Item = f64>) {
        for latency in latencies_seconds {
            self.metrics.inserted.inc();
            self.metrics.latency_seconds.observe(latency.max(0.0));
        }
    }

    pub(crate) fn abandoned(&self, rows: usize) {
        self.metrics.abandoned.inc_by(rows as u64);
    }

    pub(crate) fn oversized(&self) {
        self.metrics.oversized.inc();
    }

    pub(crate) fn batch_ended(&self, seconds: f64) {
        self.metrics.batches.inc();
        self.metrics.insert_seconds.observe(seconds);
    }

    pub(crate) fn waiting(&self, pending: usize, buffered: usize, in_flight: usize) {
        let gauge = |count| i64::try_from(count).unwrap_or(i64::MAX);
        self.metrics.pending.set(gauge(pending));
        self.metrics.buffered.set(gauge(buffered));
        self.metrics.batches_in_flight.set(gauge(in_flight));
    }

    /// Brings the gauges that are read from the consumer up to date. Returns the
    /// partitions whose records don't add up, of which there must never be one.
    pub fn refresh(&self, consumer: &RawConsumer) -> Vec<(i32, Counts)> {
        self.show_normalizer();
        let gauge = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let status = consumer.status();
        let mut unbalanced = Vec::new();
        for (&number, counts) in &status.by_partition {
            let partition = number.to_string();
            let unaccounted = unaccounted(counts);
            self.metrics
                .unaccounted
                .with_label_values(&[&partition])
                .set(unaccounted);
            if unaccounted != 0 {
                unbalanced.push((number, *counts));
            }
            for (state, count) in [
                ("consumed", counts.consumed),
                ("inserted", counts.inserted),
                ("dead_lettered", counts.dead_lettered),
                ("in_flight", counts.in_flight),
                ("given_back", counts.given_back),
            ] {
                self.metrics
                    .records
                    .with_label_values(&[partition.as_str(), state])
                    .set(gauge(count));
            }
        }
        self.metrics.paused.set(i64::from(status.paused));
        for (name, count) in [
            ("commits", status.commits),
            ("commit_failures", status.commit_failures),
            ("rebalances", status.rebalances),
            ("stale_settles", status.stale_settles),
            ("repeated_settles", status.repeated_settles),
            ("steps_back", status.steps_back),
            ("lost_to_retention", status.lost_to_retention),
            ("log_resets", status.resets),
        ] {
            self.metrics
                .consumer
                .with_label_values(&[name])
                .set(gauge(count));
        }
        for (word, count) in &status.fetch_errors {
            self.metrics
                .fetch_errors
                .with_label_values(&[word])
                .set(gauge(*count));
        }
        self.metrics.lag.reset();
        for (partition, lag) in consumer.lag() {
            self.metrics
                .lag
                .with_label_values(&[partition.to_string().as_str()])
                .set(lag.lag);
        }
        unbalanced
    }

    /// Which partitions stand still.
    pub(crate) fn stalled(&self, stalls: Vec<Stall>) {
        self.metrics.stalled.reset();
        for stall in &stalls {
            self.metrics
                .stalled
                .with_label_values(&[stall.partition.to_string().as_str()])
                .set(1);
        }
        *lock(&self.stalls) = stalls;
    }

    /// The state as JSON, for `/internal/stats`.
    pub fn json(&self, consumer: &RawConsumer, instance: &str) -> Value {
        let status = consumer.status();
        let dead_letters: serde_json::Map<String, Value> = FailureReason::ALL
            .iter()
            .map(|reason| {
                let counter = self
                    .metrics
                    .dead_lettered
                    .with_label_values(&[reason.as_str()]);
                (reason.as_str().to_owned(), json!(counter.get()))
            })
            .collect();
        let retries: u64 = ErrorClass::ALL
            .iter()
            .map(|class| {
                let counter = self
                    .metrics
                    .insert_retries
                    .with_label_values(&[class.tag()]);
                counter.get()
            })
            .sum();
        let lag = consumer.lag();
        // Not a number before it is known of every partition.
        let total_lag: Option<i64> = status
            .partitions
            .iter()
            .map(|view| lag.get(&view.partition).map(|lag| lag.lag))
            .sum();
        json!({
            "instance": instance,
            "uptime_seconds": self.started.elapsed().as_secs(),
            "normalizer": *lock(&self.provenance),
            "activation": self.live.get().map(|live| LiveState::clone(&live.state())),
            "shadow": self.shadow.comparison().as_deref(),
            "consumed": status.totals.consumed,
            "inserted": status.totals.inserted,
            "dead_lettered": status.totals.dead_lettered,
            "in_flight": status.totals.in_flight,
            "given_back": status.totals.given_back,
            "dead_letters_by_reason": dead_letters,
            "rows_inserted": self.metrics.inserted.get(),
            "batches": self.metrics.batches.get(),
            "rows_abandoned": self.metrics.abandoned.get(),
            "dead_letters_oversized": self.metrics.oversized.get(),
            "insert_retries": retries,
            "last_insert_error": *lock(&self.last_error),
            "pending_records": self.metrics.pending.get(),
            "buffered_rows": self.metrics.buffered.get(),
            "batches_in_flight": self.metrics.batches_in_flight.get(),
            "paused": status.paused,
            "draining": status.draining,
            "commits": status.commits,
            "commit_failures": status.commit_failures,
            "rebalances": status.rebalances,
            "lost_to_retention": status.lost_to_retention,
            "log_resets": status.resets,
            "fetch_errors": status.fetch_errors,
            "lag": total_lag,
            "stalled": *lock(&self.stalls),
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

/// What [`Counts::balanced`] finds missing, or too much.
fn unaccounted(counts: &Counts) -> i64 {
    let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    signed(counts.consumed)
        - signed(counts.inserted)
        - signed(counts.dead_lettered)
        - signed(counts.in_flight)
        - signed(counts.given_back)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
