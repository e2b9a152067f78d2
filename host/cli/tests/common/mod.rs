//! What the tests of the whole path share: `cdr` processes, records with their
//! right answers, and the judgement of what landed.

#![allow(dead_code, reason = "each test uses its part")]

pub mod bed;
#[path = "../../src/http_client.rs"]
pub mod http_client;
pub mod judge;
pub mod process;
pub mod records;

use std::path::PathBuf;

/// The reference normalizer, as `just plugin-build` has built it.
pub fn normalizer() -> PathBuf {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/plugins/cdr-normalizer.wasm");
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
