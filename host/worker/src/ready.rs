//! Whether a worker can begin: ClickHouse is there, and the table fits.

use crate::config::WorkerArgs;
use crate::convert;
use crate::error::WorkerError;
use crate::table::unprepared;
use cdr_plugin_host::{Normalizer, Unprepared};
use cdr_store::{ErrorClass, ProvisionError, Store, TableLayout, TableSpec, provision};
use std::time::Duration;

/// Pause between looks at a ClickHouse that is not there.
const STORE_POLL: Duration = Duration::from_secs(1);

/// Why a worker can't begin.
pub(crate) struct NotReady {
    pub(crate) error: WorkerError,
    /// Set where it is the normalizer that the table does not fit.
    pub(crate) version: Option<Unprepared>,
}

impl From<WorkerError> for NotReady {
    fn from(error: WorkerError) -> Self {
        Self {
            error,
            version: None,
        }
    }
}

impl From<ProvisionError> for NotReady {
    fn from(error: ProvisionError) -> Self {
        let version = Some(unprepared(&error));
        let error = match error {
            ProvisionError::Store(error) => WorkerError::Setup(error),
            error => WorkerError::Schema(error.to_string()),
        };
        Self { error, version }
    }
}

/// Waits until the table is ready for a normalizer.
pub(crate) async fn ready_for(
    normalizer: &Normalizer,
    store: &Store,
    layout: &TableLayout,
    args: &WorkerArgs,
) -> Result<TableSpec, NotReady> {
    let specs = convert::column_specs(normalizer.manifest());
    let table = store
        .table_spec(layout.clone(), &specs)
        .map_err(|error| NotReady {
            error: WorkerError::Schema(error.to_string()),
            version: Some(Unprepared {
                kind: "columns",
                message: error.to_string(),
                again: false,
            }),
        })?;
    wait_for_table(store, &table, args).await?;
    Ok(table)
}

/// Waits until ClickHouse answers, and checks that the table fits and that this
/// user can insert batches as they are set.
async fn wait_for_table(
    store: &Store,
    table: &TableSpec,
    args: &WorkerArgs,
) -> Result<(), NotReady> {
    let mut told = false;
    loop {
        let plan = async {
            let mut plan = provision::plan(store, table, args.schema_evolution.into()).await?;
            // A newer normalizer has more columns; a table that is missing is made
            // by whoever provisions.
            if !plan.added.is_empty() {
                provision::apply(store, table, args.schema_evolution.into()).await?;
                plan.statements.clear();
            }
            Ok((plan, store.limits().await?))
        };
        match plan.await {
            Ok((plan, limits)) if plan.statements.is_empty() => {
                let obstacles = limits.obstacles();
                if !obstacles.is_empty() {
                    return Err(WorkerError::Schema(format!(
                        "ClickHouse at {} can't be inserted into as it must be: {}",
                        store.config().address(),
                        obstacles.join("; ")
                    ))
                    .into());
                }
                args.check_store(&limits).map_err(WorkerError::from)?;
                if told {
                    tracing::info!(
                        event = "clickhouse_available",
                        address = store.config().address(),
                        "ClickHouse answers"
                    );
                }
                return Ok(());
            }
            Ok(_) => {
                return Err(WorkerError::Schema(format!(
                    "there is no table {} at {}; make it with `cdr provision`",
                    store.table_name(),
                    store.config().address()
                ))
                .into());
            }
            Err(ProvisionError::Store(error)) if error.class == ErrorClass::Transient => {
                if !told {
                    tracing::warn!(
                        event = "clickhouse_unavailable",
                        address = store.config().address(),
                        "waiting for ClickHouse; nothing is consumed: {error}"
                    );
                    told = true;
                }
                tokio::time::sleep(STORE_POLL).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}
