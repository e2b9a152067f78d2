//! The HTTP server of a host, and the routes that every host has.
//!
//! Written on hyper rather than on `axum::serve`, for three things that the
//! latter doesn't do: a time limit for a request's head (which is also the limit
//! of an idle connection), a bound on how long connections may hold up a
//! shutdown, and a refusal to bind that says what to do.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::Serialize;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::health::{Failing, Health};
use crate::metrics::{self, Metrics};
use crate::port_file::PortFile;
use crate::shutdown::Shutdown;

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

/// How to serve; [`serve`] takes the defaults.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Time for the head of a request to arrive, counted from the connection's
    /// start or from the answer before; so also how long one may be idle.
    pub head_timeout: Duration,
    /// How long connections may go on after the shutdown was requested; then
    /// they are cut.
    pub grace: Duration,
    /// A file to hold the bound address (`127.0.0.1:40123`) while the server
    /// listens. It appears whole, and goes when the server ends.
    pub port_file: Option<PathBuf>,
}

impl Default for ServeOptions {
    fn default() -> Self {
        ServeOptions {
            // Above the idle time after which common clients let go of a
            // connection would be safest (90 s), but slow heads cost memory.
            head_timeout: Duration::from_secs(60),
            grace: Duration::from_secs(10),
            port_file: None,
        }
    }
}

/// Listens on `addr` and serves `router` until `shutdown` is requested, with the
/// default [`ServeOptions`]. When this returns, connections are accepted.
pub async fn serve(
    addr: SocketAddr,
    router: Router,
    shutdown: Shutdown,
) -> Result<Server, HttpError> {
    ServeOptions::default().serve(addr, router, shutdown).await
}

impl ServeOptions {
    /// Listens on `addr` and serves `router` (HTTP/1.1) until `shutdown` is
    /// requested. When this returns, connections are accepted.
    pub async fn serve(
        self,
        addr: SocketAddr,
        router: Router,
        shutdown: Shutdown,
    ) -> Result<Server, HttpError> {
        let listener = TcpListener::bind(addr)
            .await
            .map_err(|source| match source.kind() {
                io::ErrorKind::AddrInUse => HttpError::InUse { addr },
                _ => HttpError::Bind { addr, source },
            })?;
        let bound = listener
            .local_addr()
            .map_err(|source| HttpError::Bind { addr, source })?;
        let port_file = match &self.port_file {
            None => None,
            Some(path) => {
                Some(
                    PortFile::write(path, bound).map_err(|source| HttpError::PortFile {
                        path: path.clone(),
                        source,
                    })?,
                )
            }
        };
        let task = tokio::spawn(async move {
            let _port_file = port_file;
            run(listener, router, shutdown, self).await;
        });
        Ok(Server { addr: bound, task })
    }
}

/// A server that runs. Dropping it does not stop it; its [`Shutdown`] does.
#[derive(Debug)]
pub struct Server {
    addr: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    /// The address it listens on, with the port that the system chose for 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Waits until the server has stopped: requests that had begun are answered
    /// or cut after the grace time.
    pub async fn stopped(self) {
        if let Err(error) = self.task.await
            && error.is_panic()
        {
            tracing::error!(
                event = "http_server_panicked",
                "the server at {} panicked",
                self.addr
            );
        }
    }
}

async fn run(listener: TcpListener, router: Router, shutdown: Shutdown, options: ServeOptions) {
    let connections = TaskTracker::new();
    let cut = CancellationToken::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.requested() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _peer)) => {
                let one = connection(
                    stream,
                    router.clone(),
                    options.head_timeout,
                    shutdown.clone(),
                    cut.clone(),
                );
                connections.spawn(one);
            }
            // The client's own doing.
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                tracing::error!(
                    event = "accept_failed",
                    "can't accept connections: {error}; is the limit of open files (`ulimit -n`) reached?"
                );
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(options.grace, connections.wait())
        .await
        .is_err()
    {
        tracing::warn!(
            event = "connections_cut",
            connections = connections.len(),
            "connections were still busy {:.1?} after the shutdown was requested and are cut",
            options.grace
        );
        cut.cancel();
        connections.wait().await;
    }
}

async fn connection(
    stream: TcpStream,
    router: Router,
    head_timeout: Duration,
    shutdown: Shutdown,
    cut: CancellationToken,
) {
    // Answers are small and whole; waiting to fill a segment only delays them.
    let _ = stream.set_nodelay(true);
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_timeout)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut served = std::pin::pin!(served);
    tokio::select! {
        // How a connection ends is the client's business: hung up, too slow.
        _ = served.as_mut() => return,
        () = shutdown.requested() => served.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        _ = served => {}
        () = cut.cancelled() => {}
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}
