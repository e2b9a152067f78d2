//! Settings of the API host, by flags and environment.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use cdr_telemetry::http::ServeOptions;

/// What a request may take beyond the delivery timeout of Kafka: its admission,
/// and the way back. An answer before the delivery's own would leave vendors with
/// doubts that a little patience dispels.
pub(crate) const ANSWER_MARGIN: Duration = Duration::from_secs(5);

/// Flags and environment of `cdr api`.
#[derive(Debug, Clone, clap::Args)]
pub struct ApiArgs {
    /// Address for records and /openapi.json, and for /stats, /metrics, /healthz and /readyz unless API_OPS_LISTEN is set
    #[arg(long, env = "API_LISTEN", default_value = "0.0.0.0:8000")]
    pub api_listen: SocketAddr,
    /// File that receives the address once it is bound (for port 0)
    #[arg(long, env = "API_PORT_FILE")]
    pub api_port_file: Option<PathBuf>,
    /// Address of its own for /stats, /metrics, /healthz and /readyz, without TLS [default: API_LISTEN has them]
    #[arg(long, env = "API_OPS_LISTEN")]
    pub api_ops_listen: Option<SocketAddr>,
    /// File that receives that address once it is bound
    #[arg(long, env = "API_OPS_PORT_FILE", requires = "api_ops_listen")]
    pub api_ops_port_file: Option<PathBuf>,
    /// Certificates as PEM, the server's first: with API_TLS_KEY_FILE, records are taken over TLS only; read again when they change
    #[arg(
        long,
        env = "API_TLS_CERT_FILE",
        value_name = "FILE.pem",
        requires = "api_tls_key_file"
    )]
    pub api_tls_cert_file: Option<PathBuf>,
    /// The certificate's private key as PEM
    #[arg(
        long,
        env = "API_TLS_KEY_FILE",
        value_name = "FILE.pem",
        requires = "api_tls_cert_file"
    )]
    pub api_tls_key_file: Option<PathBuf>,
    /// Tokens of vendors, made with `cdr token new`; read again when it changes [default: anyone may post]
    #[arg(long, env = "API_TOKENS_FILE", value_name = "FILE")]
    pub api_tokens_file: Option<PathBuf>,
    /// Bytes of a record, decoded; more is answered 413
    #[arg(long, env = "API_MAX_BODY_BYTES", default_value_t = 65_536,
          value_parser = clap::value_parser!(u64).range(1..=64 << 20))]
    pub api_max_body_bytes: u64,
    /// Time for a record's body to arrive, in seconds; longer is answered 408
    #[arg(long, env = "API_READ_TIMEOUT_SECONDS", default_value = "10", value_parser = seconds)]
    pub api_read_timeout_seconds: f64,
    /// Bytes of an NDJSON body, decoded; more is answered 413
    #[arg(long, env = "API_NDJSON_MAX_BYTES", default_value_t = 16 << 20,
          value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub api_ndjson_max_bytes: u64,
    /// Records of an NDJSON body; more is answered 413
    #[arg(long, env = "API_NDJSON_MAX_LINES", default_value_t = 10_000,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub api_ndjson_max_lines: u32,
    /// Time to wait for an NDJSON body altogether, in seconds; longer is answered 408
    #[arg(long, env = "API_NDJSON_READ_TIMEOUT_SECONDS", default_value = "60", value_parser = seconds)]
    pub api_ndjson_read_timeout_seconds: f64,
    /// Records taken in but not acknowledged by Kafka; at the bound, 429
    #[arg(long, env = "API_QUEUE_MAX_SIZE", default_value_t = 10_000,
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub api_queue_max_size: u32,
    /// Bytes of those records and of bodies that are being read; at the bound, 429
    #[arg(long, env = "API_QUEUE_MAX_BYTES", default_value_t = 128 << 20,
          value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub api_queue_max_bytes: u64,
    /// Time for a request's head to arrive, and for a connection to be idle, in seconds; then it is closed
    #[arg(long, env = "API_HEAD_TIMEOUT_SECONDS", default_value = "60", value_parser = seconds)]
    pub api_head_timeout_seconds: f64,
    /// Time in which a client must take some of its answer, in seconds; else its connection is closed
    #[arg(long, env = "API_WRITE_TIMEOUT_SECONDS", default_value = "10", value_parser = seconds)]
    pub api_write_timeout_seconds: f64,
    /// Bytes of a request's head; more is answered 431
    #[arg(long, env = "API_MAX_HEAD_BYTES", default_value_t = 16 << 10,
          value_parser = clap::value_parser!(u32).range(1024..=1 << 20))]
    pub api_max_head_bytes: u32,
    /// Connections at a time; one more is answered 503 and closed
    #[arg(long, env = "API_MAX_CONNECTIONS", default_value_t = 16_384,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub api_max_connections: u32,
    /// Requests at a time on one HTTP/2 connection
    #[arg(long, env = "API_MAX_STREAMS", default_value_t = 128,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub api_max_streams: u32,
    /// Batches in admission at the same time; 0: one a processor
    #[arg(long, env = "API_ADMISSION_LANES", default_value_t = 0,
          value_parser = clap::value_parser!(u16).range(0..=256))]
    pub api_admission_lanes: u16,
    /// Time to await acknowledgements after SIGTERM, in seconds
    #[arg(long, env = "API_SHUTDOWN_TIMEOUT_SECONDS", default_value = "45", value_parser = seconds)]
    pub api_shutdown_timeout_seconds: f64,
    /// Where the worker tells its part of /stats
    #[arg(
        long,
        env = "WORKER_STATS_URL",
        default_value = "http://127.0.0.1:8001/internal/stats"
    )]
    pub worker_stats_url: reqwest::Url,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.01..=3600.0).contains(&value) => Ok(value),
        _ => Err(format!(
            "{text:?} is not a number of seconds from 0.01 to 3600"
        )),
    }
}

/// Settings that can't work together.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A drain could end before the acknowledgements it waits for.
    #[error(
        "API_SHUTDOWN_TIMEOUT_SECONDS ({shutdown:?}) is below KAFKA_DELIVERY_TIMEOUT_SECONDS ({delivery:?}): \
         a shutdown would leave accepted records unanswered; raise the first or lower the second"
    )]
    ShutdownBelowDelivery {
        /// The budget of a drain.
        shutdown: Duration,
        /// How long an acknowledgement may take.
        delivery: Duration,
    },
    /// A limit is above another that would always be met first.
    #[error(
        "{larger} ({value}) is above {bound} ({limit}): nothing of that size could be taken; lower the first or raise the second"
    )]
    LimitAboveBound {
        /// The setting that is too large.
        larger: &'static str,
        /// Its value in bytes.
        value: usize,
        /// The setting that it must not exceed.
        bound: &'static str,
        /// Its value in bytes.
        limit: usize,
    },
}

impl ApiArgs {
    /// Refuses settings that can't work together.
    pub fn check(&self, delivery_timeout: Duration) -> Result<(), ConfigError> {
        let shutdown = self.shutdown_timeout();
        if shutdown < delivery_timeout {
            return Err(ConfigError::ShutdownBelowDelivery {
                shutdown,
                delivery: delivery_timeout,
            });
        }
        let record = ("API_MAX_BODY_BYTES", self.max_body_bytes());
        let lines = ("API_NDJSON_MAX_BYTES", self.ndjson_max_bytes());
        let queue = ("API_QUEUE_MAX_BYTES", self.queue_max_bytes());
        for ((larger, value), (bound, limit)) in [(record, lines), (record, queue)] {
            if value > limit {
                return Err(ConfigError::LimitAboveBound {
                    larger,
                    value,
                    bound,
                    limit,
                });
            }
        }
        Ok(())
    }

    /// The largest record.
    pub fn max_body_bytes(&self) -> usize {
        usize::try_from(self.api_max_body_bytes).unwrap_or(usize::MAX)
    }

    /// The largest NDJSON body.
    pub fn ndjson_max_bytes(&self) -> usize {
        usize::try_from(self.api_ndjson_max_bytes).unwrap_or(usize::MAX)
    }

    /// How connections are served.
    pub(crate) fn connections(&self) -> ServeOptions {
        let count = |value: u32| usize::try_from(value).unwrap_or(usize::MAX);
        ServeOptions {
            head_timeout: Duration::from_secs_f64(self.api_head_timeout_seconds),
            write_timeout: Duration::from_secs_f64(self.api_write_timeout_seconds),
            max_head_bytes: count(self.api_max_head_bytes),
            max_connections: count(self.api_max_connections),
            max_streams: self.api_max_streams,
            ..ServeOptions::default()
        }
    }

    /// Bytes that may be held.
    pub fn queue_max_bytes(&self) -> usize {
        usize::try_from(self.api_queue_max_bytes).unwrap_or(usize::MAX)
    }

    /// Time to wait for an NDJSON body.
    pub fn ndjson_read_timeout(&self) -> Duration {
        Duration::from_secs_f64(self.api_ndjson_read_timeout_seconds)
    }

    /// Time for a record's body to arrive.
    pub fn read_timeout(&self) -> Duration {
        Duration::from_secs_f64(self.api_read_timeout_seconds)
    }

    /// The budget of a drain.
    pub fn shutdown_timeout(&self) -> Duration {
        Duration::from_secs_f64(self.api_shutdown_timeout_seconds)
    }

    /// Batches in admission at the same time, at least one.
    pub fn admission_lanes(&self) -> usize {
        match self.api_admission_lanes {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            lanes => usize::from(lanes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        api: ApiArgs,
    }

    fn parse(args: &[&str]) -> Result<ApiArgs, clap::Error> {
        Cli::try_parse_from(std::iter::once(&"cdr").chain(args)).map(|cli| cli.api)
    }

    #[test]
    fn the_defaults_are_those_of_the_requirements() {
        let args = parse(&[]).expect("defaults are valid");
        assert_eq!(args.api_listen.to_string(), "0.0.0.0:8000");
        assert_eq!(args.max_body_bytes(), 65_536);
        assert_eq!(args.read_timeout(), Duration::from_secs(10));
        assert_eq!(args.shutdown_timeout(), Duration::from_secs(45));
        assert!(args.admission_lanes() >= 1);
        assert!(args.check(Duration::from_secs(10)).is_ok());
    }

    #[test]
    fn a_drain_shorter_than_a_delivery_is_refused() {
        let args = parse(&["--api-shutdown-timeout-seconds", "5"]).expect("valid by itself");
        let error = args.check(Duration::from_secs(10)).expect_err("5 < 10");
        assert!(
            error.to_string().contains("KAFKA_DELIVERY_TIMEOUT_SECONDS"),
            "{error}"
        );
    }

    #[test]
    fn a_record_larger_than_what_may_be_held_is_refused() {
        let args = parse(&["--api-queue-max-bytes", "1000"]).expect("valid by itself");
        let error = args
            .check(Duration::from_secs(10))
            .expect_err("65536 > 1000");
        assert!(error.to_string().contains("API_QUEUE_MAX_BYTES"), "{error}");
    }

    #[test]
    fn nonsense_is_refused() {
        for args in [
            ["--api-read-timeout-seconds", "0"],
            ["--api-read-timeout-seconds", "NaN"],
            ["--api-queue-max-size", "0"],
            ["--api-max-body-bytes", "0"],
            ["--api-listen", "8000"],
            ["--worker-stats-url", "worker"],
            ["--api-tls-cert-file", "alone.pem"],
            ["--api-max-connections", "0"],
        ] {
            assert!(parse(&args).is_err(), "{args:?}");
        }
    }
}
