//! What `cdr plugin test` and `cdr plugin bench` are about: a crate, which is
//! built first, or a .wasm file; and its fixtures.

use super::compile;
use crate::args::SandboxArgs;
use anyhow::{Context, bail};
use cdr_plugin_host::{Normalizer, PluginHost};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct SubjectArgs {
    /// The folder of a normalizer's crate, which is built, or a .wasm file
    path: PathBuf,
    /// Its fixtures [default: PATH/fixtures]
    #[arg(long, value_name = "DIR")]
    fixtures: Option<PathBuf>,
    /// The profile that cargo builds the crate with
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
    #[command(flatten)]
    sandbox: SandboxArgs,
    /// More for `cargo build`, as in `cdr plugin test . -- --locked`
    #[arg(last = true, value_name = "CARGO_ARGUMENTS")]
    cargo: Vec<String>,
}

/// A .wasm and the folder of its fixtures.
pub struct Subject {
    pub wasm: PathBuf,
    pub fixtures: PathBuf,
    /// The crate that it was built from.
    pub folder: Option<PathBuf>,
    pub host: PluginHost,
}

impl SubjectArgs {
    /// Builds the crate, if it is one, and starts a host.
    pub fn prepare(&self) -> anyhow::Result<Subject> {
        let path = &self.path;
        let fixtures = self.fixtures.clone();
        let (wasm, fixtures, folder) = if path.is_dir() {
            if !path.join("Cargo.toml").is_file() {
                bail!(
                    "{} has no Cargo.toml: name the folder of a normalizer's crate, or a .wasm file",
                    path.display()
                );
            }
            let wasm = compile::component(path, &self.profile, &self.cargo)?;
            let fixtures = fixtures.unwrap_or_else(|| path.join("fixtures"));
            (wasm, fixtures, Some(path.clone()))
        } else {
            if !path.exists() {
                bail!(
                    "{} is not there: name the folder of a normalizer's crate, or a .wasm file",
                    path.display()
                );
            }
            let fixtures = fixtures.with_context(|| {
                format!(
                    "{} is a file: say with --fixtures DIR where its fixtures are",
                    path.display()
                )
            })?;
            (path.clone(), fixtures, None)
        };
        Ok(Subject {
            wasm,
            fixtures,
            folder,
            host: self.sandbox.host()?,
        })
    }
}

impl Subject {
    pub async fn load(&self, settings: &str) -> anyhow::Result<Normalizer> {
        self.host
            .load_file(&self.wasm, settings)
            .await
            .with_context(|| self.wasm.display().to_string())
    }
}
