//! Whole records: what is required, which reason wins, what is stored.

mod common;

use cdr_normalizer::admit::{Code, Refusal};
use cdr_normalizer::cdr_id;
use cdr_normalizer::field::{Key, Kind};
use cdr_normalizer::settings::Settings;
use common::{NOW_S, api, base, rejected, with, with_json, worker};
use serde_json::{Value, json};

const START: u32 = 1_700_000_000;

fn refused(payload: &str) -> Option<(Code, Option<&'static str>)> {
    let Refusal {
        code,
        field,
        detail,
    } = api(payload.as_bytes()).err()?;
    assert!(detail.contains(field.unwrap_or_default()));
    Some((code, field))
}

fn wrong_reason(key: Key) -> &'static str {
    match key {
        Key::RadioAccessType => "invalid_rat_value",
        Key::SessionStartTime | Key::SessionEndTime => "invalid_epoch",
        _ => "normalization_error",
    }
}

/// A record of the service with all that it requires.
fn of_service(service: &str) -> serde_json::Map<String, Value> {
    let mut record = base();
    record.insert("service_type".into(), json!(service));
    record.insert("duration_s".into(), json!(0));
    record.insert("bytes_up".into(), json!(0));
    record.insert("bytes_down".into(), json!(0));
    record
}

#[test]
fn a_full_record_becomes_this_row() {
    let settings: Settings =
        serde_json::from_value(json!({"vendors": {"vend-a": {"default_region": "GB"}}}))
            .expect("settings");
    let payload = with(&[
        ("service_type", json!("Data")),
        ("radio_access_type", json!("WB-E-UTRAN(LEO)")),
        ("caller_num", json!("020 7946 0123")),
        ("called_num", json!("00 1 202 555 0199")),
        ("session_end_time", json!(1_700_000_060_999_i64)),
        ("duration_s", json!(60)),
        ("bytes_up", json!(u64::MAX)),
        ("bytes_down", json!(7)),
        ("ip_address", json!("192.0.2.10")),
        ("imsi", json!("001010123456789")),
        ("imei", json!("490154203237518")),
        ("cause", json!("16")),
        ("direction", json!("MO")),
    ]);
    let row = worker(payload.as_bytes(), &settings, NOW_S).expect("a row");
    assert_eq!(row.service_type, "data");
    assert_eq!(
        (row.radio_access_type, row.rat_orbit, row.secondary_rat),
        ("EUTRAN", "LEO", "")
    );
    assert_eq!(row.cell_id, "001-01-0012A3F4");
    assert_eq!(row.session_start_time, START);
    assert_eq!(
        (row.msisdn.as_str(), row.msisdn_valid),
        ("+442079460123", true)
    );
    assert_eq!(row.cdr_id, cdr_id::cdr_id("vend-a", "r-0001"));
    assert_eq!(row.session_end_time, Some(START + 60));
    assert_eq!(
        (row.duration_s, row.bytes_up, row.bytes_down),
        (60, u64::MAX, 7)
    );
    assert_eq!(
        (row.called_msisdn.as_str(), row.called_raw.as_ref()),
        ("+12025550199", "")
    );
    assert_eq!(
        row.ip_address.map(|ip| ip.to_string()).as_deref(),
        Some("192.0.2.10")
    );
    assert_eq!(
        (row.imsi.as_ref(), row.imei.as_ref()),
        ("001010123456789", "490154203237518")
    );
    assert_eq!((row.cause.as_ref(), row.direction.as_ref()), ("16", "MO"));
    assert_eq!(
        (row.vendor_id.as_ref(), row.raw_id.as_ref()),
        ("vend-a", "r-0001")
    );
}

#[test]
fn what_is_absent_is_empty_or_zero() {
    let absent = json!([null, "", " ", "\t\n"]);
    for nothing in absent.as_array().into_iter().flatten() {
        let optional: Vec<(&str, Value)> = Key::ALL
            .into_iter()
            .filter(|key| !Key::REQUIRED.contains(key))
            .map(|key| (key.name(), nothing.clone()))
            .collect();
        for payload in [with(&[]), with(&optional)] {
            assert_eq!(refused(&payload), None);
            let row = worker(payload.as_bytes(), &Settings::default(), NOW_S).expect("a row");
            assert_eq!(row.session_end_time, None);
            assert_eq!((row.duration_s, row.bytes_up, row.bytes_down), (0, 0, 0));
            assert_eq!(row.ip_address, None);
            assert_eq!(row.called_msisdn, "");
            for text in [
                &row.called_raw,
                &row.imsi,
                &row.imei,
                &row.cause,
                &row.direction,
            ] {
                assert_eq!(text, "");
            }
        }
    }
}

#[test]
fn required_fields_are_there_and_not_blank() {
    for (service, more) in [
        ("sms", &[][..]),
        ("VOICE", &[Key::DurationS]),
        ("data", &[Key::BytesUp, Key::BytesDown]),
        ("fax", &[]),
    ] {
        for key in Key::ALL {
            let required = Key::REQUIRED.contains(&key) || more.contains(&key);
            let name = key.name();
            let mut absent = of_service(service);
            absent.remove(name);
            let mut payloads = vec![absent];
            for nothing in [json!(null), json!(""), json!("  "), json!("\u{3000}\t")] {
                let mut record = of_service(service);
                record.insert(name.into(), nothing);
                payloads.push(record);
            }
            for record in payloads {
                let payload = Value::Object(record).to_string();
                let api = refused(&payload);
                let worker = rejected(&payload);
                if required {
                    assert_eq!(
                        api,
                        Some((Code::MissingRequiredField, Some(name))),
                        "{payload}"
                    );
                    assert_eq!(
                        worker,
                        Some(("missing_required_field", Some(name))),
                        "{payload}"
                    );
                } else {
                    assert_eq!(api, None, "{payload}");
                    let unknown = Some(("normalization_error", Some("service_type")));
                    assert_eq!(
                        worker,
                        if service == "fax" { unknown } else { None },
                        "{payload}"
                    );
                }
            }
        }
    }
}

#[test]
fn types_are_exact() {
    let texts = [
        "1", "-1", "1.0", "true", "false", "[]", "{}", "[\"x\"]", "1e3", "0",
    ];
    let integers = [
        "1.0", "1e3", "1E3", "-0.0", "true", "[1]", "{}", "\"1\"", "\"x\"", "0.5",
    ];
    for key in Key::ALL {
        let tokens = match key.kind() {
            Kind::Text => texts,
            Kind::Integer => integers,
        };
        for token in tokens {
            let payload = with_json(key.name(), token);
            assert_eq!(
                refused(&payload),
                Some((Code::InvalidType, Some(key.name()))),
                "{payload}"
            );
            let reason = wrong_reason(key);
            assert_eq!(
                rejected(&payload),
                Some((reason, Some(key.name()))),
                "{payload}"
            );
        }
    }
}

#[test]
fn admission_leaves_to_the_worker_what_is_the_workers() {
    for (name, value) in [
        ("service_type", json!("fax")),
        ("radio_access_type", json!("6G")),
        ("caller_num", json!("anonymous")),
        ("called_num", json!("*123#")),
        ("session_start_time", json!(0)),
        ("session_start_time", json!(-1)),
        ("session_end_time", json!(1)),
        ("duration_s", json!(-1)),
        ("duration_s", json!(u64::MAX)),
        ("bytes_up", json!(-1)),
        ("ip_address", json!("300.1.1.1")),
        ("raw_id", json!("a\u{0}b")),
        ("imsi", json!("x\n")),
    ] {
        assert_eq!(refused(&with(&[(name, value)])), None, "{name}");
    }
    assert_eq!(
        refused(&with_json("bytes_up", "99999999999999999999")),
        None
    );
    let admitted = api(with(&[("raw_id", json!(" r\u{e9} "))]).as_bytes()).expect("admitted");
    assert_eq!(admitted, (" r\u{e9} ".to_owned(), "vend-a".to_owned()));
}

/// What becomes the record's key or source has to fit there: the vendor is told,
/// rather than that the normalizer failed.
#[test]
fn identifiers_that_no_key_can_hold_are_refused() {
    for field in ["raw_id", "vendor_id"] {
        let of = |length| with(&[(field, json!("x".repeat(length)))]);
        assert_eq!(refused(&of(4096)), None);
        assert_eq!(refused(&of(4097)), Some((Code::InvalidType, Some(field))));
        assert_eq!(refused(&of(60_000)), Some((Code::InvalidType, Some(field))));
    }
}

#[test]
fn the_highest_reason_wins_wherever_its_field_stands() {
    // Every field is wrong; one after the other is put right.
    let mut record = json!({
        "direction": "\u{1}", "ip_address": "x", "duration_s": -1, "raw_id": "a\u{1}",
        "session_end_time": 0, "session_start_time": 0, "radio_access_type": "6G",
        "caller_num": "anonymous", "service_type": "fax", "cell_id": "c\u{7f}", "vendor_id": null,
    });
    for (reason, field, right) in [
        ("missing_required_field", "vendor_id", json!("v")),
        ("invalid_rat_value", "radio_access_type", json!("NR")),
        ("invalid_epoch", "session_start_time", json!(START)),
        ("invalid_epoch", "session_end_time", json!(START - 1)),
        ("invalid_epoch", "session_end_time", json!(START + 1)),
    ] {
        let payload = record.to_string();
        assert_eq!(rejected(&payload), Some((reason, Some(field))), "{payload}");
        assert_eq!(
            rejected(&format!("{payload}x")).map(|it| it.0),
            Some("malformed_json")
        );
        record[field] = right;
    }
    for (field, right) in [
        ("service_type", json!("sms")),
        ("raw_id", json!("r")),
        ("cell_id", json!("c")),
        ("duration_s", json!(1)),
        ("ip_address", json!("192.0.2.1")),
        ("direction", json!("MO")),
        ("caller_num", json!("+12025550123")),
    ] {
        let expected = Some(("normalization_error", Some(field)));
        assert_eq!(rejected(&record.to_string()), expected);
        record[field] = right;
    }
    assert_eq!(rejected(&record.to_string()), None);
}

#[test]
fn missing_goes_before_a_wrong_type_at_the_api() {
    let mut record = base();
    record.insert("raw_id".into(), json!(1));
    record.insert("session_start_time".into(), json!(null));
    let payload = Value::Object(record).to_string();
    let expected = (Code::MissingRequiredField, Some("session_start_time"));
    assert_eq!(refused(&payload), Some(expected));
}

#[test]
fn control_characters_in_identifiers() {
    let names = [
        "raw_id",
        "vendor_id",
        "cell_id",
        "imsi",
        "imei",
        "cause",
        "direction",
    ];
    for control in [
        "\0", "\n", "\t", "\u{1b}", "\u{1f}", "\u{7f}", "\u{80}", "\u{85}", "\u{9f}",
    ] {
        for name in names {
            for text in [
                format!("a{control}b"),
                format!("a{control}"),
                format!("é{control}é"),
            ] {
                let payload = with(&[(name, json!(text))]);
                let expected = Some(("normalization_error", Some(name)));
                assert_eq!(rejected(&payload), expected, "{payload}");
            }
        }
        let payload = with(&[("service_type", json!(format!("sms{control}")))]);
        assert_eq!(
            rejected(&payload),
            Some(("normalization_error", Some("service_type")))
        );
    }
    for name in names {
        for text in [" a ", "a\u{a0}b", "\u{200e}a", "😀", "a\u{ad}", "\"\\/"] {
            let payload = with(&[(name, json!(text))]);
            assert_eq!(rejected(&payload), None, "{payload}");
        }
    }
}

#[test]
fn identifiers_are_stored_as_they_came() {
    let payload = with(&[
        ("raw_id", json!(" R\u{e9}-1 ")),
        ("vendor_id", json!("Vend A ")),
    ]);
    let row = worker(payload.as_bytes(), &Settings::default(), NOW_S).expect("a row");
    assert_eq!(row.raw_id, " R\u{e9}-1 ");
    assert_eq!(row.vendor_id, "Vend A ");
    assert_eq!(row.cdr_id, cdr_id::cdr_id("Vend A ", " R\u{e9}-1 "));
}

#[test]
fn durations_and_volumes_have_a_range() {
    let error = |field| Some(("normalization_error", Some(field)));
    for (end, token, expected) in [
        (None, "0", None),
        (None, "-0", None),
        (None, "4294967295", None),
        (None, "4294967296", error("duration_s")),
        (None, "-1", error("duration_s")),
        (None, "18446744073709551616", error("duration_s")),
        (None, "-99999999999999999999999", error("duration_s")),
        (Some(START), "0", None),
        (Some(START), "1", error("duration_s")),
        (Some(START + 60), "60", None),
        (Some(START + 60), "59", None),
        (Some(START + 60), "61", error("duration_s")),
        (Some(START + 60), "60000", error("duration_s")),
    ] {
        let mut record = base();
        if let Some(end) = end {
            record.insert("session_end_time".into(), json!(end));
        }
        let mut payload = Value::Object(record).to_string();
        payload.pop();
        let payload = format!("{payload},\"duration_s\":{token}}}");
        assert_eq!(rejected(&payload), expected, "{payload}");
    }
    for name in ["bytes_up", "bytes_down"] {
        for token in ["0", "-0", "18446744073709551615"] {
            assert_eq!(rejected(&with_json(name, token)), None, "{token}");
        }
        for token in ["-1", "18446744073709551616", "-9223372036854775809"] {
            assert_eq!(rejected(&with_json(name, token)), error(name), "{token}");
        }
    }
}

#[test]
fn each_time_by_itself_and_the_end_not_before_the_start() {
    let (seconds, millis) = (i64::from(START), i64::from(START) * 1000);
    for (start, end, good) in [
        (seconds, seconds, true),
        (seconds, millis, true),
        (millis, seconds, true),
        // Compared as whole seconds.
        (millis + 999, millis, true),
        (millis + 999, seconds, true),
        (millis + 1000, millis + 999, false),
        (seconds, seconds - 1, false),
        (seconds, 0, false),
        (seconds, -1, false),
        (seconds, (NOW_S + 86_400) * 1000, true),
        (seconds, (NOW_S + 86_400) * 1000 + 1, false),
        (NOW_S - 90 * 86_400, seconds, true),
    ] {
        let payload = with(&[
            ("session_start_time", json!(start)),
            ("session_end_time", json!(end)),
        ]);
        let expected = (!good).then_some(("invalid_epoch", Some("session_end_time")));
        assert_eq!(rejected(&payload), expected, "{payload}");
    }
    for token in [
        "9223372036854775808",
        "-9223372036854775809",
        &"9".repeat(50),
    ] {
        for name in ["session_start_time", "session_end_time"] {
            let expected = Some(("invalid_epoch", Some(name)));
            assert_eq!(rejected(&with_json(name, token)), expected, "{token}");
        }
    }
}

#[test]
fn a_called_name_or_code_is_kept_as_it_came() {
    for raw in [
        "MYBANK",
        "*123#",
        "911",
        " 32665 ",
        "anonymous\n",
        "7378742833",
        "2025550123",
        "\u{200b}",
    ] {
        let payload = with(&[("called_num", json!(raw))]);
        let row = worker(payload.as_bytes(), &Settings::default(), NOW_S).expect("a row");
        assert_eq!(
            (row.called_msisdn.as_str(), row.called_raw.as_ref()),
            ("", raw)
        );
    }
}

#[test]
fn details_are_bounded_and_tell_no_number() {
    let long = "9".repeat(50_000);
    for name in [
        "service_type",
        "radio_access_type",
        "ip_address",
        "caller_num",
    ] {
        let payload = with(&[(name, json!(long))]);
        let rejection = worker(payload.as_bytes(), &Settings::default(), NOW_S).expect_err(name);
        assert!(rejection.detail.len() < 400, "{}", rejection.detail);
    }
    let payload = with(&[("caller_num", json!("+1 202 555 0123 4567"))]);
    let rejection = worker(payload.as_bytes(), &Settings::default(), NOW_S).expect_err("too long");
    assert!(!rejection.detail.contains("555"));
}
