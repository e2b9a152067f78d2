//! What telecom values mean, whatever format they came in: the rules that
//! normalizers of different formats share, so that their rows mean the same.
//!
//! All of it is pure: no clock, no files, no network, no state beyond the
//! compiled phone metadata. It knows no format and no host.

pub mod cdr_id;
pub mod epoch;
pub mod ipv4;
pub mod json;
pub mod phone;
pub mod text;
