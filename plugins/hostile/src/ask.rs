//! Questions whose answer is the text of the record's row: what the sandbox
//! lets a guest see. All of it must be the same in every batch.

use crate::misbehave::remember;
use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;
use wasip2::{cli, clocks, filesystem, io, random};

/// Memory that is written or looked at beyond what the guest has, in pages.
const FRESH_PAGES: usize = 64;

pub fn ask(question: &str, calls: u32) -> String {
    match question {
        "environment" => format!("{:?}", cli::environment::get_environment()),
        "arguments" => format!("{:?}", cli::environment::get_arguments()),
        "working directory" => format!("{:?}", cli::environment::initial_cwd()),
        "directories" => filesystem::preopens::get_directories().len().to_string(),
        "read a file" => outcome(std::fs::read("/proc/self/environ")),
        "write a file" => outcome(std::fs::write("/tmp/hostile", "was here")),
        "list a directory" => outcome(std::fs::read_dir("/")),
        "read input" => format!("{:?}", cli::stdin::get_stdin().read(u64::MAX)),
        "wait for input" => format!("{:?}", cli::stdin::get_stdin().blocking_read(u64::MAX)),
        "skip input" => format!("{:?}", cli::stdin::get_stdin().blocking_skip(u64::MAX)),
        "input to output" => {
            let (from, to) = (cli::stdin::get_stdin(), cli::stdout::get_stdout());
            format!("{:?}", to.blocking_splice(&from, u64::MAX))
        }
        "poll input" => {
            let input = cli::stdin::get_stdin();
            let wait = input.subscribe();
            format!("{:?}", io::poll::poll(&[&wait, &wait]))
        }
        "write output" => {
            let output = cli::stdout::get_stdout();
            format!("{:?}", output.blocking_write_and_flush(&[b'x'; 4096]))
        }
        "terminals" => format!(
            "{} {} {}",
            cli::terminal_stdin::get_terminal_stdin().is_some(),
            cli::terminal_stdout::get_terminal_stdout().is_some(),
            cli::terminal_stderr::get_terminal_stderr().is_some()
        ),
        "wall clock" => {
            let (now, step) = (clocks::wall_clock::now(), clocks::wall_clock::resolution());
            format!(
                "{}.{} by {}.{}",
                now.seconds, now.nanoseconds, step.seconds, step.nanoseconds
            )
        }
        "monotonic clock" => {
            let before = clocks::monotonic_clock::now();
            for step in 0..1_000_000 {
                black_box(step);
            }
            format!("{} then {}", before, clocks::monotonic_clock::now())
        }
        "std clocks" => {
            let started = std::time::Instant::now();
            let now = std::time::SystemTime::now();
            format!(
                "{:?} {:?}",
                now.duration_since(std::time::UNIX_EPOCH),
                started.elapsed()
            )
        }
        "random bytes" => hex(&random::random::get_random_bytes(16)),
        "random number" => random::random::get_random_u64().to_string(),
        "insecure random bytes" => hex(&random::insecure::get_insecure_random_bytes(16)),
        "insecure random number" => random::insecure::get_insecure_random_u64().to_string(),
        "random seed" => format!("{:?}", random::insecure_seed::insecure_seed()),
        "random hash" => RandomState::new().hash_one("x").to_string(),
        "address of a local" => format!("{:p}", &raw const calls),
        "address on the heap" => format!("{:p}", Box::new(calls)),
        "bits of a NaN" => nan(),
        "memory" => (core::arch::wasm32::memory_size::<0>() << 16).to_string(),
        "calls" => calls.to_string(),
        "remember" => remember(7).to_string(),
        "scribble" => {
            let fresh = fresh_memory();
            fresh.fill(0xa5);
            "scribbled".to_owned()
        }
        "uninitialized memory" => {
            let dirty = fresh_memory().iter().filter(|byte| **byte != 0).count();
            format!("{dirty} dirty bytes")
        }
        // A trap that waits for its third call.
        "time bomb" => {
            assert!(calls < 3, "the third call");
            "not yet".to_owned()
        }
        other => format!("no such question: {other}"),
    }
}

fn outcome<T>(result: std::io::Result<T>) -> String {
    match result {
        Ok(_) => "done".to_owned(),
        Err(error) => format!("refused: {:?}", error.kind()),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What arithmetic makes of a NaN with a payload differs between processors.
fn nan() -> String {
    let odd = black_box(f64::from_bits(0x7ff8_0000_dead_beef));
    format!("{:016x}", (odd + black_box(1.0)).to_bits())
}

fn fresh_memory() -> &'static mut [u8] {
    let pages = core::arch::wasm32::memory_grow::<0>(FRESH_PAGES);
    assert_ne!(pages, usize::MAX, "memory");
    // SAFETY: the pages were just added, nobody else knows of them, and memory
    // of WebAssembly always has some content.
    unsafe { std::slice::from_raw_parts_mut((pages << 16) as *mut u8, FRESH_PAGES << 16) }
}
