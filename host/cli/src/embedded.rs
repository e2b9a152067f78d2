//! The hidden subcommands: the parts of `cdr up` as processes of their own.

use crate::hosts;
use anyhow::Context;
use cdr_embedded::broker::child::{self as broker, BrokerChildArgs};
use cdr_embedded::clickhouse::child::{self as clickhouse, ClickHouseChildArgs};
use cdr_embedded::clickhouse::library;
use std::path::PathBuf;

/// Subcommands of `cdr embedded`.
#[derive(Debug, clap::Subcommand)]
pub enum EmbeddedCommand {
    /// A Kafka-protocol broker on loopback
    Broker(PartArgs),
    /// ClickHouse on loopback
    Clickhouse {
        #[command(flatten)]
        part: PartArgs,
        /// libchdb.so
        #[arg(long)]
        library: PathBuf,
    },
    /// Fetches ClickHouse's library, unless it is there
    Fetch,
}

/// What a part is started with.
#[derive(Debug, clap::Args)]
pub struct PartArgs {
    /// Its folder
    #[arg(long)]
    data: PathBuf,
    /// Its port; 0: the system chooses
    #[arg(long)]
    port: u16,
    /// Where it writes its port once it serves
    #[arg(long)]
    port_file: PathBuf,
}

impl EmbeddedCommand {
    pub fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Broker(part) => {
                cdr_telemetry::logs::init("broker");
                broker::run(BrokerChildArgs {
                    data: part.data,
                    port: part.port,
                    port_file: part.port_file,
                })?;
            }
            Self::Clickhouse { part, library } => {
                cdr_telemetry::logs::init("clickhouse");
                clickhouse::run(ClickHouseChildArgs {
                    data: part.data,
                    port: part.port,
                    port_file: part.port_file,
                    library,
                })?;
            }
            Self::Fetch => hosts::in_runtime(async {
                fetch().await?;
                Ok(())
            })?,
        }
        Ok(())
    }
}

/// Finds or installs ClickHouse's library, saying what it does.
pub async fn fetch() -> anyhow::Result<PathBuf> {
    library::ensure(&library::default_cache(), |step| eprintln!("==> {step}"))
        .await
        .context("the embedded ClickHouse")
}
