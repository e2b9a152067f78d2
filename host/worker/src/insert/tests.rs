//! The store is a fake here: ClickHouse can't be made to refuse single rows
//! or to fail a given number of times.

use super::*;
use cdr_store::{Column, ColumnSpec, ColumnType, OffsetRange, Values};
use std::collections::BTreeSet;
use std::sync::Mutex;

struct Fake {
    /// Rows (their value) that can't be stored.
    bad: BTreeSet<u32>,
    /// Attempts that fail before any succeeds.
    transient: Mutex<u32>,
    setup: bool,
    /// Blocks of more rows are over a limit.
    limit: usize,
    /// Bytes, token, and whether it was checked as a repetition.
    seen: Mutex<Vec<(Vec<u8>, String, bool)>>,
}

impl Fake {
    fn new(bad: &[u32], transient: u32, setup: bool) -> Self {
        Self {
            bad: bad.iter().copied().collect(),
            transient: Mutex::new(transient),
            setup,
            limit: usize::MAX,
            seen: Mutex::default(),
        }
    }
}

/// Counts retries; wants rows for so many of them.
struct Waits {
    retries: Mutex<u32>,
    patience: u32,
}

impl Waits {
    fn for_ever() -> Self {
        Self {
            retries: Mutex::new(0),
            patience: u32::MAX,
        }
    }

    fn retries(&self) -> u32 {
        *self.retries.lock().unwrap()
    }
}

impl Watch for Waits {
    fn retried(&self, _: &StoreError) {
        *self.retries.lock().unwrap() += 1;
    }

    fn is_wanted(&self, _: Range<usize>) -> bool {
        self.retries() < self.patience
    }
}

fn error(class: ErrorClass) -> StoreError {
    StoreError {
        class,
        code: None,
        name: "test".to_owned(),
        message: "as the test wants".to_owned(),
        operation: "insert".to_owned(),
        address: "nowhere".to_owned(),
    }
}

impl InsertBlock for Fake {
    async fn insert(
        &self,
        block: &EncodedBlock,
        token: &DedupToken,
        keys: Option<&RowKeys>,
    ) -> Result<(), StoreError> {
        self.seen
            .lock()
            .unwrap()
            .push((block.body().to_vec(), token.to_string(), keys.is_some()));
        if self.setup {
            return Err(error(ErrorClass::Setup));
        }
        if block.rows() > self.limit {
            return Err(error(ErrorClass::TooLarge));
        }
        {
            let mut left = self.transient.lock().unwrap();
            if *left > 0 {
                *left -= 1;
                return Err(error(ErrorClass::Transient));
            }
        }
        // The rows of the block, by the bytes it would have without them.
        let holds_bad = self.bad.iter().any(|bad| {
            (0..=64_u32).any(|start| {
                let end = start + u32::try_from(block.rows()).unwrap();
                (start..end).contains(bad)
                    && EncodedBlock::new(&rows(start..end)).unwrap().body() == block.body()
            })
        });
        if holds_bad {
            Err(error(ErrorClass::Data))
        } else {
            Ok(())
        }
    }
}

fn rows(values: Range<u32>) -> Rows {
    let specs = [ColumnSpec::new("n", ColumnType::Uint32)];
    let column = Column::new(ColumnType::Uint32, Values::Uint32s(values.collect()), None).unwrap();
    Rows::new(specs.into(), vec![column]).unwrap()
}

fn token() -> DedupToken {
    let range = OffsetRange {
        partition: 0,
        first: 0,
        last: 15,
        first_timestamp: 0,
    };
    DedupToken::new("cdr.raw", &[range], "digest")
}

async fn insert(
    fake: &Fake,
    replayed: bool,
    persistence: Persistence,
    waits: &Waits,
) -> Result<Inserted, WorkerError> {
    let batch = Batch {
        rows: &rows(0..16),
        token: &token(),
        layout: &TableLayout {
            key: vec![ColumnSpec::new("n", ColumnType::Uint32)],
            ..TableLayout::cdr()
        },
        replayed,
    };
    insert_rows(fake, batch, persistence, waits).await
}

const ONCE: Persistence = Persistence {
    retry: RetryPolicy {
        max_attempts: 3,
        initial: Duration::from_millis(500),
        factor: 2.0,
        max_delay: Duration::from_secs(60),
    },
    exhausted: ExhaustedPolicy::DeadLetter,
};

#[tokio::test(start_paused = true)]
async fn exactly_the_bad_rows_are_refused() {
    let fake = Fake::new(&[3, 4, 11], 0, false);
    let result = insert(&fake, false, ONCE, &Waits::for_ever())
        .await
        .unwrap();
    let refused: Vec<_> = result
        .refused
        .iter()
        .map(|(range, _)| range.clone())
        .collect();
    assert_eq!(refused, [3..4, 4..5, 11..12]);
    let inserted: usize = result.inserted.iter().map(Range::len).sum();
    assert_eq!(inserted, 13);
}

#[tokio::test(start_paused = true)]
async fn a_retry_sends_the_same_bytes_under_the_same_token() {
    let fake = Fake::new(&[], 3, false);
    let waits = Waits::for_ever();
    let started = tokio::time::Instant::now();
    let result = insert(&fake, false, ONCE, &waits).await.unwrap();
    assert_eq!(result.inserted, vec![0..16]);
    assert_eq!(waits.retries(), 3);
    assert_eq!(started.elapsed(), Duration::from_millis(500 + 1000 + 2000));
    let seen = fake.seen.lock().unwrap();
    assert_eq!(seen.len(), 4);
    let same =
        |attempt: &&(Vec<u8>, String, bool)| (&attempt.0, &attempt.1) == (&seen[0].0, &seen[0].1);
    assert_eq!(seen.iter().filter(same).count(), 4);
    let checked: Vec<bool> = seen.iter().map(|attempt| attempt.2).collect();
    assert_eq!(
        checked,
        [false, true, true, true],
        "repetitions are checked"
    );
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_a_dead_process_may_have_tried_is_checked_at_once() {
    let fake = Fake::new(&[3], 0, false);
    insert(&fake, true, ONCE, &Waits::for_ever()).await.unwrap();
    let seen = fake.seen.lock().unwrap();
    assert!(seen.iter().all(|attempt| attempt.2));
}

#[tokio::test(start_paused = true)]
async fn used_up_attempts_refuse_the_whole_batch() {
    let fake = Fake::new(&[], 4, false);
    let result = insert(&fake, false, ONCE, &Waits::for_ever())
        .await
        .unwrap();
    assert!(result.inserted.is_empty());
    assert_eq!(result.refused[0].0, 0..16);
}

#[tokio::test(start_paused = true)]
async fn pausing_never_gives_up() {
    let fake = Fake::new(&[], 40, false);
    let pause = Persistence {
        exhausted: ExhaustedPolicy::Pause,
        ..ONCE
    };
    let result = insert(&fake, false, pause, &Waits::for_ever())
        .await
        .unwrap();
    assert_eq!(result.inserted, vec![0..16]);
}

#[tokio::test(start_paused = true)]
async fn a_broken_set_up_blames_no_record() {
    let fake = Fake::new(&[], 0, true);
    let result = insert(&fake, false, ONCE, &Waits::for_ever()).await;
    assert!(matches!(result, Err(WorkerError::Setup(_))));
    assert_eq!(fake.seen.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_batch_over_a_limit_goes_in_by_parts() {
    let fake = Fake {
        limit: 5,
        ..Fake::new(&[], 0, false)
    };
    let waits = Waits::for_ever();
    let started = tokio::time::Instant::now();
    let result = insert(&fake, false, ONCE, &waits).await.unwrap();
    assert_eq!(result.inserted, [0..4, 4..8, 8..12, 12..16]);
    assert_eq!(waits.retries(), 0);
    assert!(started.elapsed().is_zero(), "smaller parts need no pause");
}

#[tokio::test(start_paused = true)]
async fn a_table_that_refuses_every_row_is_what_is_broken() {
    let all: Vec<u32> = (0..16).collect();
    let fake = Fake::new(&all, 0, false);
    let error = insert(&fake, false, ONCE, &Waits::for_ever())
        .await
        .unwrap_err();
    assert!(matches!(error, WorkerError::Setup(_)), "{error}");
    assert!(
        error.to_string().contains("every one of 16 rows"),
        "{error}"
    );
    // One row that goes in shows that it is the others.
    let fake = Fake::new(&all[1..], 0, false);
    let result = insert(&fake, false, ONCE, &Waits::for_ever())
        .await
        .unwrap();
    assert_eq!(result.refused.len(), 15);
}

/// A row that alone is over a limit takes no others with it.
#[tokio::test(start_paused = true)]
async fn a_row_that_is_too_large_is_found() {
    struct OneIsTooLarge;
    impl InsertBlock for OneIsTooLarge {
        async fn insert(
            &self,
            block: &EncodedBlock,
            _: &DedupToken,
            _: Option<&RowKeys>,
        ) -> Result<(), StoreError> {
            let found = (0..64_u32).any(|start| {
                let end = start + u32::try_from(block.rows()).unwrap();
                (start..end).contains(&7)
                    && EncodedBlock::new(&rows(start..end)).unwrap().body() == block.body()
            });
            match found {
                true => Err(error(ErrorClass::TooLarge)),
                false => Ok(()),
            }
        }
    }
    let batch = Batch {
        rows: &rows(0..640),
        token: &token(),
        layout: &TableLayout {
            key: vec![ColumnSpec::new("n", ColumnType::Uint32)],
            ..TableLayout::cdr()
        },
        replayed: false,
    };
    let result = insert_rows(&OneIsTooLarge, batch, ONCE, &Waits::for_ever())
        .await
        .unwrap();
    let refused: Vec<_> = result.refused.into_iter().map(|(range, _)| range).collect();
    assert_eq!((refused.len(), &refused[0]), (1, &(7..8)));
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_no_part_respects_blames_no_row() {
    let fake = Fake {
        limit: 0,
        ..Fake::new(&[], 0, false)
    };
    let started = tokio::time::Instant::now();
    let result = insert(&fake, false, ONCE, &Waits::for_ever())
        .await
        .unwrap();
    assert!(result.inserted.is_empty());
    let refused: usize = result.refused.iter().map(|(range, _)| range.len()).sum();
    assert_eq!(refused, 16);
    // One budget for the batch, not one a part.
    assert_eq!(started.elapsed(), Duration::from_millis(500 + 1000 + 2000));
}

#[tokio::test(start_paused = true)]
async fn rows_that_nobody_wants_any_more_are_given_up() {
    let fake = Fake::new(&[], 1000, false);
    let pause = Persistence {
        exhausted: ExhaustedPolicy::Pause,
        ..ONCE
    };
    let waits = Waits {
        patience: 7,
        ..Waits::for_ever()
    };
    let result = insert(&fake, false, pause, &waits).await.unwrap();
    assert_eq!(result.abandoned, vec![0..16]);
    assert_eq!(waits.retries(), 7);
    assert!(result.inserted.is_empty() && result.refused.is_empty());
}

#[test]
fn splitting_for_a_limit_ends_at_a_small_part_and_for_data_at_a_row() {
    for (rows, batch, step) in [
        (16, 16, Step::Split),
        (2, 16, Step::Split),
        (1, 16, Step::Retry),
        (63, 1000, Step::Split),
        (62, 1000, Step::Retry),
        (65, 1_000_000, Step::Split),
        (64, 1_000_000, Step::Retry),
    ] {
        let found = Step::after(ErrorClass::TooLarge, rows, batch, false);
        assert_eq!(found, step, "{rows} of {batch}");
    }
    let worn = |rows| Step::after(ErrorClass::TooLarge, rows, 1000, true);
    assert_eq!((worn(62), worn(1)), (Step::Split, Step::Retry));
    assert_eq!(Step::after(ErrorClass::Data, 2, 1000, false), Step::Split);
    assert_eq!(Step::after(ErrorClass::Data, 1, 1000, false), Step::Refuse);
}
