//! All cases of the reference normalizer, through the built .wasm.

mod common;

use cdr_plugin_host::{Admitted, Batch, Normalizer, json};
use common::{host, reference};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// When records are received where a case says nothing, in seconds.
const RECEIVED: i64 = 1_700_086_400;

fn cases(area: &str) -> Vec<Value> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../plugins/cdr-normalizer/tests/cases")
        .join(format!("{area}.jsonl"));
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let cases: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(!cases.is_empty());
    cases
}

fn base() -> Map<String, Value> {
    let record = json!({
        "vendor_id": "vend-a", "raw_id": "r-0001", "service_type": "sms",
        "radio_access_type": "EUTRAN", "cell_id": "001-01-0012A3F4",
        "caller_num": "+12025550123", "session_start_time": RECEIVED - 100,
    });
    record.as_object().unwrap().clone()
}

fn record(fields: Value) -> Vec<u8> {
    let mut record = base();
    record.extend(fields.as_object().unwrap().clone());
    serde_json::to_vec(&record).unwrap()
}

/// `Ok(row)` or `Err(reason)`.
async fn ask(normalizer: &Normalizer, payload: &[u8], received: i64) -> Result<Value, String> {
    let batch = Batch::of([payload], received * 1000).unwrap();
    let normalized = normalizer.normalize(batch).await.unwrap();
    assert!(normalized.faults.is_empty(), "{:?}", normalized.faults);
    match normalized.rejections.first() {
        Some(rejection) => Err(json::rejection(rejection)["reason"]
            .as_str()
            .unwrap()
            .to_owned()),
        None => Ok(json::row(
            &normalizer.manifest().columns,
            &normalized.parts[0],
            0,
        )),
    }
}

/// The reference normalizer, loaded once: each region of the phone cases is the
/// default of a vendor that is named like it.
async fn normalizer() -> &'static Normalizer {
    static LOADED: tokio::sync::OnceCell<Normalizer> = tokio::sync::OnceCell::const_new();
    LOADED
        .get_or_init(async || {
            let vendors: Map<String, Value> = cases("phone")
                .iter()
                .filter_map(|case| case["input"]["default_region"].as_str())
                .map(|region| (region.to_owned(), json!({"default_region": region})))
                .collect();
            let settings = json!({"vendors": vendors}).to_string();
            host(Default::default())
                .load_file(&reference(), &settings)
                .await
                .unwrap()
        })
        .await
}

/// Runs a check over the cases of an area, and lists all that fail.
async fn run(area: &str, check: impl AsyncFn(&Normalizer, &Value) -> Result<(), String>) {
    let mut failures = Vec::new();
    for case in cases(area) {
        if let Err(found) = check(normalizer().await, &case).await {
            failures.push(format!(
                "{}: expected {}, {found}",
                case["id"], case["expect"]
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn compare(
    expect: &Value,
    got: Result<Value, String>,
    pairs: &[(&str, &str)],
) -> Result<(), String> {
    match (expect.get("error").and_then(Value::as_str), got) {
        (Some(error), Err(reason)) if error == reason => Ok(()),
        (None, Ok(row)) => {
            for (expected, column) in pairs {
                let want = expect.get(*expected).cloned();
                if let Some(want) = want
                    && row[*column] != want
                {
                    return Err(format!("{column} is {}", row[*column]));
                }
            }
            Ok(())
        }
        (_, got) => Err(format!("found {got:?}")),
    }
}

#[tokio::test]
async fn phone() {
    run("phone", async |normalizer, case| {
        let vendor = case["input"]["default_region"]
            .as_str()
            .unwrap_or("elsewhere");
        let payload = record(json!({"vendor_id": vendor, "caller_num": case["input"]["raw"]}));
        let got = ask(normalizer, &payload, RECEIVED).await;
        compare(
            &case["expect"],
            got,
            &[("e164", "msisdn"), ("valid", "msisdn_valid")],
        )
    })
    .await;
}

#[tokio::test]
async fn rat() {
    run("rat", async |normalizer, case| {
        let got = ask(normalizer, &record(case["input"].clone()), RECEIVED).await;
        compare(
            &case["expect"],
            got,
            &[
                ("radio_access_type", "radio_access_type"),
                ("rat_orbit", "rat_orbit"),
                ("secondary_rat", "secondary_rat"),
            ],
        )
    })
    .await;
}

#[tokio::test]
async fn epoch() {
    run("epoch", async |normalizer, case| {
        let received = case["ctx"]["now"].as_i64().unwrap_or(RECEIVED);
        let input = &case["input"];
        let payload = match input["field"].as_str() {
            None => record(input.clone()),
            Some(field) => {
                // The token is literal: it may be no JSON that a library would write.
                let mut fields = base();
                fields.remove(field);
                let rest = serde_json::to_string(&fields).unwrap();
                format!(
                    "{{\"{field}\":{},{}",
                    input["json"].as_str().unwrap(),
                    rest.trim_start_matches('{')
                )
                .into_bytes()
            }
        };
        let got = ask(normalizer, &payload, received).await;
        let mut expect = case["expect"].clone();
        if let Some(time) = expect["datetime_utc"].as_str() {
            expect["datetime_utc"] = json!(format!("{}Z", time.replace(' ', "T")));
        }
        compare(&expect, got, &[("datetime_utc", "session_start_time")])
    })
    .await;
}

#[tokio::test]
async fn ip() {
    run("ip", async |normalizer, case| {
        let got = ask(normalizer, &record(case["input"].clone()), RECEIVED).await;
        compare(&case["expect"], got, &[("ip_address", "ip_address")])
    })
    .await;
}

#[tokio::test]
async fn cdr_id() {
    run("cdr_id", async |normalizer, case| {
        let got = ask(normalizer, &record(case["input"].clone()), RECEIVED).await;
        compare(&case["expect"], got, &[("cdr_id", "cdr_id")])
    })
    .await;
}

#[tokio::test]
async fn json() {
    run("json", async |normalizer, case| {
        let received = case["ctx"]["now"].as_i64().unwrap_or(RECEIVED);
        let input = &case["input"];
        let payload = match input["body"].as_str() {
            Some(body) => body.as_bytes().to_vec(),
            None => hex::decode(input["body_hex"].as_str().unwrap()).unwrap(),
        };
        let got = ask(normalizer, &payload, received).await;
        compare(
            &case["expect"],
            got.clone(),
            &[("service_type", "service_type")],
        )?;

        // The API refuses what is malformed or missing, and never what is good.
        let batch = Batch::of([payload.as_slice()], received * 1000).unwrap();
        let admitted = normalizer.admit(batch).await.unwrap().remove(0);
        match (&got, &admitted) {
            (Ok(_), Admitted::Yes(_)) => Ok(()),
            (Err(reason), Admitted::No(violation)) => {
                let code = json::violation(violation)["code"]
                    .as_str()
                    .unwrap()
                    .to_owned();
                let agrees = code == "invalid_type" || code == *reason;
                agrees.then_some(()).ok_or(format!("the API says {code}"))
            }
            (Err(reason), Admitted::Yes(_))
                if reason != "malformed_json" && reason != "missing_required_field" =>
            {
                Ok(())
            }
            _ => Err(format!("the API says {admitted:?}, the worker {got:?}")),
        }
    })
    .await;
}
