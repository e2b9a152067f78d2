//! How the answers of two normalizers differ: record by record, column by column,
//! reason by reason. Pure.
//!
//! Every record falls into exactly one [`Kind`], so that the counts add up to the
//! records. Examples are few and redacted: they show the shape of a value, not the
//! value, where it may be of a person.

use crate::contract::{ColumnSpec, ColumnType, Manifest, Outcome, Rejection, reason_word};
use crate::error::Fault;
use crate::json;
use crate::normalizer::Normalized;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Examples that are kept of each kind, and of each column.
const EXAMPLES: usize = 3;

/// Words (reasons, columns) that are counted apart; what comes later counts as
/// `other`.
const WORDS: usize = 256;

/// The longest text in an example, in characters.
const EXAMPLE_TEXT: usize = 120;

/// What became of one record by the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The same row (in the columns that both have), or the same rejection.
    Same,
    /// Rows with other values.
    Values,
    /// A row before, a rejection now.
    RowToRejection,
    /// A rejection before, a row now.
    RejectionToRow,
    /// Rejections with other reasons.
    Reason,
    /// Rejections with the same reason, blaming another field.
    Field,
    /// The candidate failed on it, the other did not.
    Fault,
    /// The candidate did not fail where the other did.
    FaultGone,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 8] = [
        Self::Same,
        Self::Values,
        Self::RowToRejection,
        Self::RejectionToRow,
        Self::Reason,
        Self::Field,
        Self::Fault,
        Self::FaultGone,
    ];

    /// The word for it in metrics and reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Values => "values",
            Self::RowToRejection => "row_to_rejection",
            Self::RejectionToRow => "rejection_to_row",
            Self::Reason => "reason",
            Self::Field => "field",
            Self::Fault => "fault",
            Self::FaultGone => "fault_gone",
        }
    }
}

/// One difference, redacted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Example {
    /// What kind it is.
    pub kind: Kind,
    /// The column, where it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// What the one says.
    pub before: Value,
    /// What the candidate says.
    pub after: Value,
}

/// What comparing gave so far.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Diff {
    /// Records that were compared.
    pub records: u64,
    /// Records by kind.
    pub kinds: BTreeMap<Kind, u64>,
    /// Differing values by column; a record may count in several.
    pub columns: BTreeMap<String, u64>,
    /// Where a reason is another, or only one rejects: `before → after`.
    pub reasons: BTreeMap<String, u64>,
    /// Columns that only the candidate has.
    pub added_columns: Vec<String>,
    /// Columns that only the other has.
    pub removed_columns: Vec<String>,
    /// Columns that both have, of another type.
    pub retyped_columns: Vec<String>,
    /// A few differences.
    pub examples: Vec<Example>,
}

/// What one of the two says of a record.
enum Answer<'a> {
    Row(&'a Outcome, usize),
    Rejection(&'a Rejection),
    Fault(&'a Fault),
    /// A validated answer has none.
    Nothing,
}

impl Diff {
    /// Nothing compared yet; says which columns differ.
    pub fn new(before: &Manifest, after: &Manifest) -> Self {
        let find = |of: &Manifest, name: &str| {
            of.columns
                .iter()
                .find(|column| column.name == name)
                .cloned()
        };
        let mut diff = Self::default();
        for column in &before.columns {
            match find(after, &column.name) {
                None => diff.removed_columns.push(column.name.clone()),
                Some(found) if found != *column => diff.retyped_columns.push(column.name.clone()),
                Some(_) => {}
            }
        }
        let added = after.columns.iter();
        diff.added_columns = added
            .filter(|column| find(before, &column.name).is_none())
            .map(|column| column.name.clone())
            .collect();
        diff
    }

    /// Columns that are gone, or have another type.
    pub fn lost_columns(&self) -> usize {
        self.removed_columns.len() + self.retyped_columns.len()
    }

    /// Records that are not the same.
    pub fn different(&self) -> u64 {
        self.records - self.kinds.get(&Kind::Same).copied().unwrap_or(0)
    }

    /// Compares the answers to a batch of `records` records. The manifests are
    /// those that [`new`](Self::new) was told.
    pub fn add(
        &mut self,
        records: usize,
        (before_columns, before): (&[ColumnSpec], &Normalized),
        (after_columns, after): (&[ColumnSpec], &Normalized),
    ) {
        let before = answers(records, before);
        let after = answers(records, after);
        let shared: Vec<_> = before_columns
            .iter()
            .enumerate()
            .filter_map(|(at, column)| {
                let other = after_columns.iter().position(|found| found == column)?;
                Some((column, at, other))
            })
            .collect();
        for (before, after) in before.iter().zip(&after) {
            self.records += 1;
            let kind = self.compare(&shared, before, after);
            *self.kinds.entry(kind).or_default() += 1;
        }
    }

    fn compare(
        &mut self,
        shared: &[(&ColumnSpec, usize, usize)],
        before: &Answer<'_>,
        after: &Answer<'_>,
    ) -> Kind {
        match (before, after) {
            (Answer::Row(before, row), Answer::Row(after, other_row)) => {
                let mut kind = Kind::Same;
                for (spec, at, other) in shared {
                    let before = json::cell(spec.kind, &before.columns[*at], *row);
                    let after = json::cell(spec.kind, &after.columns[*other], *other_row);
                    if before != after {
                        kind = Kind::Values;
                        count(&mut self.columns, spec.name.clone());
                        let (before, after) = (redact(spec.kind, before), redact(spec.kind, after));
                        self.example(kind, Some(&spec.name), before, after);
                    }
                }
                kind
            }
            (Answer::Row(..), Answer::Rejection(after)) => {
                self.rejected(Kind::RowToRejection, Value::from("a row"), word(after));
                Kind::RowToRejection
            }
            (Answer::Rejection(before), Answer::Row(..)) => {
                self.rejected(Kind::RejectionToRow, word(before), Value::from("a row"));
                Kind::RejectionToRow
            }
            (Answer::Rejection(before), Answer::Rejection(after)) => {
                if before.reason != after.reason {
                    self.rejected(Kind::Reason, word(before), word(after));
                    Kind::Reason
                } else if before.field != after.field {
                    self.rejected(Kind::Field, word(before), word(after));
                    Kind::Field
                } else {
                    Kind::Same
                }
            }
            (Answer::Fault(_), Answer::Fault(_)) | (Answer::Nothing, Answer::Nothing) => Kind::Same,
            (_, Answer::Fault(fault)) => {
                let after = Value::from(fault.kind.tag());
                self.rejected(Kind::Fault, Value::from("an answer"), after);
                Kind::Fault
            }
            (Answer::Fault(fault), _) => {
                let before = Value::from(fault.kind.tag());
                self.rejected(Kind::FaultGone, before, Value::from("an answer"));
                Kind::FaultGone
            }
            (Answer::Nothing, _) | (_, Answer::Nothing) => Kind::Fault,
        }
    }

    fn rejected(&mut self, kind: Kind, before: Value, after: Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        count(
            &mut self.reasons,
            format!("{} → {}", text(&before), text(&after)),
        );
        self.example(kind, None, before, after);
    }

    fn example(&mut self, kind: Kind, column: Option<&str>, before: Value, after: Value) {
        let alike =
            |example: &&Example| example.kind == kind && example.column.as_deref() == column;
        if self.examples.iter().filter(alike).count() < EXAMPLES
            && self.examples.len() < EXAMPLES * (WORDS + Kind::ALL.len())
        {
            self.examples.push(Example {
                kind,
                column: column.map(str::to_owned),
                before,
                after,
            });
        }
    }
}

fn count(counts: &mut BTreeMap<String, u64>, word: String) {
    let word = match counts.len() >= WORDS && !counts.contains_key(&word) {
        true => "other".to_owned(),
        false => word,
    };
    *counts.entry(word).or_default() += 1;
}

/// The answers in the order of the records.
fn answers(records: usize, normalized: &Normalized) -> Vec<Answer<'_>> {
    let mut answers: Vec<_> = (0..records).map(|_| Answer::Nothing).collect();
    let mut put = |row: u32, answer| {
        if let Some(place) = answers.get_mut(row as usize) {
            *place = answer;
        }
    };
    for part in &normalized.parts {
        for (at, row) in part.rows.iter().enumerate() {
            put(*row, Answer::Row(part, at));
        }
    }
    for rejection in &normalized.rejections {
        put(rejection.row, Answer::Rejection(rejection));
    }
    for (row, fault) in &normalized.faults {
        put(*row, Answer::Fault(fault));
    }
    answers
}

/// Reason and field; the detail may quote the record, and so does a field that is no
/// name.
fn word(rejection: &Rejection) -> Value {
    let reason = reason_word(rejection.reason);
    let is_name = |field: &str| {
        field.len() <= 64
            && field.bytes().all(|byte| {
                byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'.' | b'-' | b'[' | b']')
            })
    };
    Value::from(match &rejection.field {
        Some(field) if is_name(field) => format!("{reason} ({field})"),
        Some(_) => format!("{reason} (a field that is no name)"),
        None => reason.to_owned(),
    })
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(EXAMPLE_TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The longest whole number that can't be one of a telephone, a card or a device.
const SHORT_NUMBER: usize = 5;

/// A value that may be of a person keeps its shape only: digits become 9, letters a
/// and A. Times, truth values, and numbers of few digits are shown as they are.
fn redact(kind: ColumnType, value: Value) -> Value {
    match (kind, value) {
        (ColumnType::Seconds | ColumnType::Millis | ColumnType::Boolean, value) => value,
        // A category of few digits or letters alone is a word: MO, EUTRAN, 16.
        (ColumnType::Category, Value::String(text))
            if text.chars().filter(|letter| letter.is_numeric()).count() <= SHORT_NUMBER =>
        {
            Value::from(cut(&text))
        }
        (_, Value::String(text)) => Value::from(shape(&cut(&text))),
        (_, Value::Number(number)) => {
            let text = number.to_string();
            match text.chars().filter(char::is_ascii_digit).count() > SHORT_NUMBER {
                true => Value::from(shape(&text)),
                false => Value::Number(number),
            }
        }
        (_, value) => value,
    }
}

fn shape(text: &str) -> String {
    let shape_of = |letter: char| match letter {
        _ if letter.is_numeric() => '9',
        _ if letter.is_lowercase() => 'a',
        _ if letter.is_alphabetic() => 'A',
        _ => letter,
    };
    text.chars().map(shape_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Blobs, Column, Reason, Values};

    fn manifest(columns: &[(&str, ColumnType)]) -> Manifest {
        Manifest {
            name: "n".to_owned(),
            version: "1.0.0".to_owned(),
            description: String::new(),
            columns: columns
                .iter()
                .map(|(name, kind)| ColumnSpec {
                    name: (*name).to_owned(),
                    kind: *kind,
                    nullable: false,
                })
                .collect(),
        }
    }

    fn texts(values: &[&str]) -> Column {
        let mut offsets = vec![0];
        let mut data = Vec::new();
        for value in values {
            data.extend_from_slice(value.as_bytes());
            offsets.push(data.len() as u32);
        }
        Column {
            values: Values::Blobs(Blobs { offsets, data }),
            nulls: None,
        }
    }

    fn numbers(values: &[u32]) -> Column {
        Column {
            values: Values::Uint32s(values.to_vec()),
            nulls: None,
        }
    }

    fn rejection(row: u32, reason: Reason, field: Option<&str>) -> Rejection {
        Rejection {
            row,
            reason,
            field: field.map(str::to_owned),
            detail: "+447700900123 is odd".to_owned(),
        }
    }

    fn normalized(rows: &[u32], columns: Vec<Column>, rejections: Vec<Rejection>) -> Normalized {
        Normalized {
            parts: vec![Outcome {
                rows: rows.to_vec(),
                columns,
                rejections: Vec::new(),
            }],
            rejections,
            faults: Vec::new(),
        }
    }

    #[test]
    fn every_record_falls_into_one_kind_and_examples_show_no_number() {
        use ColumnType::{Text, Uint32};
        let one = manifest(&[("msisdn", Text), ("seconds", Uint32), ("old", Uint32)]);
        let other = manifest(&[("new", Text), ("seconds", Uint32), ("msisdn", Text)]);
        let mut diff = Diff::new(&one, &other);
        assert_eq!(
            (&diff.added_columns, &diff.removed_columns),
            (&vec!["new".to_owned()], &vec!["old".to_owned()])
        );

        let before = normalized(
            &[0, 1, 2],
            vec![
                texts(&["+447700900123", "+447700900124", "+447700900125"]),
                numbers(&[1, 2, 3]),
                numbers(&[0, 0, 0]),
            ],
            vec![
                rejection(3, Reason::InvalidEpoch, Some("start")),
                rejection(4, Reason::InvalidEpoch, Some("start")),
                rejection(5, Reason::InvalidEpoch, Some("start")),
                rejection(6, Reason::InvalidEpoch, Some("start")),
            ],
        );
        let mut after = normalized(
            // In another order: rows say which record they are of.
            &[3, 1, 0],
            vec![
                texts(&["x", "y", "z"]),
                numbers(&[9, 5, 1]),
                texts(&["", "+447700900199", "+447700900123"]),
            ],
            vec![
                rejection(2, Reason::NormalizationError, None),
                rejection(4, Reason::MalformedJson, None),
                rejection(5, Reason::InvalidEpoch, Some("end")),
            ],
        );
        after
            .faults
            .push((6, Fault::new(crate::error::FaultKind::Trap, "unreachable")));
        diff.add(7, (&one.columns, &before), (&other.columns, &after));

        let kinds: Vec<_> = diff
            .kinds
            .iter()
            .map(|(kind, n)| (kind.word(), *n))
            .collect();
        assert_eq!(
            kinds,
            [
                ("same", 1),
                ("values", 1),
                ("row_to_rejection", 1),
                ("rejection_to_row", 1),
                ("reason", 1),
                ("field", 1),
                ("fault", 1)
            ]
        );
        assert_eq!(diff.kinds.values().sum::<u64>(), diff.records);
        assert_eq!(diff.different(), 6);
        assert_eq!(diff.columns["msisdn"], 1);
        assert_eq!(diff.columns["seconds"], 1);
        let text = serde_json::to_string(&diff).unwrap();
        assert!(!text.contains("7700900"), "{text}");
        assert!(text.contains("+999999999999"), "{text}");
    }

    #[test]
    fn no_number_of_a_person_is_shown_whatever_column_it_is_put_into() {
        use ColumnType::{Category, Seconds, Text, Uint32, Uint64, Uuid};
        for (kind, value, shown) in [
            (
                Text,
                Value::from("+44 7700 900123, Ann"),
                "\"+99 9999 999999, Aaa\"",
            ),
            (Text, Value::from("٠١٢٣٤٥٦٧٨٩"), "\"9999999999\""),
            (Text, Value::from("１２３"), "\"999\""),
            (Category, Value::from("447700900123"), "\"999999999999\""),
            (Category, Value::from("EUTRAN_NB_IOT"), "\"EUTRAN_NB_IOT\""),
            (Uuid, Value::from("42a3b623-a497"), "\"99a9a999-a999\""),
            (Uint64, Value::from(447_700_900_123_u64), "\"999999999999\""),
            (Uint32, Value::from(60), "60"),
            (
                Seconds,
                Value::from("2023-11-14T22:13:20Z"),
                "\"2023-11-14T22:13:20Z\"",
            ),
            (Text, Value::Null, "null"),
        ] {
            assert_eq!(redact(kind, value).to_string(), shown);
        }
        let field = |field: &str| word(&rejection(0, Reason::InvalidEpoch, Some(field)));
        assert_eq!(field("session.start[]"), "invalid_epoch (session.start[])");
        assert!(!field("447700900123").to_string().contains('7'));
    }

    #[test]
    fn examples_are_few_whatever_comes() {
        let one = manifest(&[("n", ColumnType::Uint32)]);
        let mut diff = Diff::new(&one, &one);
        let rows: Vec<u32> = (0..1000).collect();
        let before = normalized(&rows, vec![numbers(&rows)], Vec::new());
        let moved: Vec<u32> = (1..=1000).collect();
        let after = normalized(&rows, vec![numbers(&moved)], Vec::new());
        diff.add(1000, (&one.columns, &before), (&one.columns, &after));
        assert_eq!(diff.examples.len(), EXAMPLES);
        assert_eq!(diff.columns["n"], 1000);
    }
}
