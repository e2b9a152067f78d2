//! Follows a registry: loads what it activates, swaps it in when it is in order,
//! and keeps the one that serves when it is not.
//!
//! ```text
//!  active.json changes ─ read, digests, signature ─ load, trial ─ prepare ─▶ serves
//!                              │                      │             │
//!                              └──────────────────────┴─────────────┴─▶ refused:
//!                                 the one before goes on serving, and it is said
//! ```
//!
//! Watched by the operating system's events and, since mounted volumes lose
//! those, by looking every few seconds. What changes while something is loaded for long
//! ends that: a version that was rolled back meanwhile does not serve.

mod candidate;
mod seen;
mod shadowing;

use crate::live::{Live, LiveState, Refusal, Refused, Serving, ShadowState, Shadowing, Unprepared};
use crate::load::PluginHost;
use crate::normalizer::Normalizer;
use crate::registry::{Activation, Registry};
use crate::signature::TrustedKeys;
use candidate::{Candidate, WayBack, active, load};
use seen::{Changes, Seen};
use shadowing::ShadowLoader;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The longest between two attempts at what may be in order soon.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What is loaded within this time serves, whatever is activated meanwhile: that is
/// looked at next. So versions that change quickly do get their turn.
const GRACE: Duration = Duration::from_secs(2);

/// What is followed, and how.
#[derive(Debug, Clone)]
pub struct FollowConfig {
    /// Runs what is activated.
    pub host: PluginHost,
    /// Runs what is in the shadow; none: a shadow is not run here.
    pub shadow_host: Option<PluginHost>,
    /// What is followed.
    pub registry: Registry,
    /// Who must have signed.
    pub keys: TrustedKeys,
    /// How often it is looked at without an event.
    pub poll: Duration,
}

/// What a host does before another normalizer serves.
pub trait Prepare: Send + Sync {
    /// Makes ready for it, or says why that can't be. Given up when something else
    /// is activated meanwhile.
    fn prepare(
        &self,
        candidate: &Normalizer,
    ) -> impl Future<Output = Result<(), Unprepared>> + Send;
}

/// Nothing to make ready.
#[derive(Debug, Clone, Copy, Default)]
pub struct NothingToPrepare;

impl Prepare for NothingToPrepare {
    async fn prepare(&self, _: &Normalizer) -> Result<(), Unprepared> {
        Ok(())
    }
}

/// A registry that is followed from the moment that [`run`](Self::run) is called.
#[derive(Debug)]
pub struct Follower {
    config: FollowConfig,
    serving: watch::Sender<Arc<Serving>>,
    state: watch::Sender<Arc<LiveState>>,
    /// What was last tried, so that what is refused is not tried without end.
    seen: Option<Seen>,
    way_back: WayBack,
    /// Loaded, but the host was not ready for it.
    waiting: Option<Candidate>,
    retry: Retry,
    shadow: ShadowLoader,
}

/// When something that may be in order soon is tried again: less and less often.
#[derive(Debug, Clone, Copy)]
struct Retry {
    pause: Duration,
    at: Instant,
}

impl Retry {
    fn after(pause: Duration) -> Self {
        Self {
            pause,
            at: Instant::now() + pause,
        }
    }

    fn later(self) -> Self {
        Self::after((self.pause * 2).min(LONGEST_PAUSE.max(self.pause)))
    }
}

impl Follower {
    /// Loads what the registry activates. When that is refused, what it activated
    /// before serves, and the state says so: a host that dies while a bad version
    /// is active comes up again.
    ///
    /// # Errors
    /// Nothing is active, or neither it nor what was before can be loaded.
    pub async fn start(config: FollowConfig) -> Result<(Self, Live), Refusal> {
        let seen = Seen::look(&config.registry).await;
        let mut way_back = WayBack::default();
        let wanted = match active(&config.registry).await {
            Ok(wanted) => match load(&config.host, &config, &wanted.active).await {
                Ok(candidate) => Ok((wanted, candidate)),
                Err(refusal) => Err((refusal, Some(wanted))),
            },
            Err(error) => Err((error.into(), None)),
        };
        let mut news = None;
        let (activation, candidate) = match wanted {
            Ok(loaded) => loaded,
            Err((refusal, wanted)) => {
                if let Some(wanted) = &wanted {
                    way_back.past(wanted);
                }
                let Some(earlier) = way_back.step(&config).await else {
                    return Err(refusal);
                };
                let refused = refused(&refusal, wanted.as_ref());
                tell(&refused);
                news = Some(refused);
                earlier
            }
        };
        let mut state = LiveState::new(
            candidate.normalizer.provenance().clone(),
            activation.revision,
            candidate.signed_by,
        );
        state.refusals = u64::from(news.is_some());
        state.refused = news;
        way_back.past(&activation);
        let (serving, serving_seen) = watch::channel(Arc::new(Serving {
            normalizer: candidate.normalizer,
            revision: activation.revision,
            shadow: None,
        }));
        let (state, state_seen) = watch::channel(Arc::new(state));
        let live = Live {
            serving: serving_seen,
            state: state_seen,
        };
        let mut follower = Self {
            retry: Retry::after(config.poll),
            config,
            serving,
            state,
            seen: Some(seen),
            way_back,
            waiting: None,
            shadow: ShadowLoader::default(),
        };
        follower.cast_shadow(&activation);
        Ok((follower, live))
    }

    /// Before [`run`](Self::run): the host can't serve with what it was given. What
    /// was activated before serves instead, and the state says why.
    ///
    /// # Errors
    /// There is nothing before that can be loaded: the cause.
    pub async fn fall_back(&mut self, cause: Unprepared) -> Result<(), Unprepared> {
        let Some((activation, candidate)) = self.way_back.step(&self.config).await else {
            return Err(cause);
        };
        let before = Arc::clone(&self.state.borrow());
        let wanted = Activation {
            revision: before.revision,
            ..activation.clone()
        };
        let id = format!("{}@{}", before.serving.name, before.serving.version);
        if before.refused.is_none() {
            let refusal = Refusal::Unprepared {
                id: id.clone(),
                cause,
            };
            let refused = Refused {
                wanted: Some(id),
                ..refused(&refusal, Some(&wanted))
            };
            tell(&refused);
            self.state.send_modify(|state| {
                let state = Arc::make_mut(state);
                state.refusals += 1;
                state.refused = Some(refused);
            });
        }
        self.way_back.past(&activation);
        self.serving.send_replace(Arc::new(Serving {
            normalizer: candidate.normalizer.clone(),
            revision: activation.revision,
            shadow: None,
        }));
        self.state.send_modify(|state| {
            let state = Arc::make_mut(state);
            state.serving = candidate.normalizer.provenance().clone();
            state.revision = activation.revision;
            state.signed_by = candidate.signed_by;
        });
        self.cast_shadow(&activation);
        Ok(())
    }

    /// Follows until the future is dropped.
    pub async fn run(mut self, prepare: impl Prepare) {
        let mut changes = Changes::of(self.config.registry.dir());
        loop {
            while self.look(&prepare, &mut changes).await.is_superseded() {}
            tokio::select! {
                () = changes.next() => {}
                (shadowing, shown) = self.shadow.loaded() => self.publish_shadow(shadowing, shown),
                () = tokio::time::sleep(self.config.poll) => {}
            }
        }
    }

    /// Looks once, and does what is to be done.
    async fn look(&mut self, prepare: &impl Prepare, changes: &mut Changes) -> Looked {
        let seen = Seen::look(&self.config.registry).await;
        let is_new = self.seen.as_ref() != Some(&seen);
        let again = {
            let state = self.state.borrow();
            state.refused.as_ref().is_some_and(|refused| refused.again)
        };
        if is_new {
            self.waiting = None;
            self.retry = Retry::after(self.config.poll);
        } else if again && Instant::now() >= self.retry.at {
            self.retry = self.retry.later();
        } else {
            return Looked::Done;
        }
        self.seen = Some(seen.clone());
        let activation = match active(&self.config.registry).await {
            Ok(activation) => activation,
            Err(error) => {
                self.refuse(&error.into(), None);
                return Looked::Done;
            }
        };
        let waiting = self.waiting.take();
        let began = Instant::now();
        let tried = tokio::select! {
            tried = self.attempt(&activation, waiting, prepare) => Some(tried),
            () = self.superseded(&seen, changes) => None,
        };
        let tried = match tried {
            Some(tried)
                if began.elapsed() < GRACE || Seen::look(&self.config.registry).await == seen =>
            {
                tried
            }
            _ => {
                tracing::info!(
                    event = "activation_superseded",
                    revision = activation.revision,
                    "{} does not serve: something else was activated while it was loaded",
                    activation.active
                );
                return Looked::Superseded;
            }
        };
        match tried {
            Ok(candidate) => self.serve(&activation, candidate),
            Err((refusal, loaded)) => {
                self.waiting = loaded;
                self.refuse(&refusal, Some(&activation));
            }
        }
        Looked::Done
    }

    /// Loads what is activated, and makes ready for it. One that was loaded comes back
    /// with the refusal.
    async fn attempt(
        &self,
        activation: &Activation,
        waiting: Option<Candidate>,
        prepare: &impl Prepare,
    ) -> Result<Candidate, (Refusal, Option<Candidate>)> {
        let candidate = match waiting {
            Some(candidate) => candidate,
            None => load(&self.config.host, &self.config, &activation.active)
                .await
                .map_err(|refusal| (refusal, None))?,
        };
        if !self.serves(&candidate)
            && let Err(cause) = prepare.prepare(&candidate.normalizer).await
        {
            let id = activation.active.to_string();
            return Err((Refusal::Unprepared { id, cause }, Some(candidate)));
        }
        Ok(candidate)
    }

    /// Waits until the registry is another than was seen, for longer than the grace.
    async fn superseded(&self, seen: &Seen, changes: &mut Changes) {
        tokio::time::sleep(GRACE).await;
        while Seen::look(&self.config.registry).await == *seen {
            tokio::select! {
                () = changes.next() => {}
                () = tokio::time::sleep(self.config.poll) => {}
            }
        }
    }

    /// Whether the very same serves already, with the same settings.
    fn serves(&self, candidate: &Candidate) -> bool {
        let present = self.serving.borrow();
        candidate.normalizer.provenance().digest == present.normalizer.provenance().digest
    }

    fn serve(&mut self, activation: &Activation, candidate: Candidate) {
        let is_other = !self.serves(&candidate);
        let present = Arc::clone(&self.serving.borrow());
        let before = Arc::clone(&self.state.borrow());
        let mut state = LiveState {
            swaps: before.swaps + u64::from(is_other),
            refusals: before.refusals,
            ..LiveState::new(
                candidate.normalizer.provenance().clone(),
                activation.revision,
                candidate.signed_by,
            )
        };
        if is_other {
            tracing::info!(
                event = "normalizer_swapped",
                name = state.serving.name,
                version = state.serving.version,
                digest = state.serving.digest,
                revision = activation.revision,
                before = present.normalizer.provenance().version,
                "{} serves from the next batch on",
                activation.active
            );
        } else {
            state.since.clone_from(&before.since);
        }
        let (shadow, shown) = self.shadow.want(&self.config, activation.shadow.as_ref());
        state.shadow = shown;
        self.serving.send_replace(Arc::new(Serving {
            // One that serves already goes on, with what it has warmed up.
            normalizer: match is_other {
                true => candidate.normalizer,
                false => present.normalizer.clone(),
            },
            revision: activation.revision,
            shadow,
        }));
        self.state.send_replace(Arc::new(state));
    }

    /// Begins to load what an activation wants in the shadow.
    fn cast_shadow(&mut self, activation: &Activation) {
        let (_, shown) = self.shadow.want(&self.config, activation.shadow.as_ref());
        self.state
            .send_modify(|state| Arc::make_mut(state).shadow = shown);
    }

    fn publish_shadow(&self, shadow: Option<Shadowing>, shown: ShadowState) {
        let present = Arc::clone(&self.serving.borrow());
        self.serving.send_replace(Arc::new(Serving {
            normalizer: present.normalizer.clone(),
            revision: present.revision,
            shadow,
        }));
        self.state
            .send_modify(|state| Arc::make_mut(state).shadow = Some(shown));
    }

    fn refuse(&self, refusal: &Refusal, activation: Option<&Activation>) {
        let mut refused = refused(refusal, activation);
        self.state.send_modify(|state| {
            let state = Arc::make_mut(state);
            match &state.refused {
                // The same once more is no news.
                Some(known) if (known.kind, known.revision) == (refused.kind, refused.revision) => {
                    refused.since.clone_from(&known.since);
                    if known.message != refused.message {
                        tell(&refused);
                    }
                }
                _ => {
                    state.refusals += 1;
                    tell(&refused);
                }
            }
            state.refused = Some(refused);
        });
    }
}

/// What a look came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looked {
    /// All is done that could be.
    Done,
    /// Something else was activated meanwhile: to be looked at once more.
    Superseded,
}

impl Looked {
    fn is_superseded(self) -> bool {
        self == Self::Superseded
    }
}

/// Work that waits for files, off the threads that everything else runs on.
async fn blocking<R: Send + 'static>(
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<R, std::io::Error> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(std::io::Error::other)
}

fn refused(refusal: &Refusal, activation: Option<&Activation>) -> Refused {
    Refused {
        wanted: activation.map(|activation| activation.active.to_string()),
        revision: activation.map(|activation| activation.revision),
        kind: refusal.kind(),
        message: refusal.to_string(),
        since: crate::live::now(),
        again: refusal.again(),
    }
}

fn tell(refused: &Refused) {
    tracing::error!(
        event = "normalizer_refused",
        kind = refused.kind,
        wanted = refused.wanted,
        revision = refused.revision,
        again = refused.again,
        "not followed, the last good normalizer serves: {}",
        refused.message
    );
}
