//! What runs in the shadow: loaded beside what serves, never before it.

use super::FollowConfig;
use super::candidate::{Candidate, load};
use crate::live::{Refusal, ShadowState, Shadowing};
use crate::registry::{Choice, Shadow};
use tokio_util::task::AbortOnDropHandle;

/// The candidate that is wanted, and how far it is.
#[derive(Debug, Default)]
pub(super) struct ShadowLoader {
    /// What runs.
    running: Option<(Choice, Shadowing)>,
    /// What is being loaded.
    loading: Option<(Shadow, AbortOnDropHandle<Result<Candidate, Refusal>>)>,
}

impl ShadowLoader {
    /// Begins to load what is wanted, unless it runs already; what runs of it now, and
    /// how that is shown.
    pub(super) fn want(
        &mut self,
        config: &FollowConfig,
        wanted: Option<&Shadow>,
    ) -> (Option<Shadowing>, Option<ShadowState>) {
        self.loading = None;
        let (Some(host), Some(wanted)) = (&config.shadow_host, wanted) else {
            self.running = None;
            return (None, None);
        };
        if let Some((choice, shadowing)) = &mut self.running
            && *choice == wanted.candidate
        {
            shadowing.sample = wanted.sample;
            return (Some(shadowing.clone()), Some(shown(wanted, true)));
        }
        self.running = None;
        let (host, config, choice) = (host.clone(), config.clone(), wanted.candidate.clone());
        let task = tokio::spawn(async move { load(&host, &config, &choice).await });
        self.loading = Some((wanted.clone(), AbortOnDropHandle::new(task)));
        (None, Some(shown(wanted, false)))
    }

    /// Waits for what is being loaded; for ever if that is nothing.
    pub(super) async fn loaded(&mut self) -> (Option<Shadowing>, ShadowState) {
        let Some((_, task)) = &mut self.loading else {
            return std::future::pending().await;
        };
        let loaded = task.await;
        let Some((wanted, _)) = self.loading.take() else {
            return std::future::pending().await;
        };
        match loaded {
            Ok(Ok(candidate)) => {
                let shadowing = Shadowing {
                    candidate: candidate.normalizer,
                    sample: wanted.sample,
                };
                let state = shown(&wanted, true);
                self.running = Some((wanted.candidate, shadowing.clone()));
                (Some(shadowing), state)
            }
            Ok(Err(refusal)) => (None, refused(&wanted, refusal.kind(), refusal.to_string())),
            Err(stopped) => (None, refused(&wanted, "host", stopped.to_string())),
        }
    }
}

fn shown(wanted: &Shadow, running: bool) -> ShadowState {
    ShadowState {
        candidate: wanted.candidate.to_string(),
        sample: wanted.sample,
        running,
        refused: None,
    }
}

fn refused(wanted: &Shadow, kind: &str, why: String) -> ShadowState {
    tracing::error!(
        event = "shadow_refused",
        kind,
        candidate = wanted.candidate.to_string(),
        "nothing runs in the shadow: {why}"
    );
    ShadowState {
        refused: Some(why),
        ..shown(wanted, false)
    }
}
