//! What is encoded here is what ClickHouse reads: every kind of column, nulls,
//! empty batches.

mod common;

use cdr_store::{EncodedBlock, Rows, Store};
use common::{
    Engine,
    data::{any_rows, as_text, every_kind, texts},
    token,
};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};

#[test]
fn clickhouse_reads_back_what_was_sent() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let engine = runtime.block_on(Engine::start());
    let store = engine.store("every_kind");
    runtime.block_on(create(&store));

    let cases = std::cell::Cell::new(0);
    let config = Config {
        cases: 40,
        failure_persistence: None,
        ..Config::default()
    };
    let result = TestRunner::new(config).run(&any_rows(40), |rows| {
        cases.set(cases.get() + 1);
        let found = runtime.block_on(round_trip(&store, &rows, cases.get()));
        prop_assert_eq!(found, texts(&rows));
        Ok(())
    });
    result.unwrap();
    // An empty batch was likely among them; here it is for certain.
    let empty = Rows::empty(every_kind());
    assert!(runtime.block_on(round_trip(&store, &empty, 0)).is_empty());
    drop(engine);
    runtime.shutdown_background();
}

async fn create(store: &Store) {
    let columns: Vec<String> = every_kind()
        .iter()
        .map(|spec| format!("{} {}", spec.name, spec.table_type()))
        .collect();
    let columns = columns.join(", ");
    store
        .execute("CREATE DATABASE IF NOT EXISTS telecom")
        .await
        .unwrap();
    // ORDER BY nothing: rows stay as they came.
    let sql = format!("CREATE TABLE telecom.every_kind ({columns}) ENGINE = MergeTree ORDER BY ()");
    store.execute(&sql).await.unwrap();
}

async fn round_trip(store: &Store, rows: &Rows, case: u32) -> Vec<Vec<Option<String>>> {
    store
        .execute("TRUNCATE TABLE telecom.every_kind")
        .await
        .unwrap();
    let block = EncodedBlock::new(rows).unwrap();
    store
        .insert(&block, &token(&format!("case-{case}")))
        .await
        .unwrap();
    let columns: Vec<String> = every_kind().iter().map(as_text).collect();
    let columns = columns.join(", ");
    let sql = format!(
        "SELECT [{columns}]::Array(Nullable(String)) AS row FROM telecom.every_kind \
         SETTINGS max_threads = 1"
    );
    #[derive(serde::Deserialize)]
    struct Row {
        row: Vec<Option<String>>,
    }
    let found: Vec<Row> = store.query_rows(&sql).await.unwrap();
    found.into_iter().map(|found| found.row).collect()
}
