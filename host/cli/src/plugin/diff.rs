//! `cdr plugin diff`: how two normalizers differ, on payloads from standard input,
//! on real records, or as the shadow saw it.

use super::now_ms;
use super::status::HostsArgs;
use crate::args::{self, SandboxArgs};
use crate::http_client::HttpClient;
use anyhow::{Context, bail};
use cdr_kafka::admin::{TopicRecord, read_last};
use cdr_kafka::dead_letter::Envelope;
use cdr_kafka::{KafkaArgs, headers};
use cdr_plugin_host::diff::Diff;
use cdr_plugin_host::registry::{Choice, VersionId};
use cdr_plugin_host::{Batch, Normalizer, PluginHost, Registry};
use serde_json::Value;
use std::fmt::Write as _;
use std::io::BufRead;
use std::path::PathBuf;
use std::time::Duration;

/// Records that are judged at once.
const CHUNK: usize = 1000;

/// Differences that are written out.
const SHOWN: usize = 20;

/// Time for Kafka to answer.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples are redacted: digits become 9 and letters a, except in times, words of a category and numbers of \
                  up to five digits.\n\
                  Exit code 0: no differences, or no --check; 1: differences, with --check."
)]
pub struct DiffCommand {
    /// What is, and what would be: two FILE.wasm or NAME@VERSION of the registry; none: what the shadow saw
    #[arg(value_name = "A B", num_args = 2)]
    which: Vec<String>,
    /// Settings of both, a JSON file
    #[arg(long, value_name = "FILE.json")]
    settings: Option<PathBuf>,
    /// Settings of B, if they differ
    #[arg(long, value_name = "FILE.json")]
    settings_b: Option<PathBuf>,
    /// When the records of standard input count as received, in milliseconds since the Unix epoch [default: now]
    #[arg(long, value_name = "MS")]
    received_at: Option<i64>,
    /// Take the original payloads of the dead-letter topic
    #[arg(long, conflicts_with = "from_raw")]
    from_dlq: bool,
    /// Take the last N records of the raw topic
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    from_raw: Option<u32>,
    /// Exit with code 1 if there are differences
    #[arg(long)]
    check: bool,
    /// Write JSON instead of text
    #[arg(long)]
    json: bool,
    /// The registry of normalizers, for NAME@VERSION
    #[arg(long = "dir", env = "NORMALIZER_DIR", value_name = "DIR")]
    normalizer_dir: Option<PathBuf>,
    #[command(flatten)]
    hosts: HostsArgs,
    #[command(flatten)]
    kafka: KafkaArgs,
    #[command(flatten)]
    sandbox: SandboxArgs,
}

/// A payload and when it was received.
type Payload = (Vec<u8>, i64);

impl DiffCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        let [a, b] = &self.which[..] else {
            return self.of_shadow().await;
        };
        let host = self.sandbox.host()?;
        let settings = args::settings(self.settings.as_ref())?;
        let settings_b = match &self.settings_b {
            Some(path) => args::settings(Some(path))?,
            None => settings.clone(),
        };
        let before = self.load(&host, a, &settings).await?;
        let after = self.load(&host, b, &settings_b).await?;
        let mut diff = Diff::new(before.manifest(), after.manifest());
        let payloads = self.payloads().await?;
        for chunk in payloads.chunks(CHUNK) {
            let mut batch = Batch::default();
            for (payload, received_at) in chunk {
                batch.push(payload, *received_at)?;
            }
            let answer = before.normalize(batch.clone()).await?;
            let other = after.normalize(batch).await?;
            diff.add(
                chunk.len(),
                (&before.manifest().columns, &answer),
                (&after.manifest().columns, &other),
            );
        }
        let value = serde_json::to_value(&diff)?;
        if self.json {
            println!("{value:#}");
        } else {
            println!("{a} → {b}\n{}", text(&value));
        }
        if self.check && (diff.different() > 0 || diff.lost_columns() > 0) {
            bail!(
                "{} of {} records differ, {} columns are gone or have another type",
                diff.different(),
                diff.records,
                diff.lost_columns()
            );
        }
        Ok(())
    }

    async fn load(
        &self,
        host: &PluginHost,
        which: &str,
        settings: &str,
    ) -> anyhow::Result<Normalizer> {
        if let (Some(dir), Ok(id)) = (&self.normalizer_dir, which.parse::<VersionId>()) {
            let registry = Registry::new(dir);
            let limit = host.component_limit();
            let choice = Choice {
                name: id.name().to_owned(),
                version: id.version().to_string(),
                sha256: registry.digest_of(&id, limit)?,
                settings: None,
            };
            let artifact = registry.artifact(&choice, limit)?;
            return host.load(artifact.wasm, settings).await.context(id);
        }
        host.load_file(std::path::Path::new(which), settings)
            .await
            .with_context(|| which.to_owned())
    }

    async fn payloads(&self) -> anyhow::Result<Vec<Payload>> {
        let kafka = self.kafka.config("cdr-plugin-diff");
        if let Some(records) = self.from_raw {
            let topic = &self.kafka.kafka_raw_topic;
            let records = read_last(&kafka, topic, records, PATIENCE).await?;
            return Ok(records.into_iter().map(raw).collect());
        }
        if self.from_dlq {
            let topic = &self.kafka.kafka_dlq_topic;
            let records = cdr_kafka::admin::read_topic(&kafka, topic, PATIENCE).await?;
            let total = records.len();
            let payloads: Vec<_> = records.iter().filter_map(dead_letter).collect();
            if payloads.len() < total {
                eprintln!(
                    "{} dead letters were passed over: they have no whole payload",
                    total - payloads.len()
                );
            }
            return Ok(payloads);
        }
        let received_at = self.received_at.unwrap_or_else(now_ms);
        let lines = std::io::stdin().lock().split(b'\n');
        lines
            .map(|line| Ok((line.context("standard input")?, received_at)))
            .collect()
    }

    /// What the workers saw of the candidate in their shadow.
    async fn of_shadow(&self) -> anyhow::Result<()> {
        let client = HttpClient::new();
        let mut found = Vec::new();
        for url in &self.hosts.hosts {
            match HostsArgs::stats(&client, url).await {
                // An API host tells of its worker only in passing.
                Ok(stats) if stats.get("shadow").is_some() => {
                    found.push((url.clone(), stats["shadow"].clone()));
                }
                Ok(_) => {}
                Err(error) => eprintln!("{url} does not answer: {error}"),
            }
        }
        if self.json {
            let all: serde_json::Map<_, _> = found.into_iter().collect();
            println!("{:#}", Value::from(all));
            return Ok(());
        }
        if found.is_empty() {
            bail!("no worker answers; name them with --host");
        }
        let mut different = 0;
        for (url, shadow) in found {
            if shadow.is_null() {
                println!("{url}\nnothing was compared (`cdr plugin shadow NAME@VERSION` begins)");
                continue;
            }
            let id = |of: &Value| {
                let word = |key: &str| of[key].as_str().unwrap_or("?").to_owned();
                format!("{}@{}", word("name"), word("version"))
            };
            println!(
                "{url}\n{} → {} (in the shadow), since {}: {} batches, {} dropped for want of time",
                id(&shadow["active"]),
                id(&shadow["candidate"]),
                shadow["since"].as_str().unwrap_or("?"),
                shadow["batches"],
                shadow["dropped_batches"]
            );
            let diff = &shadow["diff"];
            let same = diff["kinds"]["same"].as_u64().unwrap_or(0);
            different += diff["records"].as_u64().unwrap_or(0).saturating_sub(same);
            println!("{}", text(diff));
        }
        if self.check && different > 0 {
            bail!("{different} records differ");
        }
        Ok(())
    }
}

/// A raw record; a replayed one keeps the time at which it first came.
fn raw(record: TopicRecord) -> Payload {
    let received = record
        .header(headers::RECEIVED_AT)
        .and_then(|text| text.parse().ok())
        .or(record.timestamp_ms)
        .unwrap_or(0);
    (record.payload.unwrap_or_default(), received)
}

/// The payload of a dead letter, if it is whole, and when it was received.
fn dead_letter(record: &TopicRecord) -> Option<Payload> {
    let message = record.payload.as_deref()?;
    let envelope = Envelope::decode(message, record.header(headers::PAYLOAD_ENCODING)).ok()?;
    if envelope.truncated {
        return None;
    }
    let received = [headers::RECEIVED_AT, headers::SOURCE_TIMESTAMP]
        .iter()
        .find_map(|name| record.header(name)?.parse().ok())
        .unwrap_or(0);
    Some((envelope.original_payload?, received))
}

/// The report for people.
fn text(diff: &Value) -> String {
    let mut text = String::new();
    let count = |value: &Value| value.as_u64().unwrap_or(0);
    // Writing to a string can't fail.
    let _ = writeln!(
        text,
        "{} records, {} the same",
        count(&diff["records"]),
        count(&diff["kinds"]["same"])
    );
    for (title, key) in [
        ("columns only in the new one", "added_columns"),
        ("columns only in the old one", "removed_columns"),
        ("columns of another type", "retyped_columns"),
    ] {
        let names: Vec<_> = diff[key]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        if !names.is_empty() {
            let _ = writeln!(text, "{title}: {}", names.join(", "));
        }
    }
    for (title, key) in [
        ("records by kind", "kinds"),
        ("values by column", "columns"),
        ("reasons", "reasons"),
    ] {
        let counts = diff[key].as_object().into_iter().flatten();
        let mut counts: Vec<_> = counts
            .filter(|(name, _)| name.as_str() != "same")
            .map(|(name, value)| (count(value), name))
            .collect();
        counts.sort_by(|a, b| b.cmp(a));
        if !counts.is_empty() {
            let _ = writeln!(text, "{title}");
        }
        for (value, name) in counts {
            let _ = writeln!(text, "{value:>10}  {name}");
        }
    }
    let examples = diff["examples"].as_array().map_or(&[][..], Vec::as_slice);
    if !examples.is_empty() {
        let _ = writeln!(text, "examples (redacted)");
    }
    for example in examples.iter().take(SHOWN) {
        let of = example["column"]
            .as_str()
            .or(example["kind"].as_str())
            .unwrap_or("?");
        let _ = writeln!(
            text,
            "            {of}: {} → {}",
            example["before"], example["after"]
        );
    }
    text.trim_end().to_owned()
}
