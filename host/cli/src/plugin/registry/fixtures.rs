//! The fixtures that a version brings along: it serves only while it passes them.

use anyhow::{Context, bail};
use cdr_plugin_host::fixtures::{Fixtures, Mismatch};
use cdr_plugin_host::registry::VersionId;
use cdr_plugin_host::{PluginHost, Registry};
use std::path::{Path, PathBuf};

/// How many differences are told in full.
const TOLD: usize = 3;

#[derive(Debug, clap::Args)]
pub struct FixturesArgs {
    /// The fixtures of a FILE.wasm, a folder as for `cdr plugin test`; kept beside it, and run by every activation
    #[arg(long, value_name = "DIR")]
    fixtures: Option<PathBuf>,
}

impl FixturesArgs {
    /// The folder, if one was named.
    pub fn dir(&self) -> Option<&Path> {
        self.fixtures.as_deref()
    }

    /// Runs the named fixtures, if there are any.
    pub async fn check(&self, host: &PluginHost, wasm: &[u8]) -> anyhow::Result<()> {
        match &self.fixtures {
            None => Ok(()),
            Some(dir) => passed(host, wasm, dir).await.map(drop),
        }
    }
}

/// Runs the fixtures that were kept with a version, if there are any; says how many
/// passed.
pub async fn check_kept(
    host: &PluginHost,
    registry: &Registry,
    id: &VersionId,
    wasm: &[u8],
) -> anyhow::Result<Option<usize>> {
    let dir = registry.fixtures_path_of(id);
    match dir.is_dir() {
        false => Ok(None),
        true => match passed(host, wasm, &dir).await {
            Ok(passed) => Ok(Some(passed)),
            Err(error) => bail!("{error:#}\n--ignore-fixtures lets it serve all the same"),
        },
    }
}

/// How many fixtures passed, which is all of them.
async fn passed(host: &PluginHost, wasm: &[u8], dir: &Path) -> anyhow::Result<usize> {
    let fixtures = Fixtures::read(dir)?;
    let normalizer = host
        .load(wasm.to_vec(), fixtures.settings())
        .await
        .with_context(|| format!("with the settings of {}", dir.display()))?;
    let mismatches = fixtures.check(&normalizer).await?;
    if mismatches.is_empty() {
        return Ok(fixtures.len());
    }
    let told: Vec<String> = mismatches
        .iter()
        .take(TOLD)
        .map(Mismatch::to_string)
        .collect();
    let more = match mismatches.len().saturating_sub(TOLD) {
        0 => String::new(),
        more => format!("\n…and {more} more"),
    };
    bail!(
        "{} of {} fixtures in {} differ:\n{}{more}",
        mismatches.len(),
        fixtures.len(),
        dir.display(),
        told.join("\n"),
    )
}
