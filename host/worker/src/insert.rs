//! One insert, to its end: retried, split, isolated, or given up.
//!
//! ```text
//!   insert ─ ok ─────────────▶ inserted
//!     │ transient: again, after 500 ms, 1 s, 2 s … used up ─▶ dead letters (or again, for ever)
//!     │ too large: halves, down to a small part; that one counts as transient
//!     │ data: halves, until a row stands alone ─────────────▶ dead letter
//!     └ set-up: stop, commit nothing
//! ```
//!
//! An attempt that may be a repetition is checked: ClickHouse can know the token
//! of a batch whose rows it lost, and then acknowledges rows that it drops (see
//! `cdr_store::again`).
//!
//! The parts of a batch share one budget of retries: a server that is away is
//! waited for once, not once a part. A part that goes in renews it.

use crate::config::ExhaustedPolicy;
use crate::error::WorkerError;
use cdr_store::{
    BlockError, DedupToken, EncodedBlock, ErrorClass, MissingKey, RetryPolicy, RowKeys, Rows,
    Store, StoreError, TableLayout,
};
use std::ops::Range;
use std::time::Duration;

/// The longest pause between attempts that go on for ever.
pub(crate) const MAX_PAUSE: Duration = Duration::from_secs(30);

/// A batch that is over a limit is split into no more parts than this…
const MAX_PARTS: usize = 16;
/// …unless its parts are still larger than so many rows.
const LARGE_PART: usize = 64;

/// What takes blocks: ClickHouse, or a fake that fails as ClickHouse can't be
/// made to.
pub trait InsertBlock: Send + Sync {
    /// Inserts a block; `Ok` means that every row of it was taken. With `keys`,
    /// those of its rows, it may have been tried before, and is checked.
    fn insert(
        &self,
        block: &EncodedBlock,
        token: &DedupToken,
        keys: Option<&RowKeys>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

impl InsertBlock for Store {
    async fn insert(
        &self,
        block: &EncodedBlock,
        token: &DedupToken,
        keys: Option<&RowKeys>,
    ) -> Result<(), StoreError> {
        match keys {
            None => Store::insert(self, block, token).await,
            Some(keys) => self.insert_again(block, token, keys).await,
        }
    }
}

/// What to insert.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// The rows.
    pub rows: &'a Rows,
    /// The name of the batch.
    pub token: &'a DedupToken,
    /// The table's key is in there.
    pub layout: &'a TableLayout,
    /// A process that died may have tried this batch before.
    pub replayed: bool,
}

/// Who waits for an insert.
pub trait Watch: Send + Sync {
    /// An attempt failed, and there will be another.
    fn retried(&self, error: &StoreError);

    /// Whether anyone still wants these rows here: their partitions may have
    /// gone to another worker, which inserts them itself.
    fn is_wanted(&self, rows: Range<usize>) -> bool;
}

impl Batch<'_> {
    fn keys(&self, range: Range<usize>) -> Result<RowKeys, MissingKey> {
        RowKeys::new(&self.rows.slice(range), self.layout)
    }
}

/// How the rows of a batch ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Inserted {
    /// Rows that ClickHouse took.
    pub inserted: Vec<Range<usize>>,
    /// Rows that it did not take, and why.
    pub refused: Vec<(Range<usize>, String)>,
    /// Rows that were given up because nobody wanted them any more.
    pub abandoned: Vec<Range<usize>>,
}

/// How to go about failures.
#[derive(Debug, Clone, Copy)]
pub struct Persistence {
    /// Attempts and pauses.
    pub retry: RetryPolicy,
    /// What when they are used up.
    pub exhausted: ExhaustedPolicy,
}

impl Persistence {
    fn pauses(&self) -> Box<dyn Iterator<Item = Duration> + Send> {
        let retry = RetryPolicy {
            max_delay: self.retry.max_delay.min(MAX_PAUSE),
            ..self.retry
        };
        match self.exhausted {
            ExhaustedPolicy::DeadLetter => Box::new(retry.delays()),
            ExhaustedPolicy::Pause => Box::new(retry.delays_without_end()),
        }
    }
}

/// What to do about an attempt that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Retry,
    Split,
    Refuse,
    Stop,
}

impl Step {
    /// For a part of `rows` rows of a batch of `batch` rows.
    fn after(class: ErrorClass, rows: usize, batch: usize) -> Self {
        match class {
            ErrorClass::Setup => Step::Stop,
            ErrorClass::Transient => Step::Retry,
            ErrorClass::TooLarge if rows > (batch / MAX_PARTS).clamp(1, LARGE_PART) => Step::Split,
            // Small enough for any sensible limit: it is the limit that must pass.
            ErrorClass::TooLarge => Step::Retry,
            ErrorClass::Data if rows > 1 => Step::Split,
            ErrorClass::Data => Step::Refuse,
        }
    }
}

/// Inserts a batch. Every row of it ends as inserted, refused or abandoned.
///
/// # Errors
/// [`WorkerError::Setup`]: no batch can succeed; none of these rows is settled.
pub async fn insert_rows(
    store: &impl InsertBlock,
    batch: Batch<'_>,
    persistence: Persistence,
    watch: &impl Watch,
) -> Result<Inserted, WorkerError> {
    let Batch { rows, token, .. } = batch;
    let mut result = Inserted::default();
    // Parts yet to be inserted, the next one last.
    let whole_batch = 0..rows.len();
    let mut todo: Vec<_> = (!rows.is_empty())
        .then_some(whole_batch)
        .into_iter()
        .collect();
    let mut pauses = persistence.pauses();
    while let Some(range) = todo.pop() {
        // The same bytes under the same token at each attempt.
        let (block, part_token) = part(rows, token, range.clone())?;
        let mut keys = match batch.replayed {
            true => Some(batch.keys(range.clone())?),
            false => None,
        };
        loop {
            let tried = store.insert(&block, &part_token, keys.as_ref()).await;
            let Err(error) = tried else {
                pauses = persistence.pauses();
                result.inserted.push(range);
                break;
            };
            match Step::after(error.class, range.len(), rows.len()) {
                Step::Stop => return Err(WorkerError::Setup(error)),
                Step::Split => {
                    let middle = range.start + range.len() / 2;
                    todo.push(middle..range.end);
                    todo.push(range.start..middle);
                    break;
                }
                Step::Refuse => {
                    result.refused.push((range, error.to_string()));
                    break;
                }
                Step::Retry => {}
            }
            let Some(pause) = pauses.next() else {
                result.refused.push((range, error.to_string()));
                break;
            };
            watch.retried(&error);
            tracing::warn!(
                event = "insert_retried",
                rows = block.rows(),
                class = error.class.tag(),
                pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
                error = %error,
                "ClickHouse did not take a batch; trying again"
            );
            tokio::time::sleep(pause).await;
            if !watch.is_wanted(range.clone()) {
                result.abandoned.push(range);
                break;
            }
            if keys.is_none() {
                keys = Some(batch.keys(range.clone())?);
            }
        }
    }
    Ok(result)
}

fn part(
    rows: &Rows,
    token: &DedupToken,
    range: Range<usize>,
) -> Result<(EncodedBlock, DedupToken), BlockError> {
    if range.len() == rows.len() {
        Ok((EncodedBlock::new(rows)?, token.clone()))
    } else {
        Ok((
            EncodedBlock::new(&rows.slice(range.clone()))?,
            token.rows(range),
        ))
    }
}

#[cfg(test)]
mod tests {
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
            self.seen.lock().unwrap().push((
                block.body().to_vec(),
                token.to_string(),
                keys.is_some(),
            ));
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
        let column =
            Column::new(ColumnType::Uint32, Values::Uint32s(values.collect()), None).unwrap();
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
        let same = |attempt: &&(Vec<u8>, String, bool)| {
            (&attempt.0, &attempt.1) == (&seen[0].0, &seen[0].1)
        };
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
            let found = Step::after(ErrorClass::TooLarge, rows, batch);
            assert_eq!(found, step, "{rows} of {batch}");
        }
        assert_eq!(Step::after(ErrorClass::Data, 2, 1000), Step::Split);
        assert_eq!(Step::after(ErrorClass::Data, 1, 1000), Step::Refuse);
    }
}
