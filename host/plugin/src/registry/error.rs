//! What can be wrong with a registry, or with what is asked of it.

use super::activation::ActivationError;
use super::version::VersionId;
use crate::error::LoadError;
use std::path::{Path, PathBuf};

/// A registry could not be read or written. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The folder is not there.
    #[error("there is no registry at {} (NORMALIZER_DIR); `cdr plugin add FILE.wasm` makes one", dir.display())]
    NoFolder {
        /// The folder.
        dir: PathBuf,
    },
    /// There is no `active.json`.
    #[error(
        "no normalizer is active in {}: choose one with `cdr plugin activate NAME@VERSION`",
        dir.display()
    )]
    NotActivated {
        /// The folder.
        dir: PathBuf,
    },
    /// A file can't be read or written.
    #[error("can't {action} {}: {cause}", path.display())]
    Io {
        /// `read` or `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// A file that is larger than such a file may be.
    #[error("{} is larger than {limit} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// In bytes.
        limit: u64,
    },
    /// `active.json`, or one of the history, is not as it must be.
    #[error(
        "{}: {cause}; `cdr plugin activate NAME@VERSION` or `cdr plugin rollback` writes it anew",
        path.display()
    )]
    Activation {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        cause: ActivationError,
    },
    /// The version is not there.
    #[error("{id} is not in {}; there {}", dir.display(), listed(there))]
    NoSuchVersion {
        /// What was asked for.
        id: VersionId,
        /// The folder.
        dir: PathBuf,
        /// What it has.
        there: Vec<VersionId>,
    },
    /// The file can't be read as a component.
    #[error(transparent)]
    Component(#[from] LoadError),
    /// The file is not the one that was activated.
    #[error(
        "{} is not the file that was activated: expected sha256 {expected}, found {found}; \
         put the right file back, or activate this one if it is meant",
        path.display()
    )]
    WrongDigest {
        /// The file.
        path: PathBuf,
        /// In hexadecimal.
        expected: String,
        /// In hexadecimal.
        found: String,
    },
    /// Settings that are no text.
    #[error("{} is not UTF-8", path.display())]
    SettingsNotText {
        /// The file.
        path: PathBuf,
    },
    /// A version is there with other content.
    #[error(
        "{id} is there already with other content (sha256 {there}, the new file has {new}); \
         a version never changes: raise the version in its manifest"
    )]
    VersionTaken {
        /// The version.
        id: VersionId,
        /// In hexadecimal.
        there: String,
        /// In hexadecimal.
        new: String,
    },
    /// A rollback with no activation before this one.
    #[error("nothing to roll back to: revision {revision} ({active}) has no activation before it")]
    FirstActivation {
        /// The present one.
        revision: u64,
        /// What it serves.
        active: String,
    },
    /// Somebody else changed what is active, while this change was checked.
    #[error(
        "nothing was changed: meanwhile revision {found} was activated, and this was checked against {expected}; \
         look at `cdr plugin list`, and try again if it is still meant"
    )]
    Overtaken {
        /// The revision that it was checked against; 0: none.
        expected: u64,
        /// The revision that is active.
        found: u64,
    },
    /// An activation that is not kept.
    #[error("there is no revision {revision}; kept are {kept:?} (`cdr plugin list` shows them)")]
    NoSuchRevision {
        /// What was asked for.
        revision: u64,
        /// What there is.
        kept: Vec<u64>,
    },
}

impl RegistryError {
    /// A word for metrics.
    pub fn tag(&self) -> &'static str {
        match self {
            Self::NoFolder { .. } | Self::NoSuchVersion { .. } => "missing",
            Self::NotActivated { .. } => "not_activated",
            Self::Io { .. } => "unreadable",
            Self::TooLarge { .. } => "too_large",
            Self::Activation { .. } => "activation",
            Self::Component(cause) => cause.tag(),
            Self::WrongDigest { .. } => "wrong_digest",
            Self::SettingsNotText { .. } => "settings",
            Self::VersionTaken { .. } => "version_taken",
            Self::Overtaken { .. } => "overtaken",
            Self::FirstActivation { .. } | Self::NoSuchRevision { .. } => "no_such_revision",
        }
    }

    pub(crate) fn io(action: &'static str, path: &Path, cause: std::io::Error) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            cause,
        }
    }
}

fn listed(there: &[VersionId]) -> String {
    match there {
        [] => "is none".to_owned(),
        _ => {
            let names: Vec<_> = there.iter().map(ToString::to_string).collect();
            format!("are {}", names.join(", "))
        }
    }
}
