//! Everything this host answers but a 202, and every fact about it: code,
//! status, text, headers, how loudly it is logged.
//!
//! One JSON shape, whoever refuses: `{"error": code, "field": …, "message": …}`.
//! Messages are for vendors and name no brokers; what operators need is in the
//! log line.

use std::time::Duration;

use axum::http::header::{ACCEPT_ENCODING, CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tracing::Level;

use crate::ports::RefusalCode;

/// Seconds after which a full host is asked again.
const RETRY_FULL: u64 = 1;
/// Seconds after which a failed delivery is tried again.
const RETRY_DELIVERY: u64 = 5;

/// A request that was not accepted, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Admission refused the record.
    Record {
        code: RefusalCode,
        field: Option<String>,
        detail: String,
    },
    /// The normalizer failed on this very record.
    NormalizerFault,
    /// The normalizer took no work.
    NormalizerUnavailable,
    /// The body did not arrive in time.
    BodyTimeout { limit: Duration },
    /// The body broke off, or was no HTTP.
    BodyBroken,
    /// The body is longer than the host takes.
    BodyTooLarge { limit: usize },
    /// The record is longer than the topic takes.
    RecordTooLarge,
    /// The body is of another type.
    MediaType { found: Option<String> },
    /// The body is compressed.
    ContentEncoding { found: String },
    /// No such path.
    NotFound,
    /// Not with this method.
    MethodNotAllowed,
    /// The bound of outstanding records is reached.
    Full,
    /// The host is draining.
    ShuttingDown,
    /// No acknowledgement: the record may be in the topic or not.
    Unconfirmed,
    /// The record is not in the topic.
    NotDelivered,
    /// A fault of this host.
    Internal,
}

/// The code under which a response is counted; an extension of the response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Code(pub(crate) &'static str);

impl Refusal {
    /// The word for it in answers, metrics and logs.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Refusal::Record { code, .. } => code.as_str(),
            Refusal::NormalizerFault => "normalizer_fault",
            Refusal::NormalizerUnavailable => "normalizer_unavailable",
            Refusal::BodyTimeout { .. } => "request_timeout",
            Refusal::BodyBroken => "incomplete_body",
            Refusal::BodyTooLarge { .. } | Refusal::RecordTooLarge => "payload_too_large",
            Refusal::MediaType { .. } => "unsupported_media_type",
            Refusal::ContentEncoding { .. } => "unsupported_content_encoding",
            Refusal::NotFound => "not_found",
            Refusal::MethodNotAllowed => "method_not_allowed",
            Refusal::Full => "too_many_outstanding",
            Refusal::ShuttingDown => "shutting_down",
            Refusal::Unconfirmed => "delivery_unconfirmed",
            Refusal::NotDelivered => "delivery_failed",
            Refusal::Internal => "internal_error",
        }
    }

    /// Its HTTP status.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Refusal::Record { .. } | Refusal::BodyBroken => StatusCode::BAD_REQUEST,
            Refusal::NormalizerFault | Refusal::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Refusal::BodyTimeout { .. } => StatusCode::REQUEST_TIMEOUT,
            Refusal::BodyTooLarge { .. } | Refusal::RecordTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::MediaType { .. } | Refusal::ContentEncoding { .. } => {
                StatusCode::UNSUPPORTED_MEDIA_TYPE
            }
            Refusal::NotFound => StatusCode::NOT_FOUND,
            Refusal::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Refusal::Full => StatusCode::TOO_MANY_REQUESTS,
            Refusal::NormalizerUnavailable
            | Refusal::ShuttingDown
            | Refusal::Unconfirmed
            | Refusal::NotDelivered => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The field of the record that it is about.
    pub(crate) fn field(&self) -> Option<&str> {
        match self {
            Refusal::Record { field, .. } => field.as_deref(),
            _ => None,
        }
    }

    /// What the vendor reads.
    pub(crate) fn message(&self) -> String {
        match self {
            Refusal::Record { detail, .. } => detail.clone(),
            Refusal::NormalizerFault => {
                "the normalizer failed on this record, and it was not published; the failure is \
                 logged here, and sending the record again before it is mended is of no use"
                    .to_owned()
            }
            Refusal::NormalizerUnavailable => {
                "the record could not be checked now, and was not published; send it again".to_owned()
            }
            Refusal::BodyTimeout { limit } => {
                format!("the body did not arrive within {limit:?}; the record was not published")
            }
            Refusal::BodyBroken => {
                "the body broke off or is not well-formed HTTP; the record was not published".to_owned()
            }
            Refusal::BodyTooLarge { limit } => {
                format!("the body is longer than {limit} bytes, the limit for a record")
            }
            Refusal::RecordTooLarge => {
                "the record is longer than the topic takes, and was not published".to_owned()
            }
            Refusal::MediaType { found } => media_type_message(found.as_deref()),
            Refusal::ContentEncoding { found } => format!(
                "Content-Encoding {found:?} is not supported; send the record uncompressed"
            ),
            Refusal::NotFound => "no such path; records are sent to POST /v1/cdrs".to_owned(),
            Refusal::MethodNotAllowed => {
                "this path does not take that method; see the Allow header".to_owned()
            }
            Refusal::Full => {
                "too many records await their acknowledgement; this one was not published, send it \
                 again after the time in Retry-After"
                    .to_owned()
            }
            Refusal::ShuttingDown => {
                "this host is shutting down; the record was not published, send it again".to_owned()
            }
            Refusal::Unconfirmed => {
                "the record was not acknowledged in time; it may or may not have been stored. Send \
                 the identical record again, with the same raw_id: duplicates are merged"
                    .to_owned()
            }
            Refusal::NotDelivered => {
                "the record could not be stored, and was not published; send it again after the time \
                 in Retry-After"
                    .to_owned()
            }
            Refusal::Internal => {
                "a fault of this host; the record may or may not have been stored. Send the \
                 identical record again, with the same raw_id: duplicates are merged"
                    .to_owned()
            }
        }
    }

    /// How loudly it is logged: what a record was lost to for now is a warning,
    /// what says nothing about records or comes in floods is not.
    pub(crate) fn level(&self) -> Level {
        match self {
            Refusal::NotFound
            | Refusal::MethodNotAllowed
            | Refusal::Full
            | Refusal::ShuttingDown => Level::DEBUG,
            _ => Level::WARN,
        }
    }

    fn retry_after(&self) -> Option<u64> {
        match self {
            Refusal::Full => Some(RETRY_FULL),
            Refusal::NormalizerUnavailable
            | Refusal::ShuttingDown
            | Refusal::Unconfirmed
            | Refusal::NotDelivered => Some(RETRY_DELIVERY),
            _ => None,
        }
    }

    /// Whether the rest of the connection is of no use: a body was left unread,
    /// or the host goes.
    fn closes(&self) -> bool {
        matches!(
            self,
            Refusal::BodyTimeout { .. }
                | Refusal::BodyBroken
                | Refusal::BodyTooLarge { .. }
                | Refusal::MediaType { .. }
                | Refusal::ContentEncoding { .. }
                | Refusal::ShuttingDown
        )
    }
}

fn media_type_message(found: Option<&str>) -> String {
    match found {
        None => "no Content-Type; a record is sent as application/json".to_owned(),
        Some(found) if found.eq_ignore_ascii_case("application/x-ndjson") => {
            "application/x-ndjson is not supported by this version; send one record a request, as \
             application/json"
                .to_owned()
        }
        Some(found) => {
            format!("Content-Type {found:?} is not supported; a record is sent as application/json")
        }
    }
}

#[derive(Serialize)]
struct Body<'a> {
    error: &'static str,
    field: Option<&'a str>,
    message: &'a str,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = Body {
            error: self.code(),
            field: self.field(),
            message: &self.message(),
        };
        // Strings alone: it can't fail.
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let mut response = (self.status(), body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after() {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.closes() {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if matches!(self, Refusal::ContentEncoding { .. }) {
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        response.extensions_mut().insert(Code(self.code()));
        response
    }
}
