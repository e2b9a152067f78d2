//! What the tests of the whole path share: `cdr` processes, records with their
//! right answers, and the judgement of what landed.

#![allow(dead_code, reason = "each test uses its part")]

pub mod bed;
#[path = "../../src/http_client.rs"]
pub mod http_client;
pub mod judge;
pub mod process;
pub mod records;
pub mod registry;

use std::path::PathBuf;

/// The reference normalizer, as `just plugin-build` has built it.
pub fn normalizer() -> PathBuf {
    built("cdr-normalizer.wasm")
}

/// The normalizer of FreeSWITCH's call records.
pub fn freeswitch() -> PathBuf {
    built("freeswitch-json-cdr.wasm")
}

/// The reference under another name, in this version, changed as this says: see the
/// crate `cdr-versions`.
pub fn version(text: &str) -> Vec<u8> {
    let built = std::fs::read(built("versions.wasm")).unwrap();
    cdr_versions::patched(&built, text)
}

fn built(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../target/plugins")
        .join(name);
    assert!(
        path.is_file(),
        "{} is not there: build it with `just plugin-build`",
        path.display()
    );
    path
}

/// Settings in which every vendor of the tests has a region.
pub fn settings() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../samples/normalizer-settings.json")
}
