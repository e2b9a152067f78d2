//! One round: vendors post while the plan is carried out; then everything is healed,
//! settles, and is judged.

use std::time::{Duration, Instant};

use crate::accounts::Sampler;
use crate::ends::{Tally, clickhouse_was_disturbed, exits, objections, tally};
use crate::evidence::Count;
use crate::journal::{Event, Journal};
use crate::judge::{Findings, judge};
use crate::parts::System;
use crate::plan::Plan;
use crate::settle::settled;
use crate::vendors::{Habits, Posting, post};

/// What rounds leave behind for those after them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Before {
    /// Rows in the table.
    pub count: Count,
    /// Messages in the dead-letter topic.
    pub letters: usize,
}

/// How a round went.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The judgement.
    pub findings: Findings,
    /// What was done, and how often hosts ended by themselves.
    pub tally: Tally,
    /// What vendors saw.
    pub posting: Posting,
    /// How often a worker's account was looked at.
    pub samples: u64,
    /// The ends that nobody had asked for, with their last words.
    pub exits: Vec<String>,
    /// Everything else that is not as it must be.
    pub objections: Vec<String>,
    /// How long it took in all.
    pub took: Duration,
    /// How much of that was waiting for everything to settle.
    pub settling: Duration,
}

impl Outcome {
    /// Whether the promise was kept.
    pub fn is_good(&self) -> bool {
        self.findings.is_clean() && self.objections.is_empty()
    }
}

/// Runs a round whose records have ids that begin with `prefix`.
///
/// # Errors
/// It can't be carried out or judged; that is no verdict about the system.
pub async fn run(
    system: &System,
    journal: &Journal,
    plan: &Plan,
    prefix: &str,
    habits: Habits,
    before: &mut Before,
) -> anyhow::Result<Outcome> {
    let started = Instant::now();
    let since = journal.len();
    journal.note(Event::Note(format!("round {prefix} begins: {plan}")));
    system.begin_round(plan.seed);
    let sampler = Sampler::start(system.workers());
    let posting = post(system.api(), prefix, habits);
    // Vendors get their answers only from a system that is healed.
    let breaking = async {
        tokio::join!(carry_out(system, plan), tokio::time::sleep(habits.posting));
        journal.note(Event::Note("healing".to_owned()));
        system.heal().await
    };
    let (posting, healed) = tokio::join!(posting, breaking);
    let mut outcome = Outcome {
        posting,
        ..Outcome::default()
    };
    if let Err(error) = healed {
        outcome.objections.push(format!("{error:#}"));
    }
    let settling = Instant::now();
    journal.note(Event::Note("settling".to_owned()));
    let witness = system.witness()?;
    if let Err(stuck) = settled(&witness, &system.hosts()).await {
        outcome.objections.push(stuck);
    }
    outcome.settling = settling.elapsed();
    let (samples, violations) = sampler.seen();
    outcome.samples = samples;
    outcome.objections.extend(violations);
    drop(sampler);

    let letters = witness.letters().await?;
    let Some(new_letters) = letters.get(before.letters..) else {
        anyhow::bail!(
            "the dead-letter topic holds {} messages, {} fewer than before the round",
            letters.len(),
            before.letters - letters.len()
        );
    };
    let rows = witness.rows(prefix).await?;
    outcome.findings = judge(&outcome.posting.posted, &rows, new_letters);
    if outcome.findings.unanswered > 0 {
        let unanswered = outcome.findings.unanswered;
        outcome.objections.push(format!(
            "{unanswered} records were not answered {:?} after everything was healed",
            habits.patience
        ));
    }
    // Rows of earlier rounds neither go nor come.
    let count = witness.count().await?;
    let expected = Count {
        rows: before.count.rows + rows.len() as u64,
        records: before.count.records + rows.len() as u64 - doubles(&outcome.findings, &rows),
    };
    if count != expected {
        outcome
            .objections
            .push(format!("the table holds {count:?}, not {expected:?}"));
    }
    *before = Before {
        count,
        letters: letters.len(),
    };
    let entries = journal.entries();
    if outcome.samples == 0 {
        let never = "no worker ever told its account";
        outcome.objections.push(never.to_owned());
    }
    if outcome.findings.given_up > 0 && !clickhouse_was_disturbed(&entries, since) {
        outcome.objections.push(format!(
            "{} good records were dead-lettered though nothing had happened to ClickHouse",
            outcome.findings.given_up
        ));
    }
    outcome.objections.extend(objections(&entries, since));
    outcome.tally = tally(&entries[since..]);
    outcome.exits = exits(&entries[since..]);
    outcome.took = started.elapsed();
    Ok(outcome)
}

/// Rows beyond the first of their record.
fn doubles(findings: &Findings, rows: &[crate::records::Row]) -> u64 {
    let of = |id: &String| rows.iter().filter(|row| row.raw_id == *id).count() as u64;
    findings.doubled.iter().map(|id| of(id) - 1).sum()
}

/// Everything in the plan at its time; returns when all of it is over.
async fn carry_out(system: &System, plan: &Plan) {
    let started = tokio::time::Instant::now();
    let steps = plan.steps.iter().map(|step| async move {
        tokio::time::sleep_until(started + step.at).await;
        system.act(step.action).await;
    });
    futures::future::join_all(steps).await;
}
