//! The HTTP server of a host, and the routes that every host has.
//!
//! Written on hyper rather than on `axum::serve`, for what the latter doesn't do:
//! limits on heads, idle and stalled connections and their number, HTTP/2 without
//! TLS beside HTTP/1.1, TLS whose certificate is followed, a bound on how long
//! connections may hold up a shutdown, requests that outlive a client that hangs
//! up, and a refusal to bind that says what to do.
//!
//! ```text
//!   serve: accept ──► connection: TLS? HTTP/1.1 or 2? ──► request (a task) ──► router
//!                         └── stream: stalls, answers of hyper's own
//! ```

mod connection;
mod request;
mod serve;
mod stream;
pub mod tls;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use serde::Serialize;

use crate::health::{Failing, Health};
use crate::metrics::{self, Metrics};

pub use request::{Outside, Silent, Unrouted};
pub use serve::{ServeOptions, Server, serve};

/// `/metrics`, `/healthz` and `/readyz`, to be merged with a host's own routes.
///
/// The latter two answer 200 `{"status":"ok"}` or 503
/// `{"status":"failing","failing":[{"component":…,"reason":…}]}`.
pub fn routes(metrics: Metrics, health: Health) -> Router {
    Router::new()
        .route(
            "/metrics",
            get(async |State(metrics): State<Metrics>| {
                (
                    [(header::CONTENT_TYPE, metrics::CONTENT_TYPE)],
                    metrics.render(),
                )
            })
            .with_state(metrics),
        )
        .route(
            "/healthz",
            get(async |State(health): State<Health>| report(health.is_live()))
                .with_state(health.clone()),
        )
        .route(
            "/readyz",
            get(async |State(health): State<Health>| report(health.is_ready())).with_state(health),
        )
}

fn report(verdict: Result<(), Vec<Failing>>) -> Response {
    #[derive(Serialize)]
    struct Report {
        status: &'static str,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        failing: Vec<Failing>,
    }
    let (code, status, failing) = match verdict {
        Ok(()) => (StatusCode::OK, "ok", Vec::new()),
        Err(failing) => (StatusCode::SERVICE_UNAVAILABLE, "failing", failing),
    };
    (code, Json(Report { status, failing })).into_response()
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// Another process listens there.
    #[error(
        "{addr} is in use by another process: stop that one (`ss -ltnp` names it) or choose another address; port 0 takes any free port"
    )]
    InUse {
        /// The address tried.
        addr: SocketAddr,
    },
    /// The address can't be listened on.
    #[error(
        "can't listen on {addr}: {source}; is it an address of this machine, and is the port allowed?"
    )]
    Bind {
        /// The address tried.
        addr: SocketAddr,
        /// The system's word for it.
        source: io::Error,
    },
    /// The file that says where the server listens can't be written.
    #[error("can't write the port file {}: {source}; does its folder exist, and is it writable?", path.display())]
    PortFile {
        /// The file.
        path: PathBuf,
        /// The system's word for it.
        source: io::Error,
    },
}
