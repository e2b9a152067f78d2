//! Reading a dead letter.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::PREFIX;
use crate::headers;

/// An envelope as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// Exactly the payload of the record, unless it is [cut](Self::truncated);
    /// none for a tombstone.
    pub original_payload: Option<Vec<u8>>,
    /// The payload was too large for the topic: this is its beginning, and the
    /// headers say where the whole is.
    pub truncated: bool,
    /// The word for the reason, whatever it is.
    pub failure_reason: String,
    /// The field that failed.
    pub failed_field: Option<String>,
    /// ISO 8601, UTC.
    pub failed_at: String,
    /// Which worker says so.
    pub worker_instance: String,
}

/// A dead letter that can't be read.
#[derive(Debug, thiserror::Error)]
pub enum EnvelopeError {
    /// It is not an envelope of this project.
    #[error("not a dead-letter envelope: {0}")]
    NotAnEnvelope(String),
    /// The payload is not base64 though the header says so.
    #[error("original_payload is not base64, though header cdr-payload-encoding says so: {0}")]
    Base64(#[from] base64::DecodeError),
}

#[derive(serde::Deserialize)]
struct Fields {
    failure_reason: String,
    failed_field: Option<String>,
    failed_at: String,
    worker_instance: String,
}

impl Envelope {
    /// Reads an envelope; `encoding` is the header `cdr-payload-encoding`.
    pub fn decode(message: &[u8], encoding: Option<&str>) -> Result<Self, EnvelopeError> {
        let foreign = |reason: &dyn fmt::Display| EnvelopeError::NotAnEnvelope(reason.to_string());
        let fields: Fields = serde_json::from_slice(message).map_err(|e| foreign(&e))?;
        // The payload is cut out of the message, not parsed and printed again.
        let rest = message
            .strip_prefix(PREFIX)
            .ok_or_else(|| foreign(&"it does not start with original_payload"))?;
        let mut values =
            serde_json::Deserializer::from_slice(rest).into_iter::<serde::de::IgnoredAny>();
        match values.next() {
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(foreign(&error)),
            None => return Err(foreign(&"original_payload has no value")),
        }
        let raw = rest
            .get(..values.byte_offset())
            .ok_or_else(|| foreign(&"original_payload has no end"))?;
        let original_payload = if encoding == Some(headers::ENCODING_NULL) {
            None
        } else if raw.first() == Some(&b'"') {
            let text: String = serde_json::from_slice(raw).map_err(|e| foreign(&e))?;
            Some(match encoding {
                Some(headers::ENCODING_BASE64 | headers::ENCODING_TRUNCATED_BASE64) => {
                    BASE64.decode(text)?
                }
                _ => text.into_bytes(),
            })
        } else {
            Some(raw.to_vec())
        };
        Ok(Envelope {
            original_payload,
            truncated: matches!(
                encoding,
                Some(headers::ENCODING_TRUNCATED | headers::ENCODING_TRUNCATED_BASE64)
            ),
            failure_reason: fields.failure_reason,
            failed_field: fields.failed_field,
            failed_at: fields.failed_at,
            worker_instance: fields.worker_instance,
        })
    }
}
