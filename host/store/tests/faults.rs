//! What a real ClickHouse refuses, and that the same batch goes in once the
//! reason is gone.
//!
//! Provoked here or in `insert.rs`, `again.rs` and `limits.rs`: 6, 16, 48, 53 or
//! 70 (a retyped column), 60, 81, 159, 164, 201, 202, 241 (both meanings), 242,
//! 243, 252 (both meanings), 349, 452, 469, 497, 516, and every way in which a
//! request can be lost. Not to be had on one machine and on demand, and so only
//! answered by a false server (`classes.rs`): Keeper and quorum errors, object
//! stores, failing disks, overload (745), a server that is stopping (236).

mod common;

use std::time::{Duration, Instant};

use cdr_store::{EncodedBlock, ErrorClass, Evolution, Store, StoreError, provision};
use common::{
    Engine,
    data::{cdr_rows, cdr_table},
    encoded, physical_rows, provisioned, token,
};

/// Two months.
const TIMES: [u32; 2] = [1_798_761_600, 1_796_000_000];

fn class_of(result: Result<(), StoreError>) -> (ErrorClass, Option<i32>) {
    let error = result.unwrap_err();
    (error.class, error.code)
}

#[tokio::test]
async fn a_block_of_too_many_months_goes_in_by_halves() {
    let engine = Engine::start().await;
    let store = provisioned(&engine, "t").await;
    let months: Vec<u32> = (0..150).map(|month| month * 31 * 86_400).collect();
    let rows = cdr_rows(150, &months);
    let whole = token("a");
    let error = store.insert(&encoded(&rows), &whole).await.unwrap_err();
    assert_eq!(
        (error.class, error.code),
        (ErrorClass::TooLarge, Some(252)),
        "{error}"
    );
    for half in [0..75, 75..150] {
        let part = encoded(&rows.slice(half.clone()));
        store.insert(&part, &whole.rows(half)).await.unwrap();
    }
    assert_eq!(physical_rows(&store).await, 150);
}

#[tokio::test]
async fn too_many_parts_pass_when_merges_go_on() {
    let engine = Engine::start_with("").await;
    let store = provisioned(&engine, "t").await;
    let few = "ALTER TABLE telecom.t MODIFY SETTING parts_to_delay_insert = 2, \
               parts_to_throw_insert = 3";
    store.execute(few).await.unwrap();
    let operator = engine.store_as("operator", "t");
    operator
        .execute("SYSTEM STOP MERGES telecom.t")
        .await
        .unwrap();
    let block = encoded(&cdr_rows(10, &TIMES[..1]));
    let mut taken = 0;
    let refused = loop {
        let name = token(&format!("block-{taken}"));
        match store.insert(&block, &name).await {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
        assert!(taken < 10, "it never refused");
    };
    assert_eq!(
        (refused.class, refused.code),
        (ErrorClass::Transient, Some(252)),
        "{refused}"
    );
    operator
        .execute("SYSTEM START MERGES telecom.t")
        .await
        .unwrap();
    operator
        .execute("OPTIMIZE TABLE telecom.t FINAL")
        .await
        .unwrap();
    until_taken(&store, &block, &format!("block-{taken}")).await;
}

async fn until_taken(store: &Store, block: &EncodedBlock, name: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err(error) = store.insert(block, &token(name)).await {
        assert_eq!(error.class, ErrorClass::Transient, "{error}");
        assert!(Instant::now() < deadline, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn the_memory_of_a_query_is_met_by_smaller_blocks() {
    let engine = Engine::start_with("").await;
    let store = provisioned(&engine, "t").await;
    let small = engine.store_as("small", "t");
    let rows = cdr_rows(20_000, &TIMES);
    let error = small
        .insert(&encoded(&rows), &token("a"))
        .await
        .unwrap_err();
    assert_eq!(
        (error.class, error.code),
        (ErrorClass::TooLarge, Some(241)),
        "{error}"
    );
    let part = rows.slice(0..500);
    small
        .insert(&encoded(&part), &token("a").rows(0..500))
        .await
        .unwrap();
    assert_eq!(physical_rows(&store).await, 500);
}

#[tokio::test]
async fn what_others_use_up_is_waited_for() {
    let engine = Engine::start_with("").await;
    provisioned(&engine, "t").await;
    let block = encoded(&cdr_rows(10, &TIMES));
    // A quota counts what was written before it is passed.
    let rationed = engine.store_as("rationed", "t");
    let mut results = Vec::new();
    for round in 0..3 {
        results.push(rationed.insert(&block, &token(&format!("{round}"))).await);
    }
    let last = results.pop().unwrap();
    assert_eq!(class_of(last), (ErrorClass::Transient, Some(201)));

    let lone = engine.store_as("lone", "t");
    let other = lone.clone();
    let busy = tokio::spawn(async move {
        other
            .execute(
                "SELECT sleepEachRow(1) FROM numbers(600) SETTINGS max_block_size = 1 FORMAT Null",
            )
            .await
    });
    let running = "SELECT 1 AS one FROM system.processes WHERE user = 'lone'";
    let operator = engine.store_as("operator", "t");
    while operator
        .query_rows::<serde_json::Value>(running)
        .await
        .unwrap()
        .is_empty()
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let refused = lone.insert(&block, &token("b")).await;
    assert_eq!(class_of(refused), (ErrorClass::Transient, Some(202)));
    operator
        .execute("KILL QUERY WHERE user = 'lone' SYNC")
        .await
        .unwrap();
    busy.await.unwrap().unwrap_err();
    until_taken(&lone, &block, "b").await;
}

#[tokio::test]
async fn an_insert_that_takes_too_long_is_transient() {
    let engine = Engine::start_with("").await;
    let store = provisioned(&engine, "t").await;
    store
        .execute("CREATE TABLE telecom.slow (z UInt8) ENGINE = MergeTree ORDER BY z")
        .await
        .unwrap();
    engine
        .store_as("operator", "t")
        .execute(
            "CREATE MATERIALIZED VIEW telecom.slowly TO telecom.slow AS \
             SELECT sleepEachRow(0.5) AS z FROM telecom.t",
        )
        .await
        .unwrap();
    let hasty = engine.store_as("hasty", "t");
    let block = encoded(&cdr_rows(4, &TIMES[..1]));
    let error = hasty.insert(&block, &token("a")).await.unwrap_err();
    assert_eq!(
        (error.class, error.code),
        (ErrorClass::Transient, Some(159)),
        "{error}"
    );
}

#[tokio::test]
async fn a_full_disk_is_transient_and_passes() {
    let folder = tempfile::tempdir().unwrap();
    let disk = |keep_free: u64| {
        format!(
            "<storage_configuration><disks><small><type>local</type><path>{}/</path>\
             <keep_free_space_bytes>{keep_free}</keep_free_space_bytes></small></disks>\
             <policies><small><volumes><main><disk>small</disk></main></volumes></small>\
             </policies></storage_configuration>",
            folder.path().display()
        )
    };
    let engine = Engine::start_with(&disk(1 << 60)).await;
    let store = engine.store("t");
    store.execute("CREATE DATABASE telecom").await.unwrap();
    let table = format!(
        "{}, storage_policy = 'small'",
        cdr_table("t").create_table_sql()
    );
    store.execute(&table).await.unwrap();
    store
        .execute("ALTER TABLE telecom.t REMOVE TTL")
        .await
        .unwrap();
    let block = encoded(&cdr_rows(10, &TIMES));
    let error = store.insert(&block, &token("a")).await.unwrap_err();
    assert_eq!(
        (error.class, error.code),
        (ErrorClass::Transient, Some(243)),
        "{error}"
    );
    assert!(error.to_string().contains("check the disk"), "{error}");

    let stopped = engine.kill().await;
    stopped.reconfigure(&disk(0));
    let engine = stopped.restart().await;
    let store = engine.store("t");
    store.insert(&block, &token("a")).await.unwrap();
    assert_eq!(physical_rows(&store).await, 10);
}

/// A replica that Keeper does not make active: this engine has one in its memory
/// that never does. By default ClickHouse itself tries 20 times, and our timeout
/// comes first; the operator's profile has it answer at once.
#[tokio::test]
async fn a_replica_that_can_not_write_is_waited_for() {
    let keeper = "<zookeeper><implementation>testkeeper</implementation></zookeeper>";
    let engine = Engine::start_with(keeper).await;
    provisioned(&engine, "other").await;
    let replicated = |window: u32| {
        cdr_table("t")
            .create_table_sql()
            .replace(
                "= ReplacingMergeTree(",
                "= ReplicatedReplacingMergeTree('/t', 'r', ",
            )
            .replace("IF NOT EXISTS ", "")
            .replace(
                "non_replicated_deduplication_window = 10000",
                &format!("replicated_deduplication_window = {window}"),
            )
    };
    let operator = engine.store_as("operator", "t");
    operator.execute(&replicated(100)).await.unwrap();
    let plan = provision::plan(&operator, &cdr_table("t"), Evolution::Add)
        .await
        .unwrap();
    assert!(plan.statements.is_empty(), "it fits: {plan:?}");

    let block = encoded(&cdr_rows(10, &TIMES));
    let error = operator.insert(&block, &token("a")).await.unwrap_err();
    assert_eq!(
        (error.class, error.code),
        (ErrorClass::Transient, Some(242)),
        "{error}"
    );
    assert!(error.to_string().contains("system.replicas"), "{error}");
}

#[tokio::test]
async fn one_row_that_the_table_forbids_is_found_and_the_others_pass() {
    let engine = Engine::start().await;
    let store = provisioned(&engine, "t").await;
    let forbid = "ALTER TABLE telecom.t ADD CONSTRAINT good \
                  CHECK cdr_id != '00000000-0000-0005-ffff-fffffffffffa'";
    store.execute(forbid).await.unwrap();
    let rows = cdr_rows(10, &TIMES);
    let whole = token("a");
    let refused = store.insert(&encoded(&rows), &whole).await;
    assert_eq!(class_of(refused), (ErrorClass::Data, Some(469)));
    assert_eq!(physical_rows(&store).await, 0);

    let mut open = vec![(0, 10)];
    let mut bad = Vec::new();
    while let Some((start, end)) = open.pop() {
        let part = encoded(&rows.slice(start..end));
        match store.insert(&part, &whole.rows(start..end)).await {
            Ok(()) => {}
            Err(error) if end - start == 1 => bad.push((start, error.class)),
            Err(_) => {
                let middle = start.midpoint(end);
                open.extend([(start, middle), (middle, end)]);
            }
        }
    }
    assert_eq!(bad, [(5, ErrorClass::Data)]);
    assert_eq!(physical_rows(&store).await, 9);
}

/// The same code, two meanings: a computed column chokes on a value; or the
/// column that is sent has another type in the table.
#[tokio::test]
async fn a_value_is_told_from_a_column_of_another_type() {
    let engine = Engine::start().await;
    let store = provisioned(&engine, "t").await;
    let block = encoded(&cdr_rows(10, &TIMES));
    store
        .execute("ALTER TABLE telecom.t ADD COLUMN n UInt32 MATERIALIZED toUInt32(raw_id)")
        .await
        .unwrap();
    let value = store.insert(&block, &token("a")).await;
    assert_eq!(class_of(value), (ErrorClass::Data, Some(6)));
    store
        .execute("ALTER TABLE telecom.t DROP COLUMN n")
        .await
        .unwrap();

    for (kind, code) in [
        ("UInt32", 6),
        ("UUID", 376),
        ("IPv4", 675),
        ("DateTime('UTC')", 41),
        ("FixedString(3)", 131),
        ("Enum8('a' = 1)", 691),
        ("Array(String)", 130),
        ("Bool", 467),
    ] {
        for change in ["DROP COLUMN imsi", &format!("ADD COLUMN imsi {kind}")] {
            let sql = format!("ALTER TABLE telecom.t {change}");
            store.execute(&sql).await.unwrap();
        }
        let error = store.insert(&block, &token("a")).await.unwrap_err();
        assert_eq!(
            (error.class, error.code),
            (ErrorClass::Setup, Some(code)),
            "{kind}: {error}"
        );
        assert!(error.to_string().contains("cdr provision"), "{error}");
    }
    assert_eq!(physical_rows(&store).await, 0);
}

#[tokio::test]
async fn a_table_that_vanishes_or_a_view_without_target_is_a_broken_set_up() {
    let engine = Engine::start_with("").await;
    let store = provisioned(&engine, "t").await;
    let operator = engine.store_as("operator", "t");
    let block = encoded(&cdr_rows(10, &TIMES));
    store.insert(&block, &token("a")).await.unwrap();

    for sql in [
        "CREATE TABLE telecom.target (n String) ENGINE = MergeTree ORDER BY n",
        "CREATE MATERIALIZED VIEW telecom.v TO telecom.target AS SELECT raw_id AS n FROM telecom.t",
        "DROP TABLE telecom.target SYNC",
    ] {
        operator.execute(sql).await.unwrap();
    }
    let view = store.insert(&block, &token("b")).await;
    assert_eq!(class_of(view), (ErrorClass::Setup, Some(60)));

    operator.execute("DROP TABLE telecom.t SYNC").await.unwrap();
    let table = store.insert(&block, &token("b")).await;
    assert_eq!(class_of(table), (ErrorClass::Setup, Some(60)));
    operator
        .execute("DROP DATABASE telecom SYNC")
        .await
        .unwrap();
    let database = store.insert(&block, &token("b")).await;
    assert_eq!(class_of(database), (ErrorClass::Setup, Some(81)));
}
