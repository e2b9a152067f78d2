//! Rows to send, and the text that ClickHouse must give back for each value.

use std::sync::Arc;

use cdr_store::{Blobs, Column, ColumnSpec, ColumnType, Rows, TableLayout, TableSpec, Values};
use proptest::prelude::*;

/// The columns of the reference normalizer.
pub fn cdr_manifest() -> Vec<ColumnSpec> {
    use ColumnType::{Boolean, Category, Ipv4, Seconds, Text, Uint32, Uint64, Uuid};
    vec![
        ColumnSpec::new("service_type", Category),
        ColumnSpec::new("radio_access_type", Category),
        ColumnSpec::new("rat_orbit", Category),
        ColumnSpec::new("secondary_rat", Category),
        ColumnSpec::new("cell_id", Text),
        ColumnSpec::new("session_start_time", Seconds),
        ColumnSpec::new("msisdn", Text),
        ColumnSpec::new("msisdn_valid", Boolean),
        ColumnSpec::new("cdr_id", Uuid),
        ColumnSpec::nullable("session_end_time", Seconds),
        ColumnSpec::new("duration_s", Uint32),
        ColumnSpec::new("bytes_up", Uint64),
        ColumnSpec::new("bytes_down", Uint64),
        ColumnSpec::new("called_msisdn", Text),
        ColumnSpec::new("called_raw", Text),
        ColumnSpec::nullable("ip_address", Ipv4),
        ColumnSpec::new("imsi", Text),
        ColumnSpec::new("imei", Text),
        ColumnSpec::new("cause", Category),
        ColumnSpec::new("direction", Category),
        ColumnSpec::new("vendor_id", Category),
        ColumnSpec::new("raw_id", Text),
    ]
}

pub fn cdr_table(table: &str) -> TableSpec {
    TableSpec::new("telecom", table, TableLayout::cdr(), &cdr_manifest()).unwrap()
}

/// Call records of `rows` subscribers, all at the times given (in turn).
pub fn cdr_rows(rows: usize, times: &[u32]) -> Rows {
    let spec = cdr_table("any");
    let columns = spec.columns().iter().map(|column| {
        let values = match (column.name.as_str(), column.kind) {
            ("session_start_time", _) => {
                Values::Uint32s(times.iter().copied().cycle().take(rows).collect())
            }
            ("cdr_id", _) => {
                Values::Uint64s((0..rows as u64).flat_map(|row| [row, !row]).collect())
            }
            (_, ColumnType::Boolean) => Values::Booleans(vec![1; rows]),
            (_, ColumnType::Uint64) => Values::Uint64s(vec![7; rows]),
            (_, ColumnType::Millis) => Values::Int64s(vec![1_700_000_000_123; rows]),
            (_, ColumnType::Text | ColumnType::Category) => {
                Values::Blobs(Blobs::from_values(vec![&column.name; rows]).unwrap())
            }
            _ => Values::Uint32s(vec![1_700_000_000; rows]),
        };
        Column::new(column.kind, values, None).unwrap()
    });
    Rows::new(spec.columns().clone(), columns.collect()).unwrap()
}

/// A column of every kind, and a nullable one of each that can be.
pub fn every_kind() -> Arc<[ColumnSpec]> {
    let plain = ColumnType::ALL.map(|kind| ColumnSpec::new(format!("plain_{}", kind.name()), kind));
    let nullable = ColumnType::ALL
        .into_iter()
        .filter(|kind| *kind != ColumnType::Category)
        .map(|kind| ColumnSpec::nullable(format!("maybe_{}", kind.name()), kind));
    plain.into_iter().chain(nullable).collect()
}

/// Batches of [`every_kind`], of no rows and more.
pub fn any_rows(max: usize) -> impl Strategy<Value = Rows> {
    (0..=max).prop_flat_map(|rows| {
        let specs = every_kind();
        let columns: Vec<_> = specs
            .iter()
            .map(|spec| any_column(spec, rows).boxed())
            .collect();
        columns.prop_map(move |columns| Rows::new(specs.clone(), columns).unwrap())
    })
}

fn any_column(spec: &ColumnSpec, rows: usize) -> impl Strategy<Value = Column> + use<> {
    use prop::collection::vec;
    let values = match spec.kind {
        ColumnType::Boolean => vec(0..=1u8, rows).prop_map(Values::Booleans).boxed(),
        ColumnType::Uint32 | ColumnType::Ipv4 | ColumnType::Seconds => {
            vec(any::<u32>(), rows).prop_map(Values::Uint32s).boxed()
        }
        ColumnType::Uint64 => vec(any::<u64>(), rows).prop_map(Values::Uint64s).boxed(),
        ColumnType::Uuid => vec(any::<u64>(), rows * 2)
            .prop_map(Values::Uint64s)
            .boxed(),
        ColumnType::Int64 | ColumnType::Millis => {
            vec(any::<i64>(), rows).prop_map(Values::Int64s).boxed()
        }
        ColumnType::Float64 => vec(prop::num::f64::ANY, rows)
            .prop_map(Values::Float64s)
            .boxed(),
        ColumnType::Text => vec("\\PC{0,3}|.{0,300}", rows).prop_map(blobs).boxed(),
        ColumnType::Category => vec("|voice|sms|[a-c]", rows).prop_map(blobs).boxed(),
    };
    let kind = spec.kind;
    let nulls = match spec.nullable {
        true => prop::option::of(vec(0..=1u8, rows)).boxed(),
        false => Just(None).boxed(),
    };
    (values, nulls).prop_map(move |(values, nulls)| Column::new(kind, values, nulls).unwrap())
}

fn blobs(texts: Vec<String>) -> Values {
    Values::Blobs(Blobs::from_values(texts).unwrap())
}

/// SQL that gives a column as text without loss.
pub fn as_text(spec: &ColumnSpec) -> String {
    let name = &spec.name;
    match spec.kind {
        ColumnType::Boolean | ColumnType::Ipv4 | ColumnType::Seconds => {
            format!("toString(toUInt32({name}))")
        }
        ColumnType::Millis => format!("toString(toUnixTimestamp64Milli({name}))"),
        ColumnType::Float64 => format!("toString(reinterpretAsUInt64({name}))"),
        ColumnType::Text | ColumnType::Category => format!("hex({name})"),
        ColumnType::Uuid => format!("lower(replaceAll(toString({name}), '-', ''))"),
        _ => format!("toString({name})"),
    }
}

/// A batch as texts, row by row: what [`as_text`] must give back.
pub fn texts(rows: &Rows) -> Vec<Vec<Option<String>>> {
    let columns: Vec<Vec<Option<String>>> = rows.columns().iter().map(column_texts).collect();
    (0..rows.len())
        .map(|row| columns.iter().map(|column| column[row].clone()).collect())
        .collect()
}

fn column_texts(column: &Column) -> Vec<Option<String>> {
    let texts: Vec<String> = match (column.values(), column.kind()) {
        (Values::Booleans(v), _) => v.iter().map(u8::to_string).collect(),
        (Values::Uint32s(v), _) => v.iter().map(u32::to_string).collect(),
        (Values::Uint64s(v), ColumnType::Uuid) => v
            .chunks_exact(2)
            .map(|half| format!("{:016x}{:016x}", half[0], half[1]))
            .collect(),
        (Values::Uint64s(v), _) => v.iter().map(u64::to_string).collect(),
        (Values::Int64s(v), _) => v.iter().map(i64::to_string).collect(),
        (Values::Float64s(v), _) => v.iter().map(|v| v.to_bits().to_string()).collect(),
        (Values::Blobs(b), _) => b
            .iter()
            .map(|value| value.iter().map(|byte| format!("{byte:02X}")).collect())
            .collect(),
    };
    let nulls = column
        .nulls()
        .map_or_else(|| vec![0; texts.len()], <[u8]>::to_vec);
    let pairs = texts.into_iter().zip(nulls);
    pairs
        .map(|(text, null)| (null == 0).then_some(text))
        .collect()
}
