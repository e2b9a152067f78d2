//! The same path against Apache Kafka, with `cdr provision`, `cdr worker` and
//! `cdr api` as they are run in production. `just test-kafka` runs it; without a
//! broker in `KAFKA_BOOTSTRAP_SERVERS` it says that it was not run.

mod common;

use cdr_kafka::dead_letter::{Envelope, SpooledDeadLetter};
use cdr_kafka::headers;
use common::bed::Bed;
use common::judge::post_all;
use common::process::PATIENCE;
use common::records::{Fate, Sample, goods};

/// The broker that `just test-kafka` has started.
fn brokers() -> Option<String> {
    let brokers = std::env::var("KAFKA_BOOTSTRAP_SERVERS").ok();
    let brokers = brokers.filter(|it| !it.is_empty());
    if brokers.is_none() {
        eprintln!("NOT RUN: it needs Apache Kafka in KAFKA_BOOTSTRAP_SERVERS (just test-kafka)");
    }
    brokers
}

#[tokio::test(flavor = "multi_thread")]
async fn the_path_on_apache_kafka() {
    let Some(brokers) = brokers() else { return };
    let bed = Bed::on(brokers).await;
    // The second time everything fits.
    bed.provision("fits");
    let worker = bed.worker(&[]);
    let stats = format!("{}/internal/stats", worker.url);
    let api = bed.api(&[("WORKER_STATS_URL", &stats)]);
    bed.subject(&api.url, &worker.url)
        .judge_the_path(5000)
        .await;
    for host in [api, worker] {
        host.stop();
    }
}

/// A raw record that fits its topic, and whose dead letter does not fit the
/// other: it is poison for no one, and nothing of it is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_that_its_topic_refuses_on_apache_kafka() {
    let Some(brokers) = brokers() else { return };
    let bed = Bed::on(brokers).await;
    let worker = bed.worker(&[]);
    let subject = bed.subject(&worker.url, &worker.url);
    // Not UTF-8: base64 makes more than the topic's megabyte of it. And noise, as
    // the broker counts what compression leaves.
    let mut state = 0x2545_f491_u32;
    let payload: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[0] | 0x80
    })
    .take(900_000)
    .collect();
    let bad = Sample {
        payload: payload.clone(),
        fate: Fate::DeadLetter("malformed_json"),
    };
    let (mut samples, rows) = goods(0, 10);
    samples.insert(5, bad);
    subject.inject(&samples).await;
    // The tombstone that is injected too is one.
    let stats = subject.settled(12).await;
    assert_eq!(stats["dead_letters_oversized"], 1, "{stats}");
    assert_eq!(stats["dead_lettered"], 2, "{stats}");
    assert_eq!(subject.rows().await, rows);

    let letters = cdr_kafka::admin::read_topic(&subject.kafka, &subject.names.dlq, PATIENCE)
        .await
        .unwrap();
    let cut = letters
        .iter()
        .find(|letter| letter.header(headers::SPOOL_FILE).is_some())
        .expect("the cut one");
    let envelope = Envelope::decode(
        cut.payload.as_deref().unwrap(),
        cut.header(headers::PAYLOAD_ENCODING),
    )
    .unwrap();
    assert!(envelope.truncated);
    assert!(payload.starts_with(&envelope.original_payload.unwrap()));
    assert_eq!(cut.header(headers::PAYLOAD_TRUNCATED), Some("900000"));
    let file = bed
        .data
        .path()
        .join("spool")
        .join(cut.header(headers::SPOOL_FILE).unwrap());
    let whole = SpooledDeadLetter::decode(&std::fs::read(file).unwrap()).unwrap();
    let encoding = whole
        .message
        .headers
        .iter()
        .find(|(name, _)| *name == headers::PAYLOAD_ENCODING);
    let envelope = Envelope::decode(
        &whole.message.payload,
        encoding.map(|(_, value)| value.as_str()),
    )
    .unwrap();
    assert_eq!(envelope.original_payload, Some(payload));
    subject.everything_is_committed().await;
    worker.stop();
}

/// A second worker joins while the first one's rows wait for company: those of
/// the partitions that move go in first, so that nothing is done twice.
#[tokio::test(flavor = "multi_thread")]
async fn partitions_that_move_are_settled_before_they_go_on_apache_kafka() {
    let Some(brokers) = brokers() else { return };
    let bed = Bed::on(brokers).await;
    let unhurried = [
        ("BATCH_FLUSH_INTERVAL_SECONDS", "3600"),
        ("WORKER_PROGRESS_TIMEOUT_SECONDS", "86400"),
        // Time is no object: what is not settled by hurrying never is.
        ("KAFKA_REVOKE_TIMEOUT_SECONDS", "200"),
    ];
    let first = bed.worker(&unhurried);
    let api = bed.api(&[]);
    let subject = bed.subject(&api.url, &first.url);
    subject.keep_every_row().await;
    let (samples, rows) = goods(0, 300);
    assert_eq!(post_all(&api.url, &samples).await, 300);
    subject
        .stats_when("buffered", |stats| stats["buffered_rows"] == 300)
        .await;

    let second = bed.worker(&unhurried);
    let other = bed.subject(&api.url, &second.url);
    other
        .stats_when("given partitions", |stats| {
            stats["partitions"]
                .as_array()
                .is_some_and(|p| !p.is_empty())
        })
        .await;
    let stats = subject.worker_stats().await;
    assert_eq!(stats["given_back"], 0, "{stats}");
    assert!(stats["inserted"].as_u64() > Some(0), "{stats}");
    let stats = other.worker_stats().await;
    assert_eq!(stats["consumed"], 0, "nothing is consumed again: {stats}");

    first.stop();
    second.stop();
    assert_eq!(subject.rows().await, rows);
    assert_eq!(subject.physical_rows().await, 300);
    subject.everything_is_committed().await;
    api.stop();
}
