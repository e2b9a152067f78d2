//! Answers that break the contract, each in the way that the payload names.

use cdr_plugin_sdk::bindings::{
    Admission, Column, Outcome, Reason, Rejection, Values, Violation, ViolationCode,
};

pub fn distort_admissions(payload: &str, answers: &mut Vec<Result<Admission, Violation>>) {
    match payload {
        "short" => drop(answers.pop()),
        "long" => answers.extend_from_within(..1),
        "giant" => {
            if let Some(Ok(admission)) = answers.first_mut() {
                admission.key = "x".repeat(20 << 20);
            }
        }
        "long key" => {
            if let Some(Ok(admission)) = answers.first_mut() {
                admission.key = "x".repeat(5000);
            }
        }
        "many answers" => {
            let violation = Violation {
                code: ViolationCode::InvalidType,
                field: None,
                detail: String::new(),
            };
            answers.resize(400_000, Err(violation));
        }
        _ => {}
    }
}

pub fn distort(payload: &str, outcome: &mut Outcome) {
    let count = outcome.rows.len();
    let Column { values, nulls } = &mut outcome.columns[0];
    let Values::Blobs(texts) = values else { return };
    match payload {
        "answered twice" => outcome.rows.push(0),
        "rejected as well" => outcome.rejections.push(rejection(0)),
        "not answered" => drop(outcome.rows.pop()),
        "foreign row" => outcome.rejections.push(rejection(4_000_000_000)),
        "foreign row of a row" => outcome.rows[0] = u32::MAX,
        "falling offsets" => texts.offsets.swap(0, 1),
        "falling offsets inside" => {
            texts.offsets = vec![0; count + 1];
            texts.offsets[count] = texts.data.len() as u32;
            if count > 1 {
                texts.offsets[1] = u32::MAX;
            } else {
                texts.offsets[0] = u32::MAX;
            }
        }
        "offsets beyond" => {
            if let Some(last) = texts.offsets.last_mut() {
                *last += 10;
            }
        }
        "no offsets" => texts.offsets.clear(),
        "not text" => texts.data[0] = 0xff,
        "nulls" => *nulls = Some(vec![0; count]),
        "short nulls" => outcome.columns[1].nulls = Some(vec![]),
        "odd nulls" => outcome.columns[1].nulls = Some(vec![2; count]),
        "wrong kind" => *values = Values::Int64s(vec![0; count]),
        "wrong length" => outcome.columns[1].values = Values::Uint32s(vec![]),
        "no column" => drop(outcome.columns.pop()),
        "one column more" => outcome.columns.push(Column {
            values: Values::Booleans(vec![0; count]),
            nulls: None,
        }),
        "giant" => {
            texts.data.resize(20 << 20, b'x');
            if let Some(last) = texts.offsets.last_mut() {
                *last = 20 << 20;
            }
        }
        "many rows" => outcome.rows.resize(4 << 20, 0),
        "many rejections" => {
            outcome.rejections = (0..200_000).map(rejection).collect();
        }
        _ => {}
    }
}

fn rejection(row: u32) -> Rejection {
    Rejection {
        row,
        reason: Reason::MalformedJson,
        field: None,
        detail: String::new(),
    }
}
