//! The ledger as it is seen from outside: counts, and what each partition is at.

use std::collections::BTreeMap;

use super::Ledger;

/// What happened to the records of a partition since its assignment, or in total.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Records taken from the partition, tombstones included.
    pub consumed: u64,
    /// Records whose row is in ClickHouse.
    pub inserted: u64,
    /// Records whose dead letter is acknowledged.
    pub dead_lettered: u64,
    /// Records without an outcome yet.
    pub in_flight: u64,
    /// Records without an outcome whose partition was taken away (or whose log
    /// stepped back): they are consumed again.
    pub given_back: u64,
}

impl Counts {
    /// `consumed = inserted + dead_lettered + in_flight + given_back`.
    pub fn balanced(&self) -> bool {
        self.consumed == self.inserted + self.dead_lettered + self.in_flight + self.given_back
    }

    pub(super) fn add(&mut self, other: &Counts) {
        self.consumed += other.consumed;
        self.inserted += other.inserted;
        self.dead_lettered += other.dead_lettered;
        self.in_flight += other.in_flight;
        self.given_back += other.given_back;
    }
}

/// A partition as the ledger sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct PartitionView {
    /// The partition.
    pub partition: i32,
    /// Its present generation.
    pub generation: u64,
    /// Counts since the assignment.
    pub counts: Counts,
    /// Bytes of the records in flight.
    pub in_flight_bytes: u64,
    /// The offset after the last consumed record; none before the first.
    pub position: Option<i64>,
    /// The next offset as last acknowledged by the broker in this assignment.
    pub committed: Option<i64>,
}

impl Ledger {
    /// Counts since the assignment; none when the partition is not held.
    pub fn counts(&self, partition: i32) -> Option<Counts> {
        self.partitions.get(&partition).map(|part| part.counts)
    }

    /// Counts of a partition since the ledger was made, all assignments together.
    pub fn lifetime_counts(&self, partition: i32) -> Counts {
        let mut counts = self.past.get(&partition).copied().unwrap_or_default();
        if let Some(part) = self.partitions.get(&partition) {
            counts.add(&part.counts);
        }
        counts
    }

    /// Counts of every partition that was ever held, by partition.
    pub fn all_lifetime_counts(&self) -> BTreeMap<i32, Counts> {
        self.past
            .keys()
            .chain(self.partitions.keys())
            .map(|&p| (p, self.lifetime_counts(p)))
            .collect()
    }

    /// Counts of all partitions since the ledger was made.
    pub fn totals(&self) -> Counts {
        let mut totals = Counts::default();
        for counts in self.past.values() {
            totals.add(counts);
        }
        for part in self.partitions.values() {
            totals.add(&part.counts);
        }
        totals
    }

    /// The partitions held, in order.
    pub fn partitions(&self) -> Vec<PartitionView> {
        self.partitions
            .iter()
            .map(|(&partition, part)| PartitionView {
                partition,
                generation: part.generation,
                counts: part.counts,
                in_flight_bytes: part.bytes,
                position: part.position,
                committed: part.committed,
            })
            .collect()
    }

    /// Records in flight, over all partitions.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Bytes of the records in flight, over all partitions.
    pub fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }

    /// Records that were taken and lie beyond what is committed, settled or not,
    /// over all partitions: what a process that dies now leaves to be consumed
    /// again.
    pub fn uncommitted(&self) -> u64 {
        self.partitions
            .values()
            .map(|part| part.slots.len() as u64 + part.passed - part.passed_committed)
            .sum()
    }

    /// Settles that came after their assignment was over.
    pub fn stale_settles(&self) -> u64 {
        self.stale_settles
    }

    /// Settles of records that had an outcome already.
    pub fn repeated_settles(&self) -> u64 {
        self.repeated_settles
    }

    /// How often a log stepped back.
    pub fn steps_back(&self) -> u64 {
        self.steps_back
    }
}
