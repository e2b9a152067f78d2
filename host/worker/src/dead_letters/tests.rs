//! On librdkafka's mock broker: a queue that is full, and a topic that
//! refuses, can't be had from a real one at will.

use super::*;
use cdr_kafka::consumer::{ConsumerConfig, Started};
use cdr_kafka::dead_letter::{Envelope, SpooledDeadLetter};
use cdr_kafka::headers;
use cdr_kafka::{KafkaConfig, PublisherConfig};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

const PATIENCE: Duration = Duration::from_secs(60);
const RAW: &str = "cdr.raw";
const DLQ: &str = "cdr.raw.dlq";
/// Of every record here.
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

struct Bed {
    mock: MockCluster<'static, DefaultProducerContext>,
    letters: DeadLetters,
    consumer: Arc<RawConsumer>,
    records: Vec<Rejected>,
    spool: tempfile::TempDir,
}

fn judge() -> Provenance {
    Provenance {
        name: "cdr-normalizer".to_owned(),
        version: "1.0.0".to_owned(),
        digest: "ab".repeat(32),
        file_digest: String::new(),
        settings_digest: String::new(),
    }
}

/// So many records, consumed and judged, and a producer with room for so
/// many dead letters.
async fn bed(count: usize, room: u32) -> Bed {
    let mock = MockCluster::new(1).unwrap();
    mock.create_topic(RAW, 1, 1).unwrap();
    mock.create_topic(DLQ, 1, 1).unwrap();
    let kafka = KafkaConfig::plaintext(mock.bootstrap_servers());
    let raw = Publisher::new(&kafka, PublisherConfig::default()).unwrap();
    for delivery in (0..count)
        .map(|i| {
            let trace = [(headers::TRACEPARENT, TRACE.to_owned())];
            raw.publish(RAW, None, Some(format!("{{bad {i}").as_bytes()), &trace)
        })
        .collect::<Vec<_>>()
    {
        delivery.await.unwrap();
    }
    let Started {
        consumer,
        records: mut taken,
        ..
    } = RawConsumer::start(&kafka, ConsumerConfig::new(RAW, "g")).unwrap();
    let consumer = Arc::new(consumer);
    let mut records = Vec::new();
    while records.len() < count {
        let record = tokio::time::timeout(PATIENCE, taken.recv()).await;
        let verdict = Verdict {
            reason: FailureReason::MalformedJson,
            field: None,
            detail: "not JSON".to_owned(),
        };
        records.push(Rejected::new(record.unwrap().unwrap(), verdict));
    }
    let spool = tempfile::tempdir().unwrap();
    let delivery_timeout = Duration::from_secs(5);
    let publisher = PublisherConfig {
        delivery_timeout,
        max_queued_records: room,
        ..PublisherConfig::default()
    };
    let letters = DeadLetters::from(Inner {
        publisher: Publisher::new(&kafka, publisher).unwrap(),
        consumer: Arc::clone(&consumer),
        stats: Arc::new(Stats::new(&prometheus::Registry::new()).unwrap()),
        source_topic: RAW.to_owned(),
        topic: DLQ.to_owned(),
        instance: "worker-1".to_owned(),
        delivery_timeout,
        spool: Spool::open(spool.path()).unwrap(),
    });
    Bed {
        spool,
        mock,
        letters,
        consumer,
        records,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn more_dead_letters_than_the_queue_holds_wait_for_room() {
    let bed = bed(500, 3).await;
    bed.letters.send(bed.records, &judge()).await.unwrap();
    let totals = bed.consumer.status().totals;
    assert_eq!((totals.dead_lettered, totals.in_flight), (500, 0));
    let kafka = KafkaConfig::plaintext(bed.mock.bootstrap_servers());
    let topic = cdr_kafka::admin::read_topic(&kafka, DLQ, PATIENCE).await;
    assert_eq!(topic.unwrap().len(), 500);
}

/// arroyo dlq, PostHog#102639: both layers of a delivery are looked at, and
/// what was not acknowledged is not settled.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_that_is_refused_settles_nothing_and_names_its_topic() {
    let bed = bed(1, 100).await;
    bed.mock.request_errors(
        RDKafkaApiKey::Produce,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED; 10],
    );
    let error = bed.letters.send(bed.records, &judge()).await.unwrap_err();
    assert!(matches!(error, WorkerError::DeadLetter { .. }));
    let text = error.to_string();
    assert!(text.contains("was not delivered to cdr.raw.dlq"), "{text}");
    assert!(text.contains("without advancing anything"), "{text}");
    let totals = bed.consumer.status().totals;
    assert_eq!((totals.dead_lettered, totals.in_flight), (0, 1));
}

fn refuse_as_too_large(bed: &Bed, times: usize) {
    let refusal = RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
    bed.mock
        .request_errors(RDKafkaApiKey::Produce, &vec![refusal; times]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_that_is_too_large_is_cut_there_and_whole_in_a_file() {
    let bed = bed(1, 100).await;
    // The whole, and the first of the cut ones.
    refuse_as_too_large(&bed, 2);
    let ids = bed.records[0].log_ids();
    bed.letters.send(bed.records, &judge()).await.unwrap();
    let totals = bed.consumer.status().totals;
    assert_eq!((totals.dead_lettered, totals.in_flight), (1, 0));
    let kafka = KafkaConfig::plaintext(bed.mock.bootstrap_servers());
    let topic = cdr_kafka::admin::read_topic(&kafka, DLQ, PATIENCE)
        .await
        .unwrap();
    assert_eq!(topic.len(), 1);
    let name = topic[0].header(headers::SPOOL_FILE).unwrap();
    let content = std::fs::read(bed.spool.path().join(name)).unwrap();
    let whole = SpooledDeadLetter::decode(&content).unwrap();
    assert_eq!(whole.topic, DLQ);
    let in_file = whole.message.headers.iter();
    let in_file = in_file.filter(|(name, _)| *name == headers::TRACEPARENT);
    let in_file: Vec<_> = in_file.map(|(_, value)| value.as_str()).collect();
    assert_eq!(in_file.len(), 1);
    assert_goes_on(Some(in_file[0]), &ids);
    assert_goes_on(topic[0].header(headers::TRACEPARENT), &ids);
    let envelope = Envelope::decode(&whole.message.payload, None).unwrap();
    assert_eq!(envelope.original_payload.unwrap(), b"{bad 0");
}

/// The span of this worker, in the trace of the record.
fn assert_goes_on(traceparent: Option<&str>, rejected_as: &LogIds) {
    let letter = traceparent.and_then(TraceContext::parse).unwrap();
    let record = TraceContext::parse(TRACE).unwrap();
    assert_eq!(letter.trace_id(), record.trace_id());
    assert_ne!(letter.span_id(), record.span_id());
    assert_eq!(rejected_as.trace_id, Some(letter.trace_id()));
    assert_eq!(
        rejected_as.span_id,
        Some(letter.span_id()),
        "as it is logged"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_goes_on_with_the_trace_of_its_record() {
    let mut bed = bed(2, 100).await;
    bed.records[1].record.trace = None;
    let [traced, other] = &bed.records[..] else {
        panic!("two records");
    };
    let ids = traced.log_ids();
    let untraced = Rejected::new(other.record.clone(), other.verdict.clone());
    assert_eq!(untraced.log_ids(), LogIds::default());
    let rejected = vec![traced.clone(), untraced];
    bed.letters.send(rejected, &judge()).await.unwrap();
    let kafka = KafkaConfig::plaintext(bed.mock.bootstrap_servers());
    let mut topic = cdr_kafka::admin::read_topic(&kafka, DLQ, PATIENCE)
        .await
        .unwrap();
    topic.sort_by_key(|letter| letter.header(headers::SOURCE_OFFSET).unwrap().to_owned());
    assert_eq!(topic.len(), 2);
    assert_goes_on(topic[0].header(headers::TRACEPARENT), &ids);
    assert_eq!(topic[1].header(headers::TRACEPARENT), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_place_for_the_whole_nothing_is_settled() {
    let bed = bed(1, 100).await;
    refuse_as_too_large(&bed, 1);
    std::fs::remove_dir(bed.spool.path()).unwrap();
    let error = bed.letters.send(bed.records, &judge()).await.unwrap_err();
    assert!(matches!(error, WorkerError::Spool { .. }), "{error}");
    assert!(error.to_string().contains("WORKER_SPOOL_DIR"), "{error}");
    let totals = bed.consumer.status().totals;
    assert_eq!((totals.dead_lettered, totals.in_flight), (0, 1));
}
