//! From a normalizer's columns to the store's: the same shapes in two crates
//! that don't know each other. Vectors move, values are not copied.

use cdr_kafka::dead_letter::FailureReason;
use cdr_plugin_host as plugin;
use cdr_store as store;

/// The columns of a manifest, without the host's.
pub fn column_specs(manifest: &plugin::Manifest) -> Vec<store::ColumnSpec> {
    manifest
        .columns
        .iter()
        .map(|column| store::ColumnSpec {
            name: column.name.clone(),
            kind: column_type(column.kind),
            nullable: column.nullable,
        })
        .collect()
}

/// The rows of an outcome, as the store has them, without the host's columns.
///
/// # Errors
/// A column is not what its type says; the plugin host has checked that before.
pub fn columns(
    specs: &[store::ColumnSpec],
    columns: Vec<plugin::Column>,
) -> Result<Vec<store::Column>, store::ColumnError> {
    specs
        .iter()
        .zip(columns)
        .map(|(spec, column)| {
            let values = match column.values {
                plugin::Values::Booleans(values) => store::Values::Booleans(values),
                plugin::Values::Uint32s(values) => store::Values::Uint32s(values),
                plugin::Values::Uint64s(values) => store::Values::Uint64s(values),
                plugin::Values::Int64s(values) => store::Values::Int64s(values),
                plugin::Values::Float64s(values) => store::Values::Float64s(values),
                plugin::Values::Blobs(blobs) => store::Values::Blobs(store::Blobs {
                    offsets: blobs.offsets,
                    data: blobs.data,
                }),
            };
            store::Column::new(spec.kind, values, column.nulls)
        })
        .collect()
}

fn column_type(kind: plugin::ColumnType) -> store::ColumnType {
    match kind {
        plugin::ColumnType::Boolean => store::ColumnType::Boolean,
        plugin::ColumnType::Uint32 => store::ColumnType::Uint32,
        plugin::ColumnType::Uint64 => store::ColumnType::Uint64,
        plugin::ColumnType::Int64 => store::ColumnType::Int64,
        plugin::ColumnType::Float64 => store::ColumnType::Float64,
        plugin::ColumnType::Text => store::ColumnType::Text,
        plugin::ColumnType::Category => store::ColumnType::Category,
        plugin::ColumnType::Uuid => store::ColumnType::Uuid,
        plugin::ColumnType::Ipv4 => store::ColumnType::Ipv4,
        plugin::ColumnType::Seconds => store::ColumnType::Seconds,
        plugin::ColumnType::Millis => store::ColumnType::Millis,
    }
}

/// The reason of a rejection, as a dead letter has it.
pub fn failure_reason(reason: plugin::Reason) -> FailureReason {
    match reason {
        plugin::Reason::MissingRequiredField => FailureReason::MissingRequiredField,
        plugin::Reason::InvalidRatValue => FailureReason::InvalidRatValue,
        plugin::Reason::InvalidEpoch => FailureReason::InvalidEpoch,
        plugin::Reason::MalformedJson => FailureReason::MalformedJson,
        plugin::Reason::NormalizationError => FailureReason::NormalizationError,
    }
}
