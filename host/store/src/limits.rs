//! What ClickHouse lets an insert of this user be.

use std::time::Duration;

use serde::Deserialize;

use crate::{
    client::{INSERT_SETTINGS, Store},
    error::StoreError,
};

/// The limits of the connected user that a batch must respect.
///
/// There is none on the size of an insert's body: ClickHouse reads it as it
/// comes, within [`InsertLimits::receive_timeout`] and the memory limits (its
/// `http_max_…_size` settings concern URLs and forms). A proxy in front of it
/// may have one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InsertLimits {
    /// Bytes of memory that one query may use (`max_memory_usage`). An insert
    /// needs several times its uncompressed block.
    pub max_memory_usage: Option<u64>,
    /// Bytes that all queries of the user may use together
    /// (`max_memory_usage_for_user`).
    pub max_memory_usage_for_user: Option<u64>,
    /// Partitions (months) that one block may touch
    /// (`max_partitions_per_insert_block`); none also where more is only logged.
    pub max_partitions_per_block: Option<u64>,
    /// Queries of the user at a time (`max_concurrent_queries_for_user`), those
    /// of all hosts together.
    pub max_concurrent_queries: Option<u64>,
    /// For how long a query may run (`max_execution_time`).
    pub max_execution_time: Option<Duration>,
    /// For how long ClickHouse waits for the next bytes of a body
    /// (`http_receive_timeout`).
    pub receive_timeout: Option<Duration>,
    /// Whether the user may only read (`readonly`).
    pub readonly: bool,
    /// Whether inserts are queued by default (`async_insert`). Ours ask not to be.
    pub async_insert: bool,
    /// Whether a repeated insert is recognised by its token. Not with
    /// `deduplicate_insert = disable` (26.2 and newer), which outweighs what
    /// each insert asks for.
    pub deduplicates: bool,
    /// Settings that inserts send and the profile does not let the user set to
    /// that: inserts are refused.
    pub forbidden_settings: Vec<String>,
}

impl InsertLimits {
    /// What of this makes it impossible to insert or to recognise repetitions,
    /// as sentences; none: all is well.
    pub fn obstacles(&self) -> Vec<String> {
        let mut obstacles = Vec::new();
        if self.readonly {
            obstacles.push("the user is read-only: set readonly = 0 in its profile".to_owned());
        }
        if !self.forbidden_settings.is_empty() {
            obstacles.push(format!(
                "the user's profile forbids to set {}, which inserts need: allow it there",
                self.forbidden_settings.join(", ")
            ));
        }
        if !self.deduplicates {
            obstacles.push(
                "the user's profile has deduplicate_insert = disable, so that a repeated insert \
                 is written twice: set it to enable"
                    .to_owned(),
            );
        }
        obstacles
    }
}

#[derive(Debug, Deserialize)]
struct Setting {
    name: String,
    value: String,
    fixed: u8,
}

struct Settings(Vec<Setting>);

impl Settings {
    fn value(&self, name: &str) -> Option<&str> {
        let setting = self.0.iter().find(|setting| setting.name == name)?;
        Some(&setting.value)
    }

    fn is_on(&self, name: &str) -> bool {
        self.value(name).is_some_and(|value| value != "0")
    }

    /// 0 stands for no limit.
    fn limit(&self, name: &str) -> Option<u64> {
        let value = self.value(name)?.parse().ok()?;
        (value != 0).then_some(value)
    }

    /// Seconds, which some versions give with a fraction.
    fn seconds(&self, name: &str) -> Option<Duration> {
        let seconds = self.value(name)?.parse().ok()?;
        let duration = Duration::try_from_secs_f64(seconds).ok()?;
        (!duration.is_zero()).then_some(duration)
    }

    fn forbidden(&self) -> Vec<String> {
        let sent = INSERT_SETTINGS.into_iter();
        // Every token is another value.
        let sent = sent.chain([("insert_deduplication_token", "(a token)")]);
        let refused = |&(name, sent): &(&str, &str)| {
            let found = self.0.iter().find(|setting| setting.name == name);
            found.is_some_and(|setting| setting.fixed != 0 && setting.value != sent)
        };
        sent.filter(refused)
            .map(|(name, _)| name.to_owned())
            .collect()
    }
}

impl Store {
    /// Asks for the limits of the connected user.
    ///
    /// # Errors
    /// As [`Store::query_rows`].
    pub async fn limits(&self) -> Result<InsertLimits, StoreError> {
        const SQL: &str = "SELECT name, value, readonly AS fixed FROM system.settings WHERE name IN (\
             'max_memory_usage', 'max_memory_usage_for_user', 'max_partitions_per_insert_block', \
             'throw_on_max_partitions_per_insert_block', 'max_concurrent_queries_for_user', \
             'max_execution_time', 'http_receive_timeout', 'readonly', 'async_insert', \
             'deduplicate_insert', 'insert_deduplicate', 'insert_deduplication_token', \
             'input_format_null_as_default')";
        let found = Settings(self.query_rows(SQL).await?);
        // Older versions have no such setting: too many partitions were refused.
        let throws = found
            .value("throw_on_max_partitions_per_insert_block")
            .is_none_or(|value| value != "0");
        Ok(InsertLimits {
            max_memory_usage: found.limit("max_memory_usage"),
            max_memory_usage_for_user: found.limit("max_memory_usage_for_user"),
            max_partitions_per_block: found
                .limit("max_partitions_per_insert_block")
                .filter(|_| throws),
            max_concurrent_queries: found.limit("max_concurrent_queries_for_user"),
            max_execution_time: found.seconds("max_execution_time"),
            receive_timeout: found.seconds("http_receive_timeout"),
            readonly: found.is_on("readonly"),
            async_insert: found.is_on("async_insert"),
            deduplicates: found.value("deduplicate_insert") != Some("disable"),
            forbidden_settings: found.forbidden(),
        })
    }
}
