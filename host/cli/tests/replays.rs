//! A worker that consumes what another has inserted: ClickHouse may know the batch
//! and not have its rows.

mod common;

use common::bed::Bed;
use common::judge::post_all;
use common::records::goods;

/// One batch of all that was posted, so that its token is the same again.
const ONE_BATCH: [(&str, &str); 3] = [
    ("BATCH_SIZE", "30"),
    ("BATCH_FLUSH_INTERVAL_SECONDS", "3600"),
    ("WORKER_PROGRESS_TIMEOUT_SECONDS", "86400"),
];

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_clickhouse_lost_are_written_again_though_it_knows_their_token() {
    let bed = Bed::start().await;
    let first = bed.worker(&ONE_BATCH);
    let api = bed.api(&[]);
    let subject = bed.subject(&api.url, &first.url);
    let (samples, rows) = goods(0, 30);
    assert_eq!(post_all(&api.url, &samples).await, 30);
    subject.settled(30).await;
    first.stop();

    // As after a kill between the token and the part: the token stays.
    let table = subject.store.quoted_table();
    let remove = format!("ALTER TABLE {table} DELETE WHERE 1 SETTINGS mutations_sync = 2");
    subject.store.execute(&remove).await.unwrap();
    assert_eq!(subject.physical_rows().await, 0);

    // Another group begins where the first one did.
    let mut again = ONE_BATCH.to_vec();
    again.push(("KAFKA_CONSUMER_GROUP", "another"));
    let second = bed.worker(&again);
    let subject = bed.subject(&api.url, &second.url);
    subject.settled(30).await;
    assert_eq!(subject.rows().await, rows);
    let log = second.stop().join("\n");
    assert!(log.contains("insert_swallowed"), "{log}");
    api.stop();
}
