//! One insert, to its end: retried, bisected, or given up.
//!
//! ```text
//!   insert ─ ok ─────────────▶ inserted
//!     │ transient: again, after 500 ms, 1 s, 2 s … used up ─▶ dead letters (or again, for ever)
//!     │ data: halves, until a row stands alone ─────────────▶ dead letter
//!     └ set-up: stop, commit nothing
//! ```

use crate::config::ExhaustedPolicy;
use crate::error::WorkerError;
use cdr_store::{
    BlockError, DedupToken, EncodedBlock, ErrorClass, RetryPolicy, Rows, Store, StoreError,
};
use std::ops::Range;
use std::time::Duration;

/// The longest pause between attempts that go on for ever.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// What takes blocks: ClickHouse, or a fake that fails as ClickHouse can't be
/// made to.
pub trait InsertBlock: Send + Sync {
    /// Inserts a block; `Ok` means that every row of it was taken.
    fn insert(
        &self,
        block: &EncodedBlock,
        token: &DedupToken,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

impl InsertBlock for Store {
    async fn insert(&self, block: &EncodedBlock, token: &DedupToken) -> Result<(), StoreError> {
        Store::insert(self, block, token).await
    }
}

/// How the rows of a batch ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Inserted {
    /// Rows that ClickHouse took.
    pub inserted: Vec<Range<usize>>,
    /// Rows that it did not take, and why.
    pub refused: Vec<(Range<usize>, String)>,
}

/// How to go about failures.
#[derive(Debug, Clone, Copy)]
pub struct Persistence {
    /// Attempts and pauses.
    pub retry: RetryPolicy,
    /// What when they are used up.
    pub exhausted: ExhaustedPolicy,
}

/// Inserts a batch. Every row of it ends as inserted or refused.
///
/// # Errors
/// [`WorkerError::Setup`]: no batch can succeed; none of these rows is settled.
pub async fn insert_rows(
    store: &impl InsertBlock,
    rows: &Rows,
    token: &DedupToken,
    persistence: Persistence,
    on_retry: impl Fn(&StoreError),
) -> Result<Inserted, WorkerError> {
    let mut result = Inserted::default();
    // Parts yet to be inserted, the next one last.
    let whole_batch = 0..rows.len();
    let mut todo: Vec<_> = (!rows.is_empty())
        .then_some(whole_batch)
        .into_iter()
        .collect();
    while let Some(range) = todo.pop() {
        let whole = range.len() == rows.len();
        let (block, part_token) = part(rows, token, range.clone(), whole)?;
        match insert_block(store, &block, &part_token, persistence, &on_retry).await {
            Ok(()) => result.inserted.push(range),
            Err(error) => match error.class {
                ErrorClass::Setup => return Err(WorkerError::Setup(error)),
                ErrorClass::Data | ErrorClass::TooLarge if range.len() > 1 => {
                    let middle = range.start + range.len() / 2;
                    todo.push(middle..range.end);
                    todo.push(range.start..middle);
                }
                _ => {
                    result.refused.push((range, error.to_string()));
                }
            },
        }
    }
    Ok(result)
}

fn part(
    rows: &Rows,
    token: &DedupToken,
    range: Range<usize>,
    whole: bool,
) -> Result<(EncodedBlock, DedupToken), BlockError> {
    if whole {
        Ok((EncodedBlock::new(rows)?, token.clone()))
    } else {
        Ok((
            EncodedBlock::new(&rows.slice(range.clone()))?,
            token.rows(range),
        ))
    }
}

/// One block, with retries: the same bytes under the same token each time.
async fn insert_block(
    store: &impl InsertBlock,
    block: &EncodedBlock,
    token: &DedupToken,
    persistence: Persistence,
    on_retry: &impl Fn(&StoreError),
) -> Result<(), StoreError> {
    let retry = RetryPolicy {
        max_delay: persistence.retry.max_delay.min(MAX_PAUSE),
        ..persistence.retry
    };
    let mut pauses: Box<dyn Iterator<Item = Duration> + Send> = match persistence.exhausted {
        ExhaustedPolicy::DeadLetter => Box::new(retry.delays()),
        ExhaustedPolicy::Pause => Box::new(retry.delays_without_end()),
    };
    loop {
        match store.insert(block, token).await {
            Ok(()) => return Ok(()),
            Err(error) if error.class != ErrorClass::Transient => return Err(error),
            Err(error) => {
                let Some(pause) = pauses.next() else {
                    return Err(error);
                };
                on_retry(&error);
                tracing::warn!(
                    event = "insert_retried",
                    rows = block.rows(),
                    pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
                    error = %error,
                    "ClickHouse did not take a batch; trying again"
                );
                tokio::time::sleep(pause).await;
            }
        }
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
        seen: Mutex<Vec<(Vec<u8>, String)>>,
    }

    impl Fake {
        fn new(bad: &[u32], transient: u32, setup: bool) -> Self {
            Self {
                bad: bad.iter().copied().collect(),
                transient: Mutex::new(transient),
                setup,
                seen: Mutex::default(),
            }
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
        async fn insert(&self, block: &EncodedBlock, token: &DedupToken) -> Result<(), StoreError> {
            self.seen
                .lock()
                .unwrap()
                .push((block.body().to_vec(), token.to_string()));
            if self.setup {
                return Err(error(ErrorClass::Setup));
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
        let result = insert_rows(&fake, &rows(0..16), &token(), ONCE, |_| {})
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
        let retries = Mutex::new(0);
        let started = tokio::time::Instant::now();
        let result = insert_rows(&fake, &rows(0..16), &token(), ONCE, |_| {
            *retries.lock().unwrap() += 1;
        })
        .await
        .unwrap();
        assert_eq!(result.inserted, vec![0..16]);
        assert_eq!(*retries.lock().unwrap(), 3);
        assert_eq!(started.elapsed(), Duration::from_millis(500 + 1000 + 2000));
        let seen = fake.seen.lock().unwrap();
        assert_eq!(seen.len(), 4);
        assert!(seen.iter().all(|attempt| *attempt == seen[0]));
    }

    #[tokio::test(start_paused = true)]
    async fn used_up_attempts_refuse_the_whole_batch() {
        let fake = Fake::new(&[], 4, false);
        let result = insert_rows(&fake, &rows(0..16), &token(), ONCE, |_| {})
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
        let result = insert_rows(&fake, &rows(0..16), &token(), pause, |_| {})
            .await
            .unwrap();
        assert_eq!(result.inserted, vec![0..16]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_broken_set_up_blames_no_record() {
        let fake = Fake::new(&[], 0, true);
        let result = insert_rows(&fake, &rows(0..16), &token(), ONCE, |_| {}).await;
        assert!(matches!(result, Err(WorkerError::Setup(_))));
        assert_eq!(fake.seen.lock().unwrap().len(), 1);
    }
}
