//! Guests written by hand, as WebAssembly text: `guest.wat` with bad code in its
//! slots, made a component as an author's tools would make one.

use std::path::PathBuf;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// Where bad code goes; see `guest.wat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// The type of its memory, two pages by itself.
    Memory,
    /// In `cabi_realloc`, when the host wants room for the poison.
    Realloc,
    /// At the start of `describe`.
    Describe,
    /// At the start of `configure`.
    Configure,
    /// At the end of `admit`, when the poison is there.
    Admit,
    /// At the end of `normalize`, when the poison is there.
    Normalize,
    /// In `cabi_post_…`, which frees an answer, when the poison is there.
    CleaningUp,
    /// Further fields of the module.
    More,
}

const SLOTS: [(Slot, &str, &str); 8] = [
    (Slot::Memory, "(;memory;)", "2"),
    (Slot::Realloc, "(;poisoned realloc;)", ""),
    (Slot::Describe, "(;describe;)", ""),
    (Slot::Configure, "(;configure;)", ""),
    (Slot::Admit, "(;poisoned admit;)", ""),
    (Slot::Normalize, "(;poisoned normalize;)", ""),
    (Slot::CleaningUp, "(;poisoned cleaning-up;)", ""),
    (Slot::More, "(;more;)", ""),
];

/// The record that the guests can't bear.
pub const POISON: [u8; 1000] = [b'!'; 1000];

/// `guest.wat` with this code, as a component of the contract.
pub fn guest(code: &[(Slot, &str)]) -> Vec<u8> {
    guest_of(&contract(), code)
}

/// The text of the contract.
pub fn contract() -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../wit/1.0.0/cdr.wit");
    std::fs::read_to_string(path).expect("the contract")
}

/// `guest.wat` with this code, as a component of another contract.
pub fn guest_of(contract: &str, code: &[(Slot, &str)]) -> Vec<u8> {
    let mut text = include_str!("guest.wat").to_owned();
    for (slot, mark, usual) in SLOTS {
        assert!(text.contains(mark), "no slot {slot:?}");
        let bad = code.iter().find(|(bad, _)| *bad == slot);
        text = text.replace(mark, bad.map_or(usual, |(_, code)| code));
    }
    let mut module = wat::parse_str(&text).expect("a module");
    let mut resolve = Resolve::default();
    let package = resolve.push_str("cdr.wit", contract).expect("a contract");
    let world = resolve.select_world(&[package], None).expect("a world");
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8, false)
        .expect("metadata");
    ComponentEncoder::default()
        .module(&module)
        .and_then(|encoder| encoder.validate(false).encode())
        .expect("a component")
}
