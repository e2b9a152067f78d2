//! What a run of swaps came to, and whether that is good. Pure.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use super::memory::{Sample, peak};
use super::shelf::{COLD, GOOD, number};
use crate::judge::Findings;

/// What a host may hold more at the end of the changes than at their beginning, in
/// bytes: less than the compiled code of one version.
const MORE_MEMORY: u64 = 32 << 20;

/// When each part of a run begins, and when the last ends.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// One version serves.
    pub before: Duration,
    /// Versions change.
    pub during: Duration,
    /// One version serves again.
    pub after: Duration,
    /// All is over.
    pub end: Duration,
}

/// A host.
#[derive(Debug, Clone)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// How often another version began to serve.
    pub swaps: u64,
    /// How often it refused one.
    pub refusals: u64,
    /// Its resident memory.
    pub memory: Vec<Sample>,
}

/// Rows of a version that have the same in the column that came with 1.1.0.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
pub struct VersionRows {
    /// The version that says it made them.
    pub version: String,
    /// What they have there.
    pub roaming: String,
    /// How many.
    pub rows: u64,
}

/// Everything that was seen.
#[derive(Debug, Clone)]
pub struct Report {
    /// When its parts began.
    pub times: Times,
    /// Activations of good versions and of what must not serve.
    pub activations: (u64, u64),
    /// How long every host took to follow a version that it had to compile.
    pub cold: Duration,
    /// How long `cdr plugin rollback` took, until every host followed it.
    pub rollback: Duration,
    /// Rows in the table, not under FINAL.
    pub physical_rows: u64,
    /// The judgement of what landed.
    pub findings: Findings,
    /// How often each answer came.
    pub answers: BTreeMap<String, u64>,
    /// When each post began and how long it took.
    pub latencies: Vec<(Duration, Duration)>,
    /// The hosts.
    pub hosts: Vec<Host>,
    /// What each version made.
    pub versions: Vec<VersionRows>,
    /// What else is not as it must be.
    pub objections: Vec<String>,
}

impl Report {
    /// Posts that were answered neither 202 nor 400.
    fn failed(&self) -> u64 {
        let good = |answer: &str| matches!(answer, "202" | "400");
        let answers = self.answers.iter();
        answers
            .filter(|(answer, _)| !good(answer))
            .map(|(_, count)| count)
            .sum()
    }

    /// Everything that is not as it must be; nothing where all is well.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = self.objections.clone();
        let findings = &self.findings;
        for (what, of) in [
            ("lost", &findings.lost),
            ("doubled", &findings.doubled),
            ("unexpected", &findings.unexpected),
            ("wrong", &findings.wrong),
        ] {
            faults.extend(of.iter().take(10).map(|one| format!("{what}: {one}")));
        }
        // Nothing was broken, so nothing of this is to be excused.
        for (what, count) in [
            ("posts failed", self.failed()),
            ("records were not answered", findings.unanswered),
            ("good records were dead-lettered", findings.given_up),
            ("records are a row and a dead letter", findings.both),
            ("dead letters came twice", findings.dead_letters_doubled),
        ] {
            if count > 0 {
                faults.push(format!("{count} {what}"));
            }
        }
        faults.extend(self.versions.iter().filter_map(VersionRows::fault));
        if self.physical_rows != findings.rows {
            faults.push(format!(
                "{} rows were written, {} stay under FINAL",
                self.physical_rows, findings.rows
            ));
        }
        let sum: u64 = self.versions.iter().map(|version| version.rows).sum();
        if sum != findings.rows {
            faults.push(format!("versions made {sum} rows of {}", findings.rows));
        }
        for host in &self.hosts {
            if host.swaps < 2 || host.refusals < 1 {
                faults.push(format!(
                    "{} swapped {} times and refused {}: the changes passed it by",
                    host.name, host.swaps, host.refusals
                ));
            }
            match self.memory(host) {
                [_, Some(early), Some(late)] if late > early + MORE_MEMORY => faults.push(format!(
                    "{} grew from {} to {} MiB while versions changed",
                    host.name,
                    early >> 20,
                    late >> 20
                )),
                [_, Some(_), Some(_)] => {}
                _ => faults.push(format!("the memory of {} was not seen", host.name)),
            }
        }
        faults
    }

    /// The most it held before, in the first half of the changes, and in the second.
    fn memory(&self, host: &Host) -> [Option<u64>; 3] {
        let Times {
            before,
            during,
            after,
            ..
        } = self.times;
        let middle = (during + after) / 2;
        [(before, during), (during, middle), (middle, after)]
            .map(|(from, to)| peak(&host.memory, from, to))
    }

    fn latencies(&self, from: Duration, to: Duration) -> Vec<Duration> {
        let mut all: Vec<Duration> = self
            .latencies
            .iter()
            .filter(|(at, _)| (from..to).contains(at))
            .map(|(_, took)| *took)
            .collect();
        all.sort_unstable();
        all
    }
}

impl VersionRows {
    /// Whether these rows can't be of that version.
    fn fault(&self) -> Option<String> {
        let mut known = GOOD.iter().chain([&COLD]);
        let Some(text) = known.find(|text| number(text) == self.version) else {
            return Some(format!("{} rows of version {}", self.rows, self.version));
        };
        let expected = match text.contains("+roaming") {
            true => self.version.as_str(),
            false => "",
        };
        (self.roaming != expected).then(|| {
            format!(
                "{} rows of version {} have roaming={:?}, not {expected:?}",
                self.rows, self.version, self.roaming
            )
        })
    }
}

/// The value that so many thousandths of a sorted list do not exceed.
fn quantile(sorted: &[Duration], thousandths: usize) -> Duration {
    let rank = (sorted.len() * thousandths).div_ceil(1000);
    sorted
        .get(rank.saturating_sub(1))
        .copied()
        .unwrap_or_default()
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Times {
            before,
            during,
            after,
            end,
        } = self.times;
        writeln!(
            f,
            "\nposts            answers/s       p50       p99     p99.9       max"
        )?;
        for (name, from, to) in [
            ("before", before, during),
            ("during", during, after),
            ("after", after, end),
        ] {
            let all = self.latencies(from, to);
            let ms = |thousandths| quantile(&all, thousandths).as_secs_f64() * 1000.0;
            writeln!(
                f,
                "{name:<16} {:>9.0} {:>6.1} ms {:>6.1} ms {:>6.1} ms {:>6.1} ms",
                all.len() as f64 / (to - from).as_secs_f64(),
                ms(500),
                ms(990),
                ms(999),
                ms(1000),
            )?;
        }
        writeln!(
            f,
            "\nhosts                swaps  refusals   MiB before   in the first half   in the second"
        )?;
        for host in &self.hosts {
            let mib = |bytes: Option<u64>| bytes.map_or(0, |bytes| bytes >> 20);
            let [before, early, late] = self.memory(host).map(mib);
            writeln!(
                f,
                "{:<20} {:>5} {:>9} {before:>12} {early:>19} {late:>15}",
                host.name, host.swaps, host.refusals
            )?;
        }
        writeln!(
            f,
            "  of {} activations of good versions, {} of others",
            self.activations.0, self.activations.1
        )?;
        writeln!(
            f,
            "  all follow a rollback after {:.1} s, and a version that each has to compile after {:.1} s",
            self.rollback.as_secs_f64(),
            self.cold.as_secs_f64()
        )?;
        writeln!(f, "\nrows by version")?;
        for version in &self.versions {
            writeln!(f, "{:<20} {:>9}", version.version, version.rows)?;
        }
        let findings = &self.findings;
        let swaps: u64 = self.hosts.iter().map(|host| host.swaps).sum();
        let refusals: u64 = self.hosts.iter().map(|host| host.refusals).sum();
        write!(
            f,
            "\nswaps={swaps} refusals={refusals} sent={} acked={} failed={} rows={} dead_letters={} lost={} doubled={}",
            findings.sent,
            findings.acked,
            self.failed(),
            findings.rows,
            findings.dead_letters,
            findings.lost.len(),
            findings.doubled.len(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn good() -> Report {
        let mib = |at: u64, mib: u64| (seconds(at), mib << 20);
        Report {
            times: Times {
                before: seconds(0),
                during: seconds(10),
                after: seconds(20),
                end: seconds(30),
            },
            activations: (10, 10),
            cold: seconds(2),
            rollback: seconds(1),
            physical_rows: 3,
            findings: Findings {
                sent: 3,
                acked: 3,
                rows: 3,
                ..Findings::default()
            },
            answers: BTreeMap::from([("202".to_owned(), 3), ("400".to_owned(), 1)]),
            latencies: vec![(seconds(1), seconds(1))],
            hosts: vec![Host {
                name: "api".to_owned(),
                swaps: 10,
                refusals: 10,
                memory: vec![mib(1, 100), mib(11, 180), mib(19, 182)],
            }],
            versions: [("1.0.0", "", 1), ("1.1.0", "1.1.0", 2)]
                .map(|(version, roaming, rows)| VersionRows {
                    version: version.to_owned(),
                    roaming: roaming.to_owned(),
                    rows,
                })
                .into(),
            objections: Vec::new(),
        }
    }

    #[test]
    fn each_fault_is_found() {
        assert_eq!(good().faults(), [""; 0]);
        type Change = fn(&mut Report);
        let changes: [(&str, Change); 9] = [
            ("4 rows were written, 3 stay", |report| {
                report.physical_rows = 4;
            }),
            ("posts failed", |report| {
                report.answers.insert("503".to_owned(), 1);
            }),
            ("lost: s-1", |report| {
                report.findings.lost.push("s-1".to_owned())
            }),
            ("good records were dead-lettered", |report| {
                report.findings.given_up = 1;
            }),
            ("the changes passed it by", |report| {
                report.hosts[0].refusals = 0;
            }),
            ("grew from 180 to 300 MiB", |report| {
                report.hosts[0].memory.push((seconds(18), 300 << 20));
            }),
            ("was not seen", |report| report.hosts[0].memory.clear()),
            ("have roaming=\"\", not \"1.1.0\"", |report| {
                report.versions[1].roaming.clear();
            }),
            ("rows of version 9.2.0", |report| {
                report.versions[0].version = "9.2.0".to_owned();
            }),
        ];
        for (words, change) in changes {
            let mut report = good();
            change(&mut report);
            let faults = report.faults().join("\n");
            assert!(faults.contains(words), "{words}: {faults}");
        }
    }

    #[test]
    fn quantiles_are_values_that_were_seen() {
        let sorted: Vec<Duration> = (1..=100).map(seconds).collect();
        assert_eq!(quantile(&sorted, 500), seconds(50));
        assert_eq!(quantile(&sorted, 990), seconds(99));
        assert_eq!(quantile(&sorted, 1000), seconds(100));
        assert_eq!(quantile(&[], 500), Duration::ZERO);
    }
}
