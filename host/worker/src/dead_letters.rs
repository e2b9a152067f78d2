//! Dead letters: what can't become a row goes to the dead-letter topic, whole,
//! and counts as settled only when Kafka has acknowledged it.
//!
//! ```text
//!   publish ─ acknowledged ─▶ settled
//!     │ queue full: wait for room, as long as a delivery may take
//!     │ too large for the topic: the whole to a file (spool), a cut one to the topic
//!     └ anything else: the worker stops, nothing is settled
//! ```

use crate::error::WorkerError;
use crate::spool::Spool;
use crate::stats::Stats;
use cdr_kafka::consumer::Record;
use cdr_kafka::dead_letter::{DeadLetter, DeadLetterMessage, FailureReason, Judge};
use cdr_kafka::ledger::Outcome;
use cdr_kafka::{PublishError, Publisher, RawConsumer};
use cdr_plugin_host::Provenance;
use futures::{StreamExt, TryStreamExt, stream};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Dead letters of one batch that are under way at the same time: far below the
/// producer's queue, which all batches share.
const UNDER_WAY: usize = 1000;

/// Pause before a full queue is tried again.
const QUEUE_PAUSE: Duration = Duration::from_millis(20);

/// What a cut dead letter keeps of its payload, in bytes, the first size that
/// the topic takes.
const CUTS: [usize; 4] = [256 << 10, 32 << 10, 4 << 10, 0];

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
    inner: Arc<Inner>,
}

/// What [`DeadLetters`] is made of.
pub struct Inner {
    /// Acknowledged, idempotent delivery.
    pub publisher: Publisher,
    /// Where records are settled.
    pub consumer: Arc<RawConsumer>,
    /// Where they are counted.
    pub stats: Arc<Stats>,
    /// Topic of the raw records.
    pub source_topic: String,
    /// Topic of the dead letters.
    pub topic: String,
    /// Name of this worker.
    pub instance: String,
    /// How long a delivery may take, and so the wait for room in the queue.
    pub delivery_timeout: Duration,
    /// For those that are too large.
    pub spool: Spool,
}

impl From<Inner> for DeadLetters {
    fn from(inner: Inner) -> Self {
        Self {
            inner: Arc::new(inner),
        }
    }
}

impl DeadLetters {
    /// Publishes the records and settles each when it is acknowledged. Records
    /// whose partition went to another worker are left to that one.
    ///
    /// # Errors
    /// A delivery failed. What was not settled by then may be dead-lettered
    /// again, never lost.
    pub async fn send(
        &self,
        records: Vec<(Record, Verdict)>,
        judge: &Provenance,
    ) -> Result<(), WorkerError> {
        stream::iter(records)
            .map(|(record, verdict)| {
                let inner = Arc::clone(&self.inner);
                let judge = judge.clone();
                async move { inner.send(&record, &verdict, &judge).await }
            })
            .buffer_unordered(UNDER_WAY)
            .try_collect()
            .await
    }
}

impl Inner {
    async fn send(
        &self,
        record: &Record,
        verdict: &Verdict,
        judge: &Provenance,
    ) -> Result<(), WorkerError> {
        if !self.consumer.is_current(record.id) {
            return Ok(());
        }
        let letter = self.letter(record, verdict, judge);
        match self.publish(&letter.encode()).await {
            Err(PublishError::TooLarge { .. }) => self.send_cut(&letter).await?,
            delivered => delivered.map_err(|cause| self.undelivered(cause))?,
        }
        self.consumer.settle([record.id], Outcome::DeadLettered);
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
        Ok(())
    }

    /// The whole to a file first, then what the topic takes of it.
    async fn send_cut(&self, letter: &DeadLetter<'_>) -> Result<(), WorkerError> {
        let file = self
            .spool
            .keep(letter, &self.topic)
            .await
            .map_err(|(path, cause)| WorkerError::Spool {
                topic: self.topic.clone(),
                path,
                cause,
            })?;
        let mut refused = None;
        for bytes in CUTS {
            match self
                .publish(&letter.encode_truncated(bytes, &file.name))
                .await
            {
                Ok(()) => {
                    self.stats.oversized();
                    tracing::error!(
                        event = "dead_letter_oversized",
                        topic = self.topic,
                        partition = letter.source_partition,
                        offset = letter.source_offset,
                        bytes = letter.payload.map_or(0, <[u8]>::len),
                        kept_bytes = bytes,
                        file = %file.path.display(),
                        "a dead letter is larger than {} takes: the topic has its beginning, {} the whole",
                        self.topic,
                        file.path.display()
                    );
                    return Ok(());
                }
                Err(error @ PublishError::TooLarge { .. }) => refused = Some(error),
                Err(error) => return Err(self.undelivered(error)),
            }
        }
        match refused {
            Some(error) => Err(self.undelivered(error)),
            None => Ok(()),
        }
    }

    async fn publish(&self, message: &DeadLetterMessage) -> Result<(), PublishError> {
        let started = Instant::now();
        loop {
            let delivery = self.publisher.publish(
                &self.topic,
                message.key.as_deref(),
                Some(&message.payload),
                &message.headers,
            );
            match delivery.await {
                Ok(_) => return Ok(()),
                // Nothing was sent: there is no doubt about it, only a wait.
                Err(PublishError::QueueFull { .. })
                    if started.elapsed() < self.delivery_timeout =>
                {
                    tokio::time::sleep(QUEUE_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn undelivered(&self, cause: PublishError) -> WorkerError {
        WorkerError::DeadLetter {
            topic: self.topic.clone(),
            cause,
        }
    }

    fn letter<'a>(
        &'a self,
        record: &'a Record,
        verdict: &'a Verdict,
        judge: &'a Provenance,
    ) -> DeadLetter<'a> {
        DeadLetter {
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

#[cfg(test)]
mod tests {
    //! On librdkafka's mock broker: a queue that is full, and a topic that
    //! refuses, can't be had from a real one at will.

    use super::*;
    use cdr_kafka::consumer::{ConsumerConfig, Started};
    use cdr_kafka::dead_letter::{Envelope, SpooledDeadLetter};
    use cdr_kafka::headers;
    use cdr_kafka::{KafkaConfig, PublisherConfig};
    use rdkafka::mocking::MockCluster;
    use rdkafka::producer::DefaultProducerContext;
    use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

    const PATIENCE: Duration = Duration::from_secs(60);
    const RAW: &str = "cdr.raw";
    const DLQ: &str = "cdr.raw.dlq";

    struct Bed {
        mock: MockCluster<'static, DefaultProducerContext>,
        letters: DeadLetters,
        consumer: Arc<RawConsumer>,
        records: Vec<(Record, Verdict)>,
        spool: tempfile::TempDir,
    }

    fn judge() -> Provenance {
        Provenance {
            name: "cdr-normalizer".to_owned(),
            version: "1.0.0".to_owned(),
            digest: "ab".repeat(32),
            file_digest: String::new(),
            settings_digest: String::new(),
        }
    }

    /// So many records, consumed and judged, and a producer with room for so
    /// many dead letters.
    async fn bed(count: usize, room: u32) -> Bed {
        let mock = MockCluster::new(1).unwrap();
        mock.create_topic(RAW, 1, 1).unwrap();
        mock.create_topic(DLQ, 1, 1).unwrap();
        let kafka = KafkaConfig::plaintext(mock.bootstrap_servers());
        let raw = Publisher::new(&kafka, PublisherConfig::default()).unwrap();
        for delivery in (0..count)
            .map(|i| raw.publish(RAW, None, Some(format!("{{bad {i}").as_bytes()), &[]))
            .collect::<Vec<_>>()
        {
            delivery.await.unwrap();
        }
        let Started {
            consumer,
            records: mut taken,
            ..
        } = RawConsumer::start(&kafka, ConsumerConfig::new(RAW, "g")).unwrap();
        let consumer = Arc::new(consumer);
        let mut records = Vec::new();
        while records.len() < count {
            let record = tokio::time::timeout(PATIENCE, taken.recv()).await;
            let verdict = Verdict {
                reason: FailureReason::MalformedJson,
                field: None,
                detail: "not JSON".to_owned(),
            };
            records.push((record.unwrap().unwrap(), verdict));
        }
        let spool = tempfile::tempdir().unwrap();
        let delivery_timeout = Duration::from_secs(5);
        let publisher = PublisherConfig {
            delivery_timeout,
            max_queued_records: room,
            ..PublisherConfig::default()
        };
        let letters = DeadLetters::from(Inner {
            publisher: Publisher::new(&kafka, publisher).unwrap(),
            consumer: Arc::clone(&consumer),
            stats: Arc::new(Stats::new(&prometheus::Registry::new()).unwrap()),
            source_topic: RAW.to_owned(),
            topic: DLQ.to_owned(),
            instance: "worker-1".to_owned(),
            delivery_timeout,
            spool: Spool::open(spool.path()).unwrap(),
        });
        Bed {
            spool,
            mock,
            letters,
            consumer,
            records,
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn more_dead_letters_than_the_queue_holds_wait_for_room() {
        let bed = bed(500, 3).await;
        bed.letters.send(bed.records, &judge()).await.unwrap();
        let totals = bed.consumer.status().totals;
        assert_eq!((totals.dead_lettered, totals.in_flight), (500, 0));
        let kafka = KafkaConfig::plaintext(bed.mock.bootstrap_servers());
        let topic = cdr_kafka::admin::read_topic(&kafka, DLQ, PATIENCE).await;
        assert_eq!(topic.unwrap().len(), 500);
    }

    /// arroyo dlq, PostHog#102639: both layers of a delivery are looked at, and
    /// what was not acknowledged is not settled.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_dead_letter_that_is_refused_settles_nothing_and_names_its_topic() {
        let bed = bed(1, 100).await;
        bed.mock.request_errors(
            RDKafkaApiKey::Produce,
            &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED; 10],
        );
        let error = bed.letters.send(bed.records, &judge()).await.unwrap_err();
        assert!(matches!(error, WorkerError::DeadLetter { .. }));
        let text = error.to_string();
        assert!(text.contains("was not delivered to cdr.raw.dlq"), "{text}");
        assert!(text.contains("without advancing anything"), "{text}");
        let totals = bed.consumer.status().totals;
        assert_eq!((totals.dead_lettered, totals.in_flight), (0, 1));
    }

    fn refuse_as_too_large(bed: &Bed, times: usize) {
        let refusal = RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
        bed.mock
            .request_errors(RDKafkaApiKey::Produce, &vec![refusal; times]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_dead_letter_that_is_too_large_is_cut_there_and_whole_in_a_file() {
        let bed = bed(1, 100).await;
        // The whole, and the first of the cut ones.
        refuse_as_too_large(&bed, 2);
        bed.letters.send(bed.records, &judge()).await.unwrap();
        let totals = bed.consumer.status().totals;
        assert_eq!((totals.dead_lettered, totals.in_flight), (1, 0));
        let kafka = KafkaConfig::plaintext(bed.mock.bootstrap_servers());
        let topic = cdr_kafka::admin::read_topic(&kafka, DLQ, PATIENCE)
            .await
            .unwrap();
        assert_eq!(topic.len(), 1);
        let name = topic[0].header(headers::SPOOL_FILE).unwrap();
        let content = std::fs::read(bed.spool.path().join(name)).unwrap();
        let whole = SpooledDeadLetter::decode(&content).unwrap();
        assert_eq!(whole.topic, DLQ);
        let envelope = Envelope::decode(&whole.message.payload, None).unwrap();
        assert_eq!(envelope.original_payload.unwrap(), b"{bad 0");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn without_a_place_for_the_whole_nothing_is_settled() {
        let bed = bed(1, 100).await;
        refuse_as_too_large(&bed, 1);
        std::fs::remove_dir(bed.spool.path()).unwrap();
        let error = bed.letters.send(bed.records, &judge()).await.unwrap_err();
        assert!(matches!(error, WorkerError::Spool { .. }), "{error}");
        assert!(error.to_string().contains("WORKER_SPOOL_DIR"), "{error}");
        let totals = bed.consumer.status().totals;
        assert_eq!((totals.dead_lettered, totals.in_flight), (0, 1));
    }
}
