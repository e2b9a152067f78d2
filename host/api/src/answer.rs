//! Everything this host answers but a 202, and every fact about it: code,
//! status, text, headers, how loudly it is logged.
//!
//! One JSON shape, whoever refuses: `{"error": code, "field": …, "message": …}`.
//! Messages are for vendors and name no brokers; what operators need is in the
//! log line.

use std::ops::RangeInclusive;
use std::time::Duration;

use axum::http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE,
};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tracing::Level;
use utoipa::ToSchema;

use crate::ports::RefusalCode;

/// Seconds after which a full host is asked again. Drawn from a range, here and
/// below, or all who were refused together would come again together.
const RETRY_FULL: RangeInclusive<u64> = 1..=3;
/// Seconds after which a failed delivery is tried again.
const RETRY_DELIVERY: RangeInclusive<u64> = 5..=10;
/// What is taken encoded.
const ENCODINGS: &str = "gzip, zstd, identity";

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
    /// The body is not what its Content-Encoding says.
    BodyUndecodable { encoding: &'static str },
    /// The body is longer than the host takes, after decoding.
    BodyTooLarge { limit: usize },
    /// A line of many is longer than a record may be.
    LineTooLarge { limit: usize },
    /// There are more lines than a request may have.
    TooManyLines { limit: usize },
    /// There is no record in the request.
    NoRecords,
    /// The request ended in a refusal after some of its lines were taken in.
    Unfinished { after: usize, why: Box<Refusal> },
    /// The record is longer than the topic takes.
    RecordTooLarge,
    /// The body is of another type.
    MediaType { found: Option<String> },
    /// The body is encoded in a way that is not known here.
    ContentEncoding { found: String },
    /// No token, or none that counts.
    Unauthorized { why: NoEntry },
    /// The record is not of the token's vendor.
    WrongVendor,
    /// The token's records a second are used up.
    RateLimited { wait: Duration },
    /// No such path.
    NotFound,
    /// Not with this method.
    MethodNotAllowed,
    /// The bound of outstanding records, or of their bytes, is reached.
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

/// Why a token does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoEntry {
    /// There is none, or not in the form that is asked for.
    Missing,
    /// Nobody's.
    Unknown,
    /// It was somebody's.
    Expired,
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
            Refusal::BodyUndecodable { .. } => "malformed_encoding",
            Refusal::BodyTooLarge { .. }
            | Refusal::LineTooLarge { .. }
            | Refusal::TooManyLines { .. }
            | Refusal::RecordTooLarge => "payload_too_large",
            Refusal::NoRecords => "no_records",
            Refusal::Unfinished { why, .. } => why.code(),
            Refusal::MediaType { .. } => "unsupported_media_type",
            Refusal::ContentEncoding { .. } => "unsupported_content_encoding",
            Refusal::Unauthorized { .. } => "unauthorized",
            Refusal::WrongVendor => "wrong_vendor",
            Refusal::RateLimited { .. } => "rate_limited",
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
            Refusal::Record { .. }
            | Refusal::BodyBroken
            | Refusal::BodyUndecodable { .. }
            | Refusal::NoRecords => StatusCode::BAD_REQUEST,
            Refusal::Unauthorized { .. } => StatusCode::UNAUTHORIZED,
            Refusal::WrongVendor => StatusCode::FORBIDDEN,
            Refusal::Unfinished { why, .. } => why.status(),
            Refusal::NormalizerFault | Refusal::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Refusal::BodyTimeout { .. } => StatusCode::REQUEST_TIMEOUT,
            Refusal::BodyTooLarge { .. }
            | Refusal::LineTooLarge { .. }
            | Refusal::TooManyLines { .. }
            | Refusal::RecordTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::MediaType { .. } | Refusal::ContentEncoding { .. } => {
                StatusCode::UNSUPPORTED_MEDIA_TYPE
            }
            Refusal::NotFound => StatusCode::NOT_FOUND,
            Refusal::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Refusal::Full | Refusal::RateLimited { .. } => StatusCode::TOO_MANY_REQUESTS,
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
            Refusal::BodyUndecodable { encoding } => format!(
                "the body is not well-formed {encoding}, or needs more than 8 MiB of window to decode"
            ),
            Refusal::BodyTooLarge { limit } => {
                format!("the body is longer than {limit} bytes, decoded; that is the limit")
            }
            Refusal::LineTooLarge { limit } => {
                format!("the line is longer than {limit} bytes, the limit for a record")
            }
            Refusal::TooManyLines { limit } => {
                format!("the request has more than {limit} lines; send fewer a request")
            }
            Refusal::NoRecords => "there is no record in the request".to_owned(),
            Refusal::Unfinished { after, why } => format!(
                "{}. The {after} lines before were taken in, and may have been stored: send them \
                 again too, identically; duplicates are merged",
                why.message()
            ),
            Refusal::RecordTooLarge => {
                "the record is longer than the topic takes, and was not published".to_owned()
            }
            Refusal::MediaType { found } => media_type_message(found.as_deref()),
            Refusal::ContentEncoding { found } => format!(
                "Content-Encoding {found:?} is not supported; send gzip, zstd or no encoding"
            ),
            Refusal::Unauthorized { why } => match why {
                NoEntry::Missing => {
                    "a token is needed here: send the header Authorization: Bearer TOKEN"
                }
                NoEntry::Unknown => "the token is not known here",
                NoEntry::Expired => "the token has expired; ask for a new one",
            }
            .to_owned(),
            Refusal::WrongVendor => {
                "the vendor_id of the record is not the one that the token was made for; the record \
                 was not published"
                    .to_owned()
            }
            Refusal::RateLimited { .. } => {
                "more records a second than the token allows; this one was not published, send it \
                 again after the time in Retry-After"
                    .to_owned()
            }
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

    /// Whether it is what became of a record that was taken in, which is logged when
    /// it becomes that.
    pub(crate) fn is_logged_with_its_record(&self) -> bool {
        matches!(
            self,
            Refusal::Record { .. }
                | Refusal::NormalizerFault
                | Refusal::NormalizerUnavailable
                | Refusal::WrongVendor
                | Refusal::RecordTooLarge
                | Refusal::Unconfirmed
                | Refusal::NotDelivered
                | Refusal::Internal
        )
    }

    /// How loudly it is logged: what a record was lost to for now is a warning,
    /// what says nothing about records or comes in floods is not.
    pub(crate) fn level(&self) -> Level {
        match self {
            Refusal::NotFound
            | Refusal::MethodNotAllowed
            | Refusal::Full
            | Refusal::RateLimited { .. }
            | Refusal::ShuttingDown => Level::DEBUG,
            _ => Level::WARN,
        }
    }

    /// Seconds until another attempt makes sense, if one does.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        match self {
            Refusal::Full => Some(rand::random_range(RETRY_FULL)),
            Refusal::RateLimited { wait } => Some(wait.as_secs() + rand::random_range(RETRY_FULL)),
            Refusal::NormalizerUnavailable
            | Refusal::ShuttingDown
            | Refusal::Unconfirmed
            | Refusal::NotDelivered => Some(rand::random_range(RETRY_DELIVERY)),
            Refusal::Unfinished { why, .. } => why.retry_after(),
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
                | Refusal::BodyUndecodable { .. }
                | Refusal::BodyTooLarge { .. }
                | Refusal::TooManyLines { .. }
                | Refusal::Unfinished { .. }
                | Refusal::MediaType { .. }
                | Refusal::ContentEncoding { .. }
                | Refusal::Unauthorized { .. }
                | Refusal::ShuttingDown
        )
    }
}

fn media_type_message(found: Option<&str>) -> String {
    const WANTED: &str =
        "one record is sent as application/json, many as application/x-ndjson, one a line";
    match found {
        None => format!("no Content-Type; {WANTED}"),
        Some(found) => format!("Content-Type {found:?} is not supported; {WANTED}"),
    }
}

/// The one shape of everything that is refused.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Error)]
pub(crate) struct ErrorBody<'a> {
    /// A word for programs; the table of answers lists them.
    #[schema(value_type = String, example = "missing_required_field")]
    error: &'static str,
    /// The field of the record that it is about, where it is about one.
    #[schema(example = "caller_num")]
    field: Option<&'a str>,
    /// For people: what was wrong and what to do. Not to be parsed.
    message: String,
}

impl Refusal {
    /// As it is written in a body, or in a line of one.
    pub(crate) fn body(&self) -> ErrorBody<'_> {
        ErrorBody {
            error: self.code(),
            field: self.field(),
            message: self.message(),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        // Strings alone: it can't fail.
        let body = serde_json::to_vec(&self.body()).unwrap_or_default();
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
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(ENCODINGS));
        }
        if let Refusal::Unauthorized { why } = &self {
            let challenge = match why {
                NoEntry::Missing => "Bearer realm=\"cdr\"",
                NoEntry::Unknown | NoEntry::Expired => {
                    "Bearer realm=\"cdr\", error=\"invalid_token\""
                }
            };
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        response.extensions_mut().insert(Code(self.code()));
        response
    }
}
