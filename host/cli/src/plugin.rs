//! `cdr plugin`: looking at normalizers, trying them on payloads, writing them.

mod bench;
mod compile;
mod new;
mod subject;
mod test;

mod diff;
mod registry;
mod shadow;
mod sign;
mod status;

use crate::args::{self, SandboxArgs};
use anyhow::Context;
use cdr_plugin_host::contract::column_type_word;
use cdr_plugin_host::{Batch, Normalizer, inspect, json};
use serde_json::{Value, json};
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Subcommands of `cdr plugin`.
#[derive(Debug, clap::Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one a process")]
pub enum PluginCommand {
    /// Says what a normalizer is: name, version, columns, imports, size, digest
    Inspect(InspectCommand),
    /// Reads payloads from standard input, one a line, and writes what becomes of each, one JSON a line
    #[command(
        after_help = "Output: {\"row\":{…}} or {\"rejected\":{\"reason\":…,\"field\":…,\"detail\":…}};\n\
                      with --admit: {\"admitted\":{\"key\":…}} or {\"refused\":{\"code\":…,\"field\":…,\"detail\":…}};\n\
                      where the normalizer itself fails: {\"fault\":{\"kind\":…,\"detail\":…}}"
    )]
    Eval(EvalCommand),
    /// Puts a version into the registry, without letting it serve
    Add(registry::AddCommand),
    /// Lets a version serve: checks it, and names it in the registry's active.json
    Activate(registry::ActivateCommand),
    /// Returns to the activation before the present one
    Rollback(registry::RollbackCommand),
    /// What lies in the registry, and every activation
    List(registry::ListCommand),
    /// What each host runs, and what it refused
    Status(status::StatusCommand),
    /// Shows live batches to a candidate, whose answers are compared and go nowhere
    Shadow(shadow::ShadowCommand),
    /// How the answers of two normalizers differ; without files, what the shadow saw
    Diff(diff::DiffCommand),
    /// Makes a pair of keys for signatures
    Keygen(sign::KeygenCommand),
    /// Signs a normalizer
    Sign(sign::SignCommand),
    /// Checks the signature of a normalizer
    Verify(sign::VerifyCommand),
    /// Writes the crate of a new normalizer, which builds and passes its tests
    New(new::NewCommand),
    /// Builds a normalizer and judges the .wasm: fixtures, determinism, contract, figures
    Test(Box<test::TestCommand>),
    /// Measures how long a normalizer takes a record, on its fixtures
    Bench(Box<bench::BenchCommand>),
}

#[derive(Debug, clap::Args)]
pub struct InspectCommand {
    /// The normalizer
    file: PathBuf,
    /// Its settings, a JSON file
    #[arg(long)]
    settings: Option<PathBuf>,
    /// Write JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    sandbox: SandboxArgs,
}

#[derive(Debug, clap::Args)]
pub struct EvalCommand {
    /// The normalizer
    file: PathBuf,
    /// Its settings, a JSON file
    #[arg(long)]
    settings: Option<PathBuf>,
    /// When the records count as received, in milliseconds since the Unix epoch [default: now]
    #[arg(long, value_name = "MS")]
    received_at: Option<i64>,
    /// Ask the API's question (may it onto the topic?) instead of the worker's
    #[arg(long)]
    admit: bool,
    /// Lines are hexadecimal, for payloads that are not text
    #[arg(long)]
    hex: bool,
    #[command(flatten)]
    sandbox: SandboxArgs,
}

impl PluginCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        cdr_telemetry::logs::init_at("plugin", "warn");
        let outcome = match self {
            Self::Inspect(command) => command.run().await,
            Self::Eval(command) => command.run().await,
            Self::Add(command) => command.run().await,
            Self::Activate(command) => command.run().await,
            Self::Rollback(command) => command.run().await,
            Self::List(command) => command.run().await,
            Self::Status(command) => command.run().await,
            Self::Shadow(command) => command.run().await,
            Self::Diff(command) => command.run().await,
            Self::Keygen(command) => command.run(),
            Self::Sign(command) => command.run(),
            Self::Verify(command) => command.run(),
            Self::New(command) => command.run(),
            Self::Test(command) => command.run().await,
            Self::Bench(command) => command.run().await,
        };
        match outcome {
            // Whoever reads has had enough: `cdr plugin eval … | head`.
            Err(error) if is_broken_pipe(&error) => Ok(()),
            outcome => outcome,
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

async fn load(
    file: &Path,
    settings: Option<&PathBuf>,
    sandbox: &SandboxArgs,
) -> anyhow::Result<Normalizer> {
    sandbox
        .host()?
        .load_file(file, &args::settings(settings)?)
        .await
        .with_context(|| file.display().to_string())
}

impl InspectCommand {
    async fn run(self) -> anyhow::Result<()> {
        let normalizer = load(&self.file, self.settings.as_ref(), &self.sandbox).await?;
        let wasm = std::fs::read(&self.file)
            .with_context(|| format!("can't read {}", self.file.display()))?;
        let outline = inspect(&wasm).with_context(|| self.file.display().to_string())?;
        let manifest = normalizer.manifest();
        let mut out = std::io::stdout().lock();
        if self.json {
            let columns: Vec<Value> = manifest
                .columns
                .iter()
                .map(|column| {
                    json!({
                        "name": column.name,
                        "type": column_type_word(column.kind),
                        "nullable": column.nullable,
                    })
                })
                .collect();
            let all = json!({
                "name": manifest.name,
                "version": manifest.version,
                "description": manifest.description,
                "size": outline.size,
                "sha256": outline.sha256,
                "digest": normalizer.provenance().digest,
                "imports": outline.imports,
                "exports": outline.exports,
                "columns": columns,
            });
            writeln!(out, "{all:#}")?;
            return Ok(());
        }
        writeln!(out, "name         {}", manifest.name)?;
        writeln!(out, "version      {}", manifest.version)?;
        writeln!(out, "description  {}", manifest.description)?;
        writeln!(out, "size         {} bytes", outline.size)?;
        writeln!(out, "sha256       {}", outline.sha256)?;
        writeln!(
            out,
            "digest       {} (with its settings)",
            normalizer.provenance().digest
        )?;
        writeln!(
            out,
            "exports      {}",
            outline.exports.join("\n             ")
        )?;
        writeln!(
            out,
            "imports      {}",
            outline.imports.join("\n             ")
        )?;
        writeln!(out, "columns      {}", manifest.columns.len())?;
        for column in &manifest.columns {
            let nullable = if column.nullable { ", nullable" } else { "" };
            writeln!(
                out,
                "  {:<20} {}{nullable}",
                column.name,
                column_type_word(column.kind)
            )?;
        }
        Ok(())
    }
}

/// Payloads that are judged at once, at most; fewer when the input pauses.
const CHUNK: usize = 1000;

impl EvalCommand {
    async fn run(self) -> anyhow::Result<()> {
        let normalizer = load(&self.file, self.settings.as_ref(), &self.sandbox).await?;
        let received_at = self.received_at.unwrap_or_else(now_ms);
        let mut input = std::io::BufReader::with_capacity(1 << 20, std::io::stdin());
        let mut out = std::io::stdout().lock();
        let mut line_number = 0;
        loop {
            let mut batch = Batch::default();
            let mut ended = false;
            let mut unreadable = None;
            while batch.len() < CHUNK {
                let mut line = Vec::new();
                if input
                    .read_until(b'\n', &mut line)
                    .context("standard input")?
                    == 0
                {
                    ended = true;
                    break;
                }
                line_number += 1;
                if line.ends_with(b"\n") {
                    line.pop();
                }
                let payload = if self.hex {
                    match hex::decode(line.trim_ascii()) {
                        Ok(payload) => payload,
                        Err(error) => {
                            // The lines before are answered first.
                            unreadable = Some(
                                anyhow::Error::from(error)
                                    .context(format!("line {line_number} is not hexadecimal")),
                            );
                            break;
                        }
                    }
                } else {
                    line
                };
                batch.push(&payload, received_at)?;
                // Whoever types, or pipes slowly, is answered line by line.
                if !input.buffer().contains(&b'\n') {
                    break;
                }
            }
            for answer in self.answers(&normalizer, batch).await? {
                writeln!(out, "{answer}").context("standard output")?;
            }
            out.flush().context("standard output")?;
            if let Some(error) = unreadable {
                return Err(error);
            }
            if ended {
                return Ok(());
            }
        }
    }

    async fn answers(&self, normalizer: &Normalizer, batch: Batch) -> anyhow::Result<Vec<Value>> {
        if self.admit {
            let answers = normalizer.admit(batch).await?;
            return Ok(answers.iter().map(json::admitted).collect());
        }
        let records = batch.len();
        let normalized = normalizer.normalize(batch).await?;
        let columns = &normalizer.manifest().columns;
        Ok(json::normalized(columns, &normalized, records))
    }
}

/// Milliseconds since the Unix epoch.
pub fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|elapsed| i64::try_from(elapsed.as_millis()).ok())
        .unwrap_or(0)
}
