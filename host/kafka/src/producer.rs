//! Publishing: a record is acknowledged by all in-sync replicas, or its future
//! says why not.
//!
//! [`Publisher::publish`] enqueues at once and never blocks; the future it
//! returns need not be polled for the record to be sent, and dropping it does
//! not take the record back. A broker that is away makes records time out after
//! the delivery timeout; the client reconnects by itself, and nothing here
//! remembers the outage.
//!
//! Partitions are chosen by `murmur2_random`, the rule of the Java clients, so
//! that a key lands in the same partition whoever writes it: this host, a replay,
//! Kafka Connect or the console producer. Records without a key are spread.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer};

use crate::config::{ConfigError, KafkaConfig};
use crate::reachability::{PlainContext, Reach, Reachability, is_unreachable};

/// Settings of a [`Publisher`].
#[derive(Debug, Clone)]
pub struct PublisherConfig {
    /// How long a record may wait for its acknowledgement.
    pub delivery_timeout: Duration,
    /// How long the first record of a request waits for company.
    pub linger: Duration,
    /// Records queued or in flight; one more is [`PublishError::QueueFull`].
    pub max_queued_records: u32,
    /// Bytes queued or in flight.
    pub max_queued_bytes: u64,
    /// Bytes of one record above which the client refuses it without asking the
    /// broker (`message.max.bytes`).
    pub max_message_bytes: u32,
    /// Bytes at which a request to a partition is full (`batch.size`). A broker
    /// judges a request by its size, not the records in it: where they may be
    /// near the topic's limit, it must stay small.
    pub batch_bytes: u32,
}

impl Default for PublisherConfig {
    fn default() -> Self {
        PublisherConfig {
            delivery_timeout: Duration::from_secs(10),
            linger: Duration::from_millis(5),
            max_queued_records: 100_000,
            max_queued_bytes: 256 << 20,
            max_message_bytes: 1_000_000,
            batch_bytes: 1_000_000,
        }
    }
}

/// Where an acknowledged record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// Its partition.
    pub partition: i32,
    /// Its offset there.
    pub offset: i64,
}

/// Why a record was not acknowledged.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PublishError {
    /// Too much is queued already; this record was not sent.
    #[error(
        "the queue to Kafka is full, the record for topic {topic} was not sent; try again later"
    )]
    QueueFull {
        /// The topic.
        topic: String,
    },
    /// No acknowledgement came in time. The record may be in the topic or not:
    /// send the identical one again.
    #[error(
        "Kafka at {brokers} did not acknowledge a record for topic {topic} within {waited:.1?} ({cause}); \
         it may or may not be there"
    )]
    Unacknowledged {
        /// The topic.
        topic: String,
        /// The bootstrap addresses.
        brokers: String,
        /// Time since it was enqueued.
        waited: Duration,
        /// librdkafka's word for it.
        cause: RDKafkaErrorCode,
    },
    /// The record is larger than the client or the topic takes.
    #[error("a record of {bytes} bytes is larger than topic {topic} takes (max.message.bytes)")]
    TooLarge {
        /// The topic.
        topic: String,
        /// Length of key and payload.
        bytes: usize,
    },
    /// The topic does not exist.
    #[error("topic {topic} does not exist at {brokers}; create it with `cdr provision`")]
    TopicMissing {
        /// The topic.
        topic: String,
        /// The bootstrap addresses.
        brokers: String,
    },
    /// The broker or the client refused the record; it is not in the topic.
    #[error("Kafka at {brokers} refused a record for topic {topic}: {cause}")]
    Refused {
        /// The topic.
        topic: String,
        /// The bootstrap addresses.
        brokers: String,
        /// librdkafka's word for it.
        cause: RDKafkaErrorCode,
    },
}

impl PublishError {
    /// A word for metrics and logs.
    pub fn tag(&self) -> &'static str {
        match self {
            PublishError::QueueFull { .. } => "queue_full",
            PublishError::Unacknowledged { .. } => "unacknowledged",
            PublishError::TooLarge { .. } => "too_large",
            PublishError::TopicMissing { .. } => "topic_missing",
            PublishError::Refused { .. } => "refused",
        }
    }

    /// Whether the record may be in the topic all the same.
    pub fn is_ambiguous(&self) -> bool {
        matches!(self, PublishError::Unacknowledged { .. })
    }
}

/// Records that were still unacknowledged when the budget of a flush ran out.
#[derive(Debug, thiserror::Error)]
#[error("{unacknowledged} records were not acknowledged by Kafka at {brokers} within {budget:.1?}")]
pub struct FlushError {
    /// How many.
    pub unacknowledged: u64,
    /// The bootstrap addresses.
    pub brokers: String,
    /// The budget.
    pub budget: Duration,
}

type Client = FutureProducer<PlainContext>;

/// A producer with acknowledged, idempotent delivery. Clones share the client.
#[derive(Clone)]
pub struct Publisher {
    inner: Arc<Inner>,
}

struct Inner {
    client: RwLock<Client>,
    /// When the client was last replaced; see [`Inner::renew`].
    renewed: Mutex<Option<Instant>>,
    kafka: KafkaConfig,
    config: PublisherConfig,
    reach: Arc<Reachability>,
}

impl Publisher {
    /// Makes the client. No connection is waited for: a broker that is away is
    /// logged, and found when it comes.
    pub fn new(kafka: &KafkaConfig, config: PublisherConfig) -> Result<Self, ConfigError> {
        let reach = Arc::new(Reachability::new(kafka.bootstrap.clone(), "producer"));
        let client = create(kafka, &config, &reach)?;
        Ok(Publisher {
            inner: Arc::new(Inner {
                client: RwLock::new(client),
                renewed: Mutex::new(None),
                kafka: kafka.clone(),
                config,
                reach,
            }),
        })
    }

    /// Enqueues a record and returns a future of its acknowledgement, which is
    /// resolved within the delivery timeout.
    pub fn publish(
        &self,
        topic: &str,
        key: Option<&[u8]>,
        payload: Option<&[u8]>,
        headers: &[(&str, String)],
    ) -> impl Future<Output = Result<Delivery, PublishError>> + Send + 'static + use<> {
        let mut record = FutureRecord::<[u8], [u8]>::to(topic);
        record.key = key;
        record.payload = payload;
        if !headers.is_empty() {
            record.headers = Some(headers.iter().fold(
                OwnedHeaders::new_with_capacity(headers.len()),
                |all, (name, value)| {
                    all.insert(Header {
                        key: name,
                        value: Some(value),
                    })
                },
            ));
        }
        let bytes = key.map_or(0, <[u8]>::len) + payload.map_or(0, <[u8]>::len);
        let started = Instant::now();
        let enqueued = self.inner.client().send_result(record).map_err(|(e, _)| e);
        let topic = topic.to_owned();
        let inner = self.inner.clone();
        async move {
            // Three layers: the enqueue, the client (gone?), and the delivery.
            let error = match enqueued {
                Ok(delivery) => match delivery.await {
                    Ok(Ok(done)) => {
                        inner.reach.up();
                        return Ok(Delivery {
                            partition: done.partition,
                            offset: done.offset,
                        });
                    }
                    Ok(Err((error, _record))) => error,
                    Err(_client_gone) => KafkaError::Canceled,
                },
                Err(error) => error,
            };
            Err(inner.classify(&error, topic, bytes, started.elapsed()))
        }
    }

    /// Waits until everything enqueued has been acknowledged or has failed.
    pub async fn flush(&self, budget: Duration) -> Result<(), FlushError> {
        let client = self.inner.client();
        let flushing = client.clone();
        // librdkafka's flush blocks its thread.
        let flushed = tokio::task::spawn_blocking(move || flushing.flush(budget)).await;
        match flushed {
            Ok(Ok(())) => Ok(()),
            _ => Err(FlushError {
                unacknowledged: u64::try_from(client.in_flight_count()).unwrap_or(0),
                brokers: self.inner.kafka.bootstrap.clone(),
                budget,
            }),
        }
    }

    /// Records queued or in flight; for a moment after an error of the client, a
    /// few more (librdkafka counts its news in the same queue).
    pub fn in_flight(&self) -> u64 {
        u64::try_from(self.inner.client().in_flight_count()).unwrap_or(0)
    }

    /// Whether the last attempt reached a broker; to be shown, not to be relied on.
    pub fn reach(&self) -> Reach {
        self.inner.reach.reach()
    }
}

fn create(
    kafka: &KafkaConfig,
    config: &PublisherConfig,
    reach: &Arc<Reachability>,
) -> Result<Client, ConfigError> {
    kafka
        .client()?
        .set("acks", "all")
        .set("enable.idempotence", "true")
        .set("compression.type", "lz4")
        .set("partitioner", "murmur2_random")
        .set(
            "message.timeout.ms",
            config.delivery_timeout.as_millis().max(1).to_string(),
        )
        .set("linger.ms", config.linger.as_millis().to_string())
        .set(
            "queue.buffering.max.messages",
            config.max_queued_records.max(1).to_string(),
        )
        .set(
            "queue.buffering.max.kbytes",
            (config.max_queued_bytes / 1024)
                .clamp(1, 2_147_483_647)
                .to_string(),
        )
        .set(
            "message.max.bytes",
            config
                .max_message_bytes
                .clamp(1000, 1_000_000_000)
                .to_string(),
        )
        .set("batch.size", config.batch_bytes.max(1).to_string())
        // A missing topic is named before the delivery timeout hides it.
        .set("topic.metadata.propagation.max.ms", "5000")
        .create_with_context(PlainContext(reach.clone()))
        .map_err(|error| kafka.refused(&error))
}

impl Inner {
    fn client(&self) -> Client {
        self.client
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn classify(
        &self,
        error: &KafkaError,
        topic: String,
        bytes: usize,
        waited: Duration,
    ) -> PublishError {
        let brokers = self.kafka.bootstrap.clone();
        let cause = error
            .rdkafka_error_code()
            .unwrap_or(RDKafkaErrorCode::Unknown);
        match cause {
            RDKafkaErrorCode::QueueFull => PublishError::QueueFull { topic },
            RDKafkaErrorCode::MessageSizeTooLarge
            | RDKafkaErrorCode::MessageBatchTooLarge
            | RDKafkaErrorCode::InvalidMessageSize => PublishError::TooLarge { topic, bytes },
            RDKafkaErrorCode::UnknownTopic
            | RDKafkaErrorCode::UnknownTopicOrPartition
            | RDKafkaErrorCode::UnknownPartition => PublishError::TopicMissing { topic, brokers },
            RDKafkaErrorCode::TopicAuthorizationFailed
            | RDKafkaErrorCode::ClusterAuthorizationFailed
            | RDKafkaErrorCode::InvalidTopic
            | RDKafkaErrorCode::InvalidRecord
            | RDKafkaErrorCode::InvalidTimestamp
            | RDKafkaErrorCode::InvalidArgument
            | RDKafkaErrorCode::UnsupportedCompressionType
            | RDKafkaErrorCode::PolicyViolation => PublishError::Refused {
                topic,
                brokers,
                cause,
            },
            // Anything else leaves open whether the record was written.
            _ => {
                if cause == RDKafkaErrorCode::Fatal || fatal_for_idempotence(cause) {
                    self.renew(cause);
                }
                if cause == RDKafkaErrorCode::MessageTimedOut || is_unreachable(cause) {
                    self.reach.down(&cause.to_string());
                }
                PublishError::Unacknowledged {
                    topic,
                    brokers,
                    waited,
                    cause,
                }
            }
        }
    }

    /// An idempotent producer that met a fatal error refuses everything from
    /// then on; only a new client, with a new producer id, helps.
    fn renew(&self, cause: RDKafkaErrorCode) {
        let mut renewed = self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        if renewed.is_some_and(|at| at.elapsed() < Duration::from_secs(1)) {
            return;
        }
        if self.client().client().fatal_error().is_none() {
            return;
        }
        match create(&self.kafka, &self.config, &self.reach) {
            Ok(client) => {
                *renewed = Some(Instant::now());
                let old = std::mem::replace(
                    &mut *self.client.write().unwrap_or_else(PoisonError::into_inner),
                    client,
                );
                tracing::warn!(
                    event = "kafka_producer_renewed",
                    brokers = self.kafka.bootstrap,
                    "the Kafka producer met a fatal error ({cause}) and was replaced"
                );
                // The last clone joins librdkafka's threads, which blocks.
                std::thread::spawn(move || drop(old));
            }
            Err(error) => tracing::error!(event = "kafka_producer_not_renewed", "{error}"),
        }
    }
}

/// Errors after which librdkafka may have declared an idempotent producer dead.
fn fatal_for_idempotence(cause: RDKafkaErrorCode) -> bool {
    matches!(
        cause,
        RDKafkaErrorCode::OutOfOrderSequenceNumber
            | RDKafkaErrorCode::UnknownProducerId
            | RDKafkaErrorCode::InvalidProducerEpoch
            | RDKafkaErrorCode::InvalidProducerIdMapping
            | RDKafkaErrorCode::PurgeQueue
            | RDKafkaErrorCode::PurgeInflight
    )
}
