//! The same path against Apache Kafka, with `cdr provision`, `cdr worker` and
//! `cdr api` as they are run in production. `just test-kafka` runs it; without a
//! broker in `KAFKA_BOOTSTRAP_SERVERS` it says that it was not run.

mod common;

use common::bed::Bed;

#[tokio::test(flavor = "multi_thread")]
async fn the_path_on_apache_kafka() {
    let Some(brokers) = std::env::var("KAFKA_BOOTSTRAP_SERVERS")
        .ok()
        .filter(|it| !it.is_empty())
    else {
        eprintln!("NOT RUN: it needs Apache Kafka in KAFKA_BOOTSTRAP_SERVERS (just test-kafka)");
        return;
    };
    let bed = Bed::on(brokers).await;
    // The second time everything fits.
    bed.provision("fits");
    let worker = bed.worker(&[]);
    let stats = format!("{}/internal/stats", worker.url);
    let api = bed.api(&[("WORKER_STATS_URL", &stats)]);
    bed.subject(&api.url, &worker.url)
        .judge_the_path(5000)
        .await;
    for host in [api, worker] {
        host.stop();
    }
}
