//! A registry of versions of one normalizer, worked with as an operator does.

use super::bed::Bed;
use super::{settings, version};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A registry in a folder.
pub struct TestRegistry {
    pub dir: PathBuf,
    files: tempfile::TempDir,
}

impl TestRegistry {
    /// With this version active, under the settings of the tests.
    pub fn with(dir: PathBuf, text: &str) -> Self {
        let registry = Self {
            dir,
            files: tempfile::tempdir().unwrap(),
        };
        let settings = settings().display().to_string();
        registry.succeeds(&["activate", &registry.file(text), "--settings", &settings]);
        registry
    }

    /// A file that is this version, outside the registry.
    pub fn file(&self, text: &str) -> String {
        let number = text.split(' ').next().unwrap();
        let path = self.files.path().join(format!("build-{number}.wasm"));
        std::fs::write(&path, version(text)).unwrap();
        path.display().to_string()
    }

    /// `cdr plugin ARGS…` on this registry.
    pub fn plugin(&self, args: &[&str]) -> Output {
        plugin(args, &[("NORMALIZER_DIR", self.dir.display().to_string())])
    }

    /// The same; it must succeed. What it wrote.
    pub fn succeeds(&self, args: &[&str]) -> String {
        let output = self.plugin(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The same; it must fail, and say these words.
    pub fn fails(&self, args: &[&str], words: &[&str]) {
        let output = self.plugin(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        for word in words {
            assert!(said.contains(word), "{args:?}: {word:?} is not in: {said}");
        }
    }

    /// The content of `active.json`.
    pub fn active(&self) -> serde_json::Value {
        read(&self.dir.join("active.json"))
    }

    /// Writes `active.json` as a person would who knows no command.
    pub fn write_active(&self, active: &serde_json::Value) {
        let aside = self.dir.join("active.json.new");
        std::fs::write(&aside, active.to_string()).unwrap();
        std::fs::rename(aside, self.dir.join("active.json")).unwrap();
    }
}

fn read(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// `cdr plugin ARGS…` with these variables.
pub fn plugin(args: &[&str], env: &[(&str, String)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cdr"))
        .arg("plugin")
        .args(args)
        .envs(env.iter().map(|(name, value)| (name, value)))
        .env("RUST_BACKTRACE", "0")
        .output()
        .unwrap()
}

/// A bed whose hosts follow a registry, in which this version is active.
pub async fn bed_with(text: &str) -> (Bed, TestRegistry) {
    let data = tempfile::tempdir().unwrap();
    // It lives as long as the process: hosts look at it to the end.
    let registry = TestRegistry::with(data.keep().join("normalizers"), text);
    let dir = registry.dir.display().to_string();
    let bed = Bed::start_with(&[
        ("NORMALIZER_DIR", dir),
        ("NORMALIZER_POLL_SECONDS", "1".to_owned()),
        ("BATCH_FLUSH_INTERVAL_SECONDS", "0.1".to_owned()),
    ])
    .await;
    (bed, registry)
}
