//! Guests that fail before their first batch are refused, with what was wrong;
//! the host goes on loading others.

use crate::common::{host, hostile, tight};
use crate::promises::{hasty, hostile_with, refusal};
use crate::wat_guest::{Slot, contract, guest, guest_of};
use cdr_plugin_host::FaultKind::{self, ContractViolation, Deadline, Memory, ResultSize, Trap};
use cdr_plugin_host::LoadError;

fn failed(error: &LoadError, expected: (&str, FaultKind), name: &str) {
    let LoadError::Failed { call, fault } = error else {
        panic!("{name}: {error}");
    };
    assert_eq!((*call, fault.kind), expected, "{name}: {error}");
}

async fn refused_with(settings: &str) -> LoadError {
    let wasm = std::fs::read(hostile()).unwrap();
    refusal(&host(hasty()), wasm, settings).await
}

#[tokio::test]
async fn it_fails_only_in_configure() {
    for (settings, kind, word) in [
        ("trap", Trap, "configure panics"),
        ("exit", Trap, "exit(0)"),
        ("loop", Deadline, "within 3s"),
        ("memory", Memory, "may have 33554432"),
        ("refuse for ever", ResultSize, "larger"),
    ] {
        let error = refused_with(settings).await;
        failed(&error, ("configure", kind), settings);
        assert!(error.to_string().contains(word), "{settings}: {error}");
    }
}

#[tokio::test]
async fn it_refuses_its_settings_in_a_few_words_or_many() {
    for settings in ["refuse", "refuse at length"] {
        match refused_with(settings).await {
            LoadError::Settings { message } => {
                assert!(message.len() <= 1024 && message.contains("no"), "{message}");
            }
            other => panic!("{settings}: {other}"),
        }
    }
}

#[tokio::test]
async fn it_fails_only_in_describe() {
    for (settings, kind, word) in [
        ("describe: trap", Trap, "describe panics"),
        ("describe: loop", Deadline, "within 3s"),
        ("describe: memory", Memory, "may have 33554432"),
        ("describe: giant", ResultSize, "larger"),
    ] {
        let error = refused_with(settings).await;
        failed(&error, ("describe", kind), settings);
        assert!(error.to_string().contains(word), "{settings}: {error}");
    }
}

#[tokio::test]
async fn it_fails_in_admit_or_normalize_whatever_the_records() {
    for (settings, call, kind) in [
        ("admit trap", "admit", Trap),
        ("admit memory", "admit", Memory),
        ("normalize trap", "normalize", Trap),
        ("normalize exit", "normalize", Trap),
        ("normalize loop", "normalize", Deadline),
    ] {
        failed(&refused_with(settings).await, (call, kind), settings);
    }
}

#[tokio::test]
async fn it_describes_what_cannot_be() {
    for (settings, word) in [
        ("describe: novel", "8192 bytes"),
        ("describe: terminal", "control character"),
        ("describe: name", "../../Etc"),
        ("describe: version", "\"latest\""),
        ("describe: no columns", "0 columns"),
        ("describe: columns", "2000 columns"),
        ("describe: twice", "`text` stands there twice"),
        ("describe: sql", "no column name"),
        ("describe: category", "nullable category"),
    ] {
        let error = refused_with(settings).await;
        assert!(matches!(error, LoadError::Manifest { .. }), "{error}");
        assert!(error.to_string().contains(word), "{settings}: {error}");
    }
}

#[tokio::test]
async fn it_fails_before_it_is_asked_anything() {
    let host = host(hasty());
    for (name, code, kind) in [
        (
            "a start that traps",
            "(func $s unreachable) (start $s)",
            Trap,
        ),
        (
            "a start without end",
            "(func $s (loop (br 0))) (start $s)",
            Deadline,
        ),
        (
            "a start that takes all memory",
            "(func $s (if (i32.eq (i32.const -1) (memory.grow (i32.const 60000))) (then unreachable))) (start $s)",
            Memory,
        ),
        (
            "data outside of memory",
            "(data (i32.const 0x7fffffff) \"x\")",
            Trap,
        ),
        (
            "a table as large as all memory",
            "(table 10000000 funcref)",
            Memory,
        ),
    ] {
        let error = refusal(&host, guest(&[(Slot::More, code)]), "{}").await;
        failed(&error, ("start", kind), name);
    }
    let all = guest(&[(Slot::Memory, "65536")]);
    failed(
        &refusal(&host, all, "{}").await,
        ("start", Memory),
        "4 GiB to begin with",
    );
}

#[tokio::test]
async fn calls_below_the_types_fail_by_their_names() {
    let host = host(hasty());
    for (slot, code, call, kind) in [
        (Slot::Configure, "unreachable", "configure", Trap),
        (Slot::Configure, "(loop (br 0))", "configure", Deadline),
        (
            Slot::Configure,
            "(return (i32.const 0x7ffffff0))",
            "configure",
            ContractViolation,
        ),
        (Slot::Describe, "unreachable", "describe", Trap),
        (Slot::Describe, "(loop (br 0))", "describe", Deadline),
        (
            Slot::Describe,
            "(return (i32.const 2))",
            "describe",
            ContractViolation,
        ),
        (
            Slot::Describe,
            "(i32.store8 (i32.const 16) (i32.const 0xff))",
            "describe",
            ContractViolation,
        ),
    ] {
        let error = refusal(&host, guest(&[(slot, code)]), "{}").await;
        failed(&error, (call, kind), code);
    }
}

/// The good guest with further core modules, each instantiated once.
fn with_modules(count: u8, fields: &[u8]) -> Vec<u8> {
    let module = [b"\0asm\x01\0\0\0", fields].concat();
    let mut component = guest(&[]);
    for index in 1..=count {
        // A section is its number, its size, its content: 1 is a core module, 2
        // core instances (one, of the module `index`, with no imports).
        component.extend([1, module.len() as u8]);
        component.extend(&module);
        component.extend([2, 4, 1, 0, index, 0]);
    }
    component
}

#[tokio::test]
async fn more_than_the_sandbox_has_room_for_is_refused_by_name() {
    let host = host(tight());
    // Without this the next would show nothing.
    let few = with_modules(3, b"");
    host.load(few, "{}").await.expect("a few are fine");

    let memory = b"\x05\x03\x01\0\x01";
    let tables = [&[4, 52, 17][..], &b"\x70\0\x01".repeat(17)].concat();
    for (name, wasm, word) in [
        (
            "core instances",
            with_modules(100, b""),
            "instance count too high",
        ),
        ("memories", with_modules(3, memory), "memory count too high"),
        ("tables", with_modules(1, &tables), "table count too high"),
    ] {
        let loaded = host.load(wasm, "{}").await;
        let Err(error) = loaded else {
            panic!("{name} were not refused");
        };
        assert!(error.to_string().contains(word), "{name}: {error}");
    }
}

/// A number as the format writes it.
fn leb(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

#[tokio::test]
async fn depth_and_number_end_in_a_refusal_not_in_a_stack_overflow() {
    let host = host(tight());
    // By hand, since tools for text refuse such depth themselves: a section 4 is
    // a component.
    let header = b"\0asm\x0d\0\x01\0";
    let mut nested = header.to_vec();
    for _ in 0..5000 {
        let size = leb(nested.len());
        nested = [&header[..], &[4], &size, &nested].concat();
    }
    let modules = "(core module)".repeat(1200);
    let many = wat::parse_str(format!("(component {modules})")).unwrap();
    for wasm in [nested, many] {
        let error = refusal(&host, wasm, "{}").await;
        assert!(!matches!(error, LoadError::Host { .. }), "{error}");
    }
    let blocks =
        |depth: usize| format!("(func {} {})", "block ".repeat(depth), "end ".repeat(depth));
    let deep = guest(&[(Slot::More, &blocks(20_000))]);
    // Nothing is wrong with it but its depth; whatever becomes of it, the host
    // is there to say so.
    let _ = host.load(deep, "{}").await;
    host.load(guest(&[]), "{}").await.expect("the host lives");
}

#[tokio::test]
async fn features_that_are_off_are_refused_by_name() {
    let host = host(tight());
    for (name, code, word) in [
        (
            "a second memory",
            (Slot::More, "(memory 1)"),
            "multiple memories",
        ),
        ("shared memory", (Slot::Memory, "1 1 shared"), "shared"),
        (
            "relaxed SIMD",
            (
                Slot::More,
                "(func (param v128 v128) (result v128) (i8x16.relaxed_swizzle (local.get 0) (local.get 1)))",
            ),
            "relaxed",
        ),
        (
            "a table that grows, which a snapshot would not know of",
            (
                Slot::More,
                "(table $t 1 funcref) (func (drop (table.grow $t (ref.null func) (i32.const 1000000))))",
            ),
            "table.grow",
        ),
        (
            "a table larger than the pool's",
            (Slot::More, "(table 200000 funcref)"),
            "table",
        ),
    ] {
        let error = refusal(&host, guest(&[code]), "{}").await;
        assert!(error.to_string().contains(word), "{name}: {error}");
    }
}

#[tokio::test]
async fn names_that_are_no_names_are_cut_and_fit_for_a_terminal() {
    let long = "x".repeat(50_000);
    for text in [
        format!("(component (import \"evil:{long}/\\1b[2J\" (instance)))"),
        format!("(component (instance $i) (export \"\\1b[2J{long}\" (instance $i)))"),
    ] {
        let error = refusal(&host(tight()), wat::parse_str(text).unwrap(), "{}").await;
        assert!(error.to_string().contains("xxx…"), "{error}");
    }
}

#[tokio::test]
async fn the_right_names_with_other_types() {
    let host = host(tight());
    for (what, of, instead) in [
        (
            "another result",
            "normalize: func(batch: batch) -> outcome;",
            "normalize: func(batch: batch) -> string;",
        ),
        (
            "one reason more",
            "        normalization-error,\n    }",
            "        normalization-error,\n        not-my-fault,\n    }",
        ),
        (
            "another field",
            "        row: u32,\n        reason: reason,",
            "        line: u32,\n        reason: reason,",
        ),
    ] {
        let other = contract().replacen(of, instead, 1);
        assert_ne!(other, contract(), "{what}");
        let error = refusal(&host, guest_of(&other, &[]), "{}").await;
        assert!(
            matches!(error, LoadError::WrongTypes { .. }),
            "{what}: {error}"
        );
    }
}

#[tokio::test]
async fn a_memory_that_cannot_be_read_out_is_refused_with_a_sentence() {
    let full = refused_with("fill to the brim").await;
    assert!(matches!(full, LoadError::Snapshot { .. }), "{full}");
    assert!(full.to_string().contains("memory"), "{full}");

    let fixed = guest(&[(Slot::Memory, "2 2")]);
    let fixed = refusal(&host(tight()), fixed, "{}").await;
    assert!(matches!(fixed, LoadError::Snapshot { .. }), "{fixed}");
    assert!(fixed.to_string().contains("maximum"), "{fixed}");
}

#[tokio::test]
async fn what_it_fills_in_configure_is_there_in_every_batch() {
    let normalizer = hostile_with("fill").await;
    let memory = crate::promises::answer(&normalizer, "memory").await;
    assert!(memory.parse::<usize>().unwrap() > 24 << 20, "{memory}");
}
