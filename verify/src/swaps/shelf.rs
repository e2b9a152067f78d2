//! A registry with versions that may serve and files that must not, and an operator
//! who lets one after the other serve.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::parts::Build;

/// The name in the manifest of each.
const NAME: &str = "cdr-versions";

/// Versions that may serve, as [`cdr_versions::patched`] has them; the last has what
/// each of them has.
pub const GOOD: [&str; 3] = [
    "1.0.0",
    "1.1.0 +roaming:category",
    "1.2.0 +roaming:category +hops:uint32?",
];

/// Like the last of them, but added without being compiled: each host does that
/// itself while it serves.
pub const COLD: &str = "1.4.0 +roaming:category +hops:uint32?";

/// One that the table can't take, which workers refuse, and the API, which has no
/// table, need not.
const INCOMPATIBLE: &str = "1.3.0 +roaming:category duration_s=text";

/// What must not serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bad {
    /// A file whose digest is another than that of the activation.
    WrongDigest,
    /// A version that is not there.
    Missing,
    /// Half a file.
    CutOff,
    /// A file that says of itself that it is another version.
    OtherManifest,
    /// A version with a column of another type than the table has.
    IncompatibleTable,
    /// An `active.json` that is none.
    NoJson,
}

impl Bad {
    /// All of them.
    pub const ALL: [Bad; 6] = [
        Bad::WrongDigest,
        Bad::Missing,
        Bad::CutOff,
        Bad::OtherManifest,
        Bad::IncompatibleTable,
        Bad::NoJson,
    ];
}

/// A registry folder whose `active.json` is written as a person would.
#[derive(Debug)]
pub struct Shelf {
    dir: PathBuf,
    settings: Value,
    revision: u64,
}

impl Shelf {
    /// Fills a registry by `cdr plugin`, so that each version is checked and its code
    /// compiled. The first of [`GOOD`] is active.
    ///
    /// # Errors
    /// `cdr plugin` refuses a version, or a file can't be written.
    pub async fn fill(build: &Build, dir: &Path, say: impl Fn(&str)) -> anyhow::Result<Self> {
        let wasm = std::fs::read(&build.normalizer)
            .with_context(|| build.normalizer.display().to_string())?;
        let file = build.folder.join("version.wasm");
        for (index, text) in GOOD.iter().chain([&INCOMPATIBLE]).enumerate() {
            say(&format!("checking and compiling {NAME} {text}"));
            std::fs::write(&file, cdr_versions::patched(&wasm, text))?;
            let command = if index == 0 { "activate" } else { "add" };
            let settings = build.normalizer_settings.display().to_string();
            let file = file.display().to_string();
            plugin(build, dir, &[command, &file, "--settings", &settings]).await?;
        }
        let copy = |from: &str, to: &str, cut: bool| -> anyhow::Result<()> {
            let mut wasm = std::fs::read(dir.join(format!("{NAME}@{from}.wasm")))?;
            if cut {
                wasm.truncate(wasm.len() / 2);
            }
            Ok(std::fs::write(dir.join(format!("{NAME}@{to}.wasm")), wasm)?)
        };
        let cold = cdr_versions::patched(&wasm, COLD);
        std::fs::write(dir.join(format!("{NAME}@{}.wasm", number(COLD))), cold)?;
        copy("1.0.0", "9.1.0", true)?;
        copy("1.0.0", "9.2.0", false)?;
        let active: Value = serde_json::from_slice(&std::fs::read(dir.join("active.json"))?)?;
        Ok(Self {
            dir: dir.to_owned(),
            settings: active["active"]["settings"].clone(),
            revision: active["revision"].as_u64().unwrap_or(1),
        })
    }

    /// The number of the latest activation.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Lets the version number `index` of [`GOOD`] serve.
    ///
    /// # Errors
    /// It can't be written.
    pub fn activate(&mut self, index: usize) -> anyhow::Result<()> {
        self.choose(number(GOOD[index]), None)
    }

    /// Lets a version serve that nobody has compiled yet.
    ///
    /// # Errors
    /// It can't be written.
    pub fn activate_cold(&mut self) -> anyhow::Result<()> {
        self.choose(number(COLD), None)
    }

    /// Returns to the version before by `cdr plugin rollback`.
    ///
    /// # Errors
    /// It fails.
    pub async fn rollback(&mut self, build: &Build) -> anyhow::Result<()> {
        plugin(build, &self.dir, &["rollback"]).await?;
        let active = std::fs::read(self.dir.join("active.json"))?;
        let active: Value = serde_json::from_slice(&active)?;
        self.revision = active["revision"].as_u64().context("a revision")?;
        Ok(())
    }

    /// Lets serve what must not.
    ///
    /// # Errors
    /// It can't be written.
    pub fn activate_bad(&mut self, bad: Bad) -> anyhow::Result<()> {
        let of_nothing = || Some(hex::encode(Sha256::digest(b"")));
        match bad {
            Bad::WrongDigest => self.choose("1.0.0", of_nothing()),
            Bad::Missing => self.choose("9.0.0", of_nothing()),
            Bad::CutOff => self.choose("9.1.0", None),
            Bad::OtherManifest => self.choose("9.2.0", None),
            Bad::IncompatibleTable => self.choose(number(INCOMPATIBLE), None),
            Bad::NoJson => self.write("{\"active\": {\"name\": \"cdr-ver"),
        }
    }

    fn choose(&mut self, version: &str, sha256: Option<String>) -> anyhow::Result<()> {
        let sha256 = match sha256 {
            Some(sha256) => sha256,
            None => {
                let file = self.dir.join(format!("{NAME}@{version}.wasm"));
                hex::encode(Sha256::digest(std::fs::read(file)?))
            }
        };
        let active = json!({
            "active": {
                "name": NAME,
                "version": version,
                "sha256": sha256,
                "settings": self.settings,
            },
            "revision": self.revision + 1,
        });
        self.write(&active.to_string())
    }

    fn write(&mut self, text: &str) -> anyhow::Result<()> {
        self.revision += 1;
        let aside = self.dir.join("active.json.new");
        std::fs::write(&aside, text)?;
        std::fs::rename(aside, self.dir.join("active.json"))?;
        Ok(())
    }
}

/// `cdr plugin ARGS…`, which must succeed.
async fn plugin(build: &Build, dir: &Path, args: &[&str]) -> anyhow::Result<()> {
    let output = tokio::process::Command::new(&build.cdr)
        .arg("plugin")
        .args(args)
        .env("NORMALIZER_DIR", dir)
        .envs(build.settings.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .output()
        .await
        .with_context(|| build.cdr.display().to_string())?;
    if !output.status.success() {
        bail!(
            "cdr plugin {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

/// The number in the text of a version.
pub fn number(text: &str) -> &str {
    text.split(' ').next().unwrap_or(text)
}
