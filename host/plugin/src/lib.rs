//! Runs CDR normalizers: WebAssembly components of the package
//! `telecom:cdr@1.0.0` (see `wit/1.0.0/cdr.wit`), as untrusted parts.
//!
//! ```text
//!  .wasm ─ checks ─ configure ─ snapshot ─ compile ─┐   (once a load, cached)
//!                                                   ▼
//!  batch ──▶ guest thread ──▶ fresh pooled instance ──▶ validation ──▶ answer
//!                  ▲                  │ trap, deadline, limit, breach
//!                  └──── bisect ◀─────┘ (the instance is thrown away)
//! ```
//!
//! What a caller may rely on:
//! - every batch starts from the same snapshot, so nothing that a guest does in
//!   one batch can be seen in another, and the same batch gives the same answer
//!   (unless the operator allows [`Reuse`] for what can't be snapshotted);
//! - a guest has no files, network, environment, clock or sleep; its memory,
//!   time, stack and the size of its answers are limited ([`Limits`]);
//! - every answer has been validated ([`validate`](mod@validate)); a record that makes the
//!   guest fail is found by bisection and answered as a [`Fault`], the others
//!   of its batch are answered as if it had not been there;
//! - guests run on threads of their own, never on an async runtime's.
//!
//! Not for: Kafka, ClickHouse, HTTP, deciding what a valid record is. This
//! crate knows none of them and can be used alone.

pub mod batch;
mod cache;
pub mod config;
pub mod contract;
pub mod diff;
mod engine;
pub mod error;
pub mod fixtures;
pub mod follow;
mod guest;
pub mod inspect;
mod isolate;
pub mod json;
pub mod live;
mod load;
pub mod measure;
mod normalizer;
mod pool;
pub mod registry;
mod sandbox;
pub mod shadow;
pub mod signature;
mod snapshot;
mod threads;
pub mod validate;

pub use batch::Batch;
pub use config::{HostConfig, Limits, Reuse};
pub use contract::{
    Admission, Column, ColumnSpec, ColumnType, Manifest, Outcome, Reason, Rejection, Values,
    Violation, ViolationCode,
};
pub use error::{Fault, FaultKind, LoadError, RunError};
pub use follow::{FollowConfig, Follower, NothingToPrepare, Prepare};
pub use inspect::{Inspection, inspect};
pub use live::{Live, LiveState, Refusal, Serving, Shadowing, Unprepared};
pub use load::PluginHost;
pub use normalizer::{Admitted, Normalized, Normalizer, Provenance};
pub use registry::Registry;
pub use shadow::{Shadow, ShadowReport};
pub use signature::TrustedKeys;
