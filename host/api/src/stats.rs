//! `/stats`: what this host counted, and what the worker says of itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Json;
use prometheus::core::Collector;
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::auth::Tokens;
use crate::metrics::ApiMetrics;
use crate::ports::NormalizerInfo;
use crate::routes::Shared;

/// How long the worker may take to answer; then its part is null.
const WORKER_PATIENCE: Duration = Duration::from_secs(1);

/// Where the parts of `/stats` come from, beside the counters.
pub(crate) struct Stats {
    started: Instant,
    worker: reqwest::Client,
    worker_url: reqwest::Url,
}

/// The answer.
#[derive(Debug, Serialize)]
struct StatsBody {
    service: &'static str,
    version: &'static str,
    uptime_seconds: u64,
    draining: bool,
    normalizer: NormalizerInfo,
    /// Since when it serves, and what does not and why.
    activation: Option<Value>,
    outstanding: OutstandingBody,
    /// Records by outcome.
    records: BTreeMap<String, u64>,
    /// HTTP answers by code.
    answers: BTreeMap<String, u64>,
    payload_bytes: u64,
    hang_ups: u64,
    connections: i64,
    /// Vendors' tokens that count; null where anyone may post.
    tokens: Option<usize>,
    /// What `/internal/stats` of the worker says; null if it does not answer.
    worker: Option<Value>,
}

#[derive(Debug, Serialize)]
struct OutstandingBody {
    records: usize,
    limit: usize,
    bytes: usize,
    bytes_limit: usize,
}

impl Stats {
    /// Of a host that starts now.
    pub(crate) fn new(worker_url: reqwest::Url) -> Result<Self, reqwest::Error> {
        let worker = reqwest::Client::builder()
            .timeout(WORKER_PATIENCE)
            // It is a neighbour, whatever proxy the environment names.
            .no_proxy()
            .build()?;
        Ok(Stats {
            started: Instant::now(),
            worker,
            worker_url,
        })
    }

    async fn of_worker(&self) -> Option<Value> {
        let asked = async {
            self.worker
                .get(self.worker_url.clone())
                .send()
                .await?
                .error_for_status()?
                .json()
                .await
        };
        asked
            .await
            .inspect_err(|error: &reqwest::Error| {
                tracing::debug!(
                    event = "worker_stats_unavailable",
                    "the worker at {} does not tell its stats: {error}",
                    self.worker_url
                );
            })
            .ok()
    }
}

/// What this host counted, and what the worker says of itself.
#[utoipa::path(get, path = "/stats", tag = "operators",
    responses((status = 200, description = "Counters since the start", body = Object)))]
pub(crate) async fn get_stats(State(shared): State<Arc<Shared>>) -> Json<impl Serialize> {
    let worker = shared.stats.of_worker().await;
    let intake = &shared.intake;
    let metrics: &ApiMetrics = &intake.metrics;
    Json(StatsBody {
        service: "cdr-api",
        version: env!("CARGO_PKG_VERSION"),
        uptime_seconds: shared.stats.started.elapsed().as_secs(),
        draining: intake.outstanding.is_draining(),
        normalizer: intake.admit.describe(),
        activation: intake.admit.activation(),
        outstanding: OutstandingBody {
            records: intake.outstanding.records(),
            limit: intake.outstanding.bounds().records,
            bytes: intake.outstanding.bytes(),
            bytes_limit: intake.outstanding.bounds().bytes,
        },
        records: by_label(&metrics.records),
        answers: by_label(&metrics.answers),
        payload_bytes: metrics.payload_bytes.get(),
        hang_ups: metrics.hang_ups.get(),
        connections: metrics.connections.get(),
        tokens: shared.tokens.as_ref().map(Tokens::count),
        worker,
    })
}

/// The values of a counter with one label.
fn by_label(counter: &prometheus::IntCounterVec) -> BTreeMap<String, u64> {
    counter
        .collect()
        .iter()
        .flat_map(|family| family.get_metric())
        .filter_map(|metric| {
            let label = metric.get_label().first()?;
            // Counts of whole things: exact in a double for a long time.
            Some((
                label.value().to_owned(),
                metric.get_counter().get_value() as u64,
            ))
        })
        .collect()
}
