//! The paths of the API host.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::CONNECTION;
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use bytes::Bytes;
use cdr_telemetry::trace::{TRACEPARENT, TraceContext};
use tokio::time::Instant;

use crate::answer::{Code, Refusal};
use crate::auth::Tokens;
use crate::body::Limits;
use crate::openapi;
use crate::post::post_cdrs;
use crate::quiet::Quiet;
use crate::record::Intake;
use crate::stats::{self, Stats};

/// Tells a client under which trace its request is logged here (W3C, Trace Context
/// HTTP Response Headers).
const TRACERESPONSE: &str = "traceresponse";

/// What the handlers need.
pub(crate) struct Shared {
    pub(crate) intake: Arc<Intake>,
    pub(crate) stats: Stats,
    /// None: anyone may post.
    pub(crate) tokens: Option<Tokens>,
    /// Limits of a body with one record, which are those of a record.
    pub(crate) one: Limits,
    /// Limits of a body with many.
    pub(crate) many: Limits,
    /// Records of a body with many.
    pub(crate) max_lines: usize,
    /// How long a record that was read whole may go unanswered.
    pub(crate) answer_timeout: Duration,
    pub(crate) full: Quiet,
    /// What `/openapi.json` answers.
    pub(crate) openapi: Bytes,
}

/// The paths for vendors: records, and what is to be known of them.
pub(crate) fn vendors(shared: &Arc<Shared>) -> Router {
    Router::new()
        .route("/v1/cdrs", post(post_cdrs))
        .route("/openapi.json", get(openapi::get_openapi))
        .with_state(shared.clone())
}

/// The paths for operators: `/stats`, and the `common` ones of every host.
pub(crate) fn operators(shared: &Arc<Shared>, common: Router) -> Router {
    Router::new()
        .route("/stats", get(stats::get_stats))
        .with_state(shared.clone())
        .merge(common)
}

/// What all answers have in common.
pub(crate) fn finished(shared: Arc<Shared>, routes: Router) -> Router {
    routes
        .fallback(async || Refusal::NotFound)
        .method_not_allowed_fallback(async || Refusal::MethodNotAllowed)
        .layer(middleware::from_fn_with_state(shared, observe))
}

/// Takes up the trace of each request or begins one, counts and logs the answer, and
/// closes connections once the host drains.
async fn observe(State(shared): State<Arc<Shared>>, mut request: Request, next: Next) -> Response {
    let metrics = &shared.intake.metrics;
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let started = Instant::now();
    let trace = trace(request.headers());
    request.extensions_mut().insert(trace);
    let mut response = next.run(request).await;
    let code = response
        .extensions()
        .get::<Code>()
        .map_or("ok", |code| code.0);
    metrics.answers.with_label_values(&[code]).inc();
    let headers = response.headers_mut();
    if shared.intake.outstanding.is_draining() {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if let Ok(trace) = HeaderValue::from_str(&trace.to_string()) {
        headers.insert(TRACERESPONSE, trace);
    }
    tracing::debug!(
        event = "request_answered",
        %method,
        path,
        status = response.status().as_u16(),
        code,
        trace_id = trace.trace_id(),
        span_id = trace.span_id(),
        elapsed_ms = started.elapsed().as_secs_f64() * 1000.0,
        "{method} {path}"
    );
    response
}

/// The client's trace, or a new one, in a span of this host. More than one header is
/// none, by the specification.
fn trace(headers: &HeaderMap) -> TraceContext {
    let mut all = headers.get_all(TRACEPARENT).iter();
    let sent = match (all.next(), all.next()) {
        (Some(one), None) => one.to_str().ok().and_then(TraceContext::parse),
        _ => None,
    };
    sent.map_or_else(TraceContext::begin, TraceContext::child)
}
