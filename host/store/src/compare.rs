//! How an existing table differs from what it should be. Pure.

use std::{collections::HashMap, fmt};

use serde::Deserialize;

use crate::{schema::TableSpec, spec::ColumnSpec};

/// How many blocks a table remembers, by its engine.
pub(crate) const WINDOW: &str = "non_replicated_deduplication_window";
pub(crate) const REPLICATED_WINDOW: &str = "replicated_deduplication_window";

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

impl Difference {
    pub(crate) fn missing(column: &ColumnSpec) -> Self {
        Self {
            what: format!("column `{}`", column.name),
            expected: column.table_type(),
            found: "no such column".into(),
        }
    }
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

/// A row of `system.tables`, with the windows that are in force unless the table
/// sets its own.
#[derive(Debug, Deserialize)]
pub(crate) struct FoundTable {
    pub(crate) engine_full: String,
    engine: String,
    partition_key: String,
    sorting_key: String,
    default_window: u64,
    default_replicated_window: u64,
}

/// A row of `system.columns`.
#[derive(Debug, Deserialize)]
pub(crate) struct FoundColumn {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    default_kind: String,
}
/// What comparing gives.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    /// What no one but an operator can mend.
    pub(crate) differences: Vec<Difference>,
    /// Columns of the normalizer that the table lacks, which can be added.
    pub(crate) missing: Vec<ColumnSpec>,
}

pub(crate) fn compare(spec: &TableSpec, table: &FoundTable, columns: &[FoundColumn]) -> Compared {
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
    let mut compared = compare_columns(spec, columns);
    differences.append(&mut compared.differences);
    Compared {
        differences,
        missing: compared.missing,
    }
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

fn compare_columns(spec: &TableSpec, columns: &[FoundColumn]) -> Compared {
    // What else the table has is not ours: an insert leaves it out, and
    // ClickHouse fills in its default, or the zero of its type.
    let found: HashMap<&str, &FoundColumn> = columns
        .iter()
        .map(|column| (column.name.as_str(), column))
        .collect();
    let mut compared = Compared::default();
    for expected in spec.columns().iter() {
        let Some(column) = found.get(expected.name.as_str()) else {
            match spec.may_be_added(expected) {
                true => compared.missing.push(expected.clone()),
                false => compared.differences.push(Difference::missing(expected)),
            }
            continue;
        };
        if canonical(&column.kind) != canonical(&expected.table_type()) {
            compared.differences.push(Difference {
                what: format!("type of column `{}`", expected.name),
                expected: expected.table_type(),
                found: column.kind.clone(),
            });
        }
        if !matches!(column.default_kind.as_str(), "" | "DEFAULT") {
            compared.differences.push(Difference {
                what: format!("column `{}`", expected.name),
                expected: "an ordinary column, which an insert can fill".into(),
                found: format!("a column that is {}", column.default_kind),
            });
        }
    }
    compared
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
