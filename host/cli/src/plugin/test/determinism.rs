//! The same record gets the same answer, whatever it shares its batch with.

use super::batch;
use super::payloads::Record;
use cdr_plugin_host::Normalizer;
use cdr_plugin_host::fixtures::Answer;
use serde::Serialize;
use std::fmt;

/// What was tried, and what came of it.
#[derive(Serialize)]
pub struct Determinism {
    records: usize,
    differences: Vec<Difference>,
}

/// One record that was answered in two ways.
#[derive(Serialize)]
struct Difference {
    how: &'static str,
    record: String,
    payload: String,
    in_one_batch: String,
    then: String,
}

/// Asks about all records in one batch, then in other ways.
pub async fn check(normalizer: &Normalizer, records: &[&Record]) -> anyhow::Result<Determinism> {
    let forward: Vec<usize> = (0..records.len()).collect();
    let backward: Vec<usize> = forward.iter().rev().copied().collect();
    let first = ask(normalizer, records, &forward, records.len()).await?;
    let mut differences = Vec::new();
    for (how, order, size) in [
        ("a second time", &forward, records.len()),
        ("in reverse", &backward, records.len()),
        ("alone", &forward, 1),
        ("in batches of 7", &forward, 7),
    ] {
        let again = ask(normalizer, records, order, size).await?;
        for (index, record) in records.iter().enumerate() {
            if first[index] != again[index] {
                differences.push(Difference {
                    how,
                    record: record.origin.clone(),
                    payload: record.shown(),
                    in_one_batch: shown(&first[index]),
                    then: shown(&again[index]),
                });
            }
        }
    }
    Ok(Determinism {
        records: records.len(),
        differences,
    })
}

/// The answers by record, asked in this order, in batches of this size.
async fn ask(
    normalizer: &Normalizer,
    records: &[&Record],
    order: &[usize],
    size: usize,
) -> anyhow::Result<Vec<Option<Answer>>> {
    let mut answers = vec![None; records.len()];
    for part in order.chunks(size.max(1)) {
        let batch = batch(part.iter().map(|index| records[*index]))?;
        for (index, answer) in part.iter().zip(Answer::to(batch, normalizer).await?) {
            answers[*index] = Some(answer);
        }
    }
    Ok(answers)
}

fn shown(answer: &Option<Answer>) -> String {
    match answer {
        None => "no answer".to_owned(),
        Some(answer) => format!("{} {}", answer.admit, answer.normalize),
    }
}

impl Determinism {
    pub fn failure(&self) -> Option<String> {
        (!self.differences.is_empty()).then(|| {
            format!(
                "{} answers depend on what else is in the batch",
                self.differences.len()
            )
        })
    }
}

impl fmt::Display for Determinism {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = Vec::new();
        for difference in &self.differences {
            // One of each way is told, the others are like it.
            if told.contains(&difference.how) {
                continue;
            }
            told.push(difference.how);
            writeln!(
                out,
                "DEPENDS      {} {} is answered otherwise than in one batch with all others\n  \
                 payload  {}\n  - {}\n  + {}",
                difference.record,
                difference.how,
                difference.payload,
                difference.in_one_batch,
                difference.then
            )?;
        }
        let ways = "a second time, in reverse, in batches of 1, 7 and all";
        match self.differences.len() {
            0 => write!(
                out,
                "determinism  the same answers {ways} ({} records)",
                self.records
            ),
            count => write!(out, "determinism  {count} answers differ ({ways})"),
        }
    }
}
