//! A real ClickHouse for a test, a false one for answers that a real one does
//! not give on demand, and rows to send.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub mod data;
pub mod false_server;
pub mod proxy;
pub mod users;

use std::path::{Path, PathBuf};

use cdr_embedded::{ChildLogs, ClickHouse, PartConfig, clickhouse::library};
use cdr_store::{
    DedupToken, EncodedBlock, Evolution, OffsetRange, Password, Rows, Store, StoreConfig, provision,
};

/// A ClickHouse of this test alone, in a temporary folder.
pub struct Engine {
    pub clickhouse: ClickHouse,
    folder: tempfile::TempDir,
}

impl Engine {
    pub async fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap()).await
    }

    /// With the users of [`users`], and the part of a configuration.
    pub async fn start_with(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // ClickHouse merges such files into the ones that it is started with.
        add(folder.path(), "users.d", &users::xml());
        add(folder.path(), "config.d", config);
        Self::start_in(folder).await
    }

    async fn start_in(folder: tempfile::TempDir) -> Self {
        Self {
            clickhouse: start_on(folder.path()).await,
            folder,
        }
    }

    /// What it keeps its data in.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("clickhouse")
    }

    /// Kills it without warning; the folder stays.
    pub async fn kill(mut self) -> Stopped {
        self.clickhouse.process.kill().await.unwrap();
        Stopped {
            folder: self.folder,
        }
    }

    /// Kills it without warning and starts it again on the same data.
    pub async fn crash_and_restart(self) -> Self {
        self.kill().await.restart().await
    }

    /// A store for one of [`users`].
    pub fn store_as(&self, user: &str, table: &str) -> Store {
        Store::new(StoreConfig {
            user: user.into(),
            password: Password::new(users::PASSWORD),
            ..self.config(table)
        })
        .unwrap()
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

/// What is left of a killed ClickHouse.
pub struct Stopped {
    folder: tempfile::TempDir,
}

impl Stopped {
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("clickhouse")
    }

    pub fn reconfigure(&self, config: &str) {
        add(self.folder.path(), "config.d", config);
    }

    pub async fn restart(self) -> Engine {
        Engine::start_in(self.folder).await
    }
}

fn add(folder: &Path, kind: &str, text: &str) {
    use std::os::unix::fs::DirBuilderExt;
    let folder = folder.join("clickhouse").join(kind);
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(&folder).unwrap();
    let text = format!("<clickhouse>{text}</clickhouse>");
    std::fs::write(folder.join("test.xml"), text).unwrap();
}

/// The table of the reference normalizer, without expiry: nothing here is to
/// depend on what day it is.
pub async fn provisioned(engine: &Engine, table: &str) -> Store {
    let store = engine.store(table);
    provision::apply(&store, &data::cdr_table(table), Evolution::Add)
        .await
        .unwrap();
    let keep = format!("ALTER TABLE telecom.{table} REMOVE TTL");
    store.execute(&keep).await.unwrap();
    store
}

pub fn encoded(rows: &Rows) -> EncodedBlock {
    EncodedBlock::new(rows).unwrap()
}

/// Rows as they lie in the table, duplicates included.
pub async fn physical_rows(store: &Store) -> u64 {
    let sql = format!("SELECT count() AS n FROM {}", store.quoted_table());
    let rows: Vec<serde_json::Value> = store.query_rows(&sql).await.unwrap();
    rows[0]["n"].as_u64().unwrap()
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
