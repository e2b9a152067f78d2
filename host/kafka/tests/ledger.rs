//! The ledger against a naive model, under any schedule.

use std::collections::BTreeMap;

use cdr_kafka::ledger::{Commit, Counts, Ledger, Outcome, RecordId, Settled};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Assign(i32),
    Revoke(i32),
    /// Consume the next record, after a gap of so many offsets.
    Consume(i32, i64),
    /// Settle one of all ids ever handed out, those of past assignments included.
    Settle(prop::sample::Index, bool),
    Send(i32),
    /// Answer one of all commits ever sent.
    Answer(prop::sample::Index, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let partition = 0..3i32;
    prop_oneof![
        1 => partition.clone().prop_map(Step::Assign),
        1 => partition.clone().prop_map(Step::Revoke),
        8 => (partition.clone(), prop_oneof![4 => Just(0i64), 1 => 1..5i64])
            .prop_map(|(p, gap)| Step::Consume(p, gap)),
        8 => (any::<prop::sample::Index>(), any::<bool>()).prop_map(|(i, d)| Step::Settle(i, d)),
        2 => partition.prop_map(Step::Send),
        2 => (any::<prop::sample::Index>(), any::<bool>()).prop_map(|(i, ok)| Step::Answer(i, ok)),
    ]
}

/// One partition, kept in the plainest way.
#[derive(Debug, Clone, Default)]
struct Plain {
    /// All records since the assignment, and their outcome.
    records: BTreeMap<i64, (RecordId, Option<Outcome>)>,
    sent: Option<i64>,
}

impl Plain {
    /// The end of the contiguous prefix: stop at the first record without outcome.
    fn prefix(&self) -> Option<i64> {
        self.records
            .values()
            .take_while(|(_, outcome)| outcome.is_some())
            .last()
            .map(|(id, _)| id.offset + 1)
    }

    fn counts(&self) -> Counts {
        let count = |wanted: Option<Outcome>| {
            self.records.values().filter(|(_, o)| *o == wanted).count() as u64
        };
        Counts {
            consumed: self.records.len() as u64,
            inserted: count(Some(Outcome::Inserted)),
            dead_lettered: count(Some(Outcome::DeadLettered)),
            in_flight: count(None),
            given_back: 0,
        }
    }
}

fn balanced(ledger: &Ledger) -> Result<(), TestCaseError> {
    for view in ledger.partitions() {
        let counts = view.counts;
        prop_assert_eq!(
            counts.consumed,
            counts.inserted + counts.dead_lettered + counts.in_flight + counts.given_back
        );
    }
    for counts in ledger.all_lifetime_counts().values() {
        prop_assert!(counts.balanced());
    }
    let totals = ledger.totals();
    prop_assert!(totals.balanced());
    prop_assert_eq!(totals.in_flight, ledger.in_flight());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_schedule_commits_exactly_the_contiguous_prefix(steps in prop::collection::vec(step(), 1..120)) {
        let mut ledger = Ledger::new();
        let mut model: BTreeMap<i32, Plain> = BTreeMap::new();
        let mut next_offset: BTreeMap<i32, i64> = BTreeMap::new();
        let mut ids: Vec<RecordId> = Vec::new();
        let mut commits: Vec<Commit> = Vec::new();
        for step in steps {
            match step {
                Step::Assign(p) => {
                    ledger.assign(p);
                    model.insert(p, Plain::default());
                    // As after a restart: from anywhere, old offsets again.
                    next_offset.insert(p, 0);
                }
                Step::Revoke(p) => {
                    let dropped = ledger.revoke(p);
                    let was = model.remove(&p).map_or(0, |plain| plain.counts().in_flight);
                    prop_assert_eq!(dropped, was);
                }
                Step::Consume(p, gap) => {
                    let offset = next_offset.get(&p).copied().unwrap_or(0) + gap;
                    let id = ledger.consumed(p, offset, 10);
                    prop_assert_eq!(id.is_some(), model.contains_key(&p));
                    if let (Some(id), Some(plain)) = (id, model.get_mut(&p)) {
                        plain.records.insert(offset, (id, None));
                        next_offset.insert(p, offset + 1);
                        ids.push(id);
                    }
                }
                Step::Settle(index, dead) => {
                    if ids.is_empty() { continue; }
                    let id = *index.get(&ids);
                    let outcome = if dead { Outcome::DeadLettered } else { Outcome::Inserted };
                    let entry = model.get_mut(&id.partition).and_then(|plain| plain.records.get_mut(&id.offset));
                    let expected = match entry {
                        Some((own, slot @ None)) if *own == id => { *slot = Some(outcome); Settled::Now }
                        Some((own, Some(_))) if *own == id => Settled::Already,
                        _ => Settled::Stale,
                    };
                    prop_assert_eq!(ledger.is_current(id), expected == Settled::Now);
                    prop_assert_eq!(ledger.settle(id, outcome), expected);
                }
                Step::Send(p) => if let Some(commit) = ledger.committable(p) {
                    prop_assert!(ledger.commit_sent(commit));
                    if let Some(plain) = model.get_mut(&p) { plain.sent = Some(commit.next); }
                    commits.push(commit);
                },
                Step::Answer(index, ok) => {
                    if commits.is_empty() { continue; }
                    let commit = *index.get(&commits);
                    let current = ledger.partitions().iter().any(|v| v.partition == commit.partition && v.generation == commit.generation);
                    let taken = if ok { ledger.commit_done(commit) } else { ledger.commit_failed(commit) };
                    prop_assert_eq!(taken, current, "a late answer changed a new assignment");
                    if let Some(plain) = model.get_mut(&commit.partition).filter(|_| current) {
                        let committed = ledger.partitions().iter().find(|v| v.partition == commit.partition).and_then(|v| v.committed);
                        plain.sent = if ok { Some(commit.next) } else { committed };
                    }
                }
            }
            balanced(&ledger)?;
            prop_assert_eq!(ledger.partitions().len(), model.len());
            for (&p, plain) in &model {
                prop_assert_eq!(ledger.counts(p), Some(plain.counts()));
                let expected = plain.prefix().filter(|&next| plain.sent != Some(next));
                prop_assert_eq!(ledger.committable(p).map(|c| c.next), expected);
            }
        }
    }

    /// A log may step back at any time; then what is safe is not a function of
    /// one list, so the two properties that matter are checked themselves.
    #[test]
    fn a_log_that_steps_back_loses_nothing(
        steps in prop::collection::vec((0..6u8, any::<prop::sample::Index>(), 0..30i64), 1..150)
    ) {
        let mut ledger = Ledger::new();
        ledger.assign(0);
        let mut position = 0i64;
        // The latest delivery of every offset, and whether it is settled.
        let mut latest: BTreeMap<i64, (RecordId, bool)> = BTreeMap::new();
        let mut ids: Vec<RecordId> = Vec::new();
        for (kind, index, back) in steps {
            match kind {
                0 if back < 10 => position = (position - back).max(0),
                1 | 2 => if !ids.is_empty() {
                    let id = *index.get(&ids);
                    let settled = ledger.settle(id, Outcome::Inserted);
                    if let Some((own, done)) = latest.get_mut(&id.offset).filter(|(own, _)| *own == id) {
                        prop_assert_eq!(*own, id);
                        if settled == Settled::Now { *done = true; }
                    }
                },
                _ => if let Some(id) = ledger.consumed(0, position, 1) {
                    latest.insert(position, (id, false));
                    ids.push(id);
                    position += 1;
                },
            }
            balanced(&ledger)?;
            if let Some(commit) = ledger.committable(0) {
                prop_assert!(ledger.partitions()[0].position.is_some_and(|p| commit.next <= p));
                for (offset, (_, done)) in latest.range(..commit.next) {
                    prop_assert!(*done, "offset {offset} has no outcome, yet {} would be committed", commit.next);
                }
            }
        }
        // Whatever happened: settle all, and everything read may be committed.
        for id in ids { ledger.settle(id, Outcome::Inserted); }
        prop_assert_eq!(ledger.in_flight(), 0);
        prop_assert_eq!(ledger.in_flight_bytes(), 0);
        let view = ledger.partitions()[0];
        if let Some(commit) = ledger.committable(0) {
            prop_assert_eq!(Some(commit.next), view.position);
        }
    }
}

/// vector#24543: a rejected offset was skipped and the next one committed.
#[test]
fn a_rejected_record_in_the_middle_is_not_skipped() {
    let mut ledger = Ledger::new();
    ledger.assign(0);
    let ids: Vec<RecordId> = (40..45).filter_map(|o| ledger.consumed(0, o, 1)).collect();
    for &id in &ids[..2] {
        ledger.settle(id, Outcome::Inserted);
    }
    ledger.settle(ids[3], Outcome::Inserted);
    ledger.settle(ids[4], Outcome::Inserted);
    assert_eq!(ledger.committable(0).map(|c| c.next), Some(42));
    ledger.settle(ids[2], Outcome::DeadLettered);
    assert_eq!(ledger.committable(0).map(|c| c.next), Some(45));
}

#[test]
fn gaps_in_the_log_do_not_hold_the_prefix_back() {
    let mut ledger = Ledger::new();
    ledger.assign(7);
    for offset in [3, 9, 10, 400] {
        if let Some(id) = ledger.consumed(7, offset, 1) {
            ledger.settle(id, Outcome::Inserted);
        }
    }
    assert_eq!(ledger.committable(7).map(|c| c.next), Some(401));
}

/// redpanda connect #4009, #4010, #4477: a late acknowledgement committed a
/// partition that was gone.
#[test]
fn a_late_acknowledgement_commits_nothing_of_a_lost_partition() {
    let mut ledger = Ledger::new();
    ledger.assign(0);
    let old = ledger.consumed(0, 5, 1);
    ledger.revoke(0);
    ledger.assign(0);
    let new = ledger.consumed(0, 5, 1);
    let (Some(old), Some(new)) = (old, new) else {
        panic!("both assignments held the partition");
    };
    assert_ne!(old, new);
    assert_eq!(ledger.settle(old, Outcome::Inserted), Settled::Stale);
    assert_eq!(ledger.committable(0), None);
    assert_eq!(ledger.stale_settles(), 1);
    assert_eq!(ledger.totals().given_back, 1);
    ledger.settle(new, Outcome::Inserted);
    assert_eq!(ledger.committable(0).map(|c| c.next), Some(6));
}

#[test]
fn a_failed_commit_is_offered_again_and_an_acknowledged_one_is_not() {
    let mut ledger = Ledger::new();
    ledger.assign(0);
    if let Some(id) = ledger.consumed(0, 0, 1) {
        ledger.settle(id, Outcome::Inserted);
    }
    let commit = ledger.committable(0).expect("one record is settled");
    ledger.commit_sent(commit);
    assert_eq!(ledger.committable(0), None);
    assert!(!ledger.is_clean(0));
    ledger.commit_failed(commit);
    assert_eq!(ledger.committable(0), Some(commit));
    ledger.commit_sent(commit);
    ledger.commit_done(commit);
    assert_eq!(ledger.committable(0), None);
    assert!(ledger.is_clean(0));
}

#[test]
fn a_hundred_thousand_records_settle_in_any_order() {
    let mut ledger = Ledger::new();
    ledger.assign(0);
    let count = 100_000;
    let ids: Vec<RecordId> = (0..count)
        .filter_map(|o| ledger.consumed(0, o, 100))
        .collect();
    assert_eq!(ledger.in_flight_bytes(), 10_000_000);
    for id in ids.iter().rev() {
        ledger.settle(*id, Outcome::Inserted);
    }
    assert_eq!(ledger.committable(0).map(|c| c.next), Some(count));
    assert_eq!(ledger.in_flight_bytes(), 0);
}

/// What a process that dies leaves to be consumed again: in flight, held back, or
/// settled and not yet committed.
#[test]
fn what_is_not_committed_is_counted_settled_or_not() {
    let mut ledger = Ledger::new();
    ledger.assign(0);
    ledger.assign(1);
    let ids: Vec<_> = [40, 41, 43, 44, 45]
        .map(|offset| ledger.consumed(0, offset, 1).unwrap())
        .to_vec();
    ledger.consumed(1, 7, 1).unwrap();
    assert_eq!(ledger.uncommitted(), 6);
    for id in [ids[0], ids[1], ids[4]] {
        ledger.settle(id, Outcome::Inserted);
    }
    assert_eq!(ledger.uncommitted(), 6, "nothing is committed");
    let commit = ledger.committable(0).unwrap();
    ledger.commit_sent(commit);
    ledger.settle(ids[2], Outcome::Inserted);
    assert_eq!(ledger.uncommitted(), 6, "it is only sent");
    ledger.commit_done(commit);
    assert_eq!(ledger.uncommitted(), 4, "one was settled after it was sent");
    ledger.revoke(0);
    assert_eq!(ledger.uncommitted(), 1);
}
