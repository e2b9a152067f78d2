//! A real ClickHouse for a test, a false one for answers that a real one does
//! not give on demand, and rows to send.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub mod data;
pub mod false_server;

use std::path::{Path, PathBuf};

use cdr_embedded::{ChildLogs, ClickHouse, PartConfig, clickhouse::library};
use cdr_store::{DedupToken, OffsetRange, Password, Store, StoreConfig};

/// A ClickHouse of this test alone, in a temporary folder.
pub struct Engine {
    pub clickhouse: ClickHouse,
    folder: tempfile::TempDir,
}

impl Engine {
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            clickhouse: start_on(folder.path()).await,
            folder,
        }
    }

    /// Kills it without warning and starts it again on the same data.
    pub async fn crash_and_restart(self) -> Self {
        let Self { clickhouse, folder } = self;
        drop(clickhouse);
        Self {
            clickhouse: start_on(folder.path()).await,
            folder,
        }
    }

    pub fn config(&self, table: &str) -> StoreConfig {
        StoreConfig {
            url: self.clickhouse.url(),
            user: self.clickhouse.user().into(),
            password: Password::new(self.clickhouse.password()),
            table: table.into(),
            ..StoreConfig::default()
        }
    }

    pub fn store(&self, table: &str) -> Store {
        Store::new(self.config(table)).unwrap()
    }
}

async fn start_on(folder: &Path) -> ClickHouse {
    let config = PartConfig {
        exe: part_binary(),
        data: folder.join("clickhouse"),
        port: None,
        logs: ChildLogs::Files(folder.join("logs")),
    };
    let library = library::ensure(&library::default_cache(), |step| eprintln!("{step}"))
        .await
        .unwrap();
    ClickHouse::start(config, &library).await.unwrap()
}

/// The binary that has the subcommand `embedded clickhouse`: the one that
/// `CDR_EMBEDDED_PART` names, or that of `cdr-embedded`, beside the folder of
/// this executable. Cargo does not build it for the tests of another package.
fn part_binary() -> PathBuf {
    if let Some(given) = std::env::var_os("CDR_EMBEDDED_PART") {
        return given.into();
    }
    let me = std::env::current_exe().unwrap();
    let binary = me
        .parent()
        .and_then(Path::parent)
        .unwrap()
        .join("cdr-embedded-part");
    if !binary.exists() {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        let built = std::process::Command::new(cargo)
            .args([
                "build",
                "--package",
                "cdr-embedded",
                "--bin",
                "cdr-embedded-part",
            ])
            .status();
        assert!(
            built.is_ok_and(|status| status.success()) && binary.exists(),
            "{} is missing; run `cargo build -p cdr-embedded`",
            binary.display()
        );
    }
    binary
}

pub fn token(name: &str) -> DedupToken {
    let range = OffsetRange {
        partition: 0,
        first: 0,
        last: 9,
        first_timestamp: 1_700_000_000_000,
    };
    DedupToken::new(name, &[range], "sha256:test")
}
