//! Whatever a guest does: the host lives, the error names it, the good records
//! of the batch come out, the next batch is served.

mod common;

use cdr_plugin_host::{Admitted, Batch, FaultKind, LoadError, Normalized, Values};
use common::{host, hostile, load_hostile, tight};

fn batch(payloads: &[&str]) -> Batch {
    Batch::of(payloads.iter().map(|payload| payload.as_bytes()), 0).unwrap()
}

fn texts(normalized: &Normalized) -> Vec<String> {
    let mut texts = Vec::new();
    for part in &normalized.parts {
        let Values::Blobs(blobs) = &part.columns[0].values else {
            panic!("texts are blobs");
        };
        texts.extend(blobs.offsets.windows(2).map(|ends| {
            let bytes = &blobs.data[ends[0] as usize..ends[1] as usize];
            String::from_utf8(bytes.to_vec()).unwrap()
        }));
    }
    texts
}

#[tokio::test]
async fn the_poison_record_alone_fails_and_its_fault_is_named() {
    let normalizer = load_hostile().await;
    for (poison, kind, word) in [
        ("trap", FaultKind::Trap, "panicked"),
        ("loop", FaultKind::Deadline, "within"),
        ("memory", FaultKind::Memory, "33554432"),
        ("stack", FaultKind::Trap, "stack"),
        ("exit", FaultKind::Trap, "exit(1)"),
        ("sleep", FaultKind::Trap, "sleep"),
        ("stderr", FaultKind::Trap, "trap"),
        ("answered twice", FaultKind::ContractViolation, "twice"),
        (
            "not answered",
            FaultKind::ContractViolation,
            "does not answer",
        ),
        ("foreign row", FaultKind::ContractViolation, "4000000000"),
        ("falling offsets", FaultKind::ContractViolation, "`text`"),
        ("offsets beyond", FaultKind::ContractViolation, "`text`"),
        ("not text", FaultKind::ContractViolation, "UTF-8"),
        ("nulls", FaultKind::ContractViolation, "not nullable"),
        ("wrong kind", FaultKind::ContractViolation, "int64s"),
        ("wrong length", FaultKind::ContractViolation, "`calls`"),
        ("no column", FaultKind::ContractViolation, "1 columns"),
        ("giant", FaultKind::ResultSize, "larger"),
    ] {
        let payloads = ["a", "b", "c", poison, "d", "e"];
        let normalized = normalizer.normalize(batch(&payloads)).await.unwrap();
        let [(row, fault)] = normalized.faults.as_slice() else {
            panic!("{poison}: {:?}", normalized.faults);
        };
        assert_eq!((*row, fault.kind), (3, kind), "{poison}: {fault}");
        let said = format!("{fault} {}", fault.stderr);
        assert!(said.contains(word), "{poison}: {said}");
        assert!(fault.detail.len() <= 512, "{poison}: details are bounded");
        assert!(
            fault.stderr.len() <= 16 << 10,
            "{poison}: stderr is bounded"
        );
        assert_eq!(texts(&normalized), ["a", "b", "c", "d", "e"], "{poison}");
        let rows: Vec<u32> = normalized
            .parts
            .iter()
            .flat_map(|part| part.rows.clone())
            .collect();
        assert_eq!(rows, [0, 1, 2, 4, 5], "{poison}");

        let next = normalizer.normalize(batch(&["x"])).await.unwrap();
        assert_eq!(texts(&next), ["x"], "after {poison}");
    }
}

#[tokio::test]
async fn admission_isolates_faults_too() {
    let normalizer = load_hostile().await;
    for poison in ["trap", "loop", "memory", "short"] {
        let answers = normalizer.admit(batch(&["a", poison, "b"])).await.unwrap();
        assert!(matches!(&answers[0], Admitted::Yes(admission) if admission.key == "a"));
        assert!(matches!(&answers[1], Admitted::Fault(_)), "{poison}");
        assert!(matches!(&answers[2], Admitted::Yes(admission) if admission.key == "b"));
    }
}

#[tokio::test]
async fn every_batch_starts_from_the_same_state() {
    let normalizer = load_hostile().await;
    for _ in 0..20 {
        let normalized = normalizer.normalize(batch(&["a"])).await.unwrap();
        assert_eq!(
            normalized.parts[0].columns[1].values,
            Values::Uint32s(vec![1]),
            "the guest counts its calls, and this is always the first"
        );
    }
}

#[tokio::test]
async fn texts_of_rejections_are_cut_and_hold_no_payload() {
    let normalizer = load_hostile().await;
    let long = "reject 0123456789abcdefghijklmnopqrstuvwxyz";
    let normalized = normalizer.normalize(batch(&["a", long])).await.unwrap();
    let rejection = &normalized.rejections[0];
    assert_eq!(rejection.row, 1);
    assert!(rejection.detail.len() <= 512);
    assert!(rejection.field.as_ref().unwrap().len() <= 128);
}

#[tokio::test]
async fn an_empty_batch_has_an_empty_answer() {
    let normalizer = load_hostile().await;
    let normalized = normalizer.normalize(batch(&[])).await.unwrap();
    assert_eq!(normalized.rows(), 0);
    assert!(normalized.faults.is_empty() && normalized.rejections.is_empty());
}

#[tokio::test]
async fn a_failing_configure_refuses_the_load() {
    let host = host(tight());
    let load = async |settings| host.load_file(&hostile(), settings).await;
    match load("refuse").await {
        Err(LoadError::Settings { message }) => assert!(message.contains("not to my taste")),
        other => panic!("{other:?}"),
    }
    for (settings, kind) in [
        ("trap", FaultKind::Trap),
        ("loop", FaultKind::Deadline),
        ("memory", FaultKind::Memory),
    ] {
        match load(settings).await {
            Err(LoadError::Failed { call, fault }) => {
                assert_eq!(
                    (call, fault.kind),
                    ("configure", kind),
                    "{settings}: {fault}"
                );
            }
            other => panic!("{settings}: {other:?}"),
        }
    }
    load("{}").await.expect("and the host still loads");
}
