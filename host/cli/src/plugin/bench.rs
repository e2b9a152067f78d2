//! `cdr plugin bench`: how long a normalizer takes a record, in the sandbox as
//! it serves, on one thread. Figures of one machine, for comparison in one run.

use super::subject::SubjectArgs;
use anyhow::{Context, bail};
use cdr_plugin_host::fixtures::Fixtures;
use cdr_plugin_host::{Batch, Normalizer};
use serde::Serialize;
use std::hint::black_box;
use std::io::Write;
use std::time::{Duration, Instant};

const BATCH_SIZES: [usize; 3] = [1, 100, 1000];
/// How long a round goes on at least; far more than clocks and schedulers blur.
const ROUND: Duration = Duration::from_millis(40);
/// Room for a guest's stack and the host's frames below it.
const STACK_BYTES: usize = 16 << 20;

#[derive(Debug, clap::Args)]
pub struct BenchCommand {
    #[command(flatten)]
    subject: SubjectArgs,
    /// How often each figure is taken; the median counts
    #[arg(long, value_name = "N", default_value_t = 11,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Write JSON instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    normalizer: String,
    digest: String,
    payloads: usize,
    payload_bytes: usize,
    rows: usize,
    rounds: u32,
    /// Instantiating from the snapshot, and a call about one empty payload.
    instance_us: Spread,
    batches: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    batch: usize,
    normalize_us_per_record: Spread,
    normalize_records_per_second: f64,
    admit_us_per_record: Spread,
}

/// Microseconds.
#[derive(Serialize, Clone, Copy)]
struct Spread {
    median: f64,
    fastest: f64,
    slowest: f64,
}

impl BenchCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        let subject = self.subject.prepare()?;
        let fixtures = Fixtures::read_unblessed(&subject.fixtures)?;
        let normalizer = subject.load(fixtures.settings()).await?;
        let rounds = self.rounds;
        // A thread of its own: guests may not run on one of the runtime's.
        let report = std::thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn(move || measure(&normalizer, &fixtures, rounds))
            .context("can't start a thread to measure on")?
            .join()
            .map_err(|_| anyhow::anyhow!("measuring ended early"))??;
        let mut out = std::io::stdout();
        match self.json {
            true => writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?,
            false => write!(out, "{report}")?,
        }
        Ok(())
    }
}

fn measure(normalizer: &Normalizer, fixtures: &Fixtures, rounds: u32) -> anyhow::Result<Report> {
    let normalized = normalizer.normalize_here(fixtures.batch());
    if let Some((record, fault)) = normalized.faults.first() {
        let name = fixtures.iter().nth(*record as usize);
        bail!(
            "the normalizer fails on the fixture {}: {fault}; `cdr plugin test` says more",
            name.map_or("", |fixture| &fixture.name)
        );
    }
    let nothing = Batch::of([&b""[..]], 0)?;
    let mut instance = Samples::default();
    let mut samples = Vec::new();
    for size in BATCH_SIZES {
        samples.push((
            batches(fixtures, size)?,
            Samples::default(),
            Samples::default(),
        ));
    }
    // Round by round, so that a machine that slows down slows all of them.
    for _ in 0..rounds {
        instance.take(std::slice::from_ref(&nothing), |batch| {
            black_box(normalizer.normalize_here(batch));
        });
        for (batches, normalize, admit) in &mut samples {
            normalize.take(batches, |batch| {
                black_box(normalizer.normalize_here(batch));
            });
            admit.take(batches, |batch| {
                black_box(normalizer.admit_here(batch));
            });
        }
    }

    let provenance = normalizer.provenance();
    let bytes: usize = (0..fixtures.len())
        .map(|index| fixtures.batch().payload(index).len())
        .sum();
    Ok(Report {
        normalizer: format!("{} {}", provenance.name, provenance.version),
        digest: provenance.digest.clone(),
        payloads: fixtures.len(),
        payload_bytes: bytes / fixtures.len(),
        rows: normalized.rows(),
        rounds,
        instance_us: instance.spread(),
        batches: BATCH_SIZES
            .into_iter()
            .zip(&samples)
            .map(|(batch, (_, normalize, admit))| {
                let normalize = normalize.spread();
                Line {
                    batch,
                    normalize_us_per_record: normalize,
                    normalize_records_per_second: 1e6 / normalize.median,
                    admit_us_per_record: admit.spread(),
                }
            })
            .collect(),
    })
}

/// The fixtures, over and over, in batches of this size: together, each fixture
/// as often as any other.
fn batches(fixtures: &Fixtures, size: usize) -> anyhow::Result<Vec<Batch>> {
    let mut records = fixtures.iter().enumerate().cycle();
    let count = match size {
        1 => fixtures.len(),
        _ => 1,
    };
    let mut batches = Vec::with_capacity(count);
    for _ in 0..count {
        let mut batch = Batch::default();
        for (index, fixture) in records.by_ref().take(size) {
            batch.push(fixtures.batch().payload(index), fixture.received_at)?;
        }
        batches.push(batch);
    }
    Ok(batches)
}

/// One figure, taken round after round.
#[derive(Default)]
struct Samples(Vec<f64>);

impl Samples {
    fn take(&mut self, batches: &[Batch], mut call: impl FnMut(&Batch)) {
        let started = Instant::now();
        let mut records = 0;
        while started.elapsed() < ROUND {
            for batch in batches {
                call(batch);
                records += batch.len();
            }
        }
        let micros = started.elapsed().as_secs_f64() * 1e6;
        self.0.push(micros / records as f64);
    }

    fn spread(&self) -> Spread {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        Spread {
            median: at(sorted.len() / 2),
            fastest: at(0),
            slowest: at(sorted.len().saturating_sub(1)),
        }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            median,
            fastest,
            slowest,
        } = self;
        write!(out, "{median:.2} ({fastest:.2} to {slowest:.2})")
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            out,
            "{}: {} payloads of {} bytes on average, {} of them make rows",
            self.normalizer, self.payloads, self.payload_bytes, self.rows
        )?;
        writeln!(
            out,
            "one thread, a fresh instance a batch; median of {} rounds (fastest to slowest)\n",
            self.rounds
        )?;
        writeln!(
            out,
            "batch  {:<28}{:>12}  admit, µs a record",
            "normalize, µs a record", "records/s"
        )?;
        for line in &self.batches {
            writeln!(
                out,
                "{:>5}  {:<28}{:>12.0}  {}",
                line.batch,
                line.normalize_us_per_record.to_string(),
                line.normalize_records_per_second,
                line.admit_us_per_record
            )?;
        }
        writeln!(
            out,
            "\na fresh instance and a call about nothing: {} µs",
            self.instance_us
        )?;
        if cfg!(debug_assertions) {
            writeln!(
                out,
                "this `cdr` is a debug build: compare such figures with each other only"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_counts_and_the_spread_is_told() {
        let spread = Samples(vec![3.0, 1.0, 2.0, 9.0, 2.5]).spread();
        assert_eq!(
            (spread.fastest, spread.median, spread.slowest),
            (1.0, 2.5, 9.0)
        );
    }
}
