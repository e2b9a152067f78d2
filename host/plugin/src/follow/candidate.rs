//! From what an activation names to a normalizer that could serve; and what a start
//! goes back to when it can't.

use super::{FollowConfig, blocking};
use crate::live::Refusal;
use crate::load::PluginHost;
use crate::normalizer::Normalizer;
use crate::registry::{Activation, Choice, Registry, RegistryError};
use std::collections::BTreeSet;

/// Activations that a start goes back by when the newest is refused.
const MAX_STEPS_BACK: usize = 10;

/// Loaded, not yet serving.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) normalizer: Normalizer,
    pub(super) signed_by: Option<String>,
}

/// What serves by `active.json`.
pub(super) async fn active(registry: &Registry) -> Result<Activation, RegistryError> {
    let here = registry.clone();
    blocking(move || here.active())
        .await
        .unwrap_or_else(|stopped| Err(RegistryError::io("read", registry.dir(), stopped)))
}

/// Reads, checks and loads what an activation names. What is checked is what is
/// loaded: the file is read once.
pub(super) async fn load(
    host: &PluginHost,
    config: &FollowConfig,
    choice: &Choice,
) -> Result<Candidate, Refusal> {
    let registry = config.registry.clone();
    let keys = config.keys.clone();
    let wanted = choice.clone();
    let limit = host.component_limit();
    let (artifact, signed_by) = blocking(move || {
        let artifact = registry.artifact(&wanted, limit)?;
        let signed_by = keys
            .check(&artifact.wasm, artifact.signature.as_deref())
            .map_err(|cause| Refusal::Signature {
                id: artifact.id.to_string(),
                cause,
            })?
            .map(str::to_owned);
        Ok::<_, Refusal>((artifact, signed_by))
    })
    .await
    .unwrap_or_else(|stopped| {
        Err(Refusal::Registry(RegistryError::io(
            "read",
            config.registry.dir(),
            stopped,
        )))
    })?;
    let id = artifact.id.to_string();
    let normalizer = host
        .load(artifact.wasm, &artifact.settings)
        .await
        .map_err(|cause| Refusal::Load {
            id: id.clone(),
            cause,
        })?;
    let provenance = normalizer.provenance();
    let says = format!("{}@{}", provenance.name, provenance.version);
    if says != id {
        return Err(Refusal::OtherManifest { id, says });
    }
    Ok(Candidate {
        normalizer,
        signed_by,
    })
}

/// The way back: first by what each activation came after, then by what is left of
/// the history, the newest first.
#[derive(Debug, Default)]
pub(super) struct WayBack {
    next: Option<u64>,
    tried: BTreeSet<u64>,
    /// What can't serve, under whatever number.
    failed: Vec<Choice>,
    steps: usize,
}

impl WayBack {
    /// This one can't serve.
    pub(super) fn past(&mut self, activation: &Activation) {
        self.tried.insert(activation.revision);
        self.failed.push(activation.active.clone());
        self.next = activation.previous;
    }

    /// The next that can be loaded.
    pub(super) async fn step(&mut self, config: &FollowConfig) -> Option<(Activation, Candidate)> {
        while self.steps < MAX_STEPS_BACK {
            let activation = self.revision(&config.registry).await?;
            if self.failed.contains(&activation.active) {
                continue;
            }
            self.steps += 1;
            match load(&config.host, config, &activation.active).await {
                Ok(candidate) => return Some((activation, candidate)),
                Err(_) => self.failed.push(activation.active),
            }
        }
        None
    }

    /// The next that is kept.
    async fn revision(&mut self, registry: &Registry) -> Option<Activation> {
        loop {
            let here = registry.clone();
            let kept = blocking(move || here.revisions()).await.ok()?.ok()?;
            let next = self.next.take();
            let revision = next
                .filter(|next| kept.contains(next) && !self.tried.contains(next))
                .or_else(|| {
                    let left = kept.iter().rev();
                    left.copied().find(|kept| !self.tried.contains(kept))
                })?;
            self.tried.insert(revision);
            let here = registry.clone();
            // One that can't be read is no way back.
            if let Ok(Ok(activation)) = blocking(move || here.revision(revision)).await {
                self.next = activation.previous;
                return Some(activation);
            }
        }
    }
}
