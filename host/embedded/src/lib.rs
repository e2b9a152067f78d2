//! A Kafka broker and a ClickHouse for one machine, without Docker: for `cdr
//! up`, `cdr demo` and the tests.
//!
//! ```text
//!   cdr up ─── Embedded::start ──┬─ cdr embedded broker      (Tansu, SQLite)     127.0.0.1:p
//!     lock on DATA/              │    DATA/broker/   lock, broker.db
//!                                └─ cdr embedded clickhouse  (libchdb.so, pty)   127.0.0.1:q
//!                                     DATA/clickhouse/ lock, data/, users.xml, password
//!   DATA/run/NAME.port  ◄──────── each child writes its port when it serves,
//!   DATA/run/NAME.port.error      or the reason why it doesn't
//! ```
//!
//! Each part is a child process: the same binary, run again with a hidden
//! subcommand ([`broker::child::run`], [`clickhouse::child::run`]). So a crash
//! of one is seen and named, and a part can be killed and started again alone.
//! What they keep to:
//! - **Durable** over `kill -9` of anything here: what was acknowledged is
//!   there at the next start on the same folder. Not over a loss of power:
//!   neither part waits for the disk at each write.
//! - **Loopback only.** ClickHouse's one user with rights has a password that
//!   is made up with the folder; it reads and writes one database, no files
//!   and no URLs. The broker has no passwords: any local user can use it.
//! - **One process a folder**, by locks that the system releases at any death.
//! - **Children die with their parent**, and end in order on `SIGTERM`.
//!
//! Not for production: one node, no replication, no TLS. Kafka or Redpanda and
//! a ClickHouse server are.

#![deny(missing_docs)]

pub mod broker;
mod child_process;
pub mod clickhouse;
mod error;
mod folder;
pub mod parent;
mod parts;
mod port;
mod spawner;

pub use child_process::{ChildLogs, ChildProcess, ChildSpec, Stopped};
pub use error::EmbeddedError;
pub use folder::FolderLock;
pub use parts::{Broker, ClickHouse, Embedded, EmbeddedConfig, PartConfig, PartEnded};
