//! Does every partition get on? Pure: time comes in as an argument.
//!
//! A partition with lag must move its committed offset within a budget, whatever
//! else works: a consumer that polls, a pipeline that inserts and a broker that
//! answers are no help to the record that is stuck (rust-rdkafka#840: a
//! partition was silent for days while everything looked well). Where lag can't
//! be read, it counts as there: a stuck process is never green.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Stands for the whole topic, as a worker without partitions sees it: a spare one
/// is fine as long as the group gets on.
pub const WHOLE_TOPIC: i32 = -1;

/// A partition as it is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sighting {
    /// The partition, or [`WHOLE_TOPIC`].
    pub partition: i32,
    /// Its assignment: one that came back starts anew.
    pub generation: u64,
    /// The committed next offset; none before the first commit.
    pub committed: Option<i64>,
    /// Records that are not committed yet; none when that could not be read.
    pub lag: Option<i64>,
}

/// A partition that does not get on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Stall {
    /// The partition, or [`WHOLE_TOPIC`].
    pub partition: i32,
    /// For how long its committed offset has not moved, in seconds.
    pub seconds: u64,
    /// Records that wait, as far as is known.
    pub lag: Option<i64>,
}

impl std::fmt::Display for Stall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            partition,
            seconds,
            lag,
        } = self;
        match lag {
            Some(lag) if *partition == WHOLE_TOPIC => write!(
                f,
                "this worker holds no partitions, {lag} records wait, and nobody in its group committed anything for {seconds} s"
            ),
            None if *partition == WHOLE_TOPIC => write!(
                f,
                "this worker has held no partitions for {seconds} s, and how its group stands could not be read"
            ),
            Some(lag) => write!(
                f,
                "partition {partition} has {lag} records waiting and committed nothing for {seconds} s"
            ),
            None => write!(
                f,
                "partition {partition} committed nothing for {seconds} s, and its lag could not be read"
            ),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    generation: u64,
    committed: Option<i64>,
    since: Instant,
}

/// Remembers when each partition last got on.
#[derive(Debug)]
pub struct Watchdog {
    budget: Duration,
    seen: BTreeMap<i32, Seen>,
}

impl Watchdog {
    /// `budget`: how long a partition with lag may stand still.
    pub fn new(budget: Duration) -> Self {
        Self {
            budget,
            seen: BTreeMap::new(),
        }
    }

    /// Looks at all partitions that are held now. Returns those that have stood
    /// still for longer than the budget.
    pub fn look(&mut self, now: Instant, partitions: &[Sighting]) -> Vec<Stall> {
        self.seen
            .retain(|partition, _| partitions.iter().any(|s| s.partition == *partition));
        let mut stalls = Vec::new();
        for sighting in partitions {
            let fresh = Seen {
                generation: sighting.generation,
                committed: sighting.committed,
                since: now,
            };
            let seen = self.seen.entry(sighting.partition).or_insert(fresh);
            let moved = seen.generation != sighting.generation
                || seen.committed != sighting.committed
                || sighting.lag.is_some_and(|lag| lag <= 0);
            if moved {
                *seen = fresh;
            }
            let still = now.saturating_duration_since(seen.since);
            if still > self.budget {
                stalls.push(Stall {
                    partition: sighting.partition,
                    seconds: still.as_secs(),
                    lag: sighting.lag,
                });
            }
        }
        stalls
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BUDGET: Duration = Duration::from_secs(60);

    fn at(partition: i32, committed: i64, lag: Option<i64>) -> Sighting {
        Sighting {
            partition,
            generation: 1,
            committed: Some(committed),
            lag,
        }
    }

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    /// A member whose join never ends, beside a spare one of a group that gets on.
    #[test]
    fn a_worker_without_partitions_is_judged_by_its_group() {
        let start = Instant::now();
        let whole = |committed, lag| at(WHOLE_TOPIC, committed, lag);
        let mut stuck = Watchdog::new(BUDGET);
        let mut spare = Watchdog::new(BUDGET);
        let mut idle = Watchdog::new(BUDGET);
        for second in 0..=61 {
            let now = after(start, second);
            let stalls = stuck.look(now, &[whole(5, Some(10))]);
            assert_eq!(stalls.len(), usize::from(second == 61), "{second}");
            assert_eq!(spare.look(now, &[whole(second as i64, Some(10))]), []);
            assert_eq!(idle.look(now, &[whole(5, Some(0))]), []);
        }
        let stall = stuck.look(after(start, 62), &[whole(5, None)])[0].to_string();
        assert!(stall.contains("no partitions for 62 s"), "{stall}");
    }

    /// rust-rdkafka#840, #535: one silent partition among busy ones.
    #[test]
    fn a_silent_partition_is_named_though_others_get_on() {
        let start = Instant::now();
        let mut watchdog = Watchdog::new(BUDGET);
        for second in 0..=60 {
            let now = after(start, second);
            let both = [at(0, 5, Some(10)), at(1, second as i64, Some(10))];
            assert_eq!(watchdog.look(now, &both), []);
        }
        let stalls = watchdog.look(after(start, 61), &[at(0, 5, Some(10)), at(1, 61, Some(3))]);
        assert_eq!(stalls.len(), 1);
        assert_eq!((stalls[0].partition, stalls[0].seconds), (0, 61));
        assert!(stalls[0].to_string().contains("10 records waiting"));
        // It gets on again, and is forgotten.
        assert_eq!(watchdog.look(after(start, 62), &[at(0, 6, Some(9))]), []);
    }

    #[test]
    fn an_idle_partition_is_none_that_stands_still() {
        let start = Instant::now();
        let mut watchdog = Watchdog::new(BUDGET);
        for second in (0..1000).step_by(10) {
            assert_eq!(
                watchdog.look(after(start, second), &[at(0, 5, Some(0))]),
                []
            );
        }
        // Its first record has the whole budget.
        assert_eq!(watchdog.look(after(start, 1040), &[at(0, 5, Some(1))]), []);
        assert_eq!(
            watchdog
                .look(after(start, 1060), &[at(0, 5, Some(1))])
                .len(),
            1
        );
    }

    #[test]
    fn lag_that_can_not_be_read_is_no_excuse() {
        let start = Instant::now();
        let mut watchdog = Watchdog::new(BUDGET);
        assert_eq!(watchdog.look(start, &[at(0, 5, None)]), []);
        let stalls = watchdog.look(after(start, 61), &[at(0, 5, None)]);
        assert_eq!(stalls.len(), 1);
        assert!(stalls[0].to_string().contains("could not be read"));
    }

    #[test]
    fn a_partition_that_comes_back_starts_anew() {
        let start = Instant::now();
        let mut watchdog = Watchdog::new(BUDGET);
        watchdog.look(start, &[at(0, 5, Some(9))]);
        let back = Sighting {
            generation: 2,
            ..at(0, 5, Some(9))
        };
        assert_eq!(watchdog.look(after(start, 100), &[back]), []);
        // Gone in between, with the same generation: anew as well.
        assert_eq!(watchdog.look(after(start, 130), &[]), []);
        assert_eq!(watchdog.look(after(start, 170), &[back]), []);
    }

    proptest! {
        /// A partition is named exactly when its committed offset was the same,
        /// with lag, at every look of more than the budget.
        #[test]
        fn named_exactly_when_it_stood_still(
            looks in prop::collection::vec((1u64..40, 0i64..3, prop::option::of(0i64..2)), 1..60)
        ) {
            let start = Instant::now();
            let mut watchdog = Watchdog::new(BUDGET);
            let mut history: Vec<(u64, i64, Option<i64>)> = Vec::new();
            let mut second = 0;
            for (wait, committed, lag) in looks {
                second += wait;
                history.push((second, committed, lag));
                let named = !watchdog
                    .look(after(start, second), &[at(0, committed, lag)])
                    .is_empty();
                // Since the last look at which it moved or had no lag.
                let still_since = history
                    .iter()
                    .enumerate()
                    .rev()
                    .find(|&(i, &(_, here, lag))| {
                        i == 0 || history[i - 1].1 != here || lag == Some(0)
                    })
                    .map(|(_, &(at, ..))| at)
                    .unwrap();
                prop_assert_eq!(named, second - still_since > BUDGET.as_secs());
            }
        }
    }
}
