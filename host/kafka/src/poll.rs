//! The polling thread: the one place that talks to the consumer client.
//!
//! Every round it polls for a moment, hands records on without ever waiting for
//! the other side, and does what is due: pause or resume, commit, answer a
//! revocation, close.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::Offset;
use rdkafka::TopicPartitionList;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Headers, Message};
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;

use crate::commit::CommitFault;
use crate::config::KafkaConfig;
use crate::consumer::{
    CloseError, Command, ConsumerError, ConsumerEvent, ConsumerFailure, Record, Shared,
};
use crate::context::{CommitAnswer, Notice, RawContext, code_of, give_back};
use crate::headers;
use crate::ledger::Commit;

/// Longest wait for a record: what is due waits no longer than this.
const POLL: Duration = Duration::from_millis(50);
/// The same while a revocation or a close is under way.
const POLL_BUSY: Duration = Duration::from_millis(5);
/// A commit without any answer for so long is sent again.
const COMMIT_ANSWER: Duration = Duration::from_secs(60);
/// How much longer a revoked partition is kept for its last commit.
pub(crate) const REVOKE_COMMIT_GRACE: Duration = Duration::from_secs(3);

struct Outstanding {
    commits: Vec<Commit>,
    sent: Instant,
}

struct Revoking {
    partitions: Vec<i32>,
    deadline: Instant,
}

struct Closing {
    budget: Duration,
    deadline: Instant,
    reply: oneshot::Sender<Result<(), CloseError>>,
}

pub(crate) struct PollLoop {
    consumer: BaseConsumer<RawContext>,
    shared: Arc<Shared>,
    records: Sender<Record>,
    commands: Receiver<Command>,
    /// Records that the channel had no room for; never dropped but with their partition.
    overflow: VecDeque<Record>,
    outstanding: Option<Outstanding>,
    next_commit: Instant,
    failing_since: Option<Instant>,
    revoking: Option<Revoking>,
    closing: Option<Closing>,
}

impl PollLoop {
    pub(crate) fn new(
        kafka: &KafkaConfig,
        shared: Arc<Shared>,
        records: Sender<Record>,
        commands: Receiver<Command>,
    ) -> Result<Self, ConsumerError> {
        let config = &shared.config;
        // What librdkafka may hold beyond what is in flight: half as much again.
        let prefetch_kib = (config.max_in_flight_bytes / 2048).clamp(64, 65_536);
        let consumer: BaseConsumer<RawContext> = kafka
            .client()?
            .set("group.id", &config.group)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "earliest")
            .set("allow.auto.create.topics", "false")
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("enable.partition.eof", "false")
            // A topic that is provisioned later is found within this.
            .set("topic.metadata.refresh.interval.ms", "10000")
            .set("queued.min.messages", "10000")
            .set("queued.max.messages.kbytes", prefetch_kib.to_string())
            .set(
                "max.poll.interval.ms",
                config.max_poll_interval.as_millis().to_string(),
            )
            .set(
                "session.timeout.ms",
                config.session_timeout.as_millis().to_string(),
            )
            .set(
                "heartbeat.interval.ms",
                (config.session_timeout.as_millis() / 6)
                    .clamp(1, 3000)
                    .to_string(),
            )
            .create_with_context(RawContext::new(shared.clone()))
            .map_err(|error| kafka.refused(&error))?;
        consumer
            .subscribe(&[&config.topic])
            .map_err(|error| ConsumerError::Subscribe {
                topic: config.topic.clone(),
                reason: error.to_string(),
            })?;
        Ok(PollLoop {
            consumer,
            shared,
            records,
            commands,
            overflow: VecDeque::new(),
            outstanding: None,
            next_commit: Instant::now(),
            failing_since: None,
            revoking: None,
            closing: None,
        })
    }

    pub(crate) fn run(mut self) {
        loop {
            match self.commands.try_recv() {
                Ok(Command::Close { budget, reply }) => {
                    self.closing = Some(Closing {
                        budget,
                        deadline: Instant::now() + budget,
                        reply,
                    });
                }
                Err(TryRecvError::Empty) => {}
                // The handle was dropped; whatever is in flight is consumed again.
                Err(TryRecvError::Disconnected) if self.closing.is_none() => break,
                Err(TryRecvError::Disconnected) => {}
            }
            self.shared.mark_polled();
            self.hand_on();
            self.flow();
            self.commit();
            self.answer_revocation();
            if self.close_is_due() {
                break;
            }
            self.poll();
        }
        self.end();
    }

    /// Takes records until there is none, or something else is due.
    fn poll(&mut self) {
        let busy = self.revoking.is_some() || self.closing.is_some() || !self.overflow.is_empty();
        let mut wait = if busy { POLL_BUSY } else { POLL };
        let until = Instant::now() + wait;
        loop {
            match self.consumer.poll(wait) {
                None => break,
                Some(Ok(message)) => {
                    let record = take(&self.shared, &message);
                    drop(message);
                    self.shared.topic_missing.store(false, Ordering::Relaxed);
                    self.shared.reach.up();
                    if let Some(record) = record {
                        self.overflow.push_back(record);
                        self.hand_on();
                    }
                }
                Some(Err(error)) => self.poll_error(&error),
            }
            wait = Duration::ZERO;
            if self.is_full() || Instant::now() >= until {
                break;
            }
        }
        for notice in self.consumer.context().notices() {
            match notice {
                Notice::Revoking(partitions) => self.start_revocation(partitions),
                Notice::Committed(whole, answers) => self.committed(whole, &answers),
                Notice::Failed(cause) => self.fail(ConsumerFailure::Client {
                    brokers: self.shared.brokers.clone(),
                    group: self.shared.config.group.clone(),
                    cause,
                }),
            }
        }
    }

    fn poll_error(&mut self, error: &KafkaError) {
        let shared = &self.shared;
        let (brokers, group, topic) = (
            shared.brokers.clone(),
            shared.config.group.clone(),
            shared.config.topic.clone(),
        );
        match (error, code_of(error)) {
            (KafkaError::MessageConsumptionFatal(code), _) => self.fail(ConsumerFailure::Client {
                brokers,
                group,
                cause: code.to_string(),
            }),
            (
                _,
                cause @ (RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::GroupAuthorizationFailed),
            ) => self.fail(ConsumerFailure::Unauthorized {
                brokers,
                group,
                topic,
                cause,
            }),
            (_, RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => {
                if !shared.topic_missing.swap(true, Ordering::Relaxed) {
                    tracing::error!(
                        event = "topic_missing",
                        topic,
                        brokers,
                        "topic {topic} does not exist at {brokers}; waiting for it. \
                         Create it with `cdr provision`"
                    );
                }
            }
            // Told once by the context.
            (_, code) if crate::reachability::is_unreachable(code) => {}
            (error, _) => shared.reach.client_error(error, "polling"),
        }
    }

    /// Hands waiting records to the worker, as far as there is room.
    fn hand_on(&mut self) {
        while let Some(record) = self.overflow.pop_front() {
            match self.records.try_send(record) {
                Ok(()) => {}
                Err(TrySendError::Full(record) | TrySendError::Closed(record)) => {
                    self.overflow.push_front(record);
                    return;
                }
            }
        }
    }

    /// Whether no more may be taken; with hysteresis, so that partitions are not
    /// paused and resumed at every record (each resume fetches anew).
    fn is_full(&self) -> bool {
        let config = &self.shared.config;
        let paused = self.shared.paused.load(Ordering::Relaxed);
        let bound = |max: u64| if paused { max - max / 4 } else { max };
        let ledger = self.shared.ledger();
        let records = u64::try_from(config.max_in_flight).unwrap_or(u64::MAX);
        !self.overflow.is_empty()
            || self.records.is_closed()
            || ledger.in_flight() >= bound(records)
            || ledger.in_flight_bytes() >= bound(config.max_in_flight_bytes)
    }

    fn flow(&mut self) {
        let stopped = self.shared.draining.load(Ordering::Acquire)
            || self.shared.failed().is_some()
            || self.is_full();
        if stopped == self.shared.paused.load(Ordering::Relaxed) {
            return;
        }
        let list = self.held();
        let done = if stopped {
            self.consumer.pause(&list)
        } else {
            self.consumer.resume(&list)
        };
        match done {
            Ok(()) => {
                self.shared.paused.store(stopped, Ordering::Release);
                let word = if stopped { "paused" } else { "resumed" };
                tracing::debug!(
                    event = "partitions_flow",
                    "{word} {} partitions",
                    list.count()
                );
            }
            Err(error) => tracing::warn!(event = "kafka_pause_failed", "{error}"),
        }
    }

    /// The partitions held and not about to be given back.
    fn held(&self) -> TopicPartitionList {
        let leaving = self.revoking.as_ref().map(|r| r.partitions.as_slice());
        let mut list = TopicPartitionList::new();
        for view in self.shared.ledger().partitions() {
            if !leaving.is_some_and(|leaving| leaving.contains(&view.partition)) {
                list.add_partition(&self.shared.config.topic, view.partition);
            }
        }
        list
    }

    fn commit(&mut self) {
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
            let commits = ledger.all_committable();
            if commits.is_empty() {
                return;
            }
            let sent = self
                .offsets(&commits)
                .map_err(|error| code_of(&error))
                .and_then(|list| crate::commit::send(&self.consumer, &list));
            for &commit in &commits {
                ledger.commit_sent(commit);
            }
            self.outstanding = Some(Outstanding { commits, sent: now });
            sent
        };
        self.next_commit = now + self.shared.config.commit_interval;
        if let Err(code) = sent {
            self.committed(Err(code), &[]);
        }
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

    fn committed(&mut self, whole: Result<(), RDKafkaErrorCode>, answers: &[CommitAnswer]) {
        // An answer that came after its commit was given up.
        let Some(outstanding) = self.outstanding.take() else {
            return;
        };
        let mut failed = None;
        for commit in outstanding.commits {
            let result = answers
                .iter()
                .find(|a| a.partition == commit.partition && a.next == commit.next)
                // Not mentioned: not committed.
                .map_or(whole.and(Err(RDKafkaErrorCode::NoOffset)), |answer| {
                    answer.result
                });
            let mut ledger = self.shared.ledger();
            match result {
                Ok(()) => {
                    ledger.commit_done(commit);
                    self.shared.commits.fetch_add(1, Ordering::Relaxed);
                }
                // The partition is gone: then so is the question.
                Err(code) if ledger.commit_failed(commit) => failed = Some((commit, code)),
                Err(_) => {}
            }
        }
        match failed {
            None => {
                self.failing_since = None;
                self.shared.reach.up();
            }
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

    fn fail(&mut self, failure: ConsumerFailure) {
        {
            let mut slot = self
                .shared
                .failure
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if slot.is_some() {
                return;
            }
            *slot = Some(failure.clone());
        }
        tracing::error!(
            event = "consumer_failed",
            failure = failure.tag(),
            "{failure}"
        );
        self.shared.tell(ConsumerEvent::Fatal(failure));
    }

    fn start_revocation(&mut self, partitions: Vec<i32>) {
        let budget = self.shared.config.revoke_budget;
        tracing::info!(
            event = "partitions_revoking",
            partitions = ?partitions,
            "partitions {partitions:?} move to another worker; settling what is in flight of them"
        );
        self.shared.tell(ConsumerEvent::Revoking {
            partitions: partitions.clone(),
            budget,
        });
        self.revoking = Some(Revoking {
            partitions,
            deadline: Instant::now() + budget,
        });
        self.answer_revocation();
    }

    fn answer_revocation(&mut self) {
        let Some(revoking) = &self.revoking else {
            return;
        };
        let now = Instant::now();
        let lost = self.consumer.assignment_lost();
        let (settled, clean) = {
            let ledger = self.shared.ledger();
            let held = || revoking.partitions.iter().copied();
            (
                held().all(|p| ledger.counts(p).is_none_or(|c| c.in_flight == 0)),
                held().all(|p| ledger.is_clean(p)),
            )
        };
        // First the work in flight has its budget, then the last commit.
        let over = now >= revoking.deadline;
        let commit_over = now >= revoking.deadline + REVOKE_COMMIT_GRACE;
        let committing = self.shared.failed().is_none()
            && (self.outstanding.is_some() || !self.shared.ledger().all_committable().is_empty());
        let wait = if settled || over {
            committing && !commit_over
        } else {
            true
        };
        if !lost && !clean && wait {
            return;
        }
        if let Some(revoking) = self.revoking.take() {
            self.overflow
                .retain(|record| !revoking.partitions.contains(&record.id.partition));
            give_back(&self.shared, &self.consumer, &revoking.partitions, lost);
        }
    }

    fn close_is_due(&self) -> bool {
        let Some(closing) = &self.closing else {
            return false;
        };
        let committed =
            self.outstanding.is_none() && self.shared.ledger().all_committable().is_empty();
        committed || self.shared.failed().is_some() || Instant::now() >= closing.deadline
    }

    /// Leaves the group and says how it went.
    fn end(mut self) {
        let result = self.result();
        let closing = self.closing.take();
        self.consumer.context().close();
        if let Some(revoking) = self.revoking.take() {
            give_back(&self.shared, &self.consumer, &revoking.partitions, false);
        }
        self.consumer.unsubscribe();
        let PollLoop { consumer, .. } = self;
        // Polls until the group is left; revocations are answered on the way.
        drop(consumer);
        if let Some(closing) = closing {
            // Nobody may wait any more.
            let _ = closing.reply.send(result);
        }
    }

    fn result(&self) -> Result<(), CloseError> {
        if let Some(failure) = self.shared.failed() {
            return Err(failure.into());
        }
        let ledger = self.shared.ledger();
        if self.outstanding.is_some() || !ledger.all_committable().is_empty() {
            let budget = self.closing.as_ref().map_or(Duration::ZERO, |c| c.budget);
            return Err(CloseError::Uncommitted { budget });
        }
        match ledger.in_flight() {
            0 => Ok(()),
            in_flight => Err(CloseError::Unsettled { in_flight }),
        }
    }
}

/// Enters a message into the ledger; none when its partition is not held.
fn take(shared: &Shared, message: &BorrowedMessage<'_>) -> Option<Record> {
    let key = message.key().map(<[u8]>::to_vec);
    let payload = message.payload().map(<[u8]>::to_vec);
    let bytes = key.as_ref().map_or(0, Vec::len) + payload.as_ref().map_or(0, Vec::len);
    let id = shared.ledger().consumed(
        message.partition(),
        message.offset(),
        u32::try_from(bytes).unwrap_or(u32::MAX),
    )?;
    let number = |name: &str| -> Option<i64> {
        let headers = message.headers()?;
        let header = headers.iter().find(|header| header.key == name)?;
        std::str::from_utf8(header.value?).ok()?.trim().parse().ok()
    };
    let timestamp_ms = message.timestamp().to_millis();
    Some(Record {
        id,
        key,
        payload,
        timestamp_ms,
        // 0 for a record without any time: it is out of range for every rule
        // about times, and the same at every replay.
        received_at_ms: number(headers::RECEIVED_AT).or(timestamp_ms).unwrap_or(0),
        replay_count: number(headers::REPLAY_COUNT)
            .and_then(|count| u32::try_from(count).ok())
            .unwrap_or(0),
    })
}
