//! Records on which a guest fails: the poison alone is a fault, with its cause.

use crate::common::{host, hostile, load_hostile, tight};
use crate::promises::{
    batch, hasty, only_the_poison_fails, only_the_poison_is_not_admitted, rows, said, texts,
};
use cdr_plugin_host::FaultKind::{
    self, ContractViolation, Deadline, Isolation, Memory, ResultSize, Trap,
};
use cdr_plugin_host::{Limits, Normalizer};
use std::time::Duration;

type Row = (&'static str, FaultKind, &'static str);

/// It ends before it has answered.
const ENDS: [Row; 9] = [
    ("trap", Trap, "panicked"),
    ("abort", Trap, "unreachable"),
    ("stack", Trap, "stack"),
    ("exit", Trap, "exit(1)"),
    ("exit in peace", Trap, "exit(0)"),
    ("memory", Memory, "33554432"),
    ("memory, then exit", Trap, "exit(1)"),
    ("stderr", Trap, "noise"),
    ("stderr of bytes", Trap, "unreachable"),
];

/// It answers what the contract does not allow.
const LIES: [Row; 18] = [
    ("answered twice", ContractViolation, "twice for record 0"),
    ("rejected as well", ContractViolation, "twice for record 0"),
    ("not answered", ContractViolation, "not answer for record 0"),
    ("foreign row", ContractViolation, "record 4000000000"),
    (
        "foreign row of a row",
        ContractViolation,
        "record 4294967295",
    ),
    ("falling offsets", ContractViolation, "`text`"),
    ("falling offsets inside", ContractViolation, "`text`"),
    ("offsets beyond", ContractViolation, "`text`"),
    ("no offsets", ContractViolation, "0 offsets where 2"),
    ("not text", ContractViolation, "UTF-8"),
    ("nulls", ContractViolation, "not nullable"),
    ("short nulls", ContractViolation, "`calls`"),
    ("odd nulls", ContractViolation, "a flag is 2"),
    ("wrong kind", ContractViolation, "int64s"),
    ("wrong length", ContractViolation, "`calls`"),
    ("no column", ContractViolation, "1 columns"),
    ("one column more", ContractViolation, "3 columns"),
    ("giant", ResultSize, "larger"),
];

/// It answers more than the host will hold.
const FLOODS: [Row; 2] = [
    ("many rows", ResultSize, "larger"),
    ("many rejections", ResultSize, "larger"),
];

/// It never answers.
const HANGS: [Row; 2] = [
    ("loop", Deadline, "within"),
    ("stderr for ever", Deadline, "within"),
];

async fn each_fails_alone(normalizer: &Normalizer, rows: &[Row]) {
    for (poison, kind, word) in rows {
        let fault = only_the_poison_fails(normalizer, poison.as_bytes()).await;
        assert_eq!(fault.kind, *kind, "{poison}: {fault}");
        assert!(said(&fault).contains(word), "{poison}: {}", said(&fault));
    }
}

#[tokio::test]
async fn a_record_on_which_it_ends() {
    each_fails_alone(&load_hostile().await, &ENDS).await;
}

#[tokio::test]
async fn a_record_for_which_it_breaks_the_contract() {
    let normalizer = load_hostile().await;
    each_fails_alone(&normalizer, &LIES).await;
    each_fails_alone(&normalizer, &FLOODS).await;
}

#[tokio::test]
async fn a_record_on_which_it_hangs() {
    let hasty = host(hasty()).load_file(&hostile(), "{}").await.unwrap();
    each_fails_alone(&hasty, &HANGS).await;
    let fault = only_the_poison_is_not_admitted(&hasty, b"loop").await;
    assert_eq!(fault.kind, Deadline, "{fault}");
}

#[tokio::test]
async fn a_record_whose_admission_fails() {
    let normalizer = load_hostile().await;
    for (poison, kind, word) in [
        ("trap", Trap, "panicked"),
        ("stack", Trap, "stack"),
        ("memory", Memory, "33554432"),
        ("exit", Trap, "exit(1)"),
        ("short", ContractViolation, "0 answers to a batch of 1"),
        ("long", ContractViolation, "2 answers to a batch of 1"),
        ("long key", ContractViolation, "5000 bytes"),
        ("giant", ResultSize, "larger"),
        ("many answers", ResultSize, "larger"),
    ] {
        let fault = only_the_poison_is_not_admitted(&normalizer, poison.as_bytes()).await;
        assert_eq!(fault.kind, kind, "{poison}: {fault}");
        assert!(said(&fault).contains(word), "{poison}: {}", said(&fault));
    }
}

#[tokio::test]
async fn poison_on_both_ends_and_in_the_middle_of_a_large_batch() {
    let normalizer = load_hostile().await;
    let mut payloads = vec![&b"good"[..]; 1000];
    let poisonous = [0, 499, 500, 999];
    for (row, poison) in poisonous
        .iter()
        .zip([&b"trap"[..], b"not text", b"exit", b"giant"])
    {
        payloads[*row] = poison;
    }
    let normalized = normalizer.normalize(batch(&payloads)).await.unwrap();
    let failed: Vec<_> = normalized.faults.iter().map(|(row, _)| *row).collect();
    assert_eq!(failed, [0, 499, 500, 999]);
    let good: Vec<u32> = (0..1000).filter(|row| !failed.contains(row)).collect();
    assert_eq!(rows(&normalized), good);
    assert!(texts(&normalized).iter().all(|text| text == "good"));
}

#[tokio::test]
async fn a_record_that_fails_only_beside_others_is_answered_alone() {
    let normalizer = load_hostile().await;
    let normalized = normalizer
        .normalize(batch(&[b"a", b"in company", b"b"]))
        .await
        .unwrap();
    assert_eq!(rows(&normalized), [0, 1, 2], "{:?}", normalized.faults);
}

#[tokio::test]
async fn a_batch_of_nothing_but_poison_ends_and_every_record_is_answered() {
    let limits = Limits {
        call_base: Duration::from_millis(50),
        isolation: Duration::from_millis(500),
        ..tight()
    };
    let normalizer = host(limits).load_file(&hostile(), "{}").await.unwrap();
    let normalized = normalizer
        .normalize(batch(&[&b"loop"[..]; 200]))
        .await
        .unwrap();
    assert_eq!(normalized.faults.len(), 200);
    assert!(
        normalized
            .faults
            .iter()
            .any(|(_, fault)| fault.kind == Isolation
                && fault.detail.contains("deadline")
                && fault.detail.contains("too long")),
        "the search ends before all have had their time, and says why"
    );
}

#[tokio::test]
async fn a_panic_with_a_huge_message_keeps_its_beginning() {
    let fault = only_the_poison_fails(&load_hostile().await, b"trap").await;
    assert!(fault.detail.contains("poison xxx"), "{fault}");
}

#[tokio::test]
async fn texts_of_rejections_are_cut_and_hold_no_payload() {
    let normalizer = load_hostile().await;
    let long = b"reject 0123456789abcdefghijklmnopqrstuvwxyz";
    let normalized = normalizer.normalize(batch(&[b"a", long])).await.unwrap();
    let rejection = &normalized.rejections[0];
    assert_eq!(rejection.row, 1);
    assert!(rejection.detail.len() <= 512);
    assert!(rejection.field.as_ref().unwrap().len() <= 128);
    assert_eq!(rows(&normalized), [0]);
}

#[tokio::test]
async fn texts_of_rejections_are_fit_for_a_terminal() {
    let normalizer = load_hostile().await;
    let normalized = normalizer
        .normalize(batch(&[b"reject \x1b[2J\r"]))
        .await
        .unwrap();
    let detail = &normalized.rejections[0].detail;
    assert!(!detail.contains(char::is_control), "{detail:?}");
}

#[tokio::test]
async fn an_empty_batch_has_an_empty_answer() {
    let normalizer = load_hostile().await;
    let normalized = normalizer.normalize(batch(&[])).await.unwrap();
    assert_eq!(normalized.rows(), 0);
    assert!(normalized.faults.is_empty() && normalized.rejections.is_empty());
}
