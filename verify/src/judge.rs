//! The judgement: what vendors were told, against what landed. Pure: sets in,
//! findings out.
//!
//! | finding | when |
//! |---|---|
//! | lost | a 202, and neither a row nor a dead letter |
//! | doubled | more than one row of a record, under FINAL |
//! | unexpected | a row or a dead letter of a record that nobody sent, or that was refused |
//! | wrong | the wrong answer, row, reason or payload |
//!
//! Dead letters may come twice, and beside a row of the same record (an insert
//! whose answer was lost, and that was then given up); both are counted, neither
//! is a fault. A record that never got an answer to go by may have landed or not.

use std::collections::BTreeMap;

use crate::records::{Fate, Row, Sample};

/// The reason of a good record that ClickHouse did not take in time.
const GIVEN_UP: &str = "normalization_error";

/// What a vendor was told about a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answered {
    /// A 202.
    Accepted,
    /// A 400 with this code.
    Refused(String),
    /// Nothing to go by: every answer was a 503, a broken connection or none.
    Never,
}

/// A record and its answer.
#[derive(Debug, Clone)]
pub struct Posted {
    /// The record.
    pub sample: Sample,
    /// Its answer.
    pub answer: Answered,
}

/// A dead letter, as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// The id in its payload; none where there is none to be read.
    pub raw_id: Option<String>,
    /// Why it is one.
    pub reason: String,
    /// The original payload.
    pub payload: Vec<u8>,
}

/// The verdict.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// Records that were posted.
    pub sent: u64,
    /// Those with a 202.
    pub acked: u64,
    /// Those without any answer to go by.
    pub unanswered: u64,
    /// Rows found.
    pub rows: u64,
    /// Records of which dead letters were found.
    pub dead_letters: u64,
    /// Dead letters beyond the first of their record.
    pub dead_letters_doubled: u64,
    /// Good records among the dead letters.
    pub given_up: u64,
    /// Records that are a row and a dead letter.
    pub both: u64,
    /// Ids of records with a 202 that are nowhere.
    pub lost: Vec<String>,
    /// Ids of records with more than one row.
    pub doubled: Vec<String>,
    /// Ids of what should not be there.
    pub unexpected: Vec<String>,
    /// What else is not as it should be, with its id.
    pub wrong: Vec<String>,
}

impl Findings {
    /// Whether nothing is to be found fault with.
    pub fn is_clean(&self) -> bool {
        self.lost.is_empty()
            && self.doubled.is_empty()
            && self.unexpected.is_empty()
            && self.wrong.is_empty()
    }
}

/// Judges `rows` (under FINAL) and `letters`, which are all there are, by what was
/// `posted`.
pub fn judge(posted: &[Posted], rows: &[Row], letters: &[Letter]) -> Findings {
    let mut findings = Findings {
        sent: posted.len() as u64,
        rows: rows.len() as u64,
        ..Findings::default()
    };
    let mut found_rows: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        found_rows.entry(&row.raw_id).or_default().push(row);
    }
    let mut found_letters: BTreeMap<&str, Vec<&Letter>> = BTreeMap::new();
    for letter in letters {
        match &letter.raw_id {
            Some(id) => found_letters.entry(id).or_default().push(letter),
            None => findings.unexpected.push(format!(
                "a dead letter ({}) without an id: {}",
                letter.reason,
                excerpt(&letter.payload)
            )),
        }
    }
    findings.dead_letters = found_letters.len() as u64;
    for one in posted {
        let id = one.sample.raw_id.as_str();
        let rows = found_rows.remove(id).unwrap_or_default();
        let letters = found_letters.remove(id).unwrap_or_default();
        findings.judge_one(one, &rows, &letters);
    }
    for id in found_rows.keys() {
        findings.unexpected.push(format!("{id}: a row, never sent"));
    }
    for id in found_letters.keys() {
        findings
            .unexpected
            .push(format!("{id}: a dead letter, never sent"));
    }
    findings
}

impl Findings {
    fn judge_one(&mut self, posted: &Posted, rows: &[&Row], letters: &[&Letter]) {
        let Posted { sample, answer } = posted;
        let id = &sample.raw_id;
        let landed = !rows.is_empty() || !letters.is_empty();
        match (answer, &sample.fate) {
            (Answered::Accepted, Fate::Refused(code)) => {
                self.acked += 1;
                self.wrong.push(format!("{id}: 202, not 400 {code}"));
            }
            (Answered::Accepted, _) => {
                self.acked += 1;
                if !landed {
                    self.lost.push(id.clone());
                }
            }
            (Answered::Refused(code), Fate::Refused(expected)) if code == expected => {}
            (Answered::Refused(code), Fate::Refused(expected)) => {
                self.wrong.push(format!("{id}: 400 {code}, not {expected}"));
            }
            (Answered::Refused(code), _) => {
                self.wrong.push(format!("{id}: 400 {code}, not 202"));
            }
            (Answered::Never, _) => self.unanswered += 1,
        }
        let refused = matches!(sample.fate, Fate::Refused(_));
        if landed && (refused || matches!(answer, Answered::Refused(_))) {
            self.unexpected.push(format!(
                "{id}: {} rows and {} dead letters of a refused record",
                rows.len(),
                letters.len()
            ));
            return;
        }
        if rows.len() > 1 {
            self.doubled.push(id.clone());
        }
        self.dead_letters_doubled += letters.len().saturating_sub(1) as u64;
        self.both += u64::from(!rows.is_empty() && !letters.is_empty());
        let reason = match &sample.fate {
            Fate::Row(expected) => {
                for row in rows.iter().filter(|row| **row != expected) {
                    self.wrong
                        .push(format!("{id}: the row is {row:?}, not {expected:?}"));
                }
                self.given_up += u64::from(!letters.is_empty());
                GIVEN_UP
            }
            Fate::DeadLetter(reason) => {
                if !rows.is_empty() {
                    self.wrong
                        .push(format!("{id}: a row of a bad record ({reason})"));
                }
                reason
            }
            Fate::Refused(_) => return,
        };
        for letter in letters {
            if letter.reason != reason {
                self.wrong.push(format!(
                    "{id}: the dead letter says {}, not {reason}",
                    letter.reason
                ));
            }
            if letter.payload != sample.payload {
                self.wrong.push(format!(
                    "{id}: the dead letter holds {}, not the payload that was sent",
                    excerpt(&letter.payload)
                ));
            }
        }
    }
}

fn excerpt(payload: &[u8]) -> String {
    String::from_utf8_lossy(&payload[..payload.len().min(200)]).into_owned()
}
