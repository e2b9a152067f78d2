//! What a consumer tells of itself: assignments, and every way in which it can
//! not start, not go on, or not end in order.

use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode;

use crate::config::ConfigError;

/// News of a consumer, in order.
#[derive(Debug, Clone)]
pub enum ConsumerEvent {
    /// Partitions were assigned.
    Assigned {
        /// Which.
        partitions: Vec<i32>,
    },
    /// Partitions will be given back: settle what is in flight of them soon.
    Revoking {
        /// Which.
        partitions: Vec<i32>,
        /// How long they are kept for that.
        budget: Duration,
    },
    /// Partitions are gone: drop what is buffered of them.
    Revoked {
        /// Which.
        partitions: Vec<i32>,
        /// Taken away without asking: nothing of them was committed at the end.
        lost: bool,
        /// Records that were dropped without an outcome; another worker
        /// consumes them again.
        given_back: u64,
    },
    /// The consumer can't go on. It commits nothing more; stop nonzero.
    Fatal(ConsumerFailure),
}

/// Why a consumer can't go on.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConsumerFailure {
    /// The broker refused a commit for a reason that does not pass.
    #[error(
        "Kafka at {brokers} refused to commit offset {next} of {topic}/{partition} for group {group}: {cause}. \
         Nothing was advanced; records since the last commit are consumed again"
    )]
    CommitRefused {
        /// The bootstrap addresses.
        brokers: String,
        /// The group.
        group: String,
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The next offset that was to be committed.
        next: i64,
        /// The broker's word for it.
        cause: RDKafkaErrorCode,
    },
    /// Commits failed for too long, though brokers answer.
    #[error(
        "commits of group {group} at Kafka {brokers} have failed for {lasting:.0?} though brokers answer, lastly: {cause}. \
         Nothing was advanced; check the group's coordinator"
    )]
    CommitStuck {
        /// The bootstrap addresses.
        brokers: String,
        /// The group.
        group: String,
        /// For how long.
        lasting: Duration,
        /// The last cause.
        cause: RDKafkaErrorCode,
    },
    /// This client may not read the topic or join the group.
    #[error(
        "Kafka at {brokers} does not allow group {group} to read topic {topic}: {cause}. Check the ACLs of KAFKA_SASL_USERNAME"
    )]
    Unauthorized {
        /// The bootstrap addresses.
        brokers: String,
        /// The group.
        group: String,
        /// The topic.
        topic: String,
        /// The broker's word for it.
        cause: RDKafkaErrorCode,
    },
    /// librdkafka declared the client dead.
    #[error("the Kafka client of group {group} at {brokers} failed for good: {cause}")]
    Client {
        /// The bootstrap addresses.
        brokers: String,
        /// The group.
        group: String,
        /// librdkafka's words.
        cause: String,
    },
}

impl ConsumerFailure {
    /// A word for metrics and logs.
    pub fn tag(&self) -> &'static str {
        match self {
            ConsumerFailure::CommitRefused { .. } => "commit_refused",
            ConsumerFailure::CommitStuck { .. } => "commit_stuck",
            ConsumerFailure::Unauthorized { .. } => "unauthorized",
            ConsumerFailure::Client { .. } => "client",
        }
    }
}

/// A consumer that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ConsumerError {
    /// The settings can't work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The subscription was refused.
    #[error("could not subscribe to topic {topic}: {reason}")]
    Subscribe {
        /// The topic.
        topic: String,
        /// librdkafka's words.
        reason: String,
    },
    /// The operating system gave no thread.
    #[error("could not start a thread for the Kafka consumer: {0}")]
    Thread(#[from] std::io::Error),
}

/// A consumer that did not end in order. Nothing unsafe was committed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CloseError {
    /// Records had no outcome yet.
    #[error(
        "{in_flight} records had no outcome when the consumer was closed; they are consumed again"
    )]
    Unsettled {
        /// How many.
        in_flight: u64,
    },
    /// The last commit was not acknowledged.
    #[error(
        "the last commit was not acknowledged within {budget:.1?}; records since the one before are consumed again"
    )]
    Uncommitted {
        /// The budget.
        budget: Duration,
    },
    /// It had failed before.
    #[error(transparent)]
    Failed(#[from] ConsumerFailure),
    /// The thread did not end in time, or had ended before.
    #[error("the Kafka consumer did not stop within {budget:.1?}")]
    Stuck {
        /// The budget.
        budget: Duration,
    },
}
