//! The table: made where it is missing, compared where it exists, and never changed
//! but for columns that a newer normalizer brings.

mod common;

use cdr_store::{
    ColumnSpec, ColumnType, Evolution, LayoutError, ProvisionError, TableLayout, TableSpec,
    provision,
};
use common::{
    Engine,
    data::{cdr_manifest, cdr_rows, cdr_table},
    encoded, provisioned, token,
};

const TIMES: [u32; 2] = [1_798_761_600, 1_796_000_000];

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

    let planned = provision::plan(&store, &spec, Evolution::Add)
        .await
        .unwrap();
    assert_eq!(
        planned.statements,
        [spec.create_database_sql(), spec.create_table_sql()]
    );
    // To plan is to change nothing.
    assert_eq!(
        provision::plan(&store, &spec, Evolution::Add)
            .await
            .unwrap(),
        planned
    );

    assert_eq!(
        provision::apply(&store, &spec, Evolution::Add)
            .await
            .unwrap(),
        planned
    );
    assert!(
        provision::apply(&store, &spec, Evolution::Add)
            .await
            .unwrap()
            .statements
            .is_empty()
    );

    let second = provision::plan(
        &engine.store("second"),
        &cdr_table("second"),
        Evolution::Add,
    )
    .await
    .unwrap();
    assert_eq!(second.statements.len(), 1, "the database is there");
}

#[tokio::test]
async fn columns_of_others_are_left_alone() {
    let engine = Engine::start().await;
    let store = engine.store("t");
    provision::apply(&store, &cdr_table("t"), Evolution::Add)
        .await
        .unwrap();
    let add = "ALTER TABLE telecom.t ADD COLUMN note Nullable(String) FIRST, \
               ADD COLUMN day Date MATERIALIZED toDate(session_start_time), \
               ADD COLUMN source LowCardinality(String) DEFAULT 'x'";
    store.execute(add).await.unwrap();
    assert!(
        provision::apply(&store, &cdr_table("t"), Evolution::Add)
            .await
            .unwrap()
            .statements
            .is_empty()
    );
    // One without a default of its own has that of its type.
    store
        .execute("ALTER TABLE telecom.t ADD COLUMN must String")
        .await
        .unwrap();
    assert!(
        provision::apply(&store, &cdr_table("t"), Evolution::Add)
            .await
            .unwrap()
            .statements
            .is_empty()
    );
    let rows = cdr_rows(10, &TIMES);
    store.insert(&encoded(&rows), &token("a")).await.unwrap();
    assert_eq!(store.count().await.unwrap(), 10);
}

/// A column of every type, nullable or not, comes to a table that has rows; those
/// and rows that know nothing of it read as null, or as the zero of its type.
#[tokio::test]
async fn columns_that_a_newer_normalizer_brings_are_added() {
    let engine = Engine::start().await;
    let store = provisioned(&engine, "t").await;
    // Without expiry, as `provisioned` leaves it.
    store
        .execute("ALTER TABLE telecom.t MODIFY TTL session_start_time + INTERVAL 90 DAY")
        .await
        .unwrap();
    let old = cdr_table("t");
    let rows = cdr_rows(10, &TIMES);
    store.insert(&encoded(&rows), &token("a")).await.unwrap();

    let mut manifest: Vec<_> =
        old.columns()[..old.columns().len() - old.layout().host_columns.len()].to_vec();
    for kind in ColumnType::ALL {
        let name = kind.name();
        manifest.push(ColumnSpec::new(format!("new_{name}"), kind));
        if kind != ColumnType::Category {
            manifest.push(ColumnSpec::nullable(format!("maybe_{name}"), kind));
        }
    }
    let new = TableSpec::new("telecom", "t", TableLayout::cdr(), &manifest).unwrap();
    let before = show(&store).await;
    let refused = provision::apply(&store, &new, Evolution::Refuse)
        .await
        .unwrap_err();
    let ProvisionError::Lacking {
        statement, columns, ..
    } = &refused
    else {
        panic!("{refused}");
    };
    assert_eq!(columns.len(), 21);
    assert!(
        refused.to_string().contains("SCHEMA_EVOLUTION=refuse"),
        "{refused}"
    );
    assert_eq!(show(&store).await, before, "nothing was changed");

    let done = provision::apply(&store, &new, Evolution::Add)
        .await
        .unwrap();
    assert_eq!(&done.statements, std::slice::from_ref(statement));
    assert_eq!(&done.added, columns);
    // Another host may do the same at the same time.
    store.execute(statement).await.unwrap();
    for spec in [&new, &old] {
        let plan = provision::plan(&store, spec, Evolution::Refuse)
            .await
            .unwrap();
        assert!(plan.statements.is_empty(), "both versions fit: {plan:?}");
    }

    // The old version goes on writing.
    store
        .insert(&encoded(&cdr_rows(20, &TIMES).slice(10..20)), &token("b"))
        .await
        .unwrap();
    let read: Vec<serde_json::Value> = store
        .query_rows(
            "SELECT new_text, toUInt32(new_uint64) AS n, toString(new_ipv4) AS ip, maybe_text, \
             toString(new_uuid) AS id, toUInt32(new_millis) AS t FROM telecom.t",
        )
        .await
        .unwrap();
    assert_eq!(read.len(), 20);
    for row in read {
        assert_eq!(
            row,
            serde_json::json!({"new_text": "", "n": 0, "ip": "0.0.0.0", "maybe_text": null,
                "id": "00000000-0000-0000-0000-000000000000", "t": 0})
        );
    }

    // Retyped is refused, and so is a key that is missing.
    let at = manifest
        .iter()
        .position(|c| c.name == "new_uint32")
        .unwrap();
    manifest[at].kind = ColumnType::Text;
    let other = TableSpec::new("telecom", "t", TableLayout::cdr(), &manifest).unwrap();
    let error = provision::apply(&store, &other, Evolution::Add)
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("type of column `new_uint32`: expected String, found UInt32"),
        "{error}"
    );
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

    let error = provision::apply(&store, &cdr_table("t"), Evolution::Add)
        .await
        .unwrap_err();
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
            "column `imei`: expected an ordinary column, which an insert can fill, found a column \
             that is MATERIALIZED",
            "column `imsi`: expected String, found no such column",
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
        let error = provision::plan(&store, &cdr_table("t"), Evolution::Add)
            .await
            .unwrap_err();
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
