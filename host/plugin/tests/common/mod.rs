//! What the tests share: the built components, and hosts to run them.

#![allow(dead_code, reason = "each test uses its part")]

use cdr_plugin_host::{HostConfig, Limits, Normalizer, PluginHost};
use std::path::PathBuf;
use std::time::Duration;

/// A component that a recipe of the Justfile has built.
fn built(variable: &str, name: &str, recipe: &str) -> PathBuf {
    let path = std::env::var_os(variable).map_or_else(
        || {
            PathBuf::from(env!("CARGO_MANIFEST_DIR"))
                .join("../../target/plugins")
                .join(name)
        },
        PathBuf::from,
    );
    assert!(
        path.is_file(),
        "{} is not there: build it with `just {recipe}` (or name it in {variable})",
        path.display()
    );
    path
}

/// The reference normalizer.
pub fn reference() -> PathBuf {
    built("CDR_NORMALIZER_WASM", "cdr-normalizer.wasm", "plugin-build")
}

/// The normalizer of FreeSWITCH's call records.
pub fn freeswitch() -> PathBuf {
    built(
        "FREESWITCH_NORMALIZER_WASM",
        "freeswitch-json-cdr.wasm",
        "plugin-build",
    )
}

/// The guest that misbehaves on command.
pub fn hostile() -> PathBuf {
    built("CDR_HOSTILE_WASM", "hostile.wasm", "plugin-build")
}

/// The example in Python.
pub fn sms_hub() -> PathBuf {
    built("CDR_SMS_HUB_WASM", "sms-hub.wasm", "plugin-other-language")
}

/// Limits that faults reach soon, yet good batches never on a slow machine.
pub fn tight() -> Limits {
    Limits {
        memory_bytes: 32 << 20,
        call_base: Duration::from_secs(2),
        load: Duration::from_secs(5),
        result_base_bytes: 1 << 20,
        ..Limits::default()
    }
}

/// A host with these limits and two guest threads.
pub fn host(limits: Limits) -> PluginHost {
    PluginHost::new(&HostConfig {
        limits,
        threads: 2,
        // Compiling takes seconds in a debug build; the tests share the result.
        cache_dir: Some(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("compiled")),
        ..HostConfig::default()
    })
    .expect("a plugin host")
}

/// The hostile guest in a host with tight limits.
pub async fn load_hostile() -> Normalizer {
    host(tight())
        .load_file(&hostile(), "{}")
        .await
        .expect("the hostile guest loads")
}
