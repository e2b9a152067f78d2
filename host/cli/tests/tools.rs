//! The command line on good and bad input: one sentence, exit nonzero, nothing
//! started.

mod common;

use common::{normalizer, settings};
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Output, Stdio};

fn cdr(args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_cdr"))
        .args(args)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that refuses its arguments may be gone before it reads.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn eval(options: &[&str], input: &[u8]) -> (Vec<Value>, Output) {
    let file = normalizer().display().to_string();
    let args = [&["plugin", "eval", &file], options].concat();
    let output = cdr(&args, input);
    let answers = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    (answers, output)
}

fn refused(args: &[&str], words: &[&str]) {
    let output = cdr(args, b"");
    assert!(!output.status.success(), "{args:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    for word in words {
        assert!(said.contains(word), "{args:?}: {word:?} is not in: {said}");
    }
    assert!(output.stdout.is_empty(), "{args:?}");
}

const GOOD: &str = r#"{"raw_id":"r-1","vendor_id":"albion-telecom","service_type":"SMS","radio_access_type":"WB-E-UTRAN(LEO)","cell_id":"c","caller_num":"020 7946 0123","session_start_time":1700000000123,"ip_address":"192.0.2.10"}"#;

#[test]
fn eval_answers_each_line_in_order() {
    let settings = settings().display().to_string();
    let input = format!("{GOOD}\n{{\"raw_id\":\"r-2\"}}\n\n{GOOD}");
    let (answers, output) = eval(
        &["--settings", &settings, "--received-at", "1700086400000"],
        input.as_bytes(),
    );
    assert!(output.status.success());
    assert_eq!(answers.len(), 4);
    let row = &answers[0]["row"];
    for (column, value) in [
        ("service_type", Value::from("sms")),
        ("radio_access_type", Value::from("EUTRAN")),
        ("rat_orbit", Value::from("LEO")),
        ("msisdn", Value::from("+442079460123")),
        ("msisdn_valid", Value::from(true)),
        ("session_start_time", Value::from("2023-11-14T22:13:20Z")),
        ("session_end_time", Value::Null),
        ("ip_address", Value::from("192.0.2.10")),
        ("duration_s", Value::from(0)),
    ] {
        assert_eq!(row[column], value, "{column}");
    }
    assert_eq!(answers[1]["rejected"]["reason"], "missing_required_field");
    assert_eq!(answers[1]["rejected"]["field"], "vendor_id");
    assert_eq!(answers[2]["rejected"]["reason"], "malformed_json");
    assert_eq!(answers[3], answers[0]);
}

#[test]
fn eval_asks_the_api_question_and_reads_hexadecimal() {
    let hex: String = GOOD.bytes().map(|byte| format!("{byte:02x}")).collect();
    let (answers, output) = eval(&["--admit", "--hex"], format!("{hex}\nff00\n").as_bytes());
    assert!(output.status.success());
    assert_eq!(answers[0]["admitted"]["key"], "r-1");
    assert_eq!(answers[1]["refused"]["code"], "malformed_json");

    let (answers, output) = eval(&["--hex"], format!("{hex}\nno\n").as_bytes());
    assert!(!output.status.success());
    assert_eq!(
        answers.len(),
        1,
        "what comes before the bad line is answered"
    );
    assert!(String::from_utf8_lossy(&output.stderr).contains("line 2"));
}

#[test]
fn inspect_says_what_a_normalizer_is() {
    let file = normalizer().display().to_string();
    let output = cdr(&["plugin", "inspect", "--json", &file], b"");
    assert!(output.status.success());
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["name"], "cdr-normalizer");
    assert_eq!(said["version"], "1.0.0");
    assert_eq!(said["columns"].as_array().unwrap().len(), 22);
    assert_eq!(said["size"], std::fs::metadata(&file).unwrap().len());
    assert_eq!(said["sha256"].as_str().unwrap().len(), 64);
    let imports = said["imports"].as_array().unwrap();
    assert!(
        imports
            .iter()
            .all(|import| !import.as_str().unwrap().contains("sockets"))
    );
}

#[test]
fn files_that_are_no_normalizers_are_refused_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    let whole = std::fs::read(normalizer()).unwrap();
    let missing = folder.path().join("missing.wasm").display().to_string();
    let data = folder.path().join("data").display().to_string();
    for (file, words) in [
        (missing, &["missing.wasm", "can't read"][..]),
        (write("empty.wasm", b""), &["empty.wasm", "is empty"]),
        (
            write("text.wasm", b"hello"),
            &["text.wasm", "not WebAssembly"],
        ),
        (
            write("module.wasm", b"\0asm\x01\0\0\0"),
            &["module.wasm", "core WebAssembly module", "wasm32-wasip2"],
        ),
        (
            write("truncated.wasm", &whole[..whole.len() / 2]),
            &["truncated.wasm", "damaged or truncated"],
        ),
    ] {
        refused(&["plugin", "inspect", &file], words);
        refused(&["api", "--normalizer", &file], words);
        refused(&["worker", "--normalizer", &file], words);
        refused(&["provision", "--normalizer", &file], words);
        refused(&["up", "--data", &data, "--normalizer", &file], words);
        assert!(!folder.path().join("data").exists(), "nothing was started");
    }
}

#[test]
fn what_is_not_there_is_named_with_its_address() {
    let file = normalizer().display().to_string();
    let nowhere = [
        "--clickhouse-url",
        "http://127.0.0.1:1",
        "--kafka-bootstrap-servers",
        "127.0.0.1:1",
    ];
    let args = [
        &[
            "provision",
            "--normalizer",
            &file,
            "--provision-timeout-seconds",
            "2",
        ],
        &nowhere[..],
    ]
    .concat();
    refused(&args, &["127.0.0.1:1"]);

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refused(
        &["api", "--normalizer", &file, "--api-listen", &address],
        &[&address, "in use"],
    );
    refused(
        &["worker", "--normalizer", &file, "--worker-listen", &address],
        &[&address, "in use"],
    );
}

#[test]
fn help_shows_settings_with_variables_and_defaults() {
    for (command, words) in [
        (
            "api",
            &[
                "API_MAX_BODY_BYTES",
                "65536",
                "KAFKA_BOOTSTRAP_SERVERS",
                "NORMALIZER",
            ][..],
        ),
        (
            "worker",
            &[
                "BATCH_SIZE",
                "1000",
                "CH_RETRY_MAX_ATTEMPTS",
                "CLICKHOUSE_URL",
            ],
        ),
        ("up", &["CDR_DATA", "cdr-data"]),
    ] {
        let output = cdr(&[command, "--help"], b"");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        for word in words {
            assert!(said.contains(word), "{command}: {word}");
        }
    }
}

/// Both names and both values, and nothing was started.
#[test]
fn settings_that_contradict_each_other_are_refused_at_the_start() {
    let normalizer = normalizer().display().to_string();
    let data = tempfile::tempdir().unwrap();
    let spool = data.path().join("spool").display().to_string();
    let worker = |more: &[&str], words: &[&str]| {
        let common = [
            "worker",
            "--normalizer",
            &normalizer,
            "--worker-spool-dir",
            &spool,
        ];
        let output = cdr(&[&common, more].concat(), b"");
        assert!(!output.status.success(), "{more:?}");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        for word in words {
            assert!(said.contains(word), "{more:?}: {word:?} is not in: {said}");
        }
    };
    worker(
        &["--worker-shutdown-timeout-seconds", "20"],
        &[
            "WORKER_SHUTDOWN_TIMEOUT_SECONDS",
            "20s",
            "CLICKHOUSE_TIMEOUT_SECONDS",
            "30s",
        ],
    );
    worker(
        &["--kafka-dlq-topic", "same", "--kafka-raw-topic", "same"],
        &["KAFKA_RAW_TOPIC", "KAFKA_DLQ_TOPIC", "same"],
    );
    worker(
        &["--kafka-properties", "client.rack=r1;hunter2"],
        &["KAFKA_PROPERTIES", "entry 2 of 2"],
    );
}
