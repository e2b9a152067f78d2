//! Inserts into a real ClickHouse: acknowledged once, written once; and what
//! its refusals are taken for.

mod common;

use cdr_store::{
    EncodedBlock, ErrorClass, Password, Rows, Store, StoreConfig, codes::known_codes, provision,
};
use common::{
    Engine,
    data::{cdr_rows, cdr_table},
    token,
};
use serde_json::json;

/// Two months, so that an insert makes two parts.
const TIMES: [u32; 2] = [1_798_761_600, 1_796_000_000];

async fn provisioned(engine: &Engine, table: &str) -> Store {
    let store = engine.store(table);
    provision::apply(&store, &cdr_table(table)).await.unwrap();
    // Nothing here is to depend on what day it is.
    let keep = format!("ALTER TABLE telecom.{table} REMOVE TTL");
    store.execute(&keep).await.unwrap();
    store
}

fn encoded(rows: &Rows) -> EncodedBlock {
    EncodedBlock::new(rows).unwrap()
}

/// Rows as they lie in the table, duplicates included.
async fn physical_rows(store: &Store) -> u64 {
    let sql = format!("SELECT count() AS n FROM {}", store.quoted_table());
    let rows: Vec<serde_json::Value> = store.query_rows(&sql).await.unwrap();
    rows[0]["n"].as_u64().unwrap()
}

#[tokio::test]
async fn a_repeated_insert_is_written_once() {
    let engine = Engine::start().await;
    let store = provisioned(&engine, "repeated").await;
    let block = encoded(&cdr_rows(1000, &TIMES));

    store.insert(&block, &token("a")).await.unwrap();
    store.insert(&block, &token("a")).await.unwrap();
    assert_eq!(physical_rows(&store).await, 1000);

    // Also when ClickHouse died in between.
    let engine = engine.crash_and_restart().await;
    let store = engine.store("repeated");
    store.insert(&block, &token("a")).await.unwrap();
    assert_eq!(physical_rows(&store).await, 1000);

    // Under another token it is another batch; the key still finds the doubles.
    store.insert(&block, &token("b")).await.unwrap();
    assert_eq!(physical_rows(&store).await, 2000);
    assert_eq!(store.count().await.unwrap(), 1000);
}

#[tokio::test]
async fn counts_and_rows_come_back() {
    let engine = Engine::start().await;
    let store = provisioned(&engine, "counted").await;
    assert_eq!(store.count().await.unwrap(), 0);
    assert_eq!(store.count_by(&["service_type"]).await.unwrap(), []);
    store
        .insert(&encoded(&cdr_rows(3, &TIMES)), &token("a"))
        .await
        .unwrap();
    store
        .insert(&encoded(&cdr_rows(0, &TIMES)), &token("b"))
        .await
        .unwrap();

    assert_eq!(store.count().await.unwrap(), 3);
    let groups = store
        .count_by(&["service_type", "session_start_time"])
        .await
        .unwrap();
    let key = |time: &str| vec!["service_type".to_owned(), time.to_owned()];
    assert_eq!(
        groups,
        [
            (key("2026-11-30 00:53:20"), 1),
            (key("2027-01-01 00:00:00"), 2)
        ]
    );

    let sql = format!(
        "SELECT bytes_up, session_end_time, cdr_id, ip_address, received_at FROM {} FINAL \
         ORDER BY toString(cdr_id) LIMIT 1",
        store.quoted_table()
    );
    let rows: Vec<serde_json::Value> = store.query_rows(&sql).await.unwrap();
    let expected = json!({
        "bytes_up": 7,
        "session_end_time": "2023-11-14 22:13:20",
        "cdr_id": "00000000-0000-0000-ffff-ffffffffffff",
        "ip_address": "101.83.241.0",
        "received_at": "2023-11-14 22:13:20.123",
    });
    assert_eq!(rows, [expected]);
    assert!(store.ping().await.unwrap().version.starts_with("26."));
}

#[tokio::test]
async fn a_broken_set_up_blames_no_record() {
    let engine = Engine::start().await;
    let store = provisioned(&engine, "set_up").await;
    let block = encoded(&cdr_rows(10, &TIMES));

    let missing = engine
        .store("missing")
        .insert(&block, &token("a"))
        .await
        .unwrap_err();
    assert_eq!((missing.class, missing.code), (ErrorClass::Setup, Some(60)));
    assert_eq!(missing.name, "UNKNOWN_TABLE");
    assert!(
        missing
            .to_string()
            .contains("insert of 10 rows into telecom.missing at http://127.")
    );

    store
        .execute("ALTER TABLE telecom.set_up DROP COLUMN imsi")
        .await
        .unwrap();
    let column = store.insert(&block, &token("b")).await.unwrap_err();
    assert_eq!((column.class, column.code), (ErrorClass::Setup, Some(16)));
    assert!(column.to_string().contains("cdr provision"));

    // Also where the block is large and the answer comes before its end.
    let noise = noise(200_000);
    assert!(noise.body().len() > 3_000_000);
    let stranger = Store::new(StoreConfig {
        password: Password::new("wrong"),
        ..engine.config("set_up")
    })
    .unwrap();
    for block in [&block, &noise] {
        let error = stranger.insert(block, &token("c")).await.unwrap_err();
        assert_eq!(
            (error.class, error.code),
            (ErrorClass::Setup, Some(516)),
            "{error}"
        );
        assert!(!format!("{error:?}").contains("wrong"));
    }
    let error = stranger.ping().await.unwrap_err();
    assert_eq!(
        (error.class, error.code),
        (ErrorClass::Setup, Some(516)),
        "{error}"
    );
    let error = store.execute("CREATE DATABASE not_mine").await.unwrap_err();
    assert_eq!(
        (error.class, error.code),
        (ErrorClass::Setup, Some(497)),
        "{error}"
    );
}

/// A block that does not compress.
fn noise(rows: usize) -> EncodedBlock {
    use cdr_store::{Column, ColumnSpec, ColumnType, Values};
    let mut state = 1u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state ^ (state >> 29)
    };
    let values = Values::Uint64s((0..rows * 2).map(|_| next()).collect());
    let column = Column::new(ColumnType::Uuid, values, None).unwrap();
    let specs = [ColumnSpec::new("cdr_id", ColumnType::Uuid)].into();
    encoded(&Rows::new(specs, vec![column]).unwrap())
}

#[tokio::test]
async fn a_bad_value_is_found_by_bisection() {
    let engine = Engine::start().await;
    let store = provisioned(&engine, "constrained").await;
    let forbid = "ALTER TABLE telecom.constrained ADD CONSTRAINT good \
                  CHECK cdr_id != '00000000-0000-0005-ffff-fffffffffffa'";
    store.execute(forbid).await.unwrap();
    let rows = cdr_rows(10, &TIMES);
    let whole = token("a");

    let error = store.insert(&encoded(&rows), &whole).await.unwrap_err();
    assert_eq!(
        (error.class, error.code),
        (ErrorClass::Data, Some(469)),
        "{error}"
    );
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

#[tokio::test]
async fn limits_on_a_block_are_met_by_smaller_blocks() {
    let engine = Engine::start().await;
    let store = provisioned(&engine, "many_months").await;
    let months: Vec<u32> = (0..150).map(|month| month * 31 * 86_400).collect();
    let error = store
        .insert(&encoded(&cdr_rows(150, &months)), &token("a"))
        .await
        .unwrap_err();
    assert_eq!(
        (error.class, error.code),
        (ErrorClass::Data, Some(252)),
        "{error}"
    );
}

#[tokio::test]
async fn a_null_is_not_made_a_zero() {
    use cdr_store::{Column, ColumnSpec, ColumnType, Values};
    let engine = Engine::start().await;
    let store = provisioned(&engine, "nulls").await;
    let specs = [ColumnSpec::nullable("duration_s", ColumnType::Uint32)].into();
    let column = Column::new(ColumnType::Uint32, Values::Uint32s(vec![0]), Some(vec![1])).unwrap();
    let block = encoded(&Rows::new(specs, vec![column]).unwrap());
    let error = store.insert(&block, &token("a")).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Data, "{error}");
}

#[tokio::test]
async fn codes_have_the_names_that_clickhouse_gives_them() {
    let engine = Engine::start().await;
    let store = engine.store("any");
    let codes: Vec<(i32, &str)> = known_codes().collect();
    let list: Vec<String> = codes.iter().map(|(code, _)| code.to_string()).collect();
    let sql = format!(
        "SELECT arrayMap(c -> toString(errorCodeToName(c)), [{}]) AS names",
        list.join(",")
    );
    let rows: Vec<serde_json::Value> = store.query_rows(&sql).await.unwrap();
    let names: Vec<&str> = codes.iter().map(|(_, name)| *name).collect();
    assert_eq!(rows[0]["names"], json!(names));
}
