//! Which records may have been inserted before, by a worker that died or lost
//! its partition: those right behind the committed offset.

use cdr_kafka::RecordId;
use std::collections::BTreeMap;

/// Knows what each assignment began with. Pure.
#[derive(Debug)]
pub(crate) struct Replays {
    /// Records that a worker gets ahead of the committed offset.
    reach: u64,
    /// By partition.
    beginnings: BTreeMap<i32, Beginning>,
}

/// The first records of an assignment, as many as there may be repetitions.
#[derive(Debug)]
struct Beginning {
    generation: u64,
    taken: u64,
    /// The first offset behind them; none as long as they go on.
    end: Option<i64>,
}

impl Replays {
    /// `reach`: records that may be taken beyond the committed offset, by this
    /// worker and by the one before it.
    pub(crate) fn new(reach: u64) -> Self {
        Self {
            reach,
            beginnings: BTreeMap::new(),
        }
    }

    /// A record was taken; those of an assignment come in the order of offsets.
    /// Records are counted, not offsets: logs have gaps.
    pub(crate) fn taken(&mut self, id: RecordId) {
        let beginning = self.beginnings.entry(id.partition).or_insert(Beginning {
            generation: id.generation,
            taken: 0,
            end: None,
        });
        if beginning.generation != id.generation {
            *beginning = Beginning {
                generation: id.generation,
                taken: 0,
                end: None,
            };
        }
        if beginning.end.is_none() {
            if beginning.taken == self.reach {
                beginning.end = Some(id.offset);
            }
            beginning.taken += 1;
        }
    }

    /// Whether the record may have been inserted before.
    pub(crate) fn may_be_one(&self, id: RecordId) -> bool {
        self.beginnings.get(&id.partition).is_none_or(|beginning| {
            beginning.generation != id.generation || beginning.end.is_none_or(|end| id.offset < end)
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
        let mut replays = Replays::new(3);
        // A log with gaps: it is records that count.
        for offset in [500, 510, 520] {
            replays.taken(id(0, 1, offset));
            assert!(replays.may_be_one(id(0, 1, offset)), "{offset}");
        }
        for offset in [530, 540] {
            replays.taken(id(0, 1, offset));
            assert!(!replays.may_be_one(id(0, 1, offset)), "{offset}");
        }
        assert!(replays.may_be_one(id(0, 1, 520)));
        assert!(!replays.may_be_one(id(0, 1, 530)));
        assert!(!replays.may_be_one(id(0, 1, 540)));
        // Another partition, of which few were taken.
        replays.taken(id(1, 2, 0));
        assert!(replays.may_be_one(id(1, 2, 1_000_000)));
        // The partition went and came back.
        replays.taken(id(0, 7, 9000));
        assert!(replays.may_be_one(id(0, 7, 9000)));
        assert!(
            replays.may_be_one(id(0, 1, 700)),
            "of an assignment that is over"
        );
        assert!(replays.may_be_one(id(5, 1, 0)), "unknown");
    }
}
