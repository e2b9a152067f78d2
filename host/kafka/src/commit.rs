//! What a failed commit means.

use rdkafka::error::RDKafkaErrorCode as Code;

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
        assert_eq!(CommitFault::of(Code::NotCoordinator), CommitFault::Transient);
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
