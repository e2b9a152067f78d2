//! The table that rows go into: what the store itself decides about it, and the
//! statements that make it.

use std::sync::Arc;

use crate::spec::{ColumnSpec, ColumnType};

/// What the store decides about the table, whatever normalizer is active: its
/// engine, key, partitions, expiry, and the columns that the host fills.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableLayout {
    /// The columns that the key, the partitions and the expiry are made of. The
    /// manifest must have them, of this type, not nullable.
    pub key: Vec<ColumnSpec>,
    /// The key column that says when a record happened; partitions and expiry
    /// follow it.
    pub time_column: String,
    /// Of rows with an equal key, the one with the highest value here stays.
    pub version_column: String,
    /// For how long rows are kept, in days after `time_column`.
    pub ttl_days: u32,
    /// How many blocks ClickHouse remembers the deduplication tokens of.
    pub deduplication_window: u32,
    /// The columns that the host fills, behind those of the manifest.
    pub host_columns: Vec<ColumnSpec>,
}

impl TableLayout {
    /// The table of call detail records.
    pub fn cdr() -> Self {
        Self {
            key: vec![
                ColumnSpec::new("service_type", ColumnType::Category),
                ColumnSpec::new("radio_access_type", ColumnType::Category),
                ColumnSpec::new("cell_id", ColumnType::Text),
                ColumnSpec::new("session_start_time", ColumnType::Seconds),
                ColumnSpec::new("msisdn", ColumnType::Text),
                ColumnSpec::new("cdr_id", ColumnType::Uuid),
            ],
            time_column: "session_start_time".into(),
            version_column: "processed_at".into(),
            ttl_days: 90,
            // As ClickHouse's own for replicated tables. A repetition comes within
            // about 35 s (a timeout of 30 s, pauses of 0.5 to 2 s), or after a
            // restart (a session of 45 s). Until then others may insert: 20 inserts
            // a second and worker, each of up to 4 months (a block is remembered by
            // month), are 2,800 to 3,600 blocks a worker; 3 partitions are 3 workers
            // at most. 10,000 blocks are a log of 1 to 2 MB. What comes later, under
            // CH_EXHAUSTED_POLICY=pause, still meets its double in the key.
            deduplication_window: 10_000,
            host_columns: vec![
                ColumnSpec::new("received_at", ColumnType::Millis),
                ColumnSpec::new("processed_at", ColumnType::Millis),
                ColumnSpec::new("normalizer_version", ColumnType::Category),
            ],
        }
    }

    pub(crate) fn engine(&self) -> String {
        format!("ReplacingMergeTree({})", self.version_column)
    }

    pub(crate) fn partition_key(&self) -> String {
        format!("toYYYYMM({})", self.time_column)
    }

    pub(crate) fn sorting_key(&self) -> String {
        let names: Vec<_> = self.key.iter().map(|spec| spec.name.as_str()).collect();
        names.join(", ")
    }

    /// As `system.tables` spells it.
    pub(crate) fn ttl(&self) -> String {
        format!("{} + toIntervalDay({})", self.time_column, self.ttl_days)
    }
}

/// A table: where it is, its layout, and all its columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSpec {
    database: String,
    table: String,
    layout: TableLayout,
    columns: Arc<[ColumnSpec]>,
}

impl TableSpec {
    /// The table that the columns of a manifest need: theirs, then the host's.
    ///
    /// # Errors
    /// Where the manifest can't be stored under this layout.
    pub fn new(
        database: &str,
        table: &str,
        layout: TableLayout,
        manifest: &[ColumnSpec],
    ) -> Result<Self, LayoutError> {
        for name in [database, table] {
            if !is_identifier(name) {
                return Err(LayoutError::InvalidTableName { name: name.into() });
            }
        }
        for (at, column) in manifest.iter().enumerate() {
            check_column(column)?;
            if manifest[..at].iter().any(|other| other.name == column.name) {
                return Err(LayoutError::DuplicateColumn {
                    name: column.name.clone(),
                });
            }
            if layout
                .host_columns
                .iter()
                .any(|own| own.name == column.name)
            {
                return Err(LayoutError::HostColumn {
                    name: column.name.clone(),
                });
            }
        }
        for key in &layout.key {
            let found = manifest.iter().find(|column| column.name == key.name);
            if found != Some(key) {
                return Err(LayoutError::KeyColumn {
                    expected: key.clone(),
                    found: found.cloned(),
                });
            }
        }
        let columns = manifest.iter().chain(&layout.host_columns).cloned();
        Ok(Self {
            database: database.into(),
            table: table.into(),
            columns: columns.collect(),
            layout,
        })
    }

    /// The columns of a batch, in order: the manifest's, then the host's.
    pub fn columns(&self) -> &Arc<[ColumnSpec]> {
        &self.columns
    }

    /// The layout.
    pub fn layout(&self) -> &TableLayout {
        &self.layout
    }

    /// The database.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// The table, without its database.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// `CREATE DATABASE IF NOT EXISTS …`
    pub fn create_database_sql(&self) -> String {
        format!("CREATE DATABASE IF NOT EXISTS {}", quoted(&self.database))
    }

    /// `CREATE TABLE IF NOT EXISTS …`
    pub fn create_table_sql(&self) -> String {
        let columns: Vec<_> = self
            .columns
            .iter()
            .map(|column| format!("    {} {}", quoted(&column.name), column.table_type()))
            .collect();
        let layout = &self.layout;
        format!(
            "CREATE TABLE IF NOT EXISTS {database}.{table}\n(\n{columns}\n)\n\
             ENGINE = {engine}\n\
             PARTITION BY {partition}\n\
             ORDER BY ({order})\n\
             TTL {time} + INTERVAL {days} DAY\n\
             SETTINGS non_replicated_deduplication_window = {window}",
            database = quoted(&self.database),
            table = quoted(&self.table),
            columns = columns.join(",\n"),
            engine = layout.engine(),
            partition = layout.partition_key(),
            order = layout.sorting_key(),
            time = layout.time_column,
            days = layout.ttl_days,
            window = layout.deduplication_window,
        )
    }
}

impl TableSpec {
    /// Whether a table that lacks this column can get it: one of the normalizer's
    /// that is not of the key.
    pub(crate) fn may_be_added(&self, column: &ColumnSpec) -> bool {
        !self.layout.key.contains(column) && !self.layout.host_columns.contains(column)
    }

    /// `ALTER TABLE … ADD COLUMN IF NOT EXISTS …`, which several hosts may run at
    /// the same time. Rows that are there, and versions of the normalizer that
    /// don't know the columns, get null or the default.
    pub(crate) fn add_columns_sql(&self, columns: &[ColumnSpec]) -> String {
        let added: Vec<_> = columns
            .iter()
            .map(|column| {
                let default = match column.nullable {
                    true => String::new(),
                    false => format!(" DEFAULT {}", column.kind.zero()),
                };
                format!(
                    "ADD COLUMN IF NOT EXISTS {} {}{default}",
                    quoted(&column.name),
                    column.table_type()
                )
            })
            .collect();
        format!(
            "ALTER TABLE {}.{} {}",
            quoted(&self.database),
            quoted(&self.table),
            added.join(", ")
        )
    }
}

fn check_column(column: &ColumnSpec) -> Result<(), LayoutError> {
    let mut chars = column.name.chars();
    let starts_well = chars
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    let goes_on_well = chars.all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !starts_well || !goes_on_well || column.name.len() > 64 {
        return Err(LayoutError::InvalidColumnName {
            name: column.name.chars().take(80).collect(),
        });
    }
    if column.nullable && column.kind == ColumnType::Category {
        return Err(LayoutError::NullableCategory {
            name: column.name.clone(),
        });
    }
    Ok(())
}

/// Whether a database or table can go by this name: quoted, it needs no
/// escaping.
pub(crate) fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
        && name.len() <= 128
}

/// For names that passed [`is_identifier`] or [`check_column`].
pub(crate) fn quoted(name: &str) -> String {
    format!("`{name}`")
}

/// Why a manifest can't be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// A database or table name that would need escaping.
    #[error(
        "{name:?} is no name for a database or table: expected a letter or `_`, then letters, digits, `_` and `-`"
    )]
    InvalidTableName {
        /// The name.
        name: String,
    },
    /// A column name outside the contract.
    #[error(
        "the normalizer has a column {name:?}: expected a letter or `_`, then letters, digits and `_`, at most 64 characters"
    )]
    InvalidColumnName {
        /// The name, cut.
        name: String,
    },
    /// Two columns of one name.
    #[error("the normalizer has two columns `{name}`")]
    DuplicateColumn {
        /// The name.
        name: String,
    },
    /// A column that the host fills itself.
    #[error(
        "the normalizer has a column `{name}`, which the host fills itself; give it another name"
    )]
    HostColumn {
        /// The name.
        name: String,
    },
    /// A category that may be null.
    #[error(
        "the normalizer's column `{name}` is a nullable category; an empty category says \"none\""
    )]
    NullableCategory {
        /// The name.
        name: String,
    },
    /// A column of the key is missing or different.
    #[error("{}", key_sentence(expected, found))]
    KeyColumn {
        /// What the layout needs.
        expected: ColumnSpec,
        /// What the manifest has by that name.
        found: Option<ColumnSpec>,
    },
}

fn key_sentence(expected: &ColumnSpec, found: &Option<ColumnSpec>) -> String {
    let ColumnSpec { name, kind, .. } = expected;
    let found = match found {
        None => "has none of that name".to_owned(),
        Some(found) => format!(
            "has it as {}{}",
            if found.nullable { "nullable " } else { "" },
            found.kind.name()
        ),
    };
    format!(
        "the table is ordered by a column `{name}` of type {}, not nullable, but the normalizer {found}",
        kind.name()
    )
}
