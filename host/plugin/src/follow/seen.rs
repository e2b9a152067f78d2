//! What an activation rests on, and how changes of it are noticed.

use super::blocking;
use crate::registry::{Activation, Choice, Registry};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;

/// Files come in bursts: what changes within this time is looked at once.
const BURST: Duration = Duration::from_millis(20);

/// What an activation rests on, as it was when it was looked at.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Seen {
    /// The text of `active.json`; none if there is none that can be read.
    active: Option<Vec<u8>>,
    /// Size and time of each file that it names.
    files: Vec<Option<(u64, SystemTime)>>,
}

impl Seen {
    pub(super) async fn look(registry: &Registry) -> Self {
        let registry = registry.clone();
        // A look that comes to nothing is one that sees nothing.
        blocking(move || Self::look_here(&registry))
            .await
            .unwrap_or_default()
    }

    fn look_here(registry: &Registry) -> Self {
        let active = registry.active_text().ok().flatten();
        let mut paths = BTreeSet::new();
        if let Some(activation) = active
            .as_deref()
            .and_then(|text| Activation::parse(text).ok())
        {
            let shadow = activation.shadow.iter().map(|shadow| &shadow.candidate);
            for choice in std::iter::once(&activation.active).chain(shadow) {
                paths.extend(files(registry, choice));
            }
        }
        let files = paths
            .iter()
            .map(|path| {
                let metadata = std::fs::metadata(path).ok()?;
                Some((metadata.len(), metadata.modified().ok()?))
            })
            .collect();
        Self { active, files }
    }
}

/// The files that a choice rests on.
fn files(registry: &Registry, choice: &Choice) -> Vec<PathBuf> {
    let mut files = Vec::new();
    if let Ok(id) = choice.id() {
        files.push(registry.path_of(&id));
        files.push(registry.signature_path_of(&id));
    }
    if let Some(settings) = &choice.settings {
        files.push(registry.dir().join(&settings.file));
    }
    files
}

/// Changes in a folder, as far as the system tells of them.
pub(super) struct Changes {
    events: mpsc::Receiver<()>,
    // Ends the events when it is dropped.
    _watcher: Option<notify::RecommendedWatcher>,
}

impl Changes {
    pub(super) fn of(dir: &Path) -> Self {
        let (sender, events) = mpsc::channel(1);
        Self {
            events,
            _watcher: watcher(dir, sender),
        }
    }

    /// Waits for the next change, and for those that come with it. Without a watcher
    /// for ever.
    pub(super) async fn next(&mut self) {
        if self.events.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(BURST).await;
        while self.events.try_recv().is_ok() {}
    }
}

fn watcher(dir: &Path, events: mpsc::Sender<()>) -> Option<notify::RecommendedWatcher> {
    use notify::Watcher;
    let watching = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // Reading is no change, and hosts read. A full channel says it already.
        if event.is_ok_and(|event| !event.kind.is_access()) {
            let _ = events.try_send(());
        }
    })
    .and_then(|mut watcher| {
        watcher.watch(dir, notify::RecursiveMode::NonRecursive)?;
        Ok(watcher)
    });
    watching
        .inspect_err(|error| {
            tracing::warn!(
                event = "registry_not_watched",
                dir = %dir.display(),
                "changes are seen by looking only: {error}"
            );
        })
        .ok()
}
