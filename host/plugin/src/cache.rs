//! Compiled code on disk.
//!
//! Loading compiled code is trusting it with this process. So entries live in a
//! directory that belongs to this user and is closed to all others, carry the
//! digest of their own content, and are named by all that went into them: the
//! .wasm file, the settings, the engine. Anything odd about the directory or an
//! entry is a miss; the worst that a broken cache can do is cost a compilation.

use sha2::{Digest, Sha256};
use std::fs::{DirBuilder, File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use wasmtime::Engine;

/// Begins every entry; changes when its layout or the way to make it does.
const MAGIC: &[u8; 16] = b"cdr-compiled-01\n";

/// The largest entry that is read, in bytes.
const MAX_ENTRY: u64 = 512 << 20;

/// What all entries together may have, in bytes; beyond it the oldest go.
const MAX_TOTAL: u64 = 4 << 30;

/// What is unfinished for so long will not be finished.
const ABANDONED: Duration = Duration::from_secs(3600);

pub(crate) struct Cache {
    dir: Option<PathBuf>,
}

impl Cache {
    /// A cache in this directory, which is made if need be. If it can't be used,
    /// that is logged, and every look-up is a miss.
    pub(crate) fn new(dir: Option<PathBuf>) -> Self {
        let dir = dir.filter(|dir| match prepare(dir) {
            Ok(()) => true,
            Err(why) => {
                tracing::warn!(
                    event = "compiled_cache_unusable",
                    dir = %dir.display(),
                    why,
                    "compiled normalizers are not cached: every start compiles again"
                );
                false
            }
        });
        Self { dir }
    }

    /// Whether anything is kept at all.
    pub(crate) fn is_on(&self) -> bool {
        self.dir.is_some()
    }

    fn path(&self, key: &str) -> Option<PathBuf> {
        Some(self.dir.as_ref()?.join(format!("{key}.cwasm")))
    }

    /// The compiled code kept under this key.
    pub(crate) fn get(&self, key: &str) -> Option<Vec<u8>> {
        let path = self.path(key)?;
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
            .open(&path)
            .ok()?;
        let metadata = file.metadata().ok()?;
        if !metadata.is_file()
            || metadata.uid() != rustix::process::geteuid().as_raw()
            || metadata.mode() & 0o022 != 0
            || metadata.len() > MAX_ENTRY
        {
            return None;
        }
        let mut entry = Vec::with_capacity(usize::try_from(metadata.len()).ok()?);
        file.read_to_end(&mut entry).ok()?;
        let rest = entry.strip_prefix(MAGIC)?;
        let (digest, code) = rest.split_at_checked(32)?;
        if Sha256::digest(code).as_slice() != digest {
            return None;
        }
        Some(code.to_vec())
    }

    /// Keeps compiled code. Failing to is logged and otherwise without effect.
    pub(crate) fn put(&self, key: &str, code: &[u8]) {
        let Some(path) = self.path(key) else { return };
        if let Err(error) = write_atomically(&path, code) {
            tracing::warn!(
                event = "compiled_cache_write_failed",
                path = %path.display(),
                %error,
                "a compiled normalizer is not cached"
            );
            return;
        }
        if let Some(dir) = path.parent() {
            tidy(dir, &path, MAX_TOTAL);
        }
    }
}

/// Removes what was never finished, and the oldest entries beyond `total` bytes, but
/// not `kept`. What can't be removed is left: the next entry tries again.
fn tidy(dir: &Path, kept: &Path, total: u64) {
    let Ok(files) = std::fs::read_dir(dir) else {
        return;
    };
    let mut entries: Vec<(SystemTime, u64, PathBuf)> = files
        .flatten()
        .filter_map(|file| {
            let metadata = file.metadata().ok()?;
            Some((metadata.modified().ok()?, metadata.len(), file.path()))
        })
        .collect();
    let has = |path: &Path, ending: &str| path.extension().is_some_and(|found| found == ending);
    entries.retain(|(modified, _, path)| {
        let old = modified.elapsed().is_ok_and(|age| age > ABANDONED);
        if has(path, "tmp") && old {
            let _ = std::fs::remove_file(path);
        }
        has(path, "cwasm")
    });
    entries.sort();
    let mut sum: u64 = entries.iter().map(|(_, size, _)| size).sum();
    for (_, size, path) in entries {
        if sum <= total {
            return;
        }
        if path != kept && std::fs::remove_file(&path).is_ok() {
            sum -= size;
        }
    }
}

fn prepare(dir: &Path) -> Result<(), String> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|error| error.to_string())?;
    let metadata = std::fs::symlink_metadata(dir).map_err(|error| error.to_string())?;
    if !metadata.is_dir() {
        return Err("not a directory".to_owned());
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err("it belongs to another user".to_owned());
    }
    if metadata.mode() & 0o022 != 0 {
        return Err("others may write to it (chmod 700 it)".to_owned());
    }
    Ok(())
}

fn write_atomically(path: &Path, code: &[u8]) -> std::io::Result<()> {
    let unfinished = path.with_extension(format!("{}.tmp", std::process::id()));
    let written = (|| {
        let mut file: File = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
            .open(&unfinished)?;
        file.write_all(MAGIC)?;
        file.write_all(&Sha256::digest(code))?;
        file.write_all(code)?;
        file.sync_all()?;
        std::fs::rename(&unfinished, path)
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&unfinished);
    }
    written
}

/// The key of what this engine compiles from this file with these settings.
pub(crate) fn key(engine: &Engine, file_digest: &str, settings_digest: &str) -> String {
    struct Sha(Sha256);
    impl Hasher for Sha {
        fn finish(&self) -> u64 {
            0
        }
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }
    }
    let mut sha = Sha(Sha256::new());
    sha.write(MAGIC);
    sha.write(file_digest.as_bytes());
    sha.write(settings_digest.as_bytes());
    engine.precompile_compatibility_hash().hash(&mut sha);
    hex::encode(sha.0.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_was_put_comes_back_and_anything_odd_is_a_miss() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("compiled");
        let cache = Cache::new(Some(dir.clone()));
        assert_eq!(cache.get("k"), None);
        cache.put("k", b"code");
        assert_eq!(cache.get("k").as_deref(), Some(&b"code"[..]));
        assert_eq!(std::fs::metadata(&dir).unwrap().mode() & 0o777, 0o700);

        let entry = dir.join("k.cwasm");
        let good = std::fs::read(&entry).unwrap();
        for odd in [
            &good[..good.len() - 1],
            &good[1..],
            &b""[..],
            &[good.as_slice(), b"x"].concat(),
        ] {
            std::fs::write(&entry, odd).unwrap();
            assert_eq!(cache.get("k"), None);
        }
        std::fs::write(&entry, &good).unwrap();
        assert!(cache.get("k").is_some());

        std::fs::set_permissions(&entry, PermissionsExt::from_mode(0o666)).unwrap();
        assert_eq!(cache.get("k"), None, "others may write to the entry");

        std::fs::remove_file(&entry).unwrap();
        let elsewhere = root.path().join("elsewhere");
        std::fs::write(&elsewhere, &good).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &entry).unwrap();
        assert_eq!(cache.get("k"), None, "a link is not followed");
    }

    #[test]
    fn the_oldest_go_when_there_is_too_much_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, age: u64| {
            let path = dir.path().join(name);
            std::fs::write(&path, [0; 100]).unwrap();
            let at = SystemTime::now() - Duration::from_secs(age);
            File::options()
                .write(true)
                .open(&path)
                .unwrap()
                .set_modified(at)
                .unwrap();
            path
        };
        let kept = write("kept.cwasm", 9000);
        for (name, age) in [
            ("old.cwasm", 5000),
            ("new.cwasm", 10),
            ("newer.cwasm", 5),
            ("given-up.7.tmp", 4000),
            ("under-way.8.tmp", 10),
            ("notes", 9000),
        ] {
            write(name, age);
        }
        tidy(dir.path(), &kept, 250);
        let mut left: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(
            left,
            ["kept.cwasm", "newer.cwasm", "notes", "under-way.8.tmp"]
        );
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_not_used() {
        let root = tempfile::tempdir().unwrap();
        std::fs::set_permissions(root.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let cache = Cache::new(Some(root.path().to_owned()));
        cache.put("k", b"code");
        assert_eq!(cache.get("k"), None);
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
