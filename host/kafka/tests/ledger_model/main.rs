//! Every schedule of a small world, exhaustively: whatever the order of poll,
//! complete, revoke, expel, assign, commit and crash, no offset is committed
//! whose record has no durable outcome, no partition that is gone is committed,
//! the counts balance, and from every state all can still be committed.
//!
//! The real ledger is driven, not a copy of its rules. Each world is small in
//! another direction; the floors keep the model from shrinking unnoticed.

mod commits;
mod explore;
mod oracle;
mod world;

use explore::explore;
use world::{Budget, Flaw, Setup};

const fn budget(moves: u8, crashes: u8, faults: u8) -> Budget {
    Budget {
        moves,
        crashes,
        faults,
    }
}

fn nothing_is_lost(name: &str, setup: &Setup, floor: usize) {
    let seen = explore(setup).unwrap_or_else(|found| panic!("{name}: {found}"));
    println!("{name}: {seen}");
    assert!(seen.states >= floor, "{name} shrank to {seen}");
}

#[test]
fn with_a_gap_a_move_and_a_crash() {
    let setup = Setup {
        logs: &[&[10, 11, 13]],
        both_outcomes: false,
        budget: budget(1, 1, 0),
        flaw: None,
    };
    nothing_is_lost("three records", &setup, 30_000);
}

#[test]
#[ignore = "five times as large as the others; a minute without optimisation"]
fn with_all_of_it_at_once() {
    let one = Setup {
        logs: &[&[10, 11, 13]],
        both_outcomes: false,
        budget: budget(1, 1, 1),
        flaw: None,
    };
    nothing_is_lost("one partition", &one, 110_000);
    let two = Setup {
        logs: &[&[10, 12], &[20]],
        both_outcomes: false,
        budget: budget(1, 0, 1),
        flaw: None,
    };
    nothing_is_lost("two partitions with a failed commit", &two, 210_000);
}

#[test]
fn with_a_partition_that_moves_there_and_back() {
    let setup = Setup {
        logs: &[&[10, 12]],
        both_outcomes: false,
        budget: budget(2, 0, 1),
        flaw: None,
    };
    nothing_is_lost("two moves", &setup, 37_000);
}

#[test]
fn with_more_records_in_flight() {
    let setup = Setup {
        logs: &[&[10, 11, 13, 14]],
        both_outcomes: false,
        budget: budget(1, 0, 0),
        flaw: None,
    };
    nothing_is_lost("four records", &setup, 35_000);
}

#[test]
fn with_rows_and_dead_letters_in_every_order() {
    let setup = Setup {
        logs: &[&[10, 12]],
        both_outcomes: true,
        budget: budget(1, 1, 1),
        flaw: None,
    };
    nothing_is_lost("both outcomes", &setup, 12_000);
}

#[test]
fn with_two_partitions_in_one_commit() {
    let setup = Setup {
        logs: &[&[10, 12], &[20]],
        both_outcomes: false,
        budget: budget(1, 0, 0),
        flaw: None,
    };
    nothing_is_lost("two partitions", &setup, 60_000);
}

/// The model is worth something only if it sees what peers did wrong.
fn is_seen(flaw: Flaw, words: &str) {
    let setup = Setup {
        logs: &[&[10, 12]],
        both_outcomes: false,
        budget: budget(1, 1, 1),
        flaw: Some(flaw),
    };
    match explore(&setup) {
        Ok(seen) => panic!("{flaw:?} was not seen in {seen}"),
        Err(found) => {
            println!("{flaw:?}: {found}");
            assert!(found.wrong.contains(words), "{flaw:?}: {found}");
        }
    }
}

/// vector#24543: a rejected offset was skipped and the next one committed.
#[test]
fn committing_beyond_the_contiguous_prefix_is_seen() {
    is_seen(Flaw::CommitsPositions, "has no outcome");
}

/// arroyo dlq: an offset was committed before its dead letter was acknowledged.
#[test]
fn settling_before_the_outcome_is_seen() {
    is_seen(Flaw::SettlesBeforeTheOutcome, "has no outcome");
}

/// redpanda connect #4009, #4477: a late acknowledgement committed a partition
/// that was gone.
#[test]
fn forgetting_a_revocation_is_seen() {
    is_seen(Flaw::ForgetsRevocations, "a partition that was gone");
}

/// snuba#4623: a failure counted as success.
#[test]
fn believing_a_refused_commit_is_seen() {
    is_seen(Flaw::BelievesRefusals, "stuck");
}
