//! `cdr plugin test`: judges a normalizer as it will be run, the built .wasm in
//! the real sandbox: fixtures, determinism, contract, figures. Nothing here
//! depends on the speed of the machine but the deadlines that also production has.

mod contract;
mod determinism;
mod figures;
mod payloads;

use super::subject::{Subject, SubjectArgs};
use anyhow::{Context, bail};
use cdr_plugin_host::fixtures::{Blessed, Fixtures, Mismatch};
use cdr_plugin_host::{Batch, Normalizer};
use contract::Contract;
use determinism::Determinism;
use figures::{Comparison, Figures};
use payloads::{Generator, Record};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;

/// Generated payloads that the determinism is tried on, beside the fixtures.
const ALSO_DETERMINISTIC: usize = 50;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code 0: all is as it should be. A new normalizer has no answers and no figures yet: \
--bless and --accept write them, and say what they wrote; look at it, and keep it with the source.")]
pub struct TestCommand {
    #[command(flatten)]
    subject: SubjectArgs,
    /// Write the answers that come as the expected ones, and say what changed
    #[arg(long)]
    bless: bool,
    /// The accepted figures [default: PATH/figures.json]
    #[arg(long, value_name = "FILE")]
    figures: Option<PathBuf>,
    /// Write the figures that come as the accepted ones
    #[arg(long)]
    accept: bool,
    /// By how much a figure may grow before it has to be accepted, in percent [default: as in the figures, or 10]
    #[arg(long, value_name = "PERCENT")]
    tolerance: Option<u32>,
    /// How many payloads to generate
    #[arg(long, value_name = "N", default_value_t = 2000)]
    payloads: usize,
    /// Which ones: the number that an earlier run named [default: made from the .wasm, so that each build gets others]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Write one JSON instead of text
    #[arg(long)]
    json: bool,
}

/// All that was found.
#[derive(Serialize)]
struct Report {
    normalizer: String,
    digest: String,
    file: PathBuf,
    passed: bool,
    fixtures: FixturesReport,
    determinism: Determinism,
    contract: Contract,
    /// None where the normalizer failed: there is nothing to compare.
    figures: Option<Comparison>,
}

#[derive(Serialize)]
struct FixturesReport {
    total: usize,
    blessed: Vec<Blessed>,
    mismatches: Vec<Mismatch>,
}

impl TestCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        let subject = self.subject.prepare()?;
        let report = self.judge(&subject).await?;
        if self.json {
            write(&serde_json::to_string_pretty(&report)?);
        }
        let failures = report.failures();
        if !failures.is_empty() {
            bail!("{} failed: {}", report.normalizer, failures.join("; "));
        }
        self.say(&format_args!("{} passed", report.normalizer));
        Ok(())
    }

    fn say(&self, part: &impl std::fmt::Display) {
        if !self.json {
            write(part);
        }
    }

    async fn judge(&self, subject: &Subject) -> anyhow::Result<Report> {
        let mut fixtures = match self.bless {
            true => Fixtures::read_unblessed(&subject.fixtures)?,
            false => Fixtures::read(&subject.fixtures)?,
        };
        let normalizer = subject.load(fixtures.settings()).await?;
        let provenance = normalizer.provenance();
        let name = format!("{} {}", provenance.name, provenance.version);
        self.say(&format_args!("{name}  {}", subject.wasm.display()));

        let mut blessed = Vec::new();
        if self.bless {
            blessed = fixtures.bless(&normalizer).await?;
            fixtures = Fixtures::read(&subject.fixtures)?;
        }
        let fixtures_report = FixturesReport {
            total: fixtures.len(),
            blessed,
            mismatches: fixtures.check(&normalizer).await?,
        };
        self.say(&fixtures_report);

        let seed = self
            .seed
            .unwrap_or_else(|| payloads::seed(&provenance.file_digest));
        let (determinism, contract) = self.try_out(&normalizer, &fixtures, seed).await?;
        self.say(&determinism);
        self.say(&contract);

        let figures = match contract.has_faults() {
            true => None,
            false => Some(self.measure(subject, &normalizer, &fixtures).await?),
        };
        match &figures {
            Some(figures) => self.say(figures),
            None => self.say(&"figures      not taken, because the normalizer failed"),
        }

        let mut report = Report {
            normalizer: name,
            digest: provenance.digest.clone(),
            file: subject.wasm.clone(),
            passed: false,
            fixtures: fixtures_report,
            determinism,
            contract,
            figures,
        };
        report.passed = report.failures().is_empty();
        Ok(report)
    }

    async fn try_out(
        &self,
        normalizer: &Normalizer,
        fixtures: &Fixtures,
        seed: u64,
    ) -> anyhow::Result<(Determinism, Contract)> {
        let known: Vec<Record> = fixtures
            .iter()
            .enumerate()
            .map(|(index, fixture)| Record {
                origin: format!("fixture {}", fixture.name),
                payload: fixtures.batch().payload(index).to_vec(),
                received_at: fixture.received_at,
            })
            .collect();
        let generated: Vec<Record> = Generator::new(&known, seed).take(self.payloads).collect();
        let sample = generated.iter().take(ALSO_DETERMINISTIC);
        let sample: Vec<&Record> = known.iter().chain(sample).collect();
        let determinism = determinism::check(normalizer, &sample).await?;
        let all: Vec<&Record> = known.iter().chain(&generated).collect();
        let contract = contract::check(normalizer, &all, generated.len(), seed).await?;
        Ok((determinism, contract))
    }

    async fn measure(
        &self,
        subject: &Subject,
        normalizer: &Normalizer,
        fixtures: &Fixtures,
    ) -> anyhow::Result<Comparison> {
        let wasm = std::fs::read(&subject.wasm)
            .with_context(|| format!("can't read {}", subject.wasm.display()))?;
        let now = Figures::take(&subject.host, normalizer, wasm, fixtures).await?;
        let file = self.figures.clone().or_else(|| {
            let folder = subject.folder.as_ref()?;
            Some(folder.join("figures.json"))
        });
        if file.is_none() && self.accept {
            bail!("--accept needs --figures FILE where a .wasm file is tested");
        }
        figures::compare(now, file, self.tolerance, self.accept)
    }
}

impl Report {
    /// What is not as it should be, in a few words each.
    fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        let FixturesReport {
            mismatches, total, ..
        } = &self.fixtures;
        if !mismatches.is_empty() {
            failures.push(format!(
                "{} of {total} fixtures differ (--bless takes the answers over)",
                mismatches.len()
            ));
        }
        failures.extend(self.determinism.failure());
        failures.extend(self.contract.failure());
        failures.extend(self.figures.as_ref().and_then(Comparison::failure));
        failures
    }
}

impl std::fmt::Display for FixturesReport {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for blessed in &self.blessed {
            writeln!(out, "blessed      {blessed}")?;
        }
        for mismatch in &self.mismatches {
            writeln!(out, "DIFFERENT    {mismatch}")?;
        }
        let good = self.total - self.mismatches.len();
        write!(out, "fixtures     {good} of {} as expected", self.total)
    }
}

/// Whoever reads may have had enough (`… | head`): what is judged stays judged, and
/// is told by the exit code.
fn write(part: &impl std::fmt::Display) {
    let _ = writeln!(std::io::stdout(), "{part}");
}

/// A batch of these records.
fn batch<'a>(records: impl IntoIterator<Item = &'a Record>) -> anyhow::Result<Batch> {
    let mut batch = Batch::default();
    for record in records {
        batch.push(&record.payload, record.received_at)?;
    }
    Ok(batch)
}
