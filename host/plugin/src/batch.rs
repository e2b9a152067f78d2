//! Batches of payloads, on their way into a normalizer.

use crate::contract::{Blobs, WitBatch};
use std::ops::Range;

/// Payloads with their reception times, as columns.
#[derive(Debug, Clone)]
pub struct Batch(pub(crate) WitBatch);

/// A batch would be larger than offsets of 32 bits can say.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a batch holds at most 4 GiB of payloads")]
pub struct BatchTooLarge;

impl Default for Batch {
    fn default() -> Self {
        Self::with_capacity(0, 0)
    }
}

impl Batch {
    /// An empty batch with room for so many records and bytes.
    pub fn with_capacity(records: usize, bytes: usize) -> Self {
        let mut offsets = Vec::with_capacity(records + 1);
        offsets.push(0);
        Self(WitBatch {
            payloads: Blobs {
                offsets,
                data: Vec::with_capacity(bytes),
            },
            received_at: Vec::with_capacity(records),
        })
    }

    /// Adds a record, received at so many milliseconds since the Unix epoch.
    ///
    /// # Errors
    /// The batch would exceed 4 GiB; it is unchanged.
    pub fn push(&mut self, payload: &[u8], received_at_ms: i64) -> Result<(), BatchTooLarge> {
        let end =
            u32::try_from(self.0.payloads.data.len() + payload.len()).map_err(|_| BatchTooLarge)?;
        self.0.payloads.data.extend_from_slice(payload);
        self.0.payloads.offsets.push(end);
        self.0.received_at.push(received_at_ms);
        Ok(())
    }

    /// A batch of records that were all received at the same time.
    ///
    /// # Errors
    /// The batch would exceed 4 GiB.
    pub fn of<'a>(
        payloads: impl IntoIterator<Item = &'a [u8]>,
        received_at_ms: i64,
    ) -> Result<Self, BatchTooLarge> {
        let mut batch = Self::default();
        for payload in payloads {
            batch.push(payload, received_at_ms)?;
        }
        Ok(batch)
    }

    /// How many records it holds.
    pub fn len(&self) -> usize {
        self.0.received_at.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.0.received_at.is_empty()
    }

    /// The payload of a record; empty when there is no such record.
    pub fn payload(&self, row: usize) -> &[u8] {
        let offsets = &self.0.payloads.offsets;
        match (offsets.get(row), offsets.get(row + 1)) {
            (Some(start), Some(end)) => &self.0.payloads.data[*start as usize..*end as usize],
            _ => &[],
        }
    }

    /// A part of it, as a batch of its own.
    pub(crate) fn slice(&self, rows: Range<usize>) -> Self {
        let offsets = &self.0.payloads.offsets[rows.start..=rows.end];
        let (start, end) = (offsets[0], offsets[offsets.len() - 1]);
        Self(WitBatch {
            payloads: Blobs {
                offsets: offsets.iter().map(|offset| offset - start).collect(),
                data: self.0.payloads.data[start as usize..end as usize].to_vec(),
            },
            received_at: self.0.received_at[rows].to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_the_batch_of_its_records() {
        let payloads: [&[u8]; 4] = [b"a", b"", b"ccc", b"dd"];
        let whole = Batch::of(payloads, 7).unwrap();
        for start in 0..4 {
            for end in start..=4 {
                let slice = whole.slice(start..end);
                let alone = Batch::of(payloads[start..end].iter().copied(), 7).unwrap();
                assert_eq!(slice.0, alone.0, "{start}..{end}");
            }
        }
    }
}
