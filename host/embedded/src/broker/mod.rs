//! A Kafka broker for one machine: Tansu on an SQLite file, in a child process.

pub mod child;
mod routes;
mod server;

/// Name of the child, of its folder and of its subcommand.
pub(crate) const NAME: &str = "broker";
