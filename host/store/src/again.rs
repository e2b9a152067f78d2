//! An insert that may be a repetition, and is checked.
//!
//! A token alone is not enough there. ClickHouse (tried with 26.7) notes the
//! token of a part in its deduplication log *before* the part becomes part of
//! the table. If it is killed between the two, or if the second fails (a full
//! disk), the token is known and the rows are not there: the repetition is
//! acknowledged, and dropped. Nothing in its answer tells. So after a repetition
//! the rows are looked for by their key, and what is missing is inserted under a
//! token that was never used.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{Request, header};

use crate::{
    answer::unclear,
    block::{EncodedBlock, encode_native},
    client::{Store, timed_out},
    error::{ErrorClass, StoreError},
    rows::Rows,
    schema::{TableLayout, quoted},
    spec::ColumnSpec,
    token::DedupToken,
};

/// Ends the form that carries the keys; lengthened until no key holds it.
const BOUNDARY: &str = "cdr-keys-1c5604e3078952ac91aede0f40301090";

/// The keys of a batch, by which its rows are found in the table.
#[derive(Debug, Clone)]
pub struct RowKeys {
    specs: Vec<ColumnSpec>,
    native: Bytes,
    rows: usize,
}

impl RowKeys {
    /// The key columns of `rows`, as `layout` names them. Copies their values.
    ///
    /// # Errors
    /// The name of a key column that the rows lack.
    pub fn new(rows: &Rows, layout: &TableLayout) -> Result<Self, MissingKey> {
        let mut columns = Vec::new();
        for key in &layout.key {
            let at = rows.specs().iter().position(|spec| spec == key);
            let column = at.and_then(|at| rows.columns().get(at));
            columns.push(column.cloned().ok_or_else(|| MissingKey {
                name: key.name.clone(),
            })?);
        }
        // Columns of a batch fit one another.
        let keys = Rows::new(layout.key.clone().into(), columns).map_err(|_| MissingKey {
            name: layout.sorting_key(),
        })?;
        Ok(Self {
            specs: layout.key.clone(),
            native: encode_native(&keys).into(),
            rows: keys.len(),
        })
    }

    /// The form that makes them a table `keys` for one query.
    fn form(&self) -> (String, Bytes) {
        let mut boundary = BOUNDARY.to_owned();
        while contains(&self.native, boundary.as_bytes()) {
            boundary.push('x');
        }
        let head = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"keys\"; filename=\"keys\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n"
        );
        let tail = format!("\r\n--{boundary}--\r\n");
        let body = [head.as_bytes(), &self.native, tail.as_bytes()].concat();
        (
            format!("multipart/form-data; boundary={boundary}"),
            body.into(),
        )
    }

    fn structure(&self) -> String {
        let columns = self.specs.iter();
        let columns: Vec<_> = columns
            .map(|spec| format!("{} {}", quoted(&spec.name), spec.wire_type()))
            .collect();
        columns.join(", ")
    }
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

/// A column of the key that a batch does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the batch has no column `{name}`, which the table is ordered by")]
pub struct MissingKey {
    /// The column.
    pub name: String,
}

impl Store {
    /// Inserts a block that may have been tried before, by this process or by
    /// one that died, and sees to it that its rows are there: see the module
    /// [`crate::again`]. `keys` are those of the block's rows.
    ///
    /// Where ClickHouse refuses to look for the rows (the user may not SELECT, or
    /// not so much), or takes long to, they are inserted under a token of their own: a row may then
    /// lie in the table twice until it is merged, but none is missing.
    ///
    /// All of it has the time of one insert.
    ///
    /// # Errors
    /// As [`Store::insert`]; call it again then.
    pub async fn insert_again(
        &self,
        block: &EncodedBlock,
        token: &DedupToken,
        keys: &RowKeys,
    ) -> Result<(), StoreError> {
        let limit = self.config().insert_timeout;
        match tokio::time::timeout(limit, self.insert_checked(block, token, keys)).await {
            Ok(done) => done,
            Err(_) => {
                let at = self.operation(format!("insert {} rows again", block.rows()));
                Err(timed_out(limit, &at))
            }
        }
    }

    async fn insert_checked(
        &self,
        block: &EncodedBlock,
        token: &DedupToken,
        keys: &RowKeys,
    ) -> Result<(), StoreError> {
        self.insert(block, token).await?;
        // What is left of the time must be enough to insert once more.
        let patience = self.config().insert_timeout / 3;
        let at = self.operation(format!("look for {} rows", keys.rows));
        let looked = tokio::time::timeout(patience, self.missing(keys))
            .await
            .unwrap_or_else(|_| {
                Err(StoreError {
                    class: ErrorClass::TooLarge,
                    ..timed_out(patience, &at)
                })
            });
        match looked {
            Ok(0) => return Ok(()),
            Ok(missing) => tracing::warn!(
                event = "insert_swallowed",
                missing,
                rows = block.rows(),
                token = %token,
                "ClickHouse took a repeated insert for done, but rows are missing; inserting them again"
            ),
            // It answered: the rows may be there, but nobody will see that they are.
            Err(error) if error.code.is_some() || error.class != ErrorClass::Transient => {
                tracing::warn!(
                    event = "insert_unchecked",
                    rows = block.rows(),
                    error = %error,
                    "a repeated insert can't be checked; inserting it once more"
                )
            }
            Err(error) => return Err(error),
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let unique = now.map_or(0, |now| now.as_nanos());
        self.insert(block, &token.anew(unique)).await
    }

    /// How many rows of a batch the table lacks, by their key. One query, with
    /// the key as its index.
    ///
    /// Rows that are old enough to have expired are missing too. On a cluster,
    /// the server that answers may not have them yet.
    ///
    /// # Errors
    /// As [`Store::query_rows`].
    pub async fn missing(&self, keys: &RowKeys) -> Result<u64, StoreError> {
        if keys.rows == 0 {
            return Ok(0);
        }
        let table = self.table_name();
        let at = self.operation(format!("look for {} rows in {table}", keys.rows));
        let names: Vec<_> = keys.specs.iter().map(|spec| quoted(&spec.name)).collect();
        let key = names.join(", ");
        let table = self.quoted_table();
        let sql = format!(
            "SELECT count() FROM keys WHERE ({key}) NOT IN \
             (SELECT {key} FROM {table} WHERE ({key}) IN (SELECT {key} FROM keys)) \
             FORMAT TabSeparated"
        );
        let mut url = self.url();
        url.query_pairs_mut()
            .append_pair("query", &sql)
            .append_pair("keys_format", "Native")
            .append_pair("keys_structure", &keys.structure())
            .append_pair("wait_end_of_query", "1");
        let (content_type, body) = keys.form();
        let request = Request::post(url.as_str()).header(header::CONTENT_TYPE, content_type);
        let limit = self.config().query_timeout;
        let answer = self.post(request, body, limit, &at).await?;
        let text = answer.success(&at)?.trim();
        text.parse()
            .map_err(|_| unclear(format!("expected a number, found: {text}"), &at))
    }
}
