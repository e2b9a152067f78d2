//! The broker, as rdkafka sees it.

mod common;

use common::{
    REPLY, STOP, admin, broker, create_topic, kafka, next_record, producer, publish, read_all,
};
use rdkafka::TopicPartitionList;
use rdkafka::admin::{AdminOptions, ResourceSpecifier};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::Message;
use rdkafka::topic_partition_list::Offset;

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_has_the_configuration_that_it_was_created_with() {
    let folder = tempfile::tempdir().unwrap();
    let broker = broker(&folder.path().join("broker"), None).await;
    create_topic(&broker.bootstrap(), "cdr.raw", 3).await;

    let admin = admin(&broker.bootstrap());
    let metadata = admin
        .inner()
        .fetch_metadata(Some("cdr.raw"), REPLY)
        .unwrap();
    assert_eq!(metadata.topics()[0].partitions().len(), 3);
    assert_eq!(metadata.brokers()[0].host(), "127.0.0.1");
    assert_eq!(metadata.brokers()[0].port(), i32::from(broker.port()));

    let resources = [ResourceSpecifier::Topic("cdr.raw")];
    let described = admin
        .describe_configs(&resources, &AdminOptions::new())
        .await
        .unwrap();
    let described = described.into_iter().next().unwrap().unwrap();
    let value = |name: &str| described.get(name).and_then(|entry| entry.value.clone());
    assert_eq!(value("cleanup.policy").as_deref(), Some("delete"));
    assert_eq!(value("retention.ms").as_deref(), Some("86400000"));
    assert_eq!(value("compression.type").as_deref(), Some("lz4"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_would_do_harm_is_refused_and_does_none() {
    let folder = tempfile::tempdir().unwrap();
    let broker = broker(&folder.path().join("broker"), None).await;
    create_topic(&broker.bootstrap(), "cdr.raw", 1).await;
    let producer = producer(&broker.bootstrap());
    publish(&producer, "cdr.raw", "k", "kept").await.unwrap();

    let options = AdminOptions::new().request_timeout(Some(REPLY));
    let deleted = admin(&broker.bootstrap())
        .delete_topics(&["cdr.raw"], &options)
        .await;
    assert!(
        !matches!(&deleted, Ok(results) if results.iter().all(Result::is_ok)),
        "DeleteTopics was not refused: {deleted:?}"
    );
    assert_eq!(read_all(&broker.bootstrap(), "cdr.raw", 1), ["kept"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_reads_commits_and_finds_its_offsets_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("broker");
    let mut first = broker(&data, None).await;
    create_topic(&first.bootstrap(), "cdr.raw", 3).await;
    let producer = producer(&first.bootstrap());
    for number in 0..30 {
        let text = number.to_string();
        publish(&producer, "cdr.raw", &text, &text).await.unwrap();
    }
    let consumer = |bootstrap: &str| -> BaseConsumer {
        kafka(bootstrap)
            .set("group.id", "cdr-worker")
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "earliest")
            .create()
            .unwrap()
    };
    let reader = consumer(&first.bootstrap());
    reader.subscribe(&["cdr.raw"]).unwrap();
    let mut next = [0; 3];
    for _ in 0..30 {
        let message = next_record(&reader);
        next[usize::try_from(message.partition()).unwrap()] = message.offset() + 1;
    }
    let mut offsets = TopicPartitionList::new();
    for (partition, offset) in (0..).zip(next) {
        offsets
            .add_partition_offset("cdr.raw", partition, Offset::Offset(offset))
            .unwrap();
    }
    reader.commit(&offsets, CommitMode::Sync).unwrap();
    drop(reader);
    let stopped = first.process.stop(STOP).await.unwrap();
    assert!(stopped.is_orderly(), "{stopped:?}");

    let second = broker(&data, None).await;
    let reader = consumer(&second.bootstrap());
    let mut asked = TopicPartitionList::new();
    for partition in 0..3 {
        asked.add_partition("cdr.raw", partition);
    }
    let committed = reader.committed_offsets(asked, REPLY).unwrap();
    for (partition, offset) in (0..).zip(next) {
        let found = committed.find_partition("cdr.raw", partition).unwrap();
        assert_eq!(found.offset(), Offset::Offset(offset));
        let (low, high) = reader
            .fetch_watermarks("cdr.raw", partition, REPLY)
            .unwrap();
        assert_eq!((low, high), (0, offset));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_record_is_lost_when_the_broker_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("broker");
    let mut running = broker(&data, None).await;
    let (bootstrap, port) = (running.bootstrap(), running.port());
    create_topic(&bootstrap, "cdr.raw", 3).await;
    let producer = producer(&bootstrap);

    let mut acknowledged = vec![];
    for round in 0..3 {
        let mut sending: futures::stream::FuturesUnordered<_> = (0..500)
            .map(|number| {
                let text = format!("{round}-{number}");
                let producer = producer.clone();
                async move {
                    let delivered = publish(&producer, "cdr.raw", &text, &text).await;
                    delivered.map(|_| text)
                }
            })
            .collect();
        // Killed while the rest of the round is in flight, then back on the same port.
        for _ in 0..100 {
            acknowledged.push(
                futures::StreamExt::next(&mut sending)
                    .await
                    .unwrap()
                    .unwrap(),
            );
        }
        running.process.kill().await.unwrap();
        running = broker(&data, Some(port)).await;
        while let Some(delivered) = futures::StreamExt::next(&mut sending).await {
            acknowledged.push(delivered.unwrap());
        }
    }
    let mut stored = read_all(&bootstrap, "cdr.raw", 3);
    let all = stored.len();
    stored.sort();
    stored.dedup();
    acknowledged.sort();
    assert_eq!(stored, acknowledged, "lost, or never acknowledged");
    assert_eq!(
        all,
        acknowledged.len(),
        "an idempotent producer stores each record once"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn probe() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("broker");
    let mut b = broker(&data, None).await;
    let boot = b.bootstrap();
    let ad = admin(&boot);
    let o = AdminOptions::new().request_timeout(Some(REPLY)).operation_timeout(Some(REPLY));
    let t = |n: &'static str| rdkafka::admin::NewTopic::new(n, 1, rdkafka::admin::TopicReplication::Fixed(1)).set("cleanup.policy", "delete").set("retention.ms", "1");
    eprintln!("create: {:?}", ad.create_topics([&t("a")], &o).await);
    eprintln!("again: {:?}", ad.create_topics([&t("a")], &o).await);
    eprintln!("rf3: {:?}", ad.create_topics([&rdkafka::admin::NewTopic::new("rf3", 1, rdkafka::admin::TopicReplication::Fixed(3))], &o).await);
    eprintln!("bad config: {:?}", ad.create_topics([&t("bad").set("no.such", "x")], &o).await);
    eprintln!("validate only: {:?}", ad.create_topics([&t("val")], &o).await.map(|_| ()));
    let md = ad.inner().fetch_metadata(Some("nope"), REPLY);
    eprintln!("metadata unknown: {:?}", md.map(|m| m.topics().iter().map(|t| (t.name().to_owned(), t.error(), t.partitions().len())).collect::<Vec<_>>()));
    let md = ad.inner().fetch_metadata(None, REPLY).unwrap();
    eprintln!("all: {:?}", md.topics().iter().map(|t| (t.name().to_owned(), t.partitions().len())).collect::<Vec<_>>());
    for n in ["a", "nope2"] {
        let r = [ResourceSpecifier::Topic(n)];
        let d = ad.describe_configs(&r, &o).await;
        eprintln!("configs {n}: {:?}", d.map(|v| v.into_iter().map(|r| r.map(|r| r.entries.iter().map(|e| (e.name.clone(), e.value.clone(), e.is_default)).collect::<Vec<_>>())).collect::<Vec<_>>()));
    }
    let r = [ResourceSpecifier::Broker(1)];
    eprintln!("broker configs: {:?}", ad.describe_configs(&r, &o).await.map(|v| v.len()));
    eprintln!("create partitions: {:?}", ad.create_partitions([&rdkafka::admin::NewPartitions::new("a", 3)], &o).await);
    let p = producer(&boot);
    for i in 0..5 {
        let rec = rdkafka::producer::FutureRecord::to("a").key("k").payload("v").headers(rdkafka::message::OwnedHeaders::new().insert(rdkafka::message::Header{key:"h", value:Some("x")}));
        eprintln!("{i} {:?}", p.send(rec, REPLY).await.map(|d| (d.partition, d.offset)).map_err(|e| e.0));
    }
    eprintln!("to unknown topic: {:?}", publish(&p, "nope3", "k", "v").await);
    eprintln!("stopped {:?}", b.process.stop(STOP).await);
    let mut b = broker(&data, None).await;
    let boot = b.bootstrap();
    let c: BaseConsumer = kafka(&boot).set("group.id", "g").set("enable.auto.commit", "false").set("auto.offset.reset", "earliest").create().unwrap();
    for _ in 0..3 { eprintln!("watermarks after retention: {:?}", c.fetch_watermarks("a", 0, REPLY)); std::thread::sleep(std::time::Duration::from_millis(300)); }
    let p = producer(&boot);
    eprintln!("{:?}", publish(&p, "a", "k", "later").await);
    eprintln!("watermarks after produce: {:?}", c.fetch_watermarks("a", 0, REPLY));
    let mut l = TopicPartitionList::new();
    l.add_partition_offset("a", 0, Offset::Offset(2)).unwrap();
    c.assign(&l).unwrap();
    let m = c.poll(std::time::Duration::from_secs(10));
    eprintln!("read from 2: {:?}", m.map(|m| m.map(|m| (m.offset(), String::from_utf8_lossy(m.payload().unwrap()).into_owned(), m.timestamp()))));
    // group takeover
    let mk = || -> BaseConsumer { kafka(&boot).set("group.id", "tk").set("partition.assignment.strategy","cooperative-sticky").set("enable.auto.commit", "false").set("auto.offset.reset", "earliest").set("session.timeout.ms","6000").create().unwrap() };
    let c1 = mk(); c1.subscribe(&["a"]).unwrap();
    let since = std::time::Instant::now();
    while c1.poll(std::time::Duration::from_millis(100)).is_none() && since.elapsed().as_secs() < 60 {}
    eprintln!("first member got a record after {:?}", since.elapsed());
    let c2 = mk(); c2.subscribe(&["a"]).unwrap();
    let since = std::time::Instant::now();
    while since.elapsed().as_secs() < 10 { c1.poll(std::time::Duration::from_millis(50)); c2.poll(std::time::Duration::from_millis(50)); }
    eprintln!("assignments {:?} {:?}", c1.assignment(), c2.assignment());
    drop(c1);
    let since = std::time::Instant::now();
    let mut got = false;
    while since.elapsed().as_secs() < 60 { if c2.assignment().unwrap().count() == 1 { got = true; break; } c2.poll(std::time::Duration::from_millis(50)); }
    eprintln!("takeover {got} after {:?}", since.elapsed());
    eprintln!("{:?}", b.process.stop(STOP).await);
    eprintln!("{}", std::fs::read_to_string(folder.path().join("broker.logs/broker.log")).unwrap());
}
