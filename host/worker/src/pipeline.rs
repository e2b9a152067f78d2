//! The path of a record: consumed, normalized, inserted or dead-lettered,
//! settled. One task runs it; inserts and dead letters are tasks of their own.

use crate::batcher::{Action, Batcher};
use crate::buffer::{Buffer, Waiting};
use crate::convert;
use crate::dead_letters::{DeadLetters, Rejected, Verdict, now_ms};
use crate::error::WorkerError;
use crate::flush::Flush;
use crate::insert::Persistence;
use crate::replays::Replays;
use crate::stats::Stats;
use cdr_kafka::ConsumerEvent;
use cdr_kafka::RawConsumer;
use cdr_kafka::consumer::Record;
use cdr_kafka::dead_letter::FailureReason;
use cdr_plugin_host::{Batch, Live, Normalized, Serving, Shadow};
use cdr_store::{Column, ColumnSpec, Rows, Store, TableLayout, TableSpec};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The pipeline of one worker.
pub(crate) struct Pipeline {
    parts: Parts,
    state: State,
}

/// What is under way.
struct State {
    /// What normalizes, and the columns of its rows.
    serving: Arc<Serving>,
    specs: Arc<[ColumnSpec]>,
    pending: VecDeque<Waiting>,
    buffer: Buffer,
    /// Partitions that are to be given back as soon as nothing of them waits.
    leaving: BTreeSet<i32>,
    replays: Replays,
    inserts: JoinSet<Result<(), WorkerError>>,
    deliveries: JoinSet<Result<(), WorkerError>>,
}

/// What a pipeline is made of.
pub(crate) struct Parts {
    pub(crate) consumer: Arc<RawConsumer>,
    pub(crate) records: mpsc::Receiver<Record>,
    pub(crate) events: mpsc::UnboundedReceiver<ConsumerEvent>,
    pub(crate) live: Live,
    pub(crate) shadow: Shadow,
    pub(crate) store: Arc<Store>,
    pub(crate) dead_letters: DeadLetters,
    pub(crate) stats: Arc<Stats>,
    pub(crate) persistence: Persistence,
    pub(crate) batches_in_flight: usize,
    pub(crate) topic: String,
    pub(crate) layout: Arc<TableLayout>,
    /// Records that may be taken beyond the committed offsets.
    pub(crate) max_uncommitted: u64,
    pub(crate) batcher: Batcher,
}

impl Pipeline {
    /// `table` is that of `serving`, with which it begins.
    pub(crate) fn new(parts: Parts, serving: Arc<Serving>, table: &TableSpec) -> Self {
        let specs = Arc::clone(table.columns());
        let replays = Replays::new(parts.max_uncommitted);
        parts
            .stats
            .normalizer_in_use(serving.normalizer.provenance());
        Self {
            parts,
            state: State {
                serving,
                specs,
                pending: VecDeque::new(),
                buffer: Buffer::default(),
                leaving: BTreeSet::new(),
                replays,
                inserts: JoinSet::new(),
                deliveries: JoinSet::new(),
            },
        }
    }

    /// Runs until told to stop and everything taken is settled.
    ///
    /// # Errors
    /// Why it can't go on. Tasks under way are given up; what they had not yet
    /// settled is consumed again.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> Result<(), WorkerError> {
        let mut draining = false;
        loop {
            self.parts.stats.waiting(
                self.parts.batcher.pending(),
                self.parts.batcher.rows(),
                self.state.inserts.len(),
            );
            let has_slot = self.state.inserts.len() < self.parts.batches_in_flight;
            let swap_is_due = self.swap_is_due();
            if swap_is_due && self.parts.batcher.rows() == 0 {
                self.swap()?;
                continue;
            }
            let mut deadline = None;
            let hurry = draining || self.is_awaited();
            match self.parts.batcher.next(Instant::now(), hurry) {
                // The rows of one version go in before there are any of another.
                _ if swap_is_due && has_slot => {
                    self.flush()?;
                    continue;
                }
                _ if swap_is_due => {}
                Action::Normalize(count) => {
                    self.normalize(count).await?;
                    continue;
                }
                Action::Flush if has_slot => {
                    self.flush()?;
                    continue;
                }
                // Rows wait for a place; records wait behind them, at last in
                // Kafka, whose partitions the consumer pauses.
                Action::Flush => {}
                Action::Wait(until) => deadline = until,
            }
            if draining && self.is_settled() {
                return Ok(());
            }

            let may_take = self.parts.batcher.has_room();
            tokio::select! {
                biased;
                Some(done) = self.state.inserts.join_next() => done??,
                Some(done) = self.state.deliveries.join_next() => done??,
                Some(event) = self.parts.events.recv() => self.on_event(event)?,
                () = stop.cancelled(), if !draining => {
                    tracing::info!(event = "worker_draining", "stops consuming, settles what was taken");
                    draining = true;
                    self.parts.consumer.drain();
                }
                record = self.parts.records.recv(), if may_take => match record {
                    Some(record) => self.take(record),
                    // Its thread has ended; before that it said why, unless it died.
                    None => match self.parts.events.try_recv() {
                        Ok(event) => self.on_event(event)?,
                        Err(_) => return Err(WorkerError::ConsumerGone),
                    },
                },
                () = self.parts.live.changed() => {}
                () = sleep_until(deadline), if deadline.is_some() => {}
            }
        }
    }

    /// Whether another version serves than the one that normalizes here.
    fn swap_is_due(&self) -> bool {
        !Arc::ptr_eq(&self.state.serving, &self.parts.live.current())
    }

    /// Lets what serves now normalize from here on. Its columns are in the table.
    fn swap(&mut self) -> Result<(), WorkerError> {
        let serving = self.parts.live.current();
        let columns = convert::column_specs(serving.normalizer.manifest());
        let table = self
            .parts
            .store
            .table_spec(TableLayout::clone(&self.parts.layout), &columns)
            .map_err(|error| WorkerError::Schema(error.to_string()))?;
        self.state.specs = Arc::clone(table.columns());
        self.parts
            .stats
            .normalizer_in_use(serving.normalizer.provenance());
        self.state.serving = serving;
        Ok(())
    }

    /// Whether nothing taken is without an outcome.
    fn is_settled(&self) -> bool {
        self.state.inserts.is_empty()
            && self.state.deliveries.is_empty()
            && self.parts.consumer.status().totals.in_flight == 0
    }

    /// Whether something waits here of a partition that is to be given back.
    fn is_awaited(&self) -> bool {
        let leaving = &self.state.leaving;
        let pending = self.state.pending.iter();
        !leaving.is_empty()
            && pending
                .chain(self.state.buffer.records())
                .any(|waiting| leaving.contains(&waiting.record.id.partition))
    }

    fn on_event(&mut self, event: ConsumerEvent) -> Result<(), WorkerError> {
        match event {
            ConsumerEvent::Fatal(failure) => Err(failure.into()),
            ConsumerEvent::Revoking { partitions, .. } => {
                self.state.leaving.extend(partitions);
                Ok(())
            }
            ConsumerEvent::Revoked { partitions, .. } => {
                for partition in &partitions {
                    self.state.leaving.remove(partition);
                }
                self.drop_what_is_gone()
            }
            ConsumerEvent::Assigned { .. } => Ok(()),
        }
    }

    /// Another worker has these records now, or this one under a new assignment:
    /// they are consumed again, so they and their rows are dropped together.
    fn drop_what_is_gone(&mut self) -> Result<(), WorkerError> {
        let consumer = Arc::clone(&self.parts.consumer);
        self.state
            .pending
            .retain(|waiting| consumer.is_current(waiting.record.id));
        self.recount_pending();
        let dropped = self
            .state
            .buffer
            .retain(|record| consumer.is_current(record.id))?;
        if dropped {
            let left = self.state.buffer.records().iter();
            self.parts
                .batcher
                .rows_left(left.map(|waiting| (waiting.record.bytes(), waiting.since)));
        }
        Ok(())
    }

    /// Takes a record, and what else has come, as far as there is room.
    fn take(&mut self, record: Record) {
        let mut next = Some(record);
        while let Some(record) = next {
            // Its partition may be another worker's by now.
            if self.parts.consumer.is_current(record.id) {
                self.state.replays.taken(record.id);
                let since = Instant::now();
                self.parts.batcher.consumed(record.bytes(), since);
                self.state.pending.push_back(Waiting { record, since });
            }
            if !self.parts.batcher.has_room() {
                return;
            }
            next = self.parts.records.try_recv().ok();
        }
    }

    fn recount_pending(&mut self) {
        self.parts.batcher.normalized(
            self.state
                .pending
                .iter()
                .map(|waiting| (waiting.record.bytes(), waiting.since)),
        );
    }

    /// Normalizes the first `count` pending records: rows go to the buffer,
    /// everything else becomes dead letters.
    async fn normalize(&mut self, count: usize) -> Result<(), WorkerError> {
        let taken: Vec<Waiting> = self.state.pending.drain(..count).collect();
        self.recount_pending();
        let bytes = taken.iter().map(|waiting| waiting.record.bytes()).sum();
        let mut batch = Batch::with_capacity(taken.len(), bytes);
        for waiting in &taken {
            let payload = waiting.record.payload.as_deref().unwrap_or_default();
            // A batch is bounded far below what can't be pushed any more.
            let pushed = batch.push(payload, waiting.record.received_at_ms);
            debug_assert!(pushed.is_ok(), "BATCH_MAX_BYTES is below 4 GiB");
        }
        let shadowed = self.parts.shadow.sample(&self.state.serving, &batch);
        let started = Instant::now();
        let normalized = self.state.serving.normalizer.normalize(batch).await?;
        self.parts.stats.normalized(started.elapsed().as_secs_f64());
        if let Some(shadowed) = shadowed {
            self.parts
                .shadow
                .offer(&self.state.serving, shadowed, &normalized);
        }
        self.sort_out(taken, normalized)
    }

    fn sort_out(&mut self, taken: Vec<Waiting>, normalized: Normalized) -> Result<(), WorkerError> {
        let mut taken: Vec<Option<Waiting>> = taken.into_iter().map(Some).collect();
        let mut take = |row: u32| taken.get_mut(row as usize).and_then(Option::take);

        let mut rejected = Vec::new();
        for rejection in normalized.rejections {
            if let Some(waiting) = take(rejection.row) {
                let verdict = Verdict {
                    reason: convert::failure_reason(rejection.reason),
                    field: rejection.field,
                    detail: rejection.detail,
                };
                rejected.push(Rejected::new(waiting.record, verdict));
            }
        }
        for (row, fault) in normalized.faults {
            self.parts.stats.fault(fault.kind.tag());
            if let Some(waiting) = take(row) {
                let verdict = Verdict {
                    reason: FailureReason::NormalizationError,
                    field: None,
                    detail: fault.to_string(),
                };
                let faulty = Rejected::new(waiting.record, verdict);
                let ids = faulty.log_ids();
                tracing::error!(
                    event = "normalizer_fault",
                    raw_id = ids.raw_id,
                    trace_id = ids.trace_id,
                    span_id = ids.span_id,
                    kind = fault.kind.tag(),
                    digest = self.state.serving.normalizer.provenance().digest,
                    stderr = fault.stderr,
                    "the normalizer failed on a record: {fault}"
                );
                rejected.push(faulty);
            }
        }

        let specs = Arc::clone(&self.state.specs);
        for part in normalized.parts {
            // The host's columns stand behind the normalizer's.
            let columns = convert::columns(&specs, part.columns)?;
            let records: Vec<Waiting> = part.rows.iter().filter_map(|&row| take(row)).collect();
            for waiting in &records {
                self.parts
                    .batcher
                    .row(waiting.record.bytes(), waiting.since);
            }
            self.state.buffer.push(columns, records)?;
        }

        if !rejected.is_empty() {
            let dead_letters = self.parts.dead_letters.clone();
            let judge = self.state.serving.normalizer.provenance().clone();
            self.state
                .deliveries
                .spawn(async move { dead_letters.send(rejected, &judge).await });
        }
        Ok(())
    }

    /// Starts the insert of the buffered rows.
    fn flush(&mut self) -> Result<(), WorkerError> {
        let (mut columns, records) = self.state.buffer.take();
        self.parts.batcher.flushed();
        let provenance = self.state.serving.normalizer.provenance().clone();
        columns.push(Column::millis(
            records.iter().map(|record| record.received_at_ms).collect(),
        ));
        columns.push(Column::repeat_millis(now_ms(), records.len()));
        columns.push(Column::repeat_category(&provenance.version, records.len())?);
        let rows = Rows::new(Arc::clone(&self.state.specs), columns)?;
        let replayed = records
            .iter()
            .any(|record| self.state.replays.may_be_one(record.id));
        let flush = Flush {
            rows,
            layout: Arc::clone(&self.parts.layout),
            replayed,
            records,
            topic: self.parts.topic.clone(),
            normalizer: provenance,
            store: Arc::clone(&self.parts.store),
            consumer: Arc::clone(&self.parts.consumer),
            dead_letters: self.parts.dead_letters.clone(),
            stats: Arc::clone(&self.parts.stats),
            persistence: self.parts.persistence,
        };
        self.state.inserts.spawn(flush.run());
        Ok(())
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}
