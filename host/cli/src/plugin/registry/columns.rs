//! What the columns of a version mean for a table that has those of another.

use anyhow::bail;
use cdr_plugin_host::contract::column_type_word;
use cdr_plugin_host::registry::VersionId;
use cdr_plugin_host::{ColumnSpec, Manifest};

/// How the columns of two manifests differ.
#[derive(Debug, Default)]
pub struct ColumnChange {
    added: Vec<String>,
    removed: Vec<String>,
    retyped: Vec<String>,
}

impl ColumnChange {
    pub fn between(before: &Manifest, after: &Manifest) -> Self {
        let find = |of: &Manifest, name: &str| -> Option<ColumnSpec> {
            of.columns.iter().find(|c| c.name == name).cloned()
        };
        let mut change = Self::default();
        for column in &before.columns {
            match find(after, &column.name) {
                None => change.removed.push(described(column)),
                Some(found) if found != *column => change.retyped.push(format!(
                    "{}, in the new one {}",
                    described(column),
                    kind_of(&found)
                )),
                Some(_) => {}
            }
        }
        let added = after.columns.iter();
        change.added = added
            .filter(|column| find(before, &column.name).is_none())
            .map(described)
            .collect();
        change
    }

    /// Refuses what only an additive change would not be.
    pub fn refuse(&self, active: &str, id: &VersionId, drop_columns: bool) -> anyhow::Result<()> {
        let mut differences = Vec::new();
        differences.extend(
            self.retyped
                .iter()
                .map(|column| format!("retyped: {column}")),
        );
        if !drop_columns {
            differences.extend(
                self.removed
                    .iter()
                    .map(|column| format!("removed: {column}")),
            );
        }
        if differences.is_empty() {
            return Ok(());
        }
        let advice = match (self.retyped.is_empty(), drop_columns) {
            (false, _) => "a column keeps its type for ever: give the new one another name",
            (true, _) => {
                "columns are only ever added; --drop-columns activates it all the same, and the column stays in the table"
            }
        };
        bail!(
            "{id} is refused: its columns are not those of {active}, which is active:\n  {}\n{advice}",
            differences.join("\n  ")
        )
    }

    /// The columns that are new, in a sentence; empty if there are none.
    pub fn news(&self) -> String {
        match self.added.is_empty() {
            true => String::new(),
            false => format!("new columns: {}", self.added.join(", ")),
        }
    }
}

fn described(column: &ColumnSpec) -> String {
    format!("`{}` {}", column.name, kind_of(column))
}

fn kind_of(column: &ColumnSpec) -> String {
    let nullable = if column.nullable { "nullable " } else { "" };
    format!("{nullable}{}", column_type_word(column.kind))
}
