//! Settings of the worker, by flags and environment.

use crate::batcher::Policy;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// What to do with a batch that ClickHouse did not take after all attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ExhaustedPolicy {
    /// Dead-letter its records with their original payloads, then go on.
    DeadLetter,
    /// Keep trying with capped back-off; partitions pause meanwhile.
    Pause,
}

/// What becomes of a table that lacks columns of the normalizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SchemaEvolution {
    /// They are added, nullable or with a default; nothing is ever changed or dropped.
    Add,
    /// The normalizer is refused, with the statement to run.
    Refuse,
}

impl From<SchemaEvolution> for cdr_store::Evolution {
    fn from(evolution: SchemaEvolution) -> Self {
        match evolution {
            SchemaEvolution::Add => Self::Add,
            SchemaEvolution::Refuse => Self::Refuse,
        }
    }
}

/// Flags and environment of `cdr worker`.
#[derive(Debug, Clone, clap::Args)]
pub struct WorkerArgs {
    /// Address of /internal/stats, /metrics, /healthz and /readyz
    #[arg(long, env = "WORKER_LISTEN", default_value = "0.0.0.0:8001")]
    pub worker_listen: SocketAddr,
    /// File that receives the address once it is bound (for port 0)
    #[arg(long, env = "WORKER_PORT_FILE")]
    pub worker_port_file: Option<PathBuf>,
    /// Name of this worker in dead letters and logs [default: host name and process id]
    #[arg(long, env = "WORKER_INSTANCE")]
    pub worker_instance: Option<String>,
    /// Rows of an insert
    #[arg(long, env = "BATCH_SIZE", default_value_t = 1000,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub batch_size: u32,
    /// Age at which rows are inserted though the batch is not full, in seconds
    #[arg(long, env = "BATCH_FLUSH_INTERVAL_SECONDS", default_value = "2", value_parser = seconds)]
    pub batch_flush_interval_seconds: f64,
    /// Bytes of payloads at which rows are inserted though the batch is not full
    #[arg(long, env = "BATCH_MAX_BYTES", default_value_t = 16 << 20,
          value_parser = clap::value_parser!(u64).range(1024..=1 << 30))]
    pub batch_max_bytes: u64,
    /// Inserts under way at the same time
    #[arg(long, env = "BATCHES_IN_FLIGHT", default_value_t = 2,
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub batches_in_flight: u32,
    /// Further attempts after a transient failure of ClickHouse (500 ms, doubled each time)
    #[arg(long, env = "CH_RETRY_MAX_ATTEMPTS", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub ch_retry_max_attempts: u32,
    /// What becomes of a batch when they are used up
    #[arg(long, env = "CH_EXHAUSTED_POLICY", default_value = "dead-letter")]
    pub ch_exhausted_policy: ExhaustedPolicy,
    /// What becomes of a table that lacks columns of the normalizer
    #[arg(long, env = "SCHEMA_EVOLUTION", default_value = "add")]
    pub schema_evolution: SchemaEvolution,
    /// Silence after which a dead worker's partitions move on, in seconds (session.timeout.ms)
    #[arg(long, env = "KAFKA_SESSION_TIMEOUT_SECONDS", default_value_t = 45,
          value_parser = clap::value_parser!(u64).range(1..=1800))]
    pub kafka_session_timeout_seconds: u64,
    /// Longest time between polls, and for a rebalance, in seconds (max.poll.interval.ms)
    #[arg(long, env = "KAFKA_MAX_POLL_INTERVAL_SECONDS", default_value_t = 300,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub kafka_max_poll_interval_seconds: u64,
    /// For a sole worker: seconds without partitions after which it joins the group again; 0: never
    #[arg(long, env = "KAFKA_REJOIN_SECONDS", default_value_t = 0,
          value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub kafka_rejoin_seconds: u64,
    /// How long partitions that move to another worker are kept to settle their records, in seconds
    #[arg(long, env = "KAFKA_REVOKE_TIMEOUT_SECONDS", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub kafka_revoke_timeout_seconds: u64,
    /// Time without a commit after which a partition with lag counts as stuck (/healthz), in seconds
    #[arg(long, env = "WORKER_PROGRESS_TIMEOUT_SECONDS", default_value_t = 300,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub worker_progress_timeout_seconds: u64,
    /// Folder for dead letters that are too large for their topic; made if missing
    #[arg(
        long,
        env = "WORKER_SPOOL_DIR",
        default_value = "cdr-spool",
        value_name = "DIR"
    )]
    pub worker_spool_dir: PathBuf,
    /// Time to flush, commit and stop after SIGTERM, in seconds
    #[arg(long, env = "WORKER_SHUTDOWN_TIMEOUT_SECONDS", default_value_t = 45,
          value_parser = clap::value_parser!(u64).range(1..=600))]
    pub worker_shutdown_timeout_seconds: u64,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.01..=3600.0).contains(&value) => Ok(value),
        _ => Err(format!(
            "{text:?} is not a number of seconds from 0.01 to 3600"
        )),
    }
}

/// How long a record waits for others to share a call of the normalizer with.
/// It is far below any flush interval, and far above the cost of a call.
const LINGER: Duration = Duration::from_millis(20);

impl WorkerArgs {
    /// The thresholds of the batcher.
    pub fn policy(&self) -> Policy {
        Policy {
            rows: self.batch_size as usize,
            bytes: usize::try_from(self.batch_max_bytes).unwrap_or(usize::MAX),
            interval: Duration::from_secs_f64(self.batch_flush_interval_seconds),
            linger: LINGER,
        }
    }

    /// The name of this worker.
    pub fn instance(&self) -> String {
        self.worker_instance.clone().unwrap_or_else(|| {
            let host = rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned();
            format!("{host}-{}", std::process::id())
        })
    }

    /// `session.timeout.ms`.
    pub fn session_timeout(&self) -> Duration {
        Duration::from_secs(self.kafka_session_timeout_seconds)
    }

    /// `max.poll.interval.ms`.
    pub fn max_poll_interval(&self) -> Duration {
        Duration::from_secs(self.kafka_max_poll_interval_seconds)
    }

    /// How long a partition that is to be given back may be kept.
    pub fn revoke_timeout(&self) -> Duration {
        Duration::from_secs(self.kafka_revoke_timeout_seconds)
    }

    /// How long a partition with lag may stand still.
    pub fn progress_timeout(&self) -> Duration {
        Duration::from_secs(self.worker_progress_timeout_seconds)
    }

    /// Time to stop in.
    pub fn shutdown_timeout(&self) -> Duration {
        Duration::from_secs(self.worker_shutdown_timeout_seconds)
    }
}
