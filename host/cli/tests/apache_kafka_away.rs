//! An API process whose Apache Kafka is killed under load and started again: 503 and
//! 429 in time, flat memory, and 202 again without a restart. `just test-kafka` runs
//! it; without `APACHE_KAFKA_DIR` it says that it was not run. Alone in its file, since
//! it takes the broker away. (The embedded broker does not outlive such a producer: see
//! `host/embedded/src/broker/child.rs`.)

mod common;

use bytes::Bytes;
use common::bed::Bed;
use common::http_client::HttpClient;
use common::judge::post_all;
use common::process::PATIENCE;
use common::records::{Sample, goods};
use futures::StreamExt;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

async fn post(client: &HttpClient, api: &str, sample: &Sample) -> u16 {
    let body = Bytes::from(sample.payload.clone());
    let answer = client.post(&format!("{api}/v1/cdrs"), body).await;
    answer.expect("an answer").0.as_u16()
}

/// Resident memory of a process, in bytes.
fn resident(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_away_is_503_in_time_and_found_again_without_a_restart() {
    let (Ok(dir), Ok(brokers)) = (
        std::env::var("APACHE_KAFKA_DIR"),
        std::env::var("KAFKA_BOOTSTRAP_SERVERS"),
    ) else {
        eprintln!(
            "NOT RUN: killing the broker needs APACHE_KAFKA_DIR and KAFKA_BOOTSTRAP_SERVERS (just test-kafka)"
        );
        return;
    };
    let bed = Bed::on(brokers.clone()).await;
    let api = bed.api(&[
        ("KAFKA_DELIVERY_TIMEOUT_SECONDS", "2"),
        ("API_QUEUE_MAX_SIZE", "200"),
    ]);
    let (samples, _) = goods(0, 100);
    assert_eq!(post_all(&api.url, &samples).await, 100);

    let pid = std::fs::read_to_string(Path::new(&dir).join("pid")).expect("a broker");
    let done = Command::new("kill").args(["-9", pid.trim()]).status();
    assert!(done.is_ok_and(|status| status.success()), "killed");
    let before = resident(api.cdr.pid());
    let client = HttpClient::new();
    let (samples, _) = goods(100, 3100);
    let mut counts = BTreeMap::<u16, u64>::new();
    let mut answers = futures::stream::iter(samples.iter().map(|sample| {
        let (client, url) = (&client, &api.url);
        async move {
            let asked = Instant::now();
            (post(client, url, sample).await, asked.elapsed())
        }
    }))
    .buffer_unordered(400);
    while let Some((status, took)) = answers.next().await {
        *counts.entry(status).or_default() += 1;
        // The deadline of 2 s and the host's margin of 5, and patience with the machine.
        assert!(took < Duration::from_secs(60), "{took:?}");
    }
    drop(answers);
    assert_eq!(counts.keys().copied().collect::<Vec<_>>(), [429, 503]);
    let after = resident(api.cdr.pid());
    println!(
        "away: {counts:?}, {} MiB more",
        after.saturating_sub(before) / MIB
    );
    assert!(
        after.saturating_sub(before) < 64 * MIB,
        "{before} → {after}"
    );
    let (ready, _) = client.get(&format!("{}/readyz", api.url)).await.unwrap();
    assert_eq!(ready.as_u16(), 200, "an outage is no gate");

    let script =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../kafka/apache-kafka/apache-kafka.sh");
    let again = Command::new(script)
        .args(["start", &dir, "0"])
        .output()
        .expect("apache-kafka.sh");
    let again = String::from_utf8_lossy(&again.stdout).trim().to_owned();
    assert_eq!(again, brokers, "on the same port");
    let started = Instant::now();
    while post(&client, &api.url, &samples[0]).await != 202 {
        assert!(started.elapsed() < PATIENCE, "not found again");
    }
    api.stop();
}
