//! A data folder: made if missing, private, writable, with room on its disk, and held by one process.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::EmbeddedError;

/// Room that a data folder must have at a start, MiB.
pub(crate) const FREE_MIB: u64 = 128;

const LOCK_FILE: &str = "lock";
const LOCK_POLL: Duration = Duration::from_millis(50);

/// The lock on a folder. It is released when this is dropped, or with the process.
#[derive(Debug)]
pub struct FolderLock {
    _file: File,
    folder: PathBuf,
}

impl FolderLock {
    /// Prepares `folder` and takes the lock on it, waiting up to `patience`
    /// for a holder that is on its way out.
    ///
    /// The lock file holds the pid of its holder, so that the refusal can name it.
    /// This blocks the thread for as long as it waits.
    ///
    /// # Errors
    /// [`EmbeddedError::Locked`] when it is still held after that;
    /// [`EmbeddedError::Unusable`] or [`EmbeddedError::DiskFull`] when the folder is no use.
    pub fn take(folder: &Path, patience: Duration) -> Result<Self, EmbeddedError> {
        prepare(folder)?;
        let path = folder.join(LOCK_FILE);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|source| EmbeddedError::io("write", &path, source))?;
        let since = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if since.elapsed() < patience => {
                    std::thread::sleep(LOCK_POLL);
                }
                Err(TryLockError::WouldBlock) => {
                    let mut text = String::new();
                    let _ = file.read_to_string(&mut text);
                    return Err(EmbeddedError::Locked {
                        path: folder.to_owned(),
                        holder: text.trim().parse().ok(),
                    });
                }
                Err(TryLockError::Error(source)) => {
                    return Err(EmbeddedError::io("lock", &path, source));
                }
            }
        }
        let said = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        said.map_err(|source| EmbeddedError::io("write", &path, source))?;
        Ok(Self {
            _file: file,
            folder: folder.to_owned(),
        })
    }

    /// The folder that is held.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Makes `folder` with its parents, for this user only, and checks that files can be made in it.
pub(crate) fn prepare(folder: &Path) -> Result<(), EmbeddedError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|source| EmbeddedError::io("create", folder, source))?;
    check_room(folder, FREE_MIB)?;
    tempfile::Builder::new()
        .prefix(".probe")
        .tempfile_in(folder)
        .map(drop)
        .map_err(|source| EmbeddedError::io("write to", folder, source))
}

/// Refuses a folder whose file system has less than `needed_mib` MiB free.
pub(crate) fn check_room(folder: &Path, needed_mib: u64) -> Result<(), EmbeddedError> {
    let stat = nix::sys::statvfs::statvfs(folder)
        .map_err(|errno| EmbeddedError::io("look at", folder, errno.into()))?;
    let free_mib = stat.blocks_available().saturating_mul(stat.fragment_size()) / (1 << 20);
    if free_mib < needed_mib {
        return Err(EmbeddedError::DiskFull {
            path: folder.to_owned(),
            free_mib,
            needed_mib,
        });
    }
    Ok(())
}

/// Writes a file so that a reader sees all of it or nothing, whatever dies in between.
pub(crate) fn write_atomically(path: &Path, content: &[u8]) -> Result<(), EmbeddedError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let written = tempfile::NamedTempFile::new_in(folder).and_then(|mut file| {
        file.write_all(content)?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(std::io::Error::from)
    });
    written
        .map(drop)
        .map_err(|source| EmbeddedError::io("write", path, source))
}

/// Removes a file that may not be there.
pub(crate) fn remove(path: &Path) -> Result<(), EmbeddedError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(EmbeddedError::io("remove", path, source))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_is_told_the_pid_of_the_first() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("a/b");
        let first = FolderLock::take(&folder, Duration::ZERO).unwrap();
        let error = FolderLock::take(&folder, Duration::ZERO).unwrap_err();
        assert_eq!(error.class(), "locked");
        assert!(
            error.to_string().contains(&std::process::id().to_string()),
            "{error}"
        );
        assert!(
            error.to_string().contains(&folder.display().to_string()),
            "{error}"
        );
        drop(first);
        FolderLock::take(&folder, Duration::ZERO).unwrap();
    }

    #[test]
    fn a_folder_under_a_file_is_refused_by_name() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("file");
        fs::write(&file, "").unwrap();
        let error = FolderLock::take(&file.join("data"), Duration::ZERO).unwrap_err();
        assert_eq!(error.class(), "unusable_path");
        assert!(
            error.to_string().contains(&file.display().to_string()),
            "{error}"
        );
    }

    #[test]
    fn a_disk_without_room_is_refused_with_what_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let error = check_room(folder.path(), u64::MAX).unwrap_err();
        assert_eq!(error.class(), "disk_full");
    }

    #[test]
    fn no_space_left_is_a_full_disk_whatever_was_tried() {
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        assert_eq!(EmbeddedError::io("write", "/x", full).class(), "disk_full");
    }
}
