//! What a user's profile lets inserts be.

mod common;

use std::time::Duration;

use cdr_store::{ErrorClass, InsertLimits};
use common::{Engine, data::cdr_rows, encoded, physical_rows, provisioned, token};

#[tokio::test]
async fn limits_are_those_of_the_connected_user() {
    let engine = Engine::start_with("").await;
    let of = async |user| engine.store_as(user, "t").limits().await.unwrap();

    let ours = engine.store("t").limits().await.unwrap();
    let expected = InsertLimits {
        max_memory_usage: Some(2_147_483_648),
        max_memory_usage_for_user: None,
        max_partitions_per_block: Some(100),
        max_concurrent_queries: None,
        max_execution_time: None,
        receive_timeout: Some(Duration::from_secs(30)),
        readonly: false,
        async_insert: false,
        deduplicates: true,
        forbidden_settings: Vec::new(),
    };
    assert_eq!(ours, expected);
    assert_eq!(ours.obstacles(), Vec::<String>::new());

    assert_eq!(of("small").await.max_memory_usage, Some(8_000_000));
    assert_eq!(of("lone").await.max_concurrent_queries, Some(1));
    let hasty = of("hasty").await.max_execution_time;
    assert_eq!(hasty, Some(Duration::from_secs(1)));
    let limited = of("limited").await;
    assert_eq!(limited.max_memory_usage_for_user, Some(1_000_000_000));
    assert_eq!(
        limited.max_partitions_per_block, None,
        "more is logged only"
    );
    assert_eq!(limited.receive_timeout, Some(Duration::from_secs(17)));
}

#[tokio::test]
async fn obstacles_are_found_before_an_insert_meets_them() {
    let engine = Engine::start_with("").await;
    let store = provisioned(&engine, "t").await;
    let block = encoded(&cdr_rows(10, &[1_796_083_200]));

    let reader = engine.store_as("reader", "t");
    let [obstacle] = &reader.limits().await.unwrap().obstacles()[..] else {
        panic!("expected one");
    };
    assert!(obstacle.contains("readonly = 0"), "{obstacle}");
    let error = reader.insert(&block, &token("a")).await.unwrap_err();
    assert_eq!((error.class, error.code), (ErrorClass::Setup, Some(164)));
    let strict = engine.store_as("strict_reader", "t");
    let limits = strict.limits().await.unwrap();
    assert!(limits.readonly);
    let token_setting = "insert_deduplication_token".to_owned();
    assert!(limits.forbidden_settings.contains(&token_setting));
    let error = strict.insert(&block, &token("a")).await.unwrap_err();
    assert_eq!((error.class, error.code), (ErrorClass::Setup, Some(164)));

    let queued = engine.store_as("queued", "t");
    let limits = queued.limits().await.unwrap();
    assert!(limits.async_insert);
    assert_eq!(limits.forbidden_settings, ["async_insert"]);
    assert!(limits.obstacles()[0].contains("async_insert"));
    let error = queued.insert(&block, &token("a")).await.unwrap_err();
    assert_eq!(
        (error.class, error.code),
        (ErrorClass::Setup, Some(452)),
        "{error}"
    );

    assert_eq!(physical_rows(&store).await, 0);
    let doubling = engine.store_as("doubling", "t");
    let limits = doubling.limits().await.unwrap();
    assert!(limits.obstacles()[0].contains("deduplicate_insert"));
    for _ in 0..2 {
        doubling.insert(&block, &token("a")).await.unwrap();
    }
    assert_eq!(physical_rows(&store).await, 20);
}
