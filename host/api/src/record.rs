//! The life of one record: permit, admission, delivery.
//!
//! It begins when the record has been read whole, and goes on in a task of its
//! own, so that a client that hangs up afterwards loses only the answer. One record
//! of a JSON body and each of the many of an NDJSON body live the same life.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use cdr_telemetry::trace::TraceContext;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::admission::Admission;
use crate::answer::Refusal;
use crate::auth::Vendor;
use crate::metrics::ApiMetrics;
use crate::outstanding::{Held, NoPermit, Outstanding, Permit};
use crate::ports::{Admit, AdmitError, AdmitResult, Publish, PublishFailure};

/// The outcome under which an acknowledged record is counted.
pub(crate) const ACKNOWLEDGED: &str = "acknowledged";

/// A record that Kafka has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// Its `raw_id`.
    pub(crate) key: String,
}

/// Where a record comes from.
#[derive(Clone)]
pub(crate) struct Origin {
    /// Whose token came with it; none where tokens are off.
    pub(crate) vendor: Option<Arc<Vendor>>,
    /// The trace that it belongs to, in a span of this host.
    pub(crate) trace: TraceContext,
}

/// A record's outcome, to be awaited.
pub(crate) type Outcome = JoinHandle<Result<Accepted, Refusal>>;

/// Where records are taken in.
pub(crate) struct Intake {
    pub(crate) outstanding: Outstanding,
    pub(crate) admission: Admission,
    pub(crate) admit: Arc<dyn Admit>,
    pub(crate) publish: Arc<dyn Publish>,
    pub(crate) metrics: ApiMetrics,
}

impl Intake {
    /// Takes a record in, whose bytes are held, or refuses at once. The task
    /// publishes it and counts and logs what became of it, whether or not it is
    /// awaited.
    pub(crate) fn take(
        self: &Arc<Self>,
        payload: Bytes,
        held: Held,
        origin: &Origin,
    ) -> Result<Outcome, Refusal> {
        if let Some(vendor) = &origin.vendor {
            vendor.may_post().map_err(|refusal| self.counted(refusal))?;
        }
        let permit = match self.outstanding.take(held) {
            Ok(permit) => permit,
            Err(NoPermit::Records | NoPermit::Bytes) => return Err(self.counted(Refusal::Full)),
            Err(NoPermit::Draining) => return Err(self.counted(Refusal::ShuttingDown)),
        };
        let process = self.clone().process(payload, permit, origin.clone());
        Ok(tokio::spawn(process))
    }

    async fn process(
        self: Arc<Self>,
        payload: Bytes,
        permit: Permit,
        origin: Origin,
    ) -> Result<Accepted, Refusal> {
        self.metrics.payload_bytes.inc_by(payload.len() as u64);
        let outcome = match self.judge(payload.clone(), &origin).await {
            Ok(key) => self.deliver(key, payload, origin.trace).await,
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
    async fn judge(&self, payload: Bytes, origin: &Origin) -> Result<String, Refusal> {
        let trace = origin.trace;
        match self.admission.judge(payload, now_ms()).await {
            Ok(AdmitResult::Admitted { key, source }) => {
                // Also where the normalizer tells no source: what can't be checked is
                // not let through.
                let is_own = |vendor: &Arc<Vendor>| Some(&vendor.id) == source.as_ref();
                if origin.vendor.as_ref().is_none_or(is_own) {
                    return Ok(key);
                }
                tracing::warn!(
                    event = "wrong_vendor",
                    raw_id = key,
                    trace_id = trace.trace_id(),
                    span_id = trace.span_id(),
                    vendor = origin.vendor.as_ref().map(|vendor| vendor.id.as_str()),
                    source,
                    "a record is not of the vendor whose token came with it"
                );
                Err(Refusal::WrongVendor)
            }
            Ok(AdmitResult::Refused {
                code,
                field,
                detail,
            }) => {
                tracing::warn!(
                    event = "record_refused",
                    trace_id = trace.trace_id(),
                    span_id = trace.span_id(),
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
                    trace_id = trace.trace_id(),
                    span_id = trace.span_id(),
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
                    trace_id = trace.trace_id(),
                    span_id = trace.span_id(),
                    "a record was not judged: {detail}"
                );
                Err(Refusal::NormalizerUnavailable)
            }
            Err(error @ AdmitError::Unavailable { .. }) => {
                tracing::warn!(
                    event = "normalizer_unavailable",
                    trace_id = trace.trace_id(),
                    span_id = trace.span_id(),
                    "{error}"
                );
                Err(Refusal::NormalizerUnavailable)
            }
            Err(error @ AdmitError::Broken { .. }) => {
                tracing::error!(
                    event = "admission_broken",
                    trace_id = trace.trace_id(),
                    span_id = trace.span_id(),
                    "{error}"
                );
                Err(Refusal::Internal)
            }
        }
    }

    async fn deliver(
        &self,
        key: String,
        payload: Bytes,
        trace: TraceContext,
    ) -> Result<Accepted, Refusal> {
        let started = Instant::now();
        let delivered = self
            .publish
            .publish(key.clone().into_bytes(), payload, trace)
            .await;
        match delivered {
            Ok(delivery) => {
                self.metrics
                    .delivery_seconds
                    .observe(started.elapsed().as_secs_f64());
                tracing::debug!(
                    event = "record_acknowledged",
                    raw_id = key,
                    trace_id = trace.trace_id(),
                    span_id = trace.span_id(),
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
                    trace_id = trace.trace_id(),
                    span_id = trace.span_id(),
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

    /// Counts a record that was refused before it was taken in.
    pub(crate) fn counted(&self, refusal: Refusal) -> Refusal {
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
