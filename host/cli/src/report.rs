//! What landed: the account that `cdr demo` gives at its end, read from
//! ClickHouse and the dead-letter topic themselves.

use crate::system::System;
use anyhow::{Context, bail};
use cdr_kafka::dead_letter::Envelope;
use hyper::StatusCode;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time to read the dead-letter topic.
const READ: Duration = Duration::from_secs(30);

/// Rows that are shown whole.
const SHOWN: usize = 3;

/// Who is accounted for: vendor and raw_id.
type Identity = (String, String);

/// The account of a demo.
#[derive(Debug, Default)]
pub struct Account {
    /// Requests answered.
    pub sent: usize,
    /// … with 202.
    pub accepted: usize,
    /// … with 400.
    pub rejected: usize,
    /// Rows, duplicates counted once.
    pub rows: usize,
    /// Messages on the dead-letter topic.
    pub dead_letters: usize,
    /// From the first request until all was settled.
    pub took: Duration,
    /// How often each record was accepted.
    accepted_records: BTreeMap<Identity, usize>,
    refusals: BTreeMap<(String, String), usize>,
    missing: Vec<Identity>,
    /// Not accepted, or more often there than it may be.
    unexpected: Vec<Identity>,
}

impl Account {
    /// Notes an answer.
    pub fn answered(
        &mut self,
        payload: &[u8],
        status: StatusCode,
        body: &[u8],
    ) -> anyhow::Result<()> {
        self.sent += 1;
        match status {
            StatusCode::ACCEPTED => {
                self.accepted += 1;
                *self.accepted_records.entry(identity(payload)?).or_default() += 1;
            }
            StatusCode::BAD_REQUEST => {
                self.rejected += 1;
                let answer: Value = serde_json::from_slice(body).context("an answer of the API")?;
                let word = |name: &str| answer[name].as_str().unwrap_or("-").to_owned();
                *self
                    .refusals
                    .entry((word("error"), word("field")))
                    .or_default() += 1;
            }
            other => bail!(
                "the API answered {other}: {}",
                String::from_utf8_lossy(body)
            ),
        }
        Ok(())
    }

    /// The sum, for machines.
    pub fn last_line(&self) -> String {
        format!(
            "sent={} accepted={} rejected={} rows={} dead_letters={} lost={}",
            self.sent,
            self.accepted,
            self.rejected,
            self.rows,
            self.dead_letters,
            self.missing.len()
        )
    }

    /// # Errors
    /// The sum doesn't come out.
    pub fn check(&self) -> anyhow::Result<()> {
        if !self.missing.is_empty() {
            bail!(
                "{} accepted records are neither in ClickHouse nor dead-lettered: {:?} …",
                self.missing.len(),
                self.missing.iter().take(5).collect::<Vec<_>>()
            );
        }
        if !self.unexpected.is_empty() {
            bail!(
                "{} records landed that were not accepted, or more than once: {:?} …",
                self.unexpected.len(),
                self.unexpected.iter().take(5).collect::<Vec<_>>()
            );
        }
        if self.sent != self.accepted + self.rejected {
            bail!("the answers don't add up: {}", self.last_line());
        }
        Ok(())
    }
}

fn identity(payload: &[u8]) -> anyhow::Result<Identity> {
    let record: Value = serde_json::from_slice(payload).context("an accepted payload")?;
    let field = |name: &str| record[name].as_str().unwrap_or_default().to_owned();
    Ok((field("vendor_id"), field("raw_id")))
}

/// Reads what landed, prints it, and completes the account.
pub async fn show(system: &System, account: &mut Account) -> anyhow::Result<()> {
    let store = system.store();
    let groups = store
        .count_by(&["service_type", "radio_access_type"])
        .await?;
    println!(
        "\nRows in {} by service and access type:",
        store.table_name()
    );
    let mut services: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (key, count) in &groups {
        if let [service, access] = key.as_slice() {
            services
                .entry(service)
                .or_default()
                .push(format!("{access} {count}"));
        }
    }
    for (service, accesses) in services {
        println!("  {service:<6} {}", accesses.join(", "));
    }

    println!("\nThree of them, whole:");
    for row in whole_rows(system).await? {
        println!("  {row}");
    }

    let letters =
        cdr_kafka::admin::read_topic(system.kafka(), &system.topics().kafka_dlq_topic, READ)
            .await?;
    let mut by_reason: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut dead: BTreeMap<Identity, usize> = BTreeMap::new();
    for letter in &letters {
        let envelope = Envelope::decode(
            letter.payload.as_deref().unwrap_or_default(),
            letter.header(cdr_kafka::headers::PAYLOAD_ENCODING),
        )?;
        let field = envelope.failed_field.unwrap_or_else(|| "-".to_owned());
        *by_reason
            .entry((envelope.failure_reason, field))
            .or_default() += 1;
        *dead
            .entry(identity(&envelope.original_payload.unwrap_or_default())?)
            .or_default() += 1;
    }
    table("Dead-lettered", &by_reason);
    table(
        "Refused by the API, so never on the topic",
        &account.refusals,
    );

    let mut rows: BTreeMap<Identity, u64> = BTreeMap::new();
    for (key, count) in store.count_by(&["vendor_id", "raw_id"]).await? {
        if let [vendor, raw] = key.as_slice() {
            rows.insert((vendor.clone(), raw.clone()), count);
        }
    }
    account.rows = usize::try_from(store.count().await?).unwrap_or(usize::MAX);
    account.dead_letters = letters.len();
    // Each accepted record is one row, or a dead letter for each time it came.
    for (record, times) in &account.accepted_records {
        match (rows.remove(record), dead.remove(record)) {
            (Some(1), None) => {}
            (None, Some(letters)) if letters == *times => {}
            (None, None) => account.missing.push(record.clone()),
            _ => account.unexpected.push(record.clone()),
        }
    }
    account.unexpected.extend(rows.into_keys());
    account.unexpected.extend(dead.into_keys());
    let repeated = account.accepted - account.accepted_records.len();
    println!(
        "\n{} accepted ({} of them sent again, which makes no second row), settled {:.1} s after the first request",
        account.accepted,
        repeated,
        account.took.as_secs_f64()
    );
    Ok(())
}

/// A few rows, one of each service where there are any.
async fn whole_rows(system: &System) -> anyhow::Result<Vec<Value>> {
    let store = system.store();
    let sql = format!(
        "SELECT * FROM {} FINAL ORDER BY cityHash64(cdr_id) LIMIT 1 BY service_type LIMIT {SHOWN}",
        store.quoted_table()
    );
    Ok(store.query_rows::<Value>(&sql).await?)
}

fn table(title: &str, counts: &BTreeMap<(String, String), usize>) {
    let total: usize = counts.values().sum();
    println!("\n{title}: {total}");
    for ((reason, field), count) in counts {
        println!("  {count:>4}  {reason:<24} {field}");
    }
}
