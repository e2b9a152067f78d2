//! Committing: what the ledger allows, and what becomes of the answers.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rdkafka::error::{KafkaResult, RDKafkaErrorCode};
use rdkafka::{Offset, TopicPartitionList};

use super::PollLoop;
use crate::commit::CommitFault;
use crate::context::{CommitAnswer, code_of};
use crate::failure::ConsumerFailure;
use crate::ledger::Commit;

/// How long the first commit of an assignment waits for the group's position to
/// be read.
const START_KNOWN: Duration = Duration::from_secs(5);

/// A commit without any answer for so long is sent again.
const COMMIT_ANSWER: Duration = Duration::from_secs(60);

/// The one request that is on its way.
pub(super) struct Outstanding {
    commits: Vec<Commit>,
    sent: Instant,
}

impl PollLoop {
    /// Sends what may be committed, one request at a time.
    pub(super) fn commit(&mut self) {
        let now = Instant::now();
        if self.shared.failed().is_some() {
            return;
        }
        if let Some(outstanding) = &self.outstanding {
            let held = outstanding
                .commits
                .iter()
                .any(|&commit| self.shared.ledger().holds(commit));
            if !held {
                // Its partitions are gone, and its answer may never come: it
                // must not keep those that were assigned since from committing.
                self.outstanding = None;
            } else if now.duration_since(outstanding.sent) < COMMIT_ANSWER {
                return;
            } else {
                self.committed(Err(RDKafkaErrorCode::OperationTimedOut), &[]);
            }
        }
        let hurry = self.revoking.is_some() || self.closing.is_some();
        if now < self.next_commit && !(hurry && self.failing_since.is_none()) {
            return;
        }
        let sent = {
            // Ownership and commit under one lock.
            let mut ledger = self.shared.ledger();
            let mut commits = ledger.all_committable();
            commits.retain(|commit| hurry || self.may_commit(commit.partition));
            if commits.is_empty() {
                return;
            }
            let sent = self
                .offsets(&commits)
                .map_err(|error| code_of(&error))
                .and_then(|list| crate::commit::send(&self.consumer, &list));
            for &commit in &commits {
                ledger.commit_sent(commit);
                let unknown = self.shared.logs().committing(commit.partition);
                if let Some(first) = unknown {
                    tracing::warn!(
                        event = "start_unknown",
                        partition = commit.partition,
                        first,
                        "where the group stood in {}/{} was not read before the first commit: whether \
                         records before offset {first} were lost to retention can't be told",
                        self.shared.config.topic,
                        commit.partition
                    );
                }
            }
            self.outstanding = Some(Outstanding { commits, sent: now });
            sent
        };
        self.next_commit = now + self.shared.config.commit_interval;
        if let Err(code) = sent {
            self.committed(Err(code), &[]);
        }
    }

    /// Whether the first commit of an assignment may be sent: not before it was
    /// read where the group stood, for what was lost before is not seen after.
    fn may_commit(&self, partition: i32) -> bool {
        self.shared.logs().is_started(partition)
            || self
                .shared
                .progress()
                .held_for(partition)
                .is_none_or(|held| held >= START_KNOWN)
    }

    fn offsets(&self, commits: &[Commit]) -> KafkaResult<TopicPartitionList> {
        let mut list = TopicPartitionList::new();
        for commit in commits {
            list.add_partition_offset(
                &self.shared.config.topic,
                commit.partition,
                Offset::Offset(commit.next),
            )?;
        }
        Ok(list)
    }

    /// A commit was answered (or given up).
    pub(super) fn committed(
        &mut self,
        whole: Result<(), RDKafkaErrorCode>,
        answers: &[CommitAnswer],
    ) {
        let answer_to = |commit: &Commit| {
            answers
                .iter()
                .find(|a| a.partition == commit.partition && a.next == commit.next)
        };
        // An answer that came after its commit was given up is to no question.
        let Some(outstanding) = self.outstanding.take_if(|outstanding| {
            answers.is_empty() || outstanding.commits.iter().any(|c| answer_to(c).is_some())
        }) else {
            return;
        };
        let (mut failed, mut done) = (None, false);
        for commit in outstanding.commits {
            let result = answer_to(&commit)
                // Not mentioned: not committed.
                .map_or(whole.and(Err(RDKafkaErrorCode::NoOffset)), |answer| {
                    answer.result
                });
            let mut ledger = self.shared.ledger();
            match result {
                Ok(()) => {
                    if ledger.commit_done(commit) {
                        self.shared.progress().committed(commit.partition);
                    }
                    done = true;
                    self.shared.commits.fetch_add(1, Ordering::Relaxed);
                }
                // The partition is gone: then so is the question.
                Err(code) if ledger.commit_failed(commit) => failed = Some((commit, code)),
                Err(_) => {}
            }
        }
        if done {
            self.shared.reach.up();
        }
        match failed {
            None => self.failing_since = None,
            Some((commit, code)) => self.commit_failed(commit, code),
        }
    }

    fn commit_failed(&mut self, commit: Commit, cause: RDKafkaErrorCode) {
        let shared = &self.shared;
        shared.commit_failures.fetch_add(1, Ordering::Relaxed);
        let config = &shared.config;
        let fault = CommitFault::of(cause);
        if fault == CommitFault::Fatal {
            let failure = ConsumerFailure::CommitRefused {
                brokers: shared.brokers.clone(),
                group: config.group.clone(),
                topic: config.topic.clone(),
                partition: commit.partition,
                next: commit.next,
                cause,
            };
            return self.fail(failure);
        }
        tracing::warn!(
            event = "commit_retried",
            partition = commit.partition,
            next_offset = commit.next,
            cause = %cause,
            "committing offset {} of {}/{} failed ({cause}); nothing was advanced, it is sent again",
            commit.next,
            config.topic,
            commit.partition
        );
        // A lost connection is an outage, which the consumer waits for; the
        // budget is for brokers that answer, but not to commits.
        if crate::reachability::is_unreachable(cause) {
            self.failing_since = None;
            return;
        }
        let lasting = self
            .failing_since
            .get_or_insert_with(Instant::now)
            .elapsed();
        if lasting >= config.commit_retry_budget {
            let failure = ConsumerFailure::CommitStuck {
                brokers: shared.brokers.clone(),
                group: config.group.clone(),
                lasting,
                cause,
            };
            self.fail(failure);
        }
    }
}
