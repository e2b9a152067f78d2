//! A worker from its start to its end.

use crate::batcher::Batcher;
use crate::config::WorkerArgs;
use crate::convert;
use crate::dead_letters::{self, DeadLetters};
use crate::error::WorkerError;
use crate::insert::Persistence;
use crate::pipeline::{Parts, Pipeline};
use crate::progress::{Sighting, Stall, WHOLE_TOPIC, Watchdog};
use crate::ready::{NotReady, ready_for};
use crate::settings::{Contradiction, LAST_COMMIT, Surroundings};
use crate::spool::Spool;
use crate::stats::Stats;
use crate::table::Table;
use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use cdr_kafka::consumer::{ConsumerConfig, Started};
use cdr_kafka::ledger::Counts;
use cdr_kafka::{KafkaArgs, KafkaConfig, Publisher, PublisherConfig, RawConsumer};
use cdr_plugin_host::{Follower, Live, Shadow};
use cdr_store::{Store, TableLayout};
use cdr_telemetry::health::Health;
use cdr_telemetry::http::{self, ServeOptions};
use cdr_telemetry::metrics::Metrics;
use cdr_telemetry::shutdown::Shutdown;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use tokio_util::task::AbortOnDropHandle;

/// The component of `/readyz` and `/healthz` that this host reports.
const COMPONENT: &str = "worker";

/// How long the polling thread may be silent before this process counts as stuck.
const POLL_SILENCE: Duration = Duration::from_secs(30);

/// No dead letter is larger: a raw record has at most about 1 MB unless its topic
/// allows more, and six bytes for each of them if all had to be escaped.
const MAX_DEAD_LETTER_BYTES: u32 = 64 << 20;

/// Dead letters go out together up to this size, in bytes; a larger one goes alone.
const DEAD_LETTER_BATCH: u32 = 16 << 10;

/// What is kept of the time for a shutdown for the process to end.
const EXIT: Duration = Duration::from_secs(2);

/// How old a reading of the lag may be; it is read every five seconds.
const LAG_FRESH: Duration = Duration::from_secs(30);

/// How often gauges and health are brought up to date.
const REFRESH: Duration = Duration::from_secs(1);

/// What a worker is made of.
#[derive(Debug)]
pub struct WorkerConfig {
    /// Its own settings.
    pub args: WorkerArgs,
    /// Topics, group, timeouts.
    pub kafka_args: KafkaArgs,
    /// The connection to Kafka.
    pub kafka: KafkaConfig,
    /// ClickHouse.
    pub store: Store,
    /// The normalizer that serves.
    pub live: Live,
    /// What changes it; none: nothing does.
    pub follower: Option<Follower>,
    /// Memory that a call of it may use, in bytes.
    pub sandbox_memory: u64,
}

/// What `/internal/stats` and the gauges are read from.
struct Shared {
    consumer: OnceLock<Arc<RawConsumer>>,
    stats: Arc<Stats>,
    instance: String,
}

/// Runs a worker until `shutdown` is requested and everything taken is settled
/// and committed.
///
/// # Errors
/// Why it stopped before, or could not stop in order.
pub async fn run(
    config: WorkerConfig,
    metrics: Metrics,
    health: Health,
    shutdown: Shutdown,
) -> Result<(), WorkerError> {
    let WorkerConfig {
        args,
        kafka_args,
        kafka,
        store,
        live,
        mut follower,
        sandbox_memory,
    } = config;
    args.check(Surroundings {
        delivery_timeout: kafka_args.delivery_timeout(),
        insert_timeout: store.config().insert_timeout,
        sandbox_memory,
    })?;
    if kafka_args.kafka_raw_topic == kafka_args.kafka_dlq_topic {
        let topic = kafka_args.kafka_raw_topic;
        return Err(Contradiction::Topics { topic }.into());
    }
    // Before anything is waited for.
    kafka
        .check()
        .map_err(|error| WorkerError::Consumer(error.into()))?;
    shutdown.enforce(args.shutdown_timeout())?;
    let spool = Spool::open(&args.worker_spool_dir).map_err(|cause| WorkerError::SpoolDir {
        path: args.worker_spool_dir.clone(),
        cause,
    })?;
    let instance = args.instance();
    let stats = Arc::new(
        Stats::new(metrics.registry()).map_err(|error| WorkerError::Http(error.to_string()))?,
    );
    stats.follow(live.clone());
    let shadow = Shadow::start(Arc::clone(stats.shadow()))?;
    let shared = Arc::new(Shared {
        consumer: OnceLock::new(),
        stats: Arc::clone(&stats),
        instance: instance.clone(),
    });
    health.set_ready(COMPONENT, Err("waiting for ClickHouse".to_owned()));
    // It goes on answering while the worker drains.
    let served = Shutdown::new();
    let options = ServeOptions {
        port_file: args.worker_port_file.clone(),
        ..ServeOptions::default()
    };
    let router = http::routes(metrics, health.clone()).merge(
        Router::new()
            .route("/internal/stats", get(internal_stats))
            .with_state(Arc::clone(&shared)),
    );
    let server = options
        .serve(args.worker_listen, router, served.clone())
        .await
        .map_err(|error| WorkerError::Http(error.to_string()))?;

    let layout = TableLayout::cdr();
    let mut first = None;
    let (serving, table) = loop {
        let serving = live.current();
        let ready = tokio::select! {
            ready = ready_for(&serving.normalizer, &store, &layout, &args) => ready,
            () = shutdown.requested() => return Ok(()),
        };
        let NotReady { error, version } = match ready {
            Ok(table) => break (serving, table),
            Err(not_ready) => not_ready,
        };
        // The table may not fit what was activated last, and fit what served before.
        let error = first.take().unwrap_or(error);
        let (Some(follower), Some(cause)) = (&mut follower, version) else {
            return Err(error);
        };
        if follower.fall_back(cause).await.is_err() {
            return Err(error);
        }
        first = Some(error);
    };

    let mut consumer_config = ConsumerConfig::new(
        kafka_args.kafka_raw_topic.clone(),
        kafka_args.kafka_consumer_group.clone(),
    );
    consumer_config.session_timeout = args.session_timeout();
    consumer_config.max_poll_interval = args.max_poll_interval();
    consumer_config.revoke_budget = args.revoke_timeout();
    consumer_config.rejoin_without_partitions =
        (args.kafka_rejoin_seconds > 0).then(|| Duration::from_secs(args.kafka_rejoin_seconds));
    // Enough that batches in flight never starve the next one.
    consumer_config.max_in_flight = consumer_config
        .max_in_flight
        .max(args.batch_size as usize * (args.batches_in_flight as usize + 2));
    consumer_config.max_in_flight_bytes = consumer_config
        .max_in_flight_bytes
        .max(args.batch_max_bytes * (u64::from(args.batches_in_flight) + 2));
    let max_uncommitted = consumer_config.max_uncommitted();
    let store = Arc::new(store);
    let Started {
        consumer,
        records,
        events,
    } = RawConsumer::start(&kafka, consumer_config)?;
    let consumer = Arc::new(consumer);
    let _ = shared.consumer.set(Arc::clone(&consumer));
    let publisher = Publisher::new(
        &kafka,
        PublisherConfig {
            delivery_timeout: kafka_args.delivery_timeout(),
            // The topic says what it takes, not this client.
            max_message_bytes: MAX_DEAD_LETTER_BYTES,
            // A topic that takes little must not refuse many small ones together.
            batch_bytes: DEAD_LETTER_BATCH,
            ..PublisherConfig::default()
        },
    )
    .map_err(|error| WorkerError::Consumer(error.into()))?;
    let dead_letters = DeadLetters::from(dead_letters::Inner {
        publisher,
        consumer: Arc::clone(&consumer),
        stats: Arc::clone(&stats),
        source_topic: kafka_args.kafka_raw_topic.clone(),
        topic: kafka_args.kafka_dlq_topic.clone(),
        instance: instance.clone(),
        delivery_timeout: kafka_args.delivery_timeout(),
        spool,
    });
    let pipeline = Pipeline::new(
        Parts {
            consumer: Arc::clone(&consumer),
            records,
            events,
            live,
            shadow,
            store: Arc::clone(&store),
            dead_letters,
            stats,
            persistence: Persistence {
                retry: args.retry(),
                exhausted: args.ch_exhausted_policy,
            },
            batches_in_flight: args.batches_in_flight as usize,
            topic: kafka_args.kafka_raw_topic.clone(),
            layout: Arc::new(layout.clone()),
            max_uncommitted,
            batcher: Batcher::new(args.policy()),
        },
        Arc::clone(&serving),
        &table,
    );
    let following = follower.map(|follower| {
        let table = Table {
            store: Arc::clone(&store),
            layout,
            evolution: args.schema_evolution.into(),
            known: Mutex::new(convert::column_specs(serving.normalizer.manifest())),
        };
        AbortOnDropHandle::new(tokio::spawn(follower.run(table)))
    });
    health.set_ready(COMPONENT, Ok(()));
    tracing::info!(
        event = "worker_started",
        instance,
        topic = kafka_args.kafka_raw_topic,
        group = kafka_args.kafka_consumer_group,
        "records are consumed"
    );

    let watchdog = Watchdog::new(args.progress_timeout());
    let watch = tokio::spawn(watch(Arc::clone(&shared), health.clone(), watchdog));
    let (outcome, deadline) =
        drained(pipeline, &consumer, &shutdown, args.shutdown_timeout()).await;
    watch.abort();
    drop(following);
    health.set_ready(COMPONENT, Err("stopping".to_owned()));
    served.request();
    // A courtesy to whoever is asking just now; it must not make the end late.
    let _ = tokio::time::timeout_at(deadline.into(), server.stopped()).await;
    if outcome.is_ok() {
        tracing::info!(
            event = "worker_stopped",
            "everything taken is settled and committed"
        );
    }
    outcome
}

/// Runs the pipeline to its end; once a shutdown is requested, it, the last
/// commit and leaving the group have `budget` in all. Returns how it ended, and
/// until when everything else must have.
async fn drained(
    pipeline: Pipeline,
    consumer: &RawConsumer,
    shutdown: &Shutdown,
    budget: Duration,
) -> (Result<(), WorkerError>, Instant) {
    let mut running = std::pin::pin!(pipeline.run(shutdown.token().clone()));
    let early = tokio::select! {
        outcome = &mut running => Some(outcome),
        () = shutdown.requested() => None,
    };
    let deadline = Instant::now() + budget.saturating_sub(EXIT);
    let outcome = match early {
        Some(outcome) => outcome,
        None => {
            let settling = budget.saturating_sub(LAST_COMMIT);
            match tokio::time::timeout(settling, running).await {
                Ok(outcome) => outcome,
                Err(_) => Err(WorkerError::NotDrained {
                    budget: settling,
                    in_flight: consumer.status().totals.in_flight,
                }),
            }
        }
    };
    // What is settled is committed and the group is left, so that the partitions
    // are free at once, however this ends. A consumer that failed can do neither.
    let left = deadline.saturating_duration_since(Instant::now());
    let closed = match &outcome {
        Ok(()) => consumer.close(left).await,
        Err(WorkerError::Kafka(_)) => Ok(()),
        Err(_) => {
            let _ = consumer.close(left.min(LAST_COMMIT)).await;
            Ok(())
        }
    };
    (
        outcome.and_then(|()| closed.map_err(WorkerError::from)),
        deadline,
    )
}

/// Keeps gauges and liveness up to date.
async fn watch(shared: Arc<Shared>, health: Health, mut watchdog: Watchdog) {
    let mut ticks = tokio::time::interval(REFRESH);
    let mut told = String::new();
    loop {
        ticks.tick().await;
        let Some(consumer) = shared.consumer.get() else {
            continue;
        };
        let unbalanced = shared.stats.refresh(consumer);
        let stalls = watchdog.look(Instant::now(), &sightings(consumer));
        let reasons = liveness(consumer, &unbalanced, &stalls);
        shared.stats.stalled(stalls);
        let kind: Vec<_> = reasons.iter().map(|(kind, _)| kind.as_str()).collect();
        let kind = kind.join(" ");
        let text: Vec<_> = reasons.iter().map(|(_, text)| text.as_str()).collect();
        let text = text.join("; ");
        // Once, not every second.
        if kind != told {
            if kind.is_empty() {
                tracing::info!(event = "worker_gets_on", "the worker makes progress again");
            } else {
                tracing::error!(
                    event = "worker_stuck",
                    "the worker makes no progress: {text}"
                );
            }
            told = kind;
        }
        health.set_live(
            COMPONENT,
            if reasons.is_empty() {
                Ok(())
            } else {
                Err(text)
            },
        );
    }
}

/// What the watchdog looks at.
fn sightings(consumer: &RawConsumer) -> Vec<Sighting> {
    let status = consumer.status();
    let mut lag = consumer.lag();
    // What was read long ago says nothing of now.
    if status.lag_read_ago.is_none_or(|ago| ago > LAG_FRESH) {
        lag.clear();
    }
    if status.partitions.is_empty() {
        let group = consumer.group_lag();
        return vec![Sighting {
            partition: WHOLE_TOPIC,
            generation: 0,
            committed: group.map(|group| group.committed),
            lag: group.map(|group| group.lag),
        }];
    }
    status
        .partitions
        .iter()
        .map(|view| Sighting {
            partition: view.partition,
            generation: view.generation,
            committed: view.committed,
            lag: lag.get(&view.partition).map(|lag| lag.lag),
        })
        .collect()
}

/// Every reason why this process does not count as live: what kind it is, for
/// comparison, and a sentence.
fn liveness(
    consumer: &RawConsumer,
    unbalanced: &[(i32, Counts)],
    stalls: &[Stall],
) -> Vec<(String, String)> {
    let mut reasons = Vec::new();
    let silent = consumer.status().polled_ago;
    if silent >= POLL_SILENCE {
        reasons.push((
            "poll".to_owned(),
            format!("the Kafka consumer has not polled for {silent:.0?}"),
        ));
    }
    for (partition, counts) in unbalanced {
        reasons.push((
            format!("balance-{partition}"),
            format!("the records of partition {partition} don't add up: {counts:?}"),
        ));
    }
    for stall in stalls {
        reasons.push((format!("stall-{}", stall.partition), stall.to_string()));
    }
    reasons
}

async fn internal_stats(State(shared): State<Arc<Shared>>) -> Json<Value> {
    Json(match shared.consumer.get() {
        Some(consumer) => shared.stats.json(consumer, &shared.instance),
        None => json!({"instance": shared.instance, "state": "waiting for ClickHouse"}),
    })
}
