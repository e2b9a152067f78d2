//! `cdr demo`: the main job from start to end, on parts of its own.

use crate::args::NormalizerArgs;
use crate::http_client::HttpClient;
use crate::plugin::now_ms;
use crate::report::{self, Account};
use crate::samples;
use crate::system::{System, SystemConfig};
use anyhow::{Context, bail};
use bytes::Bytes;
use cdr_embedded::ChildLogs;
use cdr_telemetry::{logs, shutdown};
use futures::StreamExt;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Requests under way at the same time.
const CONCURRENT: usize = 16;

/// Time for everything posted to be accounted for.
const ACCOUNTED: Duration = Duration::from_secs(120);

/// Settings of `cdr demo`.
#[derive(Debug, clap::Args)]
pub struct DemoCommand {
    /// Payloads, one a line; {{now-60}} and {{now_ms-60000}} are filled in
    #[arg(long, default_value = "samples/cdrs.ndjson.in", value_name = "FILE")]
    samples: PathBuf,
    /// Post the file so many times, as other records each time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Keep the data and logs in this folder, which must be empty or new [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    normalizer: NormalizerArgs,
}

impl DemoCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        logs::init_at("demo", "warn");
        let shutdown = shutdown::on_signals();
        let text = std::fs::read_to_string(&self.samples)
            .with_context(|| format!("can't read the samples {}", self.samples.display()))?;
        let payloads = self.payloads(&text);
        let temporary = tempfile::Builder::new()
            .prefix("cdr-demo-")
            .tempdir()
            .context("can't make a temporary folder")?;
        let data = match &self.keep {
            None => temporary.path().join("data"),
            Some(dir) => {
                let mut entries = match std::fs::read_dir(dir) {
                    Ok(entries) => entries,
                    Err(_) => {
                        std::fs::create_dir_all(dir)
                            .with_context(|| format!("can't make {}", dir.display()))?;
                        std::fs::read_dir(dir)?
                    }
                };
                if entries.next().is_some() {
                    bail!(
                        "{} is not empty; the demo counts what it finds",
                        dir.display()
                    );
                }
                dir.clone()
            }
        };
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let config = SystemConfig {
            logs: ChildLogs::Files(data.join("logs")),
            data,
            api_listen: loopback,
            worker_listen: loopback,
            kafka_port: None,
            clickhouse_port: None,
            normalizer: self.normalizer,
        };
        let say = |step: &str| eprintln!("==> {step}");
        let starting = System::start(config, say);
        let mut system = tokio::select! {
            system = starting => system?,
            () = shutdown.requested() => bail!("stopped"),
        };
        let account = tokio::select! {
            account = demonstrate(&system, payloads) => account,
            () = shutdown.requested() => Err(anyhow::anyhow!("stopped")),
        };
        let account = match account {
            Ok(account) => account,
            Err(error) => {
                // A process that died is the better explanation.
                let died = tokio::time::timeout(Duration::ZERO, system.wait_for_exit()).await;
                return match died {
                    Ok(Ok(ended)) => Err(error.context(ended)),
                    _ => Err(error),
                };
            }
        };
        system.stop(say).await?;
        println!("{}", account.last_line());
        account.check()
    }

    /// The payloads of all rounds. From the second on, identifiers carry the
    /// round, so that they are other records.
    fn payloads(&self, text: &str) -> Vec<Bytes> {
        let now = now_ms();
        let lines: Vec<String> = text
            .lines()
            .map(|line| samples::fill_in(line, now))
            .collect();
        (0..self.rounds)
            .flat_map(|round| {
                lines.iter().map(move |line| match round {
                    0 => Bytes::from(line.clone()),
                    round => Bytes::from(
                        line.replace("\"raw_id\":\"", &format!("\"raw_id\":\"{round}-")),
                    ),
                })
            })
            .collect()
    }
}

async fn demonstrate(system: &System, payloads: Vec<Bytes>) -> anyhow::Result<Account> {
    let started = Instant::now();
    let mut account = Account::default();
    let url = format!("{}/v1/cdrs", system.api_url());
    eprintln!("==> posting {} records to {url}", payloads.len());
    let bar = bar(payloads.len());
    let client = HttpClient::new();
    let mut answers = futures::stream::iter(payloads.into_iter().map(|payload| {
        let (client, url) = (client.clone(), url.clone());
        async move {
            let answer = client.post(&url, payload.clone()).await;
            (payload, answer)
        }
    }))
    .buffer_unordered(CONCURRENT);
    while let Some((payload, answer)) = answers.next().await {
        let (status, body) = answer?;
        account.answered(&payload, status, &body)?;
        bar.inc(1);
    }
    bar.finish_and_clear();

    eprintln!(
        "==> waiting until all {} accepted are accounted for",
        account.accepted
    );
    let bar = self::bar(account.accepted);
    let deadline = Instant::now() + ACCOUNTED;
    let stats = format!("{}/internal/stats", system.worker_url());
    loop {
        let (_, body) = client.get(&stats).await?;
        let stats: Value = serde_json::from_slice(&body).context("the worker's stats")?;
        let count = |name: &str| stats[name].as_u64().unwrap_or(0);
        let settled = count("inserted") + count("dead_lettered");
        bar.set_position(settled);
        if settled >= account.accepted as u64 && count("in_flight") == 0 {
            break;
        }
        if Instant::now() >= deadline {
            bail!("not accounted for after {ACCOUNTED:?}; the worker says {stats}");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bar.finish_and_clear();
    account.took = started.elapsed();
    report::show(system, &mut account).await?;
    Ok(account)
}

fn bar(length: usize) -> ProgressBar {
    let bar = ProgressBar::new(length as u64);
    if let Ok(style) = ProgressStyle::with_template("    {bar:40} {pos}/{len}  {per_sec}") {
        bar.set_style(style);
    }
    bar
}
