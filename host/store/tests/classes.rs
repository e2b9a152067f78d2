//! Each row of the table of errors, as ClickHouse sends it: what `classes.txt`
//! says must come out of each of the shapes that an exception can have.
//!
//! The server is false: of some 200 errors, 20 can be provoked (`faults.rs`).

mod common;

use std::{collections::BTreeSet, time::Duration};

use cdr_store::{EncodedBlock, ErrorClass, Store, StoreConfig, StoreError, codes::known_codes};
use common::{
    Engine,
    data::cdr_rows,
    false_server::{self, Answer},
    token,
};
use serde_json::json;

/// A line of `classes.txt`.
struct Expected {
    status: u16,
    class: ErrorClass,
    code: i32,
    name: &'static str,
    message: &'static str,
}

impl Expected {
    fn all() -> impl Iterator<Item = Self> {
        let lines = include_str!("classes.txt").lines();
        lines.filter(|line| !line.starts_with('#')).map(Self::parse)
    }

    fn parse(line: &'static str) -> Self {
        let fields: Vec<&str> = line.splitn(5, " | ").collect();
        let [status, class, code, name, message] = fields[..] else {
            panic!("{line}");
        };
        let classes = [
            ErrorClass::Transient,
            ErrorClass::TooLarge,
            ErrorClass::Data,
            ErrorClass::Setup,
        ];
        Self {
            status: status.parse().unwrap(),
            class: classes.into_iter().find(|c| c.tag() == class).expect(line),
            code: code.parse().unwrap(),
            name,
            message,
        }
    }

    fn text(&self) -> String {
        let Self {
            code,
            name,
            message,
            ..
        } = self;
        format!("Code: {code}. DB::Exception: {message} ({name}) (version 26.7.2.1)\n")
    }

    /// The exception as the status, in the header of a success, and behind the
    /// beginning of a successful body, which ends in order or breaks off.
    fn shapes(&self) -> [Vec<u8>; 4] {
        let (status, code, text) = (self.status, self.code, self.text());
        let length = text.len();
        let marked = format!(
            "\r\n__exception__\r\npojdqjavvmqveqcj\r\n{text}{length} pojdqjavvmqveqcj\r\n__exception__\r\n"
        );
        let chunked = format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-ClickHouse-Query-Id: 1\r\n\
             X-ClickHouse-Exception-Tag: pojdqjavvmqveqcj\r\n\r\n{:x}\r\n{marked}\r\n",
            marked.len()
        );
        let headed = |status: &str| {
            format!(
                "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nX-ClickHouse-Query-Id: 1\r\n\
                 X-ClickHouse-Exception-Code: {code}\r\n\r\n{text}"
            )
        };
        [
            headed(&format!("{status} Says-So")),
            headed("200 OK"),
            format!("{chunked}0\r\n\r\n"),
            chunked,
        ]
        .map(String::into_bytes)
    }
}

async fn insert(answer: Vec<u8>) -> (String, StoreError) {
    let url = false_server::start(Answer::Bytes(answer)).await;
    let store = Store::new(StoreConfig {
        url: url.clone(),
        insert_timeout: Duration::from_secs(60),
        ..StoreConfig::default()
    })
    .unwrap();
    let block = EncodedBlock::new(&cdr_rows(2, &[1_700_000_000])).unwrap();
    let error = store.insert(&block, &token("a")).await.unwrap_err();
    (url, error)
}

#[tokio::test]
async fn every_error_has_its_class_in_every_shape() {
    for expected in Expected::all() {
        for answer in expected.shapes() {
            let shape = String::from_utf8_lossy(&answer).into_owned();
            let (url, error) = insert(answer).await;
            assert_eq!(
                (error.class, error.code, error.name.as_str()),
                (expected.class, Some(expected.code), expected.name),
                "{shape}\n{error}"
            );
            let text = error.to_string();
            for part in [
                "insert of 2 rows into telecom.cdr_records",
                &url,
                expected.name,
                &format!("(code {})", expected.code),
                expected.message,
            ] {
                assert!(text.contains(part), "{part:?} is not in: {text}");
            }
        }
    }
}

#[test]
fn every_row_and_every_sign_has_a_line() {
    let classes = |code| -> BTreeSet<&str> {
        let lines = Expected::all().filter(|line| line.code == code);
        lines.map(|line| line.class.tag()).collect()
    };
    for row in known_codes() {
        let mut wanted = BTreeSet::from([row.class.tag()]);
        // What values share is shown by a few of them.
        let shared = row.class == ErrorClass::Data;
        wanted.extend(row.unless.iter().filter(|_| !shared).map(|(_, c)| c.tag()));
        assert!(
            wanted.is_subset(&classes(row.code)),
            "{}: {wanted:?} of {:?}",
            row.name,
            classes(row.code)
        );
    }
}

/// Faults that an operator has to act on say how.
#[tokio::test]
async fn what_an_operator_can_do_is_said() {
    for (code, class, advice) in [
        (243, ErrorClass::Transient, "free space"),
        (201, ErrorClass::Transient, "quota's interval"),
        (252, ErrorClass::Transient, "system.merges"),
        (
            252,
            ErrorClass::TooLarge,
            "max_partitions_per_insert_block for the user",
        ),
        (241, ErrorClass::Transient, "short of memory"),
        (241, ErrorClass::TooLarge, "max_memory_usage for the user"),
        (242, ErrorClass::Transient, "system.replicas"),
        (164, ErrorClass::Setup, "readonly = 0"),
        (159, ErrorClass::Transient, "max_execution_time"),
        (209, ErrorClass::Transient, "network"),
        (202, ErrorClass::Transient, "fewer workers"),
        (516, ErrorClass::Setup, "the password"),
        (60, ErrorClass::Setup, "`cdr provision`"),
        (6, ErrorClass::Setup, "`cdr provision`"),
    ] {
        let line = Expected::all().find(|line| line.code == code && line.class == class);
        let [answer, ..] = line.unwrap().shapes();
        let (_, error) = insert(answer).await;
        let found = error.advice().unwrap_or_default();
        assert!(found.contains(advice), "{code}: {found}");
        assert!(error.to_string().ends_with(found), "{error}");
    }
}

#[tokio::test]
async fn codes_have_the_names_that_clickhouse_gives_them() {
    let engine = Engine::start().await;
    let store = engine.store("any");
    let codes = known_codes().iter();
    let list: Vec<String> = codes.clone().map(|row| row.code.to_string()).collect();
    let sql = format!(
        "SELECT arrayMap(c -> toString(errorCodeToName(c)), [{}]) AS names",
        list.join(",")
    );
    let rows: Vec<serde_json::Value> = store.query_rows(&sql).await.unwrap();
    let names: Vec<&str> = codes.map(|row| row.name).collect();
    assert_eq!(rows[0]["names"], json!(names));
}
