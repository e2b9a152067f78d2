//! Settings of the API host, by flags and environment.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// What a request may take beyond the delivery timeout of Kafka: its admission,
/// and the way back. An answer before the delivery's own would leave vendors with
/// doubts that a little patience dispels.
pub(crate) const ANSWER_MARGIN: Duration = Duration::from_secs(5);

/// Flags and environment of `cdr api`.
#[derive(Debug, Clone, clap::Args)]
pub struct ApiArgs {
    /// Address for records, /stats, /metrics, /healthz and /readyz
    #[arg(long, env = "API_LISTEN", default_value = "0.0.0.0:8000")]
    pub api_listen: SocketAddr,
    /// File that receives the address once it is bound (for port 0)
    #[arg(long, env = "API_PORT_FILE")]
    pub api_port_file: Option<PathBuf>,
    /// Bytes of a record; more is answered 413
    #[arg(long, env = "API_MAX_BODY_BYTES", default_value_t = 65_536,
          value_parser = clap::value_parser!(u64).range(1..=64 << 20))]
    pub api_max_body_bytes: u64,
    /// Time for a body to arrive, in seconds; longer is answered 408
    #[arg(long, env = "API_READ_TIMEOUT_SECONDS", default_value = "10", value_parser = seconds)]
    pub api_read_timeout_seconds: f64,
    /// Records admitted but not acknowledged by Kafka; at the bound, 429
    #[arg(long, env = "API_QUEUE_MAX_SIZE", default_value_t = 10_000,
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub api_queue_max_size: u32,
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
        Ok(())
    }

    /// The largest body.
    pub fn max_body_bytes(&self) -> usize {
        usize::try_from(self.api_max_body_bytes).unwrap_or(usize::MAX)
    }

    /// Time for a body to arrive.
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
    fn nonsense_is_refused() {
        for args in [
            ["--api-read-timeout-seconds", "0"],
            ["--api-read-timeout-seconds", "NaN"],
            ["--api-queue-max-size", "0"],
            ["--api-max-body-bytes", "0"],
            ["--api-listen", "8000"],
            ["--worker-stats-url", "worker"],
        ] {
            assert!(parse(&args).is_err(), "{args:?}");
        }
    }
}
