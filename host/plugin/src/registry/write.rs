//! Changes of a registry: one at a time, each whole or not at all.

use super::activation::{Activation, Choice, SettingsFile, Shadow};
use super::version::VersionId;
use super::{ACTIVE, HISTORY, Registry, RegistryError, SETTINGS};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// How many activations are kept.
const KEPT: usize = 100;

/// What became of an [`add`](Registry::add).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
    /// It was there before, the very same.
    pub was_there: bool,
}

/// What became of an activation or a rollback.
#[derive(Debug, Clone, PartialEq)]
pub struct Activated {
    /// What serves now.
    pub now: Activation,
    /// What served before.
    pub before: Option<Activation>,
}

impl Activated {
    /// Whether anything is different now.
    pub fn changed(&self) -> bool {
        self.before.as_ref() != Some(&self.now)
    }
}

impl Registry {
    /// Puts a version into the registry, which is made if it is not there; its fixtures
    /// and its signature first, so that it is never there without them.
    ///
    /// # Errors
    /// The version is there with other content, or nothing can be written.
    pub fn add(
        &self,
        id: &VersionId,
        wasm: &[u8],
        signature: Option<&str>,
        fixtures: Option<&Path>,
    ) -> Result<Added, RegistryError> {
        let _lock = self.lock()?;
        let sha256 = hex::encode(Sha256::digest(wasm));
        let path = self.path_of(id);
        if path.exists() {
            let there = self.digest_of(id, usize::MAX - 1)?;
            if there != sha256 {
                return Err(RegistryError::VersionTaken {
                    id: id.clone(),
                    there,
                    new: sha256,
                });
            }
        }
        if let Some(fixtures) = fixtures {
            self.put_fixtures(id, fixtures)?;
        }
        if let Some(signature) = signature {
            write_whole(&self.signature_path_of(id), signature.as_bytes())?;
        }
        if path.exists() {
            return Ok(Added {
                sha256,
                was_there: true,
            });
        }
        write_whole(&path, wasm)?;
        Ok(Added {
            sha256,
            was_there: false,
        })
    }

    /// Every file of the folder that is not hidden, in place of what was there.
    fn put_fixtures(&self, id: &VersionId, from: &Path) -> Result<(), RegistryError> {
        let path = self.fixtures_path_of(id);
        let unfinished = self
            .dir
            .join(format!(".{id}.fixtures.{}.tmp", std::process::id()));
        let replaced = self
            .dir
            .join(format!(".{id}.fixtures.{}.old", std::process::id()));
        let written = (|| {
            std::fs::create_dir(&unfinished)?;
            for file in std::fs::read_dir(from)? {
                let file = file?;
                let name = file.file_name();
                if file.path().is_file() && !name.as_encoded_bytes().starts_with(b".") {
                    std::fs::copy(file.path(), unfinished.join(name))?;
                }
            }
            if path.exists() {
                std::fs::rename(&path, &replaced)?;
            }
            std::fs::rename(&unfinished, &path)?;
            File::open(&self.dir)?.sync_all()
        })();
        for aside in [&unfinished, &replaced] {
            let _ = std::fs::remove_dir_all(aside);
        }
        written.map_err(|cause| RegistryError::io("write", &path, cause))
    }

    /// Keeps settings under the name of their content, for an activation.
    ///
    /// # Errors
    /// They can't be written.
    pub fn add_settings(&self, settings: &str) -> Result<SettingsFile, RegistryError> {
        let _lock = self.lock()?;
        let sha256 = hex::encode(Sha256::digest(settings));
        let file = format!("{SETTINGS}/{sha256}.json");
        let dir = self.dir.join(SETTINGS);
        make_dir(&dir)?;
        write_whole(&self.dir.join(&file), settings.as_bytes())?;
        Ok(SettingsFile { file, sha256 })
    }

    /// Lets a version serve. Nobody has checked that it can: that is the caller's, who
    /// says with `checked_against` which revision was present then (0: none); another
    /// one since is an error. A shadow is kept unless it is what serves now. If this
    /// serves already, only the time of the activation changes, which makes hosts look
    /// again.
    ///
    /// # Errors
    /// Something else was activated meanwhile, or nothing can be written.
    pub fn activate(
        &self,
        choice: Choice,
        checked_against: Option<u64>,
    ) -> Result<Activated, RegistryError> {
        let _lock = self.lock()?;
        let before = self.present()?;
        expect_revision(before.as_ref(), checked_against)?;
        if let Some(before) = &before
            && before.active == choice
            && self.active().is_ok()
        {
            let now = Activation {
                activated_at: timestamp(),
                ..before.clone()
            };
            write_whole(&self.dir.join(ACTIVE), now.to_text().as_bytes())?;
            return Ok(Activated {
                now: now.clone(),
                before: Some(now),
            });
        }
        let before = self.kept(before)?;
        let previous = before.as_ref().map(|before| before.revision);
        self.put(choice, previous, before)
    }

    /// Returns to the activation before the present one, or to revision `to`.
    /// Repeated, it goes back further. `checked_against` as in
    /// [`activate`](Self::activate).
    ///
    /// # Errors
    /// There is nothing to return to, something else was activated meanwhile, or it
    /// can't be read or written.
    pub fn rollback(
        &self,
        to: Option<u64>,
        checked_against: Option<u64>,
    ) -> Result<Activated, RegistryError> {
        let _lock = self.lock()?;
        let present = self.present()?;
        expect_revision(present.as_ref(), checked_against)?;
        let target = self.rollback_target(to)?;
        let before = self.kept(present)?;
        self.put(target.active, target.previous, before)
    }

    /// What [`rollback`](Self::rollback) would return to.
    ///
    /// # Errors
    /// As there.
    pub fn rollback_target(&self, to: Option<u64>) -> Result<Activation, RegistryError> {
        if let Some(to) = to {
            return self.revision(to);
        }
        let present = match self.active() {
            Ok(present) => present,
            // What is written there can't serve: back to what was activated last.
            Err(RegistryError::Activation { .. }) if !self.revisions()?.is_empty() => {
                return self.present()?.ok_or_else(|| RegistryError::NotActivated {
                    dir: self.dir.clone(),
                });
            }
            Err(error) => return Err(error),
        };
        if let Some(previous) = present.previous {
            return self.revision(previous);
        }
        // Written by hand, without a word of what was before.
        for revision in self.revisions()?.into_iter().rev() {
            let kept = self.revision(revision)?;
            if revision == present.revision && kept.active == present.active {
                break;
            }
            if kept.active != present.active {
                return Ok(kept);
            }
        }
        Err(RegistryError::FirstActivation {
            revision: present.revision,
            active: present.active.to_string(),
        })
    }

    /// What is active; where `active.json` can't be read as an activation, what was
    /// activated last.
    ///
    /// # Errors
    /// A file can't be read.
    pub fn present(&self) -> Result<Option<Activation>, RegistryError> {
        match self.active() {
            Ok(activation) => Ok(Some(activation)),
            Err(RegistryError::NotActivated { .. } | RegistryError::NoFolder { .. }) => Ok(None),
            Err(RegistryError::Activation { .. }) => match self.revisions()?.last() {
                Some(last) => self.revision(*last).map(Some),
                None => Ok(None),
            },
            Err(error) => Err(error),
        }
    }

    /// Sets, or with None ends, what runs in the shadow.
    ///
    /// # Errors
    /// Nothing serves, or `active.json` can't be written.
    pub fn set_shadow(&self, shadow: Option<Shadow>) -> Result<Activation, RegistryError> {
        let _lock = self.lock()?;
        let mut activation = self.active()?;
        activation.shadow = shadow;
        write_whole(&self.dir.join(ACTIVE), activation.to_text().as_bytes())?;
        Ok(activation)
    }

    fn put(
        &self,
        choice: Choice,
        previous: Option<u64>,
        before: Option<Activation>,
    ) -> Result<Activated, RegistryError> {
        let revisions = self.revisions()?;
        let newest = revisions.last().copied().unwrap_or(0);
        let present = before.as_ref().map_or(0, |before| before.revision);
        let now = Activation {
            shadow: before
                .as_ref()
                .and_then(|before| before.shadow.clone())
                .filter(|shadow| shadow.candidate != choice),
            active: choice,
            revision: newest.max(present) + 1,
            previous,
            activated_at: timestamp(),
        };
        // First the past, then the present: what serves can always be returned to.
        self.keep(&now)?;
        write_whole(&self.dir.join(ACTIVE), now.to_text().as_bytes())?;
        self.tidy(&revisions, &now);
        Ok(Activated { now, before })
    }

    /// Removes the oldest activations, and settings that nothing names any more. What
    /// can't be removed is tried again by the next activation.
    fn tidy(&self, revisions: &[u64], now: &Activation) {
        let (old, kept) = revisions.split_at(revisions.len().saturating_sub(KEPT));
        if old.is_empty() {
            return;
        }
        for old in old {
            let _ = std::fs::remove_file(self.revision_path(*old));
        }
        let mut named = now.settings_files();
        for revision in kept {
            match self.revision(*revision) {
                Ok(activation) => named.extend(activation.settings_files()),
                // What it names is not known.
                Err(_) => return,
            }
        }
        let Ok(files) = std::fs::read_dir(self.dir.join(SETTINGS)) else {
            return;
        };
        for file in files.flatten() {
            let name = format!("{SETTINGS}/{}", file.file_name().to_string_lossy());
            if !named.contains(&name) {
                let _ = std::fs::remove_file(file.path());
            }
        }
    }

    /// The present activation as the history has it. One that a person wrote by
    /// hand is not there yet, and gets a number of its own if it has that of
    /// another.
    fn kept(&self, present: Option<Activation>) -> Result<Option<Activation>, RegistryError> {
        let Some(mut present) = present else {
            return Ok(None);
        };
        let revisions = self.revisions()?;
        if revisions.contains(&present.revision) {
            if self.revision(present.revision)?.active == present.active {
                return Ok(Some(present));
            }
            present.previous = Some(present.revision);
            present.revision = revisions.last().copied().unwrap_or(0) + 1;
        }
        self.keep(&present)?;
        Ok(Some(present))
    }

    fn keep(&self, activation: &Activation) -> Result<(), RegistryError> {
        make_dir(&self.dir.join(HISTORY))?;
        write_whole(
            &self.revision_path(activation.revision),
            activation.to_text().as_bytes(),
        )
    }

    /// Waits for whoever else is writing. Let go when dropped.
    fn lock(&self) -> Result<File, RegistryError> {
        make_dir(&self.dir)?;
        let path = self.dir.join(".lock");
        let locked = (|| {
            let file = File::options()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path)?;
            rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
            Ok(file)
        })();
        locked.map_err(|cause| RegistryError::io("write", &path, cause))
    }
}

fn expect_revision(
    present: Option<&Activation>,
    expected: Option<u64>,
) -> Result<(), RegistryError> {
    let found = present.map_or(0, |present| present.revision);
    match expected {
        Some(expected) if expected != found => Err(RegistryError::Overtaken { expected, found }),
        _ => Ok(()),
    }
}

fn timestamp() -> Option<String> {
    OffsetDateTime::now_utc().format(&Rfc3339).ok()
}

fn make_dir(dir: &Path) -> Result<(), RegistryError> {
    std::fs::create_dir_all(dir).map_err(|cause| RegistryError::io("write", dir, cause))
}

/// Writes a file aside, and puts it in its place when all of it is on the disk.
fn write_whole(path: &Path, content: &[u8]) -> Result<(), RegistryError> {
    let unfinished = path.with_file_name(format!(
        ".{}.{}.tmp",
        path.file_name().unwrap_or_default().to_string_lossy(),
        std::process::id()
    ));
    let written = (|| {
        let mut file = File::create(&unfinished)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&unfinished, path)?;
        match path.parent() {
            Some(dir) => File::open(dir)?.sync_all(),
            None => Ok(()),
        }
    })();
    written.map_err(|cause| {
        let _ = std::fs::remove_file(&unfinished);
        RegistryError::io("write", path, cause)
    })
}
