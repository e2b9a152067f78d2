//! The contract, by property: whatever the payload, a normalizer answers, and
//! its two answers agree about what is malformed.

use super::batch;
use super::payloads::Record;
use cdr_plugin_host::Normalizer;
use cdr_plugin_host::fixtures::Answer;
use serde::Serialize;
use std::fmt;

/// Records that are asked about at once.
const TOGETHER: usize = 100;
/// When enough is known: so many breaches that differ, so many payloads with one,
/// so many that ran into a deadline and took their time.
const ENOUGH: usize = 5;
const ENOUGH_PAYLOADS: usize = 200;
const ENOUGH_SLOW: usize = 5;
/// Tries to make a payload smaller. Each that runs into a deadline takes as long.
const SHRINKING: usize = 500;
const SHRINKING_SLOWLY: usize = 20;

/// What was tried, and what came of it.
#[derive(Serialize)]
pub struct Contract {
    generated: usize,
    seed: u64,
    breaches: Vec<Breach>,
}

/// A record that the normalizer does not answer as it must.
#[derive(Serialize)]
struct Breach {
    #[serde(flatten)]
    kind: Kind,
    /// How many records had the like.
    records: usize,
    /// Where its payload comes from, before it was made smaller.
    record: String,
    received_at: i64,
    payload: String,
    payload_hex: String,
}

/// How the contract is broken.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "breach", content = "answer", rename_all = "snake_case")]
enum Kind {
    /// It failed in this call.
    Failed {
        call: &'static str,
        kind: String,
        detail: String,
    },
    /// `admit` says malformed, `normalize` this.
    OnlyAdmitCallsItMalformed(serde_json::Value),
    /// `normalize` says malformed, `admit` lets it onto the topic.
    AdmittedThoughMalformed(serde_json::Value),
}

impl Kind {
    /// What is wrong with an answer, if anything is.
    fn of(answer: &Answer) -> Option<Self> {
        let Answer { admit, normalize } = answer;
        for (call, answer) in [("admit", admit), ("normalize", normalize)] {
            if let Some(fault) = answer.get("fault") {
                let text = |key: &str| fault[key].as_str().unwrap_or_default().to_owned();
                return Some(Self::Failed {
                    call,
                    kind: text("kind"),
                    detail: text("detail"),
                });
            }
        }
        let refused = admit["refused"]["code"] == "malformed_json";
        let rejected = normalize["rejected"]["reason"] == "malformed_json";
        if refused && !rejected {
            return Some(Self::OnlyAdmitCallsItMalformed(normalize.clone()));
        }
        if rejected && admit.get("admitted").is_some() {
            return Some(Self::AdmittedThoughMalformed(admit.clone()));
        }
        None
    }

    /// Whether it is the same fault, on another payload.
    fn is_like(&self, other: &Self) -> bool {
        self.gist() == other.gist()
    }

    /// What does not vary with the payload: of a panic, its place in the source.
    fn gist(&self) -> (&str, &str, &str) {
        match self {
            Self::Failed { call, kind, detail } => {
                let place = match detail.starts_with("panicked at") {
                    true => detail.split(": ").next().unwrap_or_default(),
                    false => "",
                };
                (call, kind, place)
            }
            Self::OnlyAdmitCallsItMalformed(_) => ("only admit", "", ""),
            Self::AdmittedThoughMalformed(_) => ("admitted", "", ""),
        }
    }

    fn is_slow(&self) -> bool {
        matches!(self, Self::Failed { kind, .. } if kind == "deadline")
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { call, kind, detail } => write!(out, "{call} fails: {kind}: {detail}"),
            Self::OnlyAdmitCallsItMalformed(answer) => write!(
                out,
                "admit refuses it as malformed_json, normalize does not: {answer}"
            ),
            Self::AdmittedThoughMalformed(answer) => write!(
                out,
                "normalize rejects it as malformed_json, but admit lets it onto the topic: {answer}"
            ),
        }
    }
}

/// Asks about all records, `generated` of which were made from `seed`.
pub async fn check(
    normalizer: &Normalizer,
    records: &[&Record],
    generated: usize,
    seed: u64,
) -> anyhow::Result<Contract> {
    let mut breaches: Vec<Breach> = Vec::new();
    let (mut broken, mut slow) = (0, 0);
    'all: for part in records.chunks(TOGETHER) {
        let answers = Answer::to(batch(part.iter().copied())?, normalizer).await?;
        for (record, answer) in part.iter().zip(answers) {
            let Some(kind) = Kind::of(&answer) else {
                continue;
            };
            broken += 1;
            slow += usize::from(kind.is_slow());
            match breaches.iter_mut().find(|known| known.kind.is_like(&kind)) {
                Some(known) => known.records += 1,
                None => breaches.push(Breach::new(normalizer, record, kind).await?),
            }
            if breaches.len() == ENOUGH || broken == ENOUGH_PAYLOADS || slow == ENOUGH_SLOW {
                break 'all;
            }
        }
    }
    Ok(Contract {
        generated,
        seed,
        breaches,
    })
}

impl Breach {
    async fn new(normalizer: &Normalizer, record: &Record, kind: Kind) -> anyhow::Result<Self> {
        let (smallest, kind) = shrunk(normalizer, record, kind).await?;
        Ok(Self {
            kind,
            records: 1,
            payload: smallest.shown(),
            payload_hex: hex::encode(&smallest.payload),
            record: smallest.origin,
            received_at: smallest.received_at,
        })
    }
}

/// A smaller record with the same fault: parts of its payload are left out as
/// long as the fault stays.
async fn shrunk(
    normalizer: &Normalizer,
    record: &Record,
    kind: Kind,
) -> anyhow::Result<(Record, Kind)> {
    let mut tries = match kind.is_slow() {
        true => SHRINKING_SLOWLY,
        false => SHRINKING,
    };
    let (mut smallest, mut kind) = (record.clone(), kind);
    let mut step = smallest.payload.len().div_ceil(2);
    while step > 0 {
        let mut start = 0;
        while start < smallest.payload.len() && tries > 0 {
            tries -= 1;
            let end = (start + step).min(smallest.payload.len());
            let mut smaller = smallest.clone();
            smaller.payload.drain(start..end);
            let answers = Answer::to(batch([&smaller])?, normalizer).await?;
            match answers.first().and_then(Kind::of) {
                Some(found) if found.is_like(&kind) => (smallest, kind) = (smaller, found),
                _ => start = end,
            }
        }
        step /= 2;
    }
    Ok((smallest, kind))
}

impl Contract {
    /// Whether the normalizer failed on any record.
    pub fn has_faults(&self) -> bool {
        self.breaches
            .iter()
            .any(|breach| matches!(breach.kind, Kind::Failed { .. }))
    }

    pub fn failure(&self) -> Option<String> {
        let records: usize = self.breaches.iter().map(|breach| breach.records).sum();
        (records > 0).then(|| format!("{records} payloads break the contract"))
    }
}

impl fmt::Display for Contract {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for breach in &self.breaches {
            writeln!(
                out,
                "BREACH       {}\n  {} (made smaller), received at {}; {} like it\n  payload  {}",
                breach.kind,
                breach.record,
                breach.received_at,
                breach.records - 1,
                breach.payload
            )?;
        }
        let Self {
            generated, seed, ..
        } = self;
        let what = match self.breaches.len() {
            0 => "no fault, admit and normalize agree".to_owned(),
            1 => "broken in 1 way".to_owned(),
            ways => format!("broken in {ways} ways"),
        };
        write!(
            out,
            "contract     {what} ({generated} generated payloads; the same ones again: --seed {seed})"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_malformed_is_so_for_both_questions() {
        let breach = |admit, normalize| Kind::of(&Answer { admit, normalize });
        let admitted = || json!({"admitted": {"key": "k", "source": null}});
        let refused = |code: &str| json!({"refused": {"code": code, "field": null, "detail": ""}});
        let row = || json!({"row": {}});
        let rejected =
            |reason: &str| json!({"rejected": {"reason": reason, "field": null, "detail": ""}});
        let malformed = "malformed_json";

        assert_eq!(breach(admitted(), row()), None);
        assert_eq!(breach(admitted(), rejected("invalid_epoch")), None);
        assert_eq!(breach(refused(malformed), rejected(malformed)), None);
        assert_eq!(breach(refused("invalid_type"), row()), None);
        assert_eq!(
            breach(refused("missing_required_field"), rejected(malformed)),
            None
        );
        assert!(matches!(
            breach(refused(malformed), row()),
            Some(Kind::OnlyAdmitCallsItMalformed(_))
        ));
        assert!(matches!(
            breach(refused(malformed), rejected("invalid_epoch")),
            Some(Kind::OnlyAdmitCallsItMalformed(_))
        ));
        assert!(matches!(
            breach(admitted(), rejected(malformed)),
            Some(Kind::AdmittedThoughMalformed(_))
        ));
        let fault = || json!({"fault": {"kind": "trap", "detail": "unreachable"}});
        assert!(matches!(
            breach(admitted(), fault()),
            Some(Kind::Failed {
                call: "normalize",
                ..
            })
        ));
        assert!(matches!(
            breach(fault(), fault()),
            Some(Kind::Failed { call: "admit", .. })
        ));
    }
}
