//! Settings that several commands share.

use anyhow::Context;
use cdr_plugin_host::{HostConfig, Limits, Normalizer, PluginHost};
use cdr_store::{Password, Store, StoreConfig};
use std::path::PathBuf;
use std::time::Duration;

/// Which normalizer, with which settings, in which limits.
#[derive(Debug, Clone, clap::Args)]
pub struct NormalizerArgs {
    /// The normalizer, a WebAssembly component
    #[arg(long, env = "NORMALIZER", value_name = "FILE.wasm")]
    pub normalizer: PathBuf,
    /// Its settings, a JSON file [default: none, which it sees as {}]
    #[arg(long, env = "NORMALIZER_SETTINGS", value_name = "FILE.json")]
    pub normalizer_settings: Option<PathBuf>,
    #[command(flatten)]
    pub sandbox: SandboxArgs,
}

/// The limits of the sandbox.
#[derive(Debug, Clone, clap::Args)]
pub struct SandboxArgs {
    /// Memory that an instance may use, in MiB
    #[arg(long, env = "NORMALIZER_MEMORY_MIB", default_value_t = 256,
          value_parser = clap::value_parser!(u32).range(2..=4095))]
    pub normalizer_memory_mib: u32,
    /// Time for a call, in milliseconds
    #[arg(long, env = "NORMALIZER_CALL_TIMEOUT_MS", default_value_t = 250,
          value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub normalizer_call_timeout_ms: u64,
    /// Time for each record of a call on top, in microseconds
    #[arg(long, env = "NORMALIZER_RECORD_TIMEOUT_US", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub normalizer_record_timeout_us: u64,
    /// Threads that it runs on; 0: one a processor
    #[arg(long, env = "NORMALIZER_THREADS", default_value_t = 0,
          value_parser = clap::value_parser!(u16).range(0..=512))]
    pub normalizer_threads: u16,
    /// Where compiled code is kept [default: ~/.cache/cdr/compiled]; empty: nowhere
    #[arg(long, env = "NORMALIZER_CACHE_DIR", value_name = "DIR", value_parser = path_or_empty())]
    pub normalizer_cache_dir: Option<PathBuf>,
}

/// clap's own parser of paths refuses the empty one.
fn path_or_empty() -> impl clap::builder::TypedValueParser<Value = PathBuf> {
    use clap::builder::TypedValueParser;
    clap::builder::OsStringValueParser::new().map(PathBuf::from)
}

impl SandboxArgs {
    /// Starts a plugin host.
    pub fn host(&self) -> anyhow::Result<PluginHost> {
        let defaults = HostConfig::default();
        let config = HostConfig {
            limits: Limits {
                memory_bytes: (self.normalizer_memory_mib as usize) << 20,
                call_base: Duration::from_millis(self.normalizer_call_timeout_ms),
                call_per_record: Duration::from_micros(self.normalizer_record_timeout_us),
                ..Limits::default()
            },
            threads: match self.normalizer_threads {
                0 => defaults.threads,
                threads => threads.into(),
            },
            cache_dir: match &self.normalizer_cache_dir {
                Some(dir) if dir.as_os_str().is_empty() => None,
                Some(dir) => Some(dir.clone()),
                None => cdr_plugin_host::config::default_cache_dir(),
            },
            ..defaults
        };
        Ok(PluginHost::new(&config)?)
    }
}

impl NormalizerArgs {
    /// The settings, as the normalizer gets them.
    pub fn settings(&self) -> anyhow::Result<String> {
        settings(self.normalizer_settings.as_ref())
    }

    /// Loads the normalizer.
    pub async fn load(&self) -> anyhow::Result<Normalizer> {
        let settings = self.settings()?;
        let host = self.sandbox.host()?;
        host.load_file(&self.normalizer, &settings)
            .await
            .with_context(|| self.normalizer.display().to_string())
    }
}

/// The content of a settings file, or `{}`.
pub fn settings(file: Option<&PathBuf>) -> anyhow::Result<String> {
    match file {
        None => Ok("{}".to_owned()),
        Some(path) => std::fs::read_to_string(path)
            .with_context(|| format!("can't read the normalizer's settings {}", path.display())),
    }
}

/// Where ClickHouse is.
#[derive(Debug, Clone, clap::Args)]
pub struct StoreArgs {
    /// ClickHouse's HTTP interface
    #[arg(long, env = "CLICKHOUSE_URL", default_value = "http://127.0.0.1:8123")]
    pub clickhouse_url: String,
    /// ClickHouse user
    #[arg(long, env = "CLICKHOUSE_USER", default_value = "default")]
    pub clickhouse_user: String,
    /// Its password; prefer the environment, flags are seen by other users
    #[arg(long, env = "CLICKHOUSE_PASSWORD", hide_env_values = true, default_value = "", hide_default_value = true, value_parser = password)]
    pub clickhouse_password: Password,
    /// Database of the table
    #[arg(long, env = "CLICKHOUSE_DATABASE", default_value = "telecom")]
    pub clickhouse_database: String,
    /// Table of the rows
    #[arg(long, env = "CLICKHOUSE_TABLE", default_value = "cdr_records")]
    pub clickhouse_table: String,
    /// Time for an insert or a query, in seconds
    #[arg(long, env = "CLICKHOUSE_TIMEOUT_SECONDS", default_value_t = 30,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub clickhouse_timeout_seconds: u64,
}

fn password(text: &str) -> Result<Password, std::convert::Infallible> {
    Ok(Password::new(text))
}

impl StoreArgs {
    /// The table; no connection is made yet.
    pub fn store(&self) -> anyhow::Result<Store> {
        let timeout = Duration::from_secs(self.clickhouse_timeout_seconds);
        Ok(Store::new(StoreConfig {
            url: self.clickhouse_url.clone(),
            user: self.clickhouse_user.clone(),
            password: self.clickhouse_password.clone(),
            database: self.clickhouse_database.clone(),
            table: self.clickhouse_table.clone(),
            insert_timeout: timeout,
            query_timeout: timeout,
            ..StoreConfig::default()
        })?)
    }
}
