//! From the author's functions to the exports of the component.

use crate::component::telecom::cdr::types as wit;
use crate::{Configured, Normalizer, ReceivedAt, Rejection, Row, Violation};
use std::marker::PhantomData;

/// The component that [`export!`](crate::export) makes of a normalizer.
#[doc(hidden)]
pub struct Exported<N>(PhantomData<N>);

impl<N: Configured> crate::bindings::Guest for Exported<N> {
    fn describe() -> wit::Manifest {
        manifest::<N>()
    }

    fn configure(settings: String) -> Result<(), String> {
        let normalizer = configure::<N>(&settings)?;
        N::with(|place| {
            place
                .set(normalizer)
                .map_err(|_| "configure was called twice".to_owned())
        })
    }

    fn admit(batch: wit::Batch) -> Vec<Result<wit::Admission, wit::Violation>> {
        N::with(|place| admit(configured(place.get()), &batch))
    }

    fn normalize(batch: wit::Batch) -> wit::Outcome {
        N::with(|place| normalize(configured(place.get()), &batch))
    }
}

fn configured<N>(normalizer: Option<&N>) -> &N {
    // A host that breaks the contract gets a trap with this text.
    normalizer.expect("the host calls `configure` before everything else")
}

pub(crate) fn configure<N: Normalizer>(settings: &str) -> Result<N, String> {
    let settings = serde_json::from_str(settings).map_err(|error| format!("settings: {error}"))?;
    N::configure(settings)
}

pub(crate) fn manifest<N: Normalizer>() -> wit::Manifest {
    wit::Manifest {
        name: N::NAME.to_owned(),
        version: N::VERSION.to_owned(),
        description: N::DESCRIPTION.to_owned(),
        columns: N::Row::<'static>::COLUMNS
            .iter()
            .map(|column| wit::ColumnSpec {
                name: column.name.to_owned(),
                kind: column.kind,
                nullable: column.nullable,
            })
            .collect(),
    }
}

/// The payloads of a batch with their reception times.
fn records(batch: &wit::Batch) -> impl ExactSizeIterator<Item = (&[u8], ReceivedAt)> {
    let wit::Blobs { offsets, data } = &batch.payloads;
    offsets
        .windows(2)
        .zip(&batch.received_at)
        .map(|(ends, received_at)| {
            (
                &data[ends[0] as usize..ends[1] as usize],
                ReceivedAt::from_millis(*received_at),
            )
        })
}

pub(crate) fn admit<N: Normalizer>(
    normalizer: &N,
    batch: &wit::Batch,
) -> Vec<Result<wit::Admission, wit::Violation>> {
    records(batch)
        .map(|(payload, _)| {
            N::parse(payload)
                .map_err(Violation::from)
                .and_then(|raw| normalizer.admit(&raw))
                .map(|admission| wit::Admission {
                    key: admission.key,
                    source: admission.source,
                })
                .map_err(|violation| wit::Violation {
                    code: violation.code,
                    field: violation.field.map(Into::into),
                    detail: violation.detail.into(),
                })
        })
        .collect()
}

pub(crate) fn normalize<'b, N: Normalizer>(normalizer: &N, batch: &'b wit::Batch) -> wit::Outcome {
    let records = records(batch);
    let mut rows = Vec::with_capacity(records.len());
    let mut rejections = Vec::new();
    let mut builders = N::Row::<'b>::builders(records.len());
    for (row, (payload, received_at)) in (0..).zip(records) {
        let result = N::parse(payload)
            .map_err(Rejection::from)
            .and_then(|raw| normalizer.normalize(raw, received_at));
        match result {
            Ok(made) => {
                rows.push(row);
                made.push(&mut builders);
            }
            Err(rejection) => rejections.push(wit::Rejection {
                row,
                reason: rejection.reason,
                field: rejection.field.map(Into::into),
                detail: rejection.detail.into(),
            }),
        }
    }
    wit::Outcome {
        rows,
        columns: N::Row::<'b>::finish(builders),
        rejections,
    }
}
