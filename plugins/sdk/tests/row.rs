//! Rows become columns: names, kinds, nulls, offsets; and batches become
//! outcomes, natively.

use cdr_plugin_sdk::bindings::{Blobs, Values};
use cdr_plugin_sdk::{
    Admission, ColumnType, Malformed, Normalizer, Reason, ReceivedAt, Rejection, Row, Violation,
    ViolationCode, native,
};
use std::borrow::Cow;
use std::net::Ipv4Addr;
use uuid::Uuid;

#[derive(Row)]
struct Everything<'a> {
    flag: bool,
    small: u32,
    large: u64,
    signed: i64,
    float: f64,
    text: Cow<'a, str>,
    #[column(category)]
    category: &'a str,
    id: Uuid,
    address: Ipv4Addr,
    #[column(seconds)]
    seconds: u32,
    #[column(millis, name = "at")]
    millis: i64,
    maybe_text: Option<String>,
    maybe_id: Option<Uuid>,
    #[column(seconds)]
    maybe_seconds: Option<u32>,
}

#[test]
fn fields_are_columns_in_order() {
    let found: Vec<_> = Everything::COLUMNS
        .iter()
        .map(|column| (column.name, column.kind, column.nullable))
        .collect();
    assert_eq!(
        found,
        [
            ("flag", ColumnType::Boolean, false),
            ("small", ColumnType::Uint32, false),
            ("large", ColumnType::Uint64, false),
            ("signed", ColumnType::Int64, false),
            ("float", ColumnType::Float64, false),
            ("text", ColumnType::Text, false),
            ("category", ColumnType::Category, false),
            ("id", ColumnType::Uuid, false),
            ("address", ColumnType::Ipv4, false),
            ("seconds", ColumnType::Seconds, false),
            ("at", ColumnType::Millis, false),
            ("maybe_text", ColumnType::Text, true),
            ("maybe_id", ColumnType::Uuid, true),
            ("maybe_seconds", ColumnType::Seconds, true),
        ]
    );
}

/// Each payload is one letter: `r` makes a row, `m` is malformed, `x` rejected.
struct Letters;

#[derive(Row)]
struct Letter<'a> {
    letter: &'a str,
    position: Option<u32>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    #[serde(default)]
    refuse: bool,
}

impl Normalizer for Letters {
    const NAME: &'static str = "letters";
    const VERSION: &'static str = "0.1.0";
    const DESCRIPTION: &'static str = "Letters, for the tests.";
    type Settings = Settings;
    type Raw<'a> = &'a str;
    type Row<'a> = Letter<'a>;

    fn configure(settings: Settings) -> Result<Self, String> {
        if settings.refuse {
            return Err("told to".to_owned());
        }
        Ok(Self)
    }

    fn parse(payload: &[u8]) -> Result<&str, Malformed> {
        match std::str::from_utf8(payload) {
            Ok("m") | Err(_) => Err(Malformed::new("malformed").field("letter")),
            Ok(letter) => Ok(letter),
        }
    }

    fn admit(&self, raw: &&str) -> Result<Admission, Violation> {
        match *raw {
            "" => Err(Violation::new(
                ViolationCode::MissingRequiredField,
                "nothing",
            )),
            letter => Ok(Admission::keyed(letter)),
        }
    }

    fn normalize<'a>(
        &self,
        raw: Self::Raw<'a>,
        received_at: ReceivedAt,
    ) -> Result<Self::Row<'a>, Rejection> {
        match raw {
            "x" => Err(Rejection::new(Reason::InvalidEpoch, "refused").field("x")),
            letter => Ok(Letter {
                letter,
                position: u32::try_from(received_at.seconds())
                    .ok()
                    .filter(|at| *at > 0),
            }),
        }
    }
}

#[test]
fn a_batch_becomes_rows_and_rejections() {
    let normalizer: Letters = native::configure("{}").unwrap();
    let payloads: [&[u8]; 5] = [b"a", b"m", b"bc", b"x", b"\xff"];
    let mut batch = native::batch(payloads, 0);
    batch.received_at = vec![1999, 0, -1, 0, 0];
    let outcome = native::normalize(&normalizer, &batch);
    assert_eq!(outcome.rows, [0, 2]);
    let Values::Blobs(Blobs { offsets, data }) = &outcome.columns[0].values else {
        panic!("texts are blobs");
    };
    assert_eq!(
        (offsets.as_slice(), data.as_slice()),
        (&[0, 1, 3][..], &b"abc"[..])
    );
    let Values::Uint32s(positions) = &outcome.columns[1].values else {
        panic!("positions are 32 bits wide");
    };
    assert_eq!(positions, &[1, 0]);
    assert_eq!(outcome.columns[1].nulls.as_deref(), Some(&[0, 1][..]));
    let rejected: Vec<_> = outcome
        .rejections
        .iter()
        .map(|it| (it.row, it.reason, it.field.as_deref()))
        .collect();
    assert_eq!(
        rejected,
        [
            (1, Reason::MalformedJson, Some("letter")),
            (3, Reason::InvalidEpoch, Some("x")),
            (4, Reason::MalformedJson, Some("letter")),
        ]
    );
}

#[test]
fn a_column_without_nulls_has_no_null_map() {
    let normalizer: Letters = native::configure("{}").unwrap();
    let outcome = native::normalize(&normalizer, &native::batch([&b"a"[..]], 5000));
    assert_eq!(outcome.columns[1].nulls, None);
    let empty = native::normalize(&normalizer, &native::batch([], 0));
    assert!(empty.rows.is_empty() && empty.columns.len() == 2);
}

#[test]
fn settings_are_checked_before_anything_else() {
    for (settings, word) in [
        (r#"{"refuse":true}"#, "told to"),
        (r#"{"other":1}"#, "unknown field"),
        ("", "EOF"),
    ] {
        let refusal = native::configure::<Letters>(settings).err().unwrap();
        assert!(refusal.contains(word), "{settings}: {refusal}");
    }
}

#[test]
fn admission_and_normalization_share_the_parser() {
    let normalizer: Letters = native::configure("{}").unwrap();
    let refusal = native::admit_one(&normalizer, b"m").unwrap_err();
    assert_eq!(refusal.code, ViolationCode::MalformedJson);
    let rejection = native::normalize_one(&normalizer, b"m", 0).err().unwrap();
    assert_eq!(rejection.reason, Reason::MalformedJson);
    assert_eq!(native::admit_one(&normalizer, b"k").unwrap().key, "k");
}
