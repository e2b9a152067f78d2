//! Signed normalizers, by commands alone: keys, signing, and what is refused.

mod common;

use common::registry::{TestRegistry, plugin};

fn key(dir: &std::path::Path, name: &str) -> (String, String) {
    let prefix = dir.join(name).display().to_string();
    let output = plugin(&["keygen", &prefix, "--no-password"], &[]);
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, public) = said.split_once("NORMALIZER_TRUSTED_KEYS=").unwrap();
    (format!("{prefix}.key"), public.trim().to_owned())
}

#[test]
fn with_trusted_keys_only_what_one_of_them_signed_is_let_in() {
    let dir = tempfile::tempdir().unwrap();
    let (release, public) = key(dir.path(), "release");
    let (other, _) = key(dir.path(), "other");
    let registry = TestRegistry::with(dir.path().join("normalizers"), "1.0.0");
    let file = registry.file("1.1.0");
    let trusting = [
        ("NORMALIZER_DIR", registry.dir.display().to_string()),
        ("NORMALIZER_TRUSTED_KEYS", public.clone()),
    ];
    let refused = |words: &str| {
        let before = registry.active();
        let output = plugin(&["activate", &file], &trusting);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(words), "{said}");
        assert_eq!(registry.active(), before);
    };
    refused("it is not signed");
    registry.succeeds(&["sign", &file, "--key", &other]);
    refused("not by a trusted key");
    registry.succeeds(&["sign", &file, "--key", &release]);
    let output = plugin(&["activate", &file], &trusting);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("signatures are not checked"), "{said}");
    let verified = plugin(&["verify", &file], &trusting);
    assert!(String::from_utf8_lossy(&verified.stdout).contains(&public));

    // A file that changes after it was signed is another one.
    let mut wasm = std::fs::read(&file).unwrap();
    *wasm.last_mut().unwrap() ^= 1;
    std::fs::write(&file, wasm).unwrap();
    let verified = plugin(&["verify", &file], &trusting);
    assert_eq!(verified.status.code(), Some(1));

    // Without keys it is said that nothing is checked.
    let output = registry.plugin(&["activate", &registry.file("1.2.0")]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("signatures are not checked"), "{said}");

    // A key is never overwritten, and the secret one is closed to others.
    let prefix = dir.path().join("release").display().to_string();
    registry.fails(
        &["keygen", &prefix, "--no-password"],
        &["never overwritten"],
    );
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&release).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    let nonsense = plugin(
        &["verify", &file, "--normalizer-trusted-keys", "RWnonsense"],
        &[],
    );
    assert!(String::from_utf8_lossy(&nonsense.stderr).contains("no minisign public key"));
}
