//! Every case of `tests/cases`, by area, through the whole record.

mod common;

use cdr_normalizer::admit::Code;
use cdr_normalizer::normalize::{Reason, Rejection, Row};
use cdr_normalizer::settings::Settings;
use common::{Case, NOW_S, api, cases, settings, with, with_json, worker};
use serde_json::{Value, json};

/// Runs the cases of an area and fails with the list of all that differ.
fn run(area: &str, judge: impl Fn(&Case) -> Result<(), String>) {
    let cases = cases(area);
    assert!(!cases.is_empty());
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|case| Some(format!("{}: {}", case.id, judge(case).err()?)))
        .collect();
    println!(
        "{area}: {} of {} as expected",
        cases.len() - failures.len(),
        cases.len()
    );
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// Compares an answer with `expect`: an error by its reason, else every column
/// named there.
fn compare(expect: &Value, answer: Result<Row<'_>, Rejection>) -> Result<(), String> {
    match (expect["error"].as_str(), answer) {
        (Some(reason), Err(rejection)) if rejection.reason.as_str() == reason => Ok(()),
        (Some(reason), Err(rejection)) => Err(format!("{reason} expected, got {rejection:?}")),
        (Some(reason), Ok(row)) => Err(format!("{reason} expected, got {row:?}")),
        (None, Err(rejection)) => Err(format!("a row expected, got {rejection:?}")),
        (None, Ok(row)) => {
            let columns = columns(&row);
            for (name, value) in expect.as_object().into_iter().flatten() {
                if name != "ok" && columns[name] != *value {
                    return Err(format!("{name}: {value} expected, got {}", columns[name]));
                }
            }
            Ok(())
        }
    }
}

fn columns(row: &Row<'_>) -> Value {
    json!({
        "service_type": row.service_type,
        "radio_access_type": row.radio_access_type,
        "rat_orbit": row.rat_orbit,
        "secondary_rat": row.secondary_rat,
        "cell_id": row.cell_id,
        "session_start_time": row.session_start_time,
        "msisdn": row.msisdn,
        "e164": row.msisdn,
        "valid": row.msisdn_valid,
        "cdr_id": row.cdr_id.to_string(),
        "session_end_time": row.session_end_time,
        "duration_s": row.duration_s,
        "bytes_up": row.bytes_up,
        "bytes_down": row.bytes_down,
        "called_msisdn": row.called_msisdn,
        "called_raw": row.called_raw,
        "ip_address": row.ip_address.map(|address| address.to_string()),
        "imsi": row.imsi,
        "imei": row.imei,
        "cause": row.cause,
        "direction": row.direction,
        "vendor_id": row.vendor_id,
        "raw_id": row.raw_id,
    })
}

/// `YYYY-MM-DD hh:mm:ss` in UTC, for years of this century.
fn utc(seconds: u32) -> String {
    let days = i64::from(seconds / 86_400);
    let (mut year, mut day) = (1970, days);
    let leap = |year: i64| year % 4 == 0;
    while day >= 365 + i64::from(leap(year)) {
        day -= 365 + i64::from(leap(year));
        year += 1;
    }
    let mut month = 1;
    for length in [
        31,
        28 + i64::from(leap(year)),
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    let second = seconds % 86_400;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!(
        "{year}-{month:02}-{:02} {hour:02}:{minute:02}:{second:02}",
        day + 1
    )
}

#[test]
fn phone() {
    run("phone", |case| {
        let payload = with(&[("caller_num", case.input["raw"].clone())]);
        let settings = settings(&case.input["default_region"]);
        compare(&case.expect, worker(payload.as_bytes(), &settings, NOW_S))
    });
}

/// What is no caller is still good to be called, and is kept as it came.
#[test]
fn phone_as_called_number() {
    run("phone", |case| {
        let payload = with(&[("called_num", case.input["raw"].clone())]);
        let settings = settings(&case.input["default_region"]);
        let row = match (
            case.input["raw"].as_str(),
            worker(payload.as_bytes(), &settings, NOW_S),
        ) {
            (None, Err(rejection)) if rejection.reason == Reason::NormalizationError => {
                return Ok(());
            }
            (_, answer) => answer.map_err(|rejection| format!("{rejection:?}"))?,
        };
        let raw = if case.expect["e164"].is_null() {
            case.input["raw"].as_str().unwrap_or_default()
        } else {
            ""
        };
        let expected = json!([case.expect["e164"].as_str().unwrap_or_default(), raw]);
        let got = json!([row.called_msisdn, row.called_raw]);
        (got == expected)
            .then_some(())
            .ok_or(format!("{expected} expected, got {got}"))
    });
}

#[test]
fn rat() {
    run("rat", |case| {
        let payload = with(&[("radio_access_type", case.input["radio_access_type"].clone())]);
        compare(
            &case.expect,
            worker(payload.as_bytes(), &Settings::default(), NOW_S),
        )
    });
}

#[test]
fn ip() {
    run("ip", |case| {
        let payload = with(&[("ip_address", case.input["ip_address"].clone())]);
        compare(
            &case.expect,
            worker(payload.as_bytes(), &Settings::default(), NOW_S),
        )
    });
}

#[test]
fn cdr_id() {
    run("cdr_id", |case| {
        let payload = with(&[
            ("vendor_id", case.input["vendor_id"].clone()),
            ("raw_id", case.input["raw_id"].clone()),
        ]);
        compare(
            &case.expect,
            worker(payload.as_bytes(), &Settings::default(), NOW_S),
        )
    });
}

#[test]
fn epoch() {
    run("epoch", |case| {
        let settings = Settings::default();
        let Some(field) = case.input["field"].as_str() else {
            let fields = case.input.as_object().expect("fields of a record");
            let fields: Vec<(&str, Value)> = fields
                .iter()
                .map(|(name, value)| (name.as_str(), value.clone()))
                .collect();
            let payload = with(&fields);
            return compare(
                &case.expect,
                worker(payload.as_bytes(), &settings, case.now_s),
            );
        };
        let token = case.input["json"].as_str().expect("a JSON token");
        let payload = with_json(field, token);
        let answer = worker(payload.as_bytes(), &settings, case.now_s);
        let Some(moment) = case.expect["datetime_utc"].as_str() else {
            return compare(&case.expect, answer);
        };
        let row = answer.map_err(|rejection| format!("{rejection:?}"))?;
        let seconds = if field == "session_end_time" {
            row.session_end_time.ok_or("no end")?
        } else {
            row.session_start_time
        };
        let got = utc(seconds);
        (got == moment)
            .then_some(())
            .ok_or(format!("{moment} expected, got {got}"))
    });
}

#[test]
fn json_worker() {
    run("json", |case| {
        let payload = payload(&case.input);
        compare(
            &case.expect,
            worker(&payload, &Settings::default(), case.now_s),
        )
    });
}

/// The API refuses what is malformed or missing by the same name, may refuse
/// wrong types, and lets everything else through.
#[test]
fn json_api() {
    run("json", |case| {
        let payload = payload(&case.input);
        let refused = api(&payload).err().map(|refusal| refusal.code);
        let fits = match case.expect["error"].as_str() {
            Some("malformed_json") => refused == Some(Code::MalformedJson),
            Some("missing_required_field") => refused == Some(Code::MissingRequiredField),
            Some(_) => matches!(refused, None | Some(Code::InvalidType)),
            None => refused.is_none(),
        };
        fits.then_some(())
            .ok_or(format!("the API says {refused:?}"))
    });
}

fn payload(input: &Value) -> Vec<u8> {
    if let Some(body) = input["body"].as_str() {
        return body.as_bytes().to_vec();
    }
    let hex = input["body_hex"].as_str().expect("body or body_hex");
    hex.as_bytes()
        .chunks(2)
        .map(|pair| {
            let pair = str::from_utf8(pair).expect("ASCII");
            u8::from_str_radix(pair, 16).expect("hexadecimal")
        })
        .collect()
}
