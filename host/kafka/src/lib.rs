//! Kafka for the hosts: topics, publishing, consuming, and the ledger that says
//! why an offset was committed.
//!
//! ```text
//!   api ──► producer ──► cdr.raw ──► consumer ──► worker
//!                                       ▲            │ settle(ids, outcome)
//!                                    ledger ◄────────┤
//!                                                    └─► producer ─► cdr.raw.dlq
//!                                                        (dead_letter)
//! ```
//!
//! What it is not for: what a record means, how rows are written, when a batch is
//! full. It moves bytes and keeps account of them.
//!
//! | question | file |
//! |---|---|
//! | why was an offset committed? | [`ledger`] |
//! | what did a log lose before it was consumed? | [`losses`] |
//! | what does a dead letter look like? | [`dead_letter`], [`headers`] |
//! | when is a record acknowledged? | [`producer`] |
//! | when are partitions paused, committed, given back? | [`consumer`], `poll`, `poll/commits`, `poll/leaving` |
//! | when does a consumer give up? | [`failure`], [`commit`] |
//! | which topics must exist, and how? | [`topics`] |
//! | how is Kafka reached? | [`config`] |

#![deny(missing_docs)]

pub mod admin;
pub mod commit;
pub mod config;
pub mod consumer;
mod context;
pub mod dead_letter;
pub mod failure;
pub mod headers;
mod lag;
pub mod ledger;
pub mod losses;
mod message_headers;
mod poll;
pub mod producer;
pub mod reachability;
mod status;
pub mod topics;

pub use config::{ConfigError, KafkaArgs, KafkaConfig, Secret};
pub use consumer::{ConsumerConfig, PartitionProgress, RawConsumer, Record, Started, Status};
pub use failure::{CloseError, ConsumerError, ConsumerEvent, ConsumerFailure};
pub use lag::{GroupLag, PartitionLag};
pub use ledger::{Outcome, RecordId};
pub use producer::{Delivery, PublishError, Publisher, PublisherConfig};
