//! `cdr up` on a folder, and what it starts itself.
//!
//! Its ports are others at each start; where they are is read from what it prints.
//! When one of its children dies it stops everything and ends; it is started again
//! on the same folder, as its last words say.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use cdr_kafka::KafkaConfig;
use cdr_store::{Password, Store, StoreConfig};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::Build;
use super::keeper::{Keeper, State};
use super::launcher::{Cdr, Launcher};
use super::running::children;
use crate::accounts::Addresses;
use crate::evidence::{Names, Witness};
use crate::journal::Journal;
use crate::plan::{Action, Target};

/// For everything to start.
const READY: Duration = Duration::from_secs(180);
const POLL: Duration = Duration::from_millis(50);

/// Small batches, so that many are under way; and no long wait for Kafka.
const SETTINGS: [(&str, &str); 3] = [
    ("KAFKA_DELIVERY_TIMEOUT_SECONDS", "5"),
    ("BATCH_SIZE", "50"),
    ("BATCH_FLUSH_INTERVAL_SECONDS", "0.2"),
];

/// The system.
pub struct Embedded {
    keeper: Keeper,
    data: PathBuf,
    api: watch::Receiver<Option<String>>,
    workers: watch::Receiver<Addresses>,
    /// The number of the start that got ready last.
    ready: watch::Receiver<u32>,
    /// Where its peers are: Kafka and ClickHouse.
    peers: Arc<Mutex<Option<(String, String)>>>,
    _following: AbortOnDropHandle<()>,
}

impl Embedded {
    /// Starts it; returns when records can be posted.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start(build: Build, journal: Journal, say: impl Fn(&str)) -> anyhow::Result<Self> {
        say("starting cdr up");
        let data = build.folder.join("data");
        let logs = build.logs();
        let mut env: Vec<(OsString, OsString)> = vec![
            ("NORMALIZER".into(), build.normalizer.into()),
            (
                "NORMALIZER_SETTINGS".into(),
                build.normalizer_settings.into(),
            ),
        ];
        env.extend(SETTINGS.map(|(name, value)| (name.into(), value.into())));
        let launcher = Launcher::Cdr(Cdr {
            exe: build.cdr,
            args: vec!["up".into(), "--data".into(), data.clone().into()],
            name: "up".to_owned(),
            logs: logs.clone(),
            env: Box::new(move || env.clone()),
            numbered: true,
        });
        let keeper = Keeper::start(Target::Up, launcher, journal).await?;
        let (tell_api, api) = watch::channel(None);
        let (tell_workers, workers) = watch::channel(BTreeMap::new());
        let (tell_ready, ready) = watch::channel(0);
        let peers = Arc::default();
        let follower = Follower {
            state: keeper.state(),
            logs,
            api: tell_api,
            workers: tell_workers,
            ready: tell_ready,
            peers: Arc::clone(&peers),
        };
        let following = tokio::spawn(follower.follow());
        let system = Self {
            keeper,
            data,
            api,
            workers,
            ready,
            peers,
            _following: AbortOnDropHandle::new(following),
        };
        system.heal().await?;
        Ok(system)
    }

    /// Does something.
    pub fn act(&self, action: Action) {
        match action {
            Action::Kill {
                target: Target::Up,
                again_after,
            } => self.keeper.kill(again_after),
            Action::Kill {
                target,
                again_after,
            } => {
                // None while it starts or stops.
                if let Some(pid) = self.child(target) {
                    self.keeper.kill_child(target, pid, again_after);
                }
            }
            Action::Terminate { again_after, .. } => self.keeper.terminate(again_after),
            Action::Freeze { lasts, .. } => self.keeper.freeze(lasts),
            Action::Network { .. } => {}
        }
    }

    fn child(&self, target: Target) -> Option<u32> {
        let word = match target {
            Target::Kafka => " embedded broker ",
            Target::ClickHouse => " embedded clickhouse ",
            Target::Api => " api ",
            Target::Worker1 | Target::Worker2 => " worker ",
            Target::Up => return None,
        };
        let parent = self.keeper.state().borrow().pid?;
        children(parent)
            .into_iter()
            .find_map(|(pid, line)| line.contains(word).then_some(pid))
    }

    /// Returns when everything runs and records can be posted.
    ///
    /// # Errors
    /// It does not start any more.
    pub async fn heal(&self) -> anyhow::Result<()> {
        self.keeper.heal().await?;
        let state = self.keeper.state();
        let mut ready = self.ready.clone();
        // It may end and be started again on the way.
        let ready = ready.wait_for(|start| {
            let now = *state.borrow();
            now.pid.is_some() && now.starts == *start
        });
        tokio::time::timeout(READY, ready)
            .await
            .context("cdr up did not get ready; see its log")??;
        Ok(())
    }

    /// Kills everything; returns when it is gone.
    pub async fn stop(self) {
        // Its children go with it.
        self.keeper.stop().await;
    }

    /// Where vendors post.
    pub fn api(&self) -> watch::Receiver<Option<String>> {
        self.api.clone()
    }

    /// Where the worker tells its stats.
    pub fn workers(&self) -> watch::Receiver<Addresses> {
        self.workers.clone()
    }

    /// Where to look for what landed, until it is started again.
    ///
    /// # Errors
    /// It does not run, or its password can't be read.
    pub fn witness(&self) -> anyhow::Result<Witness> {
        let peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let (kafka, clickhouse) = peers.clone().context("cdr up is not ready")?;
        let password = std::fs::read_to_string(self.data.join("clickhouse/password"))?;
        Ok(Witness {
            kafka: KafkaConfig::plaintext(kafka),
            store: Store::new(StoreConfig {
                url: clickhouse,
                user: "cdr".to_owned(),
                password: Password::new(password.trim()),
                ..StoreConfig::default()
            })?,
            names: Names::default(),
        })
    }
}

/// Where the parts of one start are.
struct Addressed {
    api: String,
    worker: String,
    kafka: String,
    clickhouse: String,
}

impl Addressed {
    /// From the lines that `cdr up` prints; none until it is ready.
    fn read(log: &str) -> Option<Self> {
        let line = |word: &str| {
            log.lines()
                .find_map(|line| line.strip_prefix(word)?.strip_prefix(' '))
                .map(str::trim)
        };
        log.lines().find(|line| line.starts_with("ready;"))?;
        Some(Self {
            api: line("stats")?.strip_suffix("/stats")?.to_owned(),
            worker: line("metrics")?
                .split_whitespace()
                .next_back()?
                .strip_suffix("/metrics")?
                .to_owned(),
            kafka: line("kafka")?.to_owned(),
            clickhouse: line("clickhouse")?.split_whitespace().next()?.to_owned(),
        })
    }
}

/// Tells where everything is after each start.
struct Follower {
    state: watch::Receiver<State>,
    logs: PathBuf,
    api: watch::Sender<Option<String>>,
    workers: watch::Sender<Addresses>,
    ready: watch::Sender<u32>,
    peers: Arc<Mutex<Option<(String, String)>>>,
}

impl Follower {
    async fn follow(mut self) {
        loop {
            let State { pid, starts } = *self.state.borrow_and_update();
            self.api.send_replace(None);
            self.workers.send_replace(BTreeMap::new());
            let log = self.logs.join(format!("up-{starts}.log"));
            tokio::select! {
                at = addressed(&log), if pid.is_some() => self.tell(at, starts),
                changed = self.state.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                }
            }
            if self.state.changed().await.is_err() {
                return;
            }
        }
    }

    fn tell(&self, at: Addressed, starts: u32) {
        *self.peers.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((at.kafka, at.clickhouse));
        self.workers
            .send_replace([(Target::Worker1.to_string(), at.worker)].into());
        self.api.send_replace(Some(at.api));
        self.ready.send_replace(starts);
    }
}

async fn addressed(log: &Path) -> Addressed {
    loop {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        if let Some(addressed) = Addressed::read(&text) {
            return addressed;
        }
        tokio::time::sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_there_when_it_is_ready() {
        let mut log = "==> starting\n\
            api         http://127.0.0.1:1/v1/cdrs\n\
            stats       http://127.0.0.1:1/stats\n\
            metrics     http://127.0.0.1:1/metrics  http://127.0.0.1:2/metrics\n\
            kafka       127.0.0.1:3\n\
            clickhouse  http://127.0.0.1:4 (user cdr)\n"
            .to_owned();
        assert!(Addressed::read(&log).is_none());
        log += "ready; Ctrl-C drains and stops all of it\n";
        let found = Addressed::read(&log).unwrap();
        assert_eq!(found.api, "http://127.0.0.1:1");
        assert_eq!(found.worker, "http://127.0.0.1:2");
        assert_eq!(found.kafka, "127.0.0.1:3");
        assert_eq!(found.clickhouse, "http://127.0.0.1:4");
    }
}
