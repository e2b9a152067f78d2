//! A whole system on one machine: broker, ClickHouse, worker and API, each a
//! process of its own, started and stopped in the right order.

use crate::args::NormalizerArgs;
use crate::http_client::HttpClient;
use crate::provision;
use crate::{args, embedded};
use anyhow::{Context, bail};
use cdr_embedded::{ChildLogs, ChildProcess, ChildSpec, Embedded, EmbeddedConfig};
use cdr_kafka::{KafkaArgs, KafkaConfig};
use cdr_store::{Password, Store, StoreConfig};
use clap::Parser;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time for a host to load its normalizer and serve; without the cache of
/// compiled code a debug build needs a good part of it.
const HOST_READY: Duration = Duration::from_secs(120);

/// For the worker of one machine; see where they are used.
const SESSION_TIMEOUT_S: &str = "10";
const MAX_POLL_INTERVAL_S: &str = "30";
const REJOIN_S: &str = "15";

/// Time for topics to be made.
const PROVISIONED: Duration = Duration::from_secs(30);

/// Time for a host to drain: what it allows itself, and a little more.
fn host_stop() -> Duration {
    const DEFAULT_SECONDS: f64 = 45.0;
    const MORE: Duration = Duration::from_secs(5);
    let allowed = ["API", "WORKER"].map(|host| {
        let setting = std::env::var(format!("{host}_SHUTDOWN_TIMEOUT_SECONDS")).ok();
        let seconds = setting.and_then(|text| text.parse().ok());
        Duration::try_from_secs_f64(seconds.unwrap_or(DEFAULT_SECONDS)).unwrap_or_default()
    });
    allowed.into_iter().max().unwrap_or_default() + MORE
}

/// Time for broker and ClickHouse to stop.
const PART_STOP: Duration = Duration::from_secs(20);

/// What a system is made of.
#[derive(Debug, Clone)]
pub struct SystemConfig {
    /// The data folder.
    pub data: PathBuf,
    /// Where the API listens.
    pub api_listen: SocketAddr,
    /// Where the worker's stats and metrics are.
    pub worker_listen: SocketAddr,
    /// The broker's port, unless the system chooses.
    pub kafka_port: Option<u16>,
    /// ClickHouse's port, unless the system chooses.
    pub clickhouse_port: Option<u16>,
    /// Where the processes log to.
    pub logs: ChildLogs,
    /// The normalizer of both hosts.
    pub normalizer: NormalizerArgs,
}

/// A running system.
pub struct System {
    api: ChildProcess,
    worker: ChildProcess,
    parts: Embedded,
    api_addr: SocketAddr,
    worker_addr: SocketAddr,
    kafka: KafkaConfig,
    kafka_args: KafkaArgs,
    store: Store,
}

/// The settings of Kafka that the environment gives, for topics and the like.
#[derive(Debug, Parser)]
struct FromEnvironment {
    #[command(flatten)]
    kafka: KafkaArgs,
    #[command(flatten)]
    store: args::StoreArgs,
    #[arg(long, env = "SCHEMA_EVOLUTION", default_value = "add")]
    schema_evolution: cdr_worker::SchemaEvolution,
}

/// Whether it is the normalizer's version that a table, which is there, does not fit.
fn is_of_version(error: &anyhow::Error) -> bool {
    use cdr_store::ProvisionError::{Incompatible, Lacking};
    matches!(
        error.downcast_ref(),
        Some(Incompatible { .. } | Lacking { .. })
    )
}

impl System {
    /// Starts everything; returns when records can be posted. `progress` is told
    /// each step.
    pub async fn start(config: SystemConfig, progress: impl Fn(&str)) -> anyhow::Result<Self> {
        progress("loading the normalizer");
        // Before anything is started; and the hosts find it compiled.
        let normalizer = config.normalizer.load().await?;
        let library = embedded::fetch().await?;

        progress("starting broker and ClickHouse");
        let exe = std::env::current_exe().context("can't tell where this program is")?;
        let parts = Embedded::start(EmbeddedConfig {
            exe: exe.clone(),
            data: config.data.clone(),
            kafka_port: config.kafka_port,
            clickhouse_port: config.clickhouse_port,
            logs: config.logs.clone(),
            clickhouse_library: Some(library),
        })
        .await?;

        progress("making topics and table");
        let FromEnvironment {
            kafka: mut kafka_args,
            store: store_args,
            schema_evolution,
        } = FromEnvironment::try_parse_from(["cdr"])?;
        kafka_args.kafka_bootstrap_servers = parts.kafka_bootstrap();
        let kafka = KafkaConfig::plaintext(parts.kafka_bootstrap());
        let store = Store::new(StoreConfig {
            url: parts.clickhouse_url(),
            user: parts.clickhouse_user().to_owned(),
            password: Password::new(parts.clickhouse_password()),
            database: store_args.clickhouse_database,
            table: store_args.clickhouse_table,
            ..StoreConfig::default()
        })?;
        let provisioned = provision::provision(
            &kafka,
            &kafka_args,
            &store,
            &normalizer,
            schema_evolution.into(),
            PROVISIONED,
        );
        match provisioned.await {
            // A worker that follows a registry goes back to what fits the table.
            Err(error) if config.normalizer.normalizer_dir.is_some() && is_of_version(&error) => {
                tracing::warn!(event = "table_does_not_fit", "{error:#}");
            }
            done => drop(done?),
        }

        progress("starting worker and API");
        let hosts = Hosts {
            exe,
            run: config.data.join("run"),
            logs: config.logs,
            env: environment(&parts, &config.normalizer, &config.data),
        };
        let (worker, worker_addr) = hosts.start("worker", config.worker_listen, &[]).await?;
        let stats = format!("http://{worker_addr}/internal/stats");
        let (api, api_addr) = hosts
            .start("api", config.api_listen, &[("WORKER_STATS_URL", stats)])
            .await?;
        Ok(Self {
            api,
            worker,
            parts,
            api_addr,
            worker_addr,
            kafka,
            kafka_args,
            store,
        })
    }

    /// Where records are posted.
    pub fn api_url(&self) -> String {
        format!("http://{}", self.api_addr)
    }

    /// Where the worker answers.
    pub fn worker_url(&self) -> String {
        format!("http://{}", self.worker_addr)
    }

    /// The connection to the broker.
    pub fn kafka(&self) -> &KafkaConfig {
        &self.kafka
    }

    /// The names of the topics.
    pub fn topics(&self) -> &KafkaArgs {
        &self.kafka_args
    }

    /// The table.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The address of ClickHouse, with its user.
    pub fn clickhouse(&self) -> String {
        format!(
            "{} (user {})",
            self.parts.clickhouse_url(),
            self.parts.clickhouse_user()
        )
    }

    /// Waits until one of the processes ends by itself, and says which and how.
    pub async fn wait_for_exit(&mut self) -> anyhow::Result<String> {
        Ok(tokio::select! {
            status = self.api.wait() => format!("api ended: {}", status?),
            status = self.worker.wait() => format!("worker ended: {}", status?),
            ended = self.parts.wait_for_exit() => {
                let ended = ended?;
                format!("{} ended: {}", ended.name, ended.status)
            }
        })
    }

    /// Drains and stops everything: first what takes records in, last what keeps
    /// them.
    pub async fn stop(mut self, progress: impl Fn(&str)) -> anyhow::Result<()> {
        let mut disorder = Vec::new();
        let mut note = |stopped: cdr_embedded::Stopped| {
            if !stopped.is_orderly() {
                let how = if stopped.killed {
                    "had to be killed"
                } else {
                    "failed"
                };
                disorder.push(format!("{} {how} ({})", stopped.name, stopped.status));
            }
        };
        progress("draining API and worker");
        // Together, so that both have all of the time: what the API still publishes
        // is safe in the broker, and consumed at the next start.
        let budget = host_stop();
        let (api, worker) = tokio::join!(self.api.stop(budget), self.worker.stop(budget));
        note(api?);
        note(worker?);
        progress("stopping ClickHouse and the broker");
        for stopped in self.parts.stop(PART_STOP).await? {
            note(stopped);
        }
        if disorder.is_empty() {
            Ok(())
        } else {
            bail!("not stopped in order: {}", disorder.join(", "))
        }
    }
}

/// How the two hosts are started.
struct Hosts {
    exe: PathBuf,
    run: PathBuf,
    logs: ChildLogs,
    env: Vec<(OsString, OsString)>,
}

impl Hosts {
    async fn start(
        &self,
        name: &str,
        listen: SocketAddr,
        more: &[(&str, String)],
    ) -> anyhow::Result<(ChildProcess, SocketAddr)> {
        let port_file = self.run.join(format!("{name}.addr"));
        // That of an earlier run would be believed.
        match std::fs::remove_file(&port_file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| port_file.display().to_string());
            }
            _ => {}
        }
        let prefix = name.to_uppercase();
        let mut env = self.env.clone();
        env.push((format!("{prefix}_LISTEN").into(), listen.to_string().into()));
        env.push((
            format!("{prefix}_PORT_FILE").into(),
            port_file.clone().into(),
        ));
        env.extend(more.iter().map(|(name, value)| (name.into(), value.into())));
        let mut process = ChildProcess::spawn(ChildSpec {
            name: name.to_owned(),
            program: self.exe.clone(),
            args: vec![name.into()],
            env,
            logs: self.logs.clone(),
        })
        .await?;
        let client = HttpClient::new();
        let addr = process
            .ready_when(HOST_READY, async || {
                let addr: SocketAddr = read(&port_file)?.trim().parse().ok()?;
                let (status, _) = client.get(&format!("http://{addr}/readyz")).await.ok()?;
                status.is_success().then_some(addr)
            })
            .await?;
        Ok((process, addr))
    }
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// What both hosts are told beside their own addresses.
fn environment(
    parts: &Embedded,
    normalizer: &NormalizerArgs,
    data: &Path,
) -> Vec<(OsString, OsString)> {
    let mut env: Vec<(OsString, OsString)> = vec![
        (
            "KAFKA_BOOTSTRAP_SERVERS".into(),
            parts.kafka_bootstrap().into(),
        ),
        ("KAFKA_SECURITY_PROTOCOL".into(), "plaintext".into()),
        // The only other member there can be is one that died with an earlier
        // `cdr up`: no reason to wait for it long. And the broker may leave the
        // survivor without partitions when it drops a dead leader.
        ("KAFKA_REJOIN_SECONDS".into(), REJOIN_S.into()),
        (
            "KAFKA_SESSION_TIMEOUT_SECONDS".into(),
            SESSION_TIMEOUT_S.into(),
        ),
        (
            "KAFKA_MAX_POLL_INTERVAL_SECONDS".into(),
            MAX_POLL_INTERVAL_S.into(),
        ),
        ("WORKER_SPOOL_DIR".into(), data.join("spool").into()),
        ("CLICKHOUSE_URL".into(), parts.clickhouse_url().into()),
        ("CLICKHOUSE_USER".into(), parts.clickhouse_user().into()),
        (
            "CLICKHOUSE_PASSWORD".into(),
            parts.clickhouse_password().into(),
        ),
    ];
    env.extend(normalizer.environment());
    env
}
