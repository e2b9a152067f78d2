//! What goes wrong before there is an answer.

use std::cell::Cell;
use std::hint::black_box;
use wasip2::io::streams::OutputStream;

/// Does what the payload says, if it is one of these words.
pub fn misbehave(payload: &str) {
    match payload {
        "trap" => panic!("poison {}", "x".repeat(100_000)),
        "abort" => std::process::abort(),
        "loop" => endless(),
        "memory" => hoard(),
        "memory, then exit" => {
            refused_memory();
            std::process::exit(3);
        }
        "leak" => std::mem::forget(vec![1_u8; 1 << 20]),
        "stack" => {
            black_box(deep(1));
        }
        "exit" => std::process::exit(3),
        "exit in peace" => std::process::exit(0),
        "sleep" => std::thread::sleep(std::time::Duration::from_secs(3600)),
        "wait for an instant" => {
            wasip2::clocks::monotonic_clock::subscribe_instant(u64::MAX).block();
        }
        "wait for nothing" => drop(wasip2::io::poll::poll(&[])),
        "much random" => drop(wasip2::random::random::get_random_bytes(u64::MAX)),
        "much insecure random" => {
            drop(wasip2::random::insecure::get_insecure_random_bytes(1 << 40));
        }
        "many handles" => loop {
            std::mem::forget(wasip2::cli::stdin::get_stdin());
        },
        "many waits" => {
            let input = wasip2::cli::stdin::get_stdin();
            loop {
                std::mem::forget(input.subscribe());
            }
        }
        "zeroes to stderr" => zeroes(&wasip2::cli::stderr::get_stderr()),
        "zeroes to stdout" => zeroes(&wasip2::cli::stdout::get_stdout()),
        "giant write" => {
            let all = vec![b'x'; 8 << 20];
            let _ = wasip2::cli::stderr::get_stderr().write(&all);
        }
        "stderr" => {
            flood(200);
            panic!("after the noise");
        }
        "stderr for ever" => loop {
            flood(1000);
        },
        "stderr of bytes" => {
            let error = wasip2::cli::stderr::get_stderr();
            let _ = error.blocking_write_and_flush(&[0xff; 4096]);
            let _ = error.blocking_write_and_flush(b"\x1b[2J");
            std::process::abort();
        }
        _ => {}
    }
}

/// Asks for a petabyte of zeroes to be written, unasked how many may be.
fn zeroes(stream: &OutputStream) {
    let _ = stream.write_zeroes(1 << 50);
}

fn flood(lines: usize) {
    for _ in 0..lines {
        eprintln!("{}", "noise ".repeat(100));
    }
}

pub fn endless() -> ! {
    loop {
        black_box(());
    }
}

pub fn hoard() -> ! {
    let mut all = Vec::new();
    loop {
        all.push(black_box(vec![1_u8; 1 << 20]));
    }
}

/// Takes memory until so many bytes are taken or no more are given, and keeps it.
pub fn fill(bytes: usize) {
    let mut taken = 0;
    while taken < bytes {
        let pages = core::arch::wasm32::memory_grow::<0>(1);
        if pages == usize::MAX {
            return;
        }
        // SAFETY: the page was just added, and nobody else knows of it.
        unsafe { std::ptr::write_bytes((pages << 16) as *mut u8, 0xa5, 1 << 16) };
        taken += 1 << 16;
    }
}

/// Is refused memory, and takes it with composure.
fn refused_memory() {
    assert_eq!(core::arch::wasm32::memory_grow::<0>(60_000), usize::MAX);
}

fn deep(level: u64) -> u64 {
    if black_box(level) == 0 {
        return 0;
    }
    deep(level + 1) + black_box(level)
}

std::thread_local! {
    static MEMORY: Cell<u32> = const { Cell::new(0) };
}

/// What was last remembered here, and remembers something else.
pub fn remember(new: u32) -> u32 {
    MEMORY.replace(new)
}
