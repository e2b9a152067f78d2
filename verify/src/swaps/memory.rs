//! Resident memory of processes, sampled.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

const INTERVAL: Duration = Duration::from_millis(500);

/// A sample: when, since the sampler started, and how many bytes.
pub type Sample = (Duration, u64);

type Samples = Arc<Mutex<BTreeMap<String, Vec<Sample>>>>;

/// Samples in the background until it is dropped.
#[derive(Debug)]
pub struct MemorySampler {
    samples: Samples,
    _task: AbortOnDropHandle<()>,
}

impl MemorySampler {
    /// Starts to look at these processes, by name.
    pub fn start(processes: BTreeMap<String, u32>) -> Self {
        Self::every(INTERVAL, processes)
    }

    /// The same, as often as this.
    pub fn every(interval: Duration, processes: BTreeMap<String, u32>) -> Self {
        let samples = Samples::default();
        let kept = Arc::clone(&samples);
        let started = Instant::now();
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(interval);
            loop {
                ticks.tick().await;
                let at = started.elapsed();
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                for (name, pid) in &processes {
                    if let Some(bytes) = resident(*pid) {
                        kept.entry(name.clone()).or_default().push((at, bytes));
                    }
                }
            }
        });
        Self {
            samples,
            _task: AbortOnDropHandle::new(task),
        }
    }

    /// What was seen so far, by name.
    pub fn seen(&self) -> BTreeMap<String, Vec<Sample>> {
        let samples = self.samples.lock();
        samples.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// `VmRSS` of a process, in bytes.
fn resident(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// The most that was resident from `from` until `to`.
pub fn peak(samples: &[Sample], from: Duration, to: Duration) -> Option<u64> {
    samples
        .iter()
        .filter(|(at, _)| (from..to).contains(at))
        .map(|(_, bytes)| *bytes)
        .max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_another_that_is_not_there_has_none() {
        assert!(resident(std::process::id()).is_some_and(|bytes| bytes > 1 << 20));
        assert_eq!(resident(u32::MAX), None);
    }

    #[test]
    fn the_peak_is_that_of_the_time_asked_for() {
        let samples: Vec<Sample> = [(1, 10), (2, 30), (3, 20)]
            .map(|(second, bytes)| (Duration::from_secs(second), bytes))
            .into();
        let peak_of = |from, to| peak(&samples, Duration::from_secs(from), Duration::from_secs(to));
        assert_eq!(peak_of(0, 9), Some(30));
        assert_eq!(peak_of(3, 9), Some(20));
        assert_eq!(peak_of(4, 9), None);
    }
}
