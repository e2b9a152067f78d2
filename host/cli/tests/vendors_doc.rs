//! The examples of `docs/vendors.md`, run as they stand against an API host with
//! tokens on.

mod common;

use common::bed::Bed;
use common::process::Cdr;
use std::path::Path;
use std::process::Command;

/// The code under `<!-- run: NAME -->`.
fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/vendors.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, rest) = text
        .split_once(&format!("<!-- run: {name} -->\n```"))
        .unwrap_or_else(|| panic!("{name} is not there"));
    let (_, rest) = rest.split_once('\n').unwrap();
    rest.split_once("\n```").unwrap().0.to_owned()
}

/// Runs it and gives what it printed.
fn run(interpreter: &str, name: &str, url: &str, token: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    std::fs::write(&file, example(name)).unwrap();
    let output = Command::new(interpreter)
        .arg(&file)
        .env("CDR_URL", url)
        .env("CDR_TOKEN", token)
        .env("no_proxy", "*")
        .output()
        .unwrap_or_else(|error| panic!("{interpreter} does not start: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{name}: {}\n{said}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_for_vendors_do_what_they_say() {
    let bed = Bed::start().await;
    let file = bed.data.path().join("tokens");
    let tokens = [("API_TOKENS_FILE", file.display().to_string())];
    let mut new = Cdr::start(&["token", "new", "vend-a", "--expires", "30d"], &tokens);
    assert!(new.ended().success(), "{}", new.lines().join("\n"));
    let token = new
        .lines()
        .into_iter()
        .find(|line| line.starts_with("cdr_"))
        .expect("a token");
    let api = bed.api(&[("API_TOKENS_FILE", &tokens[0].1)]);
    let worker = bed.worker(&[("BATCH_FLUSH_INTERVAL_SECONDS", "0.2")]);
    let subject = bed.subject(&api.url, &worker.url);

    assert_eq!(
        run("bash", "one.sh", &api.url, &token),
        r#"{"status":"accepted","raw_id":"a1-000017"}"#
    );
    let many = run("bash", "many.sh", &api.url, &token);
    let results: Vec<_> = many.lines().collect();
    assert_eq!(results.len(), 3, "{many}");
    assert_eq!(results[2], r#"{"line":3,"status":202,"raw_id":"a1-103"}"#);
    let client = run("python3", "client.py", &api.url, &token);
    assert_eq!(
        client,
        "refused: missing_required_field caller_num\ndelivered\n"
    );
    let stats = subject.settled(1 + 3 + 99).await;
    assert_eq!(stats["inserted"], 103, "{stats}");
    assert_eq!(subject.dead_letters().await, []);

    // The token itself is kept nowhere.
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains(&token));
    let log = [api.stop(), worker.stop()].concat().join("\n");
    assert!(!log.contains(&token), "{log}");
}

/// The table of answers names every code, and none that is not there.
#[test]
fn every_code_of_the_table_is_one_of_the_host_s() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let table: Vec<String> = read("docs/vendors.md")
        .lines()
        .filter(|line| line.starts_with("| "))
        .filter_map(|line| line.split('|').nth(2).map(str::to_owned))
        .flat_map(|cell| {
            let words: Vec<_> = cell
                .split('`')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect();
            words
        })
        .filter(|word| *word != "error")
        .collect();
    let source = [
        read("host/api/src/answer.rs"),
        read("host/api/src/ports.rs"),
        read("host/telemetry/src/http/request.rs"),
    ]
    .concat();
    for code in &table {
        assert!(source.contains(&format!("\"{code}\"")), "{code} is no code");
    }
    for code in source
        .split("=> \"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .filter(|code| {
            code.contains('_') && code.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        })
        // Words of the log alone.
        .filter(|code| !["queue_full", "too_large"].contains(code))
    {
        assert!(
            table.iter().any(|word| word == code),
            "{code} is not in the table"
        );
    }
}
