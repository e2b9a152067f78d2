//! A guest that can't be snapshotted, in a host that is set to reuse instances:
//! they are retired by calls and by memory, and any fault ends them.

use crate::common::tight;
use crate::promises::{batch, load, only_the_poison_fails, rows};
use crate::wat_guest::{POISON, Slot, guest};
use cdr_plugin_host::FaultKind::{Deadline, Trap};
use cdr_plugin_host::{HostConfig, LoadError, Normalizer, PluginHost, Reuse, Values};

/// Can't be snapshotted, for its table may grow.
const GROWING_TABLE: &str =
    "(table $t 1 funcref) (func (drop (table.grow $t (ref.null func) (i32.const 1))))";

/// Answers how often this instance was asked before, for each record.
const COUNTS: &str = "
    (i32.store (i32.const 200) (i32.add (i32.const 1) (i32.load (i32.const 200))))
    (local.set $row (i32.const 0))
    (loop $next
      (i32.store
        (i32.add (i32.load offset=4 (local.get $column)) (i32.mul (i32.const 4) (local.get $row)))
        (i32.load (i32.const 200)))
      (local.set $row (i32.add (local.get $row) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $row) (local.get $records))))";

fn host(reuse: Option<Reuse>) -> PluginHost {
    PluginHost::new(&HostConfig {
        limits: tight(),
        // One thread: its batches come one after another to the same pool.
        threads: 1,
        reuse,
        ..HostConfig::default()
    })
    .expect("a host")
}

const REUSE: Reuse = Reuse {
    max_calls: 1000,
    max_memory_bytes: 16 << 20,
};

/// What it counts, call by call; a payload of `!` makes it count.
async fn counts(normalizer: &Normalizer, calls: usize) -> Vec<u32> {
    let mut counts = Vec::new();
    for _ in 0..calls {
        let normalized = normalizer.normalize(batch(&[b"!"])).await.unwrap();
        match &normalized.parts[0].columns[0].values {
            Values::Uint32s(values) => counts.extend(values),
            other => panic!("{other:?}"),
        }
    }
    counts
}

fn counting(more: &str) -> Vec<u8> {
    guest(&[(Slot::Normalize, more), (Slot::More, GROWING_TABLE)])
}

#[tokio::test]
async fn it_is_refused_unless_the_operator_allows_it() {
    let error = host(None).load(counting(COUNTS), "{}").await.unwrap_err();
    assert!(matches!(error, LoadError::Snapshot { .. }), "{error}");
    assert!(error.to_string().contains("table.grow"), "{error}");
}

#[tokio::test]
async fn instances_are_reused_and_retired_by_calls() {
    let host = host(Some(Reuse {
        max_calls: 10,
        ..REUSE
    }));
    let normalizer = load(&host, counting(COUNTS), "counting").await;
    let counts = counts(&normalizer, 40).await;
    assert!(counts.iter().any(|count| *count > 1), "reused: {counts:?}");
    assert!(
        counts.iter().all(|count| *count <= 10),
        "retired: {counts:?}"
    );
    assert!(
        counts.iter().filter(|count| **count == 1).count() >= 3,
        "and new ones took their places: {counts:?}"
    );
}

#[tokio::test]
async fn instances_are_retired_by_memory() {
    // 1 MiB a call, of 16 above which it is retired, of 32 that it may have.
    let leaks = format!("{COUNTS} (drop (call $alloc (i32.const 0x00100000)))");
    let normalizer = load(&host(Some(REUSE)), counting(&leaks), "leaking").await;
    let counts = counts(&normalizer, 60).await;
    assert_eq!(counts.len(), 60, "no call failed");
    let most = counts.iter().max().copied().unwrap();
    assert!((10..=17).contains(&most), "{counts:?}");
}

#[tokio::test]
async fn any_fault_ends_an_instance() {
    let traps = "(if (i32.ge_u (local.get $size) (i32.const 1000)) (then unreachable))";
    let code = format!("{COUNTS} {traps}");
    let normalizer = load(&host(Some(REUSE)), counting(&code), "trapping").await;
    assert!(counts(&normalizer, 3).await.last() >= Some(&3));
    let fault = only_the_poison_fails(&normalizer, &POISON).await;
    assert_eq!(fault.kind, Trap, "{fault}");
    assert_eq!(counts(&normalizer, 1).await, [1], "the next is a new one");
}

#[tokio::test]
async fn an_answer_that_breaks_the_contract_ends_an_instance_too() {
    let lies = "(if (i32.ge_u (local.get $size) (i32.const 1000))
        (then (i32.store offset=4 (local.get $out) (i32.const 0))))";
    let code = format!("{COUNTS} {lies}");
    let normalizer = load(&host(Some(REUSE)), counting(&code), "lying").await;
    assert!(counts(&normalizer, 3).await.last() >= Some(&3));
    let fault = only_the_poison_fails(&normalizer, &POISON).await;
    assert!(fault.detail.contains("does not answer"), "{fault}");
    assert_eq!(counts(&normalizer, 1).await, [1], "the next is a new one");
}

/// It fails at its fifth call, whatever it is asked: its past is to blame, and
/// no record is.
#[tokio::test]
async fn no_record_is_condemned_for_what_an_instance_has_been_through() {
    let bomb = format!(
        "{COUNTS} (if (i32.ge_u (i32.load (i32.const 200)) (i32.const 5)) (then unreachable))"
    );
    let normalizer = load(&host(Some(REUSE)), counting(&bomb), "a time bomb").await;
    for _ in 0..30 {
        let normalized = normalizer
            .normalize(batch(&[b"!", b"!", b"!"]))
            .await
            .unwrap();
        assert_eq!(rows(&normalized), [0, 1, 2], "{:?}", normalized.faults);
    }
}

#[tokio::test]
async fn what_can_be_snapshotted_starts_fresh_all_the_same() {
    let fresh = guest(&[(Slot::Normalize, COUNTS)]);
    let normalizer = load(&host(Some(REUSE)), fresh, "snapshotted").await;
    assert_eq!(counts(&normalizer, 5).await, [1; 5]);
}

#[tokio::test]
async fn its_configure_is_heard_at_the_load_and_limited() {
    for (code, word) in [
        ("unreachable", "`configure`"),
        ("(return (i32.const 200))", "refused its settings: no"),
    ] {
        let refuses = guest(&[
            (Slot::Configure, code),
            (
                Slot::More,
                // At 200: `err`, and a text of two letters at 240.
                &format!(
                    "{GROWING_TABLE}
                     (data (i32.const 200) \"\\01\\00\\00\\00\\f0\\00\\00\\00\\02\\00\\00\\00\")
                     (data (i32.const 240) \"no\")"
                ),
            ),
        ]);
        let error = host(Some(REUSE)).load(refuses, "{}").await.unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
    }
    let hangs = guest(&[
        (Slot::Configure, "(loop (br 0))"),
        (Slot::More, GROWING_TABLE),
    ]);
    match host(Some(REUSE)).load(hangs, "{}").await.unwrap_err() {
        LoadError::Failed { call, fault } => {
            assert_eq!((call, fault.kind), ("configure", Deadline));
        }
        other => panic!("{other}"),
    }
}
