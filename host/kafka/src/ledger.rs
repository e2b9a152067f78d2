//! The offset ledger: why an offset was committed, and why another was not.
//!
//! A pure state machine without I/O. Every record that is consumed gets a slot;
//! the slot is settled when the record has its one terminal [`Outcome`]: its row
//! is in ClickHouse, or its dead letter is acknowledged. What may be committed is
//! the end of the *contiguous prefix* of settled slots, and nothing else:
//!
//! ```text
//!   consumed   40   41   43   44   45   47        (42 and 46: gaps in the log)
//!   outcome    ins  dlq  ins   -   ins  ins
//!              └── settled ──┘ └ in flight holds 45 and 47 back
//!   committable next offset = 43 + 1 = 44
//! ```
//!
//! Invariants, each a property test:
//! - an offset is committable only if every record consumed before it is settled;
//! - `consumed = inserted + dead_lettered + in_flight + given_back`, per partition
//!   and in total. `given_back` counts records that were in flight when their
//!   partition was taken away (they are consumed again by the next owner); as
//!   long as a partition is held it is 0 and the equation reads
//!   `consumed = inserted + dead_lettered + in_flight`;
//! - a partition that was taken away settles and commits nothing any more: every
//!   assignment has a generation of its own, and what carries an old one is
//!   counted ([`Ledger::stale_settles`]) and ignored.
//!
//! **A log that steps back** (`consumed` names an offset at or before the last
//! one: a seek, a truncated or re-created topic) is followed: the records are
//! taken as new, settled slots from there on count as consumed again, and no
//! slot beyond the present position may be committed until it is reached again.

mod views;

use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};

pub use views::{Counts, PartitionView};

/// One consumed record: where it came from, and in which assignment.
///
/// Only the ledger makes them; they are compared, copied and handed back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId {
    /// Partition of the consumed topic.
    pub partition: i32,
    /// Offset of the record in that partition.
    pub offset: i64,
    /// The assignment (or the step back within one) that consumed it.
    pub generation: u64,
}

/// How a record ended. There is no third way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Its row was acknowledged by ClickHouse.
    Inserted,
    /// Its dead letter was acknowledged by Kafka.
    DeadLettered,
}

/// What became of one settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// The record was in flight and now has its outcome.
    Now,
    /// It had its outcome already; nothing changed.
    Already,
    /// It belongs to an assignment that is over; nothing changed.
    Stale,
}

/// An offset that may be committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commit {
    /// Partition of the consumed topic.
    pub partition: i32,
    /// The assignment it belongs to; hand it back with the result.
    pub generation: u64,
    /// The next offset to consume: everything before it is settled.
    pub next: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot {
    offset: i64,
    generation: u64,
    bytes: u32,
    settled: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Partition {
    generation: u64,
    /// Sorted by offset. The front is in flight, or lies beyond `position`.
    slots: VecDeque<Slot>,
    position: Option<i64>,
    /// End of the contiguous prefix; none until a first record is settled.
    prefix: Option<i64>,
    sent: Option<i64>,
    committed: Option<i64>,
    counts: Counts,
    bytes: u64,
    /// Slots that went into the prefix: all, when the last commit was sent, and
    /// when the last acknowledged one was.
    passed: u64,
    passed_sent: u64,
    passed_committed: u64,
}

impl Partition {
    /// Index of the slot of `offset`, or where it belongs. Logs are mostly
    /// without gaps, so the distance from the front is tried first.
    fn find(&self, offset: i64) -> Result<usize, usize> {
        if let Some(front) = self.slots.front()
            && let Ok(guess) = usize::try_from(offset.saturating_sub(front.offset))
            && self.slots.get(guess).is_some_and(|s| s.offset == offset)
        {
            return Ok(guess);
        }
        self.slots.binary_search_by_key(&offset, |s| s.offset)
    }

    fn advance_prefix(&mut self) {
        let Some(position) = self.position else {
            return;
        };
        while let Some(front) = self.slots.front() {
            if !front.settled || front.offset >= position {
                break;
            }
            self.prefix = Some(front.offset + 1);
            self.slots.pop_front();
            self.passed += 1;
        }
    }
}

/// The ledger of one consumer of one topic. See the module's documentation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    partitions: BTreeMap<i32, Partition>,
    last_generation: u64,
    /// Of assignments that are over, by partition.
    past: BTreeMap<i32, Counts>,
    in_flight: u64,
    in_flight_bytes: u64,
    stale_settles: u64,
    repeated_settles: u64,
    steps_back: u64,
}

/// What the ledger has counted, and the numbers of generations, do not matter
/// for what it does next: ledgers of one hash treat alike whatever is alike
/// current or stale in them. The exhaustive model tells states apart by it.
impl Hash for Ledger {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for (partition, part) in &self.partitions {
            (
                partition,
                part.position,
                part.prefix,
                part.sent,
                part.committed,
            )
                .hash(state);
            for slot in &part.slots {
                let current = slot.generation == part.generation;
                (slot.offset, slot.settled, current).hash(state);
            }
        }
    }
}

impl Ledger {
    /// An empty ledger without partitions.
    pub fn new() -> Self {
        Self::default()
    }

    /// A partition was assigned: it starts with no records, under a generation
    /// of its own, which is returned. One that is held already starts over.
    pub fn assign(&mut self, partition: i32) -> u64 {
        self.revoke(partition);
        self.last_generation += 1;
        let generation = self.last_generation;
        self.partitions.insert(
            partition,
            Partition {
                generation,
                ..Partition::default()
            },
        );
        generation
    }

    /// A partition was taken away: everything of it in flight is dropped and
    /// will be neither settled nor committed. Returns how many records that is.
    pub fn revoke(&mut self, partition: i32) -> u64 {
        let Some(mut gone) = self.partitions.remove(&partition) else {
            return 0;
        };
        let dropped = gone.counts.in_flight;
        self.in_flight -= dropped;
        self.in_flight_bytes -= gone.bytes;
        gone.counts.given_back += dropped;
        gone.counts.in_flight = 0;
        self.past.entry(partition).or_default().add(&gone.counts);
        dropped
    }

    /// A record of `bytes` bytes was taken from `partition`. `None` when the
    /// partition is not held: the record must not be processed.
    pub fn consumed(&mut self, partition: i32, offset: i64, bytes: u32) -> Option<RecordId> {
        let part = self.partitions.get_mut(&partition)?;
        if part.position.is_some_and(|position| offset < position) {
            // The log stepped back. A new generation keeps settles of the
            // replaced slots apart; whatever was committed is no longer true.
            self.steps_back += 1;
            self.last_generation += 1;
            part.generation = self.last_generation;
            part.prefix = None;
            part.sent = None;
            part.committed = None;
            part.passed_committed = part.passed;
        }
        let slot = Slot {
            offset,
            generation: part.generation,
            bytes,
            settled: false,
        };
        match part.find(offset) {
            Ok(index) => {
                if let Some(old) = part.slots.get_mut(index) {
                    if !old.settled {
                        part.counts.in_flight -= 1;
                        part.counts.given_back += 1;
                        part.bytes -= u64::from(old.bytes);
                        self.in_flight -= 1;
                        self.in_flight_bytes -= u64::from(old.bytes);
                    }
                    *old = slot;
                }
            }
            Err(index) => part.slots.insert(index, slot),
        }
        part.position = Some(offset + 1);
        part.counts.consumed += 1;
        part.counts.in_flight += 1;
        part.bytes += u64::from(bytes);
        self.in_flight += 1;
        self.in_flight_bytes += u64::from(bytes);
        // Slots that were settled before a step back may lie before this one.
        part.advance_prefix();
        Some(RecordId {
            partition,
            offset,
            generation: part.generation,
        })
    }

    /// A record has its outcome. Late and repeated settles are counted and
    /// change nothing else.
    pub fn settle(&mut self, id: RecordId, outcome: Outcome) -> Settled {
        let Some(part) = self.partitions.get_mut(&id.partition) else {
            self.stale_settles += 1;
            return Settled::Stale;
        };
        let slot = match part.find(id.offset) {
            Ok(index) => part.slots.get_mut(index),
            Err(_) => None,
        };
        match slot {
            Some(slot) if slot.generation == id.generation && !slot.settled => {
                slot.settled = true;
                let bytes = u64::from(slot.bytes);
                part.counts.in_flight -= 1;
                part.bytes -= bytes;
                self.in_flight -= 1;
                self.in_flight_bytes -= bytes;
                match outcome {
                    Outcome::Inserted => part.counts.inserted += 1,
                    Outcome::DeadLettered => part.counts.dead_lettered += 1,
                }
                part.advance_prefix();
                Settled::Now
            }
            // A slot that is gone was settled, if it is of this generation.
            Some(slot) if slot.generation == id.generation => {
                self.repeated_settles += 1;
                Settled::Already
            }
            None if part.generation == id.generation => {
                self.repeated_settles += 1;
                Settled::Already
            }
            _ => {
                self.stale_settles += 1;
                Settled::Stale
            }
        }
    }

    /// Whether a record still belongs to a partition that is held, and has no
    /// outcome yet: work on any other is wasted.
    pub fn is_current(&self, id: RecordId) -> bool {
        self.partitions.get(&id.partition).is_some_and(|part| {
            part.find(id.offset).is_ok_and(|index| {
                part.slots
                    .get(index)
                    .is_some_and(|s| s.generation == id.generation && !s.settled)
            })
        })
    }

    /// What may be committed for `partition` and was not sent yet.
    pub fn committable(&self, partition: i32) -> Option<Commit> {
        let part = self.partitions.get(&partition)?;
        let next = part.prefix?;
        (part.sent != Some(next)).then_some(Commit {
            partition,
            generation: part.generation,
            next,
        })
    }

    /// What may be committed for any partition and was not sent yet.
    pub fn all_committable(&self) -> Vec<Commit> {
        self.partitions
            .keys()
            .filter_map(|&p| self.committable(p))
            .collect()
    }

    /// A commit is on its way. False when the assignment is over.
    pub fn commit_sent(&mut self, commit: Commit) -> bool {
        self.current(commit)
            .map(|part| {
                part.sent = Some(commit.next);
                part.passed_sent = part.passed;
            })
            .is_some()
    }

    /// The broker acknowledged a commit. False when the assignment is over.
    pub fn commit_done(&mut self, commit: Commit) -> bool {
        self.current(commit)
            .map(|part| {
                if part.sent == Some(commit.next) {
                    part.passed_committed = part.passed_sent;
                }
                part.sent = Some(commit.next);
                part.committed = Some(commit.next);
            })
            .is_some()
    }

    /// A commit failed: it (or a later one) becomes committable again. False
    /// when the assignment is over.
    pub fn commit_failed(&mut self, commit: Commit) -> bool {
        self.current(commit)
            .map(|part| part.sent = part.committed)
            .is_some()
    }

    /// Whether the assignment that `commit` belongs to still lasts.
    pub fn holds(&self, commit: Commit) -> bool {
        self.partitions
            .get(&commit.partition)
            .is_some_and(|part| part.generation == commit.generation)
    }

    fn current(&mut self, commit: Commit) -> Option<&mut Partition> {
        self.partitions
            .get_mut(&commit.partition)
            .filter(|part| part.generation == commit.generation)
    }

    /// Whether everything of `partition` is settled and its commit acknowledged.
    pub fn is_clean(&self, partition: i32) -> bool {
        self.partitions
            .get(&partition)
            .is_none_or(|part| part.counts.in_flight == 0 && part.prefix == part.committed)
    }
}
