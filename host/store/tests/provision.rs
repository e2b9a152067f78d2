//! The table: made where it is missing, compared where it exists, never changed.

mod common;

use cdr_store::{
    ColumnSpec, ColumnType, LayoutError, ProvisionError, TableLayout, TableSpec, provision,
};
use common::{
    Engine,
    data::{cdr_manifest, cdr_table},
    provisioned,
};

#[test]
fn the_table_is_that_of_the_design() {
    let spec = cdr_table("cdr_records");
    assert_eq!(
        spec.create_database_sql(),
        "CREATE DATABASE IF NOT EXISTS `telecom`"
    );
    let expected = "\
CREATE TABLE IF NOT EXISTS `telecom`.`cdr_records`
(
    `service_type` LowCardinality(String),
    `radio_access_type` LowCardinality(String),
    `rat_orbit` LowCardinality(String),
    `secondary_rat` LowCardinality(String),
    `cell_id` String,
    `session_start_time` DateTime('UTC'),
    `msisdn` String,
    `msisdn_valid` Bool,
    `cdr_id` UUID,
    `session_end_time` Nullable(DateTime('UTC')),
    `duration_s` UInt32,
    `bytes_up` UInt64,
    `bytes_down` UInt64,
    `called_msisdn` String,
    `called_raw` String,
    `ip_address` Nullable(IPv4),
    `imsi` String,
    `imei` String,
    `cause` LowCardinality(String),
    `direction` LowCardinality(String),
    `vendor_id` LowCardinality(String),
    `raw_id` String,
    `received_at` DateTime64(3, 'UTC'),
    `processed_at` DateTime64(3, 'UTC'),
    `normalizer_version` LowCardinality(String)
)
ENGINE = ReplacingMergeTree(processed_at)
PARTITION BY toYYYYMM(session_start_time)
ORDER BY (service_type, radio_access_type, cell_id, session_start_time, msisdn, cdr_id)
TTL session_start_time + INTERVAL 90 DAY
SETTINGS non_replicated_deduplication_window = 10000";
    assert_eq!(spec.create_table_sql(), expected);
}

fn refused(change: impl FnOnce(&mut Vec<ColumnSpec>)) -> LayoutError {
    let mut manifest = cdr_manifest();
    change(&mut manifest);
    TableSpec::new("telecom", "cdr_records", TableLayout::cdr(), &manifest).unwrap_err()
}

#[test]
fn a_manifest_without_the_key_is_refused_with_a_sentence() {
    let missing = refused(|m| m.retain(|column| column.name != "msisdn"));
    assert_eq!(
        missing.to_string(),
        "the table is ordered by a column `msisdn` of type text, not nullable, but the \
         normalizer has none of that name"
    );
    let other = refused(|m| m[5] = ColumnSpec::nullable("session_start_time", ColumnType::Millis));
    assert!(
        other
            .to_string()
            .ends_with("but the normalizer has it as nullable millis")
    );
}

#[test]
fn a_manifest_that_makes_no_table_is_refused() {
    let twice = refused(|m| m.push(ColumnSpec::new("imsi", ColumnType::Text)));
    assert!(matches!(twice, LayoutError::DuplicateColumn { .. }));
    let ours = refused(|m| m.push(ColumnSpec::new("processed_at", ColumnType::Millis)));
    assert!(matches!(ours, LayoutError::HostColumn { .. }));
    let category = refused(|m| m.push(ColumnSpec::nullable("c", ColumnType::Category)));
    assert!(matches!(category, LayoutError::NullableCategory { .. }));
    for name in ["", "1a", "a-b", "a`b", "ä", &"a".repeat(65)] {
        let named = refused(|m| m.push(ColumnSpec::new(name, ColumnType::Text)));
        assert!(
            matches!(named, LayoutError::InvalidColumnName { .. }),
            "{name}"
        );
    }
}

#[tokio::test]
async fn what_is_missing_is_made_once() {
    let engine = Engine::start().await;
    let store = engine.store("cdr_records");
    let spec = cdr_table("cdr_records");

    let planned = provision::plan(&store, &spec).await.unwrap();
    assert_eq!(
        planned.statements,
        [spec.create_database_sql(), spec.create_table_sql()]
    );
    // To plan is to change nothing.
    assert_eq!(provision::plan(&store, &spec).await.unwrap(), planned);

    assert_eq!(provision::apply(&store, &spec).await.unwrap(), planned);
    assert!(
        provision::apply(&store, &spec)
            .await
            .unwrap()
            .statements
            .is_empty()
    );

    let second = provision::plan(&engine.store("second"), &cdr_table("second"))
        .await
        .unwrap();
    assert_eq!(second.statements.len(), 1, "the database is there");
}

#[tokio::test]
async fn columns_of_others_are_left_alone() {
    let engine = Engine::start().await;
    let store = engine.store("t");
    provision::apply(&store, &cdr_table("t")).await.unwrap();
    let add = "ALTER TABLE telecom.t ADD COLUMN note Nullable(String) FIRST, \
               ADD COLUMN day Date MATERIALIZED toDate(session_start_time), \
               ADD COLUMN source LowCardinality(String) DEFAULT 'x'";
    store.execute(add).await.unwrap();
    assert!(
        provision::apply(&store, &cdr_table("t"))
            .await
            .unwrap()
            .statements
            .is_empty()
    );

    store
        .execute("ALTER TABLE telecom.t ADD COLUMN must String")
        .await
        .unwrap();
    let error = provision::apply(&store, &cdr_table("t")).await.unwrap_err();
    assert!(error.to_string().contains(
        "column `must`: expected no such column, or one that is nullable or has a default, found String"
    ));
}

#[tokio::test]
async fn a_table_that_differs_is_refused_with_every_difference() {
    let engine = Engine::start().await;
    let store = engine.store("t");
    let wrong = cdr_table("t")
        .create_table_sql()
        .replace("ReplacingMergeTree(processed_at)", "MergeTree")
        .replace("toYYYYMM(session_start_time)", "toDate(session_start_time)")
        .replace("ORDER BY (service_type, radio_access_type, ", "ORDER BY (")
        .replace("INTERVAL 90 DAY", "INTERVAL 30 DAY")
        .replace("SETTINGS non_replicated_deduplication_window = 10000", "")
        .replace("`duration_s` UInt32,", "`duration_s` Int64,")
        .replace("`imsi` String,\n", "")
        .replace("`imei` String", "`imei` String MATERIALIZED ''");
    store.execute("CREATE DATABASE telecom").await.unwrap();
    store.execute(&wrong).await.unwrap();
    let before = show(&store).await;

    let error = provision::apply(&store, &cdr_table("t")).await.unwrap_err();
    let ProvisionError::Incompatible { table, differences } = &error else {
        panic!("{error}");
    };
    assert_eq!(table, "telecom.t");
    let list: Vec<String> = differences.iter().map(ToString::to_string).collect();
    assert_eq!(
        list,
        [
            "engine: expected ReplacingMergeTree(processed_at), found MergeTree",
            "partition key: expected toYYYYMM(session_start_time), found toDate(session_start_time)",
            "sorting key: expected service_type, radio_access_type, cell_id, session_start_time, \
             msisdn, cdr_id, found cell_id, session_start_time, msisdn, cdr_id",
            "TTL: expected session_start_time + toIntervalDay(90), found session_start_time + \
             toIntervalDay(30)",
            "setting non_replicated_deduplication_window: expected 1 or more (10000 in a new \
             table), found 0 (a repeated insert would be written twice)",
            "type of column `duration_s`: expected UInt32, found Int64",
            "column `imsi`: expected String, found no such column",
            "column `imei`: expected an ordinary column, which an insert can fill, found a column \
             that is MATERIALIZED",
        ]
    );
    assert!(error.to_string().contains("nothing was changed"));
    assert_eq!(show(&store).await, before);
}

async fn show(store: &cdr_store::Store) -> Vec<serde_json::Value> {
    store
        .query_rows("SHOW CREATE TABLE telecom.t")
        .await
        .unwrap()
}

#[tokio::test]
async fn a_table_that_forgets_tokens_is_named() {
    let keeper = "<zookeeper><implementation>testkeeper</implementation></zookeeper>";
    let engine = Engine::start_with(keeper).await;
    let store = provisioned(&engine, "other").await;
    let operator = engine.store_as("operator", "t");
    let create = cdr_table("t").create_table_sql();
    let plain = create.replace("window = 10000", "window = 0");
    let unset = create.replace("SETTINGS non_replicated_deduplication_window = 10000", "");
    let replicated = create
        .replace(
            "= ReplacingMergeTree(",
            "= ReplicatedReplacingMergeTree('/t', 'r', ",
        )
        .replace(
            "non_replicated_deduplication_window = 10000",
            "replicated_deduplication_window = 0",
        );
    for (sql, setting) in [
        (plain, "non_replicated_deduplication_window"),
        (unset, "non_replicated_deduplication_window"),
        (replicated, "replicated_deduplication_window"),
    ] {
        operator.execute(&sql).await.unwrap();
        let error = provision::plan(&store, &cdr_table("t")).await.unwrap_err();
        let ProvisionError::Incompatible { differences, .. } = &error else {
            panic!("{error}");
        };
        let [difference] = &differences[..] else {
            panic!("{error}");
        };
        assert_eq!(difference.what, format!("setting {setting}"));
        assert!(difference.found.starts_with('0'), "{error}");
        operator.execute("DROP TABLE telecom.t SYNC").await.unwrap();
    }
}
