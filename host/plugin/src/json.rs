//! Answers as JSON, for people and tools (`cdr plugin eval`, fixtures).

use crate::contract::{
    Column, ColumnSpec, ColumnType, Outcome, Rejection, Values, Violation, reason_word,
    violation_word,
};
use crate::error::Fault;
use crate::normalizer::{Admitted, Normalized};
use serde_json::{Map, Value, json};
use std::net::Ipv4Addr;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The answer to an admission: `{"admitted":{"key":…,"source":…}}`,
/// `{"refused":{"code":…,"field":…,"detail":…}}` or `{"fault":{…}}`.
pub fn admitted(answer: &Admitted) -> Value {
    match answer {
        Admitted::Yes(admission) => {
            json!({"admitted": {"key": admission.key, "source": admission.source}})
        }
        Admitted::No(refusal) => json!({"refused": violation(refusal)}),
        Admitted::Fault(failure) => fault(failure),
    }
}

/// The answers to a batch of so many records, in their order: `{"row":{…}}`,
/// `{"rejected":{"reason":…,"field":…,"detail":…}}` or `{"fault":{…}}`.
pub fn normalized(specs: &[ColumnSpec], answer: &Normalized, records: usize) -> Vec<Value> {
    let mut answers = vec![Value::Null; records];
    let mut put = |record: u32, answer: Value| {
        if let Some(place) = answers.get_mut(record as usize) {
            *place = answer;
        }
    };
    for part in &answer.parts {
        for (index, record) in part.rows.iter().enumerate() {
            put(*record, json!({"row": row(specs, part, index)}));
        }
    }
    for refusal in &answer.rejections {
        put(refusal.row, json!({"rejected": rejection(refusal)}));
    }
    for (record, failure) in &answer.faults {
        put(*record, fault(failure));
    }
    answers
}

/// `{"fault":{"kind":…,"detail":…}}`
pub fn fault(fault: &Fault) -> Value {
    json!({"fault": {"kind": fault.kind.tag(), "detail": fault.detail}})
}

/// Row `row` of an outcome that has been validated: times as
/// `2023-11-14T22:13:20Z`, UUIDs with hyphens, addresses dotted, integers as
/// numbers, absent values as null.
pub fn row(specs: &[ColumnSpec], outcome: &Outcome, row: usize) -> Value {
    let fields = specs.iter().zip(&outcome.columns);
    Value::Object(
        fields
            .map(|(spec, column)| (spec.name.clone(), cell(spec.kind, column, row)))
            .collect::<Map<_, _>>(),
    )
}

/// `{"reason":…,"field":…,"detail":…}`
pub fn rejection(rejection: &Rejection) -> Value {
    json!({
        "reason": reason_word(rejection.reason),
        "field": rejection.field,
        "detail": rejection.detail,
    })
}

/// `{"code":…,"field":…,"detail":…}`
pub fn violation(violation: &Violation) -> Value {
    json!({
        "code": violation_word(violation.code),
        "field": violation.field,
        "detail": violation.detail,
    })
}

/// One value of a row.
pub(crate) fn cell(kind: ColumnType, column: &Column, row: usize) -> Value {
    if column
        .nulls
        .as_ref()
        .is_some_and(|nulls| nulls.get(row) == Some(&1))
    {
        return Value::Null;
    }
    let value = match &column.values {
        Values::Booleans(values) => values.get(row).map(|value| json!(*value == 1)),
        Values::Uint32s(values) => values.get(row).map(|value| match kind {
            ColumnType::Ipv4 => json!(Ipv4Addr::from(*value).to_string()),
            ColumnType::Seconds => instant(i128::from(*value) * 1_000_000_000),
            _ => json!(value),
        }),
        Values::Uint64s(values) if kind == ColumnType::Uuid => {
            match (values.get(2 * row), values.get(2 * row + 1)) {
                (Some(high), Some(low)) => Some(json!(
                    uuid::Uuid::from_u64_pair(*high, *low)
                        .hyphenated()
                        .to_string()
                )),
                _ => None,
            }
        }
        Values::Uint64s(values) => values.get(row).map(|value| json!(value)),
        Values::Int64s(values) => values.get(row).map(|value| match kind {
            ColumnType::Millis => instant(i128::from(*value) * 1_000_000),
            _ => json!(value),
        }),
        Values::Float64s(values) => values.get(row).map(|value| json!(value)),
        Values::Blobs(blobs) => match (blobs.offsets.get(row), blobs.offsets.get(row + 1)) {
            (Some(start), Some(end)) => blobs
                .data
                .get(*start as usize..*end as usize)
                .map(|bytes| json!(String::from_utf8_lossy(bytes))),
            _ => None,
        },
    };
    value.unwrap_or(Value::Null)
}

fn instant(nanos: i128) -> Value {
    OffsetDateTime::from_unix_timestamp_nanos(nanos)
        .ok()
        .and_then(|instant| instant.format(&Rfc3339).ok())
        .map_or(Value::Null, Value::String)
}
