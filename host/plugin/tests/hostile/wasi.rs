//! Every part of WASI that may be imported: it is there, so that standard
//! libraries run, and it grants nothing.

use crate::common::{load_hostile, reference};
use crate::promises::{answer, only_the_poison_fails, said};
use cdr_plugin_host::FaultKind::{self, ContractViolation, Memory, ResultSize, Trap};

/// What a guest asks, and what it is told.
const ANSWERS: [(&str, &str); 25] = [
    ("environment", "[]"),
    ("arguments", "[]"),
    ("working directory", "None"),
    ("directories", "0"),
    ("read a file", "refused: "),
    ("write a file", "refused: "),
    ("list a directory", "refused: "),
    ("read input", "Err(StreamError::Closed)"),
    ("wait for input", "Err(StreamError::Closed)"),
    ("skip input", "Err(StreamError::Closed)"),
    ("input to output", "Err(StreamError::Closed)"),
    ("poll input", "[0, 1]"),
    ("write output", "Ok(())"),
    ("terminals", "false false false"),
    ("wall clock", "0.0 by 1.0"),
    ("monotonic clock", "0 then 0"),
    ("std clocks", "Ok(0ns) 0ns"),
    ("random bytes", "653a402e653a402e653a402e653a402e"),
    ("insecure random bytes", "653a402e653a402e653a402e653a402e"),
    ("random number", ""),
    ("insecure random number", ""),
    ("random seed", ""),
    ("random hash", ""),
    ("bits of a NaN", "7ff8000000000000"),
    ("memory", ""),
];

/// What a guest asks for and may not have.
const REFUSALS: [(&str, FaultKind, &str); 10] = [
    ("sleep", Trap, "may not sleep"),
    ("wait for an instant", Trap, "may not sleep"),
    ("wait for nothing", ContractViolation, "empty poll list"),
    ("much random", ContractViolation, "exceeds limit"),
    ("much insecure random", ContractViolation, "exceeds limit"),
    ("many handles", Memory, "1024 handles"),
    ("many waits", Memory, "1024 handles"),
    ("zeroes to stderr", ContractViolation, "zeroes"),
    ("zeroes to stdout", ContractViolation, "zeroes"),
    ("giant write", ResultSize, "larger"),
];

#[tokio::test]
async fn what_is_asked_of_it_is_answered_with_nothing() {
    let normalizer = load_hostile().await;
    for (question, expected) in ANSWERS {
        let first = answer(&normalizer, question).await;
        assert!(first.starts_with(expected), "{question}: {first}");
        let second = answer(&normalizer, question).await;
        assert_eq!(first, second, "{question}: the same in the next batch");
    }
}

#[tokio::test]
async fn what_would_cost_the_host_is_refused_and_named() {
    let normalizer = load_hostile().await;
    for (poison, kind, word) in REFUSALS {
        let fault = only_the_poison_fails(&normalizer, poison.as_bytes()).await;
        assert_eq!(fault.kind, kind, "{poison}: {fault}");
        assert!(said(&fault).contains(word), "{poison}: {}", said(&fault));
    }
}

/// The table above goes through every interface that may be imported, bar two
/// of which only types are used.
#[test]
fn the_guest_that_asks_imports_all_that_is_allowed() {
    use cdr_plugin_host::contract::{ALLOWED_IMPORTS, ALLOWED_RANDOM_IMPORTS};
    let imported = |path: std::path::PathBuf| {
        cdr_plugin_host::inspect(&std::fs::read(path).unwrap())
            .unwrap()
            .imports
    };
    let asked = imported(crate::common::hostile());
    for allowed in ALLOWED_IMPORTS.iter().chain(&ALLOWED_RANDOM_IMPORTS) {
        let interface = format!("{allowed}@0.2.");
        assert!(
            asked.iter().any(|import| import.starts_with(&interface)),
            "{allowed} is allowed, and no test goes through it"
        );
    }
    assert!(!imported(reference()).is_empty(), "and it is needed");
}
