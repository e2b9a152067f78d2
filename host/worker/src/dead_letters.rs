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
use crate::log_ids::LogIds;
use crate::spool::Spool;
use crate::stats::Stats;
use cdr_kafka::consumer::Record;
use cdr_kafka::dead_letter::{DeadLetter, DeadLetterMessage, FailureReason, Judge};
use cdr_kafka::ledger::Outcome;
use cdr_kafka::{PublishError, Publisher, RawConsumer};
use cdr_plugin_host::Provenance;
use cdr_telemetry::trace::TraceContext;
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

/// A record that is to be dead-lettered.
#[derive(Debug, Clone)]
pub struct Rejected {
    /// The record.
    pub record: Record,
    /// Why.
    pub verdict: Verdict,
    /// This worker's span in the record's trace: the same in every log line about
    /// the record and in its dead letter.
    span: Option<TraceContext>,
}

impl Rejected {
    /// Begins this worker's span, if the record belongs to a trace.
    pub fn new(record: Record, verdict: Verdict) -> Self {
        let span = record.trace.map(TraceContext::child);
        Self {
            record,
            verdict,
            span,
        }
    }

    /// What log lines call it.
    pub(crate) fn log_ids(&self) -> LogIds {
        LogIds::new(&self.record, self.span)
    }
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
        records: Vec<Rejected>,
        judge: &Provenance,
    ) -> Result<(), WorkerError> {
        stream::iter(records)
            .map(|rejected| {
                let inner = Arc::clone(&self.inner);
                let judge = judge.clone();
                async move { inner.send(&rejected, &judge).await }
            })
            .buffer_unordered(UNDER_WAY)
            .try_collect()
            .await
    }
}

impl Inner {
    async fn send(&self, rejected: &Rejected, judge: &Provenance) -> Result<(), WorkerError> {
        let Rejected {
            record, verdict, ..
        } = rejected;
        if !self.consumer.is_current(record.id) {
            return Ok(());
        }
        let letter = self.letter(rejected, judge);
        let ids = rejected.log_ids();
        match self.publish(&letter.encode()).await {
            Err(PublishError::TooLarge { .. }) => self.send_cut(&letter, &ids).await?,
            delivered => delivered.map_err(|cause| self.undelivered(cause))?,
        }
        self.consumer.settle([record.id], Outcome::DeadLettered);
        self.stats.dead_lettered(verdict.reason);
        tracing::warn!(
            event = "record_dead_lettered",
            raw_id = ids.raw_id,
            trace_id = ids.trace_id,
            span_id = ids.span_id,
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
    async fn send_cut(&self, letter: &DeadLetter<'_>, ids: &LogIds) -> Result<(), WorkerError> {
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
                        raw_id = ids.raw_id,
                        trace_id = ids.trace_id,
                        span_id = ids.span_id,
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

    fn letter<'a>(&'a self, rejected: &'a Rejected, judge: &'a Provenance) -> DeadLetter<'a> {
        let Rejected {
            record,
            verdict,
            span,
        } = rejected;
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
            trace: *span,
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
mod tests;
