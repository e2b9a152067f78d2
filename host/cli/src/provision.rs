//! `cdr provision`: topics, database and table.

use crate::args::{NormalizerArgs, StoreArgs};
use cdr_kafka::topics::{Action, TopicSpec};
use cdr_kafka::{KafkaArgs, KafkaConfig};
use cdr_plugin_host::Normalizer;
use cdr_store::{Evolution, Store, TableLayout};
use cdr_telemetry::logs;
use cdr_worker::SchemaEvolution;
use std::time::Duration;

/// Settings of `cdr provision`.
#[derive(Debug, clap::Args)]
pub struct ProvisionCommand {
    #[command(flatten)]
    kafka: KafkaArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    normalizer: NormalizerArgs,
    /// What becomes of a table that lacks columns of the normalizer
    #[arg(long, env = "SCHEMA_EVOLUTION", default_value = "add")]
    schema_evolution: SchemaEvolution,
    /// Time for Kafka to answer and create, in seconds
    #[arg(long, env = "PROVISION_TIMEOUT_SECONDS", default_value_t = 30,
          value_parser = clap::value_parser!(u64).range(1..=600))]
    provision_timeout_seconds: u64,
}

impl ProvisionCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        logs::init("provision");
        let normalizer = self.normalizer.load().await?;
        let done = provision(
            &self.kafka.config("cdr-provision"),
            &self.kafka,
            &self.store.store()?,
            &normalizer,
            self.schema_evolution.into(),
            Duration::from_secs(self.provision_timeout_seconds),
        )
        .await?;
        for line in done {
            println!("{line}");
        }
        Ok(())
    }
}

/// Makes what is missing and checks what exists; a line for each thing. The
/// table is looked at before topics are made, so that nothing is made beside a
/// table that does not fit.
pub async fn provision(
    kafka: &KafkaConfig,
    topics: &KafkaArgs,
    store: &Store,
    normalizer: &Normalizer,
    evolution: Evolution,
    budget: Duration,
) -> anyhow::Result<Vec<String>> {
    let specs = cdr_worker::convert::column_specs(normalizer.manifest());
    let table = store.table_spec(TableLayout::cdr(), &specs)?;
    cdr_store::provision::plan(store, &table, evolution).await?;

    let specs = [
        TopicSpec::raw(&topics.kafka_raw_topic),
        TopicSpec::dead_letters(&topics.kafka_dlq_topic),
    ];
    let mut lines = Vec::new();
    for topic in cdr_kafka::topics::provision(kafka, &specs, budget).await? {
        let action = match topic.action {
            Action::Created => "created",
            Action::Verified => "fits",
        };
        let mut line = format!("topic {}: {action}", topic.topic);
        if !topic.unreported.is_empty() {
            line += &format!(
                " (the broker does not report {}, so it could not be checked)",
                topic.unreported.join(", ")
            );
        }
        lines.push(line);
    }
    let made = cdr_store::provision::apply(store, &table, evolution).await?;
    let action = match (made.statements.is_empty(), made.added.is_empty()) {
        (true, _) => "fits".to_owned(),
        (false, true) => "created".to_owned(),
        (false, false) => format!("has {} now", made.added.join(", ")),
    };
    lines.push(format!("table {}: {action}", store.table_name()));
    Ok(lines)
}
