//! SIGTERM in every state of a worker: it ends within its budget, with success
//! only if everything taken is settled, and whatever is not is consumed again.

mod common;

use common::bed::{Bed, Host};
use common::judge::{Subject, post_all};
use common::records::{Expected, Fate, Sample, goods};
use rustix::process::Signal;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// The shortest budget that these settings allow: an insert of 1 s, a dead
/// letter of 2 s, and 5 s for the last commit.
const SHORT: [(&str, &str); 4] = [
    ("WORKER_SHUTDOWN_TIMEOUT_SECONDS", "8"),
    ("CLICKHOUSE_TIMEOUT_SECONDS", "1"),
    ("KAFKA_DELIVERY_TIMEOUT_SECONDS", "2"),
    ("BATCH_FLUSH_INTERVAL_SECONDS", "0.1"),
];

/// Rows wait for company until they are told not to.
const UNHURRIED: [(&str, &str); 2] = [
    ("BATCH_FLUSH_INTERVAL_SECONDS", "3600"),
    ("WORKER_PROGRESS_TIMEOUT_SECONDS", "86400"),
];

/// For the process to be seen to have ended, beyond the budget that it was given.
const SLACK: Duration = Duration::from_secs(2);

fn short(bed: &Bed, more: &[(&'static str, &str)]) -> Host {
    let mut env = SHORT.to_vec();
    env.extend_from_slice(more);
    bed.worker(&env)
}

/// So many payloads that are not JSON.
fn malformed(count: usize) -> Vec<Sample> {
    let sample = |i| Sample {
        payload: format!("{{bad {i}").into_bytes(),
        fate: Fate::DeadLetter("malformed_json"),
    };
    (0..count).map(sample).collect()
}

/// Sends SIGTERM and waits for the end, which must come within the budget.
fn terminate(host: &mut Host, budget: u64) -> (ExitStatus, String) {
    let budget = Duration::from_secs(budget);
    let asked = Instant::now();
    host.cdr.signal(Signal::TERM);
    let status = host.cdr.ended();
    let log = host.cdr.lines().join("\n");
    let took = asked.elapsed();
    assert!(took < budget + SLACK, "{took:?}\n{log}");
    (status, log)
}

/// Another worker on the same bed finds everything that the first one left.
async fn the_next_worker_finds(bed: &Bed, api: &Host, rows: &[Expected]) -> Subject {
    // As `cdr up` sets it: the embedded broker, killed while the first worker was
    // a member, may leave the second one without partitions.
    let alone = [
        ("KAFKA_SESSION_TIMEOUT_SECONDS", "10"),
        ("KAFKA_MAX_POLL_INTERVAL_SECONDS", "30"),
        ("KAFKA_REJOIN_SECONDS", "15"),
    ];
    let worker = short(bed, &alone);
    let subject = bed.subject(&api.url, &worker.url);
    subject.everything_is_committed().await;
    assert_eq!(subject.rows().await, rows);
    worker.stop();
    subject
}

#[tokio::test(flavor = "multi_thread")]
async fn in_the_middle_of_a_batch_it_is_flushed_and_committed() {
    let bed = Bed::start().await;
    let worker = bed.worker(&UNHURRIED);
    let api = bed.api(&[]);
    let subject = bed.subject(&api.url, &worker.url);
    let (samples, rows) = goods(0, 100);
    assert_eq!(post_all(&api.url, &samples).await, 100);
    subject
        .stats_when("buffered", |stats| stats["buffered_rows"] == 100)
        .await;
    assert_eq!(subject.rows().await, []);
    worker.stop();
    assert_eq!(subject.rows().await, rows);
    subject.everything_is_committed().await;
    api.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn while_clickhouse_is_retried_the_batch_ends_as_dead_letters() {
    let mut bed = Bed::start().await;
    let worker = short(&bed, &[("CH_RETRY_MAX_ATTEMPTS", "2")]);
    let api = bed.api(&[]);
    let subject = bed.subject(&api.url, &worker.url);
    bed.kill_clickhouse().await;
    let (samples, _) = goods(0, 100);
    assert_eq!(post_all(&api.url, &samples).await, 100);
    subject
        .stats_when("all taken, and retried", |stats| {
            stats["consumed"] == 100 && stats["insert_retries"].as_u64() > Some(0)
        })
        .await;
    worker.stop();
    subject.everything_is_committed().await;
    assert_eq!(subject.dead_letters().await.len(), 100);
    api.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_for_clickhouse_it_ends_in_time_without_success_and_commits_nothing() {
    let mut bed = Bed::start().await;
    let mut worker = short(&bed, &[("CH_EXHAUSTED_POLICY", "pause")]);
    let api = bed.api(&[]);
    let subject = bed.subject(&api.url, &worker.url);
    bed.kill_clickhouse().await;
    let (samples, rows) = goods(0, 100);
    assert_eq!(post_all(&api.url, &samples).await, 100);
    subject
        .stats_when("all taken, and retried", |stats| {
            stats["consumed"] == 100 && stats["insert_retries"].as_u64() > Some(0)
        })
        .await;
    let (status, log) = terminate(&mut worker, 8);
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("100 records were not settled"), "{log}");
    assert!(log.contains("WORKER_SHUTDOWN_TIMEOUT_SECONDS"), "{log}");
    assert!(subject.committed().await.values().all(|&next| next == 0));
    assert_eq!(subject.dead_letters().await, []);

    bed.start_clickhouse().await;
    the_next_worker_finds(&bed, &api, &rows).await;
    api.stop();
}

/// An engine that hangs with the connection open is given up by the clock, and
/// what it did in the end is not done twice.
#[tokio::test(flavor = "multi_thread")]
async fn with_a_clickhouse_that_hangs_it_ends_in_time() {
    let bed = Bed::start().await;
    let mut worker = short(&bed, &[("CH_EXHAUSTED_POLICY", "pause")]);
    let api = bed.api(&[]);
    let subject = bed.subject(&api.url, &worker.url);
    bed.freeze_clickhouse(true);
    let (samples, rows) = goods(0, 100);
    assert_eq!(post_all(&api.url, &samples).await, 100);
    subject
        .stats_when("all taken, and retried", |stats| {
            stats["consumed"] == 100 && stats["insert_retries"].as_u64() > Some(0)
        })
        .await;
    let (status, log) = terminate(&mut worker, 8);
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("no answer within 1s"), "{log}");
    bed.freeze_clickhouse(false);
    let subject = the_next_worker_finds(&bed, &api, &rows).await;
    assert_eq!(
        subject.store.count().await.unwrap(),
        100,
        "what the engine did in the end is not done twice"
    );
    api.stop();
}

/// arroyo dlq: never a commit before the dead letters are acknowledged.
#[tokio::test(flavor = "multi_thread")]
async fn with_dead_letters_that_nobody_takes_it_ends_in_time_and_names_the_topic() {
    let mut bed = Bed::start().await;
    let mut env = UNHURRIED.to_vec();
    env.extend([
        ("CH_RETRY_MAX_ATTEMPTS", "0"),
        ("WORKER_SHUTDOWN_TIMEOUT_SECONDS", "40"),
    ]);
    let mut worker = short(&bed, &env);
    let api = bed.api(&[]);
    let subject = bed.subject(&api.url, &worker.url);
    let (samples, rows) = goods(0, 50);
    assert_eq!(post_all(&api.url, &samples).await, 50);
    subject
        .stats_when("buffered", |stats| stats["buffered_rows"] == 50)
        .await;
    // ClickHouse refuses the batch after the broker is gone: its dead letters
    // are what is left to do.
    bed.kill_clickhouse().await;
    bed.kill_broker().await;
    let (status, log) = terminate(&mut worker, 40);
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(
        log.contains("a dead letter was not delivered to cdr.raw."),
        "{log}"
    );
    assert!(
        !log.contains("set-up is broken"),
        "the culprit is Kafka: {log}"
    );

    bed.start_broker().await;
    bed.start_clickhouse().await;
    assert!(subject.committed().await.values().all(|&next| next == 0));
    the_next_worker_finds(&bed, &api, &rows).await;
    api.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_clickhouse_at_the_start_it_just_ends() {
    let mut bed = Bed::start().await;
    bed.kill_clickhouse().await;
    let worker = short(&bed, &[]);
    let subject = bed.subject(&worker.url, &worker.url);
    let (status, body) = subject.get(&format!("{}/readyz", worker.url)).await;
    assert_eq!(status, 503);
    assert!(body.contains("waiting for ClickHouse"), "{body}");
    worker.stop();
}

/// Invalid records alone make no row, and their dead letters are drained.
#[tokio::test(flavor = "multi_thread")]
async fn with_dead_letters_under_way_they_are_delivered_and_committed() {
    let bed = Bed::start().await;
    let worker = bed.worker(&[]);
    let subject = bed.subject(&worker.url, &worker.url);
    subject.inject(&malformed(2000)).await;
    subject
        .stats_when("some taken", |stats| stats["consumed"].as_u64() > Some(0))
        .await;
    worker.stop();
    // What it took is settled; what it did not is the next one's.
    let worker = bed.worker(&[]);
    let subject = bed.subject(&worker.url, &worker.url);
    subject.everything_is_committed().await;
    assert_eq!(subject.dead_letters().await.len(), 2001);
    worker.stop();
}

/// arroyo#143, #259: batches without a single row commit too.
#[tokio::test(flavor = "multi_thread")]
async fn invalid_records_alone_are_committed_and_leave_no_lag() {
    let bed = Bed::start().await;
    let worker = bed.worker(&[]);
    let subject = bed.subject(&worker.url, &worker.url);
    subject.inject(&malformed(300)).await;
    let stats = subject.settled(301).await;
    assert_eq!(
        (&stats["batches"], &stats["inserted"]),
        (&0.into(), &0.into())
    );
    subject.everything_is_committed().await;
    subject
        .stats_when("without lag", |stats| stats["lag"] == 0)
        .await;
    worker.stop();
}
