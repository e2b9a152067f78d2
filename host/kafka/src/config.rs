//! How to reach Kafka: flags and environment, and the librdkafka properties
//! that follow from them.
//!
//! Properties that the delivery promise rests on (`acks`, idempotence, manual
//! commits, the assignment strategy) are set by the client that needs them and
//! can't be overridden by [`KafkaConfig::extra`].

use std::fmt;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

/// librdkafka properties that an operator may not change: changing one would
/// break the delivery promise silently.
const RESERVED: &[&str] = &[
    "acks",
    "allow.auto.create.topics",
    "auto.commit.interval.ms",
    "auto.offset.reset",
    "bootstrap.servers",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.gapless.guarantee",
    "enable.idempotence",
    "enable.partition.eof",
    "group.id",
    "group.protocol",
    "message.timeout.ms",
    "delivery.timeout.ms",
    "metadata.broker.list",
    "partition.assignment.strategy",
    "partitioner",
    "request.required.acks",
    "transactional.id",
];

/// librdkafka properties that a setting of our own decides.
const OWN: &[(&str, &str)] = &[
    ("session.timeout.ms", "KAFKA_SESSION_TIMEOUT_SECONDS"),
    ("max.poll.interval.ms", "KAFKA_MAX_POLL_INTERVAL_SECONDS"),
    ("security.protocol", "KAFKA_SECURITY_PROTOCOL"),
    ("sasl.mechanism", "KAFKA_SASL_MECHANISM"),
    ("sasl.mechanisms", "KAFKA_SASL_MECHANISM"),
    ("sasl.username", "KAFKA_SASL_USERNAME"),
    ("sasl.password", "KAFKA_SASL_PASSWORD"),
    ("ssl.ca.location", "KAFKA_SSL_CA_LOCATION"),
];

/// A configuration that can't work.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No broker address was given.
    #[error(
        "KAFKA_BOOTSTRAP_SERVERS is empty: give one or more broker addresses, as in kafka-1:9092,kafka-2:9092"
    )]
    NoBrokers,
    /// A property that the delivery promise rests on was to be overridden.
    #[error(
        "the Kafka property {name} can't be set: delivery guarantees rest on its value. Remove it from KAFKA_PROPERTIES"
    )]
    Reserved {
        /// The librdkafka property.
        name: String,
    },
    /// A property is not of the form `name=value`.
    #[error(
        "KAFKA_PROPERTIES: entry {position} of {count} is not of the form name=value (entries are separated by \
         semicolons, so no value may hold one); it is not shown, for it may be part of a secret"
    )]
    NotAProperty {
        /// Which, from 1.
        position: usize,
        /// How many there are.
        count: usize,
    },
    /// A property that has a setting of its own, which would win.
    #[error(
        "the Kafka property {name} has a setting of its own: set {instead} instead, and remove it from KAFKA_PROPERTIES"
    )]
    HasItsOwn {
        /// The librdkafka property.
        name: String,
        /// The setting.
        instead: &'static str,
    },
    /// librdkafka refused a property or its value.
    #[error("Kafka client settings for {brokers} were refused: {reason}")]
    Refused {
        /// The bootstrap addresses.
        brokers: String,
        /// librdkafka's words.
        reason: String,
    },
    /// User name without password, or the other way round.
    #[error(
        "KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD must be set together; only {present} is set"
    )]
    HalfCredentials {
        /// The one that is set.
        present: &'static str,
    },
    /// Two settings contradict each other.
    #[error("{0}")]
    Contradiction(String),
}

/// A password: never shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub fn new(value: impl Into<String>) -> Self {
        Secret(value.into())
    }

    /// The secret itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl From<String> for Secret {
    fn from(value: String) -> Self {
        Secret(value)
    }
}

/// How to reach Kafka.
#[derive(Debug, Clone)]
pub struct KafkaConfig {
    /// Bootstrap addresses, `host:port`, separated by commas.
    pub bootstrap: String,
    /// `client.id`, by which brokers name this process in logs and quotas.
    pub client_id: String,
    /// `plaintext`, `ssl`, `sasl_plaintext` or `sasl_ssl`.
    pub security_protocol: String,
    /// `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or what else librdkafka offers.
    pub sasl_mechanism: Option<String>,
    /// User name for SASL.
    pub sasl_username: Option<String>,
    /// Password for SASL.
    pub sasl_password: Option<Secret>,
    /// PEM file with the authorities that may sign broker certificates; none:
    /// those of the system.
    pub ssl_ca_location: Option<String>,
    /// Further librdkafka properties. Those reserved by the delivery promise
    /// are refused by [`KafkaConfig::check`].
    pub extra: Vec<(String, Secret)>,
}

impl KafkaConfig {
    /// Plain text, no authentication: for one machine and for tests.
    pub fn plaintext(bootstrap: impl Into<String>) -> Self {
        KafkaConfig {
            bootstrap: bootstrap.into(),
            client_id: "cdr".to_owned(),
            security_protocol: "plaintext".to_owned(),
            sasl_mechanism: None,
            sasl_username: None,
            sasl_password: None,
            ssl_ca_location: None,
            extra: Vec::new(),
        }
    }

    /// Refuses what can't work, before any connection is tried.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.bootstrap.trim().is_empty() {
            return Err(ConfigError::NoBrokers);
        }
        match (&self.sasl_username, &self.sasl_password) {
            (Some(_), None) => {
                return Err(ConfigError::HalfCredentials {
                    present: "KAFKA_SASL_USERNAME",
                });
            }
            (None, Some(_)) => {
                return Err(ConfigError::HalfCredentials {
                    present: "KAFKA_SASL_PASSWORD",
                });
            }
            _ => {}
        }
        for (at, (name, _)) in self.extra.iter().enumerate() {
            if name.is_empty() {
                return Err(ConfigError::NotAProperty {
                    position: at + 1,
                    count: self.extra.len(),
                });
            }
            if RESERVED.contains(&name.as_str()) {
                return Err(ConfigError::Reserved { name: name.clone() });
            }
            if let Some((_, instead)) = OWN.iter().find(|(own, _)| own == name) {
                return Err(ConfigError::HasItsOwn {
                    name: name.clone(),
                    instead,
                });
            }
        }
        Ok(())
    }

    /// The properties that all clients share.
    pub(crate) fn client(&self) -> Result<ClientConfig, ConfigError> {
        self.check()?;
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", self.bootstrap.trim())
            .set("client.id", &self.client_id)
            .set("security.protocol", self.security_protocol.to_lowercase())
            // Small requests must not wait for the acknowledgement of earlier ones.
            .set("socket.nagle.disable", "true")
            .set("socket.keepalive.enable", "true")
            .set("socket.connection.setup.timeout.ms", "10000")
            // A broker that comes back is noticed within about a second.
            .set("reconnect.backoff.ms", "100")
            .set("reconnect.backoff.max.ms", "1000")
            // Brokers close idle connections; that is no news.
            .set("log.connection.close", "false")
            .set_log_level(RDKafkaLogLevel::Info);
        if let Some(mechanism) = &self.sasl_mechanism {
            config.set("sasl.mechanism", mechanism);
        }
        if let Some(username) = &self.sasl_username {
            config.set("sasl.username", username);
        }
        if let Some(password) = &self.sasl_password {
            config.set("sasl.password", password.expose());
        }
        if let Some(file) = &self.ssl_ca_location {
            config.set("ssl.ca.location", file);
        }
        for (name, value) in &self.extra {
            config.set(name, value.expose());
        }
        Ok(config)
    }

    /// Names a refusal of librdkafka.
    pub(crate) fn refused(&self, error: &rdkafka::error::KafkaError) -> ConfigError {
        use rdkafka::error::KafkaError;
        let reason = match error {
            // The value may be a password, so only the property is named.
            KafkaError::ClientConfig(_, reason, name, _) => format!("{name}: {reason}"),
            other => other.to_string(),
        };
        ConfigError::Refused {
            brokers: self.bootstrap.clone(),
            reason,
        }
    }
}

/// Flags and environment of everything that talks to Kafka; flatten it into a
/// command's arguments.
#[derive(Debug, Clone, clap::Args)]
pub struct KafkaArgs {
    /// Kafka brokers, host:port, separated by commas
    #[arg(
        long,
        env = "KAFKA_BOOTSTRAP_SERVERS",
        default_value = "127.0.0.1:9092"
    )]
    pub kafka_bootstrap_servers: String,
    /// Topic of raw records
    #[arg(long, env = "KAFKA_RAW_TOPIC", default_value = crate::topics::RAW_TOPIC)]
    pub kafka_raw_topic: String,
    /// Topic of dead letters
    #[arg(long, env = "KAFKA_DLQ_TOPIC", default_value = crate::topics::DLQ_TOPIC)]
    pub kafka_dlq_topic: String,
    /// Consumer group of the workers
    #[arg(long, env = "KAFKA_CONSUMER_GROUP", default_value = "cdr-worker")]
    pub kafka_consumer_group: String,
    /// plaintext, ssl, sasl_plaintext or sasl_ssl
    #[arg(
        long,
        env = "KAFKA_SECURITY_PROTOCOL",
        default_value = "plaintext",
        ignore_case = true,
        value_parser = ["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"]
    )]
    pub kafka_security_protocol: String,
    /// SASL mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512
    #[arg(long, env = "KAFKA_SASL_MECHANISM")]
    pub kafka_sasl_mechanism: Option<String>,
    /// SASL user
    #[arg(long, env = "KAFKA_SASL_USERNAME")]
    pub kafka_sasl_username: Option<String>,
    /// SASL password; prefer the environment, flags are seen by other users
    #[arg(long, env = "KAFKA_SASL_PASSWORD", hide_env_values = true, value_parser = secret)]
    pub kafka_sasl_password: Option<Secret>,
    /// PEM file of the authorities that sign broker certificates
    #[arg(long, env = "KAFKA_SSL_CA_LOCATION")]
    pub kafka_ssl_ca_location: Option<String>,
    /// How long a record may wait for its acknowledgement, in seconds
    #[arg(
        long,
        env = "KAFKA_DELIVERY_TIMEOUT_SECONDS",
        default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(1..=900)
    )]
    pub kafka_delivery_timeout_seconds: u64,
    /// Further librdkafka properties, name=value, separated by semicolons
    #[arg(
        long,
        env = "KAFKA_PROPERTIES",
        hide_env_values = true,
        value_parser = secret
    )]
    pub kafka_properties: Option<Secret>,
}

fn secret(text: &str) -> Result<Secret, std::convert::Infallible> {
    Ok(Secret::new(text))
}

/// What is no property gets an empty name, which [`KafkaConfig::check`] refuses: a
/// parser of arguments would print the text, which may be part of a secret.
fn properties(text: &str) -> Vec<(String, Secret)> {
    text.split(';')
        .filter(|entry| !entry.trim().is_empty())
        .map(|entry| {
            let (name, value) = entry.split_once('=').unwrap_or(("", entry));
            (name.trim().to_owned(), Secret::new(value.trim()))
        })
        .collect()
}

impl KafkaArgs {
    /// The connection that the flags describe; `client_id` names the process.
    pub fn config(&self, client_id: &str) -> KafkaConfig {
        let given = |text: &Option<String>| text.clone().filter(|t| !t.is_empty());
        KafkaConfig {
            bootstrap: self.kafka_bootstrap_servers.clone(),
            client_id: client_id.to_owned(),
            security_protocol: self.kafka_security_protocol.clone(),
            sasl_mechanism: given(&self.kafka_sasl_mechanism),
            sasl_username: given(&self.kafka_sasl_username),
            sasl_password: self
                .kafka_sasl_password
                .clone()
                .filter(|p| !p.expose().is_empty()),
            ssl_ca_location: given(&self.kafka_ssl_ca_location),
            extra: self
                .kafka_properties
                .as_ref()
                .map_or_else(Vec::new, |text| properties(text.expose())),
        }
    }

    /// How long a record may wait for its acknowledgement.
    pub fn delivery_timeout(&self) -> Duration {
        Duration::from_secs(self.kafka_delivery_timeout_seconds)
    }
}
