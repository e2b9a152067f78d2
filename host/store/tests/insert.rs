//! Inserts into a real ClickHouse: acknowledged once, written once; and what
//! its refusals are taken for.

mod common;

use cdr_store::{EncodedBlock, ErrorClass, Password, Rows, Store, StoreConfig};
use common::{Engine, data::cdr_rows, encoded, physical_rows, provisioned, token};
use serde_json::json;

/// Two months, so that an insert makes two parts.
const TIMES: [u32; 2] = [1_798_761_600, 1_796_000_000];

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

    // With a row more, or under another token, it is another batch; the key still finds the doubles.
    store.insert(&block, &token("b")).await.unwrap();
    assert_eq!(physical_rows(&store).await, 2000);
    let longer = encoded(&cdr_rows(1001, &TIMES));
    store.insert(&longer, &token("b")).await.unwrap();
    assert_eq!(physical_rows(&store).await, 3001);
    assert_eq!(store.count().await.unwrap(), 1001);
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
async fn a_null_is_not_made_a_zero() {
    use cdr_store::{Column, ColumnSpec, ColumnType, Values};
    let engine = Engine::start().await;
    let store = provisioned(&engine, "nulls").await;
    let specs = [ColumnSpec::nullable("duration_s", ColumnType::Uint32)].into();
    let column = Column::new(ColumnType::Uint32, Values::Uint32s(vec![0]), Some(vec![1])).unwrap();
    let block = encoded(&Rows::new(specs, vec![column]).unwrap());
    let error = store.insert(&block, &token("a")).await.unwrap_err();
    // The table has another type than is sent: it is not the row's fault.
    assert_eq!(
        (error.class, error.code),
        (ErrorClass::Setup, Some(349)),
        "{error}"
    );
}
