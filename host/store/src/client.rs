//! The connection to ClickHouse: inserts, and the few queries that the hosts
//! ask.
//!
//! Queries go through the official `clickhouse` crate. Inserts don't: its raw
//! insert gives back neither the HTTP status nor the answer's headers and body,
//! and compresses anew for every attempt, while here the status decides on the
//! class of an error, the body and the count of rows on whether it was a
//! success at all, and a retry sends the same bytes.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use clickhouse::error::Error as ClientError;
use http::{Request, header};
use http_body_util::Full;
use hyper_util::{
    client::legacy::{Client as HyperClient, Error as HyperError, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use serde::{Deserialize, de::DeserializeOwned};
use url::Url;

use crate::{
    answer::{Answer, chain},
    block::EncodedBlock,
    config::{ConfigError, StoreConfig},
    error::{ErrorClass, Operation, StoreError},
    schema::{LayoutError, TableLayout, TableSpec, quoted},
    spec::ColumnSpec,
    token::DedupToken,
};

/// Below the 3 s after which older servers close an idle connection, so that a
/// request hardly ever meets one that is just being closed.
const POOL_IDLE: Duration = Duration::from_secs(2);

/// What every insert asks for, whatever the user's profile says.
pub(crate) const INSERT_SETTINGS: [(&str, &str); 3] = [
    ("insert_deduplicate", "1"),
    // The answer is to come when the rows are written, not when they are queued.
    ("async_insert", "0"),
    // A null where none may be is an error, not a zero.
    ("input_format_null_as_default", "0"),
];

/// A row of numbers that ClickHouse counts by, as text, and how many rows there
/// are of it.
pub type GroupCount = (Vec<String>, u64);

/// One table on one ClickHouse server. Cloning shares the connections.
#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: StoreConfig,
    url: Url,
    inserts: HyperClient<HttpConnector, Full<Bytes>>,
    queries: clickhouse::Client,
}

/// What answered a [`Store::ping`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct StoreInfo {
    /// ClickHouse's version, as in `26.7.2.1`.
    pub version: String,
}

impl Store {
    /// Makes no connection yet.
    ///
    /// # Errors
    /// Where the configuration can't work.
    pub fn new(config: StoreConfig) -> Result<Self, ConfigError> {
        let url = config.checked()?;
        // Two pools of the same kind: the two clients differ in their bodies.
        let mut connector = HttpConnector::new();
        // Without it, an insert can wait 40 ms for an acknowledgement that is
        // itself delayed.
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(config.connect_timeout));
        let mut builder = HyperClient::builder(TokioExecutor::new());
        builder
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE);
        let inserts = builder.build(connector.clone());
        let queries = clickhouse::Client::with_http_client(builder.build(connector))
            .with_url(url.as_str())
            .with_user(&config.user)
            .with_password(config.password.reveal())
            .with_setting("wait_end_of_query", "1")
            .with_setting("output_format_json_quote_64bit_integers", "0");

        Ok(Self {
            inner: Arc::new(Inner {
                config,
                url,
                inserts,
                queries,
            }),
        })
    }

    /// The configuration it was made from.
    pub fn config(&self) -> &StoreConfig {
        &self.inner.config
    }

    /// The table, as in `telecom.cdr_records`.
    pub fn table_name(&self) -> String {
        format!("{}.{}", self.config().database, self.config().table)
    }

    /// The table as SQL takes it.
    pub fn quoted_table(&self) -> String {
        let config = self.config();
        format!("{}.{}", quoted(&config.database), quoted(&config.table))
    }

    /// The table that the columns of a manifest need, at this store's place.
    ///
    /// # Errors
    /// Where the manifest can't be stored under this layout.
    pub fn table_spec(
        &self,
        layout: TableLayout,
        manifest: &[ColumnSpec],
    ) -> Result<TableSpec, LayoutError> {
        TableSpec::new(
            &self.config().database,
            &self.config().table,
            layout,
            manifest,
        )
    }

    /// Inserts a block, in one request; tries once. A block of no rows is sent
    /// like any other.
    ///
    /// # Errors
    /// Whatever is not a plain acknowledgement of every row. The rows may have
    /// been written nevertheless (a lost answer): send the same block with the
    /// same token again.
    pub async fn insert(&self, block: &EncodedBlock, token: &DedupToken) -> Result<(), StoreError> {
        let at = self.operation(format!(
            "insert of {} rows into {}",
            block.rows(),
            self.table_name()
        ));
        let sql = insert_sql(&self.quoted_table(), block.specs());
        // A batch consumed again may hold a record more: one on which the
        // normalizer ran out of time the first time. Then it is another batch.
        let sent_token = format!("{token};n={}", block.rows());
        let mut url = self.inner.url.clone();
        url.query_pairs_mut()
            .append_pair("query", &sql)
            .append_pair("insert_deduplication_token", &sent_token)
            .extend_pairs(INSERT_SETTINGS)
            // Status and headers are then sent last, when the outcome is known.
            .append_pair("wait_end_of_query", "1");
        let request = Request::post(url.as_str()).header(header::CONTENT_ENCODING, "lz4");
        let limit = self.config().insert_timeout;
        let answer = self.post(request, block.body().clone(), limit, &at).await?;
        answer.acknowledges(block.rows(), &at)
    }

    /// Sends a request as the user and reads the answer, all within `limit`.
    pub(crate) async fn post(
        &self,
        request: http::request::Builder,
        body: Bytes,
        limit: Duration,
        at: &Operation,
    ) -> Result<Answer, StoreError> {
        let config = self.config();
        let request = request
            .header("X-ClickHouse-User", &config.user)
            .header("X-ClickHouse-Key", config.password.reveal())
            .body(Full::new(body))
            .map_err(|e| StoreError::request(ErrorClass::Setup, "request", e.to_string(), at))?;
        let answer = async {
            let response = self.inner.inserts.request(request).await;
            let (head, body) = response.map_err(|e| sending(&e, at))?.into_parts();
            Ok(Answer::read(head, body).await)
        };
        match tokio::time::timeout(limit, answer).await {
            Ok(result) => result,
            Err(_) => Err(timed_out(limit, at)),
        }
    }

    /// The URL that requests go to.
    pub(crate) fn url(&self) -> Url {
        self.inner.url.clone()
    }

    /// Asks ClickHouse for its version, with the user's credentials.
    ///
    /// # Errors
    /// Where it can't be reached, refuses the user, or is something else.
    pub async fn ping(&self) -> Result<StoreInfo, StoreError> {
        let rows: Vec<StoreInfo> = self.query_rows("SELECT version() AS version").await?;
        rows.into_iter().next().ok_or_else(|| {
            let at = self.operation("query");
            StoreError::request(
                ErrorClass::Setup,
                "other_server",
                "the answer to SELECT version() holds no row",
                &at,
            )
        })
    }

    /// How many rows the table holds, duplicates counted once.
    ///
    /// # Errors
    /// As [`Store::query_rows`].
    pub async fn count(&self) -> Result<u64, StoreError> {
        let groups = self.count_by(&[]).await?;
        Ok(groups.first().map_or(0, |(_, count)| *count))
    }

    /// How many rows there are of each combination of these columns' values,
    /// duplicates counted once, in the order of the values.
    ///
    /// # Errors
    /// As [`Store::query_rows`]; a column that the table lacks is among them.
    pub async fn count_by(&self, columns: &[&str]) -> Result<Vec<GroupCount>, StoreError> {
        #[derive(Deserialize)]
        struct Group {
            key: Vec<String>,
            rows: u64,
        }
        let names: Vec<String> = columns
            .iter()
            .map(|name| {
                let name = name.replace('\\', "\\\\").replace('`', "\\`");
                format!("ifNull(toString(`{name}`), '')")
            })
            .collect();
        let key = names.join(", ");
        let table = self.quoted_table();
        let grouping = match columns.is_empty() {
            true => String::new(),
            false => " GROUP BY key ORDER BY key".into(),
        };
        let sql = format!(
            "SELECT CAST([{key}], 'Array(String)') AS key, count() AS rows FROM {table} FINAL{grouping}"
        );
        let groups: Vec<Group> = self.query_rows(&sql).await?;
        Ok(groups.into_iter().map(|g| (g.key, g.rows)).collect())
    }

    /// Runs a query and gives its rows as JSON objects (or as anything that can
    /// be read from them), integers as numbers. `sql` has no `FORMAT` clause.
    ///
    /// # Errors
    /// Where ClickHouse can't be reached or refuses, or where a row is not a `T`.
    pub async fn query_rows<T: DeserializeOwned>(&self, sql: &str) -> Result<Vec<T>, StoreError> {
        let at = self.operation("query");
        let query = self.inner.queries.query_raw(sql);
        let answer = async { query.fetch_bytes("JSONEachRow")?.collect().await };
        let bytes = self.within_timeout(answer, &at).await?;
        let rows = serde_json::Deserializer::from_slice(&bytes).into_iter();
        rows.collect::<Result<_, _>>().map_err(|error| {
            let message = format!("the answer is not the expected JSON: {error}");
            StoreError::request(ErrorClass::Setup, "other_server", message, &at)
        })
    }

    /// Runs a statement that gives no rows.
    ///
    /// # Errors
    /// Where ClickHouse can't be reached or refuses.
    pub async fn execute(&self, sql: &str) -> Result<(), StoreError> {
        let first_words: Vec<_> = sql.split_whitespace().take(2).collect();
        let at = self.operation(first_words.join(" "));
        let query = self.inner.queries.query_raw(sql);
        self.within_timeout(query.execute(), &at).await
    }

    async fn within_timeout<T>(
        &self,
        answer: impl Future<Output = Result<T, ClientError>>,
        at: &Operation,
    ) -> Result<T, StoreError> {
        let limit = self.config().query_timeout;
        match tokio::time::timeout(limit, answer).await {
            Ok(result) => result.map_err(|error| querying(error, at)),
            Err(_) => Err(timed_out(limit, at)),
        }
    }

    pub(crate) fn operation(&self, what: impl Into<String>) -> Operation {
        Operation {
            what: what.into(),
            address: self.config().address(),
        }
    }
}

fn insert_sql(table: &str, specs: &[ColumnSpec]) -> String {
    let names: Vec<_> = specs.iter().map(|spec| quoted(&spec.name)).collect();
    format!("INSERT INTO {table} ({}) FORMAT Native", names.join(", "))
}

/// A request that got no answer. Always transient: what is not known may have
/// happened.
fn sending(error: &HyperError, at: &Operation) -> StoreError {
    match error.is_connect() {
        true => StoreError::request(ErrorClass::Transient, "connect", chain(error), at),
        false => lost(error, at),
    }
}

fn lost(error: &(dyn std::error::Error + 'static), at: &Operation) -> StoreError {
    StoreError::request(ErrorClass::Transient, "connection_lost", chain(error), at)
}

pub(crate) fn timed_out(limit: Duration, at: &Operation) -> StoreError {
    let message = format!("no answer within {limit:?}");
    StoreError::request(ErrorClass::Transient, "timeout", message, at)
}

fn querying(error: ClientError, at: &Operation) -> StoreError {
    match error {
        ClientError::BadResponse(text) if text.contains("Code: ") => {
            StoreError::exception(None, &text, at)
        }
        // The crate's own text where a proxy answered without a body.
        ClientError::BadResponse(text) => {
            let status = text.get(..3).and_then(|digits| digits.parse().ok());
            StoreError::http(status.unwrap_or(400), &text, at)
        }
        ClientError::Network(cause) => match cause.downcast_ref::<HyperError>() {
            Some(error) => sending(error, at),
            None => lost(cause.as_ref(), at),
        },
        ClientError::TimedOut => {
            StoreError::request(ErrorClass::Transient, "timeout", "no answer in time", at)
        }
        other => StoreError::request(ErrorClass::Setup, "request", chain(&other), at),
    }
}
