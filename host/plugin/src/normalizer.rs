//! A loaded normalizer: what hosts hold and ask.

use crate::batch::Batch;
use crate::contract::{Admission, Manifest, Outcome, Rejection, Violation};
use crate::error::{Fault, FaultKind, RunError};
use crate::guest::Compiled;
use crate::isolate::{Part, isolate};
use crate::threads::GuestThreads;
use crate::validate;
use std::sync::Arc;
use std::time::Instant;

/// Where a normalizer's answers come from; rows, dead letters, metrics and logs
/// carry it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Provenance {
    /// The name in its manifest.
    pub name: String,
    /// The version in its manifest.
    pub version: String,
    /// SHA-256 of the .wasm file and its settings, in hexadecimal.
    pub digest: String,
    /// SHA-256 of the .wasm file alone, in hexadecimal.
    pub file_digest: String,
    /// SHA-256 of the settings, in hexadecimal.
    pub settings_digest: String,
}

/// The answer to an admission, record by record.
#[derive(Debug, Clone, PartialEq)]
pub enum Admitted {
    /// It may go onto the topic.
    Yes(Admission),
    /// It may not.
    No(Violation),
    /// The normalizer failed on it.
    Fault(Fault),
}

/// The answer to a batch.
#[derive(Debug, Clone, Default)]
pub struct Normalized {
    /// The rows, in one part, or in several where faulty records were cut out.
    /// `rows` are indices into the batch; `rejections` are empty.
    pub parts: Vec<Outcome>,
    /// The records that can't become rows.
    pub rejections: Vec<Rejection>,
    /// The records on which the normalizer failed.
    pub faults: Vec<(u32, Fault)>,
}

impl Normalized {
    /// How many rows came out.
    pub fn rows(&self) -> usize {
        self.parts.iter().map(|part| part.rows.len()).sum()
    }
}

/// A loaded normalizer. Cheap to clone.
#[derive(Clone)]
pub struct Normalizer {
    inner: Arc<Inner>,
    threads: GuestThreads,
}

struct Inner {
    compiled: Compiled,
    manifest: Manifest,
    provenance: Provenance,
}

impl std::fmt::Debug for Normalizer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Normalizer")
            .field("provenance", &self.inner.provenance)
            .finish_non_exhaustive()
    }
}

impl Normalizer {
    pub(crate) fn new(
        compiled: Compiled,
        manifest: Manifest,
        provenance: Provenance,
        threads: GuestThreads,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                compiled,
                manifest,
                provenance,
            }),
            threads,
        }
    }

    /// What it says of itself.
    pub fn manifest(&self) -> &Manifest {
        &self.inner.manifest
    }

    /// Where its answers come from.
    pub fn provenance(&self) -> &Provenance {
        &self.inner.provenance
    }

    /// May these records onto the topic? One answer each, in order.
    ///
    /// # Errors
    /// The batch was not run. Faults of the guest are no errors but answers.
    pub async fn admit(&self, batch: Batch) -> Result<Vec<Admitted>, RunError> {
        let inner = Arc::clone(&self.inner);
        self.threads.run(move || inner.admit(&batch)).await
    }

    /// What rows do these records make?
    ///
    /// # Errors
    /// The batch was not run. Faults of the guest are no errors but answers.
    pub async fn normalize(&self, batch: Batch) -> Result<Normalized, RunError> {
        let inner = Arc::clone(&self.inner);
        self.threads.run(move || inner.normalize(&batch)).await
    }

    /// [`normalize`](Self::normalize) on the calling thread, which must not
    /// belong to an async runtime: for benchmarks and tools.
    pub fn normalize_here(&self, batch: &Batch) -> Normalized {
        self.inner.normalize(batch)
    }

    /// [`admit`](Self::admit) on the calling thread, with the same caution.
    pub fn admit_here(&self, batch: &Batch) -> Vec<Admitted> {
        self.inner.admit(batch)
    }
}

impl Inner {
    /// Runs `call` on the batch and, if that fails, on ever smaller parts of it.
    fn run<R>(&self, batch: &Batch, call: impl Fn(&Batch) -> Result<R, Fault>) -> Vec<Part<R>> {
        let limits = &self.compiled.limits;
        // At least what finding one record that takes all its time may need:
        // calls of n, n/2, n/4 … records, and half as many good ones beside.
        let records = u32::try_from(batch.len()).unwrap_or(u32::MAX);
        let budget = limits
            .isolation
            .max(limits.call_time(records).saturating_mul(4));
        let mut started: Option<Instant> = None;
        isolate(
            batch.len(),
            |range| {
                let single = range.len() == 1;
                let slice;
                let part = if range.len() == batch.len() {
                    batch
                } else {
                    slice = batch.slice(range);
                    &slice
                };
                match call(part) {
                    // The machine may have stalled: a record is condemned for
                    // its time only if it takes it twice.
                    Err(fault) if single && fault.kind == FaultKind::Deadline => call(part),
                    answer => answer,
                }
            },
            || started.get_or_insert_with(Instant::now).elapsed() < budget,
        )
    }

    fn admit(&self, batch: &Batch) -> Vec<Admitted> {
        let parts = self.run(batch, |part| {
            self.compiled
                .admit(part, |answers| validate::admissions(part, answers))
        });
        let mut all = Vec::with_capacity(batch.len());
        for (range, answer) in parts {
            match answer {
                Ok(answers) => all.extend(answers.into_iter().map(|answer| match answer {
                    Ok(admission) => Admitted::Yes(admission),
                    Err(violation) => Admitted::No(violation),
                })),
                Err(fault) => all.extend(range.map(|row| {
                    Admitted::Fault(validate::fault(fault.clone(), batch.payload(row)))
                })),
            }
        }
        all
    }

    fn normalize(&self, batch: &Batch) -> Normalized {
        let parts = self.run(batch, |part| {
            self.compiled.normalize(part, |outcome| {
                validate::outcome(&self.manifest.columns, part, outcome)
            })
        });
        let mut all = Normalized::default();
        for (range, answer) in parts {
            // A batch has less than 2^32 records: its offsets are 32 bits wide.
            let start = range.start as u32;
            match answer {
                Ok(mut outcome) => {
                    for rejection in &mut outcome.rejections {
                        rejection.row += start;
                    }
                    all.rejections.append(&mut outcome.rejections);
                    if !outcome.rows.is_empty() {
                        for row in &mut outcome.rows {
                            *row += start;
                        }
                        all.parts.push(outcome);
                    }
                }
                Err(fault) => all.faults.extend(range.map(|row| {
                    (
                        row as u32,
                        validate::fault(fault.clone(), batch.payload(row)),
                    )
                })),
            }
        }
        all
    }
}
