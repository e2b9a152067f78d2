//! ClickHouse from `libchdb.so`: its real server, in a child process.

use std::path::{Path, PathBuf};

pub mod child;
mod engine;
pub mod library;
mod settings;

/// Name of the child, of its folder and of its subcommand.
pub(crate) const NAME: &str = "clickhouse";

/// The one user that may do something: everything in [`DATABASE`], and read system tables.
pub const USER: &str = "cdr";

/// The database that [`USER`] may create and use.
pub const DATABASE: &str = "telecom";

/// Where the password of [`USER`] is kept; only the owner of the folder can read it.
pub(crate) fn password_file(data: &Path) -> PathBuf {
    data.join("password")
}
