//! The polling thread: the one place that talks to the consumer client.
//!
//! Every round it polls for a moment, hands records on without ever waiting for
//! the other side, and does what is due: pause or resume, commit, answer a
//! revocation, close.

mod commits;
mod errors;
mod leaving;

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::TopicPartitionList;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{BorrowedMessage, Message};
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

use crate::config::KafkaConfig;
use crate::consumer::{Command, Record, Shared};
use crate::context::{Notice, RawContext};
use crate::failure::{ConsumerError, ConsumerEvent, ConsumerFailure};
use crate::message_headers::RecordHeaders;

use commits::Outstanding;
pub use leaving::REVOKE_COMMIT_GRACE;
use leaving::{Closing, Revoking};

/// Longest wait for a record: what is due waits no longer than this.
const POLL: Duration = Duration::from_millis(50);
/// The same while a revocation or a close is under way.
const POLL_BUSY: Duration = Duration::from_millis(5);
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
    /// Since when no partition is held.
    unassigned_since: Option<Instant>,
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
            // They say where a log ends that ends in offsets without records.
            .set(
                "statistics.interval.ms",
                config
                    .lag_interval
                    .as_millis()
                    .clamp(1000, 60_000)
                    .to_string(),
            )
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
            unassigned_since: None,
        })
    }

    pub(crate) fn run(mut self) {
        loop {
            match self.commands.try_recv() {
                Ok(Command::Close {
                    budget,
                    reply,
                    left,
                }) => {
                    self.closing = Some(Closing::new(budget, reply, left));
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
            self.rejoin();
            if self.close_is_due() {
                break;
            }
            self.poll();
        }
        self.end();
    }

    /// See [`ConsumerConfig::rejoin_without_partitions`](crate::ConsumerConfig).
    fn rejoin(&mut self) {
        let Some(patience) = self.shared.config.rejoin_without_partitions else {
            return;
        };
        let idle = self.shared.ledger().partitions().is_empty()
            && self.revoking.is_none()
            && self.closing.is_none();
        if !idle {
            self.unassigned_since = None;
            return;
        }
        let since = *self.unassigned_since.get_or_insert_with(Instant::now);
        if since.elapsed() < patience {
            return;
        }
        self.unassigned_since = None;
        tracing::warn!(
            event = "group_rejoined",
            group = self.shared.config.group,
            "no partitions for {patience:.0?} though no one else consumes: joining the group again"
        );
        self.consumer.unsubscribe();
        if let Err(error) = self.consumer.subscribe(&[&self.shared.config.topic]) {
            self.shared.reach.client_error(&error, "subscribing");
        }
    }

    /// Takes records until there is none, or something else is due.
    fn poll(&mut self) {
        let busy = self.revoking.is_some() || self.closing.is_some() || !self.overflow.is_empty();
        let mut wait = if busy { POLL_BUSY } else { POLL };
        let until = Instant::now() + wait;
        loop {
            match self.consumer.poll(wait) {
                None => {
                    if !self.shared.paused.load(Ordering::Relaxed) {
                        self.shared.drained.fetch_add(1, Ordering::Relaxed);
                    }
                    break;
                }
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
            || ledger.uncommitted() >= bound(config.max_uncommitted())
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
}

/// Enters a message into the ledger; none when its partition is not held.
fn take(shared: &Shared, message: &BorrowedMessage<'_>) -> Option<Record> {
    let key = message.key().map(<[u8]>::to_vec);
    let payload = message.payload().map(<[u8]>::to_vec);
    let bytes = key.as_ref().map_or(0, Vec::len) + payload.as_ref().map_or(0, Vec::len);
    let id = {
        let mut ledger = shared.ledger();
        // Under the lock under which draining begins: what is not in the ledger
        // by then was never taken, and is consumed again.
        if shared.draining.load(Ordering::Acquire) {
            return None;
        }
        ledger.consumed(
            message.partition(),
            message.offset(),
            u32::try_from(bytes).unwrap_or(u32::MAX),
        )?
    };
    let jumped = shared
        .logs()
        .consumed(message.partition(), message.offset());
    if jumped {
        shared.bell.ring();
    }
    let headers = RecordHeaders::read(message);
    let timestamp_ms = message.timestamp().to_millis();
    Some(Record {
        id,
        key,
        payload,
        timestamp_ms,
        // 0 for a record without any time: it is out of range for every rule
        // about times, and the same at every replay.
        received_at_ms: headers.received_at_ms.or(timestamp_ms).unwrap_or(0),
        replay_count: headers.replay_count.unwrap_or(0),
        trace: headers.trace,
    })
}
