//! Rules that are about a single place, as tables. Whole records, and what they
//! become, are in `fixtures`.

mod common;

use cdr_plugin_sdk::{Reason, native};
use common::{RECEIVED_MS, call, normalizer, with_variables};
use freeswitch_json_cdr::CallRow;
use serde_json::{Value, json};

fn rejected(record: &Value) -> (Reason, String) {
    let payload = record.to_string();
    let rejection =
        native::normalize_one(normalizer(), payload.as_bytes(), RECEIVED_MS).expect_err(&payload);
    (rejection.reason, rejection.field.unwrap_or_default().into())
}

fn row_of(record: &Value, check: impl FnOnce(CallRow<'_>)) {
    let payload = record.to_string();
    match native::normalize_one(normalizer(), payload.as_bytes(), RECEIVED_MS) {
        Ok(row) => check(row),
        Err(rejection) => panic!("{payload}: {rejection:?}"),
    }
}

/// The good record with something else at a place.
fn with(pointer: &str, value: Value) -> Value {
    let mut record = call();
    *record.pointer_mut(pointer).expect(pointer) = value;
    record
}

#[test]
fn times_are_seconds_within_the_window_and_in_order() {
    for (variables, field) in [
        (json!({"start_epoch": "0"}), "start_epoch"),
        (json!({"start_epoch": "-1700000000"}), "start_epoch"),
        (json!({"start_epoch": "1700000000123"}), "start_epoch"),
        (json!({"start_epoch": "1700000000123456"}), "start_epoch"),
        (json!({"start_epoch": "1690000000"}), "start_epoch"),
        (json!({"start_epoch": "+1700000000"}), "start_epoch"),
        (json!({"start_epoch": "1700000000.0"}), "start_epoch"),
        (json!({"start_epoch": "17e8"}), "start_epoch"),
        (json!({"start_epoch": "2023-11-14 22:13:20"}), "start_epoch"),
        (
            json!({"start_epoch": "99999999999999999999"}),
            "start_epoch",
        ),
        (json!({"start_epoch": 1_700_000_000}), "start_epoch"),
        (json!({"answer_epoch": "x"}), "answer_epoch"),
        (json!({"answer_epoch": "1699999999"}), "answer_epoch"),
        (json!({"answer_epoch": false}), "answer_epoch"),
        (json!({"answer_epoch": "1700000067"}), "end_epoch"),
        (json!({"end_epoch": "1699999999"}), "end_epoch"),
        (json!({"end_epoch": "1800000000"}), "end_epoch"),
    ] {
        let record = with_variables(variables);
        let expected = (Reason::InvalidEpoch, format!("variables.{field}"));
        assert_eq!(rejected(&record), expected, "{record}");
    }
}

#[test]
fn what_never_happened_is_null() {
    for never in [json!("0"), json!(""), json!(null)] {
        let times = json!({"answer_epoch": never, "end_epoch": never});
        row_of(&with_variables(times), |row| {
            assert_eq!((row.answer_time, row.session_end_time), (None, None));
        });
    }
}

#[test]
fn a_bill_is_not_longer_than_the_leg() {
    row_of(&with_variables(json!({"billsec": "66"})), |row| {
        assert_eq!(row.duration_s, 66);
    });
    for billsec in ["67", "-1", "4294967296", "60.0", "x"] {
        let record = with_variables(json!({"billsec": billsec}));
        let expected = (Reason::NormalizationError, "variables.billsec".to_owned());
        assert_eq!(rejected(&record), expected, "{billsec}");
    }
}

#[test]
fn the_first_of_several_reasons_is_given() {
    let mut record = with_variables(json!({"billsec": "-1", "start_epoch": "0"}));
    assert_eq!(rejected(&record).0, Reason::InvalidEpoch);
    record["variables"]["uuid"] = json!(" ");
    assert_eq!(rejected(&record).0, Reason::MissingRequiredField);
}

#[test]
fn a_caller_is_the_number_shown_else_that_of_the_network() {
    let profile = |shown: &str, ani: &str| {
        let mut record = call();
        record["callflow"][0]["caller_profile"]["caller_id_number"] = json!(shown);
        record["callflow"][0]["caller_profile"]["ani"] = json!(ani);
        record
    };
    for (shown, ani, msisdn) in [
        ("+442079460123", "+442079460199", "+442079460123"),
        ("020 7946 0123", "", "+442079460123"),
        ("1001", "", "+442079460101"),
        ("anonymous", "+442079460199", "+442079460199"),
        ("0000000000", "02079460199", "+442079460199"),
        ("", "+442079460199", "+442079460199"),
        ("sip:+442079460123@example.com", "", "+442079460123"),
    ] {
        row_of(&profile(shown, ani), |row| assert_eq!(row.msisdn, msisdn));
    }
    let place = "callflow.caller_profile.caller_id_number".to_owned();
    for (shown, ani) in [
        ("anonymous", ""),
        ("anonymous", "anonymous"),
        ("0000000000", "0000000000"),
        ("1003", "1003"),
        ("%2B442079460123", ""),
    ] {
        let expected = (Reason::NormalizationError, place.clone());
        assert_eq!(rejected(&profile(shown, ani)), expected, "{shown} {ani}");
    }
    let expected = (Reason::MissingRequiredField, place);
    assert_eq!(rejected(&profile(" ", "")), expected);
}

#[test]
fn what_was_dialled_is_a_number_or_kept_as_it_came() {
    for (destination, msisdn, raw) in [
        ("+12025550123", "+12025550123", ""),
        ("0012025550123", "+12025550123", ""),
        ("1002", "+442079460102", ""),
        ("1003", "", "1003"),
        ("*98", "", "*98"),
        ("conference-3001", "", "conference-3001"),
        ("", "", ""),
    ] {
        let record = with(
            "/callflow/0/caller_profile/destination_number",
            json!(destination),
        );
        row_of(&record, |row| {
            assert_eq!(
                (row.called_msisdn.as_str(), &*row.called_raw),
                (msisdn, raw)
            );
        });
    }
}

#[test]
fn a_name_with_a_control_character_is_refused() {
    for (pointer, path) in [
        ("/switchname", "switchname"),
        ("/channel_data/direction", "channel_data.direction"),
        ("/variables/uuid", "variables.uuid"),
        ("/variables/call_uuid", "variables.call_uuid"),
        ("/variables/sip_call_id", "variables.sip_call_id"),
        (
            "/variables/sofia_profile_name",
            "variables.sofia_profile_name",
        ),
        ("/variables/direction", "variables.direction"),
        ("/variables/hangup_cause", "variables.hangup_cause"),
        (
            "/callflow/0/caller_profile/destination_number",
            "callflow.caller_profile.destination_number",
        ),
        (
            "/callflow/0/caller_profile/network_addr",
            "callflow.caller_profile.network_addr",
        ),
    ] {
        let expected = (Reason::NormalizationError, path.to_owned());
        assert_eq!(rejected(&with(pointer, json!("a\u{7}b"))), expected);
    }
}

#[test]
fn encoding_is_told_by_whether_any_variable_shows_a_space() {
    // Plain, so `%40` is what the caller sent.
    row_of(&with_variables(json!({"sip_call_id": "a%40b"})), |row| {
        assert_eq!(row.sip_call_id.as_deref(), Some("a%40b"))
    });
    let encoded = |changes: Value| {
        let mut record = with_variables(changes);
        record["variables"]["start_stamp"] = json!("2023-11-14%2022%3A13%3A20");
        record
    };
    row_of(&encoded(json!({"sip_call_id": "a%40b%zz%4"})), |row| {
        assert_eq!(row.sip_call_id.as_deref(), Some("a@b%zz%4"))
    });
    // Caller profiles are never encoded.
    let mut record = encoded(json!({}));
    record["callflow"][0]["caller_profile"]["destination_number"] = json!("a%40b");
    row_of(&record, |row| assert_eq!(row.called_raw, "a%40b"));
    assert_eq!(
        rejected(&encoded(json!({"uuid": "%ff%fe"}))),
        (Reason::NormalizationError, "variables.uuid".to_owned())
    );
    // Encoded blanks are blanks.
    assert_eq!(
        rejected(&encoded(json!({"uuid": "%20"}))),
        (Reason::MissingRequiredField, "variables.uuid".to_owned())
    );
}

#[test]
fn the_manifest_has_the_key_of_the_table_and_what_is_more_may_be_null() {
    let manifest = native::manifest::<freeswitch_json_cdr::FreeswitchJsonCdr>();
    assert_eq!(manifest.name, "freeswitch-json-cdr");
    let more: Vec<_> = manifest.columns[22..].iter().collect();
    assert_eq!(more[0].name, "answer_time");
    for column in more {
        assert!(column.nullable, "{}", column.name);
    }
}
