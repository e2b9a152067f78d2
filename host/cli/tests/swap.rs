//! Versions of a normalizer on a running system: shipped, refused, rolled back,
//! without a restart, and without a record lost or doubled.

mod common;

use common::judge::{Subject, post_all};
use common::records::{Expected, goods};
use common::registry::bed_with;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Rows by the version that made them, and what they have in a column.
async fn by_version(subject: &Subject, column: &str) -> Vec<(String, String, u64)> {
    let sql = format!(
        "SELECT normalizer_version AS version, toString({column}) AS value, toUInt32(count()) AS n \
         FROM {} FINAL GROUP BY version, value ORDER BY version, value",
        subject.store.quoted_table()
    );
    let rows: Vec<Value> = subject.store.query_rows(&sql).await.unwrap();
    rows.iter()
        .map(|row| {
            let text = |name: &str| row[name].as_str().unwrap().to_owned();
            (text("version"), text("value"), row["n"].as_u64().unwrap())
        })
        .collect()
}

/// Vendors that post until they are told not to.
struct Vendors {
    stop: Arc<AtomicBool>,
    posting: tokio::task::JoinHandle<Vec<Expected>>,
}

impl Vendors {
    fn start(api: String) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let posting = tokio::spawn(async move {
            let mut all = Vec::new();
            while !told.load(Ordering::Relaxed) {
                let next = all.len() as u64;
                let (samples, rows) = goods(next, next + 50);
                // Every one of them gets its 202.
                assert_eq!(post_all(&api, &samples).await, 50);
                all.extend(rows);
            }
            all
        });
        Self { stop, posting }
    }

    async fn end(self) -> Vec<Expected> {
        self.stop.store(true, Ordering::Relaxed);
        self.posting.await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_with_a_new_column_takes_over_under_load_and_a_bad_one_is_rolled_back() {
    let (bed, registry) = bed_with("1.0.0").await;
    let worker = bed.worker(&[]);
    let api = bed.api(&[]);
    let subject = bed.subject(&api.url, &worker.url);
    let hosts = format!("{},{}", api.url, worker.url);
    let all_follow = ["status", "--wait", "60", "--host", &hosts];
    registry.succeeds(&all_follow);

    subject.keep_every_row().await;
    let vendors = Vendors::start(api.url.clone());
    subject
        .stats_when("rows of the first version", |stats| {
            stats["rows_inserted"].as_u64() > Some(100)
        })
        .await;
    let said = registry.succeeds(&[
        "activate",
        &registry.file("1.1.0 +roaming:category +hops:uint32?"),
    ]);
    assert!(
        said.contains("new columns: `roaming` category, `hops` nullable uint32"),
        "{said}"
    );
    registry.succeeds(&all_follow);
    let stats = subject.worker_stats().await;
    let so_far = stats["rows_inserted"].as_u64().unwrap();
    subject
        .stats_when("rows of the second version", |stats| {
            stats["rows_inserted"].as_u64() > Some(so_far + 100)
        })
        .await;
    let mut rows = vendors.end().await;
    rows.sort();
    subject.settled(rows.len() as u64).await;
    assert_eq!(subject.rows().await, rows, "none lost, none doubled");
    let physical = subject.physical_rows().await;
    assert_eq!(
        physical,
        rows.len() as u64,
        "nor any that merges would hide"
    );
    assert_eq!(subject.dead_letters().await, []);
    let found = by_version(&subject, "roaming").await;
    let [(old, none, before), (new, filled, after)] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!((old.as_str(), none.as_str()), ("1.0.0", ""));
    assert_eq!((new.as_str(), filled.as_str()), ("1.1.0", "1.1.0"));
    assert_eq!(before + after, rows.len() as u64);
    assert!(*before > 100 && *after > 100, "{found:?}");

    // A bad one: it passes every check, and rejects everything.
    registry.succeeds(&[
        "activate",
        &registry.file("1.2.0 +roaming:category +hops:uint32? reject"),
    ]);
    registry.succeeds(&all_follow);
    let posted = rows.len() as u64;
    let (samples, _) = goods(posted, posted + 10);
    assert_eq!(post_all(&api.url, &samples).await, 10);
    subject.settled(rows.len() as u64 + 10).await;
    assert_eq!(subject.dead_letters().await.len(), 10);
    let started = std::time::Instant::now();
    let said = registry.succeeds(&["rollback"]);
    assert!(
        said.contains("cdr-versions@1.1.0 is active: revision 4"),
        "{said}"
    );
    registry.succeeds(&all_follow);
    eprintln!("rolled back in {:.1?}", started.elapsed());
    let (samples, more) = goods(posted + 10, posted + 20);
    assert_eq!(post_all(&api.url, &samples).await, 10);
    rows.extend(more);
    rows.sort();
    subject.settled(rows.len() as u64 + 10).await;
    assert_eq!(subject.rows().await, rows);

    subject.everything_is_committed().await;
    let (_, metrics) = subject.get(&format!("{}/metrics", worker.url)).await;
    for line in [
        "cdr_worker_normalizer_swaps_total 3",
        "cdr_worker_normalizer_revision 4",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    assert!(
        metrics.contains("cdr_worker_normalizer_info{") && metrics.contains("version=\"1.1.0\""),
        "{metrics}"
    );
    let log = worker.stop().join("\n");
    for event in ["normalizer_swapped", "columns_added"] {
        assert!(log.contains(event), "{event}");
    }
    api.stop();
}

/// What can't serve is refused by each host in a sentence, the one before goes on,
/// and a host that starts meanwhile comes up with that one too.
#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_serve_is_refused_and_the_last_good_one_serves_also_after_a_restart() {
    let (bed, registry) = bed_with("1.0.0").await;
    let worker = bed.worker(&[]);
    let api = bed.api(&[]);
    let subject = bed.subject(&api.url, &worker.url);
    let good = registry.active();

    // The commands refuse it already…
    registry.fails(
        &["activate", &registry.file("1.1.0 -imei")],
        &["removed: `imei` text", "--drop-columns"],
    );
    registry.fails(
        &["activate", &registry.file("1.1.1 duration_s=text")],
        &["retyped: `duration_s` uint32, in the new one text"],
    );
    registry.fails(
        &["activate", &registry.file("1.1.2 -cell_id")],
        &["cell_id"],
    );
    registry.fails(
        &["activate", "cdr-versions@9.9.9"],
        &["is not in", "cdr-versions@1.0.0"],
    );
    registry.fails(
        &["activate", "Cargo.toml.wasm"],
        &["can't read the normalizer Cargo.toml.wasm"],
    );
    assert_eq!(registry.active(), good, "nothing was activated");

    // …and the hosts, where somebody writes the file by hand.
    registry.succeeds(&["add", &registry.file("1.2.0")]);
    let of = |change: &dyn Fn(&mut Value)| {
        let mut active = good.clone();
        active["active"]["version"] = json!("1.2.0");
        active["revision"] = json!(50);
        active["previous"] = good["revision"].clone();
        change(&mut active);
        active
    };
    let wrong = of(&|active| active["active"]["sha256"] = json!("0".repeat(64)));
    for (active, kind, words) in [
        (wrong.clone(), "wrong_digest", "expected sha256 000"),
        (json!({"active": 1}), "activation", "active.json"),
        (
            of(&|active| active["active"]["version"] = json!("7.0.0")),
            "missing",
            "7.0.0",
        ),
        (
            of(&|active| active["active"]["settings"]["file"] = json!("../secret")),
            "activation",
            "inside the registry",
        ),
    ] {
        registry.write_active(&active);
        for url in [
            format!("{}/stats", api.url),
            format!("{}/internal/stats", worker.url),
        ] {
            let started = std::time::Instant::now();
            loop {
                let (_, body) = subject.get(&url).await;
                let stats: Value = serde_json::from_str(&body).unwrap();
                let refused = &stats["activation"]["refused"];
                if refused["kind"] == kind {
                    let message = refused["message"].as_str().unwrap();
                    assert!(message.contains(words), "{message}");
                    assert_eq!(stats["normalizer"]["version"], "1.0.0");
                    break;
                }
                assert!(
                    started.elapsed() < common::process::PATIENCE,
                    "{kind}: {stats}"
                );
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    }
    registry.write_active(&wrong);
    let (samples, rows) = goods(0, 20);
    assert_eq!(post_all(&api.url, &samples).await, 20);
    subject.settled(20).await;
    assert_eq!(subject.rows().await, rows);

    // A host that dies now comes up again, with what served before.
    worker.stop();
    let worker = bed.worker(&[]);
    let subject = bed.subject(&api.url, &worker.url);
    let (samples, more) = goods(20, 40);
    assert_eq!(post_all(&api.url, &samples).await, 20);
    subject.settled(20).await;
    assert_eq!(subject.rows().await, [rows, more].concat());
    let stats = subject.worker_stats().await;
    assert_eq!(
        stats["activation"]["refused"]["kind"], "wrong_digest",
        "{stats}"
    );
    let output = registry.plugin(&["status", "--host", &worker.url]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.contains("REFUSED the active one (wrong_digest)"),
        "{said}"
    );
    let (_, metrics) = subject.get(&format!("{}/metrics", worker.url)).await;
    assert!(
        metrics.contains("cdr_worker_normalizer_refused{kind=\"wrong_digest\"} 1"),
        "{metrics}"
    );

    // What is in order is followed at once.
    registry.succeeds(&["rollback"]);
    let hosts = format!("{},{}", api.url, worker.url);
    registry.succeeds(&["status", "--wait", "60", "--host", &hosts]);
    worker.stop();
    api.stop();
}

/// With SCHEMA_EVOLUTION=refuse an operator runs the statement, and then it serves.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_may_not_be_changed_is_changed_by_an_operator() {
    let (bed, registry) = bed_with("1.0.0").await;
    let worker = bed.worker(&[("SCHEMA_EVOLUTION", "refuse")]);
    let api = bed.api(&[]);
    let subject = bed.subject(&api.url, &worker.url);
    registry.succeeds(&["activate", &registry.file("1.1.0 +roaming:category")]);
    let stats = subject
        .stats_when("refused", |stats| {
            stats["activation"]["refused"]["kind"] == "schema_evolution_refused"
        })
        .await;
    let message = stats["activation"]["refused"]["message"].as_str().unwrap();
    let (_, statement) = message.split_once("run\n").unwrap();
    let (samples, rows) = goods(0, 10);
    assert_eq!(post_all(&api.url, &samples).await, 10);
    subject.settled(10).await;

    // One that starts meanwhile serves with what fits the table.
    worker.stop();
    let worker = bed.worker(&[("SCHEMA_EVOLUTION", "refuse")]);
    let subject = bed.subject(&api.url, &worker.url);
    let stats = subject
        .stats_when("it serves", |stats| stats["consumed"].is_u64())
        .await;
    assert_eq!(stats["normalizer"]["version"], "1.0.0", "{stats}");
    let refused = &stats["activation"]["refused"];
    assert_eq!(refused["kind"], "schema_evolution_refused", "{stats}");
    assert_eq!(refused["wanted"], "cdr-versions@1.1.0", "{stats}");

    subject.store.execute(statement).await.unwrap();
    registry.succeeds(&["status", "--wait", "60", "--host", &worker.url]);
    let (samples, more) = goods(10, 20);
    assert_eq!(post_all(&api.url, &samples).await, 10);
    subject.settled(10).await;
    assert_eq!(subject.rows().await, [rows, more].concat());
    assert_eq!(
        by_version(&subject, "roaming").await,
        [
            ("1.0.0".to_owned(), String::new(), 10),
            ("1.1.0".to_owned(), "1.1.0".to_owned(), 10)
        ]
    );
    worker.stop();
    api.stop();
}

/// The candidate sees live batches, its answers are compared, and go nowhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_candidate_in_the_shadow_is_compared_and_changes_nothing() {
    let (bed, registry) = bed_with("1.0.0").await;
    let worker = bed.worker(&[]);
    let api = bed.api(&[]);
    let subject = bed.subject(&api.url, &worker.url);
    registry.succeeds(&[
        "add",
        &registry.file("2.0.0 +roaming:category duration_s=uint64 reject"),
    ]);
    registry.fails(
        &["shadow", "cdr-versions@2.0.0", "--sample", "0"],
        &["above 0"],
    );
    registry.fails(&["shadow", "cdr-versions@1.0.0"], &["serves already"]);
    registry.succeeds(&["shadow", "cdr-versions@2.0.0", "--sample", "1"]);
    subject
        .stats_when("the shadow runs", |stats| {
            let shadow = &stats["activation"]["shadow"];
            shadow["candidate"] == "cdr-versions@2.0.0" && shadow["running"] == true
        })
        .await;
    let (samples, rows) = goods(0, 100);
    assert_eq!(post_all(&api.url, &samples).await, 100);
    subject.settled(100).await;
    let stats = subject
        .stats_when("compared", |stats| {
            let shadow = &stats["shadow"];
            let compared = shadow["diff"]["records"].as_u64().unwrap_or(0);
            // Batches that found no room are counted, not compared.
            compared > 0
                && shadow["batches"].as_u64().unwrap_or(0)
                    + shadow["dropped_batches"].as_u64().unwrap_or(0)
                    >= 1
        })
        .await;
    let diff = &stats["shadow"]["diff"];
    assert_eq!(diff["kinds"]["row_to_rejection"], diff["records"], "{diff}");
    assert_eq!(diff["added_columns"], json!(["roaming"]));
    assert_eq!(diff["retyped_columns"], json!(["duration_s"]));
    let said = registry.succeeds(&["diff", "--host", &worker.url]);
    for words in [
        "cdr-versions@1.0.0 → cdr-versions@2.0.0 (in the shadow)",
        "a row → normalization_error",
    ] {
        assert!(said.contains(words), "{said}");
    }

    assert_eq!(subject.rows().await, rows);
    assert_eq!(subject.dead_letters().await, []);
    let columns: Vec<Value> = subject
        .store
        .query_rows(
            "SELECT name FROM system.columns WHERE table = 'cdr_records' AND name = 'roaming'",
        )
        .await
        .unwrap();
    assert_eq!(columns, [] as [Value; 0], "the table knows nothing of it");

    // Real records, offline, by the same comparison.
    let kafka = [
        ("NORMALIZER_DIR", registry.dir.display().to_string()),
        ("KAFKA_BOOTSTRAP_SERVERS", bed.brokers().to_owned()),
        ("KAFKA_RAW_TOPIC", subject.names.raw.clone()),
    ];
    let output = common::registry::plugin(
        &[
            "diff",
            "cdr-versions@1.0.0",
            "cdr-versions@2.0.0",
            "--from-raw",
            "1000",
            "--check",
        ],
        &kafka,
    );
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("100 records, 0 the same"), "{said}");

    registry.succeeds(&["shadow", "--off"]);
    subject
        .stats_when("ended", |stats| stats["activation"]["shadow"].is_null())
        .await;
    worker.stop();
    api.stop();
}
