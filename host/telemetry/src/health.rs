//! Is this process ready for work (`/readyz`), and does it make progress
//! (`/healthz`)?
//!
//! Readiness is reported: a component says that it is ready, or why not.
//! Liveness is measured: a component holds a [`Heartbeat`] with a budget and
//! beats it; when it is at work for longer than the budget without a beat, the
//! process is not live, and the answer names the component. An orchestrator
//! restarts what is not live and sends no work to what is not ready, so a broker
//! that is away belongs in neither.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

/// What all components of a process have reported. Clones share it.
#[derive(Clone, Default)]
pub struct Health {
    components: Arc<Mutex<Components>>,
}

#[derive(Default)]
struct Components {
    ready: BTreeMap<String, Result<(), String>>,
    live: BTreeMap<String, Result<(), String>>,
    beats: BTreeMap<String, Beat>,
}

struct Beat {
    budget: Duration,
    /// None: idle, nothing is expected.
    last: Option<Instant>,
}

/// A component that keeps the process from being ready or live.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failing {
    /// Its name.
    pub component: String,
    /// Why, for an operator.
    pub reason: String,
}

impl Health {
    /// Ready and live, as long as nothing is reported.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reports that a component is ready for work, or why it is not. One that
    /// must come up first reports its `Err` before the process serves.
    pub fn set_ready(&self, component: &str, state: Result<(), String>) {
        self.lock().ready.insert(component.to_owned(), state);
    }

    /// Reports that a component works, or that it is broken for good; for what a
    /// [`Heartbeat`] can't see.
    pub fn set_live(&self, component: &str, state: Result<(), String>) {
        self.lock().live.insert(component.to_owned(), state);
    }

    /// Watches a component: once it has begun to beat, it must beat again within
    /// `budget`, or go [idle](Heartbeat::idle). A second heartbeat of the same
    /// name replaces the first.
    pub fn heartbeat(&self, component: &str, budget: Duration) -> Heartbeat {
        self.lock()
            .beats
            .insert(component.to_owned(), Beat { budget, last: None });
        Heartbeat {
            health: self.clone(),
            component: component.to_owned(),
        }
    }

    /// Whether the process is ready for work; else what keeps it from it.
    pub fn is_ready(&self) -> Result<(), Vec<Failing>> {
        verdict(failing(&self.lock().ready))
    }

    /// Whether the process makes progress; else which components don't.
    pub fn is_live(&self) -> Result<(), Vec<Failing>> {
        let now = Instant::now();
        let components = self.lock();
        let mut all = failing(&components.live);
        all.extend(components.beats.iter().filter_map(|(component, beat)| {
            let silent = now.saturating_duration_since(beat.last?);
            (silent > beat.budget).then(|| Failing {
                component: component.clone(),
                reason: format!("no progress for {silent:.1?}, allowed {:.1?}", beat.budget),
            })
        }));
        verdict(all)
    }

    fn lock(&self) -> MutexGuard<'_, Components> {
        self.components
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health")
            .field("ready", &self.is_ready())
            .field("live", &self.is_live())
            .finish()
    }
}

fn failing(reports: &BTreeMap<String, Result<(), String>>) -> Vec<Failing> {
    reports
        .iter()
        .filter_map(|(component, report)| {
            report.as_ref().err().map(|reason| Failing {
                component: component.clone(),
                reason: reason.clone(),
            })
        })
        .collect()
}

fn verdict(failing: Vec<Failing>) -> Result<(), Vec<Failing>> {
    if failing.is_empty() {
        Ok(())
    } else {
        Err(failing)
    }
}

/// A component's sign of progress. Dropping it ends the watch, unless it is
/// dropped by a panic: then the component is not live any more.
#[derive(Debug)]
pub struct Heartbeat {
    health: Health,
    component: String,
}

impl Heartbeat {
    /// Progress was made just now, and more is expected within the budget.
    pub fn beat(&self) {
        self.set(Some(Instant::now()));
    }

    /// There is nothing to do: nothing is expected until the next beat.
    pub fn idle(&self) {
        self.set(None);
    }

    fn set(&self, last: Option<Instant>) {
        if let Some(beat) = self.health.lock().beats.get_mut(&self.component) {
            beat.last = last;
        }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.health.lock().beats.remove(&self.component);
        if std::thread::panicking() {
            self.health
                .set_live(&self.component, Err("it panicked; see the log".to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_component_that_is_not_ready_is_named_until_it_is() {
        let health = Health::new();
        assert_eq!(health.is_ready(), Ok(()));
        health.set_ready("normalizer", Err("loading".to_owned()));
        health.set_ready("api", Ok(()));
        assert_eq!(
            health.is_ready(),
            Err(vec![Failing {
                component: "normalizer".to_owned(),
                reason: "loading".to_owned()
            }])
        );
        assert_eq!(health.is_live(), Ok(()));
        health.set_ready("normalizer", Ok(()));
        assert_eq!(health.is_ready(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_component_at_work_must_beat_within_its_budget() {
        let health = Health::new();
        let beat = health.heartbeat("poll", Duration::from_secs(5));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(health.is_live(), Ok(()), "not begun");
        beat.beat();
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(health.is_live(), Ok(()), "within the budget");
        tokio::time::advance(Duration::from_secs(1)).await;
        let failing = health.is_live().expect_err("six seconds of silence");
        assert_eq!(failing.len(), 1);
        assert_eq!(failing[0].component, "poll");
        assert!(failing[0].reason.contains("6.0s"), "{}", failing[0].reason);
        beat.beat();
        assert_eq!(health.is_live(), Ok(()), "no memory of it");
        beat.idle();
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(health.is_live(), Ok(()), "idle");
    }

    #[test]
    fn a_component_that_panics_is_not_live_and_one_that_ends_is_forgotten() {
        let health = Health::new();
        drop(health.heartbeat("orderly", Duration::from_secs(1)));
        let beat = health.heartbeat("panicky", Duration::from_secs(1));
        let outcome = std::thread::spawn(move || {
            beat.beat();
            panic!("on purpose");
        })
        .join();
        assert!(outcome.is_err());
        let failing = health.is_live().expect_err("a component panicked");
        assert_eq!(failing.len(), 1);
        assert_eq!(failing[0].component, "panicky");
    }
}
