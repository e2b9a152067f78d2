//! `/openapi.json`: paths and answers as the code has them, described in OpenAPI 3.1.
//!
//! Paths, answers and their shapes are generated from the handlers and types. What a
//! record must hold is the normalizer's to say and not in this crate's types; the
//! record of the reference normalizer is described in `record.json`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use bytes::Bytes;
use serde_json::{Value, json};
use utoipa::OpenApi;

use crate::answer::ErrorBody;
use crate::ndjson::LineBody;
use crate::post::AcceptedBody;
use crate::routes::Shared;

/// The schema of a record, as JSON.
const RECORD: &str = include_str!("record.json");

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Call detail records",
        description = "Takes call detail records of vendors. A 202 means that every record of the \
                       request is stored for good; every other answer says what to do. Refusals of \
                       whatever kind have one shape, `Error`."
    ),
    paths(crate::post::post_cdrs, get_openapi),
    components(schemas(AcceptedBody, LineBody, ErrorBody))
)]
struct Vendors;

#[derive(OpenApi)]
#[openapi(paths(crate::stats::get_stats, metrics, healthz, readyz))]
struct Operators;

/// The paths of every host, which have no handlers in this crate.
#[allow(dead_code)]
#[utoipa::path(get, path = "/metrics", tag = "operators",
    responses((status = 200, description = "Metrics, as Prometheus reads them", content_type = "text/plain; version=0.0.4", body = String)))]
fn metrics() {}

/// Whether the process makes progress.
#[allow(dead_code)]
#[utoipa::path(get, path = "/healthz", tag = "operators",
    responses((status = 200, description = "It does"), (status = 503, description = "It is stuck; it says where")))]
fn healthz() {}

/// Whether the process takes records.
#[allow(dead_code)]
#[utoipa::path(get, path = "/readyz", tag = "operators",
    responses((status = 200, description = "It does"), (status = 503, description = "Not now; it says why")))]
fn readyz() {}

/// The description as it is for a host: with the paths for operators or without, with
/// tokens or without.
pub(crate) fn describe(with_operators: bool, with_tokens: bool) -> Bytes {
    let mut api = Vendors::openapi();
    if with_operators {
        api.merge(Operators::openapi());
    }
    // Maps and strings: neither can fail.
    let mut api = serde_json::to_value(&api).unwrap_or_default();
    let record: Value = serde_json::from_str(RECORD).unwrap_or_default();
    api["components"]["schemas"]["CallDetailRecord"] = record;
    let post = &mut api["paths"]["/v1/cdrs"]["post"];
    post["requestBody"]["content"]["application/json"]["schema"] =
        json!({"$ref": "#/components/schemas/CallDetailRecord"});
    if with_tokens {
        post["security"] = json!([{"token": []}]);
        api["components"]["securitySchemes"] = json!({"token": {
            "type": "http",
            "scheme": "bearer",
            "description": "A token that the operator made for the vendor.",
        }});
    }
    Bytes::from(serde_json::to_vec(&api).unwrap_or_default())
}

/// This description.
#[utoipa::path(get, path = "/openapi.json", tag = "vendors",
    responses((status = 200, description = "This description", body = Object)))]
pub(crate) async fn get_openapi(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], shared.openapi.clone())
}
