//! [`Admit`] by a normalizer in its sandbox.

use bytes::Bytes;
use cdr_plugin_host::{Admitted, Batch, FaultKind, Normalizer, ViolationCode};

use crate::ports::{Admit, AdmitError, AdmitResult, BoxFuture, NormalizerInfo, RefusalCode};

impl Admit for Normalizer {
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
            let answers =
                Normalizer::admit(self, batch)
                    .await
                    .map_err(|error| AdmitError::Unavailable {
                        detail: error.to_string(),
                    })?;
            Ok(answers.into_iter().map(result).collect())
        })
    }

    fn describe(&self) -> NormalizerInfo {
        let provenance = self.provenance();
        NormalizerInfo {
            name: provenance.name.clone(),
            version: provenance.version.clone(),
            digest: provenance.digest.clone(),
        }
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
