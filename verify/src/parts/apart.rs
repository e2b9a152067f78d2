//! Every part a process of its own, as in production: Apache Kafka, ClickHouse, one
//! `cdr api`, two `cdr worker` in one group; proxies in front of both peers.
//!
//! Addresses are fixed at the start and stay, whatever dies.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use cdr_embedded::clickhouse::library;
use cdr_embedded::{ChildLogs, PartConfig};
use cdr_kafka::KafkaConfig;
use cdr_store::{Password, Store, StoreConfig};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::watch;

use super::keeper::Keeper;
use super::launcher::{ApacheKafka, Cdr, Env, Launcher};
use super::wire::Wire;
use super::{Build, port};
use crate::accounts::Addresses;
use crate::evidence::{Names, Witness};
use crate::http_client::HttpClient;
use crate::journal::{Event, Journal};
use crate::plan::{Action, Link, Target};
use crate::proxy::Counts;

/// For hosts to load their normalizer and be ready, the first time.
const READY: Duration = Duration::from_secs(120);
/// For the system to be well again after a round.
const HEALED: Duration = Duration::from_secs(180);

/// What both hosts are told beside addresses: short times, so that a round sees them
/// pass, and small batches, so that many are under way.
const SETTINGS: [(&str, &str); 5] = [
    ("KAFKA_DELIVERY_TIMEOUT_SECONDS", "5"),
    ("KAFKA_SESSION_TIMEOUT_SECONDS", "6"),
    ("KAFKA_MAX_POLL_INTERVAL_SECONDS", "30"),
    ("BATCH_SIZE", "50"),
    ("BATCH_FLUSH_INTERVAL_SECONDS", "0.2"),
];

/// The system.
pub struct Apart {
    keepers: BTreeMap<Target, Keeper>,
    kafka: Wire,
    clickhouse: Wire,
    api: watch::Sender<Option<String>>,
    workers: watch::Sender<Addresses>,
    witness: Witness,
    policies: Policies,
}

/// What becomes of batches that ClickHouse did not take, drawn for each start of a
/// worker from the seed of the round.
#[derive(Clone)]
struct Policies {
    draws: Arc<Mutex<BTreeMap<Target, StdRng>>>,
    journal: Journal,
}

impl Policies {
    fn new(seed: u64, journal: Journal) -> Self {
        let policies = Self {
            draws: Arc::default(),
            journal,
        };
        policies.begin_round(seed);
        policies
    }

    fn begin_round(&self, seed: u64) {
        let draws = [Target::Worker1, Target::Worker2].map(|worker| {
            // Apart from each other, and from the plan of the same seed.
            let apart = 0x5eed_0001 + worker as u64;
            (worker, StdRng::seed_from_u64(seed ^ apart))
        });
        *self.lock() = draws.into();
    }

    fn draw(&self, worker: Target) -> &'static str {
        let mut draws = self.lock();
        let policy = match draws.get_mut(&worker).is_some_and(RngExt::random) {
            true => "pause",
            false => "dead-letter",
        };
        let note = format!("{worker} is to start with CH_EXHAUSTED_POLICY={policy}");
        self.journal.note(Event::Note(note));
        policy
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Target, StdRng>> {
        self.draws.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Apart {
    /// Starts everything; returns when records can be posted.
    ///
    /// # Errors
    /// A part does not start.
    pub async fn start(
        build: Build,
        seed: u64,
        journal: Journal,
        say: impl Fn(&str),
    ) -> anyhow::Result<Self> {
        let library =
            library::ensure(&library::default_cache(), |step| say(&step.to_string())).await?;
        let names = Names::default();
        say("starting Apache Kafka and ClickHouse");
        let kafka_addr = port::free()?;
        let kafka = Wire::start(Link::Kafka, port::free()?, kafka_addr, journal.clone())?;
        let clickhouse_addr = port::free()?;
        let clickhouse = Wire::start(
            Link::ClickHouse,
            port::free()?,
            clickhouse_addr,
            journal.clone(),
        )?;
        let keep = async |target, launcher| {
            let keeper = Keeper::start(target, launcher, journal.clone()).await;
            keeper.with_context(|| format!("{target} did not start"))
        };
        let (kafka_keeper, clickhouse_keeper) = tokio::try_join!(
            keep(
                Target::Kafka,
                Launcher::Kafka(ApacheKafka {
                    script: build.apache_kafka.clone(),
                    folder: build.folder.join("kafka"),
                    addr: kafka_addr,
                    advertised: kafka.addr(),
                    logs: build.logs(),
                }),
            ),
            keep(
                Target::ClickHouse,
                Launcher::ClickHouse {
                    config: PartConfig {
                        exe: build.cdr.clone(),
                        data: build.folder.join("clickhouse"),
                        port: Some(clickhouse_addr.port()),
                        logs: ChildLogs::Files(build.logs()),
                    },
                    library,
                },
            ),
        )?;
        let password = std::fs::read_to_string(build.folder.join("clickhouse/password"))?;
        let store = StoreConfig {
            url: format!("http://{}", clickhouse.addr()),
            user: "cdr".to_owned(),
            password: Password::new(password.trim()),
            ..StoreConfig::default()
        };
        let witness = Witness {
            kafka: KafkaConfig::plaintext(kafka.addr().to_string()),
            store: Store::new(store)?,
            names,
        };

        let policies = Policies::new(seed, journal.clone());
        let hosts = Hosts {
            kafka: kafka.addr(),
            clickhouse: clickhouse.addr(),
            password: password.trim().to_owned(),
            build,
            policies: policies.clone(),
        };
        say("making topics and table");
        hosts
            .command("provision", "provision", Vec::new)
            .run()
            .await?;
        say("starting the API and two workers");
        let listen = [port::free()?, port::free()?, port::free()?];
        let [api, worker_1, worker_2] = listen.map(|addr| format!("http://{addr}"));
        let mut keepers = BTreeMap::from([
            (Target::Kafka, kafka_keeper),
            (Target::ClickHouse, clickhouse_keeper),
        ]);
        for (target, addr) in [Target::Api, Target::Worker1, Target::Worker2]
            .into_iter()
            .zip(listen)
        {
            let launcher = Launcher::Cdr(hosts.host(target, addr, &worker_1));
            keepers.insert(target, keep(target, launcher).await?);
        }
        let workers = [(Target::Worker1, worker_1), (Target::Worker2, worker_2)]
            .map(|(target, address)| (target.to_string(), address));
        let system = Self {
            keepers,
            kafka,
            clickhouse,
            api: watch::Sender::new(Some(api)),
            workers: watch::Sender::new(workers.into()),
            witness,
            policies,
        };
        system.ready().await?;
        Ok(system)
    }

    /// Waits until every host says that it is.
    async fn ready(&self) -> anyhow::Result<()> {
        let client = HttpClient::new(Duration::from_secs(5));
        let addresses: Vec<_> = self
            .api
            .borrow()
            .iter()
            .chain(self.workers.borrow().values())
            .cloned()
            .collect();
        let all = async {
            for address in addresses {
                let url = format!("{address}/readyz");
                while !client
                    .get(&url)
                    .await
                    .is_ok_and(|answer| answer.status.is_success())
                {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        };
        tokio::time::timeout(READY, all)
            .await
            .context("the hosts did not get ready; see their logs")
    }

    /// A round of this seed begins.
    pub fn begin_round(&self, seed: u64) {
        self.policies.begin_round(seed);
    }

    /// Does something; returns when that is over.
    pub async fn act(&self, action: Action) {
        let keeper = |target| self.keepers.get(&target);
        match action {
            Action::Kill {
                target,
                again_after,
            } => {
                if let Some(keeper) = keeper(target) {
                    keeper.kill(again_after);
                }
            }
            Action::Terminate {
                target,
                again_after,
            } => {
                if let Some(keeper) = keeper(target) {
                    keeper.terminate(again_after);
                }
            }
            Action::Freeze { target, lasts } => {
                if let Some(keeper) = keeper(target) {
                    keeper.freeze(lasts);
                    tokio::time::sleep(lasts).await;
                }
            }
            Action::Network {
                link,
                fault,
                lasts,
                pulse,
            } => {
                let wire = match link {
                    Link::Kafka => &self.kafka,
                    Link::ClickHouse => &self.clickhouse,
                };
                wire.act(fault, lasts, pulse).await;
            }
        }
    }

    /// Ends all faults, and returns when everything runs.
    ///
    /// # Errors
    /// A part does not start any more.
    pub async fn heal(&self) -> anyhow::Result<()> {
        self.kafka.heal().await;
        self.clickhouse.heal().await;
        let all = futures::future::try_join_all(self.keepers.values().map(Keeper::heal));
        tokio::time::timeout(HEALED, all)
            .await
            .context("not every part could be brought back")??;
        Ok(())
    }

    /// What both proxies have done so far.
    pub fn network(&self) -> Counts {
        self.kafka.counts() + self.clickhouse.counts()
    }

    /// Kills everything; returns when it is gone.
    pub async fn stop(self) {
        futures::future::join_all(self.keepers.into_values().map(Keeper::stop)).await;
    }

    /// Where vendors post.
    pub fn api(&self) -> watch::Receiver<Option<String>> {
        self.api.subscribe()
    }

    /// Where workers tell their stats.
    pub fn workers(&self) -> watch::Receiver<Addresses> {
        self.workers.subscribe()
    }

    /// Where to look for what landed.
    pub fn witness(&self) -> Witness {
        self.witness.clone()
    }
}

/// How the `cdr` commands are run.
struct Hosts {
    kafka: SocketAddr,
    clickhouse: SocketAddr,
    password: String,
    build: Build,
    policies: Policies,
}

impl Hosts {
    fn command(
        &self,
        command: &str,
        name: &str,
        more: impl Fn() -> Env + Send + Sync + 'static,
    ) -> Cdr {
        let mut env: Env = vec![
            var("KAFKA_BOOTSTRAP_SERVERS", self.kafka.to_string()),
            var("CLICKHOUSE_URL", format!("http://{}", self.clickhouse)),
            var("CLICKHOUSE_USER", "cdr"),
            var("CLICKHOUSE_PASSWORD", self.password.clone()),
        ];
        let build = &self.build;
        match &build.registry {
            Some(registry) => env.push(var("NORMALIZER_DIR", registry.clone())),
            None => env.extend([
                var("NORMALIZER", build.normalizer.clone()),
                var("NORMALIZER_SETTINGS", build.normalizer_settings.clone()),
            ]),
        }
        env.extend(SETTINGS.map(|(name, value)| var(name, value)));
        env.extend(build.settings.iter().map(|(name, value)| var(name, value)));
        Cdr {
            exe: self.build.cdr.clone(),
            args: vec![command.into()],
            name: name.to_owned(),
            logs: self.build.logs(),
            env: Box::new(move || env.iter().cloned().chain(more()).collect()),
            numbered: false,
        }
    }

    fn host(&self, target: Target, addr: SocketAddr, a_worker: &str) -> Cdr {
        if !target.is_worker() {
            let stats = format!("{a_worker}/internal/stats");
            return self.command("api", target.name(), move || {
                vec![
                    var("API_LISTEN", addr.to_string()),
                    var("WORKER_STATS_URL", stats.clone()),
                ]
            });
        }
        let policies = self.policies.clone();
        self.command("worker", target.name(), move || {
            vec![
                var("WORKER_LISTEN", addr.to_string()),
                var("WORKER_INSTANCE", target.name()),
                var("CH_EXHAUSTED_POLICY", policies.draw(target)),
            ]
        })
    }
}

fn var(name: &str, value: impl Into<OsString>) -> (OsString, OsString) {
    (name.into(), value.into())
}
