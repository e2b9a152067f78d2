//! `cdr plugin shadow`: a candidate on live batches.

use super::registry::{CheckArgs, RegistryArgs};
use crate::args;
use anyhow::{Context, bail};
use cdr_plugin_host::registry::{Choice, Shadow, VersionId, check_sample};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Workers that follow the registry show the candidate a sample of their batches, on one thread of the \
                  lowest priority; under load batches are dropped from it before anything else waits. Nothing it \
                  answers reaches ClickHouse or Kafka. `cdr plugin diff` shows what it would have done differently."
)]
pub struct ShadowCommand {
    /// The candidate, which lies in the registry
    #[arg(value_name = "NAME@VERSION", required_unless_present = "off")]
    which: Option<VersionId>,
    /// The share of batches that it is shown, above 0 and up to 1
    #[arg(long, default_value_t = 0.1)]
    sample: f64,
    /// Its settings, a JSON file [default: those of the active version, if it has the same name]
    #[arg(long, value_name = "FILE.json")]
    settings: Option<PathBuf>,
    /// End what runs in the shadow
    #[arg(long, conflicts_with_all = ["which", "settings"])]
    off: bool,
    #[command(flatten)]
    registry: RegistryArgs,
    #[command(flatten)]
    check: CheckArgs,
}

impl ShadowCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        let registry = self.registry.registry();
        let Some(id) = self.which.as_ref().filter(|_| !self.off) else {
            let activation = registry.set_shadow(None)?;
            println!("nothing runs in the shadow of {}", activation.active);
            return Ok(());
        };
        check_sample(self.sample)?;
        let active = registry.active()?;
        let host = self.check.sandbox.host()?;
        let mut candidate = Choice {
            name: id.name().to_owned(),
            version: id.version().to_string(),
            sha256: registry.digest_of(id, host.component_limit())?,
            settings: match (&self.settings, active.active.name == id.name()) {
                (None, true) => active.active.settings.clone(),
                _ => None,
            },
        };
        if let Some(path) = &self.settings {
            candidate.settings = Some(registry.add_settings(&args::settings(Some(path))?)?);
        }
        if candidate == active.active {
            bail!("{id} serves already, with these settings: there is nothing to compare");
        }
        let artifact = registry.artifact(&candidate, host.component_limit())?;
        let keys = self.check.trust.keys()?;
        keys.check(&artifact.wasm, artifact.signature.as_deref())
            .with_context(|| id.to_string())?;
        host.load(artifact.wasm, &artifact.settings)
            .await
            .with_context(|| format!("{id} is refused"))?;
        registry.set_shadow(Some(Shadow {
            candidate,
            sample: self.sample,
        }))?;
        println!(
            "{id} runs in the shadow of {}, on {} of the batches; `cdr plugin diff` shows what it sees, \
             `cdr plugin shadow --off` ends it",
            active.active, self.sample
        );
        Ok(())
    }
}
