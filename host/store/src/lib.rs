//! ClickHouse for the CDR hosts: the table, blocks of rows, inserts, and what
//! each error means.
//!
//! ```text
//!   columns ──► Rows ──► EncodedBlock ──► Store::insert ──► ClickHouse (HTTP)
//!               append,   Native + LZ4,    one request,
//!               slice     bytes fixed      StoreError { class }
//! ```
//!
//! - [`mod@column`] and [`rows`]: values as columns, in the shape in which a
//!   normalizer hands them over, so that building a batch moves vectors and
//!   copies no values.
//! - [`block`]: a batch as the exact bytes of one insert. It is encoded once; a
//!   retry sends the same bytes again.
//! - [`token`]: names a batch, so that ClickHouse drops its repetition; [`again`]:
//!   makes sure that it did not drop more than that.
//! - [`schema`] and [`provision`]: the table that a list of columns needs, made
//!   where it is missing, compared where it exists, never changed.
//! - [`limits`]: what ClickHouse lets an insert of this user be.
//! - [`client`]: the connection. [`error`]: what can go wrong with it; [`codes`]:
//!   the one table of what each error of ClickHouse means for a batch;
//!   [`retry`]: how long to wait between attempts.
//!
//! What it is not for: it knows no Kafka and no normalizer, decides nothing
//! about a failed batch (the worker does, by [`ErrorClass`]), and keeps no
//! metrics.
//!
//! The invariant it keeps: [`Store::insert`] returns `Ok` only when ClickHouse
//! has said that it took every row of the block. Anything else, an answer that
//! could be read either way included, is an error.

#![deny(missing_docs)]

mod advice;
pub mod again;
mod answer;
pub mod block;
pub mod client;
pub mod codes;
pub mod column;
mod column_error;
mod compare;
pub mod config;
pub mod error;
pub mod limits;
pub mod provision;
pub mod retry;
pub mod rows;
pub mod schema;
mod spec;
pub mod token;

pub use again::{MissingKey, RowKeys};
pub use block::{BlockError, EncodedBlock};
pub use client::{Store, StoreInfo};
pub use column::{Blobs, Column, Values};
pub use column_error::ColumnError;
pub use compare::Difference;
pub use config::{ConfigError, Password, StoreConfig};
pub use error::{ErrorClass, StoreError};
pub use limits::InsertLimits;
pub use provision::{Evolution, Plan, ProvisionError};
pub use retry::RetryPolicy;
pub use rows::Rows;
pub use schema::{LayoutError, TableLayout, TableSpec};
pub use spec::{ColumnSpec, ColumnType};
pub use token::{DedupToken, OffsetRange};
