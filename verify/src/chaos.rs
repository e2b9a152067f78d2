//! A run of rounds, as `cdr-chaos` makes it: what is said on the way, what is shown
//! when a round fails, and the last line.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::ends::Tally;
use crate::journal::{Entry, Journal};
use crate::judge::Findings;
use crate::parts::launcher::tail;
use crate::parts::{Build, System};
use crate::plan::{Parts, next_seed, plan};
use crate::proxy::Counts;
use crate::round::{Before, Outcome, run};
use crate::vendors::Habits;

/// How many of a kind of findings are shown.
const SHOWN: usize = 10;
/// Lines of each log that are shown.
const LOG_LINES: usize = 40;
/// Entries of the journal before the round that are shown.
const EARLIER: usize = 20;

/// A run.
#[derive(Debug, Clone)]
pub struct Run {
    /// How many rounds.
    pub rounds: u32,
    /// Seed of the first.
    pub seed: u64,
    /// What the system is made of.
    pub parts: Parts,
    /// How vendors go about it.
    pub habits: Habits,
}

/// Sums of a run.
#[derive(Debug, Clone, Default)]
struct Sums {
    rounds: u32,
    tally: Tally,
    findings: Findings,
    attempts: u64,
    samples: u64,
    answers: BTreeMap<String, u64>,
    objections: u64,
    longest: Duration,
}

impl Sums {
    fn add(&mut self, outcome: &Outcome) {
        let Outcome {
            findings,
            tally,
            posting,
            ..
        } = outcome;
        self.rounds += 1;
        self.tally += *tally;
        self.attempts += posting.attempts;
        self.samples += outcome.samples;
        for (answer, count) in &posting.answers {
            *self.answers.entry(answer.clone()).or_default() += count;
        }
        self.objections += outcome.objections.len() as u64;
        self.longest = self.longest.max(outcome.took);
        let sums = &mut self.findings;
        sums.sent += findings.sent;
        sums.acked += findings.acked;
        sums.unanswered += findings.unanswered;
        sums.rows += findings.rows;
        sums.dead_letters += findings.dead_letters;
        sums.dead_letters_doubled += findings.dead_letters_doubled;
        sums.given_up += findings.given_up;
        sums.both += findings.both;
        for (sum, of) in [
            (&mut sums.lost, &findings.lost),
            (&mut sums.doubled, &findings.doubled),
            (&mut sums.unexpected, &findings.unexpected),
            (&mut sums.wrong, &findings.wrong),
        ] {
            sum.extend(of.iter().cloned());
        }
    }

    /// The last two lines of a run.
    fn lines(&self, network: Counts) -> String {
        let Sums {
            tally, findings, ..
        } = self;
        let answers: Vec<_> = self
            .answers
            .iter()
            .map(|(answer, count)| format!("{answer}: {count}"))
            .collect();
        format!(
            "attempts={} ({}) terms={} freezes={} network_faults={} resets={} exits={} given_up={} both={} \
             dead_letters_doubled={} unanswered={} unexpected={} wrong={} objections={} \
             account_samples={} longest_round={:.1}s\n\
             rounds={} kills={} sent={} acked={} rows={} dead_letters={} lost={} doubled={}",
            self.attempts,
            answers.join(", "),
            tally.terms,
            tally.freezes,
            tally.network_faults,
            network.reset,
            tally.exits,
            findings.given_up,
            findings.both,
            findings.dead_letters_doubled,
            findings.unanswered,
            findings.unexpected.len(),
            findings.wrong.len(),
            self.objections,
            self.samples,
            self.longest.as_secs_f64(),
            self.rounds,
            tally.kills,
            findings.sent,
            findings.acked,
            findings.rows,
            findings.dead_letters,
            findings.lost.len(),
            findings.doubled.len(),
        )
    }
}

impl Run {
    /// Makes the run: a line on standard output for each round, the sums at its end.
    /// Stops after the first round that is not good, with all that helps to understand
    /// it. Whether all were good.
    ///
    /// # Errors
    /// The system does not start, or can't be judged.
    pub async fn run(&self, build: Build) -> anyhow::Result<bool> {
        let journal = Journal::default();
        let started = Instant::now();
        println!("==> seed {}, in {}", self.seed, build.folder.display());
        let (folder, logs) = (build.folder.clone(), build.logs());
        let say = |step: &str| println!("==> {step}");
        let system = System::start(self.parts, build, self.seed, journal.clone(), say).await;
        let system = match system {
            Ok(system) => system,
            Err(error) => {
                print!("{}", self.evidence(&journal, 0, &folder));
                return Err(error);
            }
        };
        println!("==> ready after {:.1} s", started.elapsed().as_secs_f64());
        let outcome = self.rounds(&system, &journal, &folder).await;
        let all: Vec<_> = journal.entries().iter().map(Entry::to_string).collect();
        // For whoever keeps the folder; without it nothing is amiss.
        let _ = std::fs::write(logs.join("journal.txt"), all.join("\n"));
        system.stop().await;
        outcome
    }

    async fn rounds(
        &self,
        system: &System,
        journal: &Journal,
        folder: &Path,
    ) -> anyhow::Result<bool> {
        let mut sums = Sums::default();
        let mut before = Before::default();
        let mut seed = self.seed;
        for round in 1..=self.rounds {
            let plan = plan(seed, self.parts, self.habits.posting);
            let prefix = format!("r{round:04}-");
            let since = journal.len();
            let ran = run(system, journal, &plan, &prefix, self.habits, &mut before).await;
            let outcome = match ran {
                Ok(outcome) => outcome,
                Err(error) => {
                    println!("round {round} could not be judged; plan: {plan}");
                    print!("{}", self.evidence(journal, since, folder));
                    return Err(error.context(format!("round {round}, seed {seed}")));
                }
            };
            sums.add(&outcome);
            println!("{}", line(round, self.rounds, seed, &outcome));
            println!("        {plan}");
            for exit in &outcome.exits {
                println!("        {}", exit.trim_start());
            }
            if !outcome.is_good() {
                println!("\nround {round} FAILED\n{}", failing(&outcome));
                print!("{}", self.evidence(journal, since, folder));
                println!("\neverything is kept in {}", folder.display());
                println!("this plan again: {}\n", self.again(seed));
                println!("{}", sums.lines(system.network()));
                return Ok(false);
            }
            seed = next_seed(seed);
        }
        println!("{}", sums.lines(system.network()));
        Ok(true)
    }

    /// The command that replays a round.
    fn again(&self, seed: u64) -> String {
        let recipe = match self.parts {
            Parts::ApacheKafka => "chaos",
            Parts::Embedded => "chaos-up",
        };
        format!(
            "just {recipe} 1 --seed {seed} --seconds-per-round {} --vendors {} --pause-ms {}",
            self.habits.posting.as_secs_f64(),
            self.habits.vendors,
            self.habits.pause.as_millis(),
        )
    }

    /// The journal and the ends of all logs.
    fn evidence(&self, journal: &Journal, since: usize, folder: &Path) -> String {
        let mut text = String::from("\n---- what was done, and how the parts took it\n");
        for entry in journal.entries().iter().skip(since.saturating_sub(EARLIER)) {
            // Writing to a string can't fail.
            let _ = writeln!(text, "{entry}");
        }
        let mut files: Vec<_> = std::fs::read_dir(Build::logs_in(folder))
            .into_iter()
            .flatten()
            .flatten()
            .map(|file| file.path())
            .collect();
        files.sort();
        // Kafka's is where its script has it.
        let of_kafka = folder.join("kafka/kafka.log");
        files.extend(of_kafka.is_file().then_some(of_kafka));
        for file in files {
            let _ = writeln!(text, "\n---- end of {}", file.display());
            let _ = writeln!(text, "{}", tail(&file, LOG_LINES));
        }
        text
    }
}

fn line(round: u32, rounds: u32, seed: u64, outcome: &Outcome) -> String {
    let Outcome {
        findings, tally, ..
    } = outcome;
    let width = rounds.to_string().len();
    format!(
        "{} round {round:width$}/{rounds}  seed {seed:<20}  {:5.1}s (settled in {:4.1}s)  sent {} acked {} rows {} \
         dead {} (doubled {}, given up {}, both {})  kills {} terms {} freezes {} net {} exits {}  attempts {}",
        if outcome.is_good() { "ok " } else { "BAD" },
        outcome.took.as_secs_f64(),
        outcome.settling.as_secs_f64(),
        findings.sent,
        findings.acked,
        findings.rows,
        findings.dead_letters,
        findings.dead_letters_doubled,
        findings.given_up,
        findings.both,
        tally.kills,
        tally.terms,
        tally.freezes,
        tally.network_faults,
        tally.exits,
        outcome.posting.attempts,
    )
}

/// What is wrong with a round, bounded.
fn failing(outcome: &Outcome) -> String {
    let findings = &outcome.findings;
    let mut text = String::new();
    for (what, of) in [
        ("lost", &findings.lost),
        ("doubled", &findings.doubled),
        ("unexpected", &findings.unexpected),
        ("wrong", &findings.wrong),
        ("objections", &outcome.objections),
    ] {
        if of.is_empty() {
            continue;
        }
        let _ = writeln!(text, "{what}: {}", of.len());
        for one in of.iter().take(SHOWN) {
            let _ = writeln!(text, "  {one}");
        }
        if of.len() > SHOWN {
            let _ = writeln!(text, "  and {} more", of.len() - SHOWN);
        }
    }
    text
}
