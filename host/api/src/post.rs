//! `POST /v1/cdrs`: who posts, in which form, and one record of a JSON body.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use cdr_telemetry::trace::TraceContext;
use serde::Serialize;
use tokio::time::Instant;
use tracing::Level;
use utoipa::ToSchema;

use crate::answer::{Code, ErrorBody, Refusal};
use crate::body::{self, Encoding, Reading};
use crate::ndjson::{self, LineBody};
use crate::record::{Accepted, Origin, Outcome};
use crate::routes::Shared;

/// A record that Kafka has acknowledged.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Accepted)]
pub(crate) struct AcceptedBody {
    #[schema(value_type = String, example = "accepted")]
    status: &'static str,
    /// The record's own.
    raw_id: String,
}

/// The form of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    One,
    Many,
}

/// Takes one record as JSON, or many as NDJSON, one a line.
///
/// A repetition of the same record, byte for byte and with the same `raw_id`, is merged
/// with the first: whenever an answer is missing or says so, send it again.
#[utoipa::path(
    post,
    path = "/v1/cdrs",
    tag = "vendors",
    request_body(
        description = "One record, or one a line. May be compressed: `Content-Encoding` gzip or zstd.",
        content((Object = "application/json"), (String = "application/x-ndjson"))
    ),
    responses(
        (status = 202, description = "Every record of the request is stored for good",
         content((AcceptedBody = "application/json"), (LineBody = "application/x-ndjson")),
         headers(("traceresponse" = String, description = "The trace under which the request is logged"))),
        (status = 207, description = "NDJSON: not every record was accepted; one result a line, in order",
         content((LineBody = "application/x-ndjson")),
         headers(("Retry-After" = u64, description = "Seconds, where sending refused records again makes sense"))),
        (status = 400, description = "The record is refused, and sending it again is of no use; or the body broke off or is not encoded as it says", body = ErrorBody),
        (status = 401, description = "No token, or none that counts", body = ErrorBody),
        (status = 403, description = "The record is of another vendor than the token", body = ErrorBody),
        (status = 408, description = "The body did not arrive in time", body = ErrorBody),
        (status = 413, description = "The body, a record, or the number of lines is over its limit", body = ErrorBody),
        (status = 415, description = "Neither JSON nor NDJSON, or an encoding that is not known", body = ErrorBody),
        (status = 429, description = "Too much is outstanding, or the token's rate is used up; nothing was stored", body = ErrorBody,
         headers(("Retry-After" = u64, description = "Seconds"))),
        (status = 431, description = "The head of the request is too large", body = ErrorBody),
        (status = 500, description = "The normalizer failed on this very record, or a fault of the host", body = ErrorBody),
        (status = 503, description = "Not stored, or not known to be: send the identical record again", body = ErrorBody,
         headers(("Retry-After" = u64, description = "Seconds")))
    )
)]
pub(crate) async fn post_cdrs(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let started = Instant::now();
    let (parts, body) = request.into_parts();
    let trace = parts
        .extensions
        .get::<TraceContext>()
        .copied()
        .unwrap_or_else(TraceContext::begin);
    let answered = accept(&shared, &parts.headers, body, trace).await;
    match answered {
        Ok(response) => {
            if response.status() == StatusCode::ACCEPTED {
                shared
                    .intake
                    .metrics
                    .accept_seconds
                    .observe(started.elapsed().as_secs_f64());
            }
            response
        }
        Err(refusal) => {
            log(&shared, &refusal, trace);
            refusal.into_response()
        }
    }
}

async fn accept(
    shared: &Arc<Shared>,
    headers: &HeaderMap,
    body: Body,
    trace: TraceContext,
) -> Result<Response, Refusal> {
    let checked = check(shared, headers).map(|(vendor, form, encoding)| {
        let origin = Origin { vendor, trace };
        (origin, form, encoding)
    });
    let (origin, form, encoding) = match checked {
        Ok(checked) => checked,
        Err(refusal) => {
            body::linger(body);
            return Err(refusal);
        }
    };
    let limits = match form {
        Form::One => shared.one,
        Form::Many => shared.many,
    };
    let held = shared.intake.outstanding.holding();
    let reading = Reading::begin(headers, body, encoding, limits, held)?;
    match form {
        Form::One => one(shared, reading, &origin).await,
        Form::Many => ndjson::many(shared, reading, &origin).await,
    }
}

type Checked = (Option<Arc<crate::auth::Vendor>>, Form, Encoding);

/// What can be said before the body is read.
fn check(shared: &Shared, headers: &HeaderMap) -> Result<Checked, Refusal> {
    if shared.intake.outstanding.is_draining() {
        return Err(Refusal::ShuttingDown);
    }
    let vendor = match &shared.tokens {
        Some(tokens) => Some(tokens.vendor(headers)?),
        None => None,
    };
    Ok((vendor, form(headers)?, Encoding::of(headers)?))
}

/// Parameters (a charset) are not looked at, for JSON is UTF-8 whatever they say,
/// and admission checks that.
fn form(headers: &HeaderMap) -> Result<Form, Refusal> {
    let found = headers
        .get(CONTENT_TYPE)
        .map(|value| String::from_utf8_lossy(value.as_bytes()));
    let essence = found
        .as_deref()
        .map(|found| found.split(';').next().unwrap_or_default().trim());
    match essence {
        Some(essence) if essence.eq_ignore_ascii_case("application/json") => Ok(Form::One),
        Some(essence) if essence.eq_ignore_ascii_case("application/x-ndjson") => Ok(Form::Many),
        _ => Err(Refusal::MediaType {
            found: essence.map(|essence| essence.chars().take(100).collect()),
        }),
    }
}

async fn one(shared: &Arc<Shared>, reading: Reading, origin: &Origin) -> Result<Response, Refusal> {
    let held = shared.intake.outstanding.holding();
    let (payload, held) = body::read(reading, held).await?;
    let outcome = shared.intake.take(payload, held, origin)?;
    let deadline = Instant::now() + shared.answer_timeout;
    let Accepted { key } = settled(shared, outcome, deadline, origin.trace).await?;
    let body = AcceptedBody {
        status: "accepted",
        raw_id: key,
    };
    let mut response = (StatusCode::ACCEPTED, Json(body)).into_response();
    response.extensions_mut().insert(Code("accepted"));
    Ok(response)
}

/// A record's outcome, by the deadline. The record itself goes on without one.
pub(crate) async fn settled(
    shared: &Shared,
    outcome: Outcome,
    deadline: Instant,
    trace: TraceContext,
) -> Result<Accepted, Refusal> {
    match tokio::time::timeout_at(deadline, outcome).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => {
            tracing::error!(
                event = "record_task_failed",
                trace_id = trace.trace_id(),
                span_id = trace.span_id(),
                "the task of a record failed: {error}"
            );
            Err(Refusal::Internal)
        }
        Err(_) => {
            tracing::warn!(
                event = "answer_overdue",
                trace_id = trace.trace_id(),
                span_id = trace.span_id(),
                "a record was neither acknowledged nor refused within {:?}; its client is told so, \
                 and its delivery goes on",
                shared.answer_timeout
            );
            Err(Refusal::Unconfirmed)
        }
    }
}

/// Logs a refusal of a request. What became of a record is logged where it became
/// that; being full is said once a second.
pub(crate) fn log(shared: &Shared, refusal: &Refusal, trace: TraceContext) {
    if *refusal == Refusal::Full {
        if let Some(refused) = shared.full.happened() {
            let bounds = shared.intake.outstanding.bounds();
            tracing::warn!(
                event = "too_many_outstanding",
                refused,
                records_limit = bounds.records,
                bytes_limit = bounds.bytes,
                "records are refused with 429: API_QUEUE_MAX_SIZE records or API_QUEUE_MAX_BYTES \
                 bytes are held"
            );
        }
        return;
    }
    if refusal.is_logged_with_its_record() {
        return;
    }
    let (event, message) = (refusal.code(), refusal.message());
    let (trace_id, span_id) = (trace.trace_id(), trace.span_id());
    if refusal.level() == Level::WARN {
        tracing::warn!(event, trace_id, span_id, "{message}");
    } else {
        tracing::debug!(event, trace_id, span_id, "{message}");
    }
}
