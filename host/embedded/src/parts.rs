//! The parts as a parent sees them: start, address, end.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use crate::child_process::{ChildLogs, ChildProcess, ChildSpec, Stopped};
use crate::clickhouse::{self, library};
use crate::folder::{self, FolderLock};
use crate::port::{self, PortFile};
use crate::{EmbeddedError, broker};

/// How long a part may take until it serves.
const READY_BUDGET: Duration = Duration::from_secs(60);
/// How long a parent that was just killed may hold the data folder.
const TAKEOVER: Duration = Duration::from_secs(1);

/// What both parts are started from.
#[derive(Debug, Clone)]
pub struct EmbeddedConfig {
    /// The binary that has the hidden subcommands `embedded broker` and `embedded clickhouse`.
    pub exe: PathBuf,
    /// The data folder; made if missing. One process at a time.
    pub data: PathBuf,
    /// Port of the broker; the system chooses if not given.
    pub kafka_port: Option<u16>,
    /// HTTP port of ClickHouse; the system chooses if not given.
    pub clickhouse_port: Option<u16>,
    /// Where the children's output goes.
    pub logs: ChildLogs,
    /// A `libchdb.so`; if not given, [`library::ensure`] finds or installs it.
    pub clickhouse_library: Option<PathBuf>,
}

/// What one part is started from.
#[derive(Debug, Clone)]
pub struct PartConfig {
    /// The binary that has the hidden subcommand.
    pub exe: PathBuf,
    /// Folder of this part alone; made if missing.
    pub data: PathBuf,
    /// Its port on 127.0.0.1; the system chooses if not given.
    pub port: Option<u16>,
    /// Where its output goes.
    pub logs: ChildLogs,
}

/// A broker and a ClickHouse that serve, on one data folder.
///
/// Dropping it kills both at once; [`Embedded::stop`] is the orderly way.
#[derive(Debug)]
pub struct Embedded {
    broker: Broker,
    clickhouse: ClickHouse,
    // After the children, so that the folder is free only when they are gone.
    lock: FolderLock,
}

/// A broker that serves.
#[derive(Debug)]
pub struct Broker {
    /// The process, to kill, stop or wait for.
    pub process: ChildProcess,
    port: u16,
}

/// A ClickHouse that serves.
pub struct ClickHouse {
    /// The process, to kill, stop or wait for.
    pub process: ChildProcess,
    port: u16,
    password: String,
}

impl std::fmt::Debug for ClickHouse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClickHouse")
            .field("process", &self.process)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

/// A part that ended though nobody had asked it to.
#[derive(Debug, Clone)]
pub struct PartEnded {
    /// "broker" or "clickhouse".
    pub name: String,
    /// How it ended.
    pub status: ExitStatus,
}

impl Embedded {
    /// Starts both parts on `config.data` and returns when both serve.
    ///
    /// The folder then holds `lock` (with the pid of this process), `broker/`,
    /// `clickhouse/` and `run/` (ports). After `kill -9` of an earlier parent
    /// its children may take a moment to die; that is waited for.
    ///
    /// # Errors
    /// The first thing that went wrong, as one sentence; what had been started is killed.
    pub async fn start(config: EmbeddedConfig) -> Result<Self, EmbeddedError> {
        let lock = take_lock(&config.data).await?;
        let run = config.data.join("run");
        folder::prepare(&run)?;
        let library = match &config.clickhouse_library {
            Some(path) => path.clone(),
            None => {
                library::ensure(&library::default_cache(), |step| {
                    tracing::info!(event = "clickhouse_library", "{step}");
                })
                .await?
            }
        };
        let part = |name: &str, port| PartConfig {
            exe: config.exe.clone(),
            data: config.data.join(name),
            port,
            logs: config.logs.clone(),
        };
        let broker = part(broker::NAME, config.kafka_port);
        let clickhouse = part(clickhouse::NAME, config.clickhouse_port);
        let (broker, clickhouse) = tokio::try_join!(
            Broker::start_in(broker, &run),
            ClickHouse::start_in(clickhouse, &run, &library),
        )?;
        Ok(Self {
            broker,
            clickhouse,
            lock,
        })
    }

    /// What a Kafka client calls `bootstrap.servers`.
    pub fn kafka_bootstrap(&self) -> String {
        self.broker.bootstrap()
    }

    /// The HTTP address of ClickHouse, without a slash at its end.
    pub fn clickhouse_url(&self) -> String {
        self.clickhouse.url()
    }

    /// The user for ClickHouse.
    pub fn clickhouse_user(&self) -> &'static str {
        self.clickhouse.user()
    }

    /// The password of that user, which was made up when the data folder was.
    pub fn clickhouse_password(&self) -> &str {
        self.clickhouse.password()
    }

    /// The data folder.
    pub fn data(&self) -> &Path {
        self.lock.folder()
    }

    /// Waits until one of the parts ends, and says which and how. Can be cancelled.
    ///
    /// # Errors
    /// [`EmbeddedError::Untracked`] when the system can't say.
    pub async fn wait_for_exit(&mut self) -> Result<PartEnded, EmbeddedError> {
        let (name, status) = tokio::select! {
            status = self.broker.process.wait() => (broker::NAME, status?),
            status = self.clickhouse.process.wait() => (clickhouse::NAME, status?),
        };
        Ok(PartEnded {
            name: name.to_owned(),
            status,
        })
    }

    /// Stops both at the same time, each within `budget` or by force; then
    /// the folder is free. What went how is in the result, the broker first.
    ///
    /// # Errors
    /// [`EmbeddedError::Untracked`] when the system can't be asked.
    pub async fn stop(mut self, budget: Duration) -> Result<[Stopped; 2], EmbeddedError> {
        let (broker, clickhouse) = tokio::join!(
            self.broker.process.stop(budget),
            self.clickhouse.process.stop(budget)
        );
        Ok([broker?, clickhouse?])
    }
}

impl Broker {
    /// Starts a broker alone on `config.data`; its port file is in there too.
    ///
    /// # Errors
    /// As [`Embedded::start`].
    pub async fn start(config: PartConfig) -> Result<Self, EmbeddedError> {
        let run = config.data.clone();
        Self::start_in(config, &run).await
    }

    async fn start_in(config: PartConfig, run: &Path) -> Result<Self, EmbeddedError> {
        let (process, port) = start_part(broker::NAME, config, run, vec![], vec![]).await?;
        Ok(Self { process, port })
    }

    /// What a Kafka client calls `bootstrap.servers`.
    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl ClickHouse {
    /// Starts a ClickHouse alone on `config.data`; its port file is in there too.
    ///
    /// # Errors
    /// As [`Embedded::start`].
    pub async fn start(config: PartConfig, library: &Path) -> Result<Self, EmbeddedError> {
        let run = config.data.clone();
        Self::start_in(config, &run, library).await
    }

    async fn start_in(
        config: PartConfig,
        run: &Path,
        library: &Path,
    ) -> Result<Self, EmbeddedError> {
        let password = clickhouse::password_file(&config.data);
        let more = vec!["--library".into(), library.into()];
        // The engine takes its time zone from here and not from its settings.
        let utc = vec![("TZ".into(), "UTC".into())];
        let (process, port) = start_part(clickhouse::NAME, config, run, more, utc).await?;
        let password = std::fs::read_to_string(&password)
            .map_err(|source| EmbeddedError::io("read", &password, source))?;
        Ok(Self {
            process,
            port,
            password: password.trim().to_owned(),
        })
    }

    /// Its HTTP address, without a slash at its end.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Its HTTP port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The user to come as.
    pub fn user(&self) -> &'static str {
        clickhouse::USER
    }

    /// The password of that user.
    pub fn password(&self) -> &str {
        &self.password
    }
}

async fn take_lock(data: &Path) -> Result<FolderLock, EmbeddedError> {
    let folder = data.to_owned();
    let taking = tokio::task::spawn_blocking(move || FolderLock::take(&folder, TAKEOVER));
    taking
        .await
        .map_err(|source| EmbeddedError::io("lock", data, source.into()))?
}

async fn start_part(
    name: &'static str,
    config: PartConfig,
    run: &Path,
    more: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
) -> Result<(ChildProcess, u16), EmbeddedError> {
    // The child looks at all of this again. Asked here as well, the answer has its type.
    folder::prepare(&config.data)?;
    let port = config.port.unwrap_or(0);
    port::check_free(port)?;
    let file = PortFile::new(run.join(format!("{name}.port")));
    file.clear()?;
    let mut args: Vec<OsString> = vec![
        "embedded".into(),
        name.into(),
        "--data".into(),
        config.data.into(),
        "--port".into(),
        port.to_string().into(),
        "--port-file".into(),
        file.path().into(),
    ];
    args.extend(more);
    let spec = ChildSpec {
        name: name.to_owned(),
        program: config.exe,
        args,
        env,
        logs: config.logs,
    };
    let mut process = ChildProcess::spawn(spec).await?;
    let port = process.ready_by(&file, READY_BUDGET).await?;
    tracing::info!(
        event = "part_ready",
        part = name,
        port,
        pid = process.pid(),
        "{name} serves on 127.0.0.1:{port}"
    );
    Ok((process, port))
}
