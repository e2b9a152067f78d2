//! What the test files share: the cases, and one good record to vary.
#![allow(dead_code, reason = "each test file uses its part")]

use cdr_normalizer::admit::{Admitted, Refusal, admit};
use cdr_normalizer::normalize::{Rejection, Row, normalize};
use cdr_normalizer::raw::RawCdr;
use cdr_normalizer::settings::Settings;
use serde_json::{Map, Value, json};

/// When records are received where nothing else is said, in seconds.
pub const NOW_S: i64 = 1_700_086_400;

/// One case of `tests/cases`.
pub struct Case {
    pub id: String,
    pub input: Value,
    pub expect: Value,
    pub now_s: i64,
}

/// The cases of an area, in the order of the file.
pub fn cases(area: &str) -> Vec<Case> {
    let path = format!("{}/tests/cases/{area}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let lines = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    lines
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| {
            let case: Value = serde_json::from_str(line).expect("a case is JSON");
            Case {
                id: case["id"].as_str().expect("a case has an id").to_owned(),
                input: case["input"].clone(),
                expect: case["expect"].clone(),
                now_s: case["ctx"]["now"].as_i64().unwrap_or(NOW_S),
            }
        })
        .collect()
}

/// A good record of a short message: nothing optional in it.
pub fn base() -> Map<String, Value> {
    let Value::Object(record) = json!({
        "raw_id": "r-0001",
        "vendor_id": "vend-a",
        "service_type": "sms",
        "radio_access_type": "EUTRAN",
        "cell_id": "001-01-0012A3F4",
        "caller_num": "+12025550123",
        "session_start_time": 1_700_000_000,
    }) else {
        unreachable!("it is an object")
    };
    record
}

/// The base with some fields changed or added, as a payload.
pub fn with(fields: &[(&str, Value)]) -> String {
    let mut record = base();
    for (name, value) in fields {
        record.insert((*name).to_owned(), value.clone());
    }
    Value::Object(record).to_string()
}

/// The base with one field given as JSON text, whatever that is.
pub fn with_json(name: &str, text: &str) -> String {
    let mut record = base();
    record.remove(name);
    let mut payload = Value::Object(record).to_string();
    payload.pop();
    format!("{payload},\"{name}\":{text}}}")
}

/// What the worker does with a payload.
pub fn worker<'a>(
    payload: &'a [u8],
    settings: &Settings,
    now_s: i64,
) -> Result<Row<'a>, Rejection> {
    normalize(RawCdr::parse(payload)?, now_s * 1000, settings)
}

/// The same with no settings at the usual time; the reason, field and detail.
pub fn rejected(payload: &str) -> Option<(&'static str, Option<&'static str>)> {
    worker(payload.as_bytes(), &Settings::default(), NOW_S)
        .err()
        .map(|rejection| (rejection.reason.as_str(), rejection.field))
}

/// What the API does with a payload.
pub fn api(payload: &[u8]) -> Result<(String, String), Refusal> {
    let record = RawCdr::parse(payload)?;
    let Admitted { raw_id, vendor_id } = admit(&record)?;
    Ok((raw_id.to_owned(), vendor_id.to_owned()))
}

/// Settings with a general default region, or none.
pub fn settings(region: &Value) -> Settings {
    serde_json::from_value(json!({ "default_region": region })).expect("a known region")
}
