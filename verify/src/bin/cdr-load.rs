//! `cdr-load`: more load than one API can take, on a schedule that does not wait for it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use cdr_verify::load::{Load, WARM_UP};
use cdr_verify::parts::Build;
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

/// The checkout that this was built from.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// A bound of the API that the connections of this program can reach.
const QUEUE: (&str, &str) = ("API_QUEUE_MAX_SIZE", "512");

/// Asks one API for more than it can give, and checks what it makes of that.
///
/// Apache Kafka and one `cdr api` run on loopback. First it finds saturation: how many
/// records a second are accepted when every connection sends its next one as soon as the
/// last was answered. Then it sends FACTOR times as many, at fixed times, whatever is
/// answered. Latencies count from when a request was due, so that those which a slow host
/// keeps from being sent are not left out. A request that finds no connection within the
/// time-out is counted as unsent; that is the limit of this program, and no failure.
///
/// Only 202, 429 and 503 may be answered, the latter two with Retry-After and the JSON
/// shape of errors; no connection may break; every record that got a 202 must be in the
/// topic, and none that got a 429; memory must stay below --max-memory-mib, if given;
/// SIGTERM must end the API in order. It exits with 1, and keeps its folder, if anything
/// is not so; with 2 if it can't be carried out.
#[derive(Debug, Parser)]
#[command(
    name = "cdr-load",
    version,
    after_help = "For numbers that mean something, build both with --release:\n  \
        cargo build --release --workspace --bin cdr --bin cdr-load && target/release/cdr-load\n\n\
        The last line of a run:\n  \
        saturation=… offered=… sent=… accepted=… accepted_per_s=… refused_429=… refused_503=… other=0\n  \
        malformed=0 transport_errors=0 unsent=… p50_ms=… p99_ms=… p999_ms=… p99_sent_ms=…\n  \
        memory_max_mib=… published_unconfirmed=… lost=0\n\n\
        saturation, offered, accepted_per_s: a second. p50_ms, p99_ms, p999_ms: of accepted requests,\n\
        since they were due; p99_sent_ms: since they were sent. malformed: 202, 429 and 503 that are not\n\
        as those must be. published_unconfirmed: in the topic without a 202, as a 503 allows."
)]
struct Cli {
    /// For how long more is sent than can be taken, in seconds
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(2..=3600), value_name = "SECONDS")]
    seconds: u64,
    /// How many times the rate of saturation is sent
    #[arg(long, default_value_t = 1.5, value_parser = factor)]
    factor: f64,
    /// Connections over which that is sent; more than API_QUEUE_MAX_SIZE, or the bound is never reached
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=16_384), value_name = "COUNT")]
    connections: u32,
    /// For how long saturation is looked for, in seconds; the first 3 do not count
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(WARM_UP.as_secs() + 1..=600), value_name = "SECONDS")]
    saturation_seconds: u64,
    /// Connections with which it is looked for
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=16_384), value_name = "COUNT")]
    saturation_connections: u32,
    /// How long a request may wait for a connection, and then for its answer, in seconds
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=300), value_name = "SECONDS")]
    timeout_seconds: u64,
    /// Resident memory that the API may have, in MiB [default: as much as it takes]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1 << 20), value_name = "MIB")]
    max_memory_mib: Option<u64>,
    /// A setting of the API, as often as needed [default: API_QUEUE_MAX_SIZE=512]
    #[arg(long, value_parser = variable, value_name = "NAME=VALUE")]
    api_env: Vec<(String, String)>,
    /// Threads that send [default: half of the processors]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=256), value_name = "COUNT")]
    threads: Option<u32>,
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

fn factor(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(factor) if (0.01..=100.0).contains(&factor) => Ok(factor),
        _ => Err("a number from 0.01 to 100 is expected".to_owned()),
    }
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("NAME=VALUE is expected".to_owned()),
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // The host and Kafka need processors, too.
    let half = || std::thread::available_parallelism().map_or(1, |count| count.get() / 2);
    let threads = cli.threads.map_or_else(half, |threads| threads as usize);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads.max(1))
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("cdr-load: can't start the runtime: {error}");
            return ExitCode::from(2);
        }
    };
    match runtime.block_on(run(cli)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cdr-load: {error:#}");
            ExitCode::from(2)
        }
    }
}

async fn run(cli: Cli) -> anyhow::Result<bool> {
    allow_connections(cli.connections.max(cli.saturation_connections))?;
    let mut folder = tempfile::Builder::new();
    folder.prefix("cdr-load.");
    let mut folder = match &cli.dir {
        Some(dir) => folder.tempdir_in(dir),
        None => folder.tempdir(),
    }
    .context("no folder could be made")?;
    folder.disable_cleanup(cli.keep);
    let beside = || Ok::<_, std::io::Error>(std::env::current_exe()?.with_file_name("cdr"));
    let (name, value) = QUEUE;
    let mut settings = vec![(name.to_owned(), value.to_owned())];
    settings.extend(cli.api_env);
    let build = Build {
        cdr: cli.cdr.map_or_else(beside, Ok)?,
        normalizer: cli.normalizer,
        normalizer_settings: PathBuf::from(ROOT).join("samples/normalizer-settings.json"),
        registry: None,
        settings,
        apache_kafka: PathBuf::from(ROOT).join("host/kafka/apache-kafka/apache-kafka.sh"),
        folder: folder.path().to_owned(),
    }
    .copied()?;
    eprintln!("==> in {}", folder.path().display());
    let load = Load {
        saturation_connections: cli.saturation_connections,
        saturation: Duration::from_secs(cli.saturation_seconds),
        factor: cli.factor,
        overload: Duration::from_secs(cli.seconds),
        connections: cli.connections,
        patience: Duration::from_secs(cli.timeout_seconds),
        max_memory_mib: cli.max_memory_mib,
    };
    let mut terminate = signal(SignalKind::terminate())?;
    let outcome = tokio::select! {
        outcome = load.run(build) => outcome,
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

/// Files that this process opens beside connections.
const OTHER_FILES: u64 = 128;

/// Raises the limit of open files, which is too low for as many connections on many
/// systems.
fn allow_connections(connections: u32) -> anyhow::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let needed = u64::from(connections) + OTHER_FILES;
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let is_allowed = limit.maximum.is_none_or(|maximum| maximum >= needed);
    ensure!(
        is_allowed,
        "{connections} connections need {needed} open files, and the system allows {}: \
         raise `ulimit -Hn`, or lower --connections",
        limit.maximum.unwrap_or_default()
    );
    // The API inherits it; what it needs it raises by itself.
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(needed),
            ..limit
        },
    )
    .context("the limit of open files")
}
