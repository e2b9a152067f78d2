//! Which records may have been inserted before, by a worker that died or lost
//! its partition: those right behind the committed offset.

use cdr_kafka::RecordId;
use std::collections::BTreeMap;

/// Knows where each assignment began. Pure.
#[derive(Debug)]
pub(crate) struct Replays {
    /// How far ahead of the committed offset a worker gets.
    reach: i64,
    /// By partition: the assignment, and its first offset.
    firsts: BTreeMap<i32, (u64, i64)>,
}

impl Replays {
    /// `reach`: records that may be in flight, of this worker and of the one
    /// before it.
    pub(crate) fn new(reach: usize) -> Self {
        Self {
            reach: i64::try_from(reach).unwrap_or(i64::MAX),
            firsts: BTreeMap::new(),
        }
    }

    /// A record was taken; those of an assignment come in the order of offsets.
    pub(crate) fn taken(&mut self, id: RecordId) {
        let first = self
            .firsts
            .entry(id.partition)
            .or_insert((id.generation, id.offset));
        if first.0 != id.generation {
            *first = (id.generation, id.offset);
        }
    }

    /// Whether the record may have been inserted before.
    pub(crate) fn may_be_one(&self, id: RecordId) -> bool {
        self.firsts
            .get(&id.partition)
            .is_none_or(|&(generation, first)| {
                generation != id.generation || id.offset < first.saturating_add(self.reach)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(partition: i32, generation: u64, offset: i64) -> RecordId {
        RecordId {
            partition,
            offset,
            generation,
        }
    }

    #[test]
    fn the_first_records_of_each_assignment_may_be_replays() {
        let mut replays = Replays::new(100);
        replays.taken(id(0, 1, 500));
        replays.taken(id(1, 2, 0));
        replays.taken(id(0, 1, 501));
        assert!(replays.may_be_one(id(0, 1, 500)));
        assert!(replays.may_be_one(id(0, 1, 599)));
        assert!(!replays.may_be_one(id(0, 1, 600)));
        assert!(!replays.may_be_one(id(1, 2, 100)));
        // The partition went and came back.
        replays.taken(id(0, 7, 9000));
        assert!(replays.may_be_one(id(0, 7, 9099)));
        assert!(!replays.may_be_one(id(0, 7, 9100)));
        assert!(
            replays.may_be_one(id(0, 1, 700)),
            "of an assignment that is over"
        );
        assert!(replays.may_be_one(id(5, 1, 0)), "unknown");
    }
}
