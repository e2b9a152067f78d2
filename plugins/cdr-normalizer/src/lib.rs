//! The reference normalizer: the rules by which a vendor's call detail record
//! becomes a row.
//!
//! ```text
//! payload ──▶ raw::RawCdr ──▶ admit::admit          (the API: onto the topic?)
//!                        └──▶ normalize::normalize  (the worker: what row?)
//!                               rat · epoch · phone · ipv4 · cdr_id
//! ```
//!
//! All of it is pure: no clock, no files, no network, no state beyond the
//! compiled phone metadata. It knows nothing of Kafka or ClickHouse.

pub mod admit;
pub mod field;
pub mod normalize;
pub mod plugin;
pub mod rat;
pub mod raw;
pub mod settings;
mod token;

pub use plugin::CdrNormalizer;
pub use telecom_rules::{cdr_id, epoch, ipv4, phone};
