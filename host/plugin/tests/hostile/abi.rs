//! Answers that can't be read: what goes wrong below the types, at the
//! boundary itself, where no compiler would.

use crate::common::{host, tight};
use crate::promises::{
    batch, hasty, load, only_the_poison_fails, only_the_poison_is_not_admitted, rows, said,
};
use crate::wat_guest::{POISON, Slot, guest};
use cdr_plugin_host::FaultKind::{self, ContractViolation, Deadline, Memory, ResultSize, Trap};
use cdr_plugin_host::Limits;

/// What it is called, where the code goes, the code, the fault, a word of it.
type Row = (&'static str, Slot, &'static str, FaultKind, &'static str);

const UNREADABLE: [Row; 14] = [
    (
        "a list that begins outside of memory",
        Slot::Normalize,
        "(i32.store (local.get $out) (i32.const 0x7ffffff0))",
        ContractViolation,
        "out of bounds",
    ),
    (
        "a list that ends outside of memory",
        Slot::Normalize,
        "(i32.store offset=4 (local.get $out) (i32.const 0x00ffffff))",
        ContractViolation,
        "out of bounds",
    ),
    (
        "a list whose size in bytes overflows",
        Slot::Normalize,
        "(i32.store offset=12 (local.get $out) (i32.const 0xffffffff))",
        ContractViolation,
        "out of bounds",
    ),
    (
        "a list of numbers at an odd address",
        Slot::Normalize,
        "(i32.store (local.get $out) (i32.const 4097))",
        ContractViolation,
        "not aligned",
    ),
    (
        "an answer outside of memory",
        Slot::Normalize,
        "(return (i32.const 0x7ffffff0))",
        ContractViolation,
        "out of bounds",
    ),
    (
        "an answer at the very end of memory",
        Slot::Normalize,
        "(return (i32.sub (i32.shl (memory.size) (i32.const 16)) (i32.const 4)))",
        ContractViolation,
        "out of bounds",
    ),
    (
        "an answer at an odd address",
        Slot::Normalize,
        "(return (i32.const 4097))",
        ContractViolation,
        "not aligned",
    ),
    (
        "values of a case that does not exist",
        Slot::Normalize,
        "(i32.store8 (local.get $column) (i32.const 99))",
        ContractViolation,
        "discriminant",
    ),
    (
        "nulls neither there nor not",
        Slot::Normalize,
        "(i32.store8 offset=20 (local.get $column) (i32.const 2))",
        ContractViolation,
        "discriminant",
    ),
    (
        "a rejection for a reason that does not exist",
        Slot::Normalize,
        "(i32.store offset=16 (local.get $out) (call $alloc (i32.const 28)))
         (i32.store offset=20 (local.get $out) (i32.const 1))
         (i32.store8 offset=4 (i32.load offset=16 (local.get $out)) (i32.const 77))",
        ContractViolation,
        "discriminant",
    ),
    (
        "a rejection whose detail is not UTF-8",
        Slot::Normalize,
        "(i32.store offset=16 (local.get $out) (call $alloc (i32.const 32)))
         (i32.store offset=20 (local.get $out) (i32.const 1))
         (i32.store offset=28 (i32.load offset=16 (local.get $out)) (i32.const 0xff))
         (i32.store offset=20 (i32.load offset=16 (local.get $out))
           (i32.add (i32.const 28) (i32.load offset=16 (local.get $out))))
         (i32.store offset=24 (i32.load offset=16 (local.get $out)) (i32.const 1))",
        ContractViolation,
        "utf-8",
    ),
    (
        "a rejection whose detail lies outside of memory",
        Slot::Normalize,
        "(i32.store offset=16 (local.get $out) (call $alloc (i32.const 28)))
         (i32.store offset=20 (local.get $out) (i32.const 1))
         (i32.store offset=20 (i32.load offset=16 (local.get $out)) (i32.const -8))
         (i32.store offset=24 (i32.load offset=16 (local.get $out)) (i32.const 64))",
        ContractViolation,
        "out of bounds",
    ),
    (
        "room for the batch outside of memory",
        Slot::Realloc,
        "(return (i32.const 0x7ffffff0))",
        ContractViolation,
        "beyond end of memory",
    ),
    (
        "room for the batch that traps",
        Slot::Realloc,
        "(unreachable)",
        Trap,
        "unreachable",
    ),
];

const GIANT: [Row; 4] = [
    (
        "a list as long as memory allows",
        Slot::Normalize,
        "(i32.store (local.get $out) (call $alloc (i32.const 0x01000000)))
         (i32.store offset=4 (local.get $out) (i32.const 0x00400000))",
        ResultSize,
        "larger",
    ),
    (
        "a thousand rejections that share one long text",
        Slot::Normalize,
        "(i32.store offset=16 (local.get $out) (call $alloc (i32.const 28000)))
         (i32.store offset=20 (local.get $out) (i32.const 1000))
         (drop (call $alloc (i32.const 0x00100000)))
         (local.set $row (i32.load offset=16 (local.get $out)))
         (loop $next
           (i32.store offset=20 (local.get $row) (i32.const 8192))
           (i32.store offset=24 (local.get $row) (i32.const 0x00100000))
           (local.set $row (i32.add (local.get $row) (i32.const 28)))
           (br_if $next (i32.lt_u (local.get $row)
             (i32.add (i32.const 28000) (i32.load offset=16 (local.get $out))))))",
        ResultSize,
        "larger",
    ),
    (
        "a thousand columns that share one long list",
        Slot::Normalize,
        "(i32.store offset=8 (local.get $out) (call $alloc (i32.const 32000)))
         (i32.store offset=12 (local.get $out) (i32.const 1000))
         (drop (call $alloc (i32.const 0x00100000)))
         (local.set $row (i32.load offset=8 (local.get $out)))
         (loop $next
           (i32.store offset=4 (local.get $row) (i32.const 8192))
           (i32.store offset=8 (local.get $row) (i32.const 0x00100000))
           (local.set $row (i32.add (local.get $row) (i32.const 32)))
           (br_if $next (i32.lt_u (local.get $row)
             (i32.add (i32.const 32000) (i32.load offset=8 (local.get $out))))))",
        ResultSize,
        "larger",
    ),
    (
        "millions of columns",
        Slot::Normalize,
        "(i32.store offset=8 (local.get $out) (call $alloc (i32.const 0x01000000)))
         (i32.store offset=12 (local.get $out) (i32.const 0x00080000))",
        ResultSize,
        "larger",
    ),
];

const TRAPS: [Row; 7] = [
    (
        "a division by zero",
        Slot::Normalize,
        "(drop (i32.div_u (i32.const 1) (i32.load (i32.const 0))))",
        Trap,
        "divide by zero",
    ),
    (
        "an access outside of memory",
        Slot::Normalize,
        "(drop (i32.load (i32.const -4)))",
        Trap,
        "out of bounds memory access",
    ),
    (
        "a call of nothing",
        Slot::Normalize,
        "(drop (call_indirect (type $nothing) (i32.const 0)))",
        Trap,
        "uninitialized element",
    ),
    (
        "a call of a function of another type",
        Slot::Normalize,
        "(drop (call_indirect (type $nothing) (i32.const 1)))",
        Trap,
        "type mismatch",
    ),
    (
        "memory that is refused",
        Slot::Normalize,
        "(drop (call $alloc (i32.const 0x40000000)))",
        Memory,
        "may have 33554432",
    ),
    (
        "a recursion without end",
        Slot::Normalize,
        "(call $deeper)",
        Trap,
        "stack",
    ),
    (
        "cleaning up that traps",
        Slot::CleaningUp,
        "(unreachable)",
        Trap,
        "unreachable",
    ),
];

const HANGS: [Row; 3] = [
    (
        "a loop",
        Slot::Normalize,
        "(loop (br 0))",
        Deadline,
        "within",
    ),
    (
        "room for the batch that never comes",
        Slot::Realloc,
        "(loop (br 0))",
        Deadline,
        "within",
    ),
    (
        "cleaning up without end",
        Slot::CleaningUp,
        "(loop (br 0))",
        Deadline,
        "within",
    ),
];

/// What some of the code above needs beside it.
const MORE: &str = "
    (type $nothing (func (result i32)))
    (table 2 2 funcref)
    (elem (i32.const 1) func $deeper)
    (func $deeper (call $deeper) (call $deeper))
";

async fn each_fails_alone(limits: Limits, guests: &[Row]) {
    let host = host(limits);
    for (name, slot, code, kind, word) in guests {
        let wasm = guest(&[(*slot, code), (Slot::More, MORE)]);
        let normalizer = load(&host, wasm, name).await;
        let fault = only_the_poison_fails(&normalizer, &POISON).await;
        assert_eq!(fault.kind, *kind, "{name}: {fault}");
        assert!(said(&fault).contains(word), "{name}: {}", said(&fault));
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_read() {
    each_fails_alone(tight(), &UNREADABLE).await;
}

#[tokio::test]
async fn an_answer_that_is_too_large_whatever_it_shares() {
    each_fails_alone(tight(), &GIANT).await;
}

#[tokio::test]
async fn a_trap_is_called_by_its_name() {
    each_fails_alone(tight(), &TRAPS).await;
}

#[tokio::test]
async fn time_counts_wherever_it_is_spent() {
    each_fails_alone(hasty(), &HANGS).await;
}

#[tokio::test]
async fn an_admission_that_cannot_be_read() {
    let host = host(tight());
    for (name, code, kind, word) in [
        (
            "answers outside of memory",
            "(i32.store (local.get $out) (i32.const 0x7ffffff0))",
            ContractViolation,
            "out of bounds",
        ),
        (
            "neither admitted nor not",
            "(i32.store8 (i32.load (local.get $out)) (i32.const 9))",
            ContractViolation,
            "discriminant",
        ),
        (
            "a million answers",
            "(i32.store (local.get $out) (call $alloc (i32.const 28000000)))
             (i32.store offset=4 (local.get $out) (i32.const 1000000))",
            ResultSize,
            "larger",
        ),
    ] {
        let normalizer = load(&host, guest(&[(Slot::Admit, code)]), name).await;
        let fault = only_the_poison_is_not_admitted(&normalizer, &POISON).await;
        assert_eq!(fault.kind, kind, "{name}: {fault}");
        assert!(said(&fault).contains(word), "{name}: {}", said(&fault));
    }
}

/// The slots are empty: what the tests above see comes from their code.
#[tokio::test]
async fn without_bad_code_the_guest_is_good() {
    let normalizer = load(&host(tight()), guest(&[]), "the good one").await;
    let normalized = normalizer
        .normalize(batch(&[b"a", &POISON, b"b"]))
        .await
        .unwrap();
    assert_eq!(rows(&normalized), [0, 1, 2], "{:?}", normalized.faults);
}
