//! The life of one record: permit, admission, delivery.
//!
//! It begins when the record has been read whole, and goes on in a task of its
//! own, so that a client that hangs up afterwards loses only the answer. The
//! JSON route is one user of this; whatever reads many records from one request
//! will be another.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::admission::Admission;
use crate::answer::Refusal;
use crate::metrics::ApiMetrics;
use crate::outstanding::{NoPermit, Outstanding, Permit};
use crate::ports::{Admit, AdmitError, AdmitResult, Publish, PublishFailure};

/// The outcome under which an acknowledged record is counted.
pub(crate) const ACKNOWLEDGED: &str = "acknowledged";

/// A record that Kafka has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// Its `raw_id`.
    pub(crate) key: String,
}

/// Where records are taken in.
pub(crate) struct Intake {
    pub(crate) outstanding: Outstanding,
    pub(crate) admission: Admission,
    pub(crate) admit: Arc<dyn Admit>,
    pub(crate) publish: Arc<dyn Publish>,
    pub(crate) metrics: ApiMetrics,
}

impl Intake {
    /// Takes a record in, or refuses at once. The task publishes it and counts
    /// and logs what became of it, whether or not it is awaited.
    pub(crate) fn take(
        self: &Arc<Self>,
        payload: Bytes,
    ) -> Result<JoinHandle<Result<Accepted, Refusal>>, Refusal> {
        let permit = match self.outstanding.take() {
            Ok(permit) => permit,
            Err(NoPermit::Full) => return Err(self.counted(Refusal::Full)),
            Err(NoPermit::Draining) => return Err(self.counted(Refusal::ShuttingDown)),
        };
        Ok(tokio::spawn(self.clone().process(payload, permit)))
    }

    async fn process(self: Arc<Self>, payload: Bytes, permit: Permit) -> Result<Accepted, Refusal> {
        self.metrics.payload_bytes.inc_by(payload.len() as u64);
        let outcome = match self.judge(payload.clone()).await {
            Ok(key) => self.deliver(key, payload).await,
            Err(refusal) => Err(refusal),
        };
        match &outcome {
            Ok(_) => self
                .metrics
                .records
                .with_label_values(&[ACKNOWLEDGED])
                .inc(),
            Err(refusal) => self
                .metrics
                .records
                .with_label_values(&[refusal.code()])
                .inc(),
        }
        // Before the answer: who got one finds the place free.
        drop(permit);
        outcome
    }

    /// The key of a record that may onto the topic.
    async fn judge(&self, payload: Bytes) -> Result<String, Refusal> {
        match self.admission.judge(payload, now_ms()).await {
            Ok(AdmitResult::Admitted { key, .. }) => Ok(key),
            Ok(AdmitResult::Refused {
                code,
                field,
                detail,
            }) => {
                tracing::warn!(
                    event = "record_refused",
                    code = code.as_str(),
                    field,
                    "a record was refused: {detail}"
                );
                Err(Refusal::Record {
                    code,
                    field,
                    detail,
                })
            }
            Ok(AdmitResult::Fault { detail }) => {
                let by = self.admit.describe();
                tracing::warn!(
                    event = "normalizer_fault",
                    normalizer = by.name,
                    version = by.version,
                    digest = by.digest,
                    "the normalizer failed on a record: {detail}"
                );
                Err(Refusal::NormalizerFault)
            }
            Ok(AdmitResult::NotJudged { detail }) => {
                tracing::warn!(
                    event = "record_not_judged",
                    "a record was not judged: {detail}"
                );
                Err(Refusal::NormalizerUnavailable)
            }
            Err(error @ AdmitError::Unavailable { .. }) => {
                tracing::warn!(event = "normalizer_unavailable", "{error}");
                Err(Refusal::NormalizerUnavailable)
            }
            Err(error @ AdmitError::Broken { .. }) => {
                tracing::error!(event = "admission_broken", "{error}");
                Err(Refusal::Internal)
            }
        }
    }

    async fn deliver(&self, key: String, payload: Bytes) -> Result<Accepted, Refusal> {
        let started = Instant::now();
        let delivered = self
            .publish
            .publish(key.clone().into_bytes(), payload)
            .await;
        match delivered {
            Ok(delivery) => {
                self.metrics
                    .delivery_seconds
                    .observe(started.elapsed().as_secs_f64());
                tracing::debug!(
                    event = "record_acknowledged",
                    raw_id = key,
                    partition = delivery.partition,
                    offset = delivery.offset,
                    "acknowledged"
                );
                Ok(Accepted { key })
            }
            Err(failure) => {
                tracing::warn!(
                    event = "delivery_failed",
                    raw_id = key,
                    class = failure.tag(),
                    "a record was not acknowledged: {failure}"
                );
                Err(match failure {
                    PublishFailure::QueueFull { .. } => Refusal::Full,
                    PublishFailure::TooLarge { .. } => Refusal::RecordTooLarge,
                    PublishFailure::Refused { .. } => Refusal::NotDelivered,
                    PublishFailure::Unacknowledged { .. } => Refusal::Unconfirmed,
                })
            }
        }
    }

    fn counted(&self, refusal: Refusal) -> Refusal {
        self.metrics
            .records
            .with_label_values(&[refusal.code()])
            .inc();
        refusal
    }
}

/// Milliseconds since 1970, UTC; 0 for a clock that is before it.
fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|since| i64::try_from(since.as_millis()).ok())
        .unwrap_or(0)
}
