//! The end of a batch: its rows in ClickHouse, what it refused in the
//! dead-letter topic, and every record of it settled, once that is so.

use crate::dead_letters::{DeadLetters, Rejected, Verdict, now_ms};
use crate::error::WorkerError;
use crate::insert::{Batch, Persistence, Watch, insert_rows};
use crate::log_ids::LogIds;
use crate::stats::Stats;
use cdr_kafka::RawConsumer;
use cdr_kafka::consumer::Record;
use cdr_kafka::dead_letter::FailureReason;
use cdr_kafka::ledger::Outcome;
use cdr_plugin_host::Provenance;
use cdr_store::{DedupToken, OffsetRange, Rows, Store, StoreError, TableLayout};
use cdr_telemetry::trace::TraceContext;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// A batch on its way, with all that it needs to get to its end alone.
pub(crate) struct Flush {
    pub(crate) rows: Rows,
    /// Row `i` is made from record `i`.
    pub(crate) records: Vec<Record>,
    pub(crate) topic: String,
    pub(crate) normalizer: Provenance,
    pub(crate) store: Arc<Store>,
    pub(crate) consumer: Arc<RawConsumer>,
    pub(crate) dead_letters: DeadLetters,
    pub(crate) stats: Arc<Stats>,
    pub(crate) persistence: Persistence,
    pub(crate) layout: Arc<TableLayout>,
    /// A worker that died may have tried this batch before.
    pub(crate) replayed: bool,
}

impl Watch for Flush {
    fn retried(&self, error: &StoreError) {
        self.stats.retried(error);
    }

    fn is_wanted(&self, rows: Range<usize>) -> bool {
        self.records
            .get(rows)
            .unwrap_or_default()
            .iter()
            .any(|record| self.consumer.is_current(record.id))
    }
}

impl Flush {
    /// Inserts, dead-letters, settles.
    ///
    /// # Errors
    /// Why the worker must stop. What is not settled by then is consumed again.
    pub(crate) async fn run(self) -> Result<(), WorkerError> {
        let started = Instant::now();
        let token = token(&self.topic, &self.records, &self.normalizer);
        let batch = Batch {
            rows: &self.rows,
            token: &token,
            layout: &self.layout,
            replayed: self.replayed,
        };
        let ended = insert_rows(&*self.store, batch, self.persistence, &self).await?;
        let acknowledged = now_ms();
        for range in ended.inserted {
            let part = &self.records[range];
            self.consumer
                .settle(part.iter().map(|record| record.id), Outcome::Inserted);
            self.stats.inserted(part.iter().map(|record| {
                let since = record.timestamp_ms.unwrap_or(acknowledged);
                (acknowledged - since) as f64 / 1000.0
            }));
            tracing::info!(
                event = "batch_inserted",
                rows = part.len(),
                millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
                "rows inserted"
            );
            log_inserted(part);
        }
        for range in ended.abandoned {
            self.stats.abandoned(range.len());
            tracing::info!(
                event = "batch_abandoned",
                rows = range.len(),
                "the partitions of rows that ClickHouse did not take went to another worker, which inserts them"
            );
        }
        for (range, detail) in ended.refused {
            let verdict = Verdict {
                reason: FailureReason::NormalizationError,
                field: None,
                detail,
            };
            let refused: Vec<_> = self.records[range]
                .iter()
                .map(|record| Rejected::new(record.clone(), verdict.clone()))
                .collect();
            // A row that stands alone is named here already.
            let ids = match refused.as_slice() {
                [alone] => alone.log_ids(),
                _ => LogIds::default(),
            };
            tracing::error!(
                event = "batch_dead_lettered",
                raw_id = ids.raw_id,
                trace_id = ids.trace_id,
                span_id = ids.span_id,
                rows = refused.len(),
                error = verdict.detail,
                "ClickHouse did not take rows; their records are dead-lettered"
            );
            self.dead_letters.send(refused, &self.normalizer).await?;
        }
        self.stats.batch_ended(started.elapsed().as_secs_f64());
        Ok(())
    }
}

/// One line a record, for who follows a trace; costs nothing unless it is wanted.
fn log_inserted(records: &[Record]) {
    if !tracing::enabled!(tracing::Level::DEBUG) {
        return;
    }
    for record in records {
        let ids = LogIds::new(record, record.trace.map(TraceContext::child));
        tracing::debug!(
            event = "record_inserted",
            raw_id = ids.raw_id,
            trace_id = ids.trace_id,
            span_id = ids.span_id,
            partition = record.id.partition,
            offset = record.id.offset,
            "record inserted"
        );
    }
}

/// The deduplication token of a batch: topic, offset ranges, and what decided on
/// the rows.
///
/// Part of the latter is which records of the ranges became rows: the same
/// offsets give the same rows, unless a record failed once for its time or
/// memory and not the next time. Two batches that differ in that must not be
/// taken for each other, or ClickHouse would silently drop the row.
fn token(topic: &str, records: &[Record], normalizer: &Provenance) -> DedupToken {
    let mut offsets: Vec<(i32, i64)> = records
        .iter()
        .map(|record| (record.id.partition, record.id.offset))
        .collect();
    // Partitions may come interleaved in another way the next time.
    offsets.sort_unstable();
    let mut hash = Sha256::new();
    for (partition, offset) in offsets {
        hash.update(partition.to_le_bytes());
        hash.update(offset.to_le_bytes());
    }
    let hash = hex::encode(hash.finalize());
    DedupToken::new(
        topic,
        &offset_ranges(records),
        &format!("{};offsets={}", normalizer.digest, &hash[..16]),
    )
}

/// The offsets that a batch covers, by partition.
fn offset_ranges(records: &[Record]) -> Vec<OffsetRange> {
    let mut ranges: BTreeMap<i32, OffsetRange> = BTreeMap::new();
    for record in records {
        let (partition, offset) = (record.id.partition, record.id.offset);
        let timestamp = record.timestamp_ms.unwrap_or(0);
        let range = ranges.entry(partition).or_insert(OffsetRange {
            partition,
            first: offset,
            last: offset,
            first_timestamp: timestamp,
        });
        if offset < range.first {
            range.first = offset;
            range.first_timestamp = timestamp;
        }
        range.last = range.last.max(offset);
    }
    ranges.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cdr_kafka::RecordId;

    fn record(partition: i32, offset: i64) -> Record {
        Record {
            id: RecordId {
                partition,
                offset,
                generation: 1,
            },
            key: None,
            payload: None,
            timestamp_ms: Some(1_700_000_000_000),
            received_at_ms: 1_700_000_000_000,
            replay_count: 0,
            trace: None,
        }
    }

    fn token_of(offsets: &[(i32, i64)]) -> String {
        let records: Vec<_> = offsets.iter().map(|&(p, o)| record(p, o)).collect();
        let normalizer = Provenance {
            name: "cdr-normalizer".to_owned(),
            version: "1.0.0".to_owned(),
            digest: "ab".repeat(32),
            file_digest: String::new(),
            settings_digest: String::new(),
        };
        token("cdr.raw", &records, &normalizer).to_string()
    }

    #[test]
    fn a_batch_consumed_again_has_the_same_token_however_it_is_interleaved() {
        assert_eq!(
            token_of(&[(0, 7), (1, 3), (0, 8)]),
            token_of(&[(1, 3), (0, 7), (0, 8)])
        );
    }

    /// A record that failed for its time once, and not at the replay: its row
    /// must not be taken for one that is there already.
    #[test]
    fn another_set_of_rows_in_the_same_ranges_has_another_token() {
        let without = token_of(&[(0, 7), (0, 9), (0, 10)]);
        let other = token_of(&[(0, 7), (0, 8), (0, 10)]);
        let with = token_of(&[(0, 7), (0, 8), (0, 9), (0, 10)]);
        assert_ne!(without, with);
        assert_ne!(without, other);
        assert_ne!(other, with);
    }
}
