//! Posting, and judging what landed by ClickHouse and Kafka themselves.

use super::http_client::HttpClient;
use super::process::PATIENCE;
use super::records::{Expected, Fate, Sample};
use bytes::Bytes;
use cdr_kafka::dead_letter::Envelope;
use cdr_kafka::{KafkaConfig, Publisher, PublisherConfig};
use cdr_store::{Password, Store, StoreConfig};
use futures::StreamExt;
use hyper::StatusCode;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Topics and group of a system under test.
#[derive(Clone)]
pub struct Names {
    pub raw: String,
    pub dlq: String,
    pub group: String,
}

/// A system under test.
pub struct Subject {
    pub api: String,
    pub worker: String,
    pub kafka: KafkaConfig,
    pub store: Store,
    pub names: Names,
}

pub fn store(url: &str, user: &str, password: &str) -> Store {
    Store::new(StoreConfig {
        url: url.to_owned(),
        user: user.to_owned(),
        password: Password::new(password),
        ..StoreConfig::default()
    })
    .unwrap()
}

/// Posts all, many at a time, and checks each answer. Returns how many got 202.
pub async fn post_all(api: &str, samples: &[Sample]) -> u64 {
    let client = HttpClient::new();
    let url = format!("{api}/v1/cdrs");
    let mut accepted = 0;
    let mut answers = futures::stream::iter(samples.iter().cloned().map(|sample| {
        let (client, url) = (client.clone(), url.clone());
        async move {
            let answer = client.post(&url, Bytes::from(sample.payload.clone())).await;
            (sample, answer.unwrap())
        }
    }))
    .buffer_unordered(64);
    while let Some((sample, (status, body))) = answers.next().await {
        let text = String::from_utf8_lossy(&body).into_owned();
        match &sample.fate {
            Fate::Refused(word) => {
                assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
                let answer: Value = serde_json::from_slice(&body).unwrap();
                assert_eq!(answer["error"], *word);
            }
            _ => {
                assert_eq!(status, StatusCode::ACCEPTED, "{text}");
                accepted += 1;
            }
        }
    }
    accepted
}

/// The oracle: in total and by partition, nothing is unaccounted for.
pub fn balanced(stats: &Value) {
    let check = |counts: &Value| {
        let count = |name: &str| counts[name].as_u64().unwrap_or(0);
        assert_eq!(
            count("consumed"),
            count("inserted") + count("dead_lettered") + count("in_flight") + count("given_back"),
            "{stats}"
        );
    };
    check(stats);
    for partition in stats["partitions"].as_array().into_iter().flatten() {
        check(&partition["counts"]);
    }
}

impl Subject {
    /// Puts records onto the topic past the API.
    pub async fn inject(&self, samples: &[Sample]) {
        let publisher = Publisher::new(&self.kafka, PublisherConfig::default()).unwrap();
        for sample in samples {
            publisher
                .publish(
                    &self.names.raw,
                    Some(b"injected"),
                    Some(&sample.payload),
                    &[],
                )
                .await
                .unwrap();
        }
        // A tombstone is a record too.
        publisher
            .publish(&self.names.raw, Some(b"tombstone"), None, &[])
            .await
            .unwrap();
    }

    pub async fn worker_stats(&self) -> Value {
        let client = HttpClient::new();
        let (_, body) = client
            .get(&format!("{}/internal/stats", self.worker))
            .await
            .unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    /// The worker's stats, once they are as wanted; the equation holds each time.
    pub async fn stats_when(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let started = Instant::now();
        loop {
            let stats = self.worker_stats().await;
            balanced(&stats);
            if wanted(&stats) {
                return stats;
            }
            assert!(started.elapsed() < PATIENCE, "never {what}: {stats}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Status and body of a path of a host.
    pub async fn get(&self, url: &str) -> (u16, String) {
        let (status, body) = HttpClient::new().get(url).await.unwrap();
        (status.as_u16(), String::from_utf8_lossy(&body).into_owned())
    }

    /// Committed offsets, by partition; 0 where there is none.
    pub async fn committed(&self) -> BTreeMap<i32, i64> {
        let committed = cdr_kafka::admin::committed_offsets(
            &self.kafka,
            &self.names.group,
            &self.names.raw,
            PATIENCE,
        )
        .await
        .unwrap();
        committed
            .into_iter()
            .map(|(partition, next)| (partition, next.unwrap_or(0)))
            .collect()
    }

    /// Waits until so many records were consumed and all of them are settled.
    pub async fn settled(&self, consumed: u64) -> Value {
        let started = Instant::now();
        loop {
            let stats = self.worker_stats().await;
            balanced(&stats);
            let count = |name: &str| stats[name].as_u64().unwrap_or(0);
            if count("consumed") >= consumed && count("in_flight") == 0 {
                assert_eq!(count("consumed"), consumed, "{stats}");
                return stats;
            }
            assert!(started.elapsed() < PATIENCE, "not settled: {stats}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The rows under FINAL, in order.
    pub async fn rows(&self) -> Vec<Expected> {
        let sql = format!(
            "SELECT raw_id, service_type, radio_access_type, msisdn, toUInt32(session_start_time) AS start, \
             duration_s, bytes_up, bytes_down FROM {} FINAL ORDER BY raw_id \
             SETTINGS output_format_json_quote_64bit_integers = 0",
            self.store.quoted_table()
        );
        self.store.query_rows(&sql).await.unwrap()
    }

    /// Lets ClickHouse merge nothing from now on, so that a row that is written
    /// twice stays twice.
    pub async fn keep_every_row(&self) {
        let table = self.store.quoted_table();
        let sql = format!(
            "ALTER TABLE {table} MODIFY SETTING max_bytes_to_merge_at_max_space_in_pool = 1, \
             max_bytes_to_merge_at_min_space_in_pool = 1"
        );
        self.store.execute(&sql).await.unwrap();
    }

    /// How many rows lie in the table, not under FINAL.
    pub async fn physical_rows(&self) -> u64 {
        let sql = format!(
            "SELECT toUInt32(count()) AS n FROM {}",
            self.store.quoted_table()
        );
        let rows: Vec<Value> = self.store.query_rows(&sql).await.unwrap();
        rows[0]["n"].as_u64().unwrap()
    }

    /// The dead letters: reason and exact original payload.
    pub async fn dead_letters(&self) -> Vec<(String, Vec<u8>)> {
        let records = cdr_kafka::admin::read_topic(&self.kafka, &self.names.dlq, PATIENCE)
            .await
            .unwrap();
        let mut letters: Vec<_> = records
            .iter()
            .map(|record| {
                let encoding = record.header(cdr_kafka::headers::PAYLOAD_ENCODING);
                let message = record.payload.as_deref().unwrap();
                let fields: BTreeMap<String, Value> = serde_json::from_slice(message).unwrap();
                let names: Vec<_> = fields.keys().map(String::as_str).collect();
                assert_eq!(
                    names,
                    [
                        "failed_at",
                        "failed_field",
                        "failure_reason",
                        "original_payload",
                        "worker_instance"
                    ]
                );
                assert_eq!(
                    record.header(cdr_kafka::headers::SOURCE_TOPIC),
                    Some(self.names.raw.as_str())
                );
                assert!(
                    record
                        .header(cdr_kafka::headers::NORMALIZER_VERSION)
                        .is_some()
                );
                let envelope = Envelope::decode(message, encoding).unwrap();
                (
                    envelope.failure_reason,
                    envelope.original_payload.unwrap_or_default(),
                )
            })
            .collect();
        letters.sort();
        letters
    }

    /// Committed offsets are the ends of the partitions.
    pub async fn everything_is_committed(&self) {
        let marks = cdr_kafka::admin::watermarks(&self.kafka, &self.names.raw, PATIENCE)
            .await
            .unwrap();
        let started = Instant::now();
        loop {
            let committed = self.committed().await;
            let all = marks.iter().all(|(partition, marks)| {
                marks.high == marks.low || committed[partition] == marks.high
            });
            if all {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "{committed:?} of {marks:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The whole path once: posts, injects, and judges every single record.
    pub async fn judge_the_path(&self, count: u64) {
        let posted = super::records::over_http(count);
        let injected = super::records::injected(60);
        let accepted = post_all(&self.api, &posted).await;
        self.inject(&injected).await;
        let consumed = accepted + injected.len() as u64 + 1;
        let stats = self.settled(consumed).await;

        let mut rows = Vec::new();
        // The tombstone.
        let mut letters = vec![("malformed_json".to_owned(), Vec::new())];
        for sample in posted.iter().chain(&injected) {
            match &sample.fate {
                Fate::Row(expected) => rows.push(expected.clone()),
                Fate::DeadLetter(reason) => {
                    letters.push(((*reason).to_owned(), sample.payload.clone()));
                }
                Fate::Refused(_) => {}
            }
        }
        rows.sort();
        rows.dedup();
        letters.sort();
        let found = self.rows().await;
        assert_eq!(found.len(), rows.len());
        for (found, expected) in found.iter().zip(&rows) {
            assert_eq!(found, expected);
        }
        let dead = self.dead_letters().await;
        assert_eq!(dead.len(), letters.len());
        assert!(dead == letters, "dead letters carry the exact payloads");
        assert_eq!(stats["dead_lettered"], letters.len());
        self.everything_is_committed().await;
        self.metrics_agree(&stats).await;
    }

    /// `/metrics` and `/stats` say the same as the worker's own account.
    async fn metrics_agree(&self, stats: &Value) {
        let client = HttpClient::new();
        let (_, body) = client
            .get(&format!("{}/metrics", self.worker))
            .await
            .unwrap();
        let text = String::from_utf8_lossy(&body).into_owned();
        let rows = format!("cdr_worker_rows_inserted_total {}", stats["inserted"]);
        assert!(text.contains(&rows), "{rows}\n{text}");
        let (status, body) = client.get(&format!("{}/stats", self.api)).await.unwrap();
        assert!(status.is_success());
        let all: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(all["worker"]["inserted"], stats["inserted"], "{all}");
        for path in ["healthz", "readyz"] {
            for host in [&self.api, &self.worker] {
                let (status, _) = client.get(&format!("{host}/{path}")).await.unwrap();
                assert!(status.is_success(), "{host}/{path}");
            }
        }
    }
}
