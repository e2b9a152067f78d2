//! `cdr-swaps`: another normalizer every second under full load, and files between
//! them that must not serve.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use cdr_verify::parts::Build;
use cdr_verify::swaps::Swaps;
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

/// The checkout that this was built from.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Changes the normalizer of a whole system every second while vendors post.
///
/// Apache Kafka, ClickHouse, one API and two workers run as in production, and follow a
/// registry. Every second another of three versions is activated, of which two bring a
/// column each, and half a second later something that must not serve: a file with
/// another digest, one that is missing, cut off, or of another version, a column of
/// another type, an `active.json` that is none.
///
/// No post may fail, no record be lost or doubled; every row must have what its version
/// makes; memory must be as flat at the end as in the middle. Latencies are reported
/// for before, during and after. It exits with 1, and keeps its folder, if anything
/// is not so; with 2 if it can't be carried out.
#[derive(Debug, Parser)]
#[command(
    name = "cdr-swaps",
    version,
    after_help = "The last line of a run:\n  swaps=… refusals=… sent=… acked=… failed=0 rows=… dead_letters=… lost=0 doubled=0"
)]
struct Cli {
    /// For how long versions change, in seconds; as long before, half as long after
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(4..=3600), value_name = "SECONDS")]
    seconds: u64,
    /// How many vendors post at the same time, without a pause
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1000))]
    vendors: u32,
    /// Keep data and logs when all went well, too
    #[arg(long)]
    keep: bool,
    /// Folder for data and logs; a new one is made in it [default: that for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The binary under test; copied at the start [default: `cdr` beside this program]
    #[arg(long, value_name = "PATH")]
    cdr: Option<PathBuf>,
    /// A build of plugins/versions; copied at the start
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/plugins/versions.wasm"),
          hide_default_value = true, value_name = "FILE.wasm")]
    versions: PathBuf,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("cdr-swaps: can't start the runtime: {error}");
            return ExitCode::from(2);
        }
    };
    match runtime.block_on(run(cli)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cdr-swaps: {error:#}");
            ExitCode::from(2)
        }
    }
}

async fn run(cli: Cli) -> anyhow::Result<bool> {
    let mut folder = tempfile::Builder::new();
    folder.prefix("cdr-swaps.");
    let mut folder = match &cli.dir {
        Some(dir) => folder.tempdir_in(dir),
        None => folder.tempdir(),
    }
    .context("no folder could be made")?;
    folder.disable_cleanup(cli.keep);
    let beside = || Ok::<_, std::io::Error>(std::env::current_exe()?.with_file_name("cdr"));
    let build = Build {
        cdr: cli.cdr.map_or_else(beside, Ok)?,
        normalizer: cli.versions,
        normalizer_settings: PathBuf::from(ROOT).join("samples/normalizer-settings.json"),
        registry: None,
        settings: Vec::new(),
        apache_kafka: PathBuf::from(ROOT).join("host/kafka/apache-kafka/apache-kafka.sh"),
        folder: folder.path().to_owned(),
    }
    .copied()?;
    println!("==> in {}", folder.path().display());
    let swaps = Swaps {
        during: Duration::from_secs(cli.seconds),
        vendors: cli.vendors,
    };
    let mut terminate = signal(SignalKind::terminate())?;
    let outcome = tokio::select! {
        outcome = swaps.run(build) => outcome,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
        _ = terminate.recv() => Err(anyhow::anyhow!("asked to stop")),
    };
    let faults = match &outcome {
        Ok(report) => report.faults(),
        Err(_) => {
            folder.disable_cleanup(true);
            eprintln!("everything is kept in {}", folder.path().display());
            Vec::new()
        }
    };
    let report = outcome?;
    if !faults.is_empty() {
        folder.disable_cleanup(true);
        println!("\nFAILED\n  {}", faults.join("\n  "));
        println!("everything is kept in {}", folder.path().display());
    }
    println!("{report}");
    Ok(faults.is_empty())
}
