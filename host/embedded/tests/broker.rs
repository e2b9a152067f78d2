//! The broker, as rdkafka sees it.

mod common;

use std::time::Instant;

use common::{
    REPLY, STOP, admin, broker, create_topic, kafka, next_record, producer, publish, read_all,
};
use rdkafka::TopicPartitionList;
use rdkafka::admin::{AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::Message;
use rdkafka::topic_partition_list::Offset;
use rdkafka::types::RDKafkaErrorCode;

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

/// What provisioning has to know of this broker.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_exists_is_told_from_one_that_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let broker = broker(&folder.path().join("broker"), None).await;
    create_topic(&broker.bootstrap(), "cdr.raw", 3).await;
    let admin = admin(&broker.bootstrap());
    let options = AdminOptions::new().request_timeout(Some(REPLY));

    let again = NewTopic::new("cdr.raw", 1, TopicReplication::Fixed(1));
    let created = admin.create_topics([&again], &options).await.unwrap();
    let exists = RDKafkaErrorCode::TopicAlreadyExists;
    assert_eq!(created, [Err(("cdr.raw".to_owned(), exists))]);

    // Asking does not create.
    let metadata = admin.inner().fetch_metadata(Some("other"), REPLY).unwrap();
    assert!(metadata.topics()[0].error().is_some());
    let metadata = admin.inner().fetch_metadata(None, REPLY).unwrap();
    let names: Vec<_> = metadata.topics().iter().map(|topic| topic.name()).collect();
    assert_eq!(names, ["cdr.raw"]);

    let other = [ResourceSpecifier::Topic("other")];
    let described = admin.describe_configs(&other, &options).await.unwrap();
    let entries = described.into_iter().next().unwrap().unwrap().entries;
    assert!(entries.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_go_on_after_retention_has_emptied_a_partition() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("broker");
    let mut first = broker(&data, None).await;
    let topic = NewTopic::new("short", 1, TopicReplication::Fixed(1))
        .set("cleanup.policy", "delete")
        .set("retention.ms", "1");
    let options = AdminOptions::new().request_timeout(Some(REPLY));
    let created = admin(&first.bootstrap())
        .create_topics([&topic], &options)
        .await
        .unwrap();
    assert_eq!(created, [Ok("short".to_owned())]);
    let writer = producer(&first.bootstrap());
    for number in 0..5 {
        publish(&writer, "short", "k", &number.to_string())
            .await
            .unwrap();
    }
    first.process.stop(STOP).await.unwrap();

    // Old records are removed at a start; the removal is seen in the watermarks.
    let second = broker(&data, None).await;
    let consumer = |group: &str| -> BaseConsumer {
        kafka(&second.bootstrap())
            .set("group.id", group)
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "earliest")
            .create()
            .unwrap()
    };
    let parked = consumer("parked");
    let since = Instant::now();
    // An empty partition says (0, 0), whatever its offsets have come to.
    while parked.fetch_watermarks("short", 0, REPLY).unwrap() != (0, 0) {
        assert!(since.elapsed() < REPLY, "retention removed nothing");
    }
    let assigned = |offset| {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset("short", 0, offset).unwrap();
        list
    };
    // One reader stands at the end, as a worker that has committed does; one starts anew.
    parked.assign(&assigned(Offset::Offset(5))).unwrap();
    assert!(parked.poll(std::time::Duration::from_millis(500)).is_none());
    let fresh = consumer("fresh");
    fresh.assign(&assigned(Offset::Beginning)).unwrap();

    let writer = producer(&second.bootstrap());
    assert_eq!(
        publish(&writer, "short", "k", "later").await.unwrap(),
        (0, 5)
    );
    for reader in [&parked, &fresh] {
        let message = next_record(reader);
        assert_eq!(
            (message.offset(), message.payload()),
            (5, Some(b"later".as_slice()))
        );
    }
    assert_eq!(parked.fetch_watermarks("short", 0, REPLY).unwrap(), (5, 6));
}
