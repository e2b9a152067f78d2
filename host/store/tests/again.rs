//! Answers that never came: what was written is recognised, what was not is
//! written, and nothing is taken for written that is not there.

mod common;

use std::{path::Path, sync::Arc, time::Duration};

use cdr_store::{ErrorClass, RowKeys, Rows, Store, StoreConfig, TableLayout};
use common::{
    Engine,
    data::cdr_rows,
    encoded, physical_rows, provisioned,
    proxy::{self, Fault},
    token,
};
use tokio::sync::Notify;

/// Six months, so that an insert makes six parts.
const MONTHS: [u32; 6] = [
    1_782_864_000,
    1_785_542_400,
    1_788_220_800,
    1_790_812_800,
    1_793_491_200,
    1_796_083_200,
];

fn keys(rows: &Rows) -> RowKeys {
    RowKeys::new(rows, &TableLayout::cdr()).unwrap()
}

async fn through(engine: &Engine, table: &str, fault: Fault, timeout: Duration) -> Store {
    Store::new(StoreConfig {
        url: proxy::start(&engine.clickhouse.url(), fault).await,
        insert_timeout: timeout,
        ..engine.config(table)
    })
    .unwrap()
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_request_that_is_cut_writes_nothing_and_its_repetition_everything() {
    let engine = Engine::start().await;
    let store = provisioned(&engine, "t").await;
    let block = encoded(&cdr_rows(3000, &MONTHS));
    assert!(block.body().len() > 20_000);

    for at in [700, 2_000, 20_000] {
        let cut = through(&engine, "t", Fault::CutRequest(at), LONG).await;
        let error = cut.insert(&block, &token("a")).await.unwrap_err();
        assert_eq!(
            (error.class, error.name.as_str()),
            (ErrorClass::Transient, "connection_lost"),
            "{error}"
        );
        assert_eq!(physical_rows(&store).await, 0);
    }
    store.insert(&block, &token("a")).await.unwrap();
    assert_eq!(physical_rows(&store).await, 3000);
}

#[tokio::test]
async fn an_answer_that_is_lost_or_hangs_doubles_nothing() {
    let engine = Engine::start().await;
    let store = provisioned(&engine, "t").await;
    let rows = cdr_rows(3000, &MONTHS);
    let block = encoded(&rows);

    let cut = through(&engine, "t", Fault::CutAnswer, LONG).await;
    let error = cut.insert(&block, &token("a")).await.unwrap_err();
    assert_eq!(error.name, "connection_lost", "{error}");
    assert_eq!(physical_rows(&store).await, 3000, "it was written");

    let hung = through(&engine, "t", Fault::KeepAnswer, Duration::from_secs(2)).await;
    let error = hung.insert(&block, &token("a")).await.unwrap_err();
    assert_eq!(
        (error.class, error.name.as_str()),
        (ErrorClass::Transient, "timeout")
    );
    assert!(error.to_string().contains("no answer within 2s"), "{error}");

    store.insert(&block, &token("a")).await.unwrap();
    store
        .insert_again(&block, &token("a"), &keys(&rows))
        .await
        .unwrap();
    assert_eq!(physical_rows(&store).await, 3000);
}

/// Where the kill falls: by bytes of the request that are through, or by parts
/// that are in the table.
#[derive(Debug, Clone, Copy)]
enum Moment {
    Through(usize),
    Parts(usize),
}

#[tokio::test]
async fn a_kill_in_the_middle_of_an_insert_loses_and_doubles_nothing() {
    let mut engine = Engine::start().await;
    let rows = cdr_rows(60_000, &MONTHS);
    let block = encoded(&rows);
    let body = block.body().len();
    let moments = [
        Moment::Through(body / 2),
        Moment::Through(body),
        Moment::Parts(1),
        Moment::Parts(3),
        Moment::Parts(6),
    ];
    for (round, moment) in moments.into_iter().enumerate() {
        let table = format!("round_{round}");
        provisioned(&engine, &table).await;
        let parts_before = parts_on_disk(&engine.data());
        let through_now = Arc::new(Notify::new());
        let bytes = match moment {
            Moment::Through(bytes) => bytes,
            Moment::Parts(_) => body,
        };
        let report = Fault::Report(bytes, through_now.clone());
        let proxied = through(&engine, &table, report, LONG).await;
        let name = token(&table);
        let attempt = {
            let (block, name) = (block.clone(), name.clone());
            tokio::spawn(async move { proxied.insert(&block, &name).await })
        };
        through_now.notified().await;
        if let Moment::Parts(parts) = moment {
            while parts_on_disk(&engine.data()) < parts_before + parts && !attempt.is_finished() {
                tokio::task::yield_now().await;
            }
        }
        engine = engine.kill().await.restart().await;
        let acknowledged = attempt.await.unwrap().is_ok();

        let store = engine.store(&table);
        let landed = physical_rows(&store).await;
        store
            .insert_again(&block, &name, &keys(&rows))
            .await
            .unwrap();
        eprintln!("{moment:?}: acknowledged {acknowledged}, {landed} of 60000 rows had landed");
        assert!(!acknowledged || landed == 60_000, "{moment:?}");
        assert_eq!(store.count().await.unwrap(), 60_000, "{moment:?}");
        if landed == 60_000 {
            assert_eq!(physical_rows(&store).await, 60_000, "{moment:?}");
        }
    }
}

/// Folders of parts that are in the table, of any table.
fn parts_on_disk(data: &Path) -> usize {
    let inner = |folder: &Path| -> Vec<_> {
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect()
    };
    let tables = inner(&data.join("data/store")).into_iter();
    let tables = tables.flat_map(|folder| inner(&folder));
    tables
        .flat_map(|table| inner(&table))
        .filter(|path| is_part(path))
        .count()
}

fn is_part(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("2026"))
}

/// The same with a hundred months, so that kills fall between a note and its part
/// by themselves: in 20 of 50 rounds when it was tried. Run by hand.
#[tokio::test]
#[ignore = "takes minutes; how often a kill hits the gap is chance"]
async fn kills_in_inserts_of_many_parts_lose_nothing() {
    const ROUNDS: usize = 50;
    let mut engine = Engine::start().await;
    let months: Vec<u32> = (0..100).map(|month| month * 31 * 86_400).collect();
    let rows = cdr_rows(1000, &months);
    let block = encoded(&rows);
    let mut swallowed = 0;
    for round in 0..ROUNDS {
        let table = format!("many_{round}");
        let store = provisioned(&engine, &table).await;
        let name = token(&table);
        let attempt = {
            let (block, name) = (block.clone(), name.clone());
            tokio::spawn(async move { store.insert(&block, &name).await })
        };
        let log = deduplication_log(&engine.data()).await;
        let noted = || std::fs::read_to_string(&log).map_or(0, |text| text.lines().count());
        while noted() < round * 100 / ROUNDS && !attempt.is_finished() {
            tokio::task::yield_now().await;
        }
        engine = engine.kill().await.restart().await;
        let acknowledged = attempt.await.unwrap().is_ok();
        let store = engine.store(&table);
        assert!(!acknowledged || store.count().await.unwrap() == 1000);
        store.insert(&block, &name).await.unwrap();
        let lost = 1000 - store.count().await.unwrap();
        swallowed += usize::from(lost > 0);
        store
            .insert_again(&block, &name, &keys(&rows))
            .await
            .unwrap();
        assert_eq!(store.count().await.unwrap(), 1000, "round {round}");
        store
            .execute(&format!("DROP TABLE telecom.{table} SYNC"))
            .await
            .unwrap();
    }
    eprintln!("rounds={ROUNDS} swallowed={swallowed} lost=0");
}

/// The one that the data folder holds, as soon as it does.
async fn deduplication_log(data: &Path) -> std::path::PathBuf {
    loop {
        let mut open = vec![data.join("data/store")];
        while let Some(folder) = open.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                match path.ends_with("deduplication_log_1.txt") {
                    true => return path,
                    false if path.is_dir() => open.push(path),
                    false => {}
                }
            }
        }
        tokio::task::yield_now().await;
    }
}

/// What a kill leaves when it falls between the note in ClickHouse's
/// deduplication log and the part: made here by taking the part away.
#[tokio::test]
async fn rows_whose_token_is_known_but_that_are_not_there_are_written() {
    let engine = Engine::start().await;
    provisioned(&engine, "t").await;
    let rows = cdr_rows(600, &MONTHS);
    let (block, keys) = (encoded(&rows), keys(&rows));
    engine.store("t").insert(&block, &token("a")).await.unwrap();

    let stopped = engine.kill().await;
    remove_part(&stopped.data(), "202609_");
    let engine = stopped.restart().await;
    let store = engine.store("t");
    assert_eq!(physical_rows(&store).await, 500);
    assert_eq!(store.missing(&keys).await.unwrap(), 100);

    // The reason for all of this: ClickHouse says yes, and does nothing.
    store.insert(&block, &token("a")).await.unwrap();
    assert_eq!(physical_rows(&store).await, 500);

    store
        .insert_again(&block, &token("a"), &keys)
        .await
        .unwrap();
    assert_eq!(store.missing(&keys).await.unwrap(), 0);
    assert_eq!(store.count().await.unwrap(), 600);
}

fn remove_part(data: &Path, name: &str) {
    let mut open = vec![data.join("data/store")];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let found = path.file_name().unwrap().to_str().unwrap();
            if found.starts_with(name) {
                return std::fs::remove_dir_all(path).unwrap();
            }
            if path.is_dir() {
                open.push(path);
            }
        }
    }
    panic!("no part {name}");
}

/// Where ClickHouse refuses to look, for good or for its limits on reads: rows that
/// are in the table must not end as dead letters for it.
#[tokio::test]
async fn a_user_who_may_not_look_writes_rather_twice_than_not_at_all() {
    let engine = Engine::start_with("").await;
    for (user, code) in [("writer", 497), ("short_sighted", 158)] {
        let store = provisioned(&engine, user).await;
        let rows = cdr_rows(600, &MONTHS);
        let writer = engine.store_as(user, user);
        let block = encoded(&rows);
        writer.insert(&block, &token("a")).await.unwrap();
        let error = writer.missing(&keys(&rows)).await.unwrap_err();
        assert_eq!(error.code, Some(code), "{error}");
        writer
            .insert_again(&block, &token("a"), &keys(&rows))
            .await
            .unwrap();
        assert_eq!(physical_rows(&store).await, 1200, "{user}");
        assert_eq!(store.count().await.unwrap(), 600, "{user}");
    }
}

#[tokio::test]
async fn rows_are_found_by_every_column_of_the_key() {
    let engine = Engine::start().await;
    let store = provisioned(&engine, "t").await;
    let rows = cdr_rows(1000, &MONTHS);
    store
        .insert(&encoded(&rows.slice(0..999)), &token("a"))
        .await
        .unwrap();
    assert_eq!(store.missing(&keys(&rows)).await.unwrap(), 1);
    assert_eq!(store.missing(&keys(&rows.slice(0..0))).await.unwrap(), 0);
    // The same calls at another time are others.
    let moved = cdr_rows(1000, &[1_796_083_201]);
    assert_eq!(store.missing(&keys(&moved)).await.unwrap(), 1000);

    let short = Rows::empty(rows.specs()[..3].into());
    let error = RowKeys::new(&short, &TableLayout::cdr()).unwrap_err();
    assert_eq!(error.name, "cell_id");
}
