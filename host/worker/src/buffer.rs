//! Rows that wait to be inserted, with the records that they were made from.
//!
//! Row `i` is made from record `i`, always: rows and records come and go
//! together, so that no record can be settled by another's row.

use cdr_kafka::consumer::Record;
use cdr_store::{Column, ColumnError};
use std::ops::Range;
use std::time::Instant;

/// A record that waits, and since when.
#[derive(Debug, Clone)]
pub(crate) struct Waiting {
    pub(crate) record: Record,
    pub(crate) since: Instant,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    columns: Vec<Column>,
    records: Vec<Waiting>,
}

impl Buffer {
    /// Puts rows behind those that wait; `columns` are as long as `records`.
    pub(crate) fn push(
        &mut self,
        columns: Vec<Column>,
        records: Vec<Waiting>,
    ) -> Result<(), ColumnError> {
        append(&mut self.columns, columns)?;
        self.records.extend(records);
        Ok(())
    }

    /// The records, in the order of their rows.
    pub(crate) fn records(&self) -> &[Waiting] {
        &self.records
    }

    /// Drops the rows whose record is not `wanted` any more. Returns whether
    /// there were any.
    pub(crate) fn retain(&mut self, wanted: impl Fn(&Record) -> bool) -> Result<bool, ColumnError> {
        let runs = runs(self.records.iter().map(|waiting| wanted(&waiting.record)));
        let kept: usize = runs.iter().map(Range::len).sum();
        if kept == self.records.len() {
            return Ok(false);
        }
        let mut columns = Vec::new();
        for run in &runs {
            let part = self
                .columns
                .iter()
                .map(|column| column.slice(run.clone()))
                .collect();
            append(&mut columns, part)?;
        }
        self.columns = columns;
        self.records.retain(|waiting| wanted(&waiting.record));
        Ok(true)
    }

    /// Empties it.
    pub(crate) fn take(&mut self) -> (Vec<Column>, Vec<Record>) {
        let records = std::mem::take(&mut self.records);
        (
            std::mem::take(&mut self.columns),
            records.into_iter().map(|waiting| waiting.record).collect(),
        )
    }
}

fn append(columns: &mut Vec<Column>, more: Vec<Column>) -> Result<(), ColumnError> {
    if columns.is_empty() {
        *columns = more;
        return Ok(());
    }
    for (column, more) in columns.iter_mut().zip(more) {
        column.append(more)?;
    }
    Ok(())
}

/// The ranges of neighbours that are true.
fn runs(flags: impl Iterator<Item = bool>) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (index, flag) in flags.enumerate() {
        match runs.last_mut() {
            _ if !flag => {}
            Some(run) if run.end == index => run.end += 1,
            _ => runs.push(index..index + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use cdr_kafka::RecordId;
    use cdr_store::{ColumnType, Values};
    use proptest::prelude::*;

    fn waiting(partition: i32, offset: i64) -> Waiting {
        Waiting {
            record: Record {
                id: RecordId {
                    partition,
                    offset,
                    generation: 1,
                },
                key: None,
                payload: None,
                timestamp_ms: None,
                received_at_ms: 0,
                replay_count: 0,
                trace: None,
            },
            since: Instant::now(),
        }
    }

    fn values(column: &Column) -> Vec<u32> {
        match column.values() {
            Values::Uint32s(values) => values.clone(),
            other => panic!("{other:?}"),
        }
    }

    proptest! {
        /// redpanda connect #4009: what is dropped is dropped with its row, and
        /// what stays keeps its own.
        #[test]
        fn rows_and_records_stay_together(
            batches in prop::collection::vec(prop::collection::vec(0..4i32, 1..8), 1..6),
            gone in prop::collection::btree_set(0..4i32, 0..4),
        ) {
            let mut buffer = Buffer::default();
            let mut expected = Vec::new();
            let mut next = 0_u32;
            for batch in batches {
                let mut numbers = Vec::new();
                let mut records = Vec::new();
                for partition in batch {
                    numbers.push(next);
                    records.push(waiting(partition, i64::from(next)));
                    if !gone.contains(&partition) {
                        expected.push(next);
                    }
                    next += 1;
                }
                let column =
                    Column::new(ColumnType::Uint32, Values::Uint32s(numbers), None).unwrap();
                buffer.push(vec![column], records).unwrap();
            }
            let dropped = buffer
                .retain(|record| !gone.contains(&record.id.partition))
                .unwrap();
            prop_assert_eq!(dropped, expected.len() < next as usize);
            let (columns, records) = buffer.take();
            let offsets: Vec<_> = records.iter().map(|r| r.id.offset as u32).collect();
            prop_assert_eq!(&offsets, &expected);
            prop_assert_eq!(columns.first().map(values).unwrap_or_default(), expected);
            prop_assert!(buffer.records().is_empty());
        }
    }
}
