//! Nothing that comes back from a guest is trusted: what is checked, and the
//! sentences for what is wrong. Pure.

use crate::batch::Batch;
use crate::contract::{
    Admission, Blobs, Column, ColumnSpec, ColumnType, Manifest, Outcome, Values, Violation,
};
use crate::error::Fault;
use crate::guest::shorten;
use std::collections::HashSet;

/// The longest `detail` kept, in bytes.
pub const MAX_DETAIL_BYTES: usize = 512;
/// The longest `field` kept, in bytes.
pub const MAX_FIELD_BYTES: usize = 128;
/// The longest Kafka key, and the longest source, in bytes.
pub const MAX_KEY_BYTES: usize = 4096;
/// The most columns a manifest may have.
pub const MAX_COLUMNS: usize = 1024;
/// The longest description of a normalizer, in bytes.
pub const MAX_DESCRIPTION_BYTES: usize = 1024;
/// The longest name of a column, in characters.
pub const MAX_COLUMN_NAME: usize = 64;
/// A detail that holds a whole payload of at least so many bytes is withheld.
const SHORTEST_WITHHELD_PAYLOAD: usize = 24;

/// Checks the name of a normalizer.
///
/// # Errors
/// A sentence: the name, and the rule.
pub fn name(name: &str) -> Result<(), String> {
    let is_good = (1..=64).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    if is_good {
        return Ok(());
    }
    Err(format!(
        "the name {:?} is not 1 to 64 lower-case letters, digits and `-`",
        shorten(name, 80)
    ))
}

/// Checks what a normalizer says of itself.
///
/// # Errors
/// A sentence: what breaks the contract, and where.
pub fn manifest(manifest: &Manifest) -> Result<(), String> {
    name(&manifest.name)?;
    if semver::Version::parse(&manifest.version).is_err() || manifest.version.len() > 64 {
        return Err(format!(
            "the version {:?} is not a semantic version like 1.2.0",
            shorten(&manifest.version, 80)
        ));
    }
    if manifest.description.len() > MAX_DESCRIPTION_BYTES {
        return Err(format!(
            "a description of {} bytes; it may have {MAX_DESCRIPTION_BYTES}",
            manifest.description.len()
        ));
    }
    if manifest.description.contains(char::is_control) {
        return Err("a control character in its description".to_owned());
    }
    if manifest.columns.is_empty() || manifest.columns.len() > MAX_COLUMNS {
        return Err(format!(
            "{} columns; a normalizer has 1 to {MAX_COLUMNS}",
            manifest.columns.len()
        ));
    }
    let mut names = HashSet::new();
    for column in &manifest.columns {
        let mut letters = column.name.chars();
        let starts = letters
            .next()
            .is_some_and(|first| first.is_ascii_alphabetic() || first == '_');
        let goes_on = letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        if !starts || !goes_on || column.name.len() > MAX_COLUMN_NAME {
            return Err(format!(
                "{:?} is no column name (a letter or `_`, then letters, digits, `_`; at most {MAX_COLUMN_NAME})",
                shorten(&column.name, 80)
            ));
        }
        if !names.insert(column.name.as_str()) {
            return Err(format!("the column `{}` stands there twice", column.name));
        }
        if column.nullable && column.kind == ColumnType::Category {
            return Err(format!(
                "the column `{}` is a nullable category; an empty category says \"none\"",
                column.name
            ));
        }
    }
    Ok(())
}

/// Checks the answer to a batch, and cuts its texts to their bounds.
///
/// # Errors
/// A sentence: what breaks the contract, and where.
pub fn outcome(specs: &[ColumnSpec], batch: &Batch, outcome: &mut Outcome) -> Result<(), String> {
    let records = batch.len();
    let mut answered = vec![false; records];
    let rejected = outcome.rejections.iter().map(|rejection| rejection.row);
    for row in outcome.rows.iter().copied().chain(rejected) {
        match answered.get_mut(row as usize) {
            None => {
                return Err(format!(
                    "it answers for record {row} of a batch of {records}"
                ));
            }
            Some(answered) if *answered => {
                return Err(format!("it answers twice for record {row}"));
            }
            Some(answered) => *answered = true,
        }
    }
    if let Some(row) = answered.iter().position(|answered| !answered) {
        return Err(format!("it does not answer for record {row}"));
    }

    if outcome.columns.len() != specs.len() {
        return Err(format!(
            "{} columns where its manifest has {}",
            outcome.columns.len(),
            specs.len()
        ));
    }
    for (spec, values) in specs.iter().zip(&outcome.columns) {
        column(spec, values, outcome.rows.len())
            .map_err(|breach| format!("column `{}`: {breach}", spec.name))?;
    }

    for rejection in &mut outcome.rejections {
        bound(
            &mut rejection.detail,
            &mut rejection.field,
            batch.payload(rejection.row as usize),
        );
    }
    Ok(())
}

/// Checks the answers to an admission, and cuts their texts to their bounds.
///
/// # Errors
/// A sentence: what breaks the contract, and where.
pub fn admissions(
    batch: &Batch,
    answers: &mut [Result<Admission, Violation>],
) -> Result<(), String> {
    if answers.len() != batch.len() {
        return Err(format!(
            "{} answers to a batch of {}",
            answers.len(),
            batch.len()
        ));
    }
    for (row, answer) in answers.iter_mut().enumerate() {
        match answer {
            Ok(admission) => {
                let longest = admission
                    .key
                    .len()
                    .max(admission.source.as_ref().map_or(0, String::len));
                if longest > MAX_KEY_BYTES {
                    return Err(format!(
                        "a key or source of {longest} bytes for record {row}; {MAX_KEY_BYTES} are allowed"
                    ));
                }
            }
            Err(violation) => bound(
                &mut violation.detail,
                &mut violation.field,
                batch.payload(row),
            ),
        }
    }
    Ok(())
}

/// Makes what a guest said when it failed fit to be shown: without the payload,
/// bounded, printable.
pub(crate) fn fault(mut fault: Fault, payload: &[u8]) -> Fault {
    bound(&mut fault.detail, &mut None, payload);
    withhold(&mut fault.stderr, payload);
    make_printable(&mut fault.stderr);
    fault
}

/// Takes out what would move a terminal's cursor or forge a line of a log: what
/// a guest says is shown to people.
pub(crate) fn make_printable(text: &mut String) {
    let moves = |letter: char| letter.is_control() && letter != '\n' && letter != '\t';
    if text.contains(moves) {
        *text = text.replace(moves, "\u{fffd}");
    }
}

/// The same, without line breaks and tabs either.
pub(crate) fn make_one_line(text: &mut String) {
    make_printable(text);
    if text.contains(['\n', '\t']) {
        *text = text.replace(['\n', '\t'], " ");
    }
}

fn withhold(text: &mut String, payload: &[u8]) {
    if payload.len() >= SHORTEST_WITHHELD_PAYLOAD
        && let Ok(payload) = std::str::from_utf8(payload)
        && text.contains(payload)
    {
        *text = text.replace(payload, "…");
    }
}

fn bound(detail: &mut String, field: &mut Option<String>, payload: &[u8]) {
    withhold(detail, payload);
    make_one_line(detail);
    if detail.len() > MAX_DETAIL_BYTES {
        *detail = shorten(detail, MAX_DETAIL_BYTES);
    }
    if let Some(name) = field {
        make_one_line(name);
        if name.len() > MAX_FIELD_BYTES {
            *name = shorten(name, MAX_FIELD_BYTES);
        }
    }
}

fn column(spec: &ColumnSpec, column: &Column, rows: usize) -> Result<(), String> {
    let expect_len = |len: usize, expected: usize| {
        (len == expected)
            .then_some(())
            .ok_or_else(|| format!("{len} values where {expected} are expected"))
    };
    match (spec.kind, &column.values) {
        (ColumnType::Boolean, Values::Booleans(values)) => {
            expect_len(values.len(), rows)?;
            bytes_are_flags(values)?;
        }
        (ColumnType::Uint32 | ColumnType::Ipv4 | ColumnType::Seconds, Values::Uint32s(values)) => {
            expect_len(values.len(), rows)?;
        }
        (ColumnType::Uint64, Values::Uint64s(values)) => expect_len(values.len(), rows)?,
        (ColumnType::Uuid, Values::Uint64s(values)) => {
            expect_len(values.len(), rows.saturating_mul(2))?;
        }
        (ColumnType::Int64 | ColumnType::Millis, Values::Int64s(values)) => {
            expect_len(values.len(), rows)?;
        }
        (ColumnType::Float64, Values::Float64s(values)) => expect_len(values.len(), rows)?,
        (ColumnType::Text | ColumnType::Category, Values::Blobs(values)) => texts(values, rows)?,
        (_, values) => {
            return Err(format!(
                "its values are {}, which is not how a {} is stored",
                values_word(values),
                crate::contract::column_type_word(spec.kind)
            ));
        }
    }
    match &column.nulls {
        None => Ok(()),
        Some(_) if !spec.nullable => Err("nulls in a column that is not nullable".to_owned()),
        Some(nulls) => {
            expect_len(nulls.len(), rows)?;
            bytes_are_flags(nulls)
        }
    }
}

fn bytes_are_flags(bytes: &[u8]) -> Result<(), String> {
    match bytes.iter().find(|byte| **byte > 1) {
        None => Ok(()),
        Some(byte) => Err(format!("a flag is {byte}, neither 0 nor 1")),
    }
}

fn texts(blobs: &Blobs, rows: usize) -> Result<(), String> {
    let Blobs { offsets, data } = blobs;
    if offsets.len() != rows + 1 {
        return Err(format!(
            "{} offsets where {} are expected",
            offsets.len(),
            rows + 1
        ));
    }
    if offsets[0] != 0 || offsets[rows] as usize != data.len() {
        return Err(format!(
            "its offsets go from {} to {}, its data from 0 to {}",
            offsets[0],
            offsets[rows],
            data.len()
        ));
    }
    if let Some(row) = offsets.windows(2).position(|ends| ends[0] > ends[1]) {
        return Err(format!("its offsets fall after row {row}"));
    }
    let text = std::str::from_utf8(data)
        .map_err(|error| format!("not UTF-8 at byte {}", error.valid_up_to()))?;
    // Whole data may be UTF-8 while a value ends inside a character.
    match offsets
        .iter()
        .position(|offset| !text.is_char_boundary(*offset as usize))
    {
        None => Ok(()),
        Some(row) => Err(format!("row {row} begins or ends inside a character")),
    }
}

fn values_word(values: &Values) -> &'static str {
    match values {
        Values::Booleans(_) => "booleans",
        Values::Uint32s(_) => "uint32s",
        Values::Uint64s(_) => "uint64s",
        Values::Int64s(_) => "int64s",
        Values::Float64s(_) => "float64s",
        Values::Blobs(_) => "blobs",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::ViolationCode;

    fn violation(field: &str, detail: &str) -> Result<Admission, Violation> {
        Err(Violation {
            code: ViolationCode::InvalidType,
            field: Some(field.to_owned()),
            detail: detail.to_owned(),
        })
    }

    /// What vendors and logs are shown of a violation is as bounded as a rejection.
    #[test]
    fn the_texts_of_a_violation_are_cut_and_carry_neither_payload_nor_control_characters() {
        let payload = b"a payload of its own, long enough to be told from others";
        let batch = Batch::of([payload.as_slice()], 0).unwrap();
        let quoting = format!(
            "\u{1b}[2Jsaw {} and failed",
            String::from_utf8_lossy(payload)
        );
        for (field, detail) in [
            ("f".repeat(10_000), "d".repeat(1 << 20)),
            ("a\nfield".to_owned(), quoting),
        ] {
            let mut answers = [violation(&field, &detail)];
            admissions(&batch, &mut answers).unwrap();
            let Err(violation) = &answers[0] else {
                panic!("a violation");
            };
            assert!(violation.detail.len() <= MAX_DETAIL_BYTES);
            assert!(!violation.detail.contains("long enough to be told"));
            let field = violation.field.as_ref().unwrap();
            assert!(field.len() <= MAX_FIELD_BYTES);
            for text in [field, &violation.detail] {
                assert!(!text.contains(char::is_control), "{text:?}");
            }
        }
    }

    #[test]
    fn keys_and_sources_that_are_too_long_are_a_breach() {
        let batch = Batch::of([b"{}".as_slice()], 0).unwrap();
        let longest = "k".repeat(MAX_KEY_BYTES);
        let admitted = |key: &str, source: Option<&str>| {
            let admission = Admission {
                key: key.to_owned(),
                source: source.map(str::to_owned),
            };
            admissions(&batch, &mut [Ok(admission)])
        };
        assert_eq!(admitted(&longest, Some(&longest)), Ok(()));
        assert!(admitted(&format!("{longest}k"), None).is_err());
        assert!(admitted("k", Some(&format!("{longest}k"))).is_err());
        assert!(admissions(&batch, &mut []).is_err());
    }
}
