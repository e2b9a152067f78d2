//! Makes the database and the table where they are missing, and compares them
//! with what they should be where they exist. Of what exists nothing is changed,
//! but that columns are added which a newer normalizer brings.

use crate::compare::compare;
use crate::compare::{Compared, Difference, FoundColumn, FoundTable, REPLICATED_WINDOW, WINDOW};
use crate::{client::Store, error::StoreError, schema::TableSpec};

/// What becomes of a table that lacks columns of the normalizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evolution {
    /// They are added, each nullable or with a default.
    Add,
    /// It is refused, with the statement that adds them.
    Refuse,
}

/// What is missing: the statements that make it, in order. None: all is there
/// and fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// SQL, without a semicolon at the end.
    pub statements: Vec<String>,
    /// The columns that a table which exists gets.
    pub added: Vec<String>,
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
    /// The table lacks columns of the normalizer, and may not be changed.
    #[error(
        "table {table} lacks {}, and SCHEMA_EVOLUTION=refuse; run\n{statement}",
        columns.join(", ")
    )]
    Lacking {
        /// The table.
        table: String,
        /// What it lacks.
        columns: Vec<String>,
        /// The statement that adds them.
        statement: String,
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
pub async fn plan(
    store: &Store,
    spec: &TableSpec,
    evolution: Evolution,
) -> Result<Plan, ProvisionError> {
    if let Some(found) = inspect_table(store, spec).await? {
        let columns = inspect_columns(store, spec).await?;
        let Compared {
            mut differences,
            missing,
        } = compare(spec, &found, &columns);
        if !differences.is_empty() {
            differences.extend(missing.iter().map(Difference::missing));
            return Err(ProvisionError::Incompatible {
                table: qualified(spec),
                differences,
            });
        }
        if missing.is_empty() {
            return Ok(Plan {
                statements: Vec::new(),
                added: Vec::new(),
            });
        }
        let statement = spec.add_columns_sql(&missing);
        let added = missing.into_iter().map(|column| column.name).collect();
        return match evolution {
            Evolution::Add => Ok(Plan {
                statements: vec![statement],
                added,
            }),
            Evolution::Refuse => Err(ProvisionError::Lacking {
                table: qualified(spec),
                columns: added,
                statement,
            }),
        };
    }
    let mut statements = Vec::new();
    if !database_exists(store, spec).await? {
        statements.push(spec.create_database_sql());
    }
    statements.push(spec.create_table_sql());
    Ok(Plan {
        statements,
        added: Vec::new(),
    })
}

/// Makes what is missing, then looks again, since someone else may have been
/// faster. Gives what was done.
///
/// # Errors
/// As [`plan`]; nothing is changed then.
pub async fn apply(
    store: &Store,
    spec: &TableSpec,
    evolution: Evolution,
) -> Result<Plan, ProvisionError> {
    let done = plan(store, spec, evolution).await?;
    for statement in &done.statements {
        store.execute(statement).await?;
    }
    if !done.statements.is_empty() {
        let table = qualified(spec);
        if !plan(store, spec, evolution).await?.statements.is_empty() {
            return Err(ProvisionError::NotVisible { table });
        }
        match done.added.is_empty() {
            true => tracing::info!(event = "table_created", table, "table {table} created"),
            false => tracing::info!(
                event = "columns_added",
                table,
                columns = done.added.join(", "),
                "table {table} has what the normalizer writes"
            ),
        }
    }
    Ok(done)
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
