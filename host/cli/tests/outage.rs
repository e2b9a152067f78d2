//! ClickHouse goes away under load and comes back, on real parts: no rebalance,
//! nothing lost, and by policy nothing or the right things dead-lettered.

mod common;

use common::bed::{Bed, Host};
use common::judge::post_all;
use common::process::PATIENCE;
use common::records::goods;
use serde_json::json;
use std::time::{Duration, Instant};

/// librdkafka's `max.poll.interval.ms`; the least that lets a session of 6 s and
/// a revocation of 1 s live beside it.
const MAX_POLL_S: u64 = 10;

/// A worker that is patient by policy and would be thrown out of its group if it
/// stopped polling.
fn patient(bed: &Bed, more: &[(&'static str, &str)]) -> Host {
    let mut env = vec![
        ("KAFKA_MAX_POLL_INTERVAL_SECONDS", "10"),
        ("KAFKA_SESSION_TIMEOUT_SECONDS", "6"),
        ("KAFKA_REVOKE_TIMEOUT_SECONDS", "1"),
        ("CH_EXHAUSTED_POLICY", "pause"),
        ("BATCH_SIZE", "100"),
        ("BATCH_FLUSH_INTERVAL_SECONDS", "0.2"),
    ];
    env.extend_from_slice(more);
    bed.worker(&env)
}

/// quickwit#2083, #6014: a slow sink, no poll, thrown out of the group.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_longer_than_max_poll_interval_causes_no_rebalance_and_loses_nothing() {
    let mut bed = Bed::start().await;
    let worker = patient(
        &bed,
        &[
            ("WORKER_PROGRESS_TIMEOUT_SECONDS", "5"),
            ("CLICKHOUSE_TIMEOUT_SECONDS", "3"),
        ],
    );
    let api = bed.api(&[]);
    let subject = bed.subject(&api.url, &worker.url);

    let (before, mut rows) = goods(0, 300);
    assert_eq!(post_all(&api.url, &before).await, 300);
    let stats = subject.settled(300).await;
    let rebalances = stats["rebalances"].as_u64().unwrap();

    bed.kill_clickhouse().await;
    let away = Instant::now();
    let (during, more) = goods(300, 900);
    rows.extend(more);
    assert_eq!(
        post_all(&api.url, &during).await,
        600,
        "vendors see nothing of it"
    );
    let stats = subject
        .stats_when("taken in", |stats| stats["consumed"] == 900)
        .await;
    assert_eq!(stats["in_flight"], 600, "{stats}");

    // A process that stands still is not green, and says which partition.
    let started = Instant::now();
    loop {
        let (status, body) = subject.get(&format!("{}/healthz", worker.url)).await;
        if status == 503 {
            assert!(
                body.contains("records waiting and committed nothing"),
                "{body}"
            );
            break;
        }
        assert!(started.elapsed() < PATIENCE, "still green: {body}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (_, metrics) = subject.get(&format!("{}/metrics", worker.url)).await;
    assert!(
        metrics.contains("cdr_worker_stalled{partition=\""),
        "{metrics}"
    );

    // The time itself is what is tested here.
    let rest = Duration::from_secs(MAX_POLL_S + 5).saturating_sub(away.elapsed());
    tokio::time::sleep(rest).await;
    bed.start_clickhouse().await;

    let stats = subject.settled(900).await;
    assert_eq!(stats["rebalances"], rebalances, "no rebalance: {stats}");
    assert_eq!(stats["inserted"], 900);
    assert_eq!(stats["given_back"], 0);
    rows.sort();
    assert_eq!(subject.rows().await, rows);
    assert_eq!(subject.dead_letters().await, []);
    subject.everything_is_committed().await;
    subject
        .stats_when("green again", |stats| stats["stalled"] == json!([]))
        .await;
    let log = worker.stop().join("\n");
    for event in ["worker_stuck", "worker_gets_on", "insert_retried"] {
        assert!(log.contains(event), "{event}");
    }
    api.stop();
}

/// The default policy: attempts used up, the whole batch is dead-lettered with
/// its original payloads, and only then committed.
#[tokio::test(flavor = "multi_thread")]
async fn batches_that_clickhouse_never_took_are_dead_lettered_with_their_payloads() {
    let mut bed = Bed::start().await;
    let worker = bed.worker(&[
        ("CH_RETRY_MAX_ATTEMPTS", "1"),
        ("BATCH_SIZE", "100"),
        ("BATCH_FLUSH_INTERVAL_SECONDS", "0.2"),
    ]);
    let api = bed.api(&[]);
    let subject = bed.subject(&api.url, &worker.url);
    let (first, mut rows) = goods(0, 50);
    assert_eq!(post_all(&api.url, &first).await, 50);
    subject.settled(50).await;

    bed.kill_clickhouse().await;
    let (lost_time, _) = goods(50, 250);
    assert_eq!(post_all(&api.url, &lost_time).await, 200);
    let stats = subject.settled(250).await;
    assert_eq!(stats["dead_lettered"], 200, "{stats}");
    subject.everything_is_committed().await;
    let mut letters: Vec<_> = lost_time
        .into_iter()
        .map(|sample| ("normalization_error".to_owned(), sample.payload))
        .collect();
    letters.sort();
    assert!(subject.dead_letters().await == letters);

    bed.start_clickhouse().await;
    let (after, more) = goods(250, 300);
    rows.extend(more);
    assert_eq!(post_all(&api.url, &after).await, 50);
    subject.settled(300).await;
    rows.sort();
    assert_eq!(subject.rows().await, rows);
    worker.stop();
    api.stop();
}

/// A table that is gone is nobody's fault but the set-up's: no record is blamed,
/// nothing is committed, and once it is mended the same records become rows.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_goes_away_stops_the_worker_and_blames_no_record() {
    let bed = Bed::start().await;
    let mut worker = bed.worker(&[]);
    let api = bed.api(&[]);
    let subject = bed.subject(&api.url, &worker.url);
    let (first, _) = goods(0, 20);
    assert_eq!(post_all(&api.url, &first).await, 20);
    subject.settled(20).await;
    subject.everything_is_committed().await;
    let committed = subject.committed().await;

    let table = subject.store.quoted_table();
    subject
        .store
        .execute(&format!("DROP TABLE {table} SYNC"))
        .await
        .unwrap();
    let (second, rows) = goods(20, 60);
    assert_eq!(post_all(&api.url, &second).await, 40);
    let status = worker.cdr.ended();
    let log = worker.cdr.lines().join("\n");
    assert!(!status.success(), "{log}");
    assert!(log.contains("the ClickHouse set-up is broken"), "{log}");
    assert!(log.contains("cdr provision"), "{log}");
    assert_eq!(subject.committed().await, committed, "nothing was advanced");
    assert_eq!(subject.dead_letters().await, []);

    let mut refused = bed.failing_worker(&[]);
    assert!(!refused.ended().success());
    assert!(
        refused
            .lines()
            .join("\n")
            .contains("make it with `cdr provision`"),
        "{:?}",
        refused.lines()
    );

    let mut provision = common::process::Cdr::start(&["provision"], &bed.env_with(&[]));
    assert!(provision.ended().success(), "{:?}", provision.lines());
    let worker = bed.worker(&[]);
    let subject = bed.subject(&api.url, &worker.url);
    subject.settled(40).await;
    assert_eq!(subject.rows().await, rows);
    worker.stop();
    api.stop();
}
