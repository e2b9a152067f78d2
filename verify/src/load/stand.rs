//! What is needed for records to be taken: Apache Kafka with its topics, and one API.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use cdr_embedded::ChildProcess;
use cdr_kafka::KafkaConfig;
use cdr_kafka::topics::{TopicSpec, provision};

use crate::evidence::Names;
use crate::http_client::HttpClient;
use crate::parts::launcher::{ApacheKafka, Cdr, Launcher, tail};
use crate::parts::running::Running;
use crate::parts::{Build, port};

/// For the broker to answer, and for topics to have leaders.
const TOPICS: Duration = Duration::from_secs(60);
/// For the API to load its normalizer and be ready.
const READY: Duration = Duration::from_secs(120);
/// What the API allows itself after SIGTERM, and what a loaded machine may add.
const DRAIN: Duration = Duration::from_secs(45 + 10);
/// Names the API, and its log.
const API: &str = "api";

/// The processes; they are killed when this is dropped.
pub struct Stand {
    /// Where the API listens.
    pub addr: SocketAddr,
    /// How Kafka is reached.
    pub kafka: KafkaConfig,
    /// Topics.
    pub names: Names,
    api: ChildProcess,
    api_launcher: Launcher,
    _kafka_process: Running,
}

impl Stand {
    /// Starts both; returns when records can be posted.
    ///
    /// # Errors
    /// One does not start.
    pub async fn start(build: &Build, say: impl Fn(&str)) -> anyhow::Result<Self> {
        say("starting Apache Kafka");
        let kafka_addr = port::free()?;
        let kafka = Launcher::Kafka(ApacheKafka {
            script: build.apache_kafka.clone(),
            folder: build.folder.join("kafka"),
            addr: kafka_addr,
            advertised: kafka_addr,
            logs: build.logs(),
        });
        let kafka_process = kafka.launch(1).await.context("Kafka did not start")?;
        let kafka = KafkaConfig::plaintext(kafka_addr.to_string());
        let names = Names::default();
        let topics = [
            TopicSpec::raw(&names.raw),
            TopicSpec::dead_letters(&names.dlq),
        ];
        provision(&kafka, &topics, TOPICS).await?;

        say("starting the API");
        let addr = port::free()?;
        let api_launcher = Launcher::Cdr(api(build, kafka_addr, addr));
        let Running::Child(mut api) = api_launcher.launch(1).await? else {
            bail!("the API is no child of this process");
        };
        let client = HttpClient::new(Duration::from_secs(5));
        let url = format!("http://{addr}/readyz");
        api.ready_when(READY, async || {
            let answer = client.get(&url).await.ok()?;
            answer.status.is_success().then_some(())
        })
        .await?;
        Ok(Self {
            addr,
            kafka,
            names,
            api,
            api_launcher,
            _kafka_process: kafka_process,
        })
    }

    /// The process id of the API.
    pub fn api_pid(&self) -> u32 {
        self.api.pid()
    }

    /// Ends the API as an orchestrator does. What there is to object to that, with its
    /// last words; also if it had ended before.
    ///
    /// # Errors
    /// The system can't say.
    pub async fn stop_api(&mut self) -> anyhow::Result<Option<String>> {
        let stopped = self.api.stop(DRAIN).await?;
        if stopped.is_orderly() {
            return Ok(None);
        }
        Ok(Some(format!(
            "the API did not end in order: {}{}\n{}",
            stopped.status,
            match stopped.killed {
                true => format!(", killed {:.0} s after SIGTERM", DRAIN.as_secs_f64()),
                false => String::new(),
            },
            tail(&self.api_launcher.log(1), 5),
        )))
    }
}

fn api(build: &Build, kafka: SocketAddr, addr: SocketAddr) -> Cdr {
    let mut env: Vec<(OsString, OsString)> = vec![
        ("KAFKA_BOOTSTRAP_SERVERS".into(), kafka.to_string().into()),
        ("NORMALIZER".into(), build.normalizer.clone().into()),
        (
            "NORMALIZER_SETTINGS".into(),
            build.normalizer_settings.clone().into(),
        ),
        ("API_LISTEN".into(), addr.to_string().into()),
    ];
    let settings = build.settings.iter();
    env.extend(settings.map(|(name, value)| (name.into(), value.into())));
    Cdr {
        exe: build.cdr.clone(),
        args: vec!["api".into()],
        name: API.to_owned(),
        logs: build.logs(),
        env: Box::new(move || env.clone()),
        numbered: false,
    }
}
