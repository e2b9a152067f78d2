//! Why a worker stops before it was told to. In every case nothing was advanced
//! beyond what is settled.

use crate::settings::Contradiction;
use cdr_kafka::PublishError;
use cdr_kafka::{CloseError, ConsumerError, ConsumerFailure};
use cdr_store::StoreError;
use std::path::PathBuf;
use std::time::Duration;

/// Why a worker stopped.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// Settings that can't work together.
    #[error(transparent)]
    Settings(#[from] Contradiction),
    /// The consumer could not be started.
    #[error(transparent)]
    Consumer(#[from] ConsumerError),
    /// Reading from, or committing to, Kafka failed for good.
    #[error(transparent)]
    Kafka(#[from] ConsumerFailure),
    /// A dead letter was not acknowledged.
    #[error(
        "a dead letter was not delivered to {topic}; stopped without advancing anything: {cause}"
    )]
    DeadLetter {
        /// The dead-letter topic.
        topic: String,
        /// Why.
        cause: PublishError,
    },
    /// There is no folder for dead letters that are too large for their topic.
    #[error(
        "the folder {path} for dead letters that are too large for their topic can't be used: {cause}; \
         set WORKER_SPOOL_DIR to one that this user can write"
    )]
    SpoolDir {
        /// The folder.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// A dead letter that is too large for its topic could not be kept whole.
    #[error(
        "a dead letter is too large for {topic}, and its whole could not be written to {path} (WORKER_SPOOL_DIR); \
         stopped without advancing anything: {cause}"
    )]
    Spool {
        /// The dead-letter topic.
        topic: String,
        /// The file or folder.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// ClickHouse can take no batch at all.
    #[error("the ClickHouse set-up is broken; stopped without advancing anything: {0}")]
    Setup(StoreError),
    /// The table doesn't fit the normalizer.
    #[error("{0}")]
    Schema(String),
    /// The normalizer could not be run.
    #[error("the normalizer can't be run: {0}")]
    Normalizer(#[from] cdr_plugin_host::RunError),
    /// What came from the normalizer could not be made into rows.
    #[error("rows could not be built: {0}")]
    Rows(#[from] cdr_store::ColumnError),
    /// A batch lacks a column of the table's key.
    #[error("rows could not be built: {0}")]
    Key(#[from] cdr_store::MissingKey),
    /// A block could not be made.
    #[error("a block could not be encoded: {0}")]
    Block(#[from] cdr_store::BlockError),
    /// The records stopped coming though nobody asked.
    #[error("the Kafka consumer ended unexpectedly")]
    ConsumerGone,
    /// Not everything was settled in time.
    #[error(
        "{in_flight} records were not settled within {budget:.0?} of the signal to stop (WORKER_SHUTDOWN_TIMEOUT_SECONDS); \
         they are not committed and are consumed again"
    )]
    NotDrained {
        /// The time that was given.
        budget: Duration,
        /// Records without an outcome.
        in_flight: u64,
    },
    /// The end was not in order.
    #[error(transparent)]
    Close(#[from] CloseError),
    /// The address could not be bound, or serving failed.
    #[error("{0}")]
    Http(String),
    /// The operating system gave no thread.
    #[error("could not start a thread: {0}")]
    Thread(#[from] std::io::Error),
    /// A task of this process panicked.
    #[error("an internal task failed: {0}")]
    Task(#[from] tokio::task::JoinError),
}
