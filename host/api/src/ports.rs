//! What the host needs of a normalizer and of Kafka, and no more.
//!
//! The real ones are in [`crate::normalizer`] and [`crate::kafka`]. Everything
//! else here speaks to these traits, so that what HTTP promises can be tested
//! with faults that real parts don't produce on demand.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use cdr_telemetry::trace::TraceContext;
use serde::Serialize;

/// A boxed future, as `dyn` traits need it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Decides whether a record may go onto the topic.
pub trait Admit: Send + Sync + 'static {
    /// Judges a batch: payloads with their reception times (ms since 1970, UTC).
    /// One result a record, in order.
    fn admit(
        &self,
        batch: Vec<(Bytes, i64)>,
    ) -> BoxFuture<'_, Result<Vec<AdmitResult>, AdmitError>>;

    /// Who judges at the moment.
    fn describe(&self) -> NormalizerInfo;

    /// How the activation of who judges stands, for `/stats`.
    fn activation(&self) -> Option<serde_json::Value> {
        None
    }
}

/// The verdict on one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdmitResult {
    /// It may go onto the topic.
    Admitted {
        /// Its Kafka key, which is its `raw_id`.
        key: String,
        /// Who it is from (`vendor_id`), if it says so.
        source: Option<String>,
    },
    /// It may not: the vendor must mend it.
    Refused {
        /// What is wrong with it.
        code: RefusalCode,
        /// The field concerned.
        field: Option<String>,
        /// For the vendor; holds no whole payload.
        detail: String,
    },
    /// The normalizer failed on this very record.
    Fault {
        /// For the operator: trap, deadline, memory.
        detail: String,
    },
    /// It was not judged: the normalizer failed on another record of its batch,
    /// and there was no time to part the two.
    NotJudged {
        /// For the operator.
        detail: String,
    },
}

/// What can be wrong with a record at admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalCode {
    /// No JSON object, or one with doubled keys, lone surrogates, …
    MalformedJson,
    /// A required field is absent, null or blank.
    MissingRequiredField,
    /// A field has another JSON type than it must have.
    InvalidType,
}

impl RefusalCode {
    /// The word for it in answers, metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            RefusalCode::MalformedJson => "malformed_json",
            RefusalCode::MissingRequiredField => "missing_required_field",
            RefusalCode::InvalidType => "invalid_type",
        }
    }
}

/// Why a batch was not judged at all. None of its records was published.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AdmitError {
    /// The normalizer can't take work now; it may later.
    #[error("the normalizer took no work: {detail}")]
    Unavailable {
        /// For the operator.
        detail: String,
    },
    /// The normalizer or the code around it broke its contract.
    #[error("admission broke: {detail}")]
    Broken {
        /// For the operator.
        detail: String,
    },
}

/// Where verdicts come from; carried by `/stats` and logs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NormalizerInfo {
    /// The name in its manifest.
    pub name: String,
    /// The version in its manifest.
    pub version: String,
    /// SHA-256 of the component and its settings, in hexadecimal.
    pub digest: String,
}

/// Puts records onto the topic.
pub trait Publish: Send + Sync + 'static {
    /// Sends a record, with the trace that it belongs to. The future resolves when it is acknowledged, or within
    /// [`delivery_timeout`](Self::delivery_timeout) to the failure. Dropping the
    /// future does not take the record back.
    fn publish(
        &self,
        key: Vec<u8>,
        payload: Bytes,
        trace: TraceContext,
    ) -> BoxFuture<'static, Result<Delivery, PublishFailure>>;

    /// How long an acknowledgement may take.
    fn delivery_timeout(&self) -> Duration;
}

/// Where an acknowledged record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// Its partition.
    pub partition: i32,
    /// Its offset there.
    pub offset: i64,
}

/// Why a record was not acknowledged. The details are for the operator; they
/// may name brokers.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PublishFailure {
    /// Too much is queued already; it was not sent.
    #[error("{detail}")]
    QueueFull {
        /// What happened.
        detail: String,
    },
    /// It is larger than the topic takes; it was not written.
    #[error("{detail}")]
    TooLarge {
        /// What happened.
        detail: String,
    },
    /// It was refused and is not in the topic.
    #[error("{detail}")]
    Refused {
        /// What happened.
        detail: String,
    },
    /// No acknowledgement: it may be in the topic or not.
    #[error("{detail}")]
    Unacknowledged {
        /// What happened.
        detail: String,
    },
}

impl PublishFailure {
    /// A word for metrics and logs.
    pub fn tag(&self) -> &'static str {
        match self {
            PublishFailure::QueueFull { .. } => "queue_full",
            PublishFailure::TooLarge { .. } => "too_large",
            PublishFailure::Refused { .. } => "refused",
            PublishFailure::Unacknowledged { .. } => "unacknowledged",
        }
    }
}
