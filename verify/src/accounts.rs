//! The account of each worker, sampled while it works:
//! `consumed = inserted + dead_lettered + in_flight + given_back`, in total and per
//! partition, at all times.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::http_client::HttpClient;

const INTERVAL: Duration = Duration::from_millis(200);
/// For one answer; a worker that is stopped or dead gives none.
const PATIENCE: Duration = Duration::from_secs(2);
/// Violations that are kept.
const KEPT: usize = 10;

/// Addresses of workers' stats by name; they may change.
pub type Addresses = BTreeMap<String, String>;

/// What is wrong in a worker's `/internal/stats`; nothing as long as it says that it
/// waits for something before it consumes.
pub fn imbalances(stats: &Value) -> Vec<String> {
    let partitions = stats["partitions"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let parts = partitions.iter().map(|partition| {
        (
            format!("partition {}", partition["partition"]),
            &partition["counts"],
        )
    });
    std::iter::once(("in total".to_owned(), stats))
        .chain(parts)
        .filter_map(|(of, counts)| {
            let count = |name: &str| counts[name].as_u64();
            if of == "in total" && counts["state"].is_string() {
                return None;
            }
            let Some(consumed) = count("consumed") else {
                return Some(format!("{of}: no account: {counts}"));
            };
            let ends = ["inserted", "dead_lettered", "in_flight", "given_back"];
            let sum = ends.iter().map(|end| count(end)).sum::<Option<u64>>();
            (sum != Some(consumed)).then(|| {
                let terms: Vec<_> = ends
                    .iter()
                    .map(|end| format!("{} {end}", counts[*end]))
                    .collect();
                format!("{of}: {consumed} consumed, {}", terms.join(" + "))
            })
        })
        .collect()
}

#[derive(Debug, Default)]
struct Seen {
    samples: u64,
    violations: Vec<String>,
}

/// Samples in the background until it is dropped.
#[derive(Debug)]
pub struct Sampler {
    seen: Arc<Mutex<Seen>>,
    _task: AbortOnDropHandle<()>,
}

impl Sampler {
    /// Starts to ask the workers at these addresses.
    pub fn start(workers: watch::Receiver<Addresses>) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let task = tokio::spawn(sample(workers, Arc::clone(&seen)));
        Self {
            seen,
            _task: AbortOnDropHandle::new(task),
        }
    }

    /// How many answers were looked at, and what was wrong in them.
    pub fn seen(&self) -> (u64, Vec<String>) {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        (seen.samples, seen.violations.clone())
    }
}

async fn sample(workers: watch::Receiver<Addresses>, seen: Arc<Mutex<Seen>>) {
    let client = HttpClient::new(PATIENCE);
    loop {
        let addresses = workers.borrow().clone();
        let asking = addresses.iter().map(|(name, address)| {
            let (client, seen) = (&client, &seen);
            async move {
                // Silence is not what is judged here.
                let Ok(answer) = client.get(&format!("{address}/internal/stats")).await else {
                    return;
                };
                let stats = answer.json();
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.samples += 1;
                for imbalance in imbalances(&stats) {
                    if seen.violations.len() < KEPT {
                        seen.violations.push(format!("{name}: {imbalance}"));
                    }
                }
            }
        });
        futures::future::join_all(asking).await;
        tokio::time::sleep(INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn counts(consumed: u64, inserted: u64, in_flight: u64) -> Value {
        json!({"consumed": consumed, "inserted": inserted, "dead_lettered": 1,
               "in_flight": in_flight, "given_back": 2})
    }

    #[test]
    fn a_sum_that_does_not_come_out_is_found_where_it_is() {
        let mut stats = counts(10, 4, 3);
        stats["partitions"] = json!([
            {"partition": 0, "counts": counts(5, 2, 0)},
            {"partition": 1, "counts": counts(5, 1, 0)},
        ]);
        assert_eq!(
            imbalances(&stats),
            ["partition 1: 5 consumed, 1 inserted + 1 dead_lettered + 0 in_flight + 2 given_back"]
        );
        stats["consumed"] = json!(11);
        assert_eq!(imbalances(&stats).len(), 2);
    }

    #[test]
    fn a_worker_that_waits_has_no_account_and_a_count_that_is_missing_is_wrong() {
        assert_eq!(
            imbalances(&json!({"state": "waiting for ClickHouse"})),
            [""; 0]
        );
        assert_eq!(imbalances(&json!({"consumed": 0})).len(), 1);
        assert_eq!(imbalances(&json!({})).len(), 1);
    }
}
