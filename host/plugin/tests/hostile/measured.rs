//! The host's memory, measured: each test runs once more in a process of its
//! own, where nothing else takes memory.

use crate::common::{hostile, tight};
use crate::promises::{batch, load};
use crate::wat_guest::{POISON, Slot, guest};
use cdr_plugin_host::{HostConfig, Limits, Normalizer, PluginHost};
use std::process::Command;

const MIB: usize = 1 << 20;

/// What all of these guests may have.
const GUEST: usize = 32 * MIB;

/// What the host may take beside it: its answers are limited to 1 MiB and
/// 16 KiB a record, it holds a few of them at once, and its allocator keeps some.
const HOST: usize = 24 * MIB;

/// Whether this is the process that measures. Otherwise it has been run, and
/// has succeeded, when this returns.
fn is_alone(test: &str) -> bool {
    const CHILD: &str = "CDR_HOSTILE_ALONE";
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let name = format!("measured::{test}");
    let child = Command::new(std::env::current_exe().expect("this test"))
        .args([name.as_str(), "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        // Without this, threads of the C library hoard what others have freed.
        .env("MALLOC_ARENA_MAX", "1")
        .output()
        .expect("a process of its own");
    let said = String::from_utf8_lossy(&child.stdout);
    let complained = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{said}\n{complained}");
    assert!(said.contains("1 passed"), "{name} was not found: {said}");
    // For who reads the test's output.
    for line in complained
        .lines()
        .filter(|line| line.starts_with("measured"))
    {
        eprintln!("{line}");
    }
    false
}

fn status(field: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find(|line| line.starts_with(field));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.and_then(|kib| kib.parse::<usize>().ok()).expect("kB") * 1024
}

/// How far resident memory rises, at its highest, while this runs.
async fn rise(name: &str, run: impl AsyncFnOnce()) -> usize {
    std::fs::write("/proc/self/clear_refs", "5").expect("a new high-water mark");
    let before = status("VmRSS");
    run().await;
    let rise = status("VmHWM").saturating_sub(before);
    eprintln!("measured: {name}: {:.1} MiB", rise as f64 / MIB as f64);
    rise
}

/// One thread, so that what is measured is one guest's.
fn host_with(limits: Limits) -> PluginHost {
    PluginHost::new(&HostConfig {
        limits,
        threads: 1,
        ..HostConfig::default()
    })
    .expect("a host")
}

async fn hostile_here(settings: &str) -> Normalizer {
    let loaded = host_with(tight()).load_file(&hostile(), settings).await;
    loaded.expect("it loads")
}

async fn normalize(normalizer: &Normalizer, payload: &[u8]) {
    let answer = normalizer.normalize(batch(&[b"a", payload])).await;
    drop(answer.expect("the host lives"));
}

#[tokio::test]
async fn giant_answers_are_not_held() {
    if !is_alone("giant_answers_are_not_held") {
        return;
    }
    let normalizer = hostile_here("{}").await;
    normalize(&normalizer, b"a").await;
    for poison in ["giant", "many rows", "many rejections", "giant write"] {
        let rise = rise(poison, async || {
            for _ in 0..5 {
                normalize(&normalizer, poison.as_bytes()).await;
            }
        })
        .await;
        assert!(rise < GUEST + HOST, "{poison}: {rise}");
    }
    let rise = rise("400,000 admissions", async || {
        drop(normalizer.admit(batch(&[b"many answers"])).await.unwrap());
    })
    .await;
    assert!(rise < GUEST + HOST, "admissions: {rise}");
}

/// A gigabyte of text in an answer of one megabyte: its parts are the same.
#[tokio::test]
async fn answers_that_share_their_parts_are_counted_in_full() {
    if !is_alone("answers_that_share_their_parts_are_counted_in_full") {
        return;
    }
    let host = host_with(tight());
    let shares = guest(&[(
        Slot::Admit,
        "(i32.store (local.get $out) (call $alloc (i32.const 28000)))
         (i32.store offset=4 (local.get $out) (i32.const 1000))
         (drop (call $alloc (i32.const 0x00100000)))
         (local.set $size (i32.load (local.get $out)))
         (loop $next
           (i32.store offset=4 (local.get $size) (i32.const 8192))
           (i32.store offset=8 (local.get $size) (i32.const 0x00100000))
           (local.set $size (i32.add (local.get $size) (i32.const 28)))
           (br_if $next (i32.lt_u (local.get $size)
             (i32.add (i32.const 28000) (i32.load (local.get $out))))))",
    )]);
    let normalizer = load(&host, shares, "sharing").await;
    let rise = rise("1,000 keys of 1 MiB, shared", async || {
        drop(normalizer.admit(batch(&[&POISON])).await.unwrap());
    })
    .await;
    assert!(rise < HOST, "{rise}");
}

#[tokio::test]
async fn memory_bombs_give_back_what_they_took() {
    if !is_alone("memory_bombs_give_back_what_they_took") {
        return;
    }
    let normalizer = hostile_here("{}").await;
    normalize(&normalizer, b"a").await;
    let before = status("VmRSS");
    for poison in ["memory", "stack", "stderr", "stderr for ever"] {
        let rise = rise(poison, async || {
            normalize(&normalizer, poison.as_bytes()).await;
        })
        .await;
        assert!(rise < GUEST + HOST, "{poison}: {rise}");
    }
    let kept = status("VmRSS").saturating_sub(before);
    assert!(kept < HOST, "{kept} bytes remain after the bombs");
}

#[tokio::test]
async fn a_thousand_leaking_batches_leave_memory_flat() {
    if !is_alone("a_thousand_leaking_batches_leave_memory_flat") {
        return;
    }
    let normalizer = hostile_here("{}").await;
    let leak = async |batches: usize| {
        for _ in 0..batches {
            normalize(&normalizer, b"leak").await;
            normalize(&normalizer, b"trap").await;
        }
    };
    leak(50).await;
    let rise = rise("500 leaks and 500 traps", async || leak(500).await).await;
    // What one batch takes, as before; 500 MiB were leaked.
    assert!(rise < 8 * MIB, "{rise}");
}

#[tokio::test]
async fn handles_are_bounded() {
    if !is_alone("handles_are_bounded") {
        return;
    }
    let normalizer = hostile_here("{}").await;
    normalize(&normalizer, b"a").await;
    for poison in ["many handles", "many waits", "zeroes to stdout"] {
        let rise = rise(poison, async || {
            normalize(&normalizer, poison.as_bytes()).await;
        })
        .await;
        assert!(rise < 8 * MIB, "{poison}: {rise}");
    }
}

/// A state that is all of a guest's memory, written into a copy of it and
/// compiled: the host holds some copies of it for a moment.
#[tokio::test]
async fn a_full_memory_is_snapshotted_in_a_bounded_multiple_of_it() {
    if !is_alone("a_full_memory_is_snapshotted_in_a_bounded_multiple_of_it") {
        return;
    }
    let host = host_with(tight());
    let load = async |settings| host.load_file(&hostile(), settings).await;
    // What compiling takes by itself.
    let empty = rise("a load", async || drop(load("{}").await.unwrap())).await;
    let full = rise("a load of 24 MiB of state", async || {
        drop(load("fill").await.unwrap());
    })
    .await;
    assert!(full < empty + 10 * GUEST, "{full} against {empty}");
    let refused = rise("a load that is refused", async || {
        load("fill to the brim").await.unwrap_err();
    })
    .await;
    assert!(refused < empty + 10 * GUEST, "{refused} against {empty}");
}
