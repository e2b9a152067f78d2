//! The table keeps up with the normalizer: before another one serves, its columns
//! are in the table, or it does not serve.

use crate::convert;
use cdr_plugin_host::{Normalizer, Prepare, Unprepared};
use cdr_store::{ColumnSpec, ErrorClass, Evolution, ProvisionError, Store, TableLayout, provision};
use std::sync::{Arc, Mutex, PoisonError};

/// The table that rows go into.
pub(crate) struct Table {
    pub(crate) store: Arc<Store>,
    pub(crate) layout: TableLayout,
    pub(crate) evolution: Evolution,
    /// Columns that were seen in the table. None is ever dropped from it, so a version
    /// that needs no other can serve at once, also while ClickHouse is away.
    pub(crate) known: Mutex<Vec<ColumnSpec>>,
}

impl Table {
    fn knows(&self, columns: &[ColumnSpec]) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        columns.iter().all(|column| known.contains(column))
    }
}

impl Prepare for Table {
    async fn prepare(&self, candidate: &Normalizer) -> Result<(), Unprepared> {
        let columns = convert::column_specs(candidate.manifest());
        let table = self
            .store
            .table_spec(self.layout.clone(), &columns)
            .map_err(|error| Unprepared {
                kind: "columns",
                message: error.to_string(),
                again: false,
            })?;
        if self.knows(&columns) {
            return Ok(());
        }
        provision::apply(&self.store, &table, self.evolution)
            .await
            .map_err(|error| unprepared(&error))?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let new: Vec<_> = columns
            .into_iter()
            .filter(|column| !known.contains(column))
            .collect();
        known.extend(new);
        Ok(())
    }
}

pub(crate) fn unprepared(error: &ProvisionError) -> Unprepared {
    let (kind, again) = match error {
        // An operator may alter the table; that it was done is seen by looking.
        ProvisionError::Incompatible { .. } => ("incompatible_table", true),
        // An operator is to run a statement; that it was run is seen by looking.
        ProvisionError::Lacking { .. } => ("schema_evolution_refused", true),
        ProvisionError::NotVisible { .. } => ("clickhouse", true),
        ProvisionError::Store(error) if error.class == ErrorClass::Transient => {
            ("clickhouse_unavailable", true)
        }
        // A grant that is missing can be given.
        ProvisionError::Store(_) => ("clickhouse", true),
    };
    Unprepared {
        kind,
        message: error.to_string(),
        again,
    }
}
