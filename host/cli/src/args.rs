//! Settings that several commands share.

use anyhow::Context;
use cdr_plugin_host::{
    FollowConfig, Follower, HostConfig, Limits, Live, Normalizer, PluginHost, Registry, Reuse,
    TrustedKeys,
};
use cdr_store::{Password, Store, StoreConfig};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Which normalizer, with which settings, in which limits.
#[derive(Debug, Clone, clap::Args)]
#[command(group = clap::ArgGroup::new("which").required(true).args(["normalizer", "normalizer_dir"]))]
pub struct NormalizerArgs {
    /// The normalizer, a WebAssembly component that is never swapped
    #[arg(long, env = "NORMALIZER", value_name = "FILE.wasm")]
    pub normalizer: Option<PathBuf>,
    /// Its settings, a JSON file [default: none, which it sees as {}]; in a registry, settings belong to the activation
    #[arg(
        long,
        env = "NORMALIZER_SETTINGS",
        value_name = "FILE.json",
        conflicts_with = "normalizer_dir"
    )]
    pub normalizer_settings: Option<PathBuf>,
    /// The registry of normalizers, in which `cdr plugin activate` says what serves; followed without a restart
    #[arg(long, env = "NORMALIZER_DIR", value_name = "DIR")]
    pub normalizer_dir: Option<PathBuf>,
    /// How often the registry is looked at where the system tells of no change, in seconds
    #[arg(long, env = "NORMALIZER_POLL_SECONDS", default_value_t = 2,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub normalizer_poll_seconds: u64,
    #[command(flatten)]
    pub trust: TrustArgs,
    #[command(flatten)]
    pub sandbox: SandboxArgs,
}

/// Whose normalizers may run.
#[derive(Debug, Clone, clap::Args)]
pub struct TrustArgs {
    /// minisign public keys, separated by commas: when set, only what one of them signed is loaded
    #[arg(long, env = "NORMALIZER_TRUSTED_KEYS", value_name = "KEY,…")]
    pub normalizer_trusted_keys: Option<String>,
}

impl TrustArgs {
    /// The keys.
    pub fn keys(&self) -> anyhow::Result<TrustedKeys> {
        let text = self.normalizer_trusted_keys.as_deref().unwrap_or_default();
        TrustedKeys::new(text).context("NORMALIZER_TRUSTED_KEYS")
    }
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
    /// Batches that an instance of a normalizer may answer whose state can't be snapshotted; 0: it
    /// is refused
    #[arg(long, env = "NORMALIZER_REUSE_CALLS", default_value_t = 0)]
    pub normalizer_reuse_calls: u32,
    /// Memory above which such an instance is retired, in MiB
    #[arg(long, env = "NORMALIZER_REUSE_MEMORY_MIB", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=4095))]
    pub normalizer_reuse_memory_mib: u32,
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
        Ok(PluginHost::new(&self.config())?)
    }

    /// Starts one that serves: what is loaded takes little from what runs meanwhile.
    pub fn serving_host(&self) -> anyhow::Result<PluginHost> {
        Ok(PluginHost::new(&self.host_config())?)
    }

    fn host_config(&self) -> HostConfig {
        HostConfig {
            load_nice: Some(10),
            ..self.config()
        }
    }

    /// Starts one for a candidate in the shadow, which gets what nobody else wants.
    pub fn shadow_host(&self) -> anyhow::Result<PluginHost> {
        Ok(PluginHost::new(&HostConfig {
            threads: 1,
            queue: 0,
            nice: 19,
            ..self.host_config()
        })?)
    }

    fn config(&self) -> HostConfig {
        let defaults = HostConfig::default();
        HostConfig {
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
            reuse: (self.normalizer_reuse_calls > 0).then_some(Reuse {
                max_calls: self.normalizer_reuse_calls,
                max_memory_bytes: (self.normalizer_reuse_memory_mib as usize) << 20,
            }),
            cache_dir: match &self.normalizer_cache_dir {
                Some(dir) if dir.as_os_str().is_empty() => None,
                Some(dir) => Some(dir.clone()),
                None => cdr_plugin_host::config::default_cache_dir(),
            },
            ..defaults
        }
    }
}

impl NormalizerArgs {
    /// The settings of a single file, as the normalizer gets them.
    fn settings(&self) -> anyhow::Result<String> {
        settings(self.normalizer_settings.as_ref())
    }

    /// Loads what serves now, for a look.
    pub async fn load(&self) -> anyhow::Result<Normalizer> {
        let (live, _) = self.live(false).await?;
        Ok(live.current().normalizer.clone())
    }

    /// Loads what serves, and gives what follows the registry, if there is one.
    /// `shadow`: whether a candidate in the shadow is run here.
    pub async fn live(&self, shadow: bool) -> anyhow::Result<(Live, Option<Follower>)> {
        let host = self.sandbox.serving_host()?;
        let keys = self.trust.keys()?;
        if let Some(dir) = &self.normalizer_dir {
            let config = FollowConfig {
                host,
                shadow_host: shadow.then(|| self.sandbox.shadow_host()).transpose()?,
                registry: Registry::new(dir),
                keys,
                poll: Duration::from_secs(self.normalizer_poll_seconds),
            };
            let (follower, live) = Follower::start(config).await?;
            return Ok((live, Some(follower)));
        }
        // clap sees to it that one of the two is there.
        let file = self.normalizer.clone().unwrap_or_default();
        let settings = self.settings()?;
        let signature = std::fs::read_to_string(signature_path(&file)).ok();
        let wasm = host.read(&file)?;
        keys.check(&wasm, signature.as_deref())
            .with_context(|| file.display().to_string())?;
        let normalizer = host
            .load(wasm, &settings)
            .await
            .with_context(|| file.display().to_string())?;
        Ok((Live::fixed(normalizer), None))
    }

    /// What a child process is told to run the same.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut env: Vec<(OsString, OsString)> = vec![(
            "NORMALIZER_POLL_SECONDS".into(),
            self.normalizer_poll_seconds.to_string().into(),
        )];
        for (name, path) in [
            ("NORMALIZER", &self.normalizer),
            ("NORMALIZER_SETTINGS", &self.normalizer_settings),
            ("NORMALIZER_DIR", &self.normalizer_dir),
            ("NORMALIZER_CACHE_DIR", &self.sandbox.normalizer_cache_dir),
        ] {
            if let Some(path) = path {
                env.push((name.into(), path.clone().into()));
            }
        }
        if let Some(keys) = &self.trust.normalizer_trusted_keys {
            env.push(("NORMALIZER_TRUSTED_KEYS".into(), keys.into()));
        }
        let sandbox = &self.sandbox;
        for (name, value) in [
            (
                "NORMALIZER_MEMORY_MIB",
                u64::from(sandbox.normalizer_memory_mib),
            ),
            (
                "NORMALIZER_CALL_TIMEOUT_MS",
                sandbox.normalizer_call_timeout_ms,
            ),
            (
                "NORMALIZER_RECORD_TIMEOUT_US",
                sandbox.normalizer_record_timeout_us,
            ),
            ("NORMALIZER_THREADS", sandbox.normalizer_threads.into()),
            (
                "NORMALIZER_REUSE_CALLS",
                sandbox.normalizer_reuse_calls.into(),
            ),
            (
                "NORMALIZER_REUSE_MEMORY_MIB",
                sandbox.normalizer_reuse_memory_mib.into(),
            ),
        ] {
            env.push((name.into(), value.to_string().into()));
        }
        env
    }
}

/// Where the signature of a file lies, or would.
pub fn signature_path(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".minisig");
    PathBuf::from(name)
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
