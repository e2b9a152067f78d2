//! Sending a commit, and what a failed one means.

use std::ptr;

use rdkafka::TopicPartitionList;
use rdkafka::bindings;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{IsError, RDKafkaErrorCode as Code};

/// Sends a commit without waiting; the answer comes to the context's
/// `commit_callback`, out of `poll`.
///
/// `Consumer::commit` with `CommitMode::Async` can't be used: up to rdkafka 0.39
/// nobody hears of its result (rust-rdkafka issue 856). With
/// `CommitMode::Sync` the polling thread would wait as long as the coordinator is
/// away. So the request names the consumer's own queue as the place for the answer.
pub(crate) fn send<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    offsets: &TopicPartitionList,
) -> Result<(), Code> {
    let client = consumer.client().native_ptr();
    // SAFETY: `client` and `offsets` are valid as long as their owners, which are
    // borrowed here; librdkafka copies the list. The queue is a counted reference
    // (null without a group, which is checked) and is released after its last
    // use; the request holds one of its own. No callback is given, so the answer
    // is an event of the queue that `BaseConsumer::poll` reads and frees.
    let error = unsafe {
        let queue = bindings::rd_kafka_queue_get_consumer(client);
        if queue.is_null() {
            return Err(Code::UnknownGroup);
        }
        let error =
            bindings::rd_kafka_commit_queue(client, offsets.ptr(), queue, None, ptr::null_mut());
        bindings::rd_kafka_queue_destroy(queue);
        error
    };
    if error.is_error() {
        return Err(error.into());
    }
    Ok(())
}

/// Three kinds of failure; none of them advances anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitFault {
    /// The group is moving. If the partition stays ours the commit is sent
    /// again; if not, the revocation drops it.
    Rebalance,
    /// The coordinator is away, moving or busy: sent again.
    Transient,
    /// It will not pass: the worker stops.
    Fatal,
}

impl CommitFault {
    /// Sorts a broker's or the client's answer to a commit.
    pub fn of(code: Code) -> Self {
        match code {
            Code::RebalanceInProgress
            | Code::IllegalGeneration
            | Code::UnknownMemberId
            | Code::AssignmentLost
            | Code::NoOffset
            | Code::Outdated => CommitFault::Rebalance,
            Code::CoordinatorLoadInProgress
            | Code::CoordinatorNotAvailable
            | Code::NotCoordinator
            | Code::WaitingForCoordinator
            | Code::RequestTimedOut
            | Code::OperationTimedOut
            | Code::TimedOutQueue
            | Code::MessageTimedOut
            | Code::BrokerTransportFailure
            | Code::AllBrokersDown
            | Code::Resolve
            | Code::NetworkException
            | Code::BrokerNotAvailable
            | Code::LeaderNotAvailable
            | Code::NotLeaderForPartition
            | Code::NotEnoughReplicas
            | Code::NotEnoughReplicasAfterAppend
            | Code::UnstableOffsetCommit
            | Code::ThrottlingQuotaExceeded
            | Code::Retry
            | Code::InProgress
            | Code::PreviousInProgress => CommitFault::Transient,
            _ => CommitFault::Fatal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moving_group_is_no_failure_and_a_refusal_is() {
        assert_eq!(
            CommitFault::of(Code::RebalanceInProgress),
            CommitFault::Rebalance
        );
        assert_eq!(
            CommitFault::of(Code::NotCoordinator),
            CommitFault::Transient
        );
        for code in [
            Code::GroupAuthorizationFailed,
            Code::TopicAuthorizationFailed,
            Code::OffsetMetadataTooLarge,
            Code::FencedInstanceId,
            Code::UnknownTopicOrPartition,
            Code::Unknown,
        ] {
            assert_eq!(CommitFault::of(code), CommitFault::Fatal, "{code:?}");
        }
    }
}
