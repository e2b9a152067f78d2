//! Drives a running system from outside, breaks its parts, and judges what landed.
//!
//! ```text
//!   plan ─▶ round ─┬─ vendors   post, and post again until they are answered
//!                  ├─ parts     kill, stop, freeze; start again
//!                  ├─ proxy     delay, cut, hang what is between them
//!                  └─ accounts  consumed = inserted + dead_lettered + in_flight + given_back
//!                  │
//!                  ▼ all healed: settle, then
//!           evidence (rows, dead letters) ─▶ judge ◀─ what vendors were told
//! ```
//!
//! Nothing in here knows how a host works inside; the judge asks ClickHouse and Kafka
//! themselves. `cdr-chaos` is a run of such rounds; `cdr-swaps` is one long round in
//! which nothing breaks, but the normalizer changes every second; `cdr-load` asks more
//! of one API than it can give.

#![deny(missing_docs)]

pub mod accounts;
pub mod chaos;
pub mod ends;
pub mod evidence;
pub mod http_client;
pub mod journal;
pub mod judge;
pub mod load;
pub mod parts;
pub mod plan;
pub mod proxy;
pub mod records;
pub mod round;
pub mod settle;
pub mod swaps;
pub mod vendors;
