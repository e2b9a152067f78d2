//! One insert, to its end: retried, split, isolated, or given up.
//!
//! ```text
//!   insert ─ ok ─────────────▶ inserted
//!     │ transient: again, after 500 ms, 1 s, 2 s … used up ─▶ dead letters (or again, for ever)
//!     │ too large: halves, down to a small part; that one counts as transient,
//!     │            and is halved further when it does not pass
//!     │ data: halves, until a row stands alone ─────────────▶ dead letter
//!     └ set-up, or every row of many refused: stop, commit nothing
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

/// Where ClickHouse refuses every one of so many rows for what they hold, it is
/// not the rows: a constraint or a view that refuses all would empty the topic.
const ALL_REFUSED: usize = 16;

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
    /// For a part of `rows` rows of a batch of `batch` rows,
    /// that was tried as often as it may be if `worn`.
    fn after(class: ErrorClass, rows: usize, batch: usize, worn: bool) -> Self {
        match class {
            ErrorClass::Setup => Step::Stop,
            ErrorClass::Transient => Step::Retry,
            ErrorClass::TooLarge if rows > (batch / MAX_PARTS).clamp(1, LARGE_PART) => Step::Split,
            // It does not pass: one row may be what is too large.
            ErrorClass::TooLarge if worn && rows > 1 => Step::Split,
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
/// [`WorkerError::Setup`]: no batch can succeed, or every row of a larger one is
/// refused for what it holds; none of these rows is settled.
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
    let mut refused_for_data = 0;
    // A limit outlasted the retries of a part.
    let mut lasts = false;
    while let Some(range) = todo.pop() {
        // The same bytes under the same token at each attempt.
        let (block, part_token) = part(rows, token, range.clone())?;
        let mut keys = match batch.replayed {
            true => Some(batch.keys(range.clone())?),
            false => None,
        };
        let mut retries = 0;
        loop {
            let tried = store.insert(&block, &part_token, keys.as_ref()).await;
            let Err(error) = tried else {
                pauses = persistence.pauses();
                result.inserted.push(range);
                break;
            };
            let worn = lasts || retries >= persistence.retry.max_attempts;
            match Step::after(error.class, range.len(), rows.len(), worn) {
                Step::Stop => return Err(WorkerError::Setup(error)),
                Step::Split => {
                    lasts |= worn && error.class == ErrorClass::TooLarge;
                    let middle = range.start + range.len() / 2;
                    todo.push(middle..range.end);
                    todo.push(range.start..middle);
                    break;
                }
                Step::Refuse => {
                    refused_for_data += 1;
                    if refused_for_data == rows.len() && rows.len() >= ALL_REFUSED {
                        return Err(WorkerError::Setup(StoreError {
                            class: ErrorClass::Setup,
                            message: format!(
                                "every one of {} rows was refused for what it holds, so it is the table, \
                                 a constraint or a view that refuses: {}",
                                rows.len(),
                                error.message
                            ),
                            ..error
                        }));
                    }
                    result.refused.push((range, error.to_string()));
                    break;
                }
                Step::Retry => {}
            }
            let Some(pause) = pauses.next() else {
                result.refused.push((range, error.to_string()));
                break;
            };
            retries += 1;
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
mod tests;
