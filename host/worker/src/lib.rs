//! The worker host: raw records in, rows or dead letters out.
//!
//! ```text
//!   Kafka ─▶ consumer ─▶ batcher ─▶ normalizer ─▶ rows ─▶ ClickHouse ─┐
//!              ▲                        └─▶ dead letters ─▶ Kafka ────┤
//!              └── commit ◀── ledger ◀──────────── settled ───────────┘
//! ```
//!
//! The one promise: every record that was consumed ends as a row that ClickHouse
//! has acknowledged, or as a dead letter that Kafka has acknowledged, and only
//! then is its offset committed. Which offsets those are is decided in
//! `cdr_kafka::ledger`, and nowhere else.
//!
//! Not for: what a record means (that is the normalizer's), what a ClickHouse
//! error means (`cdr_store::error`), serving vendors (`cdr-api`).

pub mod batcher;
mod buffer;
pub mod config;
pub mod convert;
mod dead_letters;
mod error;
mod flush;
pub mod insert;
mod log_ids;
mod metrics;
mod pipeline;
pub mod progress;
mod ready;
mod replays;
mod run;
pub mod settings;
mod spool;
mod stats;
mod table;

pub use config::{ExhaustedPolicy, SchemaEvolution, WorkerArgs};
pub use error::WorkerError;
pub use run::{WorkerConfig, run};
pub use stats::Stats;
