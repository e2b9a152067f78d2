//! How each part is started, the first time and again.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use cdr_embedded::{ChildLogs, ChildProcess, ChildSpec, ClickHouse, PartConfig};

use super::running::{Foreign, Running};

/// Variables of a process.
pub type Env = Vec<(OsString, OsString)>;

/// What starts a process.
pub enum Launcher {
    /// A `cdr` command.
    Cdr(Cdr),
    /// ClickHouse.
    ClickHouse {
        /// Where and how.
        config: PartConfig,
        /// `libchdb.so`.
        library: PathBuf,
    },
    /// Apache Kafka.
    Kafka(ApacheKafka),
}

/// A `cdr` command.
pub struct Cdr {
    /// The binary.
    pub exe: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Names its log.
    pub name: String,
    /// Folder of its log.
    pub logs: PathBuf,
    /// Its variables, asked for at each start.
    pub env: Box<dyn Fn() -> Env + Send + Sync>,
    /// Whether each start has a log of its own, numbered.
    pub numbered: bool,
}

/// Apache Kafka, by its script.
pub struct ApacheKafka {
    /// `apache-kafka.sh`.
    pub script: PathBuf,
    /// Its folder.
    pub folder: PathBuf,
    /// Where it listens.
    pub addr: SocketAddr,
    /// Where its clients are sent.
    pub advertised: SocketAddr,
    /// Folder of its logs.
    pub logs: PathBuf,
}

impl Launcher {
    /// Starts it for the `count`th time. The peers serve when this returns; hosts
    /// run, and may need a little longer.
    ///
    /// # Errors
    /// It does not start.
    pub async fn launch(&self, count: u32) -> anyhow::Result<Running> {
        Ok(match self {
            Launcher::Cdr(cdr) => Running::Child(cdr.launch(count).await?),
            Launcher::ClickHouse { config, library } => {
                let (config, library) = (config.clone(), library.clone());
                let runtime = tokio::runtime::Handle::current();
                // That future can't be part of a spawned task: it is not `Send`.
                let starting = tokio::task::spawn_blocking(move || {
                    runtime.block_on(ClickHouse::start(config, &library))
                });
                Running::ClickHouse(starting.await??)
            }
            Launcher::Kafka(kafka) => Running::Foreign(kafka.launch().await?),
        })
    }

    /// Its log, as of the `count`th start.
    pub fn log(&self, count: u32) -> PathBuf {
        match self {
            Launcher::Cdr(cdr) => cdr.logs.join(format!("{}.log", cdr.log_name(count))),
            Launcher::ClickHouse { config, .. } => match &config.logs {
                ChildLogs::Files(folder) => folder.join("clickhouse.log"),
                ChildLogs::Inherit => PathBuf::new(),
            },
            Launcher::Kafka(kafka) => kafka.folder.join("kafka.log"),
        }
    }
}

impl Cdr {
    fn log_name(&self, count: u32) -> String {
        match self.numbered {
            true => format!("{}-{count}", self.name),
            false => self.name.clone(),
        }
    }

    async fn launch(&self, count: u32) -> anyhow::Result<ChildProcess> {
        Ok(ChildProcess::spawn(ChildSpec {
            name: self.log_name(count),
            program: self.exe.clone(),
            args: self.args.clone(),
            env: (self.env)(),
            logs: ChildLogs::Files(self.logs.clone()),
        })
        .await?)
    }

    /// Runs it to its end, which must be a success.
    ///
    /// # Errors
    /// It fails, with the end of its log.
    pub async fn run(&self) -> anyhow::Result<()> {
        let status = self.launch(0).await?.wait().await?;
        if !status.success() {
            let log = self.logs.join(format!("{}.log", self.log_name(0)));
            bail!("cdr {} failed ({status}):\n{}", self.name, tail(&log, 20));
        }
        Ok(())
    }
}

impl ApacheKafka {
    async fn launch(&self) -> anyhow::Result<Foreign> {
        self.keep_log()
            .with_context(|| self.logs.display().to_string())?;
        let output = tokio::process::Command::new(&self.script)
            .arg("start")
            .arg(&self.folder)
            .arg(self.addr.port().to_string())
            .env(
                "APACHE_KAFKA_ADVERTISED_PORT",
                self.advertised.port().to_string(),
            )
            .output()
            .await
            .with_context(|| self.script.display().to_string())?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let pid = fs::read_to_string(self.folder.join("pid"))?;
        let pid = pid.trim().parse().context("the broker's pid file")?;
        let mark = self.folder.join("server.properties");
        Ok(Foreign::new(pid, mark.display().to_string()))
    }

    /// The script keeps the last two logs only.
    fn keep_log(&self) -> io::Result<()> {
        let Ok(last) = fs::read(self.folder.join("kafka.log")) else {
            return Ok(());
        };
        fs::create_dir_all(&self.logs)?;
        let mut all = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.logs.join("kafka-before.log"))?;
        io::Write::write_all(&mut all, &last)
    }
}

/// How much of the end of a log is looked at.
const TAIL_BYTES: u64 = 64 * 1024;

/// The last `lines` of a file; empty where there is none.
pub fn tail(path: &Path, lines: usize) -> String {
    let read = || -> io::Result<Vec<u8>> {
        use io::{Read, Seek, SeekFrom};
        let mut file = fs::File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut end = Vec::new();
        file.read_to_end(&mut end)?;
        Ok(end)
    };
    let text = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<_> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
