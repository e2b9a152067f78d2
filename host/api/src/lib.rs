//! HTTP in, Kafka out: takes records from vendors, has each admitted by the
//! normalizer, publishes it, and answers 202 when Kafka has acknowledged it.
//!
//! ```text
//!   POST /v1/cdrs ─ routes ─ auth ─ body ─► record ─ permit ─► admission ─► publish ─► 202
//!                     │       │      │        │        │           │           │
//!                    404     401    408      (goes    429         400         503
//!                    405            413       on when             403         413
//!                    415            400        the client hangs up) 500
//! ```
//!
//! What it promises: a 202 means that the record is in the topic, exactly as it
//! was received; every other answer says whether it may be. Nothing waits
//! outside the bounds of `API_QUEUE_MAX_SIZE` records and `API_QUEUE_MAX_BYTES`. No
//! failure is remembered: each request tries anew.
//!
//! It is not for what a record means (that is the normalizer's), nor for how
//! Kafka is spoken to.
//!
//! | question | file |
//! |---|---|
//! | what is answered, and how does it read? | `answer` |
//! | what becomes of a record once it is read? | `record` |
//! | when are records judged together? | `admission` |
//! | what is the bound, what does a drain wait for? | `outstanding` |
//! | how long, and how large, may a body be? how is it decoded? | `body` |
//! | who may post? | `auth` |
//! | what are many records in one request? | `ndjson` |
//! | how is all of it described to clients? | `openapi` |
#![deny(missing_docs)]

mod admission;
mod answer;
pub mod auth;
mod body;
pub mod config;
pub mod kafka;
mod metrics;
mod ndjson;
pub mod normalizer;
mod openapi;
mod outstanding;
pub mod ports;
mod post;
mod quiet;
mod record;
mod routes;
mod stats;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use cdr_telemetry::health::Health;
use cdr_telemetry::http::tls::{Tls, TlsError};
use cdr_telemetry::http::{self, HttpError, ServeOptions, Server};
use cdr_telemetry::metrics::Metrics;
use cdr_telemetry::shutdown::Shutdown;
use tokio::time::Instant;

pub use config::{ApiArgs, ConfigError};

use admission::Admission;
use auth::Tokens;
use body::Limits;
use metrics::ApiMetrics;
use outstanding::{Bounds, Gauges, Outstanding};
use ports::{Admit, Publish};
use record::Intake;
use routes::Shared;

/// The component of `/readyz` that this host reports.
const COMPONENT: &str = "api";

/// What is kept of the time for a shutdown for the process to end.
const EXIT: Duration = Duration::from_secs(2);

/// Why the host did not start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// Settings that can't work together.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The address can't be served.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// A metric is registered twice: two hosts share a registry.
    #[error("the metrics of the API host can't be registered: {0}")]
    Metrics(#[from] prometheus::Error),
    /// The client that asks the worker for its stats can't be made.
    #[error("the HTTP client for WORKER_STATS_URL can't be made: {0}")]
    StatsClient(#[from] reqwest::Error),
    /// The file of tokens can't be used.
    #[error("API_TOKENS_FILE: {0}")]
    Tokens(#[from] auth::TokensError),
    /// Certificate or key can't be used.
    #[error("API_TLS_CERT_FILE and API_TLS_KEY_FILE: {0}")]
    Tls(#[from] TlsError),
    /// The drain's budget ran out.
    #[error(
        "{outstanding} records were still unacknowledged {budget:?} after the shutdown was requested \
         (API_SHUTDOWN_TIMEOUT_SECONDS); none of them was answered 202, and their vendors will send them again"
    )]
    NotDrained {
        /// Records without an acknowledgement.
        outstanding: usize,
        /// The budget.
        budget: Duration,
    },
}

/// The host, made and not yet listening.
pub struct ApiHost {
    args: ApiArgs,
    router: Router,
    /// What is served at an address of its own.
    operators: Option<(SocketAddr, Router)>,
    metrics: ApiMetrics,
    outstanding: Outstanding,
    health: Health,
}

impl ApiHost {
    /// Makes the host and starts its admission lanes on the current runtime. It
    /// reports the component `api` to `health`: not ready until it listens, and
    /// again from the moment it drains.
    pub fn new(
        args: ApiArgs,
        admit: Arc<dyn Admit>,
        publish: Arc<dyn Publish>,
        metrics: Metrics,
        health: Health,
    ) -> Result<Self, ApiError> {
        args.check(publish.delivery_timeout())?;
        health.set_ready(COMPONENT, Err("not listening yet".to_owned()));
        let bounds = Bounds {
            records: usize::try_from(args.api_queue_max_size).unwrap_or(usize::MAX),
            bytes: args.queue_max_bytes(),
        };
        let api_metrics = ApiMetrics::new(metrics.registry(), bounds)?;
        let gauges = Gauges {
            records: api_metrics.outstanding.clone(),
            bytes: api_metrics.outstanding_bytes.clone(),
        };
        let outstanding = Outstanding::new(bounds, gauges);
        let tokens = args.api_tokens_file.as_deref().map(Tokens::follow);
        let shared = Arc::new(Shared {
            answer_timeout: publish.delivery_timeout() + config::ANSWER_MARGIN,
            intake: Arc::new(Intake {
                outstanding: outstanding.clone(),
                admission: Admission::start(
                    admit.clone(),
                    args.admission_lanes(),
                    &api_metrics,
                    &health,
                ),
                admit,
                publish,
                metrics: api_metrics.clone(),
            }),
            stats: stats::Stats::new(args.worker_stats_url.clone())?,
            tokens: tokens.transpose()?,
            one: Limits {
                bytes: args.max_body_bytes(),
                time: args.read_timeout(),
            },
            many: Limits {
                bytes: args.ndjson_max_bytes(),
                time: args.ndjson_read_timeout(),
            },
            max_lines: usize::try_from(args.api_ndjson_max_lines).unwrap_or(usize::MAX),
            full: quiet::Quiet::default(),
            openapi: openapi::describe(
                args.api_ops_listen.is_none(),
                args.api_tokens_file.is_some(),
            ),
        });
        let common = http::routes(metrics, health.clone());
        let operators = routes::operators(&shared, common);
        let (routes, operators) = match args.api_ops_listen {
            None => (routes::vendors(&shared).merge(operators), None),
            Some(addr) => {
                let operators = routes::finished(shared.clone(), operators);
                (routes::vendors(&shared), Some((addr, operators)))
            }
        };
        Ok(ApiHost {
            router: routes::finished(shared, routes),
            operators,
            args,
            metrics: api_metrics,
            outstanding,
            health,
        })
    }

    /// All its paths, to be served by other means than [`start`](Self::start).
    pub fn router(&self) -> Router {
        self.router.clone()
    }

    /// Listens at `API_LISTEN`. Once `shutdown` is requested, new records are
    /// refused with 503, those taken in are answered, and the host ends.
    pub async fn start(self, shutdown: Shutdown) -> Result<RunningApi, ApiError> {
        let stop = Shutdown::new();
        let tls = match (&self.args.api_tls_cert_file, &self.args.api_tls_key_file) {
            (Some(certificate), Some(key)) => Some(Tls::follow(certificate, key)?),
            _ => None,
        };
        let scheme = if tls.is_some() { "https" } else { "http" };
        let options = ServeOptions {
            // A body that is being read when the drain ends may be read on, so
            // that its sender is told.
            grace: self.args.read_timeout() + Duration::from_secs(1),
            port_file: self.args.api_port_file.clone(),
            tls,
            outside: Arc::new(self.metrics),
            ..self.args.connections()
        };
        let operators = match self.operators {
            None => None,
            Some((addr, router)) => {
                let options = ServeOptions {
                    port_file: self.args.api_ops_port_file.clone(),
                    ..ServeOptions::default()
                };
                Some(options.serve(addr, router, stop.clone()).await?)
            }
        };
        let server = options
            .serve(self.args.api_listen, self.router, stop.clone())
            .await?;
        let addr = server.local_addr();
        let ops_addr = operators.as_ref().map(Server::local_addr);
        self.health.set_ready(COMPONENT, Ok(()));
        tracing::info!(
            event = "api_listening",
            %addr,
            ops_addr = ops_addr.map(|addr| addr.to_string()),
            "records are taken at {scheme}://{addr}/v1/cdrs"
        );
        if self.args.api_tokens_file.is_none() && !addr.ip().is_loopback() {
            tracing::warn!(
                event = "api_open_to_anyone",
                %addr,
                "API_TOKENS_FILE is not set and {addr} is no loopback address: WHOEVER REACHES IT MAY \
                 POST RECORDS IN THE NAME OF ANY VENDOR. Make tokens with `cdr token new VENDOR`"
            );
        }
        let drain = Drain {
            outstanding: self.outstanding,
            health: self.health,
            budget: self.args.shutdown_timeout(),
            server,
            stop,
        };
        let task = tokio::spawn(async move {
            shutdown.requested().await;
            drain.run().await
        });
        Ok(RunningApi {
            addr,
            ops_addr,
            task,
        })
    }

    /// [`start`](Self::start), and [`stopped`](RunningApi::stopped).
    pub async fn run(self, shutdown: Shutdown) -> Result<(), ApiError> {
        self.start(shutdown).await?.stopped().await
    }
}

/// A host that listens. Dropping it does not stop it; its shutdown does.
pub struct RunningApi {
    addr: SocketAddr,
    ops_addr: Option<SocketAddr>,
    task: tokio::task::JoinHandle<Result<(), ApiError>>,
}

impl RunningApi {
    /// The address it listens on, with the port that the system chose for 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// The address for operators, if it is one of its own.
    pub fn ops_addr(&self) -> Option<SocketAddr> {
        self.ops_addr
    }

    /// Waits until the host has ended. Ok: every record that was taken in has
    /// been answered for.
    pub async fn stopped(self) -> Result<(), ApiError> {
        match self.task.await {
            Ok(ended) => ended,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime itself goes down.
                Err(_) => Ok(()),
            },
        }
    }
}

/// The end of a host: refuse, wait for acknowledgements, close.
struct Drain {
    outstanding: Outstanding,
    health: Health,
    budget: Duration,
    server: Server,
    stop: Shutdown,
}

impl Drain {
    async fn run(self) -> Result<(), ApiError> {
        // What is left is for the process to end.
        let budget = self.budget.saturating_sub(EXIT).max(self.budget / 2);
        let deadline = Instant::now() + budget;
        self.outstanding.drain();
        self.health.set_ready(
            COMPONENT,
            Err("draining: a shutdown was requested".to_owned()),
        );
        tracing::info!(
            event = "api_draining",
            outstanding = self.outstanding.records(),
            "new records are refused; waiting up to {:?} for acknowledgements",
            budget
        );
        let drained = tokio::time::timeout_at(deadline, self.outstanding.drained()).await;
        self.stop.request();
        if drained.is_err() {
            let outstanding = self.outstanding.records();
            tracing::error!(
                event = "api_not_drained",
                outstanding,
                "the shutdown ends with unacknowledged records"
            );
            return Err(ApiError::NotDrained {
                outstanding,
                budget,
            });
        }
        // Answers are on their way out; clients that don't take them, or are slow
        // to send, can't hold up the end for longer than the grace time.
        let _ = tokio::time::timeout_at(deadline, self.server.stopped()).await;
        tracing::info!(
            event = "api_stopped",
            "every record that was taken in has been answered"
        );
        Ok(())
    }
}
