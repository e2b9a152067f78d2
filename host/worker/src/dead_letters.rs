//! Dead letters: what can't become a row goes to the dead-letter topic, whole,
//! and counts as settled only when Kafka has acknowledged it.

use crate::error::WorkerError;
use crate::stats::Stats;
use cdr_kafka::consumer::Record;
use cdr_kafka::dead_letter::{DeadLetter, FailureReason, Judge};
use cdr_kafka::ledger::{Outcome, RecordId};
use cdr_kafka::{Publisher, RawConsumer};
use cdr_plugin_host::Provenance;
use futures::future::try_join_all;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Why a record is dead-lettered.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// One of the five words.
    pub reason: FailureReason,
    /// The field to blame, if there is one.
    pub field: Option<String>,
    /// A sentence.
    pub detail: String,
}

/// Where dead letters go.
#[derive(Clone)]
pub struct DeadLetters {
    publisher: Publisher,
    consumer: Arc<RawConsumer>,
    stats: Arc<Stats>,
    /// Topic of the raw records.
    source_topic: String,
    /// Topic of the dead letters.
    topic: String,
    instance: String,
}

impl DeadLetters {
    /// A sink for the records of `source_topic`.
    pub fn new(
        publisher: Publisher,
        consumer: Arc<RawConsumer>,
        stats: Arc<Stats>,
        source_topic: &str,
        topic: &str,
        instance: &str,
    ) -> Self {
        Self {
            publisher,
            consumer,
            stats,
            source_topic: source_topic.to_owned(),
            topic: topic.to_owned(),
            instance: instance.to_owned(),
        }
    }

    /// Publishes the records and, once all of them are acknowledged, settles
    /// them.
    ///
    /// # Errors
    /// A delivery failed. The records that were acknowledged are not settled
    /// either: they may be dead-lettered twice, never lost.
    pub async fn send(
        &self,
        records: Vec<(Record, Verdict)>,
        judge: &Provenance,
    ) -> Result<(), WorkerError> {
        let deliveries = records
            .iter()
            .map(|(record, verdict)| self.publish(record, verdict, judge));
        try_join_all(deliveries)
            .await
            .map_err(|source| WorkerError::DeadLetter {
                topic: self.topic.clone(),
                source,
            })?;
        let ids: Vec<RecordId> = records.iter().map(|(record, _)| record.id).collect();
        self.consumer.settle(ids, Outcome::DeadLettered);
        for (record, verdict) in &records {
            self.stats.dead_lettered(verdict.reason);
            tracing::warn!(
                event = "record_dead_lettered",
                raw_id = record
                    .key
                    .as_deref()
                    .map(|key| String::from_utf8_lossy(key).into_owned()),
                reason = verdict.reason.as_str(),
                field = verdict.field.as_deref(),
                detail = verdict.detail,
                partition = record.id.partition,
                offset = record.id.offset,
                "record dead-lettered: {}",
                verdict.reason.as_str()
            );
        }
        Ok(())
    }

    fn publish(
        &self,
        record: &Record,
        verdict: &Verdict,
        judge: &Provenance,
    ) -> impl Future<Output = Result<cdr_kafka::Delivery, cdr_kafka::PublishError>> + Send + use<>
    {
        let message = DeadLetter {
            key: record.key.as_deref(),
            payload: record.payload.as_deref(),
            reason: verdict.reason,
            failed_field: verdict.field.as_deref(),
            detail: &verdict.detail,
            failed_at_ms: now_ms(),
            worker_instance: &self.instance,
            source_topic: &self.source_topic,
            source_partition: record.id.partition,
            source_offset: record.id.offset,
            source_timestamp_ms: record.timestamp_ms,
            received_at_ms: record.received_at_ms,
            normalizer: Some(Judge {
                name: &judge.name,
                version: &judge.version,
                digest: &judge.digest,
            }),
            replay_count: record.replay_count,
        }
        .encode();
        self.publisher.publish(
            &self.topic,
            message.key.as_deref(),
            Some(&message.payload),
            &message.headers,
        )
    }
}

/// Milliseconds since the Unix epoch.
pub fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|elapsed| i64::try_from(elapsed.as_millis()).ok())
        .unwrap_or(0)
}
