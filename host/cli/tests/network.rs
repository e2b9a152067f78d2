//! A network between worker and ClickHouse that breaks in the middle: every
//! record ends as one row, not only under FINAL, and none as a dead letter.

mod common;

use cdr_verify::proxy::{Fault, Proxy};
use common::bed::Bed;
use common::judge::post_all;
use common::records::goods;

/// Posts while the fault holds, sees the worker run into it, heals, and judges.
async fn nothing_is_lost_or_doubled_by(fault: Fault, said: &str) {
    let bed = Bed::start().await;
    let proxy = Proxy::start(bed.clickhouse_addr()).unwrap();
    let through = format!("http://{}", proxy.addr());
    let worker = bed.worker(&[
        ("CLICKHOUSE_URL", &through),
        ("CLICKHOUSE_TIMEOUT_SECONDS", "2"),
        ("CH_EXHAUSTED_POLICY", "pause"),
        ("BATCH_SIZE", "50"),
        ("BATCH_FLUSH_INTERVAL_SECONDS", "0.2"),
    ]);
    let api = bed.api(&[]);
    let subject = bed.subject(&api.url, &worker.url);
    subject.keep_every_row().await;
    let (before, mut rows) = goods(0, 60);
    assert_eq!(post_all(&api.url, &before).await, 60);
    subject.settled(60).await;

    proxy.set(fault).await.unwrap();
    let (during, more) = goods(60, 260);
    rows.extend(more);
    assert_eq!(post_all(&api.url, &during).await, 200);
    subject
        .stats_when("retried", |stats| {
            // Both slots (BATCHES_IN_FLIGHT) are waiting, and no third.
            stats["insert_retries"].as_u64() >= Some(2) && stats["batches_in_flight"] == 2
        })
        .await;
    proxy.set(Fault::Pass).await.unwrap();

    let stats = subject.settled(260).await;
    assert_eq!(stats["inserted"], 260, "{stats}");
    assert_eq!(subject.rows().await, rows);
    assert_eq!(subject.dead_letters().await, []);
    assert_eq!(
        subject.physical_rows().await,
        260,
        "a retry of a batch that had landed adds nothing"
    );
    subject.everything_is_committed().await;
    let log = worker.stop().join("\n");
    assert!(log.contains(said), "{said}:\n{log}");
    api.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_lost_after_the_write() {
    nothing_is_lost_or_doubled_by(Fault::CutAfterWrite, "insert_retried").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_cut_in_the_middle_of_a_request() {
    nothing_is_lost_or_doubled_by(Fault::CutMidRequest(1500), "insert_retried").await;
}

/// PostHog#43406: no request without a deadline.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_hangs() {
    nothing_is_lost_or_doubled_by(Fault::Hang, "no answer within 2s").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_on_which_nobody_listens() {
    nothing_is_lost_or_doubled_by(Fault::Refuse, "check that ClickHouse runs there").await;
}
