//! `cdr up`: a system that stays.

use crate::args::NormalizerArgs;
use crate::system::{System, SystemConfig};
use anyhow::bail;
use cdr_embedded::ChildLogs;
use cdr_telemetry::{logs, shutdown};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Settings of `cdr up`.
#[derive(Debug, clap::Args)]
pub struct UpCommand {
    /// Where everything is kept; made if missing, found again at the next start
    #[arg(long, env = "CDR_DATA", default_value = "cdr-data", value_name = "DIR")]
    data: PathBuf,
    /// Address of the API; port 0: the system chooses
    #[arg(long, env = "API_LISTEN", default_value = "127.0.0.1:0")]
    api_listen: SocketAddr,
    /// Address of the worker's stats and metrics; port 0: the system chooses
    #[arg(long, env = "WORKER_LISTEN", default_value = "127.0.0.1:0")]
    worker_listen: SocketAddr,
    /// Port of the broker on 127.0.0.1 [default: the system chooses]
    #[arg(long, env = "KAFKA_PORT")]
    kafka_port: Option<u16>,
    /// HTTP port of ClickHouse on 127.0.0.1 [default: the system chooses]
    #[arg(long, env = "CLICKHOUSE_PORT")]
    clickhouse_port: Option<u16>,
    #[command(flatten)]
    normalizer: NormalizerArgs,
}

impl UpCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        logs::init("up");
        let shutdown = shutdown::on_signals();
        let config = SystemConfig {
            data: self.data.clone(),
            api_listen: self.api_listen,
            worker_listen: self.worker_listen,
            kafka_port: self.kafka_port,
            clickhouse_port: self.clickhouse_port,
            logs: ChildLogs::Inherit,
            normalizer: self.normalizer,
        };
        let say = |step: &str| eprintln!("==> {step}");
        let starting = System::start(config, say);
        let mut system = tokio::select! {
            system = starting => system?,
            // What was started is stopped by being dropped.
            () = shutdown.requested() => bail!("stopped before everything was started"),
        };
        println!("api         {}/v1/cdrs", system.api_url());
        println!("stats       {}/stats", system.api_url());
        println!(
            "metrics     {0}/metrics  {1}/metrics",
            system.api_url(),
            system.worker_url()
        );
        println!("kafka       {}", system.kafka().bootstrap);
        println!("clickhouse  {}", system.clickhouse());
        println!("data        {}", self.data.display());
        println!("ready; Ctrl-C drains and stops all of it");

        let ended = tokio::select! {
            ended = system.wait_for_exit() => Some(ended?),
            () = shutdown.requested() => None,
        };
        match ended {
            None => {
                system.stop(say).await?;
                println!(
                    "stopped; everything accepted is settled or kept in {}",
                    self.data.display()
                );
                Ok(())
            }
            Some(ended) => {
                // At once, not in order: a worker that drained against a dead
                // ClickHouse would dead-letter what it holds.
                drop(system);
                bail!(
                    "{ended}, so everything was stopped; nothing accepted is lost: start again with --data {}",
                    self.data.display()
                )
            }
        }
    }
}
