//! The fixtures of the FreeSWITCH normalizer, through the built .wasm: a format
//! that was made elsewhere, in the same host.

mod common;

use cdr_plugin_host::{Admitted, Batch, Normalized, Normalizer, json};
use common::{freeswitch, host};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A payload, when it was received, and what becomes of it.
struct Fixture {
    name: String,
    payload: Vec<u8>,
    received_at: i64,
    expected: Value,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../plugins/freeswitch-json-cdr/fixtures")
}

fn fixtures(folder: &Path) -> Vec<Fixture> {
    let mut fixtures = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        let Some(name) = ["in.json", "in.bin", "in"]
            .iter()
            .find_map(|extension| file.strip_suffix(&format!(".{extension}")))
        else {
            continue;
        };
        let expected = std::fs::read(folder.join(format!("{name}.out.json")))
            .unwrap_or_else(|error| panic!("{name}.out.json: {error}"));
        let expected: Value = serde_json::from_slice(&expected).unwrap();
        fixtures.push(Fixture {
            name: name.to_owned(),
            payload: std::fs::read(folder.join(&file)).unwrap(),
            received_at: expected["received_at"].as_i64().unwrap(),
            expected,
        });
    }
    fixtures.sort_by(|one, other| one.name.cmp(&other.name));
    assert!(fixtures.len() >= 30, "only {} fixtures", fixtures.len());
    fixtures
}

async fn normalizer() -> Normalizer {
    let settings = std::fs::read_to_string(folder().join("settings.json")).unwrap();
    host(Default::default())
        .load_file(&freeswitch(), &settings)
        .await
        .unwrap()
}

fn batch(fixtures: &[Fixture]) -> Batch {
    let mut batch = Batch::default();
    for fixture in fixtures {
        batch.push(&fixture.payload, fixture.received_at).unwrap();
    }
    batch
}

fn admitted(answer: &Admitted) -> Value {
    match answer {
        Admitted::Yes(admission) => {
            json!({"admitted": {"key": admission.key, "source": admission.source}})
        }
        Admitted::No(violation) => json!({"refused": json::violation(violation)}),
        Admitted::Fault(fault) => panic!("{fault:?}"),
    }
}

/// The answers in the order of the records.
fn normalized(normalizer: &Normalizer, outcome: &Normalized, records: usize) -> Vec<Value> {
    assert!(outcome.faults.is_empty(), "{:?}", outcome.faults);
    let mut answers = vec![Value::Null; records];
    for part in &outcome.parts {
        for (index, row) in part.rows.iter().enumerate() {
            let row_json = json::row(&normalizer.manifest().columns, part, index);
            answers[*row as usize] = json!({ "row": row_json });
        }
    }
    for rejection in &outcome.rejections {
        answers[rejection.row as usize] = json!({"rejected": json::rejection(rejection)});
    }
    answers
}

async fn answers(normalizer: &Normalizer, fixtures: &[Fixture]) -> Vec<Value> {
    let admit = normalizer.admit(batch(fixtures)).await.unwrap();
    let outcome = normalizer.normalize(batch(fixtures)).await.unwrap();
    let normalize = normalized(normalizer, &outcome, fixtures.len());
    fixtures
        .iter()
        .zip(admit.iter().zip(normalize))
        .map(|(fixture, (admit, normalize))| {
            json!({
                "received_at": fixture.received_at,
                "admit": admitted(admit),
                "normalize": normalize,
            })
        })
        .collect()
}

fn compare(fixtures: &[Fixture], found: &[Value]) {
    assert_eq!(fixtures.len(), found.len());
    for (fixture, found) in fixtures.iter().zip(found) {
        assert_eq!(
            *found, fixture.expected,
            "{}: found {found:#}",
            fixture.name
        );
    }
}

#[tokio::test]
async fn every_fixture_becomes_what_it_says_in_any_company_and_order() {
    let normalizer = normalizer().await;
    let mut fixtures = fixtures(&folder());
    compare(&fixtures, &answers(&normalizer, &fixtures).await);
    for alone in fixtures.chunks(1) {
        compare(alone, &answers(&normalizer, alone).await);
    }
    fixtures.reverse();
    compare(&fixtures, &answers(&normalizer, &fixtures).await);
}

#[tokio::test]
async fn settings_that_contradict_themselves_are_refused_at_the_load() {
    for (settings, part) in [
        (r#"{"sources":[{"vendor_id":"x"}]}"#, "neither a `switch`"),
        (r#"{"extension":{}}"#, "unknown field `extension`"),
        (r#"{"default_region":"UK"}"#, "the United Kingdom is GB"),
    ] {
        let refused = host(Default::default())
            .load_file(&freeswitch(), settings)
            .await
            .expect_err(settings);
        let said = with_causes(&refused);
        assert!(said.contains(part), "{settings}: {said}");
    }
}

/// An error with its causes.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
