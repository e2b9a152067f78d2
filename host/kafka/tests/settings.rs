//! Flags, environment and topic settings: pure, no broker.

use cdr_kafka::topics::{FoundPartition, FoundTopic, TopicSpec, compare};
use cdr_kafka::{KafkaArgs, PublisherConfig};
use clap::{CommandFactory, Parser};

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    kafka: KafkaArgs,
}

#[test]
fn every_setting_has_a_name_in_the_environment_and_secrets_stay_hidden() {
    let help = Command::command().render_long_help().to_string();
    for name in [
        "KAFKA_BOOTSTRAP_SERVERS",
        "KAFKA_RAW_TOPIC",
        "KAFKA_DLQ_TOPIC",
        "KAFKA_CONSUMER_GROUP",
        "KAFKA_SECURITY_PROTOCOL",
        "KAFKA_SASL_MECHANISM",
        "KAFKA_SASL_USERNAME",
        "KAFKA_SASL_PASSWORD",
        "KAFKA_SSL_CA_LOCATION",
        "KAFKA_DELIVERY_TIMEOUT_SECONDS",
    ] {
        assert!(help.contains(name), "{name}");
    }
    for default in ["cdr.raw]", "cdr.raw.dlq", "cdr-worker", "default: 10"] {
        assert!(help.contains(default), "{default}");
    }
}

#[test]
fn flags_become_a_connection() {
    let command = Command::parse_from([
        "cdr",
        "--kafka-bootstrap-servers=a:1,b:2",
        "--kafka-security-protocol=SASL_SSL",
        "--kafka-sasl-username=u",
        "--kafka-sasl-password=hunter2",
        "--kafka-properties=socket.timeout.ms=5000;client.rack=r1",
    ]);
    let kafka = command.kafka.config("cdr-worker");
    assert_eq!(kafka.bootstrap, "a:1,b:2");
    assert_eq!(kafka.extra.len(), 2);
    kafka.check().expect("it can work");
    assert!(!format!("{:?}", command.kafka).contains("hunter2"));
}

#[test]
fn half_credentials_and_contradictions_are_refused() {
    let half = Command::parse_from(["cdr", "--kafka-sasl-username=u"]);
    let error = half.kafka.config("cdr").check().expect_err("no password");
    assert!(error.to_string().contains("KAFKA_SASL_PASSWORD"));
    for (given, said) in [
        ("client.rack=r1;hunter2", "entry 2 of 2"),
        ("session.timeout.ms=1000", "KAFKA_SESSION_TIMEOUT_SECONDS"),
        ("sasl.password=x;hunter2", "KAFKA_SASL_PASSWORD"),
        ("acks=1", "acks"),
    ] {
        let command = Command::parse_from(["cdr", &format!("--kafka-properties={given}")]);
        let error = command.kafka.config("cdr").check().expect_err(given);
        let text = format!("{error} {error:?}");
        assert!(text.contains(said), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
    let unknown = Command::parse_from(["cdr", "--kafka-properties=no.such.property=1"]);
    let refused =
        cdr_kafka::Publisher::new(&unknown.kafka.config("cdr"), PublisherConfig::default());
    assert!(
        refused
            .err()
            .is_some_and(|e| e.to_string().contains("no.such.property"))
    );
}

#[test]
fn what_a_broker_does_not_report_is_no_difference() {
    let spec = TopicSpec::raw("cdr.raw");
    let found = FoundTopic {
        name: "cdr.raw".to_owned(),
        partitions: (0..3)
            .map(|id| FoundPartition {
                id,
                leader: 1,
                replicas: 1,
            })
            .collect(),
    };
    let (differences, unreported) = compare(&spec, &found, &[]);
    assert!(differences.is_empty());
    assert_eq!(
        unreported,
        ["cleanup.policy", "retention.ms", "compression.type"]
    );

    // More of either is the operator's to have.
    let larger = FoundTopic {
        name: "cdr.raw".to_owned(),
        partitions: (0..12)
            .map(|id| FoundPartition {
                id,
                leader: 1,
                replicas: 3,
            })
            .collect(),
    };
    assert!(compare(&spec, &larger, &[]).0.is_empty());

    let configs = [("cleanup.policy".to_owned(), "compact".to_owned())];
    let (differences, unreported) = compare(&spec, &found, &configs);
    assert_eq!(unreported.len(), 2);
    assert_eq!(
        differences
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        ["cdr.raw: cleanup.policy must be delete, found compact"]
    );
}
