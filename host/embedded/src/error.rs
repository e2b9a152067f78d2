//! Everything that can go wrong with a part of this crate, each as one sentence for an operator.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// Why a part could not be prepared, started or kept running.
///
/// The text of each names the path or address that was tried, what was found
/// there and what to do. [`EmbeddedError::class`] is the same fact for code.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddedError {
    /// A folder or file of ours can't be created, read, written or renamed.
    #[error("cannot {action} {}: {source}; choose another folder or mend its permissions", path.display())]
    Unusable {
        /// What was tried, as a verb: "create", "write", "read".
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },

    /// The file system of a folder is full, or so nearly that work should not start on it.
    #[error(
        "the disk is full: {} has {free_mib} MiB free and at least {needed_mib} MiB are needed; free some space or choose another folder",
        path.display()
    )]
    DiskFull {
        /// A folder on that file system.
        path: PathBuf,
        /// What is free for this user, MiB.
        free_mib: u64,
        /// What is asked for, MiB.
        needed_mib: u64,
    },

    /// Another process holds the folder.
    #[error(
        "{} is in use by {}; stop it, or choose another data folder",
        path.display(),
        holder.map_or("another process".to_owned(), |pid| format!("the process with pid {pid}"))
    )]
    Locked {
        /// The folder.
        path: PathBuf,
        /// Who holds it, if the lock file says so.
        holder: Option<u32>,
    },

    /// Something listens on the port already.
    #[error("the port of {address} is in use by another program; stop it, or choose another port")]
    PortInUse {
        /// The address that was tried.
        address: SocketAddr,
    },

    /// The port can't be had for another reason.
    #[error("cannot listen on {address}: {source}; choose another port")]
    Port {
        /// The address that was tried.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },

    /// The program of a child could not be run at all.
    #[error("cannot start {name} ({}): {source}", program.display())]
    Spawn {
        /// Name of the child.
        name: String,
        /// The program that was to run.
        program: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },

    /// A child ended before it was ready.
    #[error("{name} did not start ({status}): {reason}")]
    EndedEarly {
        /// Name of the child.
        name: String,
        /// How it ended.
        status: ExitStatus,
        /// What it said, or where its output is.
        reason: String,
    },

    /// A child runs, and was not ready in the time given.
    #[error("{name} was not ready within {} s; its output: {output}", budget.as_secs_f32())]
    NotReady {
        /// Name of the child.
        name: String,
        /// How long it was waited for.
        budget: Duration,
        /// Where its output went.
        output: String,
    },

    /// The wait for a child, or a signal to it, failed in the system.
    #[error("lost track of {name}: {source}")]
    Untracked {
        /// Name of the child.
        name: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },

    /// The parent was gone before the child had begun.
    #[error("the process that started this one (pid {parent}) is gone; stopping")]
    ParentGone {
        /// Pid of the parent that was expected.
        parent: u32,
    },

    /// A file given as ClickHouse's library is not there.
    #[error("there is no ClickHouse library at {}; point CLICKHOUSE_LIBRARY at a libchdb.so, or unset it", path.display())]
    LibraryNotFound {
        /// The path that was given.
        path: PathBuf,
    },

    /// There is no ready-made library for this machine.
    #[error(
        "there is no ready-made ClickHouse library for {platform}; point CLICKHOUSE_LIBRARY at a libchdb.so {version} for it, or use docker compose"
    )]
    LibraryUnsupported {
        /// Architecture and system of this machine.
        platform: String,
        /// The version that is needed.
        version: &'static str,
    },

    /// `npm` is not installed.
    #[error(
        "npm was not found, and is needed once to fetch ClickHouse ({package}); install Node.js, or point CLICKHOUSE_LIBRARY at a libchdb.so of that version"
    )]
    NpmMissing {
        /// What was to be fetched.
        package: &'static str,
    },

    /// `npm` ran and failed, or did not come to an end.
    #[error(
        "npm could not fetch {package}: {detail}; check the network and the npm registry (`npm config get registry`), or point CLICKHOUSE_LIBRARY at a libchdb.so of that version"
    )]
    NpmFailed {
        /// What was to be fetched.
        package: &'static str,
        /// The last lines it wrote.
        detail: String,
    },

    /// The library that was fetched is not the one that is known.
    #[error(
        "{} has sha256 {found}, expected {expected}; it was not installed: check the npm registry, or point CLICKHOUSE_LIBRARY at a file you trust",
        path.display()
    )]
    LibraryDigest {
        /// The file that was looked at.
        path: PathBuf,
        /// The digest pinned in this crate, hexadecimal.
        expected: &'static str,
        /// The digest of the file, hexadecimal.
        found: String,
    },

    /// The library can't be loaded, or is not what it should be.
    #[error("cannot load ClickHouse from {}: {detail}; point CLICKHOUSE_LIBRARY at a libchdb.so, or remove the file to have it fetched again", path.display())]
    LibraryUnloadable {
        /// The file.
        path: PathBuf,
        /// What the dynamic linker said.
        detail: String,
    },

    /// ClickHouse came back without having served.
    #[error("ClickHouse on {} gave up before it was ready: {detail}", data.display())]
    ClickHouseGaveUp {
        /// Its data folder.
        data: PathBuf,
        /// The last of what it wrote.
        detail: String,
    },

    /// The broker's storage can't be opened, or its server failed.
    #[error("the broker on {} failed: {detail}", data.display())]
    BrokerFailed {
        /// Its data folder.
        data: PathBuf,
        /// What it said.
        detail: String,
    },
}

impl EmbeddedError {
    /// The kind of error, in snake_case: for metrics and logs, and for callers that act on it.
    pub fn class(&self) -> &'static str {
        match self {
            Self::Unusable { .. } => "unusable_path",
            Self::DiskFull { .. } => "disk_full",
            Self::Locked { .. } => "locked",
            Self::PortInUse { .. } => "port_in_use",
            Self::Port { .. } => "port_unusable",
            Self::Spawn { .. } => "spawn_failed",
            Self::EndedEarly { .. } => "ended_early",
            Self::NotReady { .. } => "not_ready",
            Self::Untracked { .. } => "untracked",
            Self::ParentGone { .. } => "parent_gone",
            Self::LibraryNotFound { .. } => "library_not_found",
            Self::LibraryUnsupported { .. } => "library_unsupported",
            Self::NpmMissing { .. } => "npm_missing",
            Self::NpmFailed { .. } => "npm_failed",
            Self::LibraryDigest { .. } => "library_digest",
            Self::LibraryUnloadable { .. } => "library_unloadable",
            Self::ClickHouseGaveUp { .. } => "clickhouse_gave_up",
            Self::BrokerFailed { .. } => "broker_failed",
        }
    }

    /// An I/O error on a path of ours; "no space left" is told apart.
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        if matches!(
            source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        ) {
            return Self::DiskFull {
                path,
                free_mib: 0,
                needed_mib: crate::folder::FREE_MIB,
            };
        }
        Self::Unusable {
            action,
            path,
            source,
        }
    }
}
