//! From a POST to a row, on the embedded parts: exact rows, exact dead letters,
//! exact offsets; and again after a stop.

mod common;

use cdr_kafka::KafkaConfig;
use common::judge::{Names, Subject, store};
use common::process::{Cdr, Up};
use serde_json::Value;

fn subject(up: &Up) -> Subject {
    let (user, password) = up.credentials();
    Subject {
        api: up.api.clone(),
        worker: up.worker.clone(),
        kafka: KafkaConfig::plaintext(&up.kafka),
        store: store(&up.clickhouse, &user, &password),
        names: Names {
            raw: "cdr.raw".to_owned(),
            dlq: "cdr.raw.dlq".to_owned(),
            group: "cdr-worker".to_owned(),
        },
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_records_end_as_they_must_and_stay() {
    let data = tempfile::tempdir().unwrap();
    let up = Up::start(data.path());
    let subject_before = subject(&up);
    subject_before.judge_the_path(5000).await;
    let rows = subject_before.rows().await;

    // Another process can't have the folder meanwhile, and says so.
    let mut second = Cdr::start(&["up", "--data", &data.path().display().to_string()], &[]);
    assert!(!second.ended().success());
    let said = second.lines().join("\n");
    assert!(
        said.contains(&up.cdr.pid().to_string()),
        "names the holder: {said}"
    );

    let lines = up.cdr.stop();
    logs_are_json(&lines);

    let up = Up::start(data.path());
    let subject_after = subject(&up);
    assert_eq!(subject_after.rows().await, rows);
    subject_after.everything_is_committed().await;
    let stats = subject_after.worker_stats().await;
    assert_eq!(stats["consumed"], 0, "nothing is consumed twice: {stats}");
    up.cdr.stop();
}

/// Every log line of the hosts is JSON with the required fields.
fn logs_are_json(lines: &[String]) {
    let mut services = std::collections::BTreeSet::new();
    let mut dead_lettered = 0;
    for line in lines.iter().filter(|line| line.starts_with('{')) {
        let entry: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for field in [
            "timestamp",
            "level",
            "service",
            "raw_id",
            "event",
            "message",
        ] {
            assert!(entry.get(field).is_some(), "{field} is missing: {line}");
        }
        services.insert(entry["service"].as_str().unwrap().to_owned());
        if entry["event"] == "record_dead_lettered" && entry["raw_id"].is_string() {
            dead_lettered += 1;
        }
    }
    assert!(
        services.contains("api") && services.contains("worker"),
        "{services:?}"
    );
    assert!(
        dead_lettered > 0,
        "dead letters are logged with their raw_id"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_dies_ends_all_of_it_and_is_named() {
    let data = tempfile::tempdir().unwrap();
    let mut up = Up::start(data.path());
    let broker = up
        .cdr
        .lines()
        .iter()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find(|entry| entry["event"] == "part_ready" && entry["part"] == "broker")
        .and_then(|entry| entry["pid"].as_i64())
        .expect("the log names the broker's pid");
    let pid = rustix::process::Pid::from_raw(i32::try_from(broker).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    assert!(!up.cdr.ended().success());
    let said = up.cdr.lines().join("\n");
    assert!(said.contains("broker ended"), "{said}");
}
