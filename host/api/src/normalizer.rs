//! [`Admit`] by the normalizer that serves, in its sandbox.

use bytes::Bytes;
use cdr_plugin_host::{Admitted, Batch, FaultKind, Live, ViolationCode};
use cdr_telemetry::metrics::Metrics;
use cdr_telemetry::normalizer::{NormalizerMetrics, NormalizerView};

use crate::ports::{Admit, AdmitError, AdmitResult, BoxFuture, NormalizerInfo, RefusalCode};

/// Shows in `metrics` which normalizer serves, as long as the runtime lasts.
///
/// # Errors
/// The metrics are registered already.
pub fn show(mut live: Live, metrics: &Metrics) -> Result<(), prometheus::Error> {
    let shown = NormalizerMetrics::new(metrics.maker(), "cdr_api")?;
    let show = move |state: &cdr_plugin_host::LiveState| {
        let serving = &state.serving;
        shown.show(NormalizerView {
            serving: [&serving.name, &serving.version, &serving.digest],
            revision: state.revision,
            refused: state.refused.as_ref().map(|refused| refused.kind),
            swaps: state.swaps,
            refusals: state.refusals,
        });
    };
    show(&live.state());
    tokio::spawn(async move {
        loop {
            show(&*live.state_changed().await);
        }
    });
    Ok(())
}

impl Admit for Live {
    fn admit(
        &self,
        records: Vec<(Bytes, i64)>,
    ) -> BoxFuture<'_, Result<Vec<AdmitResult>, AdmitError>> {
        Box::pin(async move {
            let bytes = records.iter().map(|(payload, _)| payload.len()).sum();
            let mut batch = Batch::with_capacity(records.len(), bytes);
            for (payload, received_at) in &records {
                batch
                    .push(payload, *received_at)
                    .map_err(|error| AdmitError::Broken {
                        detail: error.to_string(),
                    })?;
            }
            drop(records);
            // One version judges the whole batch.
            let serving = self.current();
            let answers =
                serving
                    .normalizer
                    .admit(batch)
                    .await
                    .map_err(|error| AdmitError::Unavailable {
                        detail: error.to_string(),
                    })?;
            Ok(answers.into_iter().map(result).collect())
        })
    }

    fn describe(&self) -> NormalizerInfo {
        let serving = self.current();
        let provenance = serving.normalizer.provenance();
        NormalizerInfo {
            name: provenance.name.clone(),
            version: provenance.version.clone(),
            digest: provenance.digest.clone(),
        }
    }

    fn activation(&self) -> Option<serde_json::Value> {
        serde_json::to_value(&*self.state()).ok()
    }
}

fn result(answer: Admitted) -> AdmitResult {
    match answer {
        Admitted::Yes(admission) => AdmitResult::Admitted {
            key: admission.key,
            source: admission.source,
        },
        Admitted::No(violation) => AdmitResult::Refused {
            code: match violation.code {
                ViolationCode::MalformedJson => RefusalCode::MalformedJson,
                ViolationCode::MissingRequiredField => RefusalCode::MissingRequiredField,
                ViolationCode::InvalidType => RefusalCode::InvalidType,
            },
            field: violation.field,
            detail: violation.detail,
        },
        Admitted::Fault(fault) if fault.kind == FaultKind::Isolation => AdmitResult::NotJudged {
            detail: fault.to_string(),
        },
        Admitted::Fault(fault) => AdmitResult::Fault {
            detail: if fault.stderr.is_empty() {
                fault.to_string()
            } else {
                format!("{fault}; it said: {}", fault.stderr)
            },
        },
    }
}
