//! Fixtures: read from a folder, checked against a built component, blessed.

mod common;

use cdr_plugin_host::Normalizer;
use cdr_plugin_host::fixtures::{BlessError, Fixtures};
use common::{host, load_hostile, reference};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

struct Folder(tempfile::TempDir);

impl Folder {
    /// A folder with these files.
    fn with(files: &[(&str, &str)]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for (name, content) in files {
            folder.put(name, content);
        }
        folder
    }
    fn path(&self) -> &Path {
        self.0.path()
    }
    fn put(&self, name: &str, content: &str) {
        std::fs::write(self.path().join(name), content).unwrap();
    }
    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).unwrap()
    }
}

/// What the hostile guest makes of a payload that it has no special answer to.
fn echo(payload: &str) -> String {
    json!({
        "received_at": 7,
        "admit": {"admitted": {"key": payload, "source": null}},
        "normalize": {"row": {"text": payload, "calls": 1}},
    })
    .to_string()
}

fn payloads(fixtures: &Fixtures) -> Vec<&[u8]> {
    (0..fixtures.len())
        .map(|index| fixtures.batch().payload(index))
        .collect()
}

#[test]
fn payloads_are_the_bytes_of_their_files() {
    let folder = Folder::with(&[
        ("a.in.json", "{}\n\n"),
        ("b.in.json", "{}\r\n"),
        ("c.in.json", "{}"),
        ("d.in", "no JSON\n"),
        ("e.in.bin", "\0\n"),
        ("README.md", "for people"),
        (".swp", "an editor's"),
    ]);
    let fixtures = Fixtures::read_unblessed(folder.path()).unwrap();
    let expected: [&[u8]; 5] = [b"{}\n", b"{}", b"{}", b"no JSON\n", b"\0\n"];
    assert_eq!(payloads(&fixtures), expected);
    let names: Vec<_> = fixtures.iter().map(|fixture| &fixture.name).collect();
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
    assert_eq!(fixtures.settings(), "{}");
}

#[test]
fn a_fixture_says_when_it_was_received_or_the_folder_does() {
    let answer = r#"{"admit": {}, "normalize": {}}"#;
    let received = |folder: &Folder| -> Vec<i64> {
        let fixtures = Fixtures::read_unblessed(folder.path()).unwrap();
        fixtures.iter().map(|fixture| fixture.received_at).collect()
    };
    let folder = Folder::with(&[
        ("a.in", ""),
        ("b.in", ""),
        ("b.out.json", answer),
        ("c.in", ""),
        (
            "c.out.json",
            r#"{"received_at": 5, "admit": {}, "normalize": {}}"#,
        ),
        ("settings.json", r#"{"region": "GB"}"#),
    ]);
    assert_eq!(received(&folder), [1_700_086_400_000, 1_700_086_400_000, 5]);
    folder.put("defaults.json", r#"{"received_at": 9}"#);
    assert_eq!(received(&folder), [9, 9, 5]);
    let fixtures = Fixtures::read_unblessed(folder.path()).unwrap();
    assert_eq!(fixtures.settings(), r#"{"region": "GB"}"#);
}

#[test]
fn what_is_wrong_with_a_folder_is_said_with_its_path() {
    let answer = echo("");
    for (files, words) in [
        (&[][..], &["no fixtures", "NAME.in.json"][..]),
        (&[("README.md", "")], &["no fixtures"]),
        (
            &[("a.in.json", "{}")],
            &["a.in.json", "a.out.json is not there", "--bless"],
        ),
        (&[("a.out.json", &answer)], &["a.out.json has no payload"]),
        (
            &[("a.in.json", "{}"), ("a.in", "")],
            &["a.in ", "a.in.json", "another name"],
        ),
        (&[("a.in.jsn", "{}")], &["a.in.jsn is no part of a fixture"]),
        (
            &[(".out.json", ""), ("a.json", "{}")],
            &["a.json is no part"],
        ),
        (
            &[("a.in", ""), ("a.out.json", "{\"admit\": {}")],
            &["a.out.json", "line 1"],
        ),
        (
            &[
                ("a.in", ""),
                (
                    "a.out.json",
                    r#"{"admit": {}, "normalize": {}, "recieved_at": 1}"#,
                ),
            ],
            &["a.out.json", "recieved_at", "received_at"],
        ),
        (
            &[("a.in", ""), ("settings.json", "{")],
            &["settings.json", "settings"],
        ),
        (
            &[("a.in", ""), ("defaults.json", "{}")],
            &["defaults.json", "received_at"],
        ),
    ] {
        let folder = Folder::with(files);
        let said = Fixtures::read(folder.path()).unwrap_err().to_string();
        for word in words {
            assert!(said.contains(word), "{word:?} is not in: {said}");
        }
        assert!(
            said.contains(&folder.path().display().to_string()),
            "{said}"
        );
    }
    let missing = Fixtures::read(Path::new("no/such/folder")).unwrap_err();
    assert!(missing.to_string().contains("no/such/folder"));
}

#[tokio::test]
async fn what_differs_is_shown_as_a_diff_and_only_that() {
    let folder = Folder::with(&[
        ("good.in", "good"),
        ("good.out.json", &echo("good")),
        ("other.in", "came"),
        ("other.out.json", &echo("expected")),
        ("poison.in", "trap"),
        ("poison.out.json", &echo("trap")),
    ]);
    let fixtures = Fixtures::read(folder.path()).unwrap();
    let mismatches = fixtures.check(&load_hostile().await).await.unwrap();
    let names: Vec<_> = mismatches.iter().map(|mismatch| &mismatch.name).collect();
    assert_eq!(names, ["other", "poison"]);

    let shown = mismatches[0].to_string();
    assert!(shown.starts_with(&folder.path().join("other.out.json").display().to_string()));
    for line in ["-      \"text\": \"expected\"", "+      \"text\": \"came\""] {
        assert!(shown.contains(line), "{line} is not in:\n{shown}");
    }
    assert!(mismatches[1].diff.contains("\"kind\": \"trap\""), "{shown}");
}

#[tokio::test]
async fn blessing_writes_what_is_missing_or_different_and_says_it() {
    let untouched = echo("good");
    let folder = Folder::with(&[
        ("good.in", "good"),
        ("good.out.json", &untouched),
        ("new.in", "new"),
        ("other.in", "came"),
        ("other.out.json", &echo("expected")),
    ]);
    let normalizer = load_hostile().await;
    let fixtures = Fixtures::read_unblessed(folder.path()).unwrap();
    let blessed = fixtures.bless(&normalizer).await.unwrap();
    let said: Vec<_> = blessed
        .iter()
        .map(|one| (one.file.file_name().unwrap().to_str().unwrap(), one.is_new))
        .collect();
    assert_eq!(said, [("new.out.json", true), ("other.out.json", false)]);
    assert!(blessed[0].diff.contains("+      \"text\": \"new\""));
    assert_eq!(folder.text("good.out.json"), untouched);

    let written: Value = serde_json::from_str(&folder.text("other.out.json")).unwrap();
    let mut expected: Value = serde_json::from_str(&echo("came")).unwrap();
    assert_eq!(written, expected);
    expected["received_at"] = 1_700_086_400_000_i64.into();
    expected["admit"]["admitted"]["key"] = "new".into();
    expected["normalize"]["row"]["text"] = "new".into();
    let written: Value = serde_json::from_str(&folder.text("new.out.json")).unwrap();
    assert_eq!(written, expected);

    let fixtures = Fixtures::read(folder.path()).unwrap();
    assert_eq!(fixtures.check(&normalizer).await.unwrap(), []);
    assert_eq!(fixtures.bless(&normalizer).await.unwrap(), []);
}

#[tokio::test]
async fn a_failure_of_the_normalizer_is_never_blessed() {
    let folder = Folder::with(&[("a.in", "new"), ("b.in", "trap")]);
    let fixtures = Fixtures::read_unblessed(folder.path()).unwrap();
    let error = fixtures.bless(&load_hostile().await).await.unwrap_err();
    assert!(matches!(error, BlessError::Fault { .. }));
    let said = error.to_string();
    assert!(
        said.contains("b.out.json") && said.contains("trap"),
        "{said}"
    );
    assert!(!folder.path().join("a.out.json").exists());
}

fn normalizer_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../plugins/cdr-normalizer")
}

async fn load_reference(fixtures: &Fixtures) -> Normalizer {
    host(Default::default())
        .load_file(&reference(), fixtures.settings())
        .await
        .unwrap()
}

#[tokio::test]
async fn the_reference_normalizer_answers_its_fixtures() {
    let fixtures = Fixtures::read(&normalizer_folder().join("fixtures")).unwrap();
    let mismatches = fixtures
        .check(&load_reference(&fixtures).await)
        .await
        .unwrap();
    let all: Vec<String> = mismatches.iter().map(ToString::to_string).collect();
    assert!(all.is_empty(), "{}", all.join("\n"));
}

/// What was blessed is not only what came, but what the cases ask for.
#[test]
fn the_fixtures_of_the_reference_normalizer_say_what_its_cases_say() {
    let fixtures = Fixtures::read(&normalizer_folder().join("fixtures")).unwrap();
    let mut cases = Vec::new();
    for area in ["cdr_id", "epoch", "ip", "json", "phone", "rat"] {
        let path = normalizer_folder().join(format!("tests/cases/{area}.jsonl"));
        let text = std::fs::read_to_string(path).unwrap();
        cases.extend(
            text.lines()
                .map(|line| serde_json::from_str::<Value>(line).unwrap()),
        );
    }
    let mut compared = 0;
    for fixture in fixtures.iter() {
        let Some(case) = cases
            .iter()
            .find(|case| case["id"] == fixture.name.as_str())
        else {
            continue;
        };
        let answer = &fixture.expected.as_ref().unwrap().normalize;
        let expect = case["expect"].as_object().unwrap();
        for (what, expected) in expect {
            let found = match what.as_str() {
                "error" => &answer["rejected"]["reason"],
                "ok" => {
                    assert!(answer["row"].is_object(), "{}", fixture.name);
                    continue;
                }
                "e164" => &answer["row"]["msisdn"],
                "valid" => &answer["row"]["msisdn_valid"],
                "datetime_utc" => {
                    let time = expected.as_str().unwrap().replace(' ', "T");
                    assert_eq!(answer["row"]["session_start_time"], format!("{time}Z"));
                    continue;
                }
                column => &answer["row"][column],
            };
            assert_eq!(found, expected, "{}: {what}", fixture.name);
        }
        compared += 1;
    }
    assert!(
        compared >= 20,
        "only {compared} fixtures are called like cases"
    );
}
