//! The component: the reference's answers, changed as the text says.

use crate::{Change, FAST_POISON, LENGTH, MARK, POISON, Spec, TEXT};
use cdr_normalizer::plugin::CdrNormalizer;
use cdr_plugin_sdk::bindings::{
    Admission, Batch, Blobs, Column, ColumnSpec, ColumnType, Exported, Guest, Manifest, Outcome,
    Reason, Rejection as WitRejection, Values, Violation as WitViolation,
};
use cdr_plugin_sdk::{Configured, Malformed, Normalizer, ReceivedAt, Rejection, Violation};
use std::cell::OnceCell;

/// The reference, as a type of this crate.
struct Reference(CdrNormalizer);

impl Normalizer for Reference {
    const NAME: &'static str = "cdr-versions";
    const VERSION: &'static str = "0.0.0";
    const DESCRIPTION: &'static str = "The reference normalizer, for tests of swaps.";
    type Settings = <CdrNormalizer as Normalizer>::Settings;
    type Raw<'a> = <CdrNormalizer as Normalizer>::Raw<'a>;
    type Row<'a> = <CdrNormalizer as Normalizer>::Row<'a>;

    fn configure(settings: Self::Settings) -> Result<Self, String> {
        CdrNormalizer::configure(settings).map(Self)
    }
    fn parse(payload: &[u8]) -> Result<Self::Raw<'_>, Malformed> {
        CdrNormalizer::parse(payload)
    }
    fn admit(&self, raw: &Self::Raw<'_>) -> Result<cdr_plugin_sdk::Admission, Violation> {
        self.0.admit(raw)
    }
    fn normalize<'a>(
        &self,
        raw: Self::Raw<'a>,
        received_at: ReceivedAt,
    ) -> Result<Self::Row<'a>, Rejection> {
        self.0.normalize(raw, received_at)
    }
}

std::thread_local! {
    static CONFIGURED: OnceCell<Reference> = const { OnceCell::new() };
}

impl Configured for Reference {
    fn with<R>(work: impl FnOnce(&OnceCell<Self>) -> R) -> R {
        CONFIGURED.with(work)
    }
}

fn spec() -> Spec {
    // The file may say something else than what the compiler saw.
    let text: Vec<u8> = (MARK.len()..LENGTH)
        .map(|at| std::hint::black_box(&TEXT)[at])
        .collect();
    Spec::parse(&String::from_utf8_lossy(&text))
}

fn column_type(word: &str) -> ColumnType {
    match word {
        "category" => ColumnType::Category,
        "uint32" => ColumnType::Uint32,
        "uint64" => ColumnType::Uint64,
        "int64" => ColumnType::Int64,
        "float64" => ColumnType::Float64,
        "boolean" => ColumnType::Boolean,
        _ => ColumnType::Text,
    }
}

/// So many values of a type: texts say the version, numbers are 7.
fn values(kind: ColumnType, rows: usize, version: &str) -> Values {
    match kind {
        ColumnType::Uint32 => Values::Uint32s(vec![7; rows]),
        ColumnType::Uint64 => Values::Uint64s(vec![7; rows]),
        ColumnType::Int64 => Values::Int64s(vec![7; rows]),
        ColumnType::Float64 => Values::Float64s(vec![7.0; rows]),
        ColumnType::Boolean => Values::Booleans(vec![1; rows]),
        _ => Values::Blobs(Blobs {
            offsets: (0..=rows).map(|row| (row * version.len()) as u32).collect(),
            data: version.repeat(rows).into_bytes(),
        }),
    }
}

struct Versions;

impl Guest for Versions {
    fn describe() -> Manifest {
        let mut manifest = Exported::<Reference>::describe();
        let spec = spec();
        manifest.version = spec.version;
        for change in spec.changes {
            match change {
                Change::Add {
                    name,
                    kind,
                    nullable,
                } => manifest.columns.push(ColumnSpec {
                    name,
                    kind: column_type(&kind),
                    nullable,
                }),
                Change::Remove(name) => manifest.columns.retain(|column| column.name != name),
                Change::Retype(name, kind) => {
                    for column in &mut manifest.columns {
                        if column.name == name {
                            column.kind = column_type(&kind);
                        }
                    }
                }
                Change::Reject | Change::Poison | Change::Hang => {}
            }
        }
        manifest
    }

    fn configure(settings: String) -> Result<(), String> {
        Exported::<Reference>::configure(settings)
    }

    fn admit(batch: Batch) -> Vec<Result<Admission, WitViolation>> {
        swallow(&spec(), FAST_POISON, &batch);
        Exported::<Reference>::admit(batch)
    }

    fn normalize(batch: Batch) -> Outcome {
        let records = batch.received_at.len() as u32;
        let spec = spec();
        // Not the trial at the load, whose payloads are few and small.
        if spec.changes.contains(&Change::Hang) && batch.payloads.data.len() > 100 {
            loop {
                std::hint::black_box(&spec);
            }
        }
        swallow(&spec, POISON, &batch);
        let mut names: Vec<_> = Exported::<Reference>::describe()
            .columns
            .into_iter()
            .map(|column| column.name)
            .collect();
        let mut outcome = Exported::<Reference>::normalize(batch);
        for change in spec.changes {
            let rows = outcome.rows.len();
            match change {
                Change::Add { name, kind, .. } => {
                    names.push(name);
                    outcome.columns.push(Column {
                        values: values(column_type(&kind), rows, &spec.version),
                        nulls: None,
                    });
                }
                Change::Remove(name) => {
                    if let Some(at) = names.iter().position(|found| *found == name) {
                        names.remove(at);
                        outcome.columns.remove(at);
                    }
                }
                Change::Retype(name, kind) => {
                    if let Some(at) = names.iter().position(|found| *found == name) {
                        outcome.columns[at] = Column {
                            values: values(column_type(&kind), rows, &spec.version),
                            nulls: None,
                        };
                    }
                }
                Change::Poison | Change::Hang => {}
                Change::Reject => {
                    outcome.rows.clear();
                    outcome.columns = outcome
                        .columns
                        .into_iter()
                        .map(|column| Column {
                            values: empty(&column.values),
                            nulls: None,
                        })
                        .collect();
                    outcome.rejections = (0..records)
                        .map(|row| WitRejection {
                            row,
                            reason: Reason::NormalizationError,
                            field: None,
                            detail: "this version rejects everything".to_owned(),
                        })
                        .collect();
                }
            }
        }
        outcome
    }
}

/// Panics over a payload that says so, in a version that does.
fn swallow(spec: &Spec, poison: &str, batch: &Batch) {
    if spec.changes.contains(&Change::Poison) {
        let data = String::from_utf8_lossy(&batch.payloads.data);
        assert!(!data.contains(poison), "swallowed {poison}");
    }
}

fn empty(values: &Values) -> Values {
    match values {
        Values::Booleans(_) => Values::Booleans(Vec::new()),
        Values::Uint32s(_) => Values::Uint32s(Vec::new()),
        Values::Uint64s(_) => Values::Uint64s(Vec::new()),
        Values::Int64s(_) => Values::Int64s(Vec::new()),
        Values::Float64s(_) => Values::Float64s(Vec::new()),
        Values::Blobs(_) => Values::Blobs(Blobs {
            offsets: vec![0],
            data: Vec::new(),
        }),
    }
}

cdr_plugin_sdk::bindings::__export_component!(Versions with_types_in cdr_plugin_sdk::bindings);
