//! Builds the crate of a normalizer, as its author would: with cargo.

use anyhow::{Context, bail};
use serde_json::Value;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What normalizers are compiled for.
const TARGET: &str = "wasm32-wasip2";

/// Builds the crate in `folder` and returns the .wasm that came out. Cargo's own
/// output goes to standard error, as ever.
pub fn component(folder: &Path, profile: &str, arguments: &[String]) -> anyhow::Result<PathBuf> {
    // Cargo names manifests by such paths.
    let folder = &folder
        .canonicalize()
        .with_context(|| format!("can't find the folder {}", folder.display()))?;
    let manifest = folder.join("Cargo.toml");
    let mut cargo = Command::new(program("CARGO", "cargo"))
        .current_dir(folder)
        .args(["build", "--lib", "--target", TARGET, "--profile", profile])
        .args(["--message-format", "json-render-diagnostics"])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context(
            "can't run cargo; install Rust (https://rustup.rs), or set CARGO to where it is",
        )?;
    let mut built = None;
    if let Some(messages) = cargo.stdout.take() {
        for line in BufReader::new(messages).lines() {
            let line = line.context("can't read what cargo says")?;
            if let Ok(message) = serde_json::from_str::<Value>(&line)
                && let Some(file) = artifact(&message, &manifest)
            {
                built = Some(file);
            }
        }
    }
    let status = cargo.wait().context("can't wait for cargo")?;
    if !status.success() {
        if let Some(advice) = missing_target(folder) {
            bail!(advice);
        }
        bail!("{} does not build; cargo says why above", folder.display());
    }
    built.with_context(|| {
        format!(
            "{} builds, but makes no .wasm: its Cargo.toml needs crate-type = [\"cdylib\"] under [lib]",
            folder.display()
        )
    })
}

/// The .wasm that a message of cargo's is about, if it is about this crate's.
fn artifact(message: &Value, manifest: &Path) -> Option<PathBuf> {
    let is_ours = message["reason"] == "compiler-artifact"
        && Path::new(message["manifest_path"].as_str()?) == manifest;
    if !is_ours {
        return None;
    }
    message["filenames"]
        .as_array()?
        .iter()
        .filter_map(Value::as_str)
        .map(PathBuf::from)
        .find(|file| file.extension().is_some_and(|ending| ending == "wasm"))
}

/// Asked only once a build has failed: there are ways to build without the
/// target's files in place (`-Zbuild-std`).
fn missing_target(folder: &Path) -> Option<String> {
    let answer = Command::new(program("RUSTC", "rustc"))
        .current_dir(folder)
        .args(["--print", "target-libdir", "--target", TARGET])
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let libraries = String::from_utf8(answer.stdout).ok()?;
    (answer.status.success() && !Path::new(libraries.trim()).is_dir()).then(|| {
        format!(
            "the Rust target {TARGET} is not installed: run `rustup target add {TARGET}`, then try again"
        )
    })
}

fn program(variable: &str, otherwise: &str) -> OsString {
    std::env::var_os(variable).unwrap_or_else(|| otherwise.into())
}
