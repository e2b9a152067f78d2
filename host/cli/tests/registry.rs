//! The registry by commands alone: adding, activating, going back.

mod common;

use common::registry::TestRegistry;
use serde_json::json;
use std::path::Path;

#[test]
fn activations_are_kept_and_returned_to_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let registry = TestRegistry::with(dir.path().join("normalizers"), "1.0.0");
    let first = registry.active();
    assert_eq!(first["revision"], 1);
    registry.fails(&["rollback"], &["nothing to roll back to"]);

    registry.succeeds(&["activate", &registry.file("1.1.0")]);
    let second = registry.active();
    assert_eq!(
        second["active"]["settings"], first["active"]["settings"],
        "kept"
    );
    let said = registry.succeeds(&["activate", "cdr-versions@1.1.0"]);
    assert!(said.contains("active already"), "{said}");
    registry.succeeds(&["activate", &registry.file("1.2.0"), "--no-settings"]);
    assert!(registry.active()["active"].get("settings").is_none());

    registry.succeeds(&["rollback"]);
    assert_eq!(registry.active()["active"], second["active"]);
    registry.succeeds(&["rollback"]);
    assert_eq!(registry.active()["active"], first["active"]);
    registry.fails(&["rollback"], &["nothing to roll back to"]);
    registry.succeeds(&["rollback", "--to", "3"]);
    assert_eq!(registry.active()["active"]["version"], "1.2.0");
    registry.fails(&["rollback", "--to", "99"], &["no revision 99"]);

    // What a person wrote is an activation too, and is not lost.
    let mut by_hand = second.clone();
    by_hand["revision"] = json!(3);
    registry.write_active(&by_hand);
    registry.succeeds(&["activate", "cdr-versions@1.0.0"]);
    registry.succeeds(&["rollback"]);
    assert_eq!(registry.active()["active"], second["active"]);

    let said = registry.succeeds(&["list"]);
    for words in [
        "cdr-versions@1.0.0",
        "cdr-versions@1.2.0",
        "active (revision",
    ] {
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn a_version_never_changes_and_a_file_is_named_after_its_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let registry = TestRegistry::with(dir.path().join("normalizers"), "1.0.0");
    let same = registry.succeeds(&["add", &registry.file("1.0.0")]);
    assert!(same.contains("is there already"), "{same}");
    registry.fails(
        &["add", &registry.file("1.0.0 +roaming:category")],
        &["a version never changes"],
    );
    std::fs::copy(
        registry.dir.join("cdr-versions@1.0.0.wasm"),
        registry.dir.join("cdr-versions@3.0.0.wasm"),
    )
    .unwrap();
    registry.fails(
        &["activate", "cdr-versions@3.0.0"],
        &["says of itself that it is cdr-versions@1.0.0"],
    );
    registry.fails(&["activate", "cdr-versions"], &["NAME@VERSION"]);
}

#[test]
fn two_files_are_compared_on_payloads_of_standard_input() {
    use std::io::Write;
    let dir = tempfile::tempdir().unwrap();
    let registry = TestRegistry::with(dir.path().join("normalizers"), "1.0.0");
    let (before, after) = (registry.file("1.0.0"), registry.file("1.1.0 reject"));
    let (samples, _) = common::records::goods(0, 3);
    let diff = |a: &str, b: &str| {
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_cdr"))
            .args(["plugin", "diff", a, b, "--check", "--settings"])
            .arg(common::settings())
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        for sample in &samples {
            stdin.write_all(&sample.payload).unwrap();
            stdin.write_all(b"\n").unwrap();
        }
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), said)
    };
    let (code, said) = diff(&before, &after);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("3 records, 0 the same"), "{said}");
    let (code, said) = diff(&before, &before);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("3 records, 3 the same"), "{said}");
}

#[test]
fn a_version_serves_only_if_it_passes_the_fixtures_that_it_came_with() {
    let dir = tempfile::tempdir().unwrap();
    let registry = TestRegistry::with(dir.path().join("normalizers"), "1.0.0");
    let fixtures =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/cdr-normalizer/fixtures");
    let fixtures = fixtures.to_str().unwrap();
    let rejects = registry.file("1.1.0 reject");
    registry.fails(
        &["add", &rejects, "--fixtures", fixtures],
        &["fixtures", "differ", "…and"],
    );
    assert!(!registry.dir.join("cdr-versions@1.1.0.wasm").exists());

    let said = registry.succeeds(&["activate", &registry.file("1.2.0"), "--fixtures", fixtures]);
    assert!(said.contains("fixtures passed"), "{said}");
    let kept = registry.dir.join("cdr-versions@1.2.0.fixtures");
    assert!(kept.join("json-base.out.json").is_file());
    registry.succeeds(&["rollback"]);

    // As after a mistake that the fixtures were corrected for.
    let answer = kept.join("json-base.out.json");
    let text = std::fs::read_to_string(&answer).unwrap();
    std::fs::write(
        &answer,
        text.replace("\"duration_s\": 60", "\"duration_s\": 61"),
    )
    .unwrap();
    registry.fails(
        &["activate", "cdr-versions@1.2.0"],
        &["json-base", "1 of ", "--ignore-fixtures"],
    );
    assert_eq!(registry.active()["active"]["version"], "1.0.0");
    registry.fails(
        &["activate", "cdr-versions@1.2.0", "--fixtures", fixtures],
        &["--fixtures comes with a FILE.wasm"],
    );
    registry.succeeds(&["activate", "cdr-versions@1.2.0", "--ignore-fixtures"]);
    assert_eq!(registry.active()["active"]["version"], "1.2.0");
}
