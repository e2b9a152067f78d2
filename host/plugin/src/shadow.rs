//! A candidate in the shadow of what serves: it is shown a sample of live batches,
//! its answers are compared, and go nowhere.
//!
//! ```text
//!  live batch ──▶ serving normalizer ──▶ rows
//!      │ sampled, if there is room            │ a copy
//!      └────▶ queue of 2 ──▶ candidate ──▶ compare ──▶ counts, few redacted examples
//! ```
//!
//! It takes what is left: threads of its own at the lowest priority (a
//! [`PluginHost`](crate::PluginHost) with [`HostConfig::nice`](crate::HostConfig)),
//! a short queue, and under load batches are dropped from it, and counted, before
//! anything live waits.

use crate::batch::Batch;
use crate::diff::{Diff, Kind};
use crate::live::Serving;
use crate::normalizer::{Normalized, Normalizer, Provenance};
use crate::threads::be_nice;
use serde::Serialize;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;

/// The lowest priority there is.
const LOWEST: i32 = 19;

/// Batches that may wait.
const QUEUE: usize = 2;

/// What was seen of a candidate; begins anew with each pair of versions.
#[derive(Debug, Default)]
pub struct ShadowReport {
    /// Taken for moments only: live batches pass by here.
    shown: Mutex<Option<Arc<Comparison>>>,
    /// By kind, since this process started.
    totals: [AtomicU64; Kind::ALL.len()],
    dropped: AtomicU64,
}

/// The comparison of one pair of versions.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// What serves.
    pub active: Provenance,
    /// The candidate.
    pub candidate: Provenance,
    /// Batches that were compared.
    pub batches: u64,
    /// Batches that were sampled and not compared, for want of time, up to the last
    /// that was.
    pub dropped_batches: u64,
    /// Since when, in RFC 3339.
    pub since: String,
    /// The result.
    pub diff: Diff,
    #[serde(skip)]
    dropped_before: u64,
}

impl ShadowReport {
    /// The present comparison, if there is one.
    pub fn comparison(&self) -> Option<Arc<Comparison>> {
        let shown = self.shown.lock();
        shown.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records by kind, and dropped batches, since this process started.
    pub fn totals(&self) -> (Vec<(Kind, u64)>, u64) {
        let kinds = Kind::ALL
            .iter()
            .zip(&self.totals)
            .map(|(kind, total)| (*kind, total.load(Ordering::Relaxed)))
            .collect();
        (kinds, self.dropped.load(Ordering::Relaxed))
    }

    fn drop_one(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Compares on this thread, and shows the result.
    fn add(&self, present: &mut Option<Comparison>, job: &Job, after: &Normalized) {
        let (active, candidate) = (job.active.provenance(), job.candidate.provenance());
        let fits = |comparison: &Comparison| {
            comparison.active == *active && comparison.candidate == *candidate
        };
        let dropped = self.dropped.load(Ordering::Relaxed);
        let mut comparison = present.take().filter(fits).unwrap_or_else(|| Comparison {
            active: active.clone(),
            candidate: candidate.clone(),
            batches: 0,
            dropped_batches: 0,
            since: crate::live::now(),
            diff: Diff::new(job.active.manifest(), job.candidate.manifest()),
            dropped_before: dropped,
        });
        let before = comparison.diff.kinds.clone();
        comparison.batches += 1;
        comparison.dropped_batches = dropped - comparison.dropped_before;
        comparison.diff.add(
            job.batch.len(),
            (&job.active.manifest().columns, &job.before),
            (&job.candidate.manifest().columns, after),
        );
        for (kind, total) in Kind::ALL.iter().zip(&self.totals) {
            let count = |kinds: &std::collections::BTreeMap<Kind, u64>| {
                kinds.get(kind).copied().unwrap_or(0)
            };
            let more = count(&comparison.diff.kinds) - count(&before);
            total.fetch_add(more, Ordering::Relaxed);
        }
        let shown = Some(Arc::new(comparison.clone()));
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = shown;
        *present = Some(comparison);
    }
}

struct Job {
    active: Normalizer,
    candidate: Normalizer,
    batch: Batch,
    before: Normalized,
}

/// The way into the shadow. Ends with this.
#[derive(Debug)]
pub struct Shadow {
    queue: mpsc::Sender<Job>,
    report: Arc<ShadowReport>,
    draws: RandomState,
    drawn: AtomicU64,
}

impl Shadow {
    /// Starts it; candidates are asked through the current runtime. Comparing is work
    /// too, and has a thread of its own, of the lowest priority.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn start(report: Arc<ShadowReport>) -> std::io::Result<Self> {
        let (queue, mut jobs) = mpsc::channel::<Job>(QUEUE);
        let to = Arc::clone(&report);
        let runtime = tokio::runtime::Handle::current();
        std::thread::Builder::new()
            .name("shadow".to_owned())
            .spawn(move || {
                be_nice(LOWEST);
                let mut present = None;
                while let Some(job) = jobs.blocking_recv() {
                    let asked = job.candidate.normalize(job.batch.clone());
                    let Ok(after) = runtime.block_on(asked) else {
                        // Its threads have ended, and so does the process.
                        return;
                    };
                    // A panic costs what was compared so far, not the thread.
                    let _ = catch_unwind(AssertUnwindSafe(|| to.add(&mut present, &job, &after)));
                }
            })?;
        Ok(Self {
            queue,
            report,
            draws: RandomState::new(),
            drawn: AtomicU64::new(0),
        })
    }

    /// A copy of the batch, if it is to be shown to the candidate and there is room
    /// for it.
    pub fn sample(&self, serving: &Serving, batch: &Batch) -> Option<Batch> {
        let shadowing = serving.shadow.as_ref()?;
        if !self.draw(shadowing.sample) {
            return None;
        }
        if self.queue.capacity() == 0 {
            self.report.drop_one();
            return None;
        }
        Some(batch.clone())
    }

    /// Shows the candidate a sampled batch, with what was made of it.
    pub fn offer(&self, serving: &Serving, batch: Batch, normalized: &Normalized) {
        let Some(shadowing) = &serving.shadow else {
            return;
        };
        let job = Job {
            active: serving.normalizer.clone(),
            candidate: shadowing.candidate.clone(),
            batch,
            before: normalized.clone(),
        };
        if self.queue.try_send(job).is_err() {
            self.report.drop_one();
        }
    }

    /// True in so many of cases. The hasher's keys are random; nothing here needs
    /// better dice.
    fn draw(&self, share: f64) -> bool {
        let mut hasher = self.draws.build_hasher();
        hasher.write_u64(self.drawn.fetch_add(1, Ordering::Relaxed));
        let unit = (hasher.finish() >> 11) as f64 / (1_u64 << 53) as f64;
        unit < share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_is_about_what_was_asked_for() {
        let (queue, _jobs) = mpsc::channel(1);
        let shadow = Shadow {
            queue,
            report: Arc::default(),
            draws: RandomState::new(),
            drawn: AtomicU64::new(0),
        };
        // Six deviations off on either side: once in a thousand million runs.
        let drawn = (0..10_000).filter(|_| shadow.draw(0.1)).count();
        assert!((820..1180).contains(&drawn), "{drawn}");
        assert!((0..1000).all(|_| shadow.draw(1.0)));
    }
}
