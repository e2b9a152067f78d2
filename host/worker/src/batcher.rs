//! When to normalize and when to insert. Pure: time comes in as an argument.
//!
//! ```text
//!  consumed ──▶ pending ──normalize──▶ rows ──flush──▶ ClickHouse
//!                                └──▶ dead letters, at once
//! ```
//!
//! Rows are flushed at a number of rows, a number of bytes, or an age, whichever
//! comes first. Records wait in `pending` only to share a call of the
//! normalizer with others: for a full batch, or for [`Policy::linger`].
//! Invalid records never make rows flush early.

use std::time::{Duration, Instant};

/// The thresholds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Rows of an insert (`BATCH_SIZE`).
    pub rows: usize,
    /// Bytes of the payloads behind an insert (`BATCH_MAX_BYTES`).
    pub bytes: usize,
    /// How old the oldest record of an insert may get
    /// (`BATCH_FLUSH_INTERVAL_SECONDS`).
    pub interval: Duration,
    /// How long a record waits for others to be normalized with.
    pub linger: Duration,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Normalize so many pending records.
    Normalize(usize),
    /// Insert the rows.
    Flush,
    /// Nothing before this time, unless a record comes.
    Wait(Option<Instant>),
}

/// What is waiting on one side.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Waiting {
    count: usize,
    bytes: usize,
    /// When the oldest of them was consumed.
    since: Option<Instant>,
}

impl Waiting {
    fn add(&mut self, bytes: usize, since: Instant) {
        self.count += 1;
        self.bytes += bytes;
        self.since = Some(self.since.map_or(since, |oldest| oldest.min(since)));
    }
}

/// Counts what waits, and says what to do.
#[derive(Debug, Clone)]
pub struct Batcher {
    policy: Policy,
    pending: Waiting,
    rows: Waiting,
}

impl Batcher {
    /// Nothing waiting.
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            pending: Waiting::default(),
            rows: Waiting::default(),
        }
    }

    /// A record was consumed.
    pub fn consumed(&mut self, bytes: usize, now: Instant) {
        self.pending.add(bytes, now);
    }

    /// All pending records went to the normalizer but for `left`, each with its
    /// size and when it was consumed.
    pub fn normalized(&mut self, left: impl IntoIterator<Item = (usize, Instant)>) {
        self.pending = Waiting::default();
        for (bytes, since) in left {
            self.pending.add(bytes, since);
        }
    }

    /// Rows were dropped; these are left, each with its size and when its record
    /// was consumed.
    pub fn rows_left(&mut self, left: impl IntoIterator<Item = (usize, Instant)>) {
        self.rows = Waiting::default();
        for (bytes, since) in left {
            self.rows.add(bytes, since);
        }
    }

    /// A record that was consumed at `since` became a row.
    pub fn row(&mut self, bytes: usize, since: Instant) {
        self.rows.add(bytes, since);
    }

    /// The rows went to ClickHouse.
    pub fn flushed(&mut self) {
        self.rows = Waiting::default();
    }

    /// Records that wait to be normalized.
    pub fn pending(&self) -> usize {
        self.pending.count
    }

    /// Rows that wait to be inserted.
    pub fn rows(&self) -> usize {
        self.rows.count
    }

    /// Whether another record may be taken: at most a batch waits on either side.
    pub fn has_room(&self) -> bool {
        self.pending.count < self.policy.rows && self.pending.bytes < self.policy.bytes
    }

    /// What to do at `now`. In a hurry (a drain, a partition that is to be given
    /// back) nothing waits for company.
    pub fn next(&self, now: Instant, hurry: bool) -> Action {
        let policy = &self.policy;
        let is_due = |since: Option<Instant>, after: Duration| {
            since.is_some_and(|since| now.saturating_duration_since(since) >= after)
        };
        if self.rows.count > 0
            && (self.rows.count >= policy.rows
                || self.rows.bytes >= policy.bytes
                || is_due(self.rows.since, policy.interval)
                || (hurry && self.pending.count == 0))
        {
            return Action::Flush;
        }
        if self.pending.count > 0
            && (hurry
                || self.pending.count + self.rows.count >= policy.rows
                || self.pending.bytes + self.rows.bytes >= policy.bytes
                || is_due(self.pending.since, policy.linger.min(policy.interval)))
        {
            // Never more than the rows of one insert have room for.
            let room = policy.rows.saturating_sub(self.rows.count).max(1);
            return Action::Normalize(self.pending.count.min(room));
        }
        let deadline = [
            self.rows.since.map(|since| since + policy.interval),
            self.pending
                .since
                .map(|since| since + policy.linger.min(policy.interval)),
        ];
        Action::Wait(deadline.into_iter().flatten().min())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn policy() -> Policy {
        Policy {
            rows: 10,
            bytes: 1000,
            interval: Duration::from_secs(2),
            linger: Duration::from_millis(20),
        }
    }

    #[test]
    fn rows_flush_at_the_first_threshold_reached() {
        let start = Instant::now();
        let mut by_rows = Batcher::new(policy());
        for _ in 0..9 {
            by_rows.row(1, start);
        }
        assert!(matches!(by_rows.next(start, false), Action::Wait(_)));
        by_rows.row(1, start);
        assert_eq!(by_rows.next(start, false), Action::Flush);

        let mut by_bytes = Batcher::new(policy());
        by_bytes.row(1000, start);
        assert_eq!(by_bytes.next(start, false), Action::Flush);

        let mut by_time = Batcher::new(policy());
        by_time.row(1, start);
        let due = start + Duration::from_secs(2);
        assert_eq!(by_time.next(start, false), Action::Wait(Some(due)));
        assert_eq!(by_time.next(due, false), Action::Flush);
    }

    #[test]
    fn invalid_records_do_not_flush_rows_early() {
        let start = Instant::now();
        let mut batcher = Batcher::new(policy());
        batcher.row(1, start);
        for _ in 0..50 {
            batcher.consumed(1, start);
            if let Action::Normalize(_) = batcher.next(start, false) {
                batcher.normalized([]); // all of them invalid
            }
        }
        assert!(matches!(
            batcher.next(start + Duration::from_millis(100), false),
            Action::Normalize(_) | Action::Wait(_)
        ));
        assert_eq!(batcher.rows(), 1);
    }

    #[test]
    fn dropped_rows_no_longer_count() {
        let start = Instant::now();
        let mut batcher = Batcher::new(policy());
        for _ in 0..10 {
            batcher.row(1, start);
        }
        let later = start + Duration::from_secs(1);
        batcher.rows_left([(1, later)]);
        assert_eq!(batcher.rows(), 1);
        assert_eq!(
            batcher.next(later, false),
            Action::Wait(Some(later + Duration::from_secs(2)))
        );
        batcher.rows_left([]);
        assert_eq!(batcher.next(later, true), Action::Wait(None));
    }

    #[test]
    fn in_a_hurry_nothing_waits() {
        let start = Instant::now();
        let mut batcher = Batcher::new(policy());
        batcher.consumed(1, start);
        batcher.row(1, start);
        assert!(matches!(batcher.next(start, false), Action::Wait(_)));
        assert_eq!(batcher.next(start, true), Action::Normalize(1));
        batcher.normalized([]);
        assert_eq!(batcher.next(start, true), Action::Flush);
    }

    #[test]
    fn the_age_of_rows_is_that_of_the_oldest_record() {
        let start = Instant::now();
        let later = start + Duration::from_secs(1);
        let mut batcher = Batcher::new(policy());
        batcher.row(1, later);
        batcher.row(1, start);
        assert_eq!(
            batcher.next(later, false),
            Action::Wait(Some(start + Duration::from_secs(2)))
        );
    }

    proptest! {
        /// Whatever comes, draining ends with nothing waiting, no insert has more
        /// rows than set, and nothing waits longer than its interval allows.
        #[test]
        fn everything_gets_out(
            records in prop::collection::vec((1_usize..300, any::<bool>(), 0_u64..50), 0..200)
        ) {
            let policy = policy();
            let mut batcher = Batcher::new(policy.clone());
            let mut pending: Vec<(usize, bool, Instant)> = Vec::new();
            let (mut rows, mut inserted, mut rejected) = (0, 0, 0);
            let mut oldest_row: Option<Instant> = None;
            let mut now = Instant::now();
            let total = records.len();
            let mut incoming = records.into_iter();
            loop {
                let next = incoming.next();
                let draining = next.is_none();
                if let Some((bytes, valid, wait)) = next {
                    now += Duration::from_millis(wait);
                    pending.push((bytes, valid, now));
                    batcher.consumed(bytes, now);
                }
                loop {
                    match batcher.next(now, draining) {
                        Action::Normalize(count) => {
                            prop_assert!(count >= 1 && count <= pending.len());
                            let rest = pending.split_off(count);
                            let taken = std::mem::replace(&mut pending, rest);
                            batcher.normalized(pending.iter().map(|(bytes, _, at)| (*bytes, *at)));
                            for (bytes, valid, at) in taken {
                                if valid {
                                    rows += 1;
                                    oldest_row = Some(oldest_row.map_or(at, |old: Instant| old.min(at)));
                                    batcher.row(bytes, at);
                                } else {
                                    rejected += 1;
                                }
                            }
                        }
                        Action::Flush => {
                            prop_assert!(rows >= 1 && rows <= policy.rows);
                            inserted += rows;
                            rows = 0;
                            oldest_row = None;
                            batcher.flushed();
                        }
                        Action::Wait(deadline) => {
                            if let Some(deadline) = deadline {
                                prop_assert!(deadline > now);
                            }
                            if let Some(oldest) = oldest_row {
                                prop_assert!(now - oldest < policy.interval);
                            }
                            prop_assert!(batcher.has_room());
                            break;
                        }
                    }
                }
                if draining {
                    break;
                }
            }
            prop_assert_eq!(inserted + rejected, total);
        }
    }
}
