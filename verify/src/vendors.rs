//! Vendors: they post records, and post the same again until they are told what
//! became of it.
//!
//! A 503, a 429, a broken connection or no answer in time tell nothing: the
//! identical payload is sent again. A 202 and a 400 end it. Whether the answer was
//! the right one is the [judge](crate::judge)'s to say.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use hyper::StatusCode;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::http_client::HttpClient;
use crate::judge::{Answered, Posted};
use crate::records::{Sample, sample};

/// After this an attempt counts as failed, as vendors have it.
const ATTEMPT: Duration = Duration::from_secs(20);
/// Between attempts at the same record.
const AGAIN: Duration = Duration::from_millis(250);
/// The same when the host asks for less.
const AGAIN_WHEN_FULL: Duration = Duration::from_secs(1);

/// How vendors go about it.
#[derive(Debug, Clone, Copy)]
pub struct Habits {
    /// How many post at the same time, one record each.
    pub vendors: u32,
    /// Pause of each between a record and the next.
    pub pause: Duration,
    /// How long they begin new records.
    pub posting: Duration,
    /// How long after that they go on with those they have.
    pub patience: Duration,
}

/// What vendors have seen.
#[derive(Debug, Default)]
pub struct Posting {
    /// Every record, with its answer.
    pub posted: Vec<Posted>,
    /// Attempts, repeated ones included.
    pub attempts: u64,
    /// How often each answer came: status codes, and words where none came.
    pub answers: BTreeMap<String, u64>,
    /// When each attempt began, since the vendors did, and how long it took.
    pub latencies: Vec<(Duration, Duration)>,
}

/// Posts records whose ids begin with `prefix` to `api`, an address that may
/// change (`http://host:port`; none while it is away), until all are answered or
/// the patience is over.
pub async fn post(api: watch::Receiver<Option<String>>, prefix: &str, habits: Habits) -> Posting {
    let started = Instant::now();
    let shared = Shared {
        prefix,
        next: AtomicU64::new(0),
        posting: Mutex::default(),
        started,
        last_new: started + habits.posting,
        give_up: started + habits.posting + habits.patience,
    };
    let vendors = (0..habits.vendors).map(|i| {
        let (api, shared) = (api.clone(), &shared);
        async move {
            // Not all in step.
            sleep(
                habits
                    .pause
                    .mul_f64(f64::from(i) / f64::from(habits.vendors)),
            )
            .await;
            shared.run(api, habits.pause).await;
        }
    });
    join_all(vendors).await;
    shared
        .posting
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
}

struct Shared<'a> {
    prefix: &'a str,
    next: AtomicU64,
    posting: Mutex<Posting>,
    started: Instant,
    last_new: Instant,
    give_up: Instant,
}

impl Shared<'_> {
    async fn run(&self, mut api: watch::Receiver<Option<String>>, pause: Duration) {
        let client = HttpClient::new(ATTEMPT);
        while Instant::now() < self.last_new {
            let i = self.next.fetch_add(1, Ordering::Relaxed);
            let sample = sample(self.prefix, i, now_s());
            let answer = tokio::select! {
                answer = self.answered(&client, &mut api, &sample) => answer,
                () = sleep_until(self.give_up) => Answered::Never,
            };
            self.note(|posting| posting.posted.push(Posted { sample, answer }));
            sleep(pause).await;
        }
    }

    /// Sends a record until its answer is one to go by.
    async fn answered(
        &self,
        client: &HttpClient,
        api: &mut watch::Receiver<Option<String>>,
        sample: &Sample,
    ) -> Answered {
        loop {
            let Some(url) = api.borrow_and_update().clone() else {
                // Whoever tells is there for as long as vendors are.
                if api.changed().await.is_err() {
                    return Answered::Never;
                }
                continue;
            };
            let url = format!("{url}/v1/cdrs");
            let begun = Instant::now();
            let answer = client.post(&url, sample.payload.clone()).await;
            let took = begun.elapsed();
            let word = match &answer {
                Ok(answer) => answer.status.as_u16().to_string(),
                Err(error) => error.word().to_owned(),
            };
            self.note(|posting| {
                posting.attempts += 1;
                *posting.answers.entry(word).or_default() += 1;
                let at = begun.duration_since(self.started);
                posting.latencies.push((at, took));
            });
            let pause = match answer {
                Ok(answer) => match answer.status {
                    StatusCode::ACCEPTED => return Answered::Accepted,
                    // A body that broke off says so too, with another code.
                    StatusCode::BAD_REQUEST if answer.json()["error"] != "incomplete_body" => {
                        let code = answer.json()["error"].as_str().unwrap_or("").to_owned();
                        return Answered::Refused(code);
                    }
                    StatusCode::TOO_MANY_REQUESTS => AGAIN_WHEN_FULL,
                    _ => AGAIN,
                },
                Err(_) => AGAIN,
            };
            sleep(pause).await;
        }
    }

    fn note(&self, change: impl FnOnce(&mut Posting)) {
        change(&mut self.posting.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

fn now_s() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
