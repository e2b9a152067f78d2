//! What is no normalizer is refused with a sentence that says what was expected,
//! what was found and what to do.

mod common;

use cdr_plugin_host::{Limits, LoadError};
use common::{host, reference};
use std::path::Path;

async fn refusal(wasm: &[u8]) -> LoadError {
    host(Limits::default())
        .load(wasm.to_vec(), "{}")
        .await
        .expect_err("it must be refused")
}

fn component(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap()
}

#[tokio::test]
async fn files_that_are_no_components() {
    assert!(matches!(refusal(b"").await, LoadError::Empty));
    assert!(matches!(
        refusal(b"#!/bin/sh\n").await,
        LoadError::NotWasm { .. }
    ));
    let module = component("(module (func (export \"f\")))");
    let error = refusal(&module).await;
    assert!(matches!(error, LoadError::CoreModule));
    assert!(error.to_string().contains("wasm32-wasip2"));
}

#[tokio::test]
async fn a_truncated_component_is_damaged_wherever_it_is_cut() {
    let whole = std::fs::read(reference()).unwrap();
    for part in [9, 100, whole.len() / 2, whole.len() - 1] {
        let error = refusal(&whole[..part]).await;
        assert!(
            matches!(
                error,
                LoadError::Damaged { .. } | LoadError::WrongInterface { .. }
            ),
            "cut at {part}: {error}"
        );
    }
}

#[tokio::test]
async fn a_missing_file_is_named() {
    let error = host(Limits::default())
        .load_file(Path::new("no/such.wasm"), "{}")
        .await
        .unwrap_err();
    assert!(error.to_string().contains("no/such.wasm"), "{error}");
}

#[tokio::test]
async fn another_interface_is_named_beside_the_expected_one() {
    let other =
        component(r#"(component (instance $i) (export "wasi:cli/run@0.2.0" (instance $i)))"#);
    let text = refusal(&other).await.to_string();
    assert!(text.contains("telecom:cdr/normalizer@1.0.0"), "{text}");
    assert!(text.contains("wasi:cli/run@0.2.0"), "{text}");

    let version = component(
        r#"(component (instance $i) (export "telecom:cdr/normalizer@2.0.0" (instance $i)))"#,
    );
    let text = refusal(&version).await.to_string();
    assert!(text.contains("telecom:cdr/normalizer@2.0.0"), "{text}");
    assert!(text.contains("another version"), "{text}");

    let nothing = refusal(&component("(component)")).await.to_string();
    assert!(nothing.contains("none at all"), "{nothing}");
}

#[tokio::test]
async fn the_right_name_with_the_wrong_functions() {
    let empty = component(
        r#"(component (instance $i) (export "telecom:cdr/normalizer@1.0.0" (instance $i)))"#,
    );
    let error = refusal(&empty).await;
    assert!(matches!(error, LoadError::WrongTypes { .. }), "{error}");
}

#[tokio::test]
async fn forbidden_imports_are_named() {
    for import in [
        "wasi:sockets/tcp@0.2.0",
        "wasi:http/types@0.2.0",
        "evil:corp/backdoor@1.0.0",
    ] {
        let text = format!(
            r#"(component (import "{import}" (instance $x)) (instance $i) (export "telecom:cdr/normalizer@1.0.0" (instance $i)))"#
        );
        match refusal(&component(&text)).await {
            LoadError::ForbiddenImport { import: found } => assert_eq!(found, import),
            other => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn a_file_above_the_limit_is_not_read() {
    let limits = Limits {
        component_bytes: 1000,
        ..Limits::default()
    };
    let error = host(limits)
        .load_file(&reference(), "{}")
        .await
        .unwrap_err();
    assert!(
        matches!(error, LoadError::TooLarge { limit: 1000, .. }),
        "{error}"
    );
}

#[tokio::test]
async fn settings_that_are_refused_say_where() {
    let host = host(Limits::default());
    for (settings, word) in [
        (r#"{"default_region":"XX"}"#, "XX"),
        (r#"{"region":"GB"}"#, "unknown field"),
        ("{", "EOF"),
    ] {
        match host.load_file(&reference(), settings).await {
            Err(LoadError::Settings { message }) => {
                assert!(message.contains(word), "{settings}: {message}");
            }
            other => panic!("{settings}: {other:?}"),
        }
    }
}
