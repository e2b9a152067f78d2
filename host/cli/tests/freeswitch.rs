//! Another format, another normalizer, the same hosts and the same table: what
//! FreeSWITCH posts ends as a row beside those of the reference normalizer.

mod common;

use bytes::Bytes;
use common::bed::Bed;
use common::http_client::HttpClient;
use common::judge::{Subject, post_all};
use common::records::{goods, now_s};
use common::{freeswitch, normalizer, settings};
use serde_json::Value;
use std::path::PathBuf;

/// When the fixtures begin; their times are moved to now.
const FIXTURE_START: u64 = 1_700_000_000;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn fixtures() -> PathBuf {
    root().join("plugins/freeswitch-json-cdr/fixtures")
}

/// What tells the hosts which normalizer to run.
fn with(normalizer: PathBuf, settings: PathBuf) -> [(&'static str, String); 2] {
    [
        ("NORMALIZER", normalizer.display().to_string()),
        ("NORMALIZER_SETTINGS", settings.display().to_string()),
    ]
}

/// A fixture's payload, at another time.
fn payload(name: &str, shift: u64) -> Vec<u8> {
    let file = ["in.json", "in.bin", "in"]
        .iter()
        .map(|extension| fixtures().join(format!("{name}.{extension}")))
        .find(|file| file.is_file())
        .unwrap_or_else(|| panic!("no fixture {name}"));
    let payload = std::fs::read(file).unwrap();
    let Ok(mut text) = String::from_utf8(payload.clone()) else {
        return payload;
    };
    for seconds in [0, 6, 66] {
        let moved = (FIXTURE_START + seconds + shift).to_string();
        text = text.replace(&(FIXTURE_START + seconds).to_string(), &moved);
    }
    text.into_bytes()
}

/// The row that a fixture makes, at its own time.
fn row(name: &str) -> Value {
    let answers = std::fs::read(fixtures().join(format!("{name}.out.json"))).unwrap();
    let answers: Value = serde_json::from_slice(&answers).unwrap();
    answers["normalize"]["row"].clone()
}

/// All rows without what the host adds, times moved back to those of the
/// fixtures.
async fn rows(subject: &Subject, shift: u64) -> Vec<Value> {
    let moved = ["session_start_time", "session_end_time", "answer_time"]
        .map(|column| format!("formatDateTime({column} - {shift}, '%FT%TZ', 'UTC') AS {column}"))
        .join(", ");
    let sql = format!(
        "SELECT * EXCEPT (received_at, processed_at, normalizer_version) REPLACE ({moved}) \
         FROM {} FINAL ORDER BY raw_id SETTINGS output_format_json_quote_64bit_integers = 0",
        subject.store.quoted_table()
    );
    subject.store.query_rows(&sql).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_land_in_the_table_that_the_reference_normalizer_uses_too() {
    let own = with(freeswitch(), fixtures().join("settings.json"));
    let bed = Bed::start_with(&own).await;
    let (worker, api) = (bed.worker(&[]), bed.api(&[]));
    let subject = bed.subject(&api.url, &worker.url);
    let shift = now_s() - FIXTURE_START - 100;

    let good = [
        "a-leg-answered",
        "anonymous-with-network-number",
        "b-leg-answered",
        "encoded-values",
        "encoded-values-not-ascii",
        "extension-to-extension",
        "not-answered",
        "older-release-repeated-callflow",
        "peer-on-ipv6",
        "transferred",
        "unknown-json-and-whitespace",
        // The switch did not hear the answer, and posts again.
        "a-leg-answered",
    ];
    let dead = [
        ("answered-before-start", "invalid_epoch"),
        ("anonymous", "normalization_error"),
        ("billsec-longer-than-leg", "normalization_error"),
        ("extension-without-number", "normalization_error"),
    ];
    let refused = [
        ("latin-1-name", "malformed_json"),
        ("no-uuid", "missing_required_field"),
        ("posted-as-a-form", "malformed_json"),
        ("time-as-number", "invalid_type"),
    ];

    let client = HttpClient::new();
    let post = async |name: &str| {
        // As `mod_json_cdr` does: the leg's uuid behind the path.
        let url = format!("{}/v1/cdrs?uuid={name}", api.url);
        let body = Bytes::from(payload(name, shift));
        let (status, body) = client.post(&url, body).await.unwrap();
        let answer: Value = serde_json::from_slice(&body).unwrap();
        (status.as_u16(), answer)
    };
    for name in good.into_iter().chain(dead.map(|(name, _)| name)) {
        let (status, answer) = post(name).await;
        assert_eq!(status, 202, "{name}: {answer}");
    }
    for (name, word) in refused {
        let (status, answer) = post(name).await;
        assert_eq!(
            (status, answer["error"].as_str()),
            (400, Some(word)),
            "{name}"
        );
    }
    subject.settled((good.len() + dead.len()) as u64).await;

    let mut expected: Vec<_> = good.into_iter().map(row).collect();
    expected.sort_by_key(|row| row["raw_id"].as_str().unwrap().to_owned());
    expected.dedup();
    let found = rows(&subject, shift).await;
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected);
    }
    let mut letters = dead.map(|(name, reason)| (reason.to_owned(), payload(name, shift)));
    letters.sort();
    assert_eq!(subject.dead_letters().await, letters);
    subject.everything_is_committed().await;
    api.stop();
    worker.stop();

    // The table fits the reference normalizer as it is, and its rows go there.
    let reference = with(normalizer(), settings());
    let reference = reference
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    bed.provision_with(&reference, "fits");
    let (worker, api) = (bed.worker(&reference), bed.api(&reference));
    let subject = bed.subject(&api.url, &worker.url);
    let (samples, others) = goods(0, 20);
    assert_eq!(post_all(&api.url, &samples).await, 20);
    subject.settled(20).await;
    let all = rows(&subject, shift).await;
    assert_eq!(all.len(), expected.len() + others.len());
    let (own, others): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|row| row["switch_name"].is_string() || row["vendor_id"] == "legacy-pbx");
    assert_eq!(own, expected, "rows of before are untouched");
    for row in others {
        assert_eq!(
            (&row["answer_time"], &row["call_uuid"]),
            (&Value::Null, &Value::Null)
        );
    }
    api.stop();
    worker.stop();
}

/// The statements of `docs/freeswitch.md`, for a table that the reference
/// normalizer has made.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_the_reference_normalizer_takes_calls_after_the_documented_statements() {
    let bed = Bed::start().await;
    let document = std::fs::read_to_string(root().join("docs/freeswitch.md")).unwrap();
    let sql = document
        .split("```sql\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .expect("the document has statements");
    let store = bed.subject("", "").store;
    for statement in sql
        .split(';')
        .filter(|statement| !statement.trim().is_empty())
    {
        store.execute(statement).await.unwrap();
    }
    let own = with(freeswitch(), fixtures().join("settings.json"));
    let own = own.each_ref().map(|(name, value)| (*name, value.as_str()));
    bed.provision_with(&own, "fits");
    bed.provision("fits");
}
