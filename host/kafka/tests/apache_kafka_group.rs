//! Several workers in one group on Apache Kafka, as processes of their own: one
//! joins late, one closes in order, one is killed, one is stopped for longer than
//! its session and wakes up as a zombie. See `apache_kafka.rs` for how to run it.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cdr_kafka::{ConsumerConfig, KafkaConfig, Outcome, RawConsumer, Record, Started};
use common::{
    PATIENCE, broker, committed, consumer_config, eventually, ids, publish_numbered, raw_topic,
    start, unique,
};

const PARTITIONS: i32 = 6;
/// Records that a worker has in hand before it settles any.
const BATCH: usize = 40;
/// It settles fewer when no more come: long, so that it has some when it is stopped.
const IDLE: Duration = Duration::from_millis(500);

fn config(topic: &str, group: &str) -> ConsumerConfig {
    ConsumerConfig {
        session_timeout: Duration::from_secs(3),
        revoke_budget: Duration::from_secs(1),
        ..consumer_config(topic, group)
    }
}

/// The worker process: this test binary, told by the environment. Prints
/// `partition offset` before it settles a record, and ends when its standard
/// input does.
#[tokio::test]
#[ignore = "a part of the test below, not a test"]
async fn worker_process() {
    let (Ok(brokers), Ok(topic), Ok(group)) = (
        std::env::var("WORKER_BROKERS"),
        std::env::var("WORKER_TOPIC"),
        std::env::var("WORKER_GROUP"),
    ) else {
        return;
    };
    let Started {
        consumer,
        mut records,
        ..
    } = start(&brokers, config(&topic, &group));
    let ending = Arc::new(AtomicBool::new(false));
    let ended = ending.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        ended.store(true, Ordering::Release);
    });
    let finish = |consumer: &RawConsumer, batch: &mut Vec<Record>| {
        let mut out = std::io::stdout().lock();
        for record in batch.iter() {
            writeln!(out, "\n{} {}", record.id.partition, record.id.offset).expect("a line");
        }
        out.flush().expect("told");
        consumer.settle(ids(batch), Outcome::Inserted);
        batch.clear();
    };
    let mut batch = Vec::new();
    while !ending.load(Ordering::Acquire) {
        let next = tokio::time::timeout(IDLE, records.recv()).await;
        match next {
            Ok(record) => batch.push(record.expect("the consumer runs")),
            Err(_) => finish(&consumer, &mut batch),
        }
        if batch.len() >= BATCH {
            finish(&consumer, &mut batch);
        }
    }
    consumer.drain();
    while let Ok(record) = records.try_recv() {
        batch.push(record);
    }
    finish(&consumer, &mut batch);
    consumer.close(PATIENCE).await.expect("closed in order");
}

type Offsets = Arc<Mutex<BTreeSet<(i32, i64)>>>;

struct Worker {
    process: Child,
    /// What this one settled.
    own: Offsets,
}

impl Worker {
    fn start(brokers: &str, topic: &str, group: &str, all: &Offsets) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "worker_process", "--ignored", "--nocapture"])
            .env("WORKER_BROKERS", brokers)
            .env("WORKER_TOPIC", topic)
            .env("WORKER_GROUP", group)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a worker");
        let own = Offsets::default();
        let lines = BufReader::new(process.stdout.take().expect("its words"));
        let to = [own.clone(), all.clone()];
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let numbers: Vec<i64> = line.split(' ').filter_map(|n| n.parse().ok()).collect();
                if let [partition, offset] = numbers[..] {
                    let partition = i32::try_from(partition).expect("a partition");
                    for set in &to {
                        set.lock().expect("whole").insert((partition, offset));
                    }
                }
            }
        });
        Worker { process, own }
    }

    fn settled(&self) -> usize {
        self.own.lock().expect("whole").len()
    }

    fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        let done = Command::new("kill").args([name, &pid]).status();
        assert!(done.is_ok_and(|status| status.success()), "{name}");
    }

    /// In order: it settles what it has, commits and leaves.
    async fn close(mut self) {
        drop(self.process.stdin.take());
        let mut status = None;
        eventually("the worker ends", || {
            status = self.process.try_wait().expect("a status");
            status.is_some()
        })
        .await;
        assert!(status.is_some_and(|status| status.success()), "{status:?}");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Looks at the committed offsets again and again: they never step back, and
/// everything before them was settled by someone.
async fn watch_commits(
    brokers: String,
    group: String,
    topic: String,
    settled: Offsets,
    until: Arc<AtomicBool>,
) -> usize {
    let mut before: BTreeMap<usize, i64> = BTreeMap::new();
    let mut looks = 0;
    while !until.load(Ordering::Acquire) {
        let now = committed(&brokers, &group, &topic).await;
        for (partition, next) in now.into_iter().enumerate() {
            let Some(next) = next else { continue };
            let last = before.insert(partition, next).unwrap_or(0);
            assert!(next >= last, "partition {partition}: {last}, then {next}");
            let number = i32::try_from(partition).expect("few");
            // Their lines may still be under way.
            eventually("everything committed was settled", || {
                let settled = settled.lock().expect("whole");
                (last..next).all(|offset| settled.contains(&(number, offset)))
            })
            .await;
        }
        looks += 1;
    }
    looks
}

/// redpanda connect #4009, #4010, #4477: revoked partitions lost a batch, and a
/// late acknowledgement committed a partition that was gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apache_kafka_workers_that_come_and_go_lose_nothing_and_fence_zombies() {
    let Some(brokers) = broker("several workers") else {
        return;
    };
    let topic = raw_topic(&brokers, "group", PARTITIONS).await;
    let group = unique("group");
    let all = Offsets::default();
    let count = || all.lock().expect("whole").len();
    let over = Arc::new(AtomicBool::new(false));
    let (stop, to, at) = (over.clone(), topic.clone(), brokers.clone());
    let producing = tokio::spawn(async move {
        let mut sent = 0;
        while !stop.load(Ordering::Acquire) {
            publish_numbered(&at, &to, sent..sent + 100).await;
            sent += 100;
        }
        sent
    });
    let watched = Arc::new(AtomicBool::new(false));
    let watching = tokio::spawn(watch_commits(
        brokers.clone(),
        group.clone(),
        topic.clone(),
        all.clone(),
        watched.clone(),
    ));
    let new = || Worker::start(&brokers, &topic, &group, &all);

    let (killed, leaving) = (new(), new());
    eventually("both work", || {
        killed.settled() > 100 && leaving.settled() > 100
    })
    .await;
    let late = new();
    eventually("the late one works", || late.settled() > 100).await;
    leaving.close().await;
    killed.signal("-KILL");
    let zombie = new();
    eventually("a fourth one works", || zombie.settled() > 100).await;

    zombie.signal("-STOP");
    let held = zombie.own.lock().expect("whole").clone();
    let last = held.iter().map(|&(p, offset)| (p, offset));
    let last: BTreeMap<i32, i64> = last.collect();
    eventually("the late one has its partitions", || {
        let own = late.own.lock().expect("whole");
        (0..PARTITIONS).all(|p| {
            let beyond = last.get(&p).map_or(0, |offset| offset + 1);
            own.range((p, beyond)..(p + 1, 0)).next().is_some()
        })
    })
    .await;
    let settled = zombie.settled();
    // It has records in hand, of partitions that are not its own any more.
    zombie.signal("-CONT");
    eventually("it works again", || zombie.settled() > settled + BATCH).await;

    over.store(true, Ordering::Release);
    let sent = producing.await.expect("all acknowledged");
    let marks = cdr_kafka::admin::watermarks(&KafkaConfig::plaintext(&brokers), &topic, PATIENCE)
        .await
        .expect("watermarks");
    let high: i64 = marks.values().map(|m| m.high).sum();
    assert_eq!(usize::try_from(high), Ok(sent));
    eventually("every record is settled by someone", || count() == sent).await;
    late.close().await;
    zombie.close().await;
    watched.store(true, Ordering::Release);
    let looks = watching.await.expect("commits only went forward");
    assert!(looks > 3, "only {looks} looks");
    let ends: Vec<Option<i64>> = marks.values().map(|m| Some(m.high)).collect();
    assert_eq!(committed(&brokers, &group, &topic).await, ends);
}
