//! The host on the real Kafka client, with a broker that is not there. Only the
//! normalizer is a fake (see `common`).

mod common;

use std::sync::Arc;
use std::time::Duration;

use cdr_api::kafka::KafkaPublish;
use cdr_kafka::{KafkaConfig, Publisher, PublisherConfig};
use common::{FakeAdmit, serve};

#[tokio::test]
async fn a_broker_that_is_away_is_503_for_each_request_and_holds_nothing() {
    // A port that was free a moment ago, and that nobody listens on.
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let nowhere = free.local_addr().expect("bound").to_string();
    drop(free);
    let delivery_timeout = Duration::from_millis(500);
    let config = PublisherConfig {
        delivery_timeout,
        ..PublisherConfig::default()
    };
    let publisher = Publisher::new(&KafkaConfig::plaintext(nowhere), config).expect("settings");
    let publish = KafkaPublish::new(publisher.clone(), "cdr.raw".to_owned(), delivery_timeout);
    let host = serve(&[], Arc::new(FakeAdmit::new()), Arc::new(publish)).await;
    for _ in 0..2 {
        let answer = host.post("good").await;
        assert_eq!(
            (answer.status, answer.code()),
            (503, "delivery_unconfirmed")
        );
        assert!(answer.header("retry-after").is_some());
        assert_eq!(host.metric("cdr_api_outstanding_records"), 0.0);
        let flushed = publisher.flush(Duration::from_secs(60)).await;
        assert!(flushed.is_ok(), "the client holds nothing either");
    }
    let ready = host.send(host.request("GET", "/readyz")).await;
    assert_eq!(ready.status, 200, "an outage of the broker is no gate");
    host.shutdown.request();
    host.stopped.await.expect("no panic").expect("drained");
}
