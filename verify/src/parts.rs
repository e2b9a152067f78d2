//! The parts of a system under test, as processes that are broken and mended.
//!
//! ```text
//!   System ─┬─ Apart     kafka, clickhouse, api, worker-1, worker-2: a Keeper each;
//!           │            a Wire (proxy) in front of Kafka and of ClickHouse
//!           └─ Embedded  one Keeper, of `cdr up`
//!   Keeper ── Launcher ── Running        starts, signals, awaits, starts again
//! ```

pub mod apart;
pub mod embedded;
pub mod keeper;
pub mod launcher;
pub mod port;
pub mod running;
pub mod wire;

use std::path::{Path, PathBuf};

use anyhow::Context;
use tokio::sync::watch;

use crate::accounts::Addresses;
use crate::evidence::Witness;
use crate::journal::Journal;
use crate::plan::{Action, Parts};
use crate::proxy::Counts;
use crate::settle::Hosts;

/// What a system is made from.
#[derive(Debug, Clone)]
pub struct Build {
    /// The binary; a copy, since others may build it anew meanwhile.
    pub cdr: PathBuf,
    /// The normalizer, a copy too.
    pub normalizer: PathBuf,
    /// Its settings.
    pub normalizer_settings: PathBuf,
    /// A registry that the hosts follow, in place of the one normalizer.
    pub registry: Option<PathBuf>,
    /// More variables for the hosts; the last of a name counts.
    pub settings: Vec<(String, String)>,
    /// `apache-kafka.sh`.
    pub apache_kafka: PathBuf,
    /// Folder of everything that is kept: data and logs.
    pub folder: PathBuf,
}

impl Build {
    /// Copies what may change during a run into `folder`.
    ///
    /// # Errors
    /// A file is not there, or can't be copied.
    pub fn copied(mut self) -> anyhow::Result<Self> {
        let kept = self.folder.join("build");
        std::fs::create_dir_all(&kept).with_context(|| kept.display().to_string())?;
        let copy = |from: &Path| -> anyhow::Result<PathBuf> {
            let name = from.file_name().context("not the name of a file")?;
            let to = kept.join(name);
            std::fs::copy(from, &to).with_context(|| {
                format!("{} can't be copied; `just build` makes it", from.display())
            })?;
            Ok(to)
        };
        self.cdr = copy(&self.cdr)?;
        self.normalizer = copy(&self.normalizer)?;
        self.normalizer_settings = copy(&self.normalizer_settings)?;
        Ok(self)
    }

    /// Where the processes log to.
    pub fn logs(&self) -> PathBuf {
        Self::logs_in(&self.folder)
    }

    /// The same, of a build in `folder`.
    pub fn logs_in(folder: &Path) -> PathBuf {
        folder.join("logs")
    }
}

/// A system that runs.
pub enum System {
    /// Every part apart.
    Apart(Box<apart::Apart>),
    /// `cdr up`.
    Embedded(embedded::Embedded),
}

impl System {
    /// Starts it; returns when records can be posted. `say` is told each step.
    ///
    /// # Errors
    /// A part does not start.
    pub async fn start(
        parts: Parts,
        build: Build,
        seed: u64,
        journal: Journal,
        say: impl Fn(&str),
    ) -> anyhow::Result<Self> {
        Ok(match parts {
            Parts::ApacheKafka => {
                let system = apart::Apart::start(build, seed, journal, say).await?;
                System::Apart(Box::new(system))
            }
            Parts::Embedded => {
                System::Embedded(embedded::Embedded::start(build, journal, say).await?)
            }
        })
    }

    /// Tells it that a round of this seed begins.
    pub fn begin_round(&self, seed: u64) {
        match self {
            System::Apart(system) => system.begin_round(seed),
            System::Embedded(_) => {}
        }
    }

    /// Does something to it; returns when that is over. What dies is started again
    /// by itself.
    pub async fn act(&self, action: Action) {
        match self {
            System::Apart(system) => system.act(action).await,
            System::Embedded(system) => system.act(action),
        }
    }

    /// Ends all faults, and returns when every process runs.
    ///
    /// # Errors
    /// A part does not start any more.
    pub async fn heal(&self) -> anyhow::Result<()> {
        match self {
            System::Apart(system) => system.heal().await,
            System::Embedded(system) => system.heal().await,
        }
    }

    /// What its proxies have done so far.
    pub fn network(&self) -> Counts {
        match self {
            System::Apart(system) => system.network(),
            System::Embedded(_) => Counts::default(),
        }
    }

    /// Kills everything; returns when it is gone.
    pub async fn stop(self) {
        match self {
            System::Apart(system) => system.stop().await,
            System::Embedded(system) => system.stop().await,
        }
    }

    /// Where vendors post, as long as it is there.
    pub fn api(&self) -> watch::Receiver<Option<String>> {
        match self {
            System::Apart(system) => system.api(),
            System::Embedded(system) => system.api(),
        }
    }

    /// Where workers tell their stats.
    pub fn workers(&self) -> watch::Receiver<Addresses> {
        match self {
            System::Apart(system) => system.workers(),
            System::Embedded(system) => system.workers(),
        }
    }

    /// The hosts, as they are now.
    pub fn hosts(&self) -> Hosts {
        Hosts {
            api: self.api().borrow().clone().unwrap_or_default(),
            workers: self.workers().borrow().clone(),
        }
    }

    /// Where to look for what landed.
    ///
    /// # Errors
    /// It can't be told.
    pub fn witness(&self) -> anyhow::Result<Witness> {
        match self {
            System::Apart(system) => Ok(system.witness()),
            System::Embedded(system) => system.witness(),
        }
    }
}
