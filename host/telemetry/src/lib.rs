//! What every host does alike: logs, metrics, health, shutdown, and the HTTP
//! server that shows them.
//!
//! ```text
//!   tracing events ──► logs ──────► stderr, one flat JSON object a line
//!   counters ────────► metrics ──┐
//!   heartbeats ──────► health  ──┼► http ──► /metrics /healthz /readyz
//!   SIGTERM, SIGINT ─► shutdown ─┘            (beside a host's own routes)
//! ```
//!
//! It is not for what a host counts or when it is healthy: hosts register
//! their own metrics and report their own health here. It knows nothing of
//! Kafka, ClickHouse or normalizers.
#![deny(missing_docs)]

pub mod followed;
pub mod health;
pub mod http;
pub mod logs;
pub mod metrics;
pub mod normalizer;
pub mod shutdown;
pub mod trace;

mod port_file;
