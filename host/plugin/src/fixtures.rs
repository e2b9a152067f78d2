//! Fixtures: payloads as files, beside the answers that they must get.
//!
//! | in the folder | holds |
//! |---|---|
//! | `NAME.in.json` | a payload; one line end at its end, which editors put there, is no part of it |
//! | `NAME.in`, `NAME.in.bin` | a payload that is no JSON or no text: exactly the bytes of the file |
//! | `NAME.out.json` | when it counts as received, and what must become of it: `{"received_at": MILLISECONDS, "admit": …, "normalize": …}`, as `cdr plugin eval` prints them |
//! | `settings.json` | the normalizer's settings; without it, `{}` |
//! | `defaults.json` | `{"received_at": MILLISECONDS}` for payloads that have no answer yet; without it, [`DEFAULT_RECEIVED_AT_MS`] |
//! | `README.md`, hidden files | anything; they are not read |
//!
//! Whatever else lies there is refused: a misspelt name would be a fixture that
//! never runs.
//!
//! ```no_run
//! # async fn example(host: cdr_plugin_host::PluginHost) -> Result<(), Box<dyn std::error::Error>> {
//! use cdr_plugin_host::fixtures::Fixtures;
//! use std::path::Path;
//!
//! let fixtures = Fixtures::read(Path::new("fixtures"))?;
//! let file = Path::new("calls@1.2.0.wasm");
//! let normalizer = host.load_file(file, fixtures.settings()).await?;
//! for mismatch in fixtures.check(&normalizer).await? {
//!     eprintln!("{mismatch}");
//! }
//! # Ok(())
//! # }
//! ```

mod error;
mod read;

pub use error::{BlessError, FixtureError};

use crate::batch::Batch;
use crate::error::RunError;
use crate::json;
use crate::normalizer::{Admitted, Normalizer};
use serde_json::{Map, Value, json};
use similar::TextDiff;
use std::fmt;
use std::path::{Path, PathBuf};

/// When a payload counts as received if no file says it: 2023-11-15T22:13:20Z.
pub const DEFAULT_RECEIVED_AT_MS: i64 = 1_700_086_400_000;

/// What became of one payload, in the words of [`json`](mod@crate::json).
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The answer to [`Normalizer::admit`].
    pub admit: Value,
    /// The answer to [`Normalizer::normalize`].
    pub normalize: Value,
}

impl Answer {
    /// Asks a normalizer both questions about each record of a batch.
    ///
    /// # Errors
    /// The batch was not run. Faults of the normalizer are answers.
    pub async fn to(batch: Batch, normalizer: &Normalizer) -> Result<Vec<Self>, RunError> {
        let records = batch.len();
        let admitted = normalizer.admit(batch.clone()).await?;
        let normalized = normalizer.normalize(batch).await?;
        Ok(Self::all(normalizer, &admitted, &normalized, records))
    }

    fn all(
        normalizer: &Normalizer,
        admitted: &[Admitted],
        normalized: &crate::Normalized,
        records: usize,
    ) -> Vec<Self> {
        let columns = &normalizer.manifest().columns;
        admitted
            .iter()
            .map(json::admitted)
            .zip(json::normalized(columns, normalized, records))
            .map(|(admit, normalize)| Self { admit, normalize })
            .collect()
    }
}

/// One payload and the answer that it must get.
#[derive(Debug, Clone)]
pub struct Fixture {
    /// What its files are called, without their endings.
    pub name: String,
    /// The file of the payload.
    pub file: PathBuf,
    /// When it counts as received, in milliseconds since the Unix epoch.
    pub received_at: i64,
    /// The answer; none only where [`Fixtures::read_unblessed`] let it be missing.
    pub expected: Option<Answer>,
}

/// A folder of fixtures; at least one.
#[derive(Debug, Clone)]
pub struct Fixtures {
    dir: PathBuf,
    settings: Option<String>,
    batch: Batch,
    fixtures: Vec<Fixture>,
}

impl Fixtures {
    /// Reads a folder.
    ///
    /// # Errors
    /// Which file, and what is wrong with it.
    pub fn read(dir: &Path) -> Result<Self, FixtureError> {
        let fixtures = read::folder(dir)?;
        match fixtures.iter().find(|fixture| fixture.expected.is_none()) {
            None => Ok(fixtures),
            Some(fixture) => Err(FixtureError::NoAnswer {
                payload: fixture.file.clone(),
                answer: fixtures.answer_file(fixture),
            }),
        }
    }

    /// Reads a folder in which answers may be missing, to [`bless`](Self::bless) it.
    ///
    /// # Errors
    /// Which file, and what is wrong with it.
    pub fn read_unblessed(dir: &Path) -> Result<Self, FixtureError> {
        read::folder(dir)
    }

    /// The settings that the normalizer must be loaded with.
    pub fn settings(&self) -> &str {
        self.settings.as_deref().unwrap_or("{}")
    }

    /// The fixtures, by name.
    pub fn iter(&self) -> std::slice::Iter<'_, Fixture> {
        self.fixtures.iter()
    }

    /// How many there are.
    #[allow(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.fixtures.len()
    }

    /// The payloads, in the order of [`iter`](Self::iter).
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Gives all payloads to a normalizer, in one batch, and compares.
    ///
    /// # Errors
    /// The payloads were not run. Faults of the normalizer are mismatches.
    pub async fn check(&self, normalizer: &Normalizer) -> Result<Vec<Mismatch>, RunError> {
        let answers = Answer::to(self.batch.clone(), normalizer).await?;
        Ok(self
            .changes(&answers)
            .map(|(fixture, answer)| Mismatch {
                name: fixture.name.clone(),
                file: self.answer_file(fixture),
                diff: difference(fixture, answer),
            })
            .collect())
    }

    /// Writes the answers of a normalizer as the expected ones, where they are
    /// missing or different, and says which.
    ///
    /// # Errors
    /// The normalizer failed on a payload (then nothing is written), or a file
    /// can't be written.
    pub async fn bless(&self, normalizer: &Normalizer) -> Result<Vec<Blessed>, BlessError> {
        let admitted = normalizer.admit(self.batch.clone()).await?;
        let normalized = normalizer.normalize(self.batch.clone()).await?;
        let faulty = admitted
            .iter()
            .enumerate()
            .find_map(|(record, answer)| match answer {
                Admitted::Fault(fault) => Some((record, fault)),
                _ => None,
            })
            .or_else(|| {
                let (record, fault) = normalized.faults.first()?;
                Some((*record as usize, fault))
            });
        if let Some((record, fault)) = faulty {
            return Err(BlessError::Fault {
                path: self.answer_file(&self.fixtures[record]),
                fault: fault.clone(),
            });
        }

        let answers = Answer::all(normalizer, &admitted, &normalized, self.len());
        let mut blessed = Vec::new();
        for (fixture, answer) in self.changes(&answers) {
            let file = self.answer_file(fixture);
            std::fs::write(&file, text(fixture.received_at, answer)).map_err(|reason| {
                BlessError::Write {
                    path: file.clone(),
                    reason,
                }
            })?;
            blessed.push(Blessed {
                file,
                is_new: fixture.expected.is_none(),
                diff: difference(fixture, answer),
            });
        }
        Ok(blessed)
    }

    /// The fixtures whose answers are not the expected ones, with those answers.
    fn changes<'a>(
        &'a self,
        answers: &'a [Answer],
    ) -> impl Iterator<Item = (&'a Fixture, &'a Answer)> {
        self.fixtures
            .iter()
            .zip(answers)
            .filter(|(fixture, answer)| fixture.expected.as_ref() != Some(&as_read(answer)))
    }

    fn answer_file(&self, fixture: &Fixture) -> PathBuf {
        self.dir
            .join(format!("{}{}", fixture.name, read::ANSWER_SUFFIX))
    }
}

/// An answer that is not the expected one.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Mismatch {
    /// The fixture.
    pub name: String,
    /// The file of the expected answer.
    pub file: PathBuf,
    /// From the expected answer to the one that came.
    pub diff: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}\n{}", self.file.display(), self.diff)
    }
}

/// An expected answer that was written.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Blessed {
    /// The file.
    pub file: PathBuf,
    /// Whether it was not there before.
    pub is_new: bool,
    /// From what it held to what it holds.
    pub diff: String,
}

impl fmt::Display for Blessed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_new { "new" } else { "changed" };
        write!(out, "{} ({what})\n{}", self.file.display(), self.diff)
    }
}

/// The answer as it comes back from a file: a parser of JSON may round the last
/// digit of a float, and has to do so on both sides.
fn as_read(answer: &Answer) -> Answer {
    let again =
        |value: &Value| serde_json::from_str(&value.to_string()).unwrap_or_else(|_| value.clone());
    Answer {
        admit: again(&answer.admit),
        normalize: again(&answer.normalize),
    }
}

fn difference(fixture: &Fixture, answer: &Answer) -> String {
    let expected = fixture
        .expected
        .as_ref()
        .map_or_else(String::new, |expected| text(fixture.received_at, expected));
    let came = text(fixture.received_at, &as_read(answer));
    TextDiff::from_lines(expected.as_str(), came.as_str())
        .unified_diff()
        .context_radius(2)
        .header("expected", "answered")
        .to_string()
}

/// `NAME.out.json`: keys sorted, whatever features serde_json was built with.
fn text(received_at: i64, answer: &Answer) -> String {
    let all = json!({
        "received_at": received_at,
        "admit": answer.admit,
        "normalize": answer.normalize,
    });
    format!("{:#}\n", sorted(all))
}

fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<(String, Value)> = fields.into_iter().collect();
            fields.sort_by(|left, right| left.0.cmp(&right.0));
            let fields = fields.into_iter().map(|(key, value)| (key, sorted(value)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        other => other,
    }
}
