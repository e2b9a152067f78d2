//! What a plugin author does: a new crate, its tests, a fixture that breaks, a
//! figure that grows, faults that are found. Each crate has a name of its own:
//! they share a target folder, so that the SDK is compiled once.

mod common;

use common::normalizer;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What a command said, and whether it succeeded.
#[derive(Debug)]
struct Said {
    success: bool,
    out: String,
    err: String,
}

impl Said {
    fn of(command: &mut Command) -> Self {
        let output = command.output().unwrap();
        Self {
            success: output.status.success(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    #[track_caller]
    fn passed(self, words: &[&str]) -> Self {
        assert!(self.success, "{}\n{}", self.out, self.err);
        for word in words {
            assert!(self.out.contains(word), "{word:?} is not in:\n{}", self.out);
        }
        self
    }

    /// The words are in what it wrote; the summing up is the last line.
    #[track_caller]
    fn failed(self, last: &str, words: &[&str]) -> Self {
        assert!(!self.success, "{}", self.out);
        let end = self.err.lines().last().unwrap_or_default();
        assert!(
            end.contains(last),
            "{last:?} is not in: {end}\n{}",
            self.out
        );
        for word in words {
            assert!(self.out.contains(word), "{word:?} is not in:\n{}", self.out);
        }
        self
    }
}

/// Where all of them are built: the SDK is compiled once.
fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("authors")
}

fn cdr(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cdr"));
    command
        .args(args)
        .env("CARGO_TARGET_DIR", target())
        .env(
            "NORMALIZER_CACHE_DIR",
            Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled"),
        )
        .env("RUST_BACKTRACE", "0");
    command
}

/// The crate of a new normalizer.
struct Author {
    folder: tempfile::TempDir,
    name: &'static str,
}

impl Author {
    fn new(name: &'static str) -> Self {
        let author = Self {
            folder: tempfile::tempdir().unwrap(),
            name,
        };
        Said::of(cdr(&["plugin", "new", name]).current_dir(author.folder.path()))
            .passed(&["cdr plugin test"]);
        // The versions that are on this machine already, because the SDK was
        // built with them here; cargo drops what the crate does not use.
        std::fs::copy(root().join("Cargo.lock"), author.path("Cargo.lock")).unwrap();
        author
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(self.name).join(file)
    }

    /// `cdr plugin test` on the crate, without the network.
    fn test(&self, options: &[&str]) -> Said {
        let args = [
            &["plugin", "test", self.name],
            options,
            &["--", "--offline"],
        ]
        .concat();
        Said::of(cdr(&args).current_dir(self.folder.path()))
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.path(file)).unwrap()
    }

    #[track_caller]
    fn edit(&self, file: &str, from: &str, to: &str) {
        let text = self.read(file);
        assert!(text.contains(from), "{file} has no {from:?}");
        std::fs::write(self.path(file), text.replacen(from, to, 1)).unwrap();
    }
}

#[test]
fn from_new_to_passing_and_what_breaks_is_told_and_blessed() {
    let author = Author::new("calls-life");
    author.test(&[]).passed(&[
        "calls-life 0.1.0",
        "8 of 8 as expected",
        "the same answers a second time, in reverse",
        "no fault, admit and normalize agree (2000 generated payloads",
        "none are accepted yet",
        "calls-life 0.1.0 passed",
    ]);

    // A fixture that expects something else.
    let answer = "fixtures/voice.out.json";
    let good = author.read(answer);
    author.edit(answer, "\"duration_s\": 42", "\"duration_s\": 43");
    author.test(&[]).failed(
        "1 of 8 fixtures differ",
        &[
            answer,
            "-      \"duration_s\": 43",
            "+      \"duration_s\": 42",
            "7 of 8",
        ],
    );
    assert_ne!(author.read(answer), good, "nothing is blessed unasked");
    author.test(&["--bless"]).passed(&[
        "voice.out.json (changed)",
        "+      \"duration_s\": 42",
        "8 of 8",
    ]);
    assert_eq!(author.read(answer), good);

    // A new payload without an answer.
    let payload = author
        .read("fixtures/sms.in.json")
        .replace("c-0002", "c-0009");
    std::fs::write(author.path("fixtures/one-more.in.json"), payload).unwrap();
    author
        .test(&[])
        .failed("one-more.out.json is not there", &[]);
    author
        .test(&["--bless"])
        .passed(&["one-more.out.json (new)", "9 of 9"]);

    // Figures: accepted, then outgrown.
    author
        .test(&["--accept"])
        .passed(&["figures.json is written"]);
    author.test(&[]).passed(&["as accepted"]);
    let figures: Value = serde_json::from_str(&author.read("figures.json")).unwrap();
    let now = figures["instructions_per_record"]["normalize"]
        .as_u64()
        .unwrap();
    let accepted = now * 10 / 12;
    author.edit(
        "figures.json",
        &format!("\"normalize\": {now}"),
        &format!("\"normalize\": {accepted}"),
    );
    author.test(&[]).failed(
        "figures grew by more than 10 %",
        &["GREW         normalize, instructions a record"],
    );
    author.test(&["--tolerance", "30"]).passed(&[]);
    author
        .test(&["--accept"])
        .passed(&["figures.json is written"]);
    assert_eq!(
        serde_json::from_str::<Value>(&author.read("figures.json")).unwrap(),
        figures
    );

    let said = author.test(&["--json"]).passed(&[]);
    let report: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(report["passed"], true);
    assert_eq!(report["fixtures"]["total"], 9);
    assert_eq!(report["figures"]["now"], figures);
    author.edit(answer, "\"duration_s\": 42", "\"duration_s\": 44");
    let said = author
        .test(&["--json"])
        .failed("1 of 9 fixtures differ", &[]);
    let report: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(report["passed"], false);
    assert_eq!(report["fixtures"]["mismatches"][0]["name"], "voice");
}

#[test]
fn the_natively_run_tests_of_a_new_crate_pass() {
    let author = Author::new("calls-native");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["test", "--offline"])
        .current_dir(author.path(""))
        .env("CARGO_TARGET_DIR", target());
    Said::of(&mut cargo).passed(&["4 passed"]);
}

/// Each fault is one that its author would not have thought of.
#[test]
fn faults_that_no_fixture_shows_are_found_and_their_payloads_made_small() {
    let author = Author::new("calls-faulty");
    // A letter of two bytes in front of an identifier.
    author.edit(
        "src/lib.rs",
        "let radio_access_type = radio_access_type(call.access)?;",
        "let radio_access_type = radio_access_type(call.access)?;\n        \
         assert!(!call.cell[..1].is_empty());",
    );
    // The API is stricter about what is malformed than the worker.
    author.edit(
        "src/lib.rs",
        "let call = Call::read(record)?;",
        "let call = Call::read(record)?;\n        \
         if call.start < 0 { return Err(Malformed::new(\"no time runs backwards\").into()); }",
    );
    let said = author.test(&["--seed", "7"]).failed(
        "payloads break the contract",
        &[
            "8 of 8 as expected",
            "the same answers",
            "normalize fails: trap: panicked at src/lib.rs",
            "admit refuses it as malformed_json, normalize does not",
            "broken in 2 ways",
            "--seed 7",
            "not taken, because the normalizer failed",
        ],
    );
    let again = author.test(&["--seed", "7"]);
    assert_eq!(again.out, said.out, "a seed gives the same payloads again");

    // An answer that depends on its place in the batch.
    author.edit("src/lib.rs", "assert!(!call.cell[..1].is_empty());", "");
    author.edit("src/lib.rs", "if call.start < 0", "if false");
    author.edit(
        "src/lib.rs",
        "            duration_s,\n",
        "            duration_s: duration_s + {\n                \
         static SEEN: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);\n                \
         SEEN.fetch_add(1, std::sync::atomic::Ordering::Relaxed)\n            },\n",
    );
    author.test(&[]).failed(
        "answers depend on what else is in the batch",
        &["DEPENDS      fixture", "in reverse", "alone"],
    );

    // What does not build, and what builds to something else.
    author.edit("Cargo.toml", "[\"cdylib\", \"rlib\"]", "[\"rlib\"]");
    author.test(&[]).failed("crate-type = [\"cdylib\"]", &[]);
    author.edit(
        "src/lib.rs",
        "pub struct CallRow {",
        "pub struct CallRow {{",
    );
    author.test(&[]).failed("does not build", &[]);
}

#[test]
fn new_overwrites_nothing_and_refuses_names_that_can_not_be() {
    let folder = tempfile::tempdir().unwrap();
    let new = |args: &[&str]| {
        let args = [&["plugin", "new"], args].concat();
        Said::of(cdr(&args).current_dir(folder.path()))
    };
    std::fs::create_dir(folder.path().join("calls")).unwrap();
    new(&["calls"]).failed("calls is there already", &[]);
    assert_eq!(folder.path().join("calls").read_dir().unwrap().count(), 0);
    new(&["calls", "--dir", "elsewhere/mine"]).passed(&["elsewhere/mine"]);
    let manifest =
        std::fs::read_to_string(folder.path().join("elsewhere/mine/Cargo.toml")).unwrap();
    assert!(manifest.contains("name = \"calls\""));
    for (name, word) in [
        ("Acme Calls", "lower-case letters"),
        ("4g", "begin with a letter"),
        ("serde", "taken"),
    ] {
        new(&[name]).failed(word, &[]);
        assert!(!folder.path().join(name).exists());
    }
}

#[test]
fn what_is_no_normalizer_is_said_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let file = normalizer().display().to_string();
    for (args, word) in [
        (&["test", "nowhere"][..], "nowhere is not there"),
        (&["test", "."], "has no Cargo.toml"),
        (&["bench", "."], "has no Cargo.toml"),
        (&["test", &file], "--fixtures DIR"),
        (&["test", &file, "--fixtures", "none"], "none"),
    ] {
        let args = [&["plugin"], args].concat();
        Said::of(cdr(&args).current_dir(folder.path())).failed(word, &[]);
    }
}

#[test]
fn a_missing_target_is_named_with_the_command_that_adds_it() {
    let author = Author::new("calls-untargeted");
    let rustc = author.path("rustc");
    std::fs::write(&rustc, "#!/bin/sh\necho /no/such/folder\n").unwrap();
    std::fs::set_permissions(&rustc, PermissionsExt::from_mode(0o755)).unwrap();
    Said::of(
        cdr(&["plugin", "test", author.name])
            .current_dir(author.folder.path())
            .env("RUSTC", &rustc),
    )
    .failed("rustup target add wasm32-wasip2", &[]);
}

fn reference(command: &str, options: &[&str]) -> Said {
    let fixtures = root()
        .join("plugins/cdr-normalizer/fixtures")
        .display()
        .to_string();
    let file = normalizer().display().to_string();
    let args = [
        &["plugin", command, &file, "--fixtures", &fixtures],
        options,
    ]
    .concat();
    Said::of(&mut cdr(&args))
}

/// The .wasm that ships, against what was accepted for it.
#[test]
fn the_reference_normalizer_passes() {
    let figures = root().join("plugins/cdr-normalizer/figures.json");
    reference("test", &["--figures", &figures.display().to_string()]).passed(&[
        "as expected",
        "admit and normalize agree",
        "passed",
    ]);
}

#[test]
fn bench_measures_batches_of_each_size() {
    let said = reference("bench", &["--rounds", "1", "--json"]).passed(&[]);
    let report: Value = serde_json::from_str(&said.out).unwrap();
    let sizes: Vec<_> = report["batches"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| {
            assert!(line["normalize_us_per_record"]["median"].as_f64().unwrap() > 0.0);
            assert!(line["admit_us_per_record"]["median"].as_f64().unwrap() > 0.0);
            line["batch"].as_u64().unwrap()
        })
        .collect();
    assert_eq!(sizes, [1, 100, 1000]);
    assert!(report["instance_us"]["median"].as_f64().unwrap() > 0.0);
    reference("bench", &["--rounds", "1"]).passed(&["records/s", "1000"]);
}
