//! Dead letters that are larger than their topic takes: a cut one for the topic,
//! the whole one for a file.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::{DeadLetter, DeadLetterMessage, PREFIX, push_string};
use crate::headers;

/// Bytes of a key that a cut dead letter keeps.
pub const MAX_KEY_BYTES: usize = 1024;

impl DeadLetter<'_> {
    /// The message for a topic that does not take the whole one: it has the first
    /// `max_payload_bytes` of the payload (a few less, where that would cut a
    /// character) as a string, and headers that say so and that `spool_file` has
    /// the whole.
    pub fn encode_truncated(
        &self,
        max_payload_bytes: usize,
        spool_file: &str,
    ) -> DeadLetterMessage {
        let raw = self.payload.unwrap_or_default();
        let mut out = Vec::with_capacity(max_payload_bytes.min(raw.len()) + 256);
        out.extend_from_slice(PREFIX);
        let encoding = match std::str::from_utf8(raw) {
            _ if self.payload.is_none() => {
                push_string(&mut out, "");
                headers::ENCODING_NULL
            }
            Ok(text) => {
                push_string(&mut out, beginning(text, max_payload_bytes));
                headers::ENCODING_TRUNCATED
            }
            Err(_) => {
                let part = raw.get(..max_payload_bytes).unwrap_or(raw);
                push_string(&mut out, &BASE64.encode(part));
                headers::ENCODING_TRUNCATED_BASE64
            }
        };
        self.push_rest(&mut out);
        let mut all = self.headers(Some(encoding));
        all.push((headers::PAYLOAD_TRUNCATED, raw.len().to_string()));
        all.push((headers::PAYLOAD_SHA256, hex::encode(Sha256::digest(raw))));
        all.push((headers::SPOOL_FILE, spool_file.to_owned()));
        let key = self.key.map(|key| match key.get(..MAX_KEY_BYTES) {
            Some(part) if part.len() < key.len() => {
                all.push((headers::KEY_TRUNCATED, key.len().to_string()));
                part.to_vec()
            }
            _ => key.to_vec(),
        });
        DeadLetterMessage {
            key,
            payload: out,
            headers: all,
        }
    }
}

fn beginning(text: &str, max: usize) -> &str {
    let end = (0..=max.min(text.len()))
        .rev()
        .find(|&end| text.is_char_boundary(end));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}

/// A whole dead letter as it stands in a file, with all that is needed to send it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpooledDeadLetter {
    /// The topic that it was meant for.
    pub topic: String,
    /// The message.
    pub message: DeadLetterMessage,
}

/// A file that is no spooled dead letter.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// It is not what [`SpooledDeadLetter::encode`] writes.
    #[error("not a spooled dead letter: {0}")]
    NotSpooled(#[from] serde_json::Error),
    /// The key is not base64.
    #[error("not a spooled dead letter: its key is not base64: {0}")]
    Key(#[from] base64::DecodeError),
    /// A header that this project does not know.
    #[error("not a spooled dead letter: unknown header {0:?}")]
    UnknownHeader(String),
}

/// The file. The envelope stands in it as it is, so that people can read it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File<'a> {
    topic: String,
    key_base64: Option<String>,
    headers: Vec<(String, String)>,
    #[serde(borrow)]
    envelope: &'a RawValue,
}

impl SpooledDeadLetter {
    /// A message for a topic.
    pub fn new(topic: &str, message: DeadLetterMessage) -> Self {
        Self {
            topic: topic.to_owned(),
            message,
        }
    }

    /// The content of its file: one JSON object.
    ///
    /// # Errors
    /// The message is no envelope, which [`DeadLetter::encode`] never makes.
    pub fn encode(&self) -> Result<Vec<u8>, SpoolError> {
        let envelope: &RawValue = serde_json::from_slice(&self.message.payload)?;
        let mut content = serde_json::to_vec(&File {
            topic: self.topic.clone(),
            key_base64: self.message.key.as_ref().map(|key| BASE64.encode(key)),
            headers: self
                .message
                .headers
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect(),
            envelope,
        })?;
        content.push(b'\n');
        Ok(content)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It is none, or it is damaged.
    pub fn decode(content: &[u8]) -> Result<Self, SpoolError> {
        let file: File<'_> = serde_json::from_slice(content)?;
        let headers = file
            .headers
            .into_iter()
            .map(|(name, value)| match headers::known(&name) {
                Some(name) => Ok((name, value)),
                None => Err(SpoolError::UnknownHeader(name)),
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            topic: file.topic,
            message: DeadLetterMessage {
                key: file.key_base64.map(|key| BASE64.decode(key)).transpose()?,
                payload: file.envelope.get().as_bytes().to_vec(),
                headers,
            },
        })
    }
}
