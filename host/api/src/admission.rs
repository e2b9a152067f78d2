//! Admission in batches that form by themselves.
//!
//! ```text
//!   records ──► queue ──► lane: everything that waits, up to a bound ──► sandbox
//!                    └──► lane: …
//! ```
//!
//! A lane takes what waits at the moment it is free, without waiting for more:
//! an idle host judges a record at once, and a busy one shares the price of a
//! fresh sandbox among all that arrived meanwhile.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cdr_telemetry::health::{Health, Heartbeat};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::Instant;

use crate::metrics::ApiMetrics;
use crate::ports::{Admit, AdmitError, AdmitResult};

/// Records of a batch.
const BATCH_RECORDS: usize = 256;
/// Bytes at which a batch is not added to; it may go over by one record.
const BATCH_BYTES: usize = 1 << 20;
/// How long a batch may be in admission before the process counts as stuck. Far
/// above any deadline of a sandbox.
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// The way into admission. Clones share it; the lanes end with the last.
#[derive(Clone)]
pub(crate) struct Admission {
    // Unbounded here, since every record in it holds a permit of the bound
    // of outstanding records.
    queue: mpsc::UnboundedSender<Waiting>,
}

struct Waiting {
    payload: Bytes,
    received_at: i64,
    verdict: oneshot::Sender<Result<AdmitResult, AdmitError>>,
}

impl Admission {
    /// Starts the lanes, on the current tokio runtime.
    pub(crate) fn start(
        admit: Arc<dyn Admit>,
        lanes: usize,
        metrics: &ApiMetrics,
        health: &Health,
    ) -> Self {
        let (queue, waiting) = mpsc::unbounded_channel();
        let waiting = Arc::new(Mutex::new(waiting));
        for lane in 0..lanes.max(1) {
            let lane = Lane {
                admit: admit.clone(),
                waiting: waiting.clone(),
                metrics: metrics.clone(),
                heartbeat: health.heartbeat(&format!("admission-{lane}"), STUCK_AFTER),
            };
            tokio::spawn(lane.run());
        }
        Admission { queue }
    }

    /// Judges a record that was received at `received_at` (ms since 1970).
    pub(crate) async fn judge(
        &self,
        payload: Bytes,
        received_at: i64,
    ) -> Result<AdmitResult, AdmitError> {
        let stopped = || AdmitError::Broken {
            detail: "admission has stopped".to_owned(),
        };
        let (verdict, judged) = oneshot::channel();
        self.queue
            .send(Waiting {
                payload,
                received_at,
                verdict,
            })
            .map_err(|_| stopped())?;
        judged.await.map_err(|_| stopped())?
    }
}

struct Lane {
    admit: Arc<dyn Admit>,
    waiting: Arc<Mutex<mpsc::UnboundedReceiver<Waiting>>>,
    metrics: ApiMetrics,
    heartbeat: Heartbeat,
}

impl Lane {
    async fn run(self) {
        while let Some(batch) = self.next_batch().await {
            self.heartbeat.beat();
            let (records, verdicts): (Vec<_>, Vec<_>) = batch
                .into_iter()
                .map(|one| ((one.payload, one.received_at), one.verdict))
                .unzip();
            self.metrics.batch_records.observe(records.len() as f64);
            let started = Instant::now();
            let judged = self.judge(records).await;
            self.metrics
                .admission_seconds
                .observe(started.elapsed().as_secs_f64());
            self.heartbeat.idle();
            match judged {
                Ok(results) => {
                    for (verdict, result) in verdicts.into_iter().zip(results) {
                        let _ = verdict.send(Ok(result));
                    }
                }
                Err(error) => {
                    for verdict in verdicts {
                        let _ = verdict.send(Err(error.clone()));
                    }
                }
            }
        }
    }

    /// What waits now, at least one record; None when nobody can send any more.
    async fn next_batch(&self) -> Option<Vec<Waiting>> {
        let mut waiting = self.waiting.lock().await;
        let first = waiting.recv().await?;
        let mut bytes = first.payload.len();
        let mut batch = vec![first];
        while batch.len() < BATCH_RECORDS && bytes < BATCH_BYTES {
            let Ok(one) = waiting.try_recv() else { break };
            bytes += one.payload.len();
            batch.push(one);
        }
        Some(batch)
    }

    /// One result a record, or why there is none. A panic on the way is an error
    /// of this batch and not the end of the lane.
    async fn judge(&self, records: Vec<(Bytes, i64)>) -> Result<Vec<AdmitResult>, AdmitError> {
        let expected = records.len();
        let admit = self.admit.clone();
        let results = tokio::spawn(async move { admit.admit(records).await })
            .await
            .map_err(|error| AdmitError::Broken {
                detail: error.to_string(),
            })??;
        if results.len() != expected {
            return Err(AdmitError::Broken {
                detail: format!("{} verdicts for {expected} records", results.len()),
            });
        }
        Ok(results)
    }
}
