//! Provisioning: topics are created where they are missing, and compared with
//! what they must be where they exist. Nothing existing is ever changed or
//! deleted; a difference is an error that lists expected and found.

use std::fmt;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::MetadataTopic;

use crate::admin::{AdminError, admin_client};
use crate::config::KafkaConfig;
use crate::reachability::PlainContext;

/// Name of the topic of raw records, unless set.
pub const RAW_TOPIC: &str = "cdr.raw";
/// Name of the topic of dead letters, unless set.
pub const DLQ_TOPIC: &str = "cdr.raw.dlq";

/// What a topic must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSpec {
    /// Its name.
    pub name: String,
    /// Number of partitions.
    pub partitions: i32,
    /// Replicas of every partition.
    pub replication: i32,
    /// Topic settings with their values.
    pub configs: Vec<(&'static str, String)>,
}

impl TopicSpec {
    /// The topic of raw records: 3 partitions, one day, LZ4.
    pub fn raw(name: impl Into<String>) -> Self {
        TopicSpec {
            name: name.into(),
            partitions: 3,
            replication: 1,
            configs: vec![
                // Always explicit: a broker's default may be to compact.
                ("cleanup.policy", "delete".to_owned()),
                ("retention.ms", "86400000".to_owned()),
                ("compression.type", "lz4".to_owned()),
            ],
        }
    }

    /// The topic of dead letters: 1 partition, seven days.
    pub fn dead_letters(name: impl Into<String>) -> Self {
        TopicSpec {
            name: name.into(),
            partitions: 1,
            replication: 1,
            configs: vec![
                ("cleanup.policy", "delete".to_owned()),
                ("retention.ms", "604800000".to_owned()),
            ],
        }
    }
}

/// What provisioning did with a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It was missing and now exists.
    Created,
    /// It exists and fits.
    Verified,
}

/// One provisioned topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provisioned {
    /// Its name.
    pub topic: String,
    /// What was done.
    pub action: Action,
    /// Settings that the broker does not report, so that they could not be checked.
    pub unreported: Vec<String>,
}

/// One thing about an existing topic that does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The topic.
    pub topic: String,
    /// `partitions`, `replication` or the name of a topic setting.
    pub setting: String,
    /// What it must be.
    pub expected: String,
    /// What it is.
    pub found: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} must be {}, found {}",
            self.topic, self.setting, self.expected, self.found
        )
    }
}

/// Why topics could not be provisioned.
#[derive(Debug, thiserror::Error)]
pub enum ProvisionError {
    /// Existing topics do not fit; nothing was created or changed.
    #[error(
        "existing topics at {brokers} do not fit, and nothing was changed:\n{}\nAlter them by hand, or give other names in KAFKA_RAW_TOPIC and KAFKA_DLQ_TOPIC",
        list(differences)
    )]
    Differs {
        /// The bootstrap addresses.
        brokers: String,
        /// Every difference found.
        differences: Vec<Difference>,
    },
    /// The broker refused to create a topic.
    #[error("Kafka at {brokers} refused to create topic {topic}: {cause}")]
    NotCreated {
        /// The bootstrap addresses.
        brokers: String,
        /// The topic.
        topic: String,
        /// librdkafka's word for it.
        cause: RDKafkaErrorCode,
    },
    /// A created topic did not appear in time.
    #[error("topic {topic} was created at {brokers} but has no leaders after {budget:.1?}")]
    NotReady {
        /// The bootstrap addresses.
        brokers: String,
        /// The topic.
        topic: String,
        /// The budget.
        budget: Duration,
    },
    /// Kafka could not be asked.
    #[error(transparent)]
    Admin(#[from] AdminError),
}

fn list(differences: &[Difference]) -> String {
    let lines: Vec<String> = differences.iter().map(|d| format!("  {d}")).collect();
    lines.join("\n")
}

/// Creates what is missing and checks what exists, in `specs` order. Existing
/// topics are all checked before anything is created.
pub async fn provision(
    kafka: &KafkaConfig,
    specs: &[TopicSpec],
    budget: Duration,
) -> Result<Vec<Provisioned>, ProvisionError> {
    let deadline = Instant::now() + budget;
    let admin = admin_client(kafka)?;
    let existing = crate::admin::topics(kafka, budget).await?;
    let options = AdminOptions::new()
        .request_timeout(Some(budget))
        .operation_timeout(Some(budget));

    let mut done = Vec::with_capacity(specs.len());
    let mut differences = Vec::new();
    for spec in specs {
        match existing.iter().find(|t| t.name == spec.name) {
            None => done.push(None),
            Some(found) => {
                let configs = configs(kafka, &admin, &options, &spec.name).await?;
                let (differs, unreported) = compare(spec, found, &configs);
                differences.extend(differs);
                done.push(Some(Provisioned {
                    topic: spec.name.clone(),
                    action: Action::Verified,
                    unreported,
                }));
            }
        }
    }
    if !differences.is_empty() {
        return Err(ProvisionError::Differs {
            brokers: kafka.bootstrap.clone(),
            differences,
        });
    }

    let mut all = Vec::with_capacity(specs.len());
    for (spec, verified) in specs.iter().zip(done) {
        let provisioned = match verified {
            Some(verified) => verified,
            None => {
                create(kafka, &admin, &options, spec).await?;
                wait_for_leaders(kafka, spec, deadline, budget).await?;
                Provisioned {
                    topic: spec.name.clone(),
                    action: Action::Created,
                    unreported: Vec::new(),
                }
            }
        };
        log(spec, &provisioned);
        all.push(provisioned);
    }
    Ok(all)
}

fn log(spec: &TopicSpec, provisioned: &Provisioned) {
    let topic = provisioned.topic.as_str();
    let done = match provisioned.action {
        Action::Created => "created",
        Action::Verified => "exists and fits",
    };
    tracing::info!(
        event = "topic_provisioned",
        topic,
        partitions = spec.partitions,
        "topic {topic} {done}"
    );
    if !provisioned.unreported.is_empty() {
        let unreported = provisioned.unreported.join(", ");
        tracing::warn!(
            event = "topic_settings_unreported",
            topic,
            unreported,
            "the broker does not report {unreported} of topic {topic}; they could not be checked"
        );
    }
}

async fn create(
    kafka: &KafkaConfig,
    admin: &AdminClient<PlainContext>,
    options: &AdminOptions,
    spec: &TopicSpec,
) -> Result<(), ProvisionError> {
    let mut topic = NewTopic::new(
        &spec.name,
        spec.partitions,
        TopicReplication::Fixed(spec.replication),
    );
    for (name, value) in &spec.configs {
        topic = topic.set(name, value);
    }
    let results = admin
        .create_topics([&topic], options)
        .await
        .map_err(|error| AdminError::new(kafka, "create topics", &error))?;
    match results.into_iter().next() {
        // Someone else provisions at the same time.
        Some(Err((_, RDKafkaErrorCode::TopicAlreadyExists))) | Some(Ok(_)) => Ok(()),
        Some(Err((topic, cause))) => Err(ProvisionError::NotCreated {
            brokers: kafka.bootstrap.clone(),
            topic,
            cause,
        }),
        None => Err(ProvisionError::NotCreated {
            brokers: kafka.bootstrap.clone(),
            topic: spec.name.clone(),
            cause: RDKafkaErrorCode::Unknown,
        }),
    }
}

async fn wait_for_leaders(
    kafka: &KafkaConfig,
    spec: &TopicSpec,
    deadline: Instant,
    budget: Duration,
) -> Result<(), ProvisionError> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let topics = crate::admin::topics(kafka, left.max(Duration::from_secs(1))).await?;
        let led = topics
            .iter()
            .find(|t| t.name == spec.name)
            .map_or(0, |t| t.partitions.iter().filter(|p| p.leader >= 0).count());
        if i32::try_from(led) == Ok(spec.partitions) {
            return Ok(());
        }
        if left.is_zero() {
            return Err(ProvisionError::NotReady {
                brokers: kafka.bootstrap.clone(),
                topic: spec.name.clone(),
                budget,
            });
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The settings of a topic as reported; empty when nothing is.
async fn configs(
    kafka: &KafkaConfig,
    admin: &AdminClient<PlainContext>,
    options: &AdminOptions,
    topic: &str,
) -> Result<Vec<(String, String)>, AdminError> {
    let described = admin
        .describe_configs([&ResourceSpecifier::Topic(topic)], options)
        .await;
    match described.map(|all| all.into_iter().next()) {
        Ok(Some(Ok(resource))) => Ok(resource
            .entries
            .into_iter()
            .filter_map(|entry| Some((entry.name, entry.value?)))
            .collect()),
        Ok(None) => Ok(Vec::new()),
        Ok(Some(Err(code))) => Err(AdminError::new(
            kafka,
            "describe topic settings",
            &KafkaError::AdminOp(code),
        )),
        Err(error) => Err(AdminError::new(kafka, "describe topic settings", &error)),
    }
}

/// What a found topic looks like, without librdkafka's types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundTopic {
    /// Its name.
    pub name: String,
    /// Its partitions.
    pub partitions: Vec<FoundPartition>,
}

/// A partition of a found topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundPartition {
    /// Its number.
    pub id: i32,
    /// Id of its leader; negative when it has none.
    pub leader: i32,
    /// How many replicas it has.
    pub replicas: usize,
}

impl From<&MetadataTopic> for FoundTopic {
    fn from(topic: &MetadataTopic) -> Self {
        FoundTopic {
            name: topic.name().to_owned(),
            partitions: topic
                .partitions()
                .iter()
                .map(|p| FoundPartition {
                    id: p.id(),
                    leader: p.leader(),
                    replicas: p.replicas().len(),
                })
                .collect(),
        }
    }
}

/// Differences between a topic and what it must be, and the settings that the
/// broker does not report.
pub fn compare(
    spec: &TopicSpec,
    found: &FoundTopic,
    configs: &[(String, String)],
) -> (Vec<Difference>, Vec<String>) {
    let mut differences = Vec::new();
    let mut unreported = Vec::new();
    let mut differ = |setting: &str, expected: String, found: String| {
        differences.push(Difference {
            topic: spec.name.clone(),
            setting: setting.to_owned(),
            expected,
            found,
        });
    };
    // More of either is fine: an operator adds partitions for more workers, and
    // replicas for brokers that die.
    let partitions = i32::try_from(found.partitions.len()).unwrap_or(i32::MAX);
    if partitions < spec.partitions {
        differ(
            "partitions",
            format!("at least {}", spec.partitions),
            found.partitions.len().to_string(),
        );
    }
    let too_few = found
        .partitions
        .iter()
        .find(|p| i32::try_from(p.replicas).is_ok_and(|replicas| replicas < spec.replication));
    if let Some(partition) = too_few {
        differ(
            "replication",
            format!("at least {}", spec.replication),
            format!("{} (partition {})", partition.replicas, partition.id),
        );
    }
    for (name, expected) in &spec.configs {
        match configs.iter().find(|(found, _)| found == name) {
            None => unreported.push((*name).to_owned()),
            Some((_, value)) if value == expected => {}
            Some((_, value)) => differ(name, expected.clone(), value.clone()),
        }
    }
    (differences, unreported)
}
