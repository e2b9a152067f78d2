//! A broker and a ClickHouse as processes of their own, that can be killed and
//! started again at the same place, and hosts as they are run in production.

use super::judge::{Names, Subject, store};
use super::process::{Cdr, address_in};
use cdr_embedded::clickhouse::library;
use cdr_embedded::{Broker, ChildLogs, ClickHouse, PartConfig};
use cdr_kafka::KafkaConfig;
use rustix::process::{Pid, Signal, kill_process};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// See the module's documentation.
pub struct Bed {
    pub data: tempfile::TempDir,
    broker: Option<Broker>,
    brokers: String,
    library: PathBuf,
    clickhouse: Option<ClickHouse>,
    clickhouse_port: u16,
    password: String,
    env: Vec<(&'static str, String)>,
    names: Names,
}

/// A host that runs.
pub struct Host {
    pub cdr: Cdr,
    pub url: String,
}

impl Host {
    /// SIGTERM, and success.
    pub fn stop(mut self) -> Vec<String> {
        self.cdr.signal(Signal::TERM);
        let status = self.cdr.ended();
        assert!(
            status.success(),
            "{status}:\n{}",
            self.cdr.lines().join("\n")
        );
        self.cdr.lines()
    }
}

impl Bed {
    /// On the embedded broker, provisioned.
    pub async fn start() -> Self {
        Self::with(None, &[]).await
    }

    /// The same with these variables, for `cdr provision` and all hosts.
    pub async fn start_with(more: &[(&'static str, String)]) -> Self {
        Self::with(None, more).await
    }

    /// On a broker that runs elsewhere, provisioned.
    pub async fn on(brokers: String) -> Self {
        Self::with(Some(brokers), &[]).await
    }

    async fn with(brokers: Option<String>, more: &[(&'static str, String)]) -> Self {
        let data = tempfile::tempdir().unwrap();
        let library = library::ensure(&library::default_cache(), |step| eprintln!("{step}"))
            .await
            .unwrap();
        let clickhouse = ClickHouse::start(part(&data, "clickhouse", None), &library)
            .await
            .unwrap();
        let (broker, brokers) = match brokers {
            Some(brokers) => (None, brokers),
            None => {
                let broker = Broker::start(part(&data, "broker", None)).await.unwrap();
                let bootstrap = broker.bootstrap();
                (Some(broker), bootstrap)
            }
        };
        // Tests of one process may share a broker.
        static BEDS: AtomicU32 = AtomicU32::new(0);
        let run = format!(
            "{}-{}",
            std::process::id(),
            BEDS.fetch_add(1, Ordering::Relaxed)
        );
        let names = Names {
            raw: format!("cdr.raw.{run}"),
            dlq: format!("cdr.raw.{run}.dlq"),
            group: format!("cdr-worker-{run}"),
        };
        let mut env = vec![
            ("KAFKA_BOOTSTRAP_SERVERS", brokers.clone()),
            ("KAFKA_RAW_TOPIC", names.raw.clone()),
            ("KAFKA_DLQ_TOPIC", names.dlq.clone()),
            ("KAFKA_CONSUMER_GROUP", names.group.clone()),
            ("CLICKHOUSE_URL", clickhouse.url()),
            ("CLICKHOUSE_USER", clickhouse.user().to_owned()),
            ("CLICKHOUSE_PASSWORD", clickhouse.password().to_owned()),
            ("API_LISTEN", "127.0.0.1:0".to_owned()),
            ("WORKER_LISTEN", "127.0.0.1:0".to_owned()),
            (
                "WORKER_SPOOL_DIR",
                data.path().join("spool").display().to_string(),
            ),
        ];
        env.extend(more.iter().cloned());
        let bed = Self {
            clickhouse_port: clickhouse.port(),
            password: clickhouse.password().to_owned(),
            data,
            broker,
            brokers,
            library,
            clickhouse: Some(clickhouse),
            env,
            names,
        };
        bed.provision("created");
        bed
    }

    /// `cdr provision`, which says this word of topics and table.
    pub fn provision(&self, word: &str) {
        self.provision_with(&[], word);
    }

    /// The same with these variables on top.
    pub fn provision_with(&self, more: &[(&'static str, &str)], word: &str) {
        let mut provision = Cdr::start(&["provision"], &self.env_with(more));
        let status = provision.ended();
        let lines = provision.lines();
        assert!(status.success(), "{}", lines.join("\n"));
        let done: Vec<_> = lines.iter().filter(|line| line.ends_with(word)).collect();
        assert_eq!(done.len(), 3, "{}", lines.join("\n"));
    }

    /// Starts `cdr worker`, with these variables on top.
    pub fn worker(&self, more: &[(&'static str, &str)]) -> Host {
        self.host("worker", "WORKER_PORT_FILE", more)
    }

    /// Starts `cdr api`.
    pub fn api(&self, more: &[(&'static str, &str)]) -> Host {
        self.host("api", "API_PORT_FILE", more)
    }

    /// Starts `cdr worker` that is expected to end by itself.
    pub fn failing_worker(&self, more: &[(&'static str, &str)]) -> Cdr {
        Cdr::start(&["worker"], &self.env_with(more))
    }

    fn host(&self, name: &str, port_file: &'static str, more: &[(&'static str, &str)]) -> Host {
        static HOSTS: AtomicU32 = AtomicU32::new(0);
        let number = HOSTS.fetch_add(1, Ordering::Relaxed);
        let file = self.data.path().join(format!("{name}-{number}.addr"));
        let mut env = self.env_with(more);
        env.push((port_file, file.display().to_string()));
        let mut cdr = Cdr::start(&[name], &env);
        let url = format!("http://{}", address_in(&file, &mut cdr));
        Host { cdr, url }
    }

    /// Everything a host is told, with these variables on top.
    pub fn env_with(&self, more: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
        let mut env = self.env.clone();
        env.extend(
            more.iter()
                .map(|(name, value)| (*name, (*value).to_owned())),
        );
        env
    }

    /// What is judged.
    pub fn subject(&self, api: &str, worker: &str) -> Subject {
        Subject {
            api: api.to_owned(),
            worker: worker.to_owned(),
            kafka: KafkaConfig::plaintext(&self.brokers),
            store: store(&self.clickhouse_url(), "cdr", &self.password),
            names: self.names.clone(),
        }
    }

    /// Where ClickHouse is, whether it runs or not.
    pub fn clickhouse_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.clickhouse_port)
    }

    /// The same as an address.
    pub fn clickhouse_addr(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.clickhouse_port))
    }

    /// Where the broker is, whether it runs or not.
    pub fn brokers(&self) -> &str {
        &self.brokers
    }

    /// `kill -9` of ClickHouse.
    pub async fn kill_clickhouse(&mut self) {
        let mut clickhouse = self.clickhouse.take().expect("it runs");
        clickhouse.process.kill().await.unwrap();
    }

    /// Stops it where it stands (SIGSTOP): connections stay, nothing answers.
    pub fn freeze_clickhouse(&self, frozen: bool) {
        let process = &self.clickhouse.as_ref().expect("it runs").process;
        let pid = Pid::from_raw(i32::try_from(process.pid()).unwrap()).unwrap();
        let signal = if frozen { Signal::STOP } else { Signal::CONT };
        kill_process(pid, signal).unwrap();
    }

    /// Starts it again, on its folder and port.
    pub async fn start_clickhouse(&mut self) {
        let config = part(&self.data, "clickhouse", Some(self.clickhouse_port));
        self.clickhouse = Some(ClickHouse::start(config, &self.library).await.unwrap());
    }

    /// `kill -9` of the embedded broker.
    pub async fn kill_broker(&mut self) {
        let mut broker = self.broker.take().expect("it runs, and is ours");
        broker.process.kill().await.unwrap();
    }

    /// Starts it again, on its folder and port.
    pub async fn start_broker(&mut self) {
        let port = self.brokers.rsplit(':').next().unwrap().parse().unwrap();
        let config = part(&self.data, "broker", Some(port));
        self.broker = Some(Broker::start(config).await.unwrap());
    }
}

fn part(data: &tempfile::TempDir, name: &str, port: Option<u16>) -> PartConfig {
    PartConfig {
        exe: env!("CARGO_BIN_EXE_cdr").into(),
        data: data.path().join(name),
        port,
        logs: ChildLogs::Files(data.path().join("logs")),
    }
}
