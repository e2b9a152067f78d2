//! Versions of a normalizer that change every second under full load, and files
//! between them that must not serve: nobody notices.
//!
//! ```text
//!   warming up ─▶ before ─▶ during: a version each second, half a second later ─▶ after: a rollback, then
//!                           one that is refused                                  one to be compiled
//! ```
//!
//! Vendors post all the time. Judged is what they were answered, what landed, which
//! version says that it made it, and what memory the hosts held; latencies are
//! reported, since what is good of them is the machine's to say.

pub mod memory;
pub mod report;
pub mod shelf;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use crate::accounts::Sampler;
use crate::ends::exits;
use crate::http_client::HttpClient;
use crate::journal::{Event, Journal, What};
use crate::judge::judge;
use crate::parts::{Build, System};
use crate::plan::{Parts, Target};
use crate::settle::{Hosts, settled};
use crate::vendors::{Habits, Posting, post};
use memory::MemorySampler;
use report::{Host, Report, Times, VersionRows};
use shelf::{Bad, GOOD, Shelf};

/// Before anything is measured.
const WARMING_UP: Duration = Duration::from_secs(5);
/// Between one version and the next.
const EVERY: Duration = Duration::from_secs(1);
/// For hosts to follow an activation.
const FOLLOWED: Duration = Duration::from_secs(180);
/// For vendors to get the last answers.
const PATIENCE: Duration = Duration::from_secs(60);
/// What the ids of the records begin with.
const PREFIX: &str = "s-";
/// For one question.
const ANSWER: Duration = Duration::from_secs(10);

/// A run.
#[derive(Debug, Clone, Copy)]
pub struct Swaps {
    /// For how long versions change.
    pub during: Duration,
    /// How many vendors post at the same time, one record each, without a pause.
    pub vendors: u32,
}

impl Swaps {
    /// Makes the run on Apache Kafka and ClickHouse, and reports.
    ///
    /// # Errors
    /// The system does not start, or can't be judged.
    pub async fn run(&self, mut build: Build) -> anyhow::Result<Report> {
        let say = |step: &str| println!("==> {step}");
        let dir = build.folder.join("normalizers");
        build.registry = Some(dir.clone());
        let compiled = build.folder.join("compiled").display().to_string();
        for (name, value) in [
            ("NORMALIZER_CACHE_DIR", compiled.as_str()),
            ("NORMALIZER_POLL_SECONDS", "1"),
            ("KAFKA_DELIVERY_TIMEOUT_SECONDS", "10"),
            ("KAFKA_SESSION_TIMEOUT_SECONDS", "20"),
            ("BATCH_SIZE", "1000"),
            ("BATCH_FLUSH_INTERVAL_SECONDS", "1"),
        ] {
            build.settings.push((name.to_owned(), value.to_owned()));
        }
        let mut shelf = Shelf::fill(&build, &dir, say).await?;
        let journal = Journal::default();
        let system =
            System::start(Parts::ApacheKafka, build.clone(), 0, journal.clone(), say).await?;
        let report = self.on(&build, &system, &journal, &mut shelf).await;
        system.stop().await;
        report
    }

    async fn on(
        &self,
        build: &Build,
        system: &System,
        journal: &Journal,
        shelf: &mut Shelf,
    ) -> anyhow::Result<Report> {
        let since = journal.len();
        let times = Times {
            before: WARMING_UP,
            during: WARMING_UP + self.during,
            after: WARMING_UP + self.during * 2,
            end: WARMING_UP + self.during * 2 + self.during / 2,
        };
        let habits = Habits {
            vendors: self.vendors,
            pause: Duration::ZERO,
            posting: times.end,
            patience: PATIENCE,
        };
        keep_every_row(&system.witness()?).await?;
        let accounts = Sampler::start(system.workers());
        let memory = MemorySampler::start(processes(journal));
        println!(
            "==> {} vendors post: {} s for warming up, {} s as it is, {} s with another version every second, {} s more",
            self.vendors,
            WARMING_UP.as_secs(),
            self.during.as_secs(),
            self.during.as_secs(),
            (self.during / 2).as_secs(),
        );
        let started = Instant::now();
        let posting = post(system.api(), PREFIX, habits);
        let hosts = system.hosts();
        let changing = async {
            let (from, to) = (started + times.during, started + times.after);
            let activations = change(shelf, from, to, journal).await?;
            follow(&hosts, shelf.revision()).await?;
            let began = Instant::now();
            shelf.rollback(build).await?;
            follow(&hosts, shelf.revision()).await?;
            let rollback = began.elapsed();
            let began = Instant::now();
            shelf.activate_cold()?;
            let followed = follow(&hosts, shelf.revision()).await?;
            anyhow::Ok((activations, rollback, began.elapsed(), followed))
        };
        let (posting, changed) = tokio::join!(posting, changing);
        let (activations, rollback, cold, followed) = changed?;

        let witness = system.witness()?;
        let mut objections = Vec::new();
        if let Err(stuck) = settled(&witness, &hosts).await {
            objections.push(stuck);
        }
        objections.extend(accounts.seen().1);
        objections.extend(exits(&journal.entries()[since..]));
        let rows = witness.rows(PREFIX).await?;
        let letters = witness.letters().await?;
        let memory = memory.seen();
        let hosts = followed
            .into_iter()
            .map(|(name, stats)| Host {
                swaps: stats["swaps"].as_u64().unwrap_or(0),
                refusals: stats["refusals"].as_u64().unwrap_or(0),
                memory: memory.get(&name).cloned().unwrap_or_default(),
                name,
            })
            .collect();
        let Posting {
            posted,
            answers,
            latencies,
            ..
        } = posting;
        Ok(Report {
            times,
            activations,
            cold,
            rollback,
            physical_rows: physical_rows(&witness).await?,
            findings: judge(&posted, &rows, &letters),
            answers,
            latencies,
            hosts,
            versions: version_rows(&witness).await?,
            objections,
        })
    }
}

/// Lets one version after the other serve from `from` until `to`, and between them
/// what must not; in the end the last one. How many of each.
async fn change(
    shelf: &mut Shelf,
    from: Instant,
    to: Instant,
    journal: &Journal,
) -> anyhow::Result<(u64, u64)> {
    let (mut good, mut bad) = (0, 0);
    let mut at = from;
    while at < to {
        sleep_until(at).await;
        // Not the one that serves already.
        let index = (good as usize + 1) % GOOD.len();
        shelf.activate(index)?;
        journal.note(Event::Note(format!("activated: {}", GOOD[index])));
        good += 1;
        sleep_until(at + EVERY / 2).await;
        let refused = Bad::ALL[bad as usize % Bad::ALL.len()];
        shelf.activate_bad(refused)?;
        journal.note(Event::Note(format!("activated: {refused:?}")));
        bad += 1;
        at += EVERY;
    }
    sleep_until(to).await;
    shelf.activate(GOOD.len() - 1)?;
    Ok((good + 1, bad))
}

/// Waits until each host serves this activation; what it says of its normalizers, by
/// name.
async fn follow(hosts: &Hosts, revision: u64) -> anyhow::Result<BTreeMap<String, Value>> {
    let client = HttpClient::new(ANSWER);
    let api = (Target::Api.to_string(), format!("{}/stats", hosts.api));
    let workers = hosts
        .workers
        .iter()
        .map(|(name, address)| (name.clone(), format!("{address}/internal/stats")));
    let deadline = Instant::now() + FOLLOWED;
    let mut followed = BTreeMap::new();
    for (name, url) in std::iter::once(api).chain(workers) {
        let state = loop {
            let stats = client.get(&url).await.context(url.clone())?.json();
            let state = &stats["activation"];
            if state["revision"].as_u64() == Some(revision) && state["refused"].is_null() {
                break state.clone();
            }
            if Instant::now() > deadline {
                bail!("{name} does not follow activation {revision}: {state}");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        followed.insert(name, state);
    }
    Ok(followed)
}

/// The process ids of the hosts, by name.
fn processes(journal: &Journal) -> BTreeMap<String, u32> {
    let entries = journal.entries();
    let started = entries.iter().filter_map(|entry| match entry.event {
        Event::Process(target, What::Started { pid })
            if target == Target::Api || target.is_worker() =>
        {
            Some((target.to_string(), pid))
        }
        _ => None,
    });
    started.collect()
}

/// How many rows lie in the table, also those that merges would hide.
async fn physical_rows(witness: &crate::evidence::Witness) -> anyhow::Result<u64> {
    let table = witness.store.quoted_table();
    let sql = format!("SELECT toUInt32(count()) AS n FROM {table}");
    let rows: Vec<Value> = witness.store.query_rows(&sql).await?;
    rows.first()
        .and_then(|row| row["n"].as_u64())
        .context("a count of rows")
}

/// Lets ClickHouse merge nothing from now on, so that a row that is written twice
/// stays twice.
async fn keep_every_row(witness: &crate::evidence::Witness) -> anyhow::Result<()> {
    let sql = format!(
        "ALTER TABLE {} MODIFY SETTING max_bytes_to_merge_at_max_space_in_pool = 1, \
         max_bytes_to_merge_at_min_space_in_pool = 1, parts_to_throw_insert = 100000, \
         parts_to_delay_insert = 100000",
        witness.store.quoted_table()
    );
    Ok(witness.store.execute(&sql).await?)
}

/// How many rows each version has made, and what they have in the column that only
/// some of them know.
async fn version_rows(witness: &crate::evidence::Witness) -> anyhow::Result<Vec<VersionRows>> {
    let sql = format!(
        "SELECT normalizer_version AS version, toString(roaming) AS roaming, count() AS rows FROM {} FINAL \
         GROUP BY version, roaming ORDER BY version, roaming \
         SETTINGS output_format_json_quote_64bit_integers = 0",
        witness.store.quoted_table()
    );
    Ok(witness.store.query_rows(&sql).await?)
}
