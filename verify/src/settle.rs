//! Waiting until nothing is under way any more.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

use cdr_kafka::admin::{self, Watermarks};

use crate::accounts::{Addresses, imbalances};
use crate::evidence::Witness;
use crate::http_client::HttpClient;

/// For everything to be consumed, settled and committed, once all parts are well:
/// far above session timeouts, retries and a start of Kafka together.
pub const SETTLING: Duration = Duration::from_secs(150);
const POLL: Duration = Duration::from_millis(150);
/// For one question.
const PATIENCE: Duration = Duration::from_secs(5);

/// The hosts of a system, as they are now.
#[derive(Debug, Clone)]
pub struct Hosts {
    /// Address of the API.
    pub api: String,
    /// Addresses of the workers, by name.
    pub workers: Addresses,
}

/// What one look found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Look {
    outstanding: Option<u64>,
    marks: BTreeMap<i32, Watermarks>,
    committed: BTreeMap<i32, Option<i64>>,
}

impl Look {
    fn is_settled(&self) -> bool {
        self.outstanding == Some(0)
            && !self.marks.is_empty()
            && self.marks.iter().all(|(partition, marks)| {
                let committed = self.committed.get(partition).copied().flatten();
                marks.high == marks.low || committed == Some(marks.high)
            })
    }
}

/// Waits until the committed offsets are the ends of the partitions, the API holds
/// nothing, and neither changes any more; then every host must be live and every
/// worker's account come out.
///
/// # Errors
/// What is stuck, in words, with the stats of each worker.
pub async fn settled(witness: &Witness, hosts: &Hosts) -> Result<(), String> {
    let started = Instant::now();
    let client = HttpClient::new(PATIENCE);
    let mut before = Look::default();
    loop {
        let look = look(witness, hosts, &client).await;
        match look {
            Ok(look) if look.is_settled() && look == before => break,
            Ok(look) => before = look,
            Err(error) if started.elapsed() > SETTLING => {
                return Err(stuck(&format!("{error:#}"), hosts, &client).await);
            }
            Err(_) => before = Look::default(),
        }
        if started.elapsed() > SETTLING {
            return Err(stuck(&format!("{before:?}"), hosts, &client).await);
        }
        tokio::time::sleep(POLL).await;
    }
    healthy(hosts, &client, started).await
}

async fn look(witness: &Witness, hosts: &Hosts, client: &HttpClient) -> anyhow::Result<Look> {
    let Witness { kafka, names, .. } = witness;
    let stats = client.get(&format!("{}/stats", hosts.api)).await?.json();
    Ok(Look {
        outstanding: stats["outstanding"]["records"].as_u64(),
        marks: admin::watermarks(kafka, &names.raw, PATIENCE).await?,
        committed: admin::committed_offsets(kafka, &names.group, &names.raw, PATIENCE).await?,
    })
}

/// `/healthz` of every host, and a last look at the accounts.
async fn healthy(hosts: &Hosts, client: &HttpClient, started: Instant) -> Result<(), String> {
    let api = std::iter::once(("api", &hosts.api));
    let workers = hosts.workers.iter().map(|(name, at)| (name.as_str(), at));
    for (name, address) in api.chain(workers) {
        loop {
            let answer = client.get(&format!("{address}/healthz")).await;
            let why = match answer {
                Ok(answer) if answer.status.is_success() => break,
                Ok(answer) => String::from_utf8_lossy(&answer.body).into_owned(),
                Err(error) => error.to_string(),
            };
            if started.elapsed() > SETTLING {
                let what = format!("/healthz of {name} stays bad: {why}");
                return Err(stuck(&what, hosts, client).await);
            }
            tokio::time::sleep(POLL).await;
        }
    }
    for (name, address) in &hosts.workers {
        loop {
            let answer = client.get(&format!("{address}/internal/stats")).await;
            let stats = answer.map(|answer| answer.json()).unwrap_or_default();
            let wrong = imbalances(&stats);
            if !wrong.is_empty() {
                return Err(format!("{name}: {}; {stats}", wrong.join("; ")));
            }
            // One that was just started may be about to subscribe.
            if stats["in_flight"] == 0 {
                break;
            }
            if started.elapsed() > SETTLING {
                let what = format!("everything is committed, but {name} has records in flight");
                return Err(stuck(&what, hosts, client).await);
            }
            tokio::time::sleep(POLL).await;
        }
    }
    Ok(())
}

async fn stuck(what: &str, hosts: &Hosts, client: &HttpClient) -> String {
    let mut text = format!("not settled within {} s: {what}", SETTLING.as_secs());
    for (name, address) in &hosts.workers {
        let stats = match client.get(&format!("{address}/internal/stats")).await {
            Ok(answer) => String::from_utf8_lossy(&answer.body).into_owned(),
            Err(error) => error.to_string(),
        };
        // Writing to a string can't fail.
        let _ = write!(text, "\n  {name}: {stats}");
    }
    text
}
