//! The same path against Apache Kafka, with `cdr provision`, `cdr worker` and
//! `cdr api` as they are run in production. `just test-kafka` runs it; without a
//! broker in `KAFKA_BOOTSTRAP_SERVERS` it says that it was not run.

mod common;

use cdr_kafka::KafkaConfig;
use common::judge::{Names, Subject, store};
use common::process::{Cdr, address_in};
use rustix::process::Signal;

#[tokio::test(flavor = "multi_thread")]
async fn the_path_on_apache_kafka() {
    let Some(brokers) = std::env::var("KAFKA_BOOTSTRAP_SERVERS")
        .ok()
        .filter(|it| !it.is_empty())
    else {
        eprintln!("NOT RUN: it needs Apache Kafka in KAFKA_BOOTSTRAP_SERVERS (just test-kafka)");
        return;
    };
    let data = tempfile::tempdir().unwrap();
    let library = cdr_embedded::clickhouse::library::ensure(
        &cdr_embedded::clickhouse::library::default_cache(),
        |step| eprintln!("{step}"),
    )
    .await
    .unwrap();
    let clickhouse = cdr_embedded::ClickHouse::start(
        cdr_embedded::PartConfig {
            exe: env!("CARGO_BIN_EXE_cdr").into(),
            data: data.path().join("clickhouse"),
            port: None,
            logs: cdr_embedded::ChildLogs::Files(data.path().join("logs")),
        },
        &library,
    )
    .await
    .unwrap();

    let run = std::process::id();
    let names = Names {
        raw: format!("cdr.raw.{run}"),
        dlq: format!("cdr.raw.{run}.dlq"),
        group: format!("cdr-worker-{run}"),
    };
    let port_file = |name: &str| data.path().join(format!("{name}.addr"));
    let mut env = vec![
        ("KAFKA_BOOTSTRAP_SERVERS", brokers.clone()),
        ("KAFKA_RAW_TOPIC", names.raw.clone()),
        ("KAFKA_DLQ_TOPIC", names.dlq.clone()),
        ("KAFKA_CONSUMER_GROUP", names.group.clone()),
        ("CLICKHOUSE_URL", clickhouse.url()),
        ("CLICKHOUSE_USER", clickhouse.user().to_owned()),
        ("CLICKHOUSE_PASSWORD", clickhouse.password().to_owned()),
        ("WORKER_LISTEN", "127.0.0.1:0".to_owned()),
        (
            "WORKER_PORT_FILE",
            port_file("worker").display().to_string(),
        ),
        ("API_LISTEN", "127.0.0.1:0".to_owned()),
        ("API_PORT_FILE", port_file("api").display().to_string()),
    ];

    // Twice: the second time everything fits.
    for word in ["created", "fits"] {
        let mut provision = Cdr::start(&["provision"], &env);
        let status = provision.ended();
        let lines = provision.lines();
        assert!(status.success(), "{}", lines.join("\n"));
        let done: Vec<_> = lines.iter().filter(|line| line.ends_with(word)).collect();
        assert_eq!(done.len(), 3, "{}", lines.join("\n"));
    }

    let mut worker = Cdr::start(&["worker"], &env);
    let worker_addr = address_in(&port_file("worker"), &mut worker);
    env.push((
        "WORKER_STATS_URL",
        format!("http://{worker_addr}/internal/stats"),
    ));
    let mut api = Cdr::start(&["api"], &env);
    let api_addr = address_in(&port_file("api"), &mut api);

    let subject = Subject {
        api: format!("http://{api_addr}"),
        worker: format!("http://{worker_addr}"),
        kafka: KafkaConfig::plaintext(&brokers),
        store: store(&clickhouse.url(), clickhouse.user(), clickhouse.password()),
        names,
    };
    subject.judge_the_path(5000).await;

    for mut host in [api, worker] {
        host.signal(Signal::TERM);
        assert!(host.ended().success(), "{}", host.lines().join("\n"));
    }
}
