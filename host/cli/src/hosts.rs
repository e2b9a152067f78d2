//! `cdr api` and `cdr worker`.

use crate::args::{NormalizerArgs, StoreArgs};
use anyhow::Context;
use cdr_api::kafka::KafkaPublish;
use cdr_api::{ApiArgs, ApiHost};
use cdr_kafka::{KafkaArgs, Publisher, PublisherConfig};
use cdr_plugin_host::{Follower, Live, NothingToPrepare};
use cdr_telemetry::health::Health;
use cdr_telemetry::metrics::Metrics;
use cdr_telemetry::shutdown::Shutdown;
use cdr_telemetry::{logs, shutdown};
use cdr_worker::{WorkerArgs, WorkerConfig};
use std::sync::Arc;

/// Runs a command's future on a runtime of its own.
pub fn in_runtime(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("can't start the runtime")?;
    let outcome = runtime.block_on(work);
    // What still runs was given up; waiting for it could take for ever.
    runtime.shutdown_background();
    outcome
}

/// What a message has beside its payload: key, headers, framing; in bytes.
const RECORD_OVERHEAD: u32 = 16 << 10;

/// What serves, and what changes it; none when a shutdown came first.
async fn loaded(
    normalizer: &NormalizerArgs,
    shadow: bool,
    shutdown: &Shutdown,
) -> anyhow::Result<Option<(Live, Option<Follower>)>> {
    tokio::select! {
        loaded = normalizer.live(shadow) => Ok(Some(loaded?)),
        () = shutdown.requested() => Ok(None),
    }
}

/// Files that the process opens beside connections: Kafka, logs, the normalizer.
const OTHER_FILES: u64 = 256;

/// Raises the limit of open files to what the system lets this process have, since the
/// usual soft limit of 1024 is far below what connections need.
fn allow_connections(connections: u32) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let now = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    let needed = u64::from(connections) + OTHER_FILES;
    if now.is_some_and(|now| now < needed) {
        tracing::warn!(
            event = "open_files_below_connections",
            limit = now,
            needed,
            "this process may open fewer files than API_MAX_CONNECTIONS needs: raise the hard limit \
             (`ulimit -Hn`, LimitNOFILE) or lower the setting"
        );
    }
}

/// Settings of `cdr api`.
#[derive(Debug, clap::Args)]
pub struct ApiCommand {
    #[command(flatten)]
    api: ApiArgs,
    #[command(flatten)]
    kafka: KafkaArgs,
    #[command(flatten)]
    normalizer: NormalizerArgs,
}

impl ApiCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        logs::init("api");
        let shutdown = shutdown::on_signals();
        shutdown
            .enforce(self.api.shutdown_timeout())
            .context("can't watch over shutdowns")?;
        let Some((live, follower)) = loaded(&self.normalizer, false, &shutdown).await? else {
            return Ok(());
        };
        allow_connections(self.api.api_max_connections);
        let metrics = Metrics::new("api");
        cdr_api::normalizer::show(live.clone(), &metrics)?;
        if let Some(follower) = follower {
            tokio::spawn(follower.run(NothingToPrepare));
        }
        let kafka = self.kafka.config("cdr-api");
        let publisher = Publisher::new(
            &kafka,
            PublisherConfig {
                delivery_timeout: self.kafka.delivery_timeout(),
                // The host's own bound is the one that is answered with 429.
                max_queued_records: PublisherConfig::default()
                    .max_queued_records
                    .max(self.api.api_queue_max_size),
                max_queued_bytes: PublisherConfig::default()
                    .max_queued_bytes
                    .max(self.api.api_queue_max_bytes.saturating_mul(2)),
                // The topic says what it takes, not this client.
                max_message_bytes: u32::try_from(self.api.api_max_body_bytes)
                    .unwrap_or(u32::MAX)
                    .saturating_add(RECORD_OVERHEAD)
                    .max(PublisherConfig::default().max_message_bytes),
                ..PublisherConfig::default()
            },
        )?;
        let publish = KafkaPublish::new(
            publisher,
            self.kafka.kafka_raw_topic.clone(),
            self.kafka.delivery_timeout(),
        );
        let host = ApiHost::new(
            self.api,
            Arc::new(live),
            Arc::new(publish),
            metrics,
            Health::new(),
        )?;
        Ok(host.run(shutdown).await?)
    }
}

/// Settings of `cdr worker`.
#[derive(Debug, clap::Args)]
pub struct WorkerCommand {
    #[command(flatten)]
    worker: WorkerArgs,
    #[command(flatten)]
    kafka: KafkaArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    normalizer: NormalizerArgs,
}

impl WorkerCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        logs::init("worker");
        let shutdown = shutdown::on_signals();
        let Some((live, follower)) = loaded(&self.normalizer, true, &shutdown).await? else {
            return Ok(());
        };
        let sandbox_memory = u64::from(self.normalizer.sandbox.normalizer_memory_mib) << 20;
        let config = WorkerConfig {
            args: self.worker,
            kafka: self.kafka.config("cdr-worker"),
            kafka_args: self.kafka,
            store: self.store.store()?,
            live,
            follower,
            sandbox_memory,
        };
        let outcome =
            cdr_worker::run(config, Metrics::new("worker"), Health::new(), shutdown).await;
        if let Err(error) = &outcome {
            tracing::error!(event = "worker_failed", "{error}");
        }
        Ok(outcome?)
    }
}
