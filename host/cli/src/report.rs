//! What landed: the account that `cdr demo` gives at its end, read from
//! ClickHouse and the dead-letter topic themselves.

use crate::system::System;
use anyhow::{Context, bail};
use cdr_kafka::dead_letter::Envelope;
use hyper::StatusCode;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
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
    accepted_records: BTreeSet<Identity>,
    refusals: BTreeMap<(String, String), usize>,
    missing: Vec<Identity>,
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
                self.accepted_records.insert(identity(payload)?);
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
                "{} records landed that were not accepted: {:?} …",
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
    let mut settled: BTreeSet<Identity> = BTreeSet::new();
    for letter in &letters {
        let envelope = Envelope::decode(
            letter.payload.as_deref().unwrap_or_default(),
            letter.header(cdr_kafka::headers::PAYLOAD_ENCODING),
        )?;
        let field = envelope.failed_field.unwrap_or_else(|| "-".to_owned());
        *by_reason
            .entry((envelope.failure_reason, field))
            .or_default() += 1;
        settled.insert(identity(&envelope.original_payload.unwrap_or_default())?);
    }
    table("Dead-lettered", &by_reason);
    table(
        "Refused by the API, so never on the topic",
        &account.refusals,
    );

    let rows = store.count_by(&["vendor_id", "raw_id"]).await?;
    for (key, _) in &rows {
        if let [vendor, raw] = key.as_slice() {
            settled.insert((vendor.clone(), raw.clone()));
        }
    }
    account.rows = usize::try_from(store.count().await?).unwrap_or(usize::MAX);
    account.dead_letters = letters.len();
    account.missing = account
        .accepted_records
        .difference(&settled)
        .cloned()
        .collect();
    account.unexpected = settled
        .difference(&account.accepted_records)
        .cloned()
        .collect();
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
