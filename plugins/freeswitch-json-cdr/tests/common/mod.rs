//! What the test files share: one good record to vary, and the switch's own
//! encoding.
#![allow(dead_code, reason = "each test file uses its part")]

use cdr_plugin_sdk::native;
use freeswitch_json_cdr::FreeswitchJsonCdr;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::OnceLock;

/// When records are received where nothing else is said.
pub const RECEIVED_MS: i64 = 1_700_000_200_000;

/// The fixtures, and their settings.
pub fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// The normalizer with the settings of the fixtures.
pub fn normalizer() -> &'static FreeswitchJsonCdr {
    static CONFIGURED: OnceLock<FreeswitchJsonCdr> = OnceLock::new();
    CONFIGURED.get_or_init(|| {
        let settings = std::fs::read_to_string(fixtures().join("settings.json")).unwrap();
        native::configure(&settings).unwrap()
    })
}

/// A good record, plain: a call from the network that was answered.
pub fn call() -> Value {
    json!({
        "core-uuid": "5b1a3a40-8d56-4d0c-9c0e-6a2d6f1f0001",
        "switchname": "fs-lon-1",
        "channel_data": {"state": "CS_REPORTING", "direction": "inbound"},
        "variables": {
            "direction": "inbound",
            "uuid": "0b9e9a34-6f0c-4f6e-9d63-1f4c2d7a0001",
            "call_uuid": "0b9e9a34-6f0c-4f6e-9d63-1f4c2d7a0001",
            "sip_call_id": "3c26700857a87f84@192.0.2.20",
            "sofia_profile_name": "external",
            "start_stamp": "2023-11-14 22:13:20",
            "start_epoch": "1700000000",
            "answer_epoch": "1700000006",
            "end_epoch": "1700000066",
            "billsec": "60",
            "hangup_cause": "NORMAL_CLEARING",
            "hangup_cause_q850": "16",
        },
        "callflow": [{"caller_profile": {
            "caller_id_number": "+442079460123",
            "ani": "+442079460123",
            "destination_number": "+442079460101",
            "network_addr": "192.0.2.20",
        }}],
    })
}

/// The good record with some variables changed or, by `null`, left out.
pub fn with_variables(changes: Value) -> Value {
    let mut record = call();
    let variables = record["variables"].as_object_mut().unwrap();
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            variables.remove(name);
        } else {
            variables.insert(name.clone(), value.clone());
        }
    }
    record
}

/// What `encode-values` makes of a value: all that is no printable ASCII, and
/// what is unsafe in a URL.
pub fn switch_encoded(value: &str) -> String {
    value
        .bytes()
        .map(|byte| {
            if matches!(byte, b'!'..=b'~') && !b"#%&+:;<=>?@[\\]^`{|}\"".contains(&byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}
