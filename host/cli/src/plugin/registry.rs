//! `cdr plugin add`, `activate`, `rollback`, `list`: what lies in a registry, and
//! what serves.

mod columns;
mod fixtures;

use crate::args::{self, SandboxArgs, TrustArgs, signature_path};
use anyhow::{Context, bail};
use cdr_plugin_host::registry::{Activated, Activation, Choice, RegistryError, VersionId};
use cdr_plugin_host::{LoadError, Normalizer, PluginHost, Registry};
use cdr_store::{TableLayout, TableSpec};
use columns::ColumnChange;
use fixtures::FixturesArgs;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Which registry.
#[derive(Debug, Clone, clap::Args)]
pub struct RegistryArgs {
    /// The registry of normalizers
    #[arg(long = "dir", env = "NORMALIZER_DIR", value_name = "DIR")]
    pub normalizer_dir: PathBuf,
}

impl RegistryArgs {
    /// The registry.
    pub fn registry(&self) -> Registry {
        Registry::new(&self.normalizer_dir)
    }
}

/// Checks normalizers before they are let in.
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    #[command(flatten)]
    pub trust: TrustArgs,
    #[command(flatten)]
    pub sandbox: SandboxArgs,
}

#[derive(Debug, clap::Args)]
pub struct AddCommand {
    /// The normalizer
    file: PathBuf,
    /// Settings to try it with, a JSON file; they are not kept
    #[arg(long, value_name = "FILE.json")]
    settings: Option<PathBuf>,
    #[command(flatten)]
    fixtures: FixturesArgs,
    #[command(flatten)]
    registry: RegistryArgs,
    #[command(flatten)]
    check: CheckArgs,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Hosts that follow the registry load the version beside the one that serves, check it, add its new \
                  columns to the table, and swap between two batches. What they refuse leaves the last good one \
                  serving: see `cdr plugin status`."
)]
pub struct ActivateCommand {
    /// NAME@VERSION in the registry, or a FILE.wasm, which is added first
    #[arg(value_name = "NAME@VERSION | FILE.wasm")]
    which: String,
    /// Its settings, a JSON file; kept with the activation [default: those of the active version, if it has the same name]
    #[arg(long, value_name = "FILE.json")]
    settings: Option<PathBuf>,
    /// No settings, also if the active version has some
    #[arg(long, conflicts_with = "settings")]
    no_settings: bool,
    /// Let columns of the active version go: they stay in the table, and new rows have null or the default there
    #[arg(long)]
    drop_columns: bool,
    /// Let it serve though it fails the fixtures that were kept with it
    #[arg(long)]
    ignore_fixtures: bool,
    #[command(flatten)]
    fixtures: FixturesArgs,
    #[command(flatten)]
    registry: RegistryArgs,
    #[command(flatten)]
    check: CheckArgs,
}

#[derive(Debug, clap::Args)]
pub struct RollbackCommand {
    /// Return to this revision [default: the activation before the present one; repeated, it goes back further]
    #[arg(long, value_name = "REVISION")]
    to: Option<u64>,
    /// Do not load it first: for a registry on a machine that can't run normalizers
    #[arg(long)]
    unchecked: bool,
    #[command(flatten)]
    registry: RegistryArgs,
    #[command(flatten)]
    check: CheckArgs,
}

#[derive(Debug, clap::Args)]
pub struct ListCommand {
    /// Write JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    registry: RegistryArgs,
}

/// A candidate, loaded and checked by itself.
struct Checked {
    id: VersionId,
    normalizer: Normalizer,
}

impl CheckArgs {
    /// Loads a file that is to be let in, with its signature checked.
    async fn load(
        &self,
        host: &PluginHost,
        wasm: Vec<u8>,
        signature: Option<&str>,
        settings: &str,
    ) -> anyhow::Result<Checked> {
        let keys = self.trust.keys()?;
        if keys.is_on() {
            keys.check(&wasm, signature)?;
        } else {
            eprintln!(
                "warning: signatures are not checked; set NORMALIZER_TRUSTED_KEYS so that only what is signed runs"
            );
        }
        let normalizer = host.load(wasm, settings).await?;
        let manifest = normalizer.manifest();
        let id = VersionId::new(&manifest.name, &manifest.version)?;
        // Whether the table can have these columns at all.
        let columns = cdr_worker::convert::column_specs(manifest);
        TableSpec::new("telecom", "cdr_records", TableLayout::cdr(), &columns)?;
        Ok(Checked { id, normalizer })
    }
}

impl AddCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        let registry = self.registry.registry();
        let settings = args::settings(self.settings.as_ref())?;
        let host = self.check.sandbox.host()?;
        let (id, sha256, was_there) = add(
            &registry,
            &host,
            &self.file,
            &settings,
            &self.fixtures,
            &self.check,
        )
        .await
        .with_context(|| self.file.display().to_string())?;
        let done = if was_there {
            "is there already"
        } else {
            "added"
        };
        println!("{id} {done}: {}", registry.path_of(&id).display());
        println!("sha256 {sha256}");
        println!("let it serve with `cdr plugin activate {id}`");
        Ok(())
    }
}

/// Checks a file and puts it into the registry, its signature beside it.
async fn add(
    registry: &Registry,
    host: &PluginHost,
    file: &Path,
    settings: &str,
    fixtures: &FixturesArgs,
    check: &CheckArgs,
) -> anyhow::Result<(VersionId, String, bool)> {
    let wasm = host.read(file)?;
    let signature = read_if_there(&signature_path(file))?;
    let inspected = check
        .load(host, wasm.clone(), signature.as_deref(), settings)
        .await?;
    let id = inspected.id;
    fixtures.check(host, &wasm).await?;
    let kept = read_if_there(&registry.signature_path_of(&id))?;
    let signature = match (&signature, kept) {
        // Nobody has said that the new one is better.
        (Some(new), Some(kept)) if *new != kept && !check.trust.keys()?.is_on() => {
            eprintln!(
                "warning: {id} has another signature already, which stays; NORMALIZER_TRUSTED_KEYS decides between them"
            );
            None
        }
        (new, _) => new.as_deref(),
    };
    let added = registry.add(&id, &wasm, signature, fixtures.dir())?;
    Ok((id, added.sha256, added.was_there))
}

fn read_if_there(path: &Path) -> anyhow::Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

impl ActivateCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        let registry = self.registry.registry();
        let active = registry.present()?;
        let host = self.check.sandbox.host()?;
        let id = if self.which.ends_with(".wasm") {
            self.add(&registry, &host, active.as_ref())
                .await
                .with_context(|| self.which.clone())?
        } else {
            if self.fixtures.dir().is_some() {
                bail!(
                    "--fixtures comes with a FILE.wasm; {} lies in the registry, with the fixtures that it was added with",
                    self.which
                );
            }
            self.which.parse()?
        };
        let kept = active
            .as_ref()
            .filter(|active| active.active.name == id.name())
            .and_then(|active| active.active.settings.clone());
        let mut choice = Choice {
            name: id.name().to_owned(),
            version: id.version().to_string(),
            sha256: registry.digest_of(&id, host.component_limit())?,
            settings: kept.filter(|_| !self.no_settings && self.settings.is_none()),
        };
        let artifact = registry.artifact(&choice, host.component_limit())?;
        let settings = match &self.settings {
            Some(path) => args::settings(Some(path))?,
            None => artifact.settings,
        };
        let wasm = artifact.wasm;
        let checked = self
            .check
            .load(
                &host,
                wasm.clone(),
                artifact.signature.as_deref(),
                &settings,
            )
            .await
            .with_context(|| format!("{id} is refused"))?;
        if checked.id != id {
            bail!(
                "{} says of itself that it is {}; a file is named after its manifest",
                artifact.path.display(),
                checked.id
            );
        }
        let mut news = String::new();
        if !self.ignore_fixtures {
            let passed = fixtures::check_kept(&host, &registry, &id, &wasm)
                .await
                .with_context(|| format!("{id} is refused"))?;
            news.extend(passed.map(|passed| format!("its {passed} fixtures passed\n")));
        }
        if let Some(active) = &active {
            let limit = host.component_limit();
            // What serves may itself be broken: no reason to keep it.
            if let Ok(present) = registry.artifact(&active.active, limit)
                && let Ok(present) = host.load(present.wasm, &present.settings).await
            {
                let change =
                    ColumnChange::between(present.manifest(), checked.normalizer.manifest());
                change.refuse(&active.active.to_string(), &id, self.drop_columns)?;
                news.push_str(&change.news());
            }
        }
        if self.settings.is_some() {
            choice.settings = Some(registry.add_settings(&settings)?);
        }
        let present = active.as_ref().map_or(0, |active| active.revision);
        told(&registry, &registry.activate(choice, Some(present))?, &news);
        Ok(())
    }

    /// Adds the file, tried with the settings that it is to serve with.
    async fn add(
        &self,
        registry: &Registry,
        host: &PluginHost,
        active: Option<&Activation>,
    ) -> anyhow::Result<VersionId> {
        let file = Path::new(&self.which);
        let add = async |settings: &str| {
            let added = add(registry, host, file, settings, &self.fixtures, &self.check).await?;
            anyhow::Ok(added.0)
        };
        let kept = match active {
            Some(active) if !self.no_settings && self.settings.is_none() => registry
                .artifact(&active.active, host.component_limit())
                .ok()
                .map(|artifact| artifact.settings),
            _ => None,
        };
        let Some(kept) = kept.filter(|kept| kept != "{}") else {
            return add(&args::settings(self.settings.as_ref())?).await;
        };
        match add(&kept).await {
            // It may be another normalizer, which has no use for these settings.
            Err(refused)
                if refused
                    .downcast_ref()
                    .is_some_and(LoadError::is_of_settings) =>
            {
                add("{}").await.map_err(|_| {
                    refused.context(
                        "with the settings of the active version (--settings FILE gives it others)",
                    )
                })
            }
            added => added,
        }
    }
}

impl RollbackCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        let registry = self.registry.registry();
        let present = registry.present()?.map_or(0, |present| present.revision);
        let target = registry.rollback_target(self.to)?;
        if !self.unchecked {
            let host = self.check.sandbox.host()?;
            let artifact = registry.artifact(&target.active, host.component_limit())?;
            let keys = self.check.trust.keys()?;
            keys.check(&artifact.wasm, artifact.signature.as_deref())
                .with_context(|| target.active.to_string())?;
            host.load(artifact.wasm, &artifact.settings)
                .await
                .with_context(|| {
                    format!(
                        "{} of revision {} can't serve either (--to REVISION takes another)",
                        target.active, target.revision
                    )
                })?;
        }
        told(&registry, &registry.rollback(self.to, Some(present))?, "");
        Ok(())
    }
}

/// What an activation or a rollback did.
fn told(registry: &Registry, activated: &Activated, news: &str) {
    let now = &activated.now;
    if !activated.changed() {
        println!(
            "{} is active already, with these settings (revision {}); hosts that refused it look again",
            now.active, now.revision
        );
        return;
    }
    let before = match &activated.before {
        Some(before) => format!("before: {}, revision {}", before.active, before.revision),
        None => "the first".to_owned(),
    };
    println!(
        "{} is active: revision {} ({before})",
        now.active, now.revision
    );
    if !news.is_empty() {
        println!("{}", news.trim_end());
    }
    println!(
        "hosts that follow {} swap between two batches; `cdr plugin status` shows them, `cdr plugin rollback` returns",
        registry.dir().display()
    );
}

impl ListCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        let registry = self.registry.registry();
        let entries = registry.list()?;
        let active = match registry.active() {
            Ok(activation) => Some(activation),
            Err(RegistryError::NotActivated { .. }) => None,
            // The rest is worth a look all the more.
            Err(error @ RegistryError::Activation { .. }) => {
                eprintln!("warning: {error}");
                None
            }
            Err(error) => return Err(error.into()),
        };
        let history = registry.history()?;
        if self.json {
            let entries: Vec<_> = entries
                .iter()
                .map(|entry| {
                    json!({
                        "version": entry.id.to_string(),
                        "path": entry.path,
                        "size": entry.size,
                        "signed": entry.signed,
                    })
                })
                .collect();
            let all = json!({"versions": entries, "active": active, "history": history});
            println!("{all:#}");
            return Ok(());
        }
        for entry in &entries {
            let id = entry.id.to_string();
            let mut marks = Vec::new();
            if let Some(active) = &active {
                if active.active.to_string() == id {
                    marks.push(format!("active (revision {})", active.revision));
                }
                if let Some(shadow) = &active.shadow
                    && shadow.candidate.to_string() == id
                {
                    marks.push(format!("in the shadow (sample {})", shadow.sample));
                }
            }
            if entry.signed {
                marks.push("signed".to_owned());
            }
            println!("{id:<40} {:>9} bytes  {}", entry.size, marks.join(", "));
        }
        if entries.is_empty() {
            println!("no versions in {}", registry.dir().display());
        }
        if !history.is_empty() {
            println!("\nrevision  what                                      when");
            for past in history {
                let settings = match &past.active.settings {
                    Some(settings) => format!("  settings {}", &settings.sha256[..12]),
                    None => String::new(),
                };
                println!(
                    "{:>8}  {:<40}  {}{settings}",
                    past.revision,
                    past.active.to_string(),
                    past.activated_at.as_deref().unwrap_or("by hand"),
                );
            }
        }
        Ok(())
    }
}
