//! The consumer's callbacks. They run on the polling thread, inside `poll`.
//!
//! Assignments take effect at once. A revocation is only noted: the polling loop
//! answers it when the partition's work is done (librdkafka waits for the answer
//! and goes on with heartbeats). Results of commits are noted for the loop too.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::statistics::Statistics;
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, Offset, TopicPartitionList};

use crate::consumer::Shared;
use crate::failure::ConsumerEvent;
use crate::lag::LogEnd;
use crate::reachability::is_unreachable;

/// The broker's answer for one partition of a commit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommitAnswer {
    pub(crate) partition: i32,
    pub(crate) next: i64,
    pub(crate) result: Result<(), RDKafkaErrorCode>,
}

/// What the callbacks leave for the polling loop.
#[derive(Debug)]
pub(crate) enum Notice {
    /// Partitions are to be given back; librdkafka waits for `unassign`.
    Revoking(Vec<i32>),
    /// A commit was answered: the request as a whole, and each partition.
    Committed(Result<(), RDKafkaErrorCode>, Vec<CommitAnswer>),
    /// A rebalance could not be followed.
    Failed(String),
}

pub(crate) struct RawContext {
    shared: Arc<Shared>,
    inbox: Mutex<Vec<Notice>>,
    /// The client is being closed: revocations are answered at once.
    closing: AtomicBool,
}

impl RawContext {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        RawContext {
            shared,
            inbox: Mutex::new(Vec::new()),
            closing: AtomicBool::new(false),
        }
    }

    pub(crate) fn notices(&self) -> Vec<Notice> {
        std::mem::take(&mut *self.inbox.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    fn note(&self, notice: Notice) {
        self.inbox
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(notice);
    }

    fn assigned(&self, consumer: &BaseConsumer<Self>, list: &TopicPartitionList) {
        let partitions = partitions_of(list);
        {
            let mut ledger = self.shared.ledger();
            for &partition in &partitions {
                ledger.assign(partition);
            }
        }
        {
            let mut logs = self.shared.logs();
            let mut progress = self.shared.progress();
            for &partition in &partitions {
                logs.assigned(partition);
                progress.assigned(partition);
            }
        }
        // Where the group stands is to be read before it moves.
        self.shared.bell.ring();
        forget_ends(&self.shared, &partitions);
        if let Err(error) = consumer.incremental_assign(list) {
            self.note(Notice::Failed(error.to_string()));
            return;
        }
        // A partition may come back with the pause it went with.
        let stopped = self.shared.paused.load(Ordering::Acquire);
        let flow = if stopped {
            consumer.pause(list)
        } else {
            consumer.resume(list)
        };
        if let Err(error) = flow {
            tracing::debug!(event = "kafka_pause_failed", "{error}");
        }
        tracing::info!(
            event = "partitions_assigned",
            topic = self.shared.config.topic,
            group = self.shared.config.group,
            partitions = ?partitions,
            "assigned partitions {partitions:?} of {}",
            self.shared.config.topic
        );
        self.shared.tell(ConsumerEvent::Assigned { partitions });
    }

    fn revoked(&self, consumer: &BaseConsumer<Self>, list: &TopicPartitionList) {
        let lost = consumer.assignment_lost();
        if !lost && !self.closing.load(Ordering::Acquire) {
            if let Err(error) = consumer.pause(list) {
                tracing::debug!(event = "kafka_pause_failed", "{error}");
            }
            self.note(Notice::Revoking(partitions_of(list)));
            return;
        }
        give_back(&self.shared, consumer, &partitions_of(list), lost);
    }
}

/// What was fetched in an earlier assignment says nothing of this one.
fn forget_ends(shared: &Shared, partitions: &[i32]) {
    shared
        .ends
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .retain(|partition, _| !partitions.contains(partition));
}

/// Ends the ownership of partitions, in the ledger first, and tells everyone.
pub(crate) fn give_back(
    shared: &Shared,
    consumer: &BaseConsumer<RawContext>,
    partitions: &[i32],
    lost: bool,
) {
    let given_back = {
        let mut ledger = shared.ledger();
        partitions.iter().map(|&p| ledger.revoke(p)).sum()
    };
    let mut list = TopicPartitionList::new();
    for &partition in partitions {
        shared.logs().gone(partition);
        shared.progress().gone(partition);
        list.add_partition(&shared.config.topic, partition);
    }
    if let Err(error) = consumer.incremental_unassign(&list) {
        tracing::warn!(
            event = "partitions_not_unassigned",
            "could not give back partitions {partitions:?}: {error}"
        );
    }
    shared
        .lag
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .retain(|partition, _| !partitions.contains(partition));
    let how = if lost { "lost" } else { "gave back" };
    tracing::info!(
        event = if lost { "partitions_lost" } else { "partitions_revoked" },
        topic = shared.config.topic,
        group = shared.config.group,
        partitions = ?partitions,
        given_back,
        "{how} partitions {partitions:?} of {} with {given_back} records in flight",
        shared.config.topic
    );
    shared.tell(ConsumerEvent::Revoked {
        partitions: partitions.to_vec(),
        lost,
        given_back,
    });
}

fn partitions_of(list: &TopicPartitionList) -> Vec<i32> {
    list.elements().iter().map(|e| e.partition()).collect()
}

impl ClientContext for RawContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        self.shared.reach.log_line(level, facility, line);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        // Others come out of `poll` again, where the loop looks at them.
        if error.rdkafka_error_code().is_some_and(is_unreachable) {
            self.shared.reach.client_error(&error, reason);
        }
    }

    fn stats(&self, statistics: Statistics) {
        let Some(topic) = statistics.topics.get(&self.shared.config.topic) else {
            return;
        };
        let drained = self.shared.drained.load(Ordering::Relaxed);
        let mut ends = self
            .shared
            .ends
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for (&partition, found) in &topic.partitions {
            let known = ends.get(&partition).map(|end| end.offset);
            if found.eof_offset >= 0 && known != Some(found.eof_offset) {
                let end = LogEnd {
                    offset: found.eof_offset,
                    drained,
                };
                ends.insert(partition, end);
            }
        }
    }
}

impl ConsumerContext for RawContext {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        err: RDKafkaRespErr,
        list: &mut TopicPartitionList,
    ) {
        self.shared.rebalances.fetch_add(1, Ordering::Relaxed);
        self.shared.reach.up();
        match err {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => self.assigned(consumer, list),
            _ => self.revoked(consumer, list),
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, offsets: &TopicPartitionList) {
        let whole = match result {
            Ok(()) => Ok(()),
            Err(error) => Err(code_of(&error)),
        };
        let answers = offsets
            .elements()
            .iter()
            .filter_map(|element| {
                let Offset::Offset(next) = element.offset() else {
                    return None;
                };
                // Both layers: the partition's own error, and the request's.
                let own = element.error().map_err(|error| code_of(&error));
                Some(CommitAnswer {
                    partition: element.partition(),
                    next,
                    result: own.and(whole),
                })
            })
            .collect();
        self.note(Notice::Committed(whole, answers));
    }
}

pub(crate) fn code_of(error: &KafkaError) -> RDKafkaErrorCode {
    error
        .rdkafka_error_code()
        .unwrap_or(RDKafkaErrorCode::Unknown)
}
