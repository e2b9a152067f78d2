//! The folder that normalizers are shipped to (`NORMALIZER_DIR`).
//!
//! ```text
//! NORMALIZER_DIR/
//!   cdr-normalizer@1.2.0.wasm            a version: never changed once it is there
//!   cdr-normalizer@1.2.0.wasm.minisig    its signature, if it is signed
//!   cdr-normalizer@1.2.0.fixtures/       payloads and the answers that it must give
//!   settings/<sha256>.json               settings, named by their content
//!   active.json                          what serves, and what runs in its shadow
//!   history/000007.json                  each activation, for a rollback
//! ```
//!
//! Hosts only read; `cdr plugin add`, `activate`, `rollback` and `shadow` write.
//! Every file comes into being whole (written aside, synced, renamed), so a
//! reader at any moment sees the old state or the new one, and a machine that
//! dies in between leaves one of the two.

mod activation;
mod error;
mod version;
mod write;

pub use activation::{Activation, ActivationError, Choice, SettingsFile, Shadow, check_sample};
pub use error::RegistryError;
pub use version::{VersionId, VersionIdError};
pub use write::{Activated, Added};

use crate::inspect;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file that says what serves.
pub const ACTIVE: &str = "active.json";
/// The folder of activations.
const HISTORY: &str = "history";
/// The folder of settings.
const SETTINGS: &str = "settings";
/// The largest settings that are read, in bytes.
const MAX_SETTINGS: u64 = 16 << 20;
/// The largest signature that is read, in bytes; real ones have some 300.
const MAX_SIGNATURE: u64 = 16 << 10;

/// A registry folder. Cheap to clone; nothing is kept open.
#[derive(Debug, Clone)]
pub struct Registry {
    dir: PathBuf,
}

/// A version that lies in the registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name and version, as its file name has them.
    pub id: VersionId,
    /// Its file.
    pub path: PathBuf,
    /// Bytes of the file.
    pub size: u64,
    /// Whether a signature lies beside it. Nobody has checked it.
    pub signed: bool,
}

/// What an activation names, read and checked against its digests.
#[derive(Debug)]
pub struct Artifact {
    /// Its name and version, as its file name has them.
    pub id: VersionId,
    /// Its file.
    pub path: PathBuf,
    /// The component.
    pub wasm: Vec<u8>,
    /// Its settings; `{}` if the activation has none.
    pub settings: String,
    /// The minisign signature that lies beside the file.
    pub signature: Option<String>,
}

impl Registry {
    /// The registry in this folder, which may not be there yet.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where this version lies, or would.
    pub fn path_of(&self, id: &VersionId) -> PathBuf {
        self.dir.join(id.file_name())
    }

    /// Where the signature of this version lies, or would.
    pub fn signature_path_of(&self, id: &VersionId) -> PathBuf {
        self.dir.join(format!("{}.minisig", id.file_name()))
    }

    /// Where the fixtures of this version lie, or would.
    pub fn fixtures_path_of(&self, id: &VersionId) -> PathBuf {
        self.dir.join(format!("{id}.fixtures"))
    }

    /// Every version that lies here, in order. Files of other names are passed
    /// over.
    ///
    /// # Errors
    /// The folder can't be read.
    pub fn list(&self) -> Result<Vec<Entry>, RegistryError> {
        let mut entries = Vec::new();
        let read = std::fs::read_dir(&self.dir).map_err(|cause| self.folder_error(cause))?;
        for file in read {
            let file = file.map_err(|cause| self.folder_error(cause))?;
            let name = file.file_name();
            let Some(id) = name.to_str().and_then(VersionId::of_file_name) else {
                continue;
            };
            // It may be gone by now, which is no error of the list.
            let Ok(metadata) = std::fs::metadata(file.path()) else {
                continue;
            };
            if metadata.is_file() {
                entries.push(Entry {
                    signed: self.signature_path_of(&id).is_file(),
                    path: file.path(),
                    size: metadata.len(),
                    id,
                });
            }
        }
        entries.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(entries)
    }

    /// What serves by `active.json`.
    ///
    /// # Errors
    /// There is none ([`RegistryError::NotActivated`]), or it is not as it must be.
    pub fn active(&self) -> Result<Activation, RegistryError> {
        match self.active_text()? {
            Some(text) => parse(&self.dir.join(ACTIVE), &text),
            None => Err(RegistryError::NotActivated {
                dir: self.dir.clone(),
            }),
        }
    }

    /// The text of `active.json`; none if there is none.
    pub(crate) fn active_text(&self) -> Result<Option<Vec<u8>>, RegistryError> {
        read_bounded(&self.dir.join(ACTIVE), activation::MAX_BYTES)
    }

    /// Every activation that is kept, the oldest first.
    ///
    /// # Errors
    /// One of them can't be read.
    pub fn history(&self) -> Result<Vec<Activation>, RegistryError> {
        self.revisions()?
            .into_iter()
            .map(|revision| self.revision(revision))
            .collect()
    }

    /// An activation of the past.
    ///
    /// # Errors
    /// It is not kept, or can't be read.
    pub fn revision(&self, revision: u64) -> Result<Activation, RegistryError> {
        let path = self.revision_path(revision);
        match read_bounded(&path, activation::MAX_BYTES)? {
            Some(text) => parse(&path, &text),
            None => Err(RegistryError::NoSuchRevision {
                revision,
                kept: self.revisions()?,
            }),
        }
    }

    fn revision_path(&self, revision: u64) -> PathBuf {
        self.dir.join(HISTORY).join(format!("{revision:06}.json"))
    }

    /// The numbers of the activations that are kept, rising.
    pub(crate) fn revisions(&self) -> Result<Vec<u64>, RegistryError> {
        let dir = self.dir.join(HISTORY);
        let read = match std::fs::read_dir(&dir) {
            Ok(read) => read,
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(cause) => return Err(RegistryError::io("read", &dir, cause)),
        };
        let mut revisions: Vec<u64> = read
            .filter_map(|file| {
                let name = file.ok()?.file_name();
                name.to_str()?.strip_suffix(".json")?.parse().ok()
            })
            .collect();
        revisions.sort_unstable();
        Ok(revisions)
    }

    /// The digest of a version that lies here, in hexadecimal.
    ///
    /// # Errors
    /// It is not there, or larger than `limit` bytes.
    pub fn digest_of(&self, id: &VersionId, limit: usize) -> Result<String, RegistryError> {
        Ok(hex::encode(Sha256::digest(self.wasm(id, limit)?)))
    }

    /// Reads what an activation names, and checks its digests.
    ///
    /// # Errors
    /// A file is missing, larger than `limit` bytes, or another one than was
    /// activated.
    pub fn artifact(&self, choice: &Choice, limit: usize) -> Result<Artifact, RegistryError> {
        let id = choice.id().map_err(|cause| RegistryError::Activation {
            path: self.dir.join(ACTIVE),
            cause: cause.into(),
        })?;
        let wasm = self.wasm(&id, limit)?;
        let path = self.path_of(&id);
        expect_digest(&path, &choice.sha256, &wasm)?;
        let settings = match &choice.settings {
            None => "{}".to_owned(),
            Some(settings) => {
                let path = self.dir.join(&settings.file);
                let text = read_bounded(&path, MAX_SETTINGS)?.ok_or_else(|| {
                    RegistryError::io("read", &path, std::io::ErrorKind::NotFound.into())
                })?;
                expect_digest(&path, &settings.sha256, &text)?;
                String::from_utf8(text).map_err(|_| RegistryError::SettingsNotText { path })?
            }
        };
        let signature = read_bounded(&self.signature_path_of(&id), MAX_SIGNATURE)?
            .map(|text| String::from_utf8_lossy(&text).into_owned());
        Ok(Artifact {
            id,
            path,
            wasm,
            settings,
            signature,
        })
    }

    fn wasm(&self, id: &VersionId, limit: usize) -> Result<Vec<u8>, RegistryError> {
        let path = self.path_of(id);
        if !path.is_file() {
            return Err(RegistryError::NoSuchVersion {
                id: id.clone(),
                dir: self.dir.clone(),
                there: self.list()?.into_iter().map(|entry| entry.id).collect(),
            });
        }
        Ok(inspect::read(&path, limit)?)
    }

    fn folder_error(&self, cause: std::io::Error) -> RegistryError {
        match cause.kind() {
            std::io::ErrorKind::NotFound => RegistryError::NoFolder {
                dir: self.dir.clone(),
            },
            _ => RegistryError::io("read", &self.dir, cause),
        }
    }
}

fn parse(path: &Path, text: &[u8]) -> Result<Activation, RegistryError> {
    Activation::parse(text).map_err(|cause| RegistryError::Activation {
        path: path.to_owned(),
        cause,
    })
}

fn expect_digest(path: &Path, expected: &str, content: &[u8]) -> Result<(), RegistryError> {
    let found = hex::encode(Sha256::digest(content));
    if found.eq_ignore_ascii_case(expected) {
        Ok(())
    } else {
        Err(RegistryError::WrongDigest {
            path: path.to_owned(),
            expected: expected.to_ascii_lowercase(),
            found,
        })
    }
}

/// The content of a file, or None if it is not there.
fn read_bounded(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, RegistryError> {
    let opened = File::options()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(RegistryError::io("read", path, cause)),
    };
    // Reading a pipe would wait for ever.
    let kind = file.metadata().map(|metadata| metadata.is_file());
    if !kind.map_err(|cause| RegistryError::io("read", path, cause))? {
        let cause = std::io::Error::new(std::io::ErrorKind::InvalidInput, "not a regular file");
        return Err(RegistryError::io("read", path, cause));
    }
    let mut content = Vec::new();
    file.take(limit + 1)
        .read_to_end(&mut content)
        .map_err(|cause| RegistryError::io("read", path, cause))?;
    if content.len() as u64 > limit {
        return Err(RegistryError::TooLarge {
            path: path.to_owned(),
            limit,
        });
    }
    Ok(Some(content))
}
