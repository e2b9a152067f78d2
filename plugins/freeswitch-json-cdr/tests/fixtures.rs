//! The fixtures, natively. (The host's test runs them through the built .wasm.)

mod common;

use cdr_plugin_sdk::bindings::{Column, ColumnType, Values};
use cdr_plugin_sdk::{Reason, ViolationCode, native};
use common::{fixtures, normalizer};
use freeswitch_json_cdr::FreeswitchJsonCdr;
use serde_json::{Map, Value, json};
use std::net::Ipv4Addr;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

#[test]
fn every_fixture_becomes_what_it_says() {
    let mut seen = 0;
    let mut failures = Vec::new();
    for entry in std::fs::read_dir(fixtures()).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        let Some(name) = file.strip_suffix(".out.json") else {
            continue;
        };
        let payload = ["in.json", "in.bin", "in"]
            .iter()
            .find_map(|extension| {
                std::fs::read(path.with_file_name(format!("{name}.{extension}"))).ok()
            })
            .unwrap_or_else(|| panic!("{name} has no input"));
        let expected: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let found = answers(&payload, expected["received_at"].as_i64().unwrap());
        if found != expected {
            failures.push(format!("{name}: expected {expected:#}, found {found:#}"));
        }
        seen += 1;
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(seen >= 30, "only {seen} fixtures");
}

/// As `cdr plugin eval` would print it.
fn answers(payload: &[u8], received_at: i64) -> Value {
    let admit = match native::admit_one(normalizer(), payload) {
        Ok(admission) => {
            json!({"admitted": {"key": admission.key, "source": admission.source}})
        }
        Err(violation) => json!({"refused": {
            "code": match violation.code {
                ViolationCode::MalformedJson => "malformed_json",
                ViolationCode::MissingRequiredField => "missing_required_field",
                ViolationCode::InvalidType => "invalid_type",
            },
            "field": violation.field, "detail": violation.detail,
        }}),
    };
    let outcome = native::normalize(normalizer(), &native::batch([payload], received_at));
    let normalize = match outcome.rejections.first() {
        Some(rejection) => json!({"rejected": {
            "reason": match rejection.reason {
                Reason::MissingRequiredField => "missing_required_field",
                Reason::InvalidRatValue => "invalid_rat_value",
                Reason::InvalidEpoch => "invalid_epoch",
                Reason::MalformedJson => "malformed_json",
                Reason::NormalizationError => "normalization_error",
            },
            "field": rejection.field, "detail": rejection.detail,
        }}),
        None => {
            let specs = native::manifest::<FreeswitchJsonCdr>().columns;
            let cells = specs.into_iter().zip(&outcome.columns);
            let row: Map<_, _> = cells
                .map(|(spec, column)| (spec.name, cell(spec.kind, column)))
                .collect();
            json!({ "row": row })
        }
    };
    json!({"received_at": received_at, "admit": admit, "normalize": normalize})
}

/// The only value of a column.
fn cell(kind: ColumnType, column: &Column) -> Value {
    if column.nulls.as_deref() == Some(&[1]) {
        return Value::Null;
    }
    match (kind, &column.values) {
        (ColumnType::Boolean, Values::Booleans(values)) => json!(values[0] == 1),
        (ColumnType::Seconds, Values::Uint32s(values)) => {
            let instant = OffsetDateTime::from_unix_timestamp(values[0].into()).unwrap();
            json!(instant.format(&Rfc3339).unwrap())
        }
        (ColumnType::Ipv4, Values::Uint32s(values)) => json!(Ipv4Addr::from(values[0])),
        (ColumnType::Uuid, Values::Uint64s(values)) => {
            json!(Uuid::from_u64_pair(values[0], values[1]).to_string())
        }
        (_, Values::Uint32s(values)) => json!(values[0]),
        (_, Values::Uint64s(values)) => json!(values[0]),
        (_, Values::Blobs(blobs)) => json!(str::from_utf8(&blobs.data).unwrap()),
        other => panic!("no such column: {other:?}"),
    }
}
