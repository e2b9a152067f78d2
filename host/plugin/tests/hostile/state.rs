//! Nothing that a guest does in one batch can be seen in another: not what it
//! remembers, not what it leaks, not what it leaves in memory.

use crate::common::{hostile, load_hostile, tight};
use crate::promises::{answer, batch, hostile_with, only_the_poison_fails, rows, texts};
use cdr_plugin_host::{Batch, FaultKind, HostConfig, PluginHost, Values};

/// Far more than what a guest could bear if anything remained.
const BATCHES: usize = 100;

#[tokio::test]
async fn every_batch_is_the_first() {
    let normalizer = load_hostile().await;
    for _ in 0..BATCHES {
        assert_eq!(answer(&normalizer, "remember").await, "0");
        assert_eq!(answer(&normalizer, "calls").await, "1");
        // It would trap at its third call.
        assert_eq!(answer(&normalizer, "time bomb").await, "not yet");
    }
}

#[tokio::test]
async fn a_failure_leaves_nothing_behind_either() {
    let normalizer = load_hostile().await;
    for poison in ["trap", "exit", "giant", "not text"] {
        let payloads: [&[u8]; 2] = [b"ask remember", poison.as_bytes()];
        let normalized = normalizer.normalize(batch(&payloads)).await.unwrap();
        assert_eq!(texts(&normalized), ["0"], "{poison}");
        assert_eq!(answer(&normalizer, "remember").await, "0", "{poison}");
    }
}

#[tokio::test]
async fn a_slow_leak_never_adds_up() {
    let normalizer = load_hostile().await;
    let before = answer(&normalizer, "memory").await;
    for _ in 0..BATCHES {
        // 4 MiB of the 32 that it may have.
        let leaks = normalizer
            .normalize(batch(&[&b"leak"[..]; 4]))
            .await
            .unwrap();
        assert_eq!(rows(&leaks), [0, 1, 2, 3], "{:?}", leaks.faults);
    }
    assert_eq!(answer(&normalizer, "memory").await, before);
}

#[tokio::test]
async fn memory_that_another_has_used_is_clean() {
    // One thread: its batches share a place in the pool.
    let host = PluginHost::new(&HostConfig {
        limits: tight(),
        threads: 1,
        ..HostConfig::default()
    })
    .unwrap();
    let load = async |settings| host.load_file(&hostile(), settings).await.unwrap();
    let (one, other) = (load("one").await, load("other").await);
    for _ in 0..4 {
        assert_eq!(answer(&one, "scribble").await, "scribbled");
        for reader in [&one, &other] {
            assert_eq!(
                answer(reader, "uninitialized memory").await,
                "0 dirty bytes"
            );
        }
    }
}

#[tokio::test]
async fn the_same_batch_gives_the_same_answer_whatever_ran_before_and_where() {
    let questions = [
        "random bytes",
        "random number",
        "insecure random number",
        "random seed",
        "random hash",
        "wall clock",
        "std clocks",
        "address of a local",
        "address on the heap",
        "bits of a NaN",
        "uninitialized memory",
        "memory",
    ];
    let all = || {
        let asked: Vec<_> = questions.iter().map(|word| format!("ask {word}")).collect();
        Batch::of(asked.iter().map(|text| text.as_bytes()), 1).unwrap()
    };
    let first = load_hostile().await;
    let expected = first.normalize(all()).await.unwrap();
    assert_eq!(expected.rows(), questions.len());
    // Another host, compiled again and not from the cache, with other threads.
    let another = PluginHost::new(&HostConfig {
        limits: tight(),
        threads: 3,
        ..HostConfig::default()
    })
    .unwrap();
    let second = another.load_file(&hostile(), "{}").await.unwrap();
    for poison in ["a", "trap", "leak", "ask scribble", "memory"] {
        for normalizer in [&first, &second] {
            let before = batch(&[poison.as_bytes()]);
            normalizer.normalize(before).await.unwrap();
            let again = normalizer.normalize(all()).await.unwrap();
            assert_eq!(again.parts, expected.parts, "after {poison}");
        }
    }
}

#[tokio::test]
async fn batches_side_by_side_do_not_meet() {
    let normalizer = load_hostile().await;
    let runs: Vec<_> = (0..32)
        .map(|index| {
            let normalizer = normalizer.clone();
            tokio::spawn(async move {
                let word = format!("secret {index}");
                let payloads: [&[u8]; 3] = [word.as_bytes(), b"ask remember", b"trap"];
                let normalized = normalizer.normalize(batch(&payloads)).await.unwrap();
                assert_eq!(texts(&normalized), [word.as_str(), "0"]);
            })
        })
        .collect();
    for run in runs {
        run.await.unwrap();
    }
}

#[tokio::test]
async fn a_version_that_it_counts_up_stands_still() {
    let normalizer = hostile_with("describe: counts").await;
    // Not the 0.1.0 of the crate: it is what it says that counts, each time.
    assert_eq!(normalizer.provenance().version, "0.1.1");
    for _ in 0..3 {
        let again = hostile_with("describe: counts").await;
        assert_eq!(again.provenance(), normalizer.provenance());
    }
}

/// The standard library keeps its handle to standard error in memory, which is
/// snapshotted, and the handle is not: whoever prints in `configure` is told why
/// a later print fails, and fares well as long as there is none.
#[tokio::test]
async fn what_it_opened_in_configure_is_closed_and_the_fault_says_so() {
    let normalizer = hostile_with("print").await;
    assert_eq!(answer(&normalizer, "calls").await, "1");
    let fault = only_the_poison_fails(&normalizer, b"trap").await;
    assert_eq!(fault.kind, FaultKind::Trap, "{fault}");
    assert!(fault.detail.contains("`configure` opened"), "{fault}");
}

/// That the guest can remember at all, or the tests above show nothing: within
/// a batch it does.
#[tokio::test]
async fn within_a_batch_it_does_remember() {
    let normalizer = load_hostile().await;
    let normalized = normalizer
        .normalize(batch(&[b"ask remember", b"ask remember"]))
        .await
        .unwrap();
    assert_eq!(texts(&normalized), ["0", "7"]);
    assert_eq!(
        normalized.parts[0].columns[1].values,
        Values::Uint32s(vec![1, 1])
    );
}
