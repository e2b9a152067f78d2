//! What a log lost, against a simulated log: compacted, cut by retention at any
//! time, read by a client that prefetches, watched by a thread that is late.

use std::collections::BTreeSet;

use cdr_kafka::losses::{Asked, Finding, LogWatch};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    /// So many records are written; the last one is a gap if so wanted.
    Write(i64, bool),
    /// Retention removes so many offsets.
    Retain(i64),
    /// The client fetches so many offsets into its queue.
    Fetch(i64),
    /// So many records of the queue are consumed.
    Consume(usize),
    /// The watching thread asks, and has its answer later.
    Ask,
    Answer,
    /// The worker starts again from its last commit.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1..6i64, any::<bool>()).prop_map(|(count, gap)| Step::Write(count, gap)),
        1 => (1..12i64).prop_map(Step::Retain),
        3 => (1..6i64).prop_map(Step::Fetch),
        4 => (1..6usize).prop_map(Step::Consume),
        2 => Just(Step::Ask),
        2 => Just(Step::Answer),
        1 => Just(Step::Restart),
    ]
}

/// One partition and its only consumer.
#[derive(Default)]
struct Bed {
    watch: LogWatch,
    records: BTreeSet<i64>,
    low: i64,
    high: i64,
    /// Where the client fetches next.
    fetch: i64,
    queue: Vec<i64>,
    drained: u64,
    committed: Option<i64>,
    asked: Option<Asked>,
    /// Offsets of records that were removed before anyone fetched them.
    removed_unread: BTreeSet<i64>,
    read: BTreeSet<i64>,
    lost: BTreeSet<i64>,
    resets: usize,
}

impl Bed {
    fn start(&mut self) {
        self.watch.gone(0);
        self.watch.assigned(0);
        self.queue.clear();
        self.asked = None;
        self.fetch = self.committed.unwrap_or(self.low);
        self.step_over();
    }

    /// What the client does silently when it is out of range.
    fn step_over(&mut self) {
        if self.fetch < self.low {
            for offset in self.fetch..self.low {
                if self.records.contains(&offset) && !self.read.contains(&offset) {
                    self.removed_unread.insert(offset);
                }
            }
            self.fetch = self.low;
        }
    }

    fn act(&mut self, step: &Step) {
        match *step {
            Step::Write(count, gap) => {
                self.records
                    .extend(self.high..self.high + count - i64::from(gap));
                self.high += count;
            }
            Step::Retain(count) => self.low = (self.low + count).min(self.high),
            Step::Fetch(count) => {
                self.step_over();
                let to = (self.fetch + count).min(self.high);
                self.queue.extend(self.records.range(self.fetch..to));
                self.fetch = to;
            }
            Step::Consume(count) => {
                let count = count.min(self.queue.len());
                if count == 0 {
                    self.drained += 1;
                }
                for offset in self.queue.drain(..count) {
                    self.watch.consumed(0, offset);
                    self.read.insert(offset);
                    // All that is consumed is committed, once it may be.
                    if self.watch.is_started(0) {
                        self.committed = Some(offset + 1);
                    }
                }
            }
            Step::Ask => {
                let unstarted = self.watch.unstarted();
                for (partition, asked) in unstarted {
                    self.watch.start_read(partition, asked, self.committed);
                }
                self.asked = self.watch.ask(0);
            }
            Step::Answer => {
                if let Some(asked) = self.asked.take() {
                    self.watch
                        .watermarks(0, asked, self.drained, self.low, self.high);
                }
            }
            Step::Restart => self.start(),
        }
        self.collect();
    }

    fn collect(&mut self) {
        for finding in self.watch.findings() {
            match finding {
                Finding::Lost { from, to, .. } => {
                    assert!(from < to, "{finding:?}");
                    for offset in from..to {
                        assert!(self.lost.insert(offset), "{offset} was reported twice");
                    }
                    assert!(to <= self.low, "{finding:?} is still there");
                }
                Finding::Reset { .. } => self.resets += 1,
            }
        }
    }

    /// The client reads all there is, and the watching thread has looked twice.
    fn settle(&mut self) {
        for _ in 0..3 {
            self.act(&Step::Fetch(i64::MAX / 4));
            self.act(&Step::Consume(usize::MAX));
            self.act(&Step::Ask);
            self.act(&Step::Answer);
            self.act(&Step::Consume(1));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens, and however late anyone looks.
    #[test]
    fn no_record_is_lost_silently_and_what_was_read_is_not_lost(
        steps in prop::collection::vec(step(), 1..80)
    ) {
        let mut bed = Bed::default();
        bed.start();
        // Where the group begins is known: what was there before is no loss.
        bed.committed = Some(0);
        for step in &steps {
            bed.act(step);
        }
        bed.settle();
        for offset in &bed.removed_unread {
            prop_assert!(bed.lost.contains(offset), "{offset} went silently; lost: {:?}", bed.lost);
        }
        prop_assert_eq!(bed.resets, 0);
        let account = bed.watch.accounts().get(&0).copied().unwrap_or_default();
        prop_assert_eq!(account.lost_to_retention, bed.lost.len() as u64);
    }

    /// Gaps of a compacted log are no losses, if retention keeps behind, and does
    /// not overtake the watching thread.
    #[test]
    fn nothing_is_lost_where_retention_keeps_behind(
        steps in prop::collection::vec(step(), 1..80)
    ) {
        let mut bed = Bed::default();
        bed.start();
        for step in &steps {
            match step {
                Step::Retain(count) => {
                    bed.act(&Step::Ask);
                    bed.act(&Step::Answer);
                    let behind = bed.committed.unwrap_or(0).min(bed.low + count);
                    bed.low = bed.low.max(behind);
                }
                step => bed.act(step),
            }
        }
        bed.settle();
        prop_assert!(bed.lost.is_empty(), "{:?}", bed.lost);
        prop_assert_eq!(bed.resets, 0);
    }
}

fn started(committed: Option<i64>) -> LogWatch {
    let mut watch = LogWatch::default();
    watch.assigned(0);
    for (partition, asked) in watch.unstarted() {
        watch.start_read(partition, asked, committed);
    }
    watch
}

fn look(watch: &mut LogWatch, drained: u64, low: i64, high: i64) -> Vec<Finding> {
    if let Some(asked) = watch.ask(0) {
        watch.watermarks(0, asked, drained, low, high);
    }
    watch.findings()
}

#[test]
fn what_retention_took_before_the_first_record_is_lost() {
    let mut watch = started(Some(40));
    watch.consumed(0, 55);
    let lost = Finding::Lost {
        partition: 0,
        from: 40,
        to: 55,
    };
    assert_eq!(look(&mut watch, 0, 55, 60), [lost]);
    assert_eq!(watch.accounts()[&0].lost_to_retention, 15);
    assert_eq!(look(&mut watch, 1, 55, 60), [], "once is enough");
}

/// The watermark has gone on past the records that were found in time.
#[test]
fn a_loss_ends_where_records_were_found() {
    let mut watch = started(Some(40));
    watch.consumed(0, 55);
    watch.consumed(0, 56);
    let lost = Finding::Lost {
        partition: 0,
        from: 40,
        to: 55,
    };
    assert_eq!(look(&mut watch, 0, 57, 60), [lost]);
}

#[test]
fn the_first_record_may_come_before_the_start_is_known() {
    let mut watch = LogWatch::default();
    watch.assigned(0);
    watch.consumed(0, 55);
    for (partition, asked) in watch.unstarted() {
        watch.start_read(partition, asked, Some(40));
    }
    assert_eq!(look(&mut watch, 0, 55, 60).len(), 1);
}

#[test]
fn a_gap_that_the_watermark_does_not_explain_is_no_loss() {
    let mut watch = started(Some(40));
    watch.consumed(0, 43);
    watch.consumed(0, 48);
    assert_eq!(look(&mut watch, 0, 12, 60), []);
    // Retention comes by later, over what was consumed.
    assert_eq!(look(&mut watch, 0, 48, 60), []);
}

#[test]
fn a_log_with_nothing_left_is_noticed_too_once_the_queue_was_empty() {
    let mut watch = started(Some(40));
    assert_eq!(look(&mut watch, 0, 70, 70), []);
    assert_eq!(look(&mut watch, 0, 70, 70), [], "its records may be queued");
    let lost = Finding::Lost {
        partition: 0,
        from: 40,
        to: 70,
    };
    assert_eq!(look(&mut watch, 1, 70, 70), [lost]);
    watch.consumed(0, 70);
    assert_eq!(look(&mut watch, 2, 70, 71), []);
}

#[test]
fn a_new_assignment_does_not_report_the_same_loss_again() {
    let mut watch = started(Some(40));
    watch.consumed(0, 55);
    assert_eq!(look(&mut watch, 0, 55, 60).len(), 1);
    watch.gone(0);
    watch.assigned(0);
    for (partition, asked) in watch.unstarted() {
        watch.start_read(partition, asked, Some(40));
    }
    watch.consumed(0, 58);
    let rest = Finding::Lost {
        partition: 0,
        from: 55,
        to: 58,
    };
    assert_eq!(look(&mut watch, 0, 58, 60), [rest]);
}

#[test]
fn a_position_beyond_the_end_is_a_reset() {
    let reset = Finding::Reset {
        partition: 0,
        expected: 40,
        found: 0,
    };
    let mut seen_by_its_records = started(Some(40));
    seen_by_its_records.consumed(0, 0);
    assert_eq!(look(&mut seen_by_its_records, 0, 0, 5), [reset]);

    let mut empty = started(Some(40));
    assert_eq!(look(&mut empty, 0, 0, 0), []);
    assert_eq!(look(&mut empty, 0, 0, 0), [reset]);
    empty.consumed(0, 0);
    assert_eq!(look(&mut empty, 0, 0, 1), []);
    assert_eq!(empty.accounts()[&0].resets, 1);

    let mut in_the_middle = started(Some(40));
    in_the_middle.consumed(0, 40);
    in_the_middle.consumed(0, 3);
    assert_eq!(in_the_middle.findings().len(), 1);
}

#[test]
fn answers_to_an_assignment_that_is_over_say_nothing() {
    let mut watch = LogWatch::default();
    watch.assigned(0);
    let old = watch.unstarted();
    watch.assigned(0);
    for (partition, asked) in old {
        watch.start_read(partition, asked, Some(7));
        watch.watermarks(partition, asked, 0, 100, 100);
    }
    assert!(!watch.is_started(0));
    assert_eq!(watch.findings(), []);
}
