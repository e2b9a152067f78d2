//! `kill -9` of `cdr up` in the middle of the sample, and a new start on the
//! same folder: nothing that got a 202 is lost.

mod common;

use bytes::Bytes;
use cdr_kafka::KafkaConfig;
use common::http_client::HttpClient;
use common::judge::{Names, Subject, store};
use common::process::{PATIENCE, Up};
use common::records::{good, now_s};
use futures::StreamExt;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_when_everything_dies() {
    let data = tempfile::tempdir().unwrap();
    let mut up = Up::start(data.path());
    let url = format!("{}/v1/cdrs", up.api);
    let client = HttpClient::new();
    let now = now_s();
    let total = 3000;
    let acknowledged = AtomicUsize::new(0);

    // Posts until the kill, and notes which got a 202.
    let posting = futures::stream::iter(0..total)
        .map(|i| {
            let (client, url, acknowledged) = (client.clone(), url.clone(), &acknowledged);
            let payload = Bytes::from(serde_json::to_vec(&good(i, now).0).unwrap());
            async move {
                let answer = client.post(&url, payload).await;
                let is_acknowledged = answer.is_ok_and(|(status, _)| status.as_u16() == 202);
                if is_acknowledged {
                    acknowledged.fetch_add(1, Ordering::SeqCst);
                }
                (i, is_acknowledged)
            }
        })
        .buffer_unordered(32)
        .collect::<Vec<_>>();
    let killing = async {
        let started = Instant::now();
        while acknowledged.load(Ordering::SeqCst) < 1000 {
            assert!(started.elapsed() < PATIENCE);
            tokio::task::yield_now().await;
        }
        up.cdr.signal(Signal::KILL);
    };
    let (answers, ()) = tokio::join!(posting, killing);
    up.cdr.ended();
    let kept: BTreeSet<u64> = answers
        .iter()
        .filter(|(_, kept)| *kept)
        .map(|(i, _)| *i)
        .collect();
    assert!(
        kept.len() >= 1000 && kept.len() < total as usize,
        "{} acknowledged",
        kept.len()
    );

    let up = Up::start(data.path());
    let (user, password) = up.credentials();
    let subject = Subject {
        api: up.api.clone(),
        worker: up.worker.clone(),
        kafka: KafkaConfig::plaintext(&up.kafka),
        store: store(&up.clickhouse, &user, &password),
        names: Names {
            raw: "cdr.raw".to_owned(),
            dlq: "cdr.raw.dlq".to_owned(),
            group: "cdr-worker".to_owned(),
        },
    };
    // What got no 202 is sent again, as vendors do.
    let client = HttpClient::new();
    for (i, _) in answers.iter().filter(|(_, kept)| !kept) {
        let payload = Bytes::from(serde_json::to_vec(&good(*i, now).0).unwrap());
        let (status, body) = client
            .post(&format!("{}/v1/cdrs", up.api), payload)
            .await
            .unwrap();
        assert_eq!(status.as_u16(), 202, "{}", String::from_utf8_lossy(&body));
    }
    subject.everything_is_committed().await;
    let mut expected: Vec<_> = (0..total).map(|i| good(i, now).1).collect();
    expected.sort();
    assert_eq!(
        subject.rows().await,
        expected,
        "each exactly once under FINAL"
    );
    assert_eq!(subject.dead_letters().await, []);
    up.cdr.stop();
}
