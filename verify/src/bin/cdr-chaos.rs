//! `cdr-chaos`: breaks a whole system, round after round, and judges what landed.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use cdr_verify::chaos::Run;
use cdr_verify::parts::Build;
use cdr_verify::plan::Parts;
use cdr_verify::vendors::Habits;
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

/// The checkout that this was built from.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The longest that vendors go on after everything was healed.
const PATIENCE: Duration = Duration::from_secs(240);

/// Breaks a whole system, round after round, and judges what landed.
///
/// In each round vendors post records and repeat them on 503, 429 and broken
/// connections, while processes are killed, stopped and frozen and the network fails,
/// by a plan drawn from a seed. Then everything is healed and settles, and every
/// record with a 202 must be exactly once in ClickHouse (under FINAL) or in the
/// dead-letter topic, as it was sent; nothing else may be there; and each worker's
/// account must have come out all the time.
///
/// A line a round; after the first that is not good it stops, shows the ids, what was
/// done and the ends of all logs, keeps the folder, and exits with 1. It exits with 2
/// when it can't be carried out at all.
#[derive(Debug, Parser)]
#[command(
    name = "cdr-chaos",
    version,
    after_help = "Examples:\n  \
        cdr-chaos --rounds 8                        a short run\n  \
        cdr-chaos --rounds 1 --seed 4711            the plan of the round that said `seed 4711`\n  \
        cdr-chaos --parts embedded --rounds 4       `cdr up` and its children\n\n\
        The last line of a run:\n  \
        rounds=… kills=… sent=… acked=… rows=… dead_letters=… lost=0 doubled=0"
)]
struct Cli {
    /// How many rounds
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seed of the first round; each has one that follows from it [default: a new one]
    #[arg(long)]
    seed: Option<u64>,
    /// What the system is made of
    #[arg(long, value_enum, default_value = "apache-kafka")]
    parts: Parts,
    /// How long vendors begin new records, in seconds; faults begin in that time
    #[arg(long, default_value_t = 10.0, value_parser = seconds, value_name = "SECONDS")]
    seconds_per_round: f64,
    /// How many vendors post at the same time
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1000))]
    vendors: u32,
    /// Pause of each vendor between a record and the next, in milliseconds
    #[arg(long, default_value_t = 40)]
    pause_ms: u64,
    /// Keep data and logs when all went well, too
    #[arg(long)]
    keep: bool,
    /// Folder for data and logs; a new one is made in it [default: that for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The binary under test; copied at the start [default: `cdr` beside this program]
    #[arg(long, value_name = "PATH")]
    cdr: Option<PathBuf>,
    /// The normalizer; copied at the start
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/plugins/cdr-normalizer.wasm"),
          hide_default_value = true, value_name = "FILE.wasm")]
    normalizer: PathBuf,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (1.0..=600.0).contains(&value) => Ok(value),
        _ => Err("give a number of seconds from 1 to 600".to_owned()),
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("cdr-chaos: can't start the runtime: {error}");
            return ExitCode::from(2);
        }
    };
    match runtime.block_on(run(cli)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cdr-chaos: {error:#}");
            ExitCode::from(2)
        }
    }
}

async fn run(cli: Cli) -> anyhow::Result<bool> {
    let mut folder = tempfile::Builder::new();
    folder.prefix("cdr-chaos.");
    let mut folder = match &cli.dir {
        Some(dir) => folder.tempdir_in(dir),
        None => folder.tempdir(),
    }
    .context("no folder could be made")?;
    folder.disable_cleanup(cli.keep);
    let beside = || Ok::<_, std::io::Error>(std::env::current_exe()?.with_file_name("cdr"));
    let build = Build {
        cdr: cli.cdr.map_or_else(beside, Ok)?,
        normalizer: cli.normalizer,
        normalizer_settings: PathBuf::from(ROOT).join("samples/normalizer-settings.json"),
        registry: None,
        settings: Vec::new(),
        apache_kafka: PathBuf::from(ROOT).join("host/kafka/apache-kafka/apache-kafka.sh"),
        folder: folder.path().to_owned(),
    };
    let build = build.copied()?;
    let run = Run {
        rounds: cli.rounds,
        seed: cli.seed.unwrap_or_else(rand::random),
        parts: cli.parts,
        habits: Habits {
            vendors: cli.vendors,
            pause: Duration::from_millis(cli.pause_ms),
            posting: Duration::from_secs_f64(cli.seconds_per_round),
            patience: PATIENCE,
        },
    };
    let mut terminate = signal(SignalKind::terminate())?;
    let outcome = tokio::select! {
        outcome = run.run(build) => outcome,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
        _ = terminate.recv() => Err(anyhow::anyhow!("asked to stop")),
    };
    if !matches!(outcome, Ok(true)) {
        folder.disable_cleanup(true);
    }
    outcome
}
