//! The paths of the API host.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use serde::Serialize;
use tokio::time::Instant;
use tracing::Level;

use crate::answer::{Code, Refusal};
use crate::body;
use crate::quiet::Quiet;
use crate::record::{Accepted, Intake};
use crate::stats::{self, Stats};

/// What the handlers need.
pub(crate) struct Shared {
    pub(crate) intake: Arc<Intake>,
    pub(crate) stats: Stats,
    pub(crate) max_body_bytes: usize,
    pub(crate) read_timeout: Duration,
    /// How long a record that was read whole may go unanswered.
    pub(crate) answer_timeout: Duration,
    pub(crate) full: Quiet,
}

/// All paths: records, `/stats`, and the `common` ones of every host.
pub(crate) fn router(shared: Arc<Shared>, common: Router) -> Router {
    Router::new()
        .route("/v1/cdrs", post(post_cdr))
        .route("/stats", get(stats::get_stats))
        .with_state(shared.clone())
        .merge(common)
        .fallback(async || Refusal::NotFound)
        .method_not_allowed_fallback(async || Refusal::MethodNotAllowed)
        .layer(middleware::from_fn_with_state(shared, observe))
}

#[derive(Serialize)]
struct AcceptedBody {
    status: &'static str,
    raw_id: String,
}

/// One record, as `application/json`.
async fn post_cdr(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let started = Instant::now();
    let (parts, body) = request.into_parts();
    match accept(&shared, &parts.headers, body).await {
        Ok(Accepted { key }) => {
            shared
                .intake
                .metrics
                .accept_seconds
                .observe(started.elapsed().as_secs_f64());
            let body = AcceptedBody {
                status: "accepted",
                raw_id: key,
            };
            let mut response = (StatusCode::ACCEPTED, Json(body)).into_response();
            response.extensions_mut().insert(Code("accepted"));
            response
        }
        Err(refusal) => refusal.into_response(),
    }
}

async fn accept(
    shared: &Shared,
    headers: &HeaderMap,
    body: axum::body::Body,
) -> Result<Accepted, Refusal> {
    let refused = |refusal: Refusal| {
        log(&refusal);
        refusal
    };
    if shared.intake.outstanding.is_draining() {
        body::linger(body);
        return Err(Refusal::ShuttingDown);
    }
    if let Err(refusal) = check_type(headers) {
        body::linger(body);
        return Err(refused(refusal));
    }
    let payload = body::read(headers, body, shared.max_body_bytes, shared.read_timeout)
        .await
        .map_err(refused)?;
    let record = shared.intake.take(payload).inspect_err(|refusal| {
        if *refusal == Refusal::Full
            && let Some(refused) = shared.full.happened()
        {
            tracing::warn!(
                event = "too_many_outstanding",
                refused,
                limit = shared.intake.outstanding.max(),
                "records are refused with 429: API_QUEUE_MAX_SIZE are unacknowledged"
            );
        }
    })?;
    match tokio::time::timeout(shared.answer_timeout, record).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => {
            tracing::error!(
                event = "record_task_failed",
                "the task of a record failed: {error}"
            );
            Err(Refusal::Internal)
        }
        Err(_) => {
            tracing::warn!(
                event = "answer_overdue",
                "a record was neither acknowledged nor refused within {:?}; its client is told so, \
                 and its delivery goes on",
                shared.answer_timeout
            );
            Err(Refusal::Unconfirmed)
        }
    }
}

/// Only uncompressed JSON; parameters (a charset) are not looked at, for JSON is
/// UTF-8 whatever they say, and admission checks that.
fn check_type(headers: &HeaderMap) -> Result<(), Refusal> {
    let text = |value: &HeaderValue| {
        String::from_utf8_lossy(value.as_bytes())
            .chars()
            .take(100)
            .collect::<String>()
    };
    let found = headers.get(CONTENT_TYPE).map(text);
    let essence = found
        .as_deref()
        .map(|found| found.split(';').next().unwrap_or_default().trim());
    if !essence.is_some_and(|essence| essence.eq_ignore_ascii_case("application/json")) {
        return Err(Refusal::MediaType {
            found: essence.map(str::to_owned),
        });
    }
    match headers.get(CONTENT_ENCODING).map(text) {
        Some(found) if !found.trim().eq_ignore_ascii_case("identity") => {
            Err(Refusal::ContentEncoding { found })
        }
        _ => Ok(()),
    }
}

fn log(refusal: &Refusal) {
    let (event, message) = (refusal.code(), refusal.message());
    if refusal.level() == Level::WARN {
        tracing::warn!(event, "{message}");
    } else {
        tracing::debug!(event, "{message}");
    }
}

/// Counts and logs each request, notices clients that hang up, and closes
/// connections once the host drains.
async fn observe(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let metrics = &shared.intake.metrics;
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let started = Instant::now();
    let mut hung_up = HangUp {
        counter: &metrics.hang_ups,
        answered: false,
    };
    let mut response = next.run(request).await;
    hung_up.answered = true;
    let code = response
        .extensions()
        .get::<Code>()
        .map_or("ok", |code| code.0);
    metrics.answers.with_label_values(&[code]).inc();
    if shared.intake.outstanding.is_draining() {
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
    }
    tracing::debug!(
        event = "request_answered",
        %method,
        path,
        status = response.status().as_u16(),
        code,
        elapsed_ms = started.elapsed().as_secs_f64() * 1000.0,
        "{method} {path}"
    );
    response
}

/// A request that is dropped before it is answered was given up by its client.
struct HangUp<'a> {
    counter: &'a prometheus::IntCounter,
    answered: bool,
}

impl Drop for HangUp<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.counter.inc();
            tracing::debug!(
                event = "client_hung_up",
                "a client hung up before its answer"
            );
        }
    }
}
