//! What goes wrong around versions: records that one fails on, candidates that hang,
//! files that nobody signed, an `active.json` that is none.

mod common;

use cdr_kafka::headers;
use common::judge::{Subject, post_all};
use common::process::PATIENCE;
use common::records::{Sample, goods};
use common::registry::{bed_with, plugin};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The stats of a host, once they are as wanted.
async fn stats_when(subject: &Subject, url: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let started = Instant::now();
    loop {
        let (_, body) = subject.get(url).await;
        let stats: Value = serde_json::from_str(&body).unwrap();
        if wanted(&stats) {
            return stats;
        }
        assert!(started.elapsed() < PATIENCE, "{url}: {stats}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A good record that says more.
fn saying(sample: &Sample, word: &str) -> Vec<u8> {
    let mut record: Value = serde_json::from_slice(&sample.payload).unwrap();
    record["note"] = json!(word);
    record.to_string().into_bytes()
}

/// One record that the version panics over costs that record: it is a dead letter that
/// says why, those around it are rows, and the next batch is served.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_a_version_fails_on_is_a_dead_letter_with_the_cause() {
    let (bed, registry) = bed_with("1.0.0 poison").await;
    let worker = bed.worker(&[]);
    let api = bed.api(&[]);
    let subject = bed.subject(&api.url, &worker.url);
    let (mut samples, mut rows) = goods(0, 50);
    samples[20].payload = saying(&samples[20], "poison");
    let poison = samples[20].payload.clone();
    let poisoned = rows.remove(20);
    assert_eq!(post_all(&api.url, &samples).await, 50);
    subject.settled(50).await;
    assert_eq!(subject.rows().await, rows);
    assert!(!rows.contains(&poisoned));
    assert_eq!(
        subject.dead_letters().await,
        [("normalization_error".to_owned(), poison)]
    );
    let letters = cdr_kafka::admin::read_topic(&subject.kafka, &subject.names.dlq, PATIENCE)
        .await
        .unwrap();
    let detail = letters[0].header(headers::DETAIL).unwrap();
    for words in ["panicked", "swallowed poison"] {
        assert!(detail.contains(words), "{detail}");
    }

    // What a mended version would make of it: the dead letters themselves say.
    registry.succeeds(&["add", &registry.file("1.0.1")]);
    let settings = common::settings().display().to_string();
    let output = plugin(
        &[
            "diff",
            "cdr-versions@1.0.0",
            "cdr-versions@1.0.1",
            "--settings",
            &settings,
            "--from-dlq",
            "--json",
        ],
        &[
            ("NORMALIZER_DIR", registry.dir.display().to_string()),
            ("KAFKA_BOOTSTRAP_SERVERS", bed.brokers().to_owned()),
            ("KAFKA_DLQ_TOPIC", subject.names.dlq.clone()),
        ],
    );
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let diff: Value = serde_json::from_slice(&output.stdout).expect(&said);
    assert_eq!(diff["kinds"], json!({"fault_gone": 1}), "{diff}");

    // The API's question: whoever posts it is told that it is not their fault.
    let (fast, _) = goods(50, 51);
    let client = common::http_client::HttpClient::new();
    let url = format!("{}/v1/cdrs", api.url);
    let (status, body) = client
        .post(&url, saying(&fast[0], "fast-poison").into())
        .await
        .unwrap();
    assert_eq!(status.as_u16(), 500);
    let body = String::from_utf8_lossy(&body).into_owned();
    assert!(body.contains("normalizer_fault"), "{body}");

    let (samples, more) = goods(60, 80);
    assert_eq!(post_all(&api.url, &samples).await, 20);
    subject.settled(70).await;
    assert_eq!(subject.rows().await, [rows, more].concat());
    worker.stop();
    api.stop();
}

/// A candidate that never comes to an end loses its batches; live ones do not wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_candidate_that_hangs_is_dropped_first() {
    let (bed, registry) = bed_with("1.0.0").await;
    registry.succeeds(&["add", &registry.file("2.0.0 hang")]);
    registry.succeeds(&["shadow", "cdr-versions@2.0.0", "--sample", "1"]);
    // An answer may take a minute, so that nothing ends the candidate's.
    let worker = bed.worker(&[
        ("NORMALIZER_CALL_TIMEOUT_MS", "60000"),
        ("BATCH_SIZE", "10"),
    ]);
    let api = bed.api(&[]);
    let subject = bed.subject(&api.url, &worker.url);
    let shadow_runs = |stats: &Value| stats["activation"]["shadow"]["running"] == true;
    subject.stats_when("the shadow runs", shadow_runs).await;
    let (samples, rows) = goods(0, 200);
    assert_eq!(post_all(&api.url, &samples).await, 200);
    subject.settled(200).await;
    assert_eq!(subject.rows().await, rows);
    let (_, metrics) = subject.get(&format!("{}/metrics", worker.url)).await;
    let dropped = metrics
        .lines()
        .find_map(|line| line.strip_prefix("cdr_worker_shadow_dropped_batches_total "))
        .unwrap();
    assert_ne!(dropped, "0");
    let compared = subject.worker_stats().await["shadow"].clone();
    assert!(compared.is_null(), "it has answered nothing: {compared}");
    api.stop();
    worker.stop();
}

/// With trusted keys, hosts run only what one of them signed, whoever wrote the
/// registry; also when they start.
#[tokio::test(flavor = "multi_thread")]
async fn hosts_with_trusted_keys_run_only_what_is_signed() {
    let (bed, registry) = bed_with("1.0.0").await;
    let keys = tempfile::tempdir().unwrap();
    let key = |name: &str| {
        let prefix = keys.path().join(name).display().to_string();
        let output = plugin(&["keygen", &prefix, "--no-password"], &[]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let (_, public) = said.split_once("NORMALIZER_TRUSTED_KEYS=").unwrap();
        (format!("{prefix}.key"), public.trim().to_owned())
    };
    let (release, public) = key("release");
    let (foreign, _) = key("foreign");
    let sign = |version: &str, key: &str| {
        let file = registry.dir.join(format!("cdr-versions@{version}.wasm"));
        let _ = std::fs::remove_file(file.with_extension("wasm.minisig"));
        registry.succeeds(&["sign", file.to_str().unwrap(), "--key", key]);
    };
    sign("1.0.0", &release);
    let trusting = [("NORMALIZER_TRUSTED_KEYS", public.as_str())];
    let worker = bed.worker(&trusting);
    let api = bed.api(&trusting);
    let subject = bed.subject(&api.url, &worker.url);
    let urls = [
        format!("{}/stats", api.url),
        format!("{}/internal/stats", worker.url),
    ];

    // Whoever can write to the folder has no keys, and needs none for this.
    registry.succeeds(&["activate", &registry.file("1.1.0")]);
    let refused = |stats: &Value, words: &str| {
        let refused = &stats["activation"]["refused"];
        refused["kind"] == "signature"
            && refused["message"].as_str().unwrap().contains(words)
            && stats["normalizer"]["version"] == "1.0.0"
    };
    for url in &urls {
        stats_when(&subject, url, |stats| refused(stats, "not signed")).await;
    }
    sign("1.1.0", &foreign);
    for url in &urls {
        stats_when(&subject, url, |stats| {
            refused(stats, "not by a trusted key")
        })
        .await;
    }
    worker.stop();
    let worker = bed.worker(&trusting);
    let subject = bed.subject(&api.url, &worker.url);
    let url = format!("{}/internal/stats", worker.url);
    stats_when(&subject, &url, |stats| {
        refused(stats, "not by a trusted key")
    })
    .await;

    // In the shadow it runs no more than anywhere else.
    registry.succeeds(&["rollback"]);
    registry.succeeds(&["shadow", "cdr-versions@1.1.0", "--sample", "1"]);
    stats_when(&subject, &url, |stats| {
        let shadow = &stats["activation"]["shadow"];
        shadow["running"] == false
            && shadow["refused"]
                .as_str()
                .is_some_and(|why| why.contains("not by a trusted key"))
    })
    .await;

    sign("1.1.0", &release);
    registry.succeeds(&["activate", "cdr-versions@1.1.0"]);
    for url in [&urls[0], &url] {
        let stats = stats_when(&subject, url, |stats| {
            stats["normalizer"]["version"] == "1.1.0"
        })
        .await;
        assert_eq!(stats["activation"]["signed_by"], public);
    }
    worker.stop();
    api.stop();
}

/// An `active.json` that is none stops no host, neither running nor starting, and one
/// command puts it right.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_active_json_is_put_right_by_a_rollback() {
    let (bed, registry) = bed_with("1.0.0").await;
    registry.succeeds(&["activate", &registry.file("1.1.0")]);
    registry.write_active(&json!({"active": "1.2.0"}));
    let worker = bed.worker(&[]);
    let api = bed.api(&[]);
    let subject = bed.subject(&api.url, &worker.url);
    let (samples, rows) = goods(0, 20);
    assert_eq!(post_all(&api.url, &samples).await, 20);
    subject.settled(20).await;
    assert_eq!(subject.rows().await, rows);
    let stats = subject.worker_stats().await;
    assert_eq!(stats["normalizer"]["version"], "1.1.0", "{stats}");
    assert_eq!(stats["activation"]["refused"]["kind"], "activation");

    let hosts = format!("{},{}", api.url, worker.url);
    let output = registry.plugin(&["status", "--host", &hosts]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.contains("REFUSED the active one (activation)"),
        "{said}"
    );
    assert!(registry.succeeds(&["list"]).contains("cdr-versions@1.1.0"));
    let said = registry.succeeds(&["rollback"]);
    assert!(said.contains("cdr-versions@1.1.0 is active"), "{said}");
    registry.succeeds(&["status", "--wait", "60", "--host", &hosts]);

    // By hand, without a word of what was before: back to what was activated last.
    let mut by_hand = registry.active();
    by_hand["revision"] = json!(77);
    by_hand["active"]["version"] = json!("9.9.9");
    by_hand.as_object_mut().unwrap().remove("previous");
    registry.write_active(&by_hand);
    registry.succeeds(&["rollback"]);
    assert_eq!(registry.active()["active"]["version"], "1.1.0");
    registry.succeeds(&["status", "--wait", "60", "--host", &hosts]);
    worker.stop();
    api.stop();
}
