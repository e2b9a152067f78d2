//! Plans: the same from the same seed, and nothing is out of reach.

use std::collections::BTreeSet;
use std::time::Duration;

use cdr_verify::plan::{Action, Link, Parts, Plan, Target, next_seed, plan};
use cdr_verify::proxy::Fault;

const POSTING: Duration = Duration::from_secs(8);
/// Far more than any kind of fault needs to come up.
const MANY: u64 = 3000;

fn plans(parts: Parts) -> impl Iterator<Item = Plan> {
    (0..MANY).map(move |seed| plan(seed, parts, POSTING))
}

fn actions(parts: Parts) -> impl Iterator<Item = Action> {
    plans(parts).flat_map(|plan| plan.steps.into_iter().map(|step| step.action))
}

#[test]
fn the_same_seed_gives_the_same_plan_and_another_another() {
    for parts in [Parts::ApacheKafka, Parts::Embedded] {
        let first = plan(4711, parts, POSTING);
        assert_eq!(first, plan(4711, parts, POSTING));
        assert_eq!(first.seed, 4711);
        assert_ne!(first.steps, plan(4712, parts, POSTING).steps);
    }
}

#[test]
fn a_round_can_be_run_alone_by_its_own_seed() {
    let mut seed = 99;
    let mut seen = BTreeSet::new();
    for _ in 0..50 {
        // The first round of a run with this seed, and one of many in another.
        let alone = plan(seed, Parts::ApacheKafka, POSTING);
        assert_eq!(alone.seed, seed);
        assert!(seen.insert(seed), "seeds do not come again");
        seed = next_seed(seed);
    }
}

#[test]
fn every_fault_is_reached_on_every_part() {
    let mut reached = BTreeSet::new();
    for action in actions(Parts::ApacheKafka) {
        reached.insert(match action {
            Action::Kill { target, .. } => format!("kill {target}"),
            Action::Terminate { target, .. } => format!("term {target}"),
            Action::Freeze { target, .. } => format!("freeze {target}"),
            Action::Network {
                link, fault, pulse, ..
            } => {
                let fault = match fault {
                    Fault::Pass => "pass",
                    Fault::Refuse => "refuse",
                    Fault::Delay(_) => "delay",
                    Fault::Hang => "hang",
                    Fault::Cut => "cut",
                    Fault::CutAfterWrite => "cut-after-write",
                    Fault::CutMidRequest(_) => "cut-mid-request",
                };
                let pulsing = if pulse.is_some() { " in pulses" } else { "" };
                format!("{link} {fault}{pulsing}")
            }
        });
    }
    let mut expected = BTreeSet::new();
    for target in Target::APART {
        expected.insert(format!("kill {target}"));
        expected.insert(format!("freeze {target}"));
        if matches!(target, Target::Api) || target.is_worker() {
            expected.insert(format!("term {target}"));
        }
    }
    for link in [Link::Kafka, Link::ClickHouse] {
        for fault in ["refuse", "delay", "hang"] {
            expected.insert(format!("{link} {fault}"));
        }
        for fault in ["cut", "cut-after-write", "cut-mid-request"] {
            expected.insert(format!("{link} {fault}"));
            expected.insert(format!("{link} {fault} in pulses"));
        }
    }
    assert_eq!(reached, expected);
}

#[test]
fn cdr_up_and_each_of_its_children_are_killed_and_nothing_else_is_done() {
    let mut killed = BTreeSet::new();
    for action in actions(Parts::Embedded) {
        match action {
            Action::Kill { target, .. } => killed.insert(target),
            Action::Terminate { target, .. } => {
                assert_eq!(target, Target::Up);
                false
            }
            other => panic!("{other}"),
        };
    }
    assert_eq!(killed, Target::EMBEDDED.into());
}

#[test]
fn plans_keep_to_their_bounds() {
    let longest = Duration::from_secs(8);
    let mut beyond_the_session = false;
    let mut overlapping = false;
    for plan in plans(Parts::ApacheKafka) {
        assert!((1..=4).contains(&plan.steps.len()), "{plan}");
        assert!(plan.steps.is_sorted_by_key(|step| step.at), "{plan}");
        let mut over = Duration::ZERO;
        for step in &plan.steps {
            assert!(step.at < POSTING, "{plan}");
            let lasts = match step.action {
                Action::Kill { again_after, .. } | Action::Terminate { again_after, .. } => {
                    assert!(again_after <= Duration::from_secs(2), "{plan}");
                    again_after
                }
                Action::Freeze { target, lasts } => {
                    assert!(lasts >= Duration::from_secs(1), "{plan}");
                    beyond_the_session |= target.is_worker() && lasts > Duration::from_secs(6);
                    lasts
                }
                Action::Network { lasts, .. } => {
                    assert!(lasts >= Duration::from_millis(500), "{plan}");
                    lasts
                }
            };
            assert!(lasts <= longest, "{plan}");
            overlapping |= step.at < over;
            over = over.max(step.at + lasts);
        }
    }
    assert!(beyond_the_session, "a zombie wakes up at times");
    assert!(overlapping, "faults overlap at times");
}

#[test]
fn short_rounds_have_plans_too() {
    for seed in 0..200 {
        let short = Duration::from_secs(1);
        let plan = plan(seed, Parts::ApacheKafka, short);
        assert!(plan.steps.iter().all(|step| step.at < short), "{plan}");
    }
}
