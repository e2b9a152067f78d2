//! Logs with offsets that are no records, on Apache Kafka (`just test-kafka`).

mod common;

use std::time::Duration;

use cdr_kafka::ledger::Outcome;
use common::{PATIENCE, broker, consumer_config, eventually, ids, raw_topic, receive, start};
use rdkafka::ClientConfig;
use rdkafka::producer::{FutureProducer, FutureRecord, Producer};

/// Records of transactions: committed ones, aborted ones, and the markers behind
/// each, of which the last stands at the end of the log.
#[tokio::test(flavor = "multi_thread")]
async fn apache_kafka_a_log_of_transactions_is_committed_to_its_end_and_leaves_no_lag() {
    let Some(brokers) = broker("a_log_of_transactions") else {
        return;
    };
    let topic = raw_topic(&brokers, "gaps", 1).await;
    let producer: FutureProducer = ClientConfig::new()
        .set("bootstrap.servers", &brokers)
        .set("transactional.id", &topic)
        .create()
        .expect("a producer");
    producer.init_transactions(PATIENCE).expect("initialised");
    let mut committed = 0;
    for transaction in 0..6 {
        producer.begin_transaction().expect("begun");
        for record in 0..5 {
            let payload = format!("{transaction}-{record}");
            let sent = FutureRecord::<(), _>::to(&topic).payload(&payload);
            producer.send(sent, PATIENCE).await.expect("sent");
        }
        if transaction % 2 == 0 {
            producer.commit_transaction(PATIENCE).expect("committed");
            committed += 5;
        } else {
            producer.abort_transaction(PATIENCE).expect("aborted");
        }
    }

    let mut started = start(&brokers, consumer_config(&topic, &topic));
    let records = receive(&mut started.records, committed).await;
    started.consumer.settle(ids(&records), Outcome::Inserted);
    eventually("no lag is left", || {
        let lag = started.consumer.lag();
        !lag.is_empty() && lag.values().all(|lag| lag.lag == 0)
    })
    .await;
    let status = started.consumer.status();
    assert_eq!(status.totals.consumed, committed as u64);
    assert_eq!(status.lost_to_retention, 0, "gaps are no losses");

    // It is no lag that is overlooked: new records count, until they are settled.
    producer.begin_transaction().expect("begun");
    let sent = FutureRecord::<(), _>::to(&topic).payload("new");
    producer.send(sent, PATIENCE).await.expect("sent");
    producer.commit_transaction(PATIENCE).expect("committed");
    let record = receive(&mut started.records, 1).await;
    eventually("lag is seen", || {
        started.consumer.lag().values().any(|lag| lag.lag > 0)
    })
    .await;
    started.consumer.settle(ids(&record), Outcome::DeadLettered);
    eventually("no lag is left", || {
        started.consumer.lag().values().all(|lag| lag.lag == 0)
    })
    .await;
    started
        .consumer
        .close(Duration::from_secs(30))
        .await
        .expect("closed in order");
}
