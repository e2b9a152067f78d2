//! Apache Kafka killed and started again under load. Needs `APACHE_KAFKA_DIR`,
//! the folder of a broker that `apache-kafka.sh` runs (`just test-kafka` sets
//! it), and does not run without. Alone in its file, since test files run one
//! after another and this one takes the broker away.

mod common;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use cdr_kafka::topics::{TopicSpec, provision};
use cdr_kafka::{ConsumerEvent, KafkaConfig, Outcome, Publisher, PublisherConfig};
use common::{PATIENCE, committed, consumer_config, eventually, start};

fn script(arguments: &[&str]) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("apache-kafka/apache-kafka.sh");
    let output = Command::new(path)
        .args(arguments)
        .output()
        .expect("apache-kafka.sh");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apache_kafka_killed_under_load_loses_no_acknowledged_record() {
    let (Ok(dir), Ok(brokers)) = (
        std::env::var("APACHE_KAFKA_DIR"),
        std::env::var("KAFKA_BOOTSTRAP_SERVERS"),
    ) else {
        eprintln!(
            "NOT RUN: killing the broker needs APACHE_KAFKA_DIR and KAFKA_BOOTSTRAP_SERVERS (just test-kafka)"
        );
        return;
    };
    let kafka = KafkaConfig::plaintext(&brokers);
    let nanos = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos());
    let (topic, group) = (format!("test.kill.{nanos}"), format!("group.{nanos}"));
    provision(&kafka, &[TopicSpec::raw(&topic)], PATIENCE)
        .await
        .expect("provisioned");

    let config = PublisherConfig {
        delivery_timeout: Duration::from_secs(2),
        ..PublisherConfig::default()
    };
    let publisher = Publisher::new(&kafka, config).expect("a producer");
    let to = topic.clone();
    // Each record is sent until it is acknowledged, as a vendor does.
    let producing = tokio::spawn(async move {
        let mut ambiguous = 0;
        for number in 0..3000 {
            let key = format!("key-{number}");
            while let Err(error) = publisher
                .publish(&to, Some(key.as_bytes()), Some(b"{}"), &[])
                .await
            {
                assert!(error.is_ambiguous(), "{error}");
                ambiguous += 1;
            }
        }
        ambiguous
    });

    let mut started = start(&brokers, consumer_config(&topic, &group));
    let mut keys = std::collections::BTreeSet::new();
    let mut killed = false;
    while keys.len() < 3000 {
        let record = tokio::time::timeout(PATIENCE, started.records.recv()).await;
        let record = record
            .unwrap_or_else(|_| panic!("only {} keys came", keys.len()))
            .expect("the consumer runs");
        keys.extend(record.key.clone());
        started.consumer.settle([record.id], Outcome::Inserted);
        if keys.len() == 1000 && !killed {
            killed = true;
            let pid = std::fs::read_to_string(Path::new(&dir).join("pid")).expect("a broker");
            let done = Command::new("kill").args(["-9", pid.trim()]).status();
            assert!(done.is_ok_and(|status| status.success()), "killed");
            let dir = dir.clone();
            let again = tokio::task::spawn_blocking(move || script(&["start", &dir, "0"]));
            assert_eq!(again.await.expect("started"), brokers, "on the same port");
        }
    }
    let ambiguous = producing.await.expect("all acknowledged");
    eventually("everything is committed", || {
        while let Ok(record) = started.records.try_recv() {
            started.consumer.settle([record.id], Outcome::Inserted);
        }
        let lag = started.consumer.lag();
        lag.len() == 3 && lag.values().all(|l| l.lag == 0)
    })
    .await;
    while let Ok(event) = started.events.try_recv() {
        assert!(!matches!(event, ConsumerEvent::Fatal(_)), "{event:?}");
    }
    started.consumer.close(PATIENCE).await.expect("closed");
    assert!(started.consumer.status().totals.balanced());
    let sum: i64 = committed(&brokers, &group, &topic)
        .await
        .into_iter()
        .flatten()
        .sum();
    assert!(
        sum >= 3000 && sum <= 3000 + ambiguous,
        "{sum} committed, {ambiguous} ambiguous"
    );
}
