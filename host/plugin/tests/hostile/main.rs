//! Whatever a guest does: the host lives, its memory is bounded, the error names
//! what happened, the good records of the batch come out, the poison is answered
//! as a fault with its cause, and the next batch is served.
//!
//! The guests are of two kinds: `plugins/hostile`, which misbehaves by payload
//! and settings as a program in Rust can, and `guest.wat`, for what no compiler
//! would make. Each table says guest, provocation, kind of fault, and a word
//! that the error must contain.

#[path = "../common/mod.rs"]
mod common;
mod promises;
mod wat_guest;

mod abi;
mod loading;
mod measured;
mod records;
mod reuse;
mod state;
mod wasi;
