//! Makes the database and the table where they are missing, and compares them
//! with what they should be where they exist. Never changes what exists.

use std::{collections::HashMap, fmt};

use serde::Deserialize;

use crate::{client::Store, error::StoreError, schema::TableSpec};

/// How many blocks a table remembers, by its engine.
const WINDOW: &str = "non_replicated_deduplication_window";
const REPLICATED_WINDOW: &str = "replicated_deduplication_window";

/// What is missing: the statements that make it, in order. None: all is there
/// and fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// SQL, without a semicolon at the end.
    pub statements: Vec<String>,
}

/// Something in an existing table that is not as it must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// What, as in ``type of column `cdr_id` ``.
    pub what: String,
    /// What it must be.
    pub expected: String,
    /// What it is.
    pub found: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what,
            expected,
            found,
        } = self;
        write!(f, "{what}: expected {expected}, found {found}")
    }
}

/// Why a table can't be used or made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProvisionError {
    /// The table exists and is another one.
    #[error("{}", incompatible_text(table, differences))]
    Incompatible {
        /// The table, as in `telecom.cdr_records`.
        table: String,
        /// Everything that differs.
        differences: Vec<Difference>,
    },
    /// The statements succeeded, but the table is not to be seen.
    #[error(
        "table {table} was created, but is not listed in system.tables; check that the user may SELECT from and INSERT into it"
    )]
    NotVisible {
        /// The table.
        table: String,
    },
    /// ClickHouse refused or did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn incompatible_text(table: &str, differences: &[Difference]) -> String {
    let list: Vec<_> = differences.iter().map(|d| format!("\n  - {d}")).collect();
    format!(
        "table {table} exists, but does not fit; nothing was changed:{}\n\
         Alter the table, use another database or table name, or move the table away.",
        list.concat()
    )
}

/// Looks at what is there. Changes nothing.
///
/// # Errors
/// [`ProvisionError::Incompatible`] with every difference; or ClickHouse's own.
pub async fn plan(store: &Store, spec: &TableSpec) -> Result<Plan, ProvisionError> {
    if let Some(found) = inspect_table(store, spec).await? {
        let columns = inspect_columns(store, spec).await?;
        let differences = compare(spec, &found, &columns);
        if differences.is_empty() {
            return Ok(Plan {
                statements: Vec::new(),
            });
        }
        return Err(ProvisionError::Incompatible {
            table: qualified(spec),
            differences,
        });
    }
    let mut statements = Vec::new();
    if !database_exists(store, spec).await? {
        statements.push(spec.create_database_sql());
    }
    statements.push(spec.create_table_sql());
    Ok(Plan { statements })
}

/// Makes what is missing, then looks again, since someone else may have been
/// faster. Gives what was done.
///
/// # Errors
/// As [`plan`]; nothing is changed then.
pub async fn apply(store: &Store, spec: &TableSpec) -> Result<Plan, ProvisionError> {
    let done = plan(store, spec).await?;
    for statement in &done.statements {
        store.execute(statement).await?;
    }
    if !done.statements.is_empty() {
        let table = qualified(spec);
        if !plan(store, spec).await?.statements.is_empty() {
            return Err(ProvisionError::NotVisible { table });
        }
        tracing::info!(event = "table_created", table, "table {table} created");
    }
    Ok(done)
}

/// A row of `system.tables`, with the windows that are in force unless the table
/// sets its own.
#[derive(Debug, Deserialize)]
struct FoundTable {
    engine_full: String,
    engine: String,
    partition_key: String,
    sorting_key: String,
    default_window: u64,
    default_replicated_window: u64,
}

/// A row of `system.columns`.
#[derive(Debug, Deserialize)]
struct FoundColumn {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    default_kind: String,
}

async fn database_exists(store: &Store, spec: &TableSpec) -> Result<bool, StoreError> {
    let name = spec.database();
    let sql = format!("SELECT name FROM system.databases WHERE name = '{name}'");
    let rows: Vec<serde_json::Value> = store.query_rows(&sql).await?;
    Ok(!rows.is_empty())
}

async fn inspect_table(store: &Store, spec: &TableSpec) -> Result<Option<FoundTable>, StoreError> {
    let (database, table) = (spec.database(), spec.table());
    let sql = format!(
        "SELECT engine_full, engine, partition_key, sorting_key, \
           (SELECT toUInt64OrZero(any(value)) FROM system.merge_tree_settings \
            WHERE name = '{WINDOW}') AS default_window, \
           (SELECT toUInt64OrZero(any(value)) FROM system.replicated_merge_tree_settings \
            WHERE name = '{REPLICATED_WINDOW}') AS default_replicated_window \
         FROM system.tables WHERE database = '{database}' AND name = '{table}'"
    );
    Ok(store.query_rows(&sql).await?.into_iter().next())
}

async fn inspect_columns(store: &Store, spec: &TableSpec) -> Result<Vec<FoundColumn>, StoreError> {
    let (database, table) = (spec.database(), spec.table());
    let sql = format!(
        "SELECT name, type, toString(default_kind) AS default_kind FROM system.columns \
         WHERE database = '{database}' AND table = '{table}' ORDER BY position"
    );
    store.query_rows(&sql).await
}

fn qualified(spec: &TableSpec) -> String {
    format!("{}.{}", spec.database(), spec.table())
}

fn compare(spec: &TableSpec, table: &FoundTable, columns: &[FoundColumn]) -> Vec<Difference> {
    let layout = spec.layout();
    let clauses = Clauses::of(&table.engine_full);
    let engine = match clauses.engine.is_empty() {
        true => table.engine.as_str(),
        false => clauses.engine,
    };
    let mut differences = Vec::new();
    let mut expect = |what: &str, expected: String, found: &str| {
        if canonical(&expected) != canonical(found) {
            differences.push(Difference {
                what: what.into(),
                expected,
                found: or_none(found),
            });
        }
    };
    expect("engine", layout.engine(), &unreplicated(engine));
    expect(
        "partition key",
        layout.partition_key(),
        &table.partition_key,
    );
    expect("sorting key", layout.sorting_key(), &table.sorting_key);
    expect("TTL", layout.ttl(), clauses.ttl);

    let (setting, default_window) = match is_replicated(&table.engine) {
        true => (REPLICATED_WINDOW, table.default_replicated_window),
        false => (WINDOW, table.default_window),
    };
    if clauses.setting(setting).unwrap_or(default_window) == 0 {
        differences.push(Difference {
            what: format!("setting {setting}"),
            expected: format!("1 or more ({} in a new table)", layout.deduplication_window),
            found: "0 (a repeated insert would be written twice)".into(),
        });
    }
    differences.extend(compare_columns(spec, columns));
    differences
}

fn is_replicated(engine: &str) -> bool {
    engine.starts_with("Replicated") || engine.starts_with("Shared")
}

/// The engine without what makes it replicated: where replicas meet is the
/// operator's, how rows are replaced is ours.
fn unreplicated(engine: &str) -> String {
    let Some(plain) = ["Replicated", "Shared"]
        .iter()
        .find_map(|prefix| engine.strip_prefix(prefix))
    else {
        return engine.into();
    };
    let Some((name, rest)) = plain.split_once('(') else {
        return plain.into();
    };
    // Path and replica are texts in quotes; what comes behind them is not.
    let arguments = rest.trim_end_matches(')').split(", ");
    let own: Vec<_> = arguments.skip_while(|a| a.starts_with('\'')).collect();
    match own.is_empty() {
        true => name.into(),
        false => format!("{name}({})", own.join(", ")),
    }
}

fn compare_columns(spec: &TableSpec, columns: &[FoundColumn]) -> Vec<Difference> {
    let mut found: HashMap<&str, &FoundColumn> = columns
        .iter()
        .map(|column| (column.name.as_str(), column))
        .collect();
    let mut differences = Vec::new();
    for expected in spec.columns().iter() {
        let Some(column) = found.remove(expected.name.as_str()) else {
            differences.push(Difference {
                what: format!("column `{}`", expected.name),
                expected: expected.table_type(),
                found: "no such column".into(),
            });
            continue;
        };
        if canonical(&column.kind) != canonical(&expected.table_type()) {
            differences.push(Difference {
                what: format!("type of column `{}`", expected.name),
                expected: expected.table_type(),
                found: column.kind.clone(),
            });
        }
        if !matches!(column.default_kind.as_str(), "" | "DEFAULT") {
            differences.push(Difference {
                what: format!("column `{}`", expected.name),
                expected: "an ordinary column, which an insert can fill".into(),
                found: format!("a column that is {}", column.default_kind),
            });
        }
    }
    // What is left is not ours: fine, as long as an insert may leave it out.
    for column in columns
        .iter()
        .filter(|c| found.contains_key(c.name.as_str()))
    {
        if column.default_kind.is_empty() && !column.kind.starts_with("Nullable(") {
            differences.push(Difference {
                what: format!("column `{}`", column.name),
                expected: "no such column, or one that is nullable or has a default".into(),
                found: column.kind.clone(),
            });
        }
    }
    differences
}

/// The clauses of `engine_full`, which are not in columns of their own.
struct Clauses<'a> {
    engine: &'a str,
    ttl: &'a str,
    settings: &'a str,
}

impl<'a> Clauses<'a> {
    fn of(engine_full: &'a str) -> Self {
        const KEYWORDS: [&str; 6] = [
            " PARTITION BY ",
            " PRIMARY KEY ",
            " ORDER BY ",
            " SAMPLE BY ",
            " TTL ",
            " SETTINGS ",
        ];
        let clause_end = |text: &'a str| {
            let ends = KEYWORDS.iter().filter_map(|keyword| text.find(keyword));
            &text[..ends.min().unwrap_or(text.len())]
        };
        let after = |keyword| engine_full.split_once(keyword).map_or("", |(_, rest)| rest);
        Self {
            engine: clause_end(engine_full),
            ttl: clause_end(after(" TTL ")),
            settings: after(" SETTINGS "),
        }
    }

    fn setting(&self, name: &str) -> Option<u64> {
        self.settings.split(',').find_map(|setting| {
            let (key, value) = setting.split_once('=')?;
            (key.trim() == name).then(|| value.trim().trim_matches('\'').parse().ok())?
        })
    }
}

/// Without the spaces and quotes that ClickHouse and people put differently.
fn canonical(expression: &str) -> String {
    expression
        .chars()
        .filter(|c| !c.is_whitespace() && *c != '`')
        .collect()
}

fn or_none(text: &str) -> String {
    match text.is_empty() {
        true => "none".into(),
        false => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replicated_engine_is_compared_by_how_it_replaces_rows() {
        for (engine, plain) in [
            (
                "ReplicatedReplacingMergeTree('/clickhouse/tables/{uuid}/{shard}', '{replica}', processed_at)",
                "ReplacingMergeTree(processed_at)",
            ),
            (
                "SharedReplacingMergeTree('/t', 'r', processed_at)",
                "ReplacingMergeTree(processed_at)",
            ),
            ("ReplicatedMergeTree('/t', 'r')", "MergeTree"),
            ("ReplicatedMergeTree", "MergeTree"),
            ("ReplacingMergeTree(a, b)", "ReplacingMergeTree(a, b)"),
        ] {
            assert_eq!(unreplicated(engine), plain);
        }
    }
}
