//! Consuming: raw records out of Kafka, outcomes back into the ledger.
//!
//! ```text
//!   Kafka ──► polling thread ──► bounded channel ──► worker
//!               │   ▲  pauses when full                │
//!               │   └────────── commits ◄── ledger ◄── settle(ids, outcome)
//!               └── rebalances ──────────────▲
//! ```
//!
//! One thread of its own polls and never blocks, whatever the worker or the
//! brokers do: when too much is in flight it pauses the partitions and goes on
//! polling, so that an outage downstream is no reason to lose the partitions.
//! Commits are asynchronous, sent by that thread only, one at a time, with the
//! explicit next offsets of the [ledger](crate::ledger); their results are looked
//! at in the commit callback. Asynchronous because a synchronous commit has no
//! timeout of its own and would stop the polling while a coordinator is away.
//!
//! A revocation is answered when the partition's records in flight are settled
//! and committed, or when [`ConsumerConfig::revoke_budget`] is over; polling and
//! heartbeats go on meanwhile. A partition that is *lost* is dropped at once and
//! commits nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cdr_telemetry::trace::TraceContext;
use tokio::sync::{mpsc, oneshot};

use crate::config::{ConfigError, KafkaConfig};
use crate::failure::{CloseError, ConsumerError, ConsumerEvent, ConsumerFailure};
use crate::lag::{Bell, GroupLag, LagWatch, LogEnd, PartitionLag};
use crate::ledger::{Ledger, Outcome, RecordId};
use crate::losses::LogWatch;
use crate::poll::PollLoop;
pub use crate::poll::REVOKE_COMMIT_GRACE;
use crate::reachability::Reachability;
use crate::status::Progress;
pub use crate::status::{PartitionProgress, Status};

/// How much later than its budget the polling thread may answer a close, when the
/// machine is busy.
const REPLY_GRACE: Duration = Duration::from_secs(1);
/// What is kept of the budget of a close for leaving the group…
const LEAVE: Duration = Duration::from_secs(2);
/// …and how long that is waited for if there is more.
const LEAVE_AT_MOST: Duration = Duration::from_secs(5);

/// Records beyond the committed offsets, settled ones too, as a multiple of those
/// that may be in flight: one batch that does not end must not let the others run
/// ahead of it without a bound, in memory and in what a restart consumes again.
const UNCOMMITTED_SHARE: u64 = 2;

/// Settings of a [`RawConsumer`].
#[derive(Debug, Clone)]
pub struct ConsumerConfig {
    /// Topic of raw records.
    pub topic: String,
    /// Consumer group.
    pub group: String,
    /// Records without an outcome, over all partitions; at this bound the
    /// partitions are paused.
    pub max_in_flight: usize,
    /// Bytes of keys and payloads without an outcome; the same.
    pub max_in_flight_bytes: u64,
    /// Shortest time between two commits.
    pub commit_interval: Duration,
    /// How long a revoked partition may be kept to settle what is in flight.
    pub revoke_budget: Duration,
    /// How long commits may fail while brokers answer, before that is fatal.
    pub commit_retry_budget: Duration,
    /// `max.poll.interval.ms`.
    pub max_poll_interval: Duration,
    /// `session.timeout.ms`: after this a dead worker's partitions move on.
    pub session_timeout: Duration,
    /// For a sole consumer, which must hold partitions: without any for so long,
    /// it leaves the group and joins again. Not for groups of several, where a
    /// spare member holds none.
    pub rejoin_without_partitions: Option<Duration>,
    /// How often lag is read.
    pub lag_interval: Duration,
}

impl ConsumerConfig {
    /// Defaults for a topic and a group.
    pub fn new(topic: impl Into<String>, group: impl Into<String>) -> Self {
        ConsumerConfig {
            topic: topic.into(),
            group: group.into(),
            max_in_flight: 20_000,
            max_in_flight_bytes: 64 << 20,
            commit_interval: Duration::from_millis(250),
            revoke_budget: Duration::from_secs(10),
            commit_retry_budget: Duration::from_secs(120),
            max_poll_interval: Duration::from_secs(300),
            session_timeout: Duration::from_secs(45),
            rejoin_without_partitions: None,
            lag_interval: Duration::from_secs(5),
        }
    }

    /// Records that may be taken beyond the committed offsets, settled ones too:
    /// what a consumer that dies leaves to be consumed again, at most.
    pub fn max_uncommitted(&self) -> u64 {
        u64::try_from(self.max_in_flight)
            .unwrap_or(u64::MAX)
            .saturating_mul(UNCOMMITTED_SHARE)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let contradiction = |text: String| Err(ConfigError::Contradiction(text));
        if self.max_in_flight == 0 || self.max_in_flight_bytes == 0 {
            return contradiction(format!(
                "the bounds of records in flight must be above 0, found {} records and {} bytes",
                self.max_in_flight, self.max_in_flight_bytes
            ));
        }
        if self.session_timeout > self.max_poll_interval {
            return contradiction(format!(
                "session.timeout.ms ({:?}) must not be above max.poll.interval.ms ({:?})",
                self.session_timeout, self.max_poll_interval
            ));
        }
        if self.revoke_budget + REVOKE_COMMIT_GRACE >= self.max_poll_interval {
            return contradiction(format!(
                "the revocation budget ({:?}) must be below max.poll.interval.ms ({:?}), or the group moves on without it",
                self.revoke_budget, self.max_poll_interval
            ));
        }
        Ok(())
    }
}

/// A raw record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What to settle when it has its outcome.
    pub id: RecordId,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its payload; none for a tombstone, which is settled like any other.
    pub payload: Option<Vec<u8>>,
    /// Its Kafka timestamp, ms since the Unix epoch.
    pub timestamp_ms: Option<i64>,
    /// When it was first received, ms since the Unix epoch: header
    /// `cdr-received-at` of a replay, else the Kafka timestamp.
    pub received_at_ms: i64,
    /// How often it was replayed (header `cdr-replay-count`).
    pub replay_count: u32,
    /// The trace that it belongs to (header `traceparent`), at the span of who put
    /// it onto the topic; none where the header is missing or not well-formed.
    pub trace: Option<TraceContext>,
}

impl Record {
    /// Bytes that it counts against the bound.
    pub fn bytes(&self) -> usize {
        self.key.as_ref().map_or(0, Vec::len) + self.payload.as_ref().map_or(0, Vec::len)
    }
}

/// What the handle, the polling thread and the callbacks share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) brokers: String,
    pub(crate) config: ConsumerConfig,
    ledger: Mutex<Ledger>,
    pub(crate) lag: Mutex<BTreeMap<i32, PartitionLag>>,
    pub(crate) lag_read: Mutex<Option<Instant>>,
    pub(crate) group_lag: Mutex<Option<GroupLag>>,
    /// Wakes the lag thread.
    pub(crate) bell: Bell,
    logs: Mutex<LogWatch>,
    progress: Mutex<Progress>,
    pub(crate) fetch_errors: Mutex<BTreeMap<String, u64>>,
    /// How often the client's queue was found empty while it was allowed to fill.
    pub(crate) drained: AtomicU64,
    /// How far fetching got, by partition, where it got to the end.
    pub(crate) ends: Mutex<BTreeMap<i32, LogEnd>>,
    pub(crate) failure: Mutex<Option<ConsumerFailure>>,
    pub(crate) reach: Arc<Reachability>,
    pub(crate) events: mpsc::UnboundedSender<ConsumerEvent>,
    pub(crate) paused: AtomicBool,
    pub(crate) draining: AtomicBool,
    pub(crate) topic_missing: AtomicBool,
    pub(crate) commits: AtomicU64,
    pub(crate) commit_failures: AtomicU64,
    pub(crate) rebalances: AtomicU64,
    started: Instant,
    polled_ms: AtomicU64,
}

impl Shared {
    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn logs(&self) -> MutexGuard<'_, LogWatch> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn mark_polled(&self) {
        let ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.polled_ms.store(ms, Ordering::Relaxed);
    }

    /// Nobody may listen any more; then there is nobody to tell.
    pub(crate) fn tell(&self, event: ConsumerEvent) {
        let _ = self.events.send(event);
    }

    pub(crate) fn failed(&self) -> Option<ConsumerFailure> {
        self.failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

pub(crate) enum Command {
    Close {
        budget: Duration,
        /// How it went, as soon as nothing more can be committed.
        reply: oneshot::Sender<Result<(), CloseError>>,
        /// Dropped when the group is left.
        left: oneshot::Sender<()>,
    },
}

/// A running consumer. Dropping it without [`RawConsumer::close`] leaves the
/// group without committing anything more.
#[derive(Debug)]
pub struct RawConsumer {
    shared: Arc<Shared>,
    commands: std::sync::mpsc::Sender<Command>,
    lag: Mutex<Option<LagWatch>>,
}

/// A started consumer with what comes out of it.
#[derive(Debug)]
pub struct Started {
    /// Settles, reports, closes.
    pub consumer: RawConsumer,
    /// The records, in offset order per partition. Ends when the polling
    /// thread is gone: unless [`RawConsumer::close`] was called, a failure.
    pub records: mpsc::Receiver<Record>,
    /// The news.
    pub events: mpsc::UnboundedReceiver<ConsumerEvent>,
}

impl RawConsumer {
    /// Starts the polling thread. No connection is waited for: brokers that are
    /// away are logged, and found when they come.
    pub fn start(kafka: &KafkaConfig, config: ConsumerConfig) -> Result<Started, ConsumerError> {
        config.check()?;
        let (events, events_out) = mpsc::unbounded_channel();
        let (records, records_out) = mpsc::channel(config.max_in_flight);
        let (commands, commands_in) = std::sync::mpsc::channel();
        let shared = Arc::new(Shared {
            brokers: kafka.bootstrap.clone(),
            ledger: Mutex::new(Ledger::new()),
            lag: Mutex::new(BTreeMap::new()),
            lag_read: Mutex::new(None),
            group_lag: Mutex::new(None),
            bell: Bell::default(),
            logs: Mutex::new(LogWatch::default()),
            progress: Mutex::new(Progress::default()),
            fetch_errors: Mutex::new(BTreeMap::new()),
            drained: AtomicU64::new(0),
            ends: Mutex::new(BTreeMap::new()),
            failure: Mutex::new(None),
            reach: Arc::new(Reachability::new(kafka.bootstrap.clone(), "consumer")),
            events,
            paused: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            topic_missing: AtomicBool::new(false),
            commits: AtomicU64::new(0),
            commit_failures: AtomicU64::new(0),
            rebalances: AtomicU64::new(0),
            started: Instant::now(),
            polled_ms: AtomicU64::new(0),
            config,
        });
        let poll_loop = PollLoop::new(kafka, shared.clone(), records, commands_in)?;
        std::thread::Builder::new()
            .name("kafka-poll".to_owned())
            .spawn(move || poll_loop.run())?;
        let lag = LagWatch::start(kafka, shared.clone())?;
        Ok(Started {
            consumer: RawConsumer {
                shared,
                commands,
                lag: Mutex::new(Some(lag)),
            },
            records: records_out,
            events: events_out,
        })
    }

    /// Records have their outcome. From any thread; ids of partitions that are
    /// gone are counted and ignored.
    pub fn settle(&self, ids: impl IntoIterator<Item = RecordId>, outcome: Outcome) {
        let mut ledger = self.shared.ledger();
        for id in ids {
            ledger.settle(id, outcome);
        }
    }

    /// Whether a record still needs an outcome from here: its partition is held
    /// and it has none yet.
    pub fn is_current(&self, id: RecordId) -> bool {
        self.shared.ledger().is_current(id)
    }

    /// Stops taking records; what was taken can still be settled and is still
    /// committed. Partitions are kept.
    pub fn drain(&self) {
        // Once this returns, the ledger takes no record any more.
        let _ledger = self.shared.ledger();
        self.shared.draining.store(true, Ordering::Release);
    }

    /// Commits what is settled, waits for the acknowledgement, leaves the group
    /// and ends the thread, all within `budget` (a second more on a busy
    /// machine). `Ok` only if every record taken is settled and its offset
    /// committed; leaving is a courtesy, which a group without a coordinator
    /// does not get.
    pub async fn close(&self, budget: Duration) -> Result<(), CloseError> {
        let deadline = tokio::time::Instant::now() + budget;
        let committing = budget - LEAVE.min(budget / 4);
        self.drain();
        self.lag
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let stuck = CloseError::Stuck { budget };
        let (reply, replied) = oneshot::channel();
        let (left, leaving) = oneshot::channel();
        let close = Command::Close {
            budget: committing,
            reply,
            left,
        };
        if self.commands.send(close).is_err() {
            return Err(match self.shared.failed() {
                Some(failure) => failure.into(),
                None => stuck,
            });
        }
        let result = match tokio::time::timeout_at(deadline + REPLY_GRACE, replied).await {
            Ok(Ok(result)) => result,
            _ => return Err(stuck),
        };
        // Leaving tells the group at once, instead of after the session timeout;
        // it is a courtesy, and without a coordinator it does not end.
        if !matches!(result, Err(CloseError::Uncommitted { .. })) {
            let patience = deadline.min(tokio::time::Instant::now() + LEAVE_AT_MOST);
            let _ = tokio::time::timeout_at(patience, leaving).await;
        }
        result
    }

    /// How things are.
    pub fn status(&self) -> Status {
        let shared = &self.shared;
        let now_ms = u64::try_from(shared.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let polled_ms = shared.polled_ms.load(Ordering::Relaxed);
        let logs = shared.logs().accounts();
        let lag_read = *shared
            .lag_read
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let fetch_errors = shared
            .fetch_errors
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let progress = shared.progress().view();
        let ledger = shared.ledger();
        Status {
            partitions: ledger.partitions(),
            by_partition: ledger.all_lifetime_counts(),
            totals: ledger.totals(),
            in_flight_bytes: ledger.in_flight_bytes(),
            paused: shared.paused.load(Ordering::Relaxed),
            draining: shared.draining.load(Ordering::Relaxed),
            polled_ago: Duration::from_millis(now_ms.saturating_sub(polled_ms)),
            commits: shared.commits.load(Ordering::Relaxed),
            commit_failures: shared.commit_failures.load(Ordering::Relaxed),
            rebalances: shared.rebalances.load(Ordering::Relaxed),
            stale_settles: ledger.stale_settles(),
            repeated_settles: ledger.repeated_settles(),
            steps_back: ledger.steps_back(),
            lost_to_retention: logs.values().map(|log| log.lost_to_retention).sum(),
            resets: logs.values().map(|log| log.resets).sum(),
            logs,
            fetch_errors,
            progress,
            lag_read_ago: lag_read.map(|at| at.elapsed()),
            reach: shared.reach.reach(),
            topic_missing: shared.topic_missing.load(Ordering::Relaxed),
        }
    }

    /// How the whole group stood when that was last read, while no partition was
    /// held here.
    pub fn group_lag(&self) -> Option<GroupLag> {
        *self
            .shared
            .group_lag
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Lag of the partitions held, as last read.
    pub fn lag(&self) -> BTreeMap<i32, PartitionLag> {
        self.shared
            .lag
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
