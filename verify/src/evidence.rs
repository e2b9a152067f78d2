//! What landed, from ClickHouse and Kafka themselves.

use std::time::Duration;

use cdr_kafka::dead_letter::Envelope;
use cdr_kafka::{KafkaConfig, admin, headers};
use cdr_store::Store;

use crate::judge::Letter;
use crate::records::Row;

/// For one question.
const PATIENCE: Duration = Duration::from_secs(60);

/// Topics and group of a system under test.
#[derive(Debug, Clone)]
pub struct Names {
    /// Topic of raw records.
    pub raw: String,
    /// Topic of dead letters.
    pub dlq: String,
    /// Consumer group of the workers.
    pub group: String,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            raw: "cdr.raw".to_owned(),
            dlq: "cdr.raw.dlq".to_owned(),
            group: "cdr-worker".to_owned(),
        }
    }
}

/// Where to look.
#[derive(Debug, Clone)]
pub struct Witness {
    /// Kafka.
    pub kafka: KafkaConfig,
    /// ClickHouse and the table.
    pub store: Store,
    /// Topics and group.
    pub names: Names,
}

/// The rows of the table under FINAL, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
pub struct Count {
    /// All of them.
    pub rows: u64,
    /// Records that they are of.
    pub records: u64,
}

impl Witness {
    /// The rows under FINAL of records whose ids begin with `prefix`.
    ///
    /// # Errors
    /// ClickHouse does not answer.
    pub async fn rows(&self, prefix: &str) -> anyhow::Result<Vec<Row>> {
        let sql = format!(
            "SELECT {} FROM {} FINAL WHERE startsWith(raw_id, '{prefix}') ORDER BY raw_id \
             SETTINGS output_format_json_quote_64bit_integers = 0",
            Row::COLUMNS,
            self.store.quoted_table()
        );
        Ok(self.store.query_rows(&sql).await?)
    }

    /// All rows under FINAL.
    ///
    /// # Errors
    /// ClickHouse does not answer.
    pub async fn count(&self) -> anyhow::Result<Count> {
        let sql = format!(
            "SELECT count() AS rows, uniqExact(vendor_id, raw_id) AS records FROM {} FINAL \
             SETTINGS output_format_json_quote_64bit_integers = 0",
            self.store.quoted_table()
        );
        let counts: Vec<Count> = self.store.query_rows(&sql).await?;
        Ok(counts.into_iter().next().unwrap_or_default())
    }

    /// All dead letters, in the order in which they came. One that can't be read, or
    /// comes from elsewhere, has no id and says so as its reason.
    ///
    /// # Errors
    /// Kafka does not answer.
    pub async fn letters(&self) -> anyhow::Result<Vec<Letter>> {
        let records = admin::read_topic(&self.kafka, &self.names.dlq, PATIENCE).await?;
        Ok(records.iter().map(|record| self.letter(record)).collect())
    }

    fn letter(&self, record: &admin::TopicRecord) -> Letter {
        let message = record.payload.as_deref().unwrap_or_default();
        let source = record.header(headers::SOURCE_TOPIC);
        if source != Some(&self.names.raw) {
            return Letter {
                raw_id: None,
                reason: format!("of topic {source:?}, not {}", self.names.raw),
                payload: message.to_vec(),
            };
        }
        match Envelope::decode(message, record.header(headers::PAYLOAD_ENCODING)) {
            Ok(envelope) => {
                let payload = envelope.original_payload.unwrap_or_default();
                Letter {
                    raw_id: raw_id(&payload),
                    reason: envelope.failure_reason,
                    payload,
                }
            }
            Err(error) => Letter {
                raw_id: None,
                reason: error.to_string(),
                payload: message.to_vec(),
            },
        }
    }
}

fn raw_id(payload: &[u8]) -> Option<String> {
    let record: serde_json::Value = serde_json::from_slice(payload).ok()?;
    Some(record["raw_id"].as_str()?.to_owned())
}
