//! The normalizer that serves now, and how that came about: what hosts ask at
//! every batch, and what they show.

use crate::error::{FaultKind, LoadError};
use crate::normalizer::{Normalizer, Provenance};
use crate::registry::RegistryError;
use crate::signature::SignatureError;
use serde::Serialize;
use std::sync::Arc;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::watch;

/// What serves. A batch takes one and keeps it to its end.
#[derive(Debug)]
pub struct Serving {
    /// It.
    pub normalizer: Normalizer,
    /// The activation it came by; 0 where there is no registry.
    pub revision: u64,
    /// What runs in its shadow.
    pub shadow: Option<Shadowing>,
}

/// A candidate that is shown live records, and whose answers go nowhere.
#[derive(Debug, Clone)]
pub struct Shadowing {
    /// It, on a host of its own.
    pub candidate: Normalizer,
    /// The share of batches that it is shown.
    pub sample: f64,
}

/// The way to what serves now. Clones see the same.
#[derive(Debug, Clone)]
pub struct Live {
    pub(crate) serving: watch::Receiver<Arc<Serving>>,
    pub(crate) state: watch::Receiver<Arc<LiveState>>,
}

impl Live {
    /// One that never changes.
    pub fn fixed(normalizer: Normalizer) -> Self {
        let state = LiveState::new(normalizer.provenance().clone(), 0, None);
        let (_, state) = watch::channel(Arc::new(state));
        let (_, serving) = watch::channel(Arc::new(Serving {
            normalizer,
            revision: 0,
            shadow: None,
        }));
        Self { serving, state }
    }

    /// What serves now.
    pub fn current(&self) -> Arc<Serving> {
        Arc::clone(&self.serving.borrow())
    }

    /// How it stands.
    pub fn state(&self) -> Arc<LiveState> {
        Arc::clone(&self.state.borrow())
    }

    /// Waits until something else serves, or something else runs in the shadow,
    /// than when this was last called on this clone.
    pub async fn changed(&mut self) {
        if self.serving.changed().await.is_err() {
            // Nobody can change it any more.
            std::future::pending::<()>().await;
        }
    }

    /// Waits until the state is another than when this was last called on this
    /// clone, and gives it.
    pub async fn state_changed(&mut self) -> Arc<LiveState> {
        if self.state.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        Arc::clone(&self.state.borrow_and_update())
    }
}

/// How it stands with what serves: for `/stats`, logs and metrics.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LiveState {
    /// What serves.
    pub serving: Provenance,
    /// The activation it came by; 0 where there is no registry.
    pub revision: u64,
    /// Since when, in RFC 3339.
    pub since: String,
    /// The trusted key that signed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed_by: Option<String>,
    /// What should serve, and why it does not.
    pub refused: Option<Refused>,
    /// What runs in the shadow.
    pub shadow: Option<ShadowState>,
    /// How often another one began to serve, since this process started.
    pub swaps: u64,
    /// How often one was refused.
    pub refusals: u64,
}

/// An activation that is not followed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Refused {
    /// Name and version, where they can be told.
    pub wanted: Option<String>,
    /// The number of the activation, where it can be told.
    pub revision: Option<u64>,
    /// A word for metrics.
    pub kind: &'static str,
    /// Why, for the operator.
    pub message: String,
    /// Since when, in RFC 3339.
    pub since: String,
    /// It is tried again by itself, not only when a file changes.
    pub again: bool,
}

/// What runs in the shadow, or should.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShadowState {
    /// Name and version.
    pub candidate: String,
    /// The share of batches.
    pub sample: f64,
    /// It is loaded, and is shown batches.
    pub running: bool,
    /// Why it does not run.
    pub refused: Option<String>,
}

impl LiveState {
    pub(crate) fn new(serving: Provenance, revision: u64, signed_by: Option<String>) -> Self {
        Self {
            serving,
            revision,
            since: now(),
            signed_by,
            refused: None,
            shadow: None,
            swaps: 0,
            refusals: 0,
        }
    }
}

pub(crate) fn now() -> String {
    OffsetDateTime::now_utc()
        .format(&Rfc3339)
        .unwrap_or_default()
}

/// Why an activation is not followed.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The registry doesn't have what is asked for.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// It is not signed as it must be.
    #[error("{id}: {cause}")]
    Signature {
        /// Name and version.
        id: String,
        /// Why.
        cause: SignatureError,
    },
    /// It can't be loaded.
    #[error("{id}: {cause}")]
    Load {
        /// Name and version.
        id: String,
        /// Why.
        cause: LoadError,
    },
    /// Its manifest says something else than its file name.
    #[error(
        "{id}.wasm says of itself that it is {says}; a file is named after its manifest, \
         so one of the two is wrong"
    )]
    OtherManifest {
        /// Name and version by the file name.
        id: String,
        /// Name and version by the manifest.
        says: String,
    },
    /// The host can't serve with it: its columns don't fit the table, say.
    #[error("{id}: {cause}")]
    Unprepared {
        /// Name and version.
        id: String,
        /// Why.
        cause: Unprepared,
    },
}

/// Why a host can't serve with a normalizer that is as such in order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Unprepared {
    /// A word for metrics.
    pub kind: &'static str,
    /// For the operator: what is wrong, and what to do.
    pub message: String,
    /// It may be otherwise soon: try again by itself.
    pub again: bool,
}

impl Refusal {
    /// A word for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Registry(RegistryError::Component(cause)) | Self::Load { cause, .. } => {
                cause.tag()
            }
            Self::Registry(error) => error.tag(),
            Self::Signature { .. } => "signature",
            Self::OtherManifest { .. } => "other_manifest",
            Self::Unprepared { cause, .. } => cause.kind,
        }
    }

    /// Whether it may be otherwise soon though no file changes.
    pub fn again(&self) -> bool {
        match self {
            Self::Unprepared { cause, .. } => cause.again,
            Self::Registry(RegistryError::Io { .. }) => true,
            Self::Registry(RegistryError::Component(cause)) | Self::Load { cause, .. } => {
                match cause {
                    LoadError::Host { .. } | LoadError::Read { .. } => true,
                    // A machine that is busy, perhaps.
                    LoadError::Failed { fault, .. } => fault.kind == FaultKind::Deadline,
                    _ => false,
                }
            }
            _ => false,
        }
    }
}
