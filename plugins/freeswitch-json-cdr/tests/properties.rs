//! What holds for every payload.

mod common;

use cdr_plugin_sdk::{Reason, ViolationCode, native};
use common::{RECEIVED_MS, call, normalizer, switch_encoded, with_variables};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A value that may stand anywhere in a record.
fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => ".{0,12}".prop_map(Value::from),
        2 => "[0-9+*#-]{0,14}".prop_map(Value::from),
        1 => (1_699_999_990_u64..1_700_000_100).prop_map(|time| json!(time.to_string())),
        1 => "(%[0-9A-Fa-f]{2}|[a-z@%]){0,6}".prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => any::<f64>().prop_map(|value| json!(value)),
        1 => proptest::sample::select(vec![
            json!(null), json!(true), json!([]), json!(["x"]), json!({}), json!({"uuid": "x"}),
            json!(""), json!(" "), json!("0"), json!("-1"), json!("x".repeat(600)), json!("%FF"),
            json!("+442079460123"), json!("anonymous"), json!("\u{7}"),
        ]),
    ]
}

/// Where a record is changed.
const POINTERS: [&str; 22] = [
    "/switchname",
    "/channel_data",
    "/channel_data/direction",
    "/variables",
    "/variables/uuid",
    "/variables/call_uuid",
    "/variables/sip_call_id",
    "/variables/sofia_profile_name",
    "/variables/direction",
    "/variables/start_epoch",
    "/variables/start_stamp",
    "/variables/answer_epoch",
    "/variables/end_epoch",
    "/variables/billsec",
    "/variables/hangup_cause",
    "/variables/hangup_cause_q850",
    "/callflow",
    "/callflow/0",
    "/callflow/0/caller_profile",
    "/callflow/0/caller_profile/caller_id_number",
    "/callflow/0/caller_profile/ani",
    "/callflow/0/caller_profile/destination_number",
];

/// A good record with some places changed, or their names.
fn any_record() -> impl Strategy<Value = String> {
    let change = (0..POINTERS.len(), any_value(), any::<bool>());
    proptest::collection::vec(change, 0..4).prop_map(|changes| {
        let mut record = call();
        for (index, value, rename) in changes {
            let (parent, name) = POINTERS[index].rsplit_once('/').unwrap();
            let Some(parent) = record.pointer_mut(parent) else {
                continue;
            };
            match parent {
                Value::Object(members) if rename => {
                    members.remove(name);
                }
                Value::Object(members) => {
                    members.insert(name.to_owned(), value);
                }
                Value::Array(entries) => entries.push(value),
                _ => {}
            }
        }
        record.to_string()
    })
}

/// Asks both questions, which must not contradict each other.
fn judge(payload: &[u8]) -> Result<(), TestCaseError> {
    let normalizer = normalizer();
    let admitted = native::admit_one(normalizer, payload);
    let row = native::normalize_one(normalizer, payload, RECEIVED_MS);
    let again = native::normalize_one(normalizer, payload, RECEIVED_MS);
    prop_assert_eq!(&row, &again, "the same record twice, the same answer");

    let refused_as = admitted.as_ref().err().map(|violation| violation.code);
    let rejected_as = row.as_ref().err().map(|rejection| rejection.reason);
    prop_assert_eq!(
        refused_as == Some(ViolationCode::MalformedJson),
        rejected_as == Some(Reason::MalformedJson)
    );
    match (&admitted, &row) {
        (Ok(admission), Ok(row)) => {
            prop_assert_eq!(admission.key.as_str(), &*row.raw_id);
            prop_assert_eq!(admission.source.as_deref(), Some(&*row.vendor_id));
        }
        (Err(violation), Ok(_)) => {
            return Err(TestCaseError::fail(format!(
                "refused, but it makes a row: {violation:?}"
            )));
        }
        _ => {}
    }
    if let Ok(admission) = admitted {
        prop_assert!(!admission.key.trim().is_empty() && admission.key.len() <= 512);
        prop_assert!(admission.source.is_some_and(|source| source.len() <= 512));
        prop_assert_ne!(rejected_as, Some(Reason::MissingRequiredField));
    }
    if let Ok(row) = row {
        prop_assert!(row.msisdn.starts_with('+'));
        prop_assert!(
            row.session_end_time
                .is_none_or(|end| end >= row.session_start_time)
        );
        prop_assert_eq!(
            row.called_msisdn.is_empty() || row.called_raw.is_empty(),
            true
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_get_an_answer(payload in proptest::collection::vec(any::<u8>(), 0..200)) {
        judge(&payload)?;
    }

    #[test]
    fn arbitrary_text_gets_an_answer(payload in "[ \\{\\}\\[\\]\":,a-z0-9\\\\]{0,60}") {
        judge(payload.as_bytes())?;
    }

    #[test]
    fn the_two_questions_agree_on_records(payload in any_record()) {
        judge(payload.as_bytes())?;
    }

    #[test]
    fn a_record_that_is_cut_or_damaged_gets_an_answer(
        payload in any_record(), at in any::<proptest::sample::Index>(), byte in any::<u8>()
    ) {
        let mut payload = payload.into_bytes();
        let at = at.index(payload.len());
        judge(&payload[..at])?;
        payload[at] = byte;
        judge(&payload)?;
    }

    #[test]
    fn times_of_any_size_never_wrap(start in any::<i64>(), end in any::<i64>(), received in any::<i64>()) {
        let times = json!({"start_epoch": start.to_string(), "end_epoch": end.to_string()});
        let payload = with_variables(times).to_string();
        if let Ok(row) = native::normalize_one(normalizer(), payload.as_bytes(), received) {
            prop_assert_eq!(i64::from(row.session_start_time), start);
        }
    }

    /// What `encode-values` does to a record does nothing to its row.
    #[test]
    fn an_encoded_record_makes_the_same_row(
        sip_call_id in "[^%\\x00]{2,20}", cause in "[^%\\x00]{2,20}", profile in "[^%\\x00]{2,20}"
    ) {
        let plain = with_variables(json!({
            "sip_call_id": sip_call_id, "hangup_cause": cause, "sofia_profile_name": profile,
        }));
        let mut encoded = plain.clone();
        let variables = encoded["variables"].as_object_mut().unwrap();
        for value in variables.values_mut() {
            *value = json!(switch_encoded(value.as_str().unwrap()));
        }
        let (plain, encoded) = (plain.to_string(), encoded.to_string());
        let of = |payload| native::normalize_one(normalizer(), payload, RECEIVED_MS);
        prop_assert_eq!(of(plain.as_bytes()), of(encoded.as_bytes()));
    }

    /// A record is judged by itself, whatever else is in its batch.
    #[test]
    fn company_changes_nothing(payloads in proptest::collection::vec(any_record(), 0..4)) {
        let bytes = payloads.iter().map(String::as_bytes);
        let outcome = native::normalize(normalizer(), &native::batch(bytes, RECEIVED_MS));
        for (index, payload) in (0..).zip(&payloads) {
            let alone = native::normalize_one(normalizer(), payload.as_bytes(), RECEIVED_MS);
            let rows = outcome.rows.iter().filter(|row| **row == index).count();
            let rejections: Vec<_> = outcome
                .rejections
                .iter()
                .filter(|rejection| rejection.row == index)
                .map(|rejection| (rejection.reason, rejection.detail.clone()))
                .collect();
            let expected = alone.err().map(|rejection| (rejection.reason, rejection.detail.into_owned()));
            prop_assert_eq!(rows, usize::from(expected.is_none()));
            prop_assert_eq!(rejections, Vec::from_iter(expected));
        }
    }
}

/// An object as JSON, its members in the opposite order, and theirs too.
fn reversed(value: &Value) -> String {
    let Value::Object(members) = value else {
        return value.to_string();
    };
    let members: Vec<_> = members
        .iter()
        .rev()
        .map(|(name, value)| format!(" {} : {}", Value::from(name.as_str()), reversed(value)))
        .collect();
    format!("{{{}}}\r\n", members.join(","))
}

#[test]
fn members_of_an_object_have_no_order() {
    let (forth, back) = (call().to_string(), reversed(&call()));
    assert_ne!(forth, back);
    let of = |payload| native::normalize_one(normalizer(), payload, RECEIVED_MS).unwrap();
    assert_eq!(of(forth.as_bytes()), of(back.as_bytes()));
}
