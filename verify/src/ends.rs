//! Whether processes ended as they may, by the [journal](crate::journal). Pure.
//!
//! - after SIGTERM: exit 0, if the peers were healthy meanwhile; else an end in time
//!   in any case;
//! - by itself: a worker may, with an error, when something that it rests on was
//!   faulty shortly before (it stops when a dead letter or a commit fails for good,
//!   and is started again by whatever looks after it); `cdr up` may when a part of it
//!   was killed; nothing else;
//! - by a signal: only one that was sent.

use std::time::Duration;

use crate::journal::{Cause, Entry, Event, What};
use crate::plan::{Link, Target};
use crate::proxy::Fault;

/// How long after the end of a fault its consequences (retries, a group that moves
/// on) still excuse an end with an error.
pub const AFTERMATH: Duration = Duration::from_secs(15);

/// How long before the end of a worker by itself a fault may have begun to matter: its
/// retries and its last deliveries take as long.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a run has done and seen, in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// SIGKILLs.
    pub kills: u64,
    /// SIGTERMs.
    pub terms: u64,
    /// SIGSTOPs.
    pub freezes: u64,
    /// Times that a fault of a proxy began to hold.
    pub network_faults: u64,
    /// Ends that nobody had asked for.
    pub exits: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.kills += other.kills;
        self.terms += other.terms;
        self.freezes += other.freezes;
        self.network_faults += other.network_faults;
        self.exits += other.exits;
    }
}

/// Counts entries.
pub fn tally(entries: &[Entry]) -> Tally {
    let mut tally = Tally::default();
    for entry in entries {
        match &entry.event {
            Event::Process(_, What::Killed | What::ChildKilled(_)) => tally.kills += 1,
            Event::Process(_, What::Terminated) => tally.terms += 1,
            Event::Process(_, What::Frozen(_)) => tally.freezes += 1,
            Event::Process(
                _,
                What::Ended {
                    cause: Cause::Itself,
                    ..
                },
            ) => tally.exits += 1,
            Event::Network(_, fault) if *fault != Fault::Pass => tally.network_faults += 1,
            _ => {}
        }
    }
    tally
}

/// The ends that nobody had asked for, with their last words.
pub fn exits(entries: &[Entry]) -> Vec<String> {
    let by_itself = |entry: &&Entry| {
        let Event::Process(_, What::Ended { cause, .. }) = &entry.event else {
            return false;
        };
        *cause == Cause::Itself
    };
    entries
        .iter()
        .filter(by_itself)
        .map(Entry::to_string)
        .collect()
}

/// What is to be found fault with in the entries from `since` on; those before tell
/// what else was going on.
pub fn objections(entries: &[Entry], since: usize) -> Vec<String> {
    let mut found = Vec::new();
    for (at, entry) in entries.iter().enumerate().skip(since) {
        let Event::Process(target, what) = &entry.event else {
            continue;
        };
        match what {
            What::Overdue(_) | What::StartFailed(_) => found.push(entry.to_string()),
            What::Ended { cause, exit, .. } => {
                let is_right = match cause {
                    Cause::Killed => true,
                    Cause::ChildKilled => exit.code.is_some_and(|code| code != 0),
                    Cause::Terminated(after) => {
                        let from = entry.at.saturating_sub(*after);
                        exit.code == Some(0)
                            || (exit.code.is_some()
                                && is_disturbed(entries, *target, from, entry.at))
                    }
                    Cause::Itself => {
                        let from = entry.at.saturating_sub(PATIENCE);
                        // That it ended by itself is no excuse for that.
                        let others: Vec<_> = entries[..at]
                            .iter()
                            .filter(|entry| !ended_by_itself(entry, *target))
                            .cloned()
                            .collect();
                        target.is_worker()
                            && exit.code.is_some_and(|code| code != 0)
                            && is_disturbed(&others, *target, from, entry.at)
                    }
                };
                if !is_right {
                    found.push(entry.to_string());
                }
            }
            _ => {}
        }
    }
    found
}

fn ended_by_itself(entry: &Entry, target: Target) -> bool {
    matches!(
        &entry.event,
        Event::Process(of, What::Ended { cause: Cause::Itself, .. }) if *of == target
    )
}

/// Whether ClickHouse, or the way to it, was faulty or still recovering at any time
/// from the entry `since` on, or shortly before it: only then may good records have
/// been given up.
pub fn clickhouse_was_disturbed(entries: &[Entry], since: usize) -> bool {
    let Some(first) = entries.get(since) else {
        return false;
    };
    let from = first.at.saturating_sub(PATIENCE);
    let to = entries.last().map_or(from, |last| last.at);
    let process = entries.iter().filter_map(|entry| match &entry.event {
        // `cdr up` stands for its parts.
        Event::Process(Target::ClickHouse | Target::Up, what) => Some((entry.at, disturbs(what)?)),
        _ => None,
    });
    let link = entries.iter().filter_map(|entry| match &entry.event {
        Event::Network(Link::ClickHouse, fault) => Some((entry.at, *fault != Fault::Pass)),
        _ => None,
    });
    overlaps(process, from, to) || overlaps(link, from, to)
}

/// Whether something that `target` rests on was faulty, or still recovering, at any
/// time from `from` to `to`.
fn is_disturbed(entries: &[Entry], target: Target, from: Duration, to: Duration) -> bool {
    let peers: &[Target] = match target {
        Target::Api => &[Target::Api, Target::Kafka],
        Target::Up => &[Target::Up],
        _ => &[target, Target::Kafka, Target::ClickHouse],
    };
    let links: &[Link] = match target {
        Target::Api => &[Link::Kafka],
        _ => &[Link::Kafka, Link::ClickHouse],
    };
    let of_processes = peers.iter().any(|peer| {
        let states = entries.iter().filter_map(|entry| match &entry.event {
            Event::Process(of, what) if of == peer => Some((entry.at, disturbs(what)?)),
            _ => None,
        });
        overlaps(states, from, to)
    });
    let of_links = links.iter().any(|link| {
        let states = entries.iter().filter_map(|entry| match &entry.event {
            Event::Network(of, fault) if of == link => Some((entry.at, *fault != Fault::Pass)),
            _ => None,
        });
        overlaps(states, from, to)
    });
    of_processes || of_links
}

/// Whether a process is out of order after this; none if that does not say.
fn disturbs(what: &What) -> Option<bool> {
    match what {
        What::Killed | What::ChildKilled(_) | What::Frozen(_) => Some(true),
        What::Started { .. } | What::Thawed => Some(false),
        What::Ended {
            cause: Cause::Itself,
            ..
        } => Some(true),
        _ => None,
    }
}

/// Whether a state that comes and goes holds, or has gone less than [`AFTERMATH`]
/// ago, at any time from `from` to `to`.
fn overlaps(changes: impl Iterator<Item = (Duration, bool)>, from: Duration, to: Duration) -> bool {
    let mut began = None;
    for (at, holds) in changes {
        match (holds, began) {
            (true, None) => began = Some(at),
            (false, Some(start)) => {
                if start <= to && at + AFTERMATH >= from {
                    return true;
                }
                began = None;
            }
            _ => {}
        }
    }
    began.is_some_and(|start| start <= to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Exit;

    fn at(seconds: u64, event: Event) -> Entry {
        Entry {
            at: Duration::from_secs(seconds),
            event,
        }
    }

    fn ended(seconds: u64, target: Target, cause: Cause, code: i32) -> Entry {
        let what = What::Ended {
            cause,
            exit: Exit {
                code: Some(code),
                signal: None,
            },
            words: String::new(),
        };
        at(seconds, Event::Process(target, what))
    }

    fn terminated() -> Cause {
        Cause::Terminated(Duration::from_secs(2))
    }

    #[test]
    fn a_drain_that_fails_is_excused_by_faults_of_peers_only() {
        let fails = ended(102, Target::Worker1, terminated(), 1);
        let quiet = [fails.clone()];
        assert_eq!(objections(&quiet, 0).len(), 1);

        let net = |seconds, fault| at(seconds, Event::Network(Link::ClickHouse, fault));
        let during = [net(99, Fault::Hang), fails.clone(), net(103, Fault::Pass)];
        assert_eq!(objections(&during, 0), [""; 0]);
        let just_before = [net(90, Fault::Hang), net(95, Fault::Pass), fails.clone()];
        assert_eq!(objections(&just_before, 0), [""; 0]);
        let long_before = [net(50, Fault::Hang), net(55, Fault::Pass), fails.clone()];
        assert_eq!(objections(&long_before, 0).len(), 1);
        let killed = |of| at(101, Event::Process(of, What::Killed));
        assert_eq!(
            objections(&[killed(Target::Kafka), fails.clone()], 0),
            [""; 0]
        );
        let of_another = [killed(Target::Worker2), fails];
        assert_eq!(objections(&of_another, 0).len(), 1);
    }

    #[test]
    fn clickhouse_is_no_excuse_for_the_api() {
        let entries = [
            at(99, Event::Network(Link::ClickHouse, Fault::Cut)),
            ended(102, Target::Api, terminated(), 1),
        ];
        assert_eq!(objections(&entries, 0).len(), 1);
    }

    #[test]
    fn only_workers_may_end_by_themselves_and_only_with_an_error() {
        let fault = at(1, Event::Network(Link::Kafka, Fault::Hang));
        for (target, code, count) in [
            (Target::Worker1, 1, 0),
            (Target::Worker2, 0, 1),
            (Target::Api, 1, 1),
            (Target::ClickHouse, 1, 1),
        ] {
            let entries = [fault.clone(), ended(5, target, Cause::Itself, code)];
            assert_eq!(objections(&entries, 0).len(), count, "{target} {code}");
            let healthy = [ended(5, target, Cause::Itself, code)];
            assert_eq!(objections(&healthy, 0).len(), 1, "{target} {code}");
            assert_eq!(tally(&entries).exits, 1);
        }
        let crashed = What::Ended {
            cause: Cause::Itself,
            exit: Exit {
                code: None,
                signal: Some(11),
            },
            words: String::new(),
        };
        let entries = [at(5, Event::Process(Target::Worker1, crashed))];
        assert_eq!(objections(&entries, 0).len(), 1);
    }

    #[test]
    fn records_are_given_up_only_where_clickhouse_was_disturbed() {
        let quiet = at(100, Event::Note("begins".to_owned()));
        let later = at(130, Event::Note("settling".to_owned()));
        let net = |seconds, fault| at(seconds, Event::Network(Link::ClickHouse, fault));
        let of_kafka = at(110, Event::Network(Link::Kafka, Fault::Hang));
        let healthy = [quiet.clone(), of_kafka, later.clone()];
        assert!(!clickhouse_was_disturbed(&healthy, 0));
        let during = [
            quiet.clone(),
            net(110, Fault::Hang),
            net(112, Fault::Pass),
            later.clone(),
        ];
        assert!(clickhouse_was_disturbed(&during, 0));
        let long_before = [net(1, Fault::Hang), net(5, Fault::Pass), quiet, later];
        assert!(!clickhouse_was_disturbed(&long_before, 2));
    }

    #[test]
    fn an_end_that_takes_too_long_is_never_excused() {
        let entries = [
            at(1, Event::Network(Link::Kafka, Fault::Hang)),
            at(
                60,
                Event::Process(Target::Worker1, What::Overdue(Duration::from_secs(55))),
            ),
        ];
        assert_eq!(objections(&entries, 0).len(), 1);
        assert_eq!(
            objections(&entries, 2).len(),
            0,
            "that was an earlier round's"
        );
    }
}
