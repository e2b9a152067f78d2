//! What a run of load came to, and whether that is good. Pure.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use super::schedule::Schedule;
use super::tally::{Latencies, Tally};
use super::topic::Landed;

/// What the API held, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// The most of the whole run.
    pub max: u64,
    /// The most in the first half of the overload.
    pub first_half: u64,
    /// The most in its second half.
    pub last_half: u64,
}

/// Everything that was seen.
#[derive(Debug, Clone)]
pub struct Report {
    /// Records a second that the closed loop got accepted.
    pub saturation: f64,
    /// What was sent after that.
    pub schedule: Schedule,
    /// From its first request to its last answer.
    pub took: Duration,
    /// The closed loop.
    pub closed: Tally,
    /// The overload.
    pub open: Tally,
    /// The memory of the API; none if it was not seen.
    pub memory: Option<Memory>,
    /// What it may hold, in MiB.
    pub max_memory_mib: Option<u64>,
    /// What lies in the topic.
    pub landed: Landed,
    /// What else is not as it must be.
    pub objections: Vec<String>,
}

impl Report {
    /// Everything that is not as it must be; nothing where all is well.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = self.objections.clone();
        for (name, tally) in [("saturation", &self.closed), ("overload", &self.open)] {
            faults.extend(faults_of(name, tally));
        }
        let begun = self.open.sent + self.open.unsent;
        if begun != self.schedule.total() {
            faults.push(format!(
                "{begun} requests were begun of {} that were due",
                self.schedule.total()
            ));
        }
        let landed = &self.landed;
        if landed.lost > 0 {
            let lost = landed.lost_ids.join(", ");
            faults.push(format!(
                "lost, accepted and not in the topic: {} ({lost} …)",
                landed.lost
            ));
        }
        if landed.refused > 0 {
            let refused = landed.refused_ids.join(", ");
            faults.push(format!(
                "in the topic, though a 429 said that they are not: {} ({refused} …)",
                landed.refused
            ));
        }
        if landed.foreign > 0 {
            faults.push(format!(
                "{} records in the topic were never sent",
                landed.foreign
            ));
        }
        match (self.memory, self.max_memory_mib) {
            (None, _) => faults.push("the memory of the API was not seen".to_owned()),
            (Some(memory), Some(limit)) if memory.max > limit << 20 => faults.push(format!(
                "the API held {:.1} MiB, {limit} are allowed",
                mib(memory.max)
            )),
            _ => {}
        }
        faults
    }

    /// Whether the host was asked for more than it took at all; where not, the run is of
    /// a host below its limit.
    fn is_overload(&self) -> bool {
        self.open.status(429) + self.open.status(503) + self.open.unsent > 0
    }

    /// Accepted records a second, of the overload.
    fn accepted_per_s(&self) -> f64 {
        self.open.status(202) as f64 / self.took.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

fn faults_of(name: &str, tally: &Tally) -> Vec<String> {
    let mut faults = Vec::new();
    if tally.wrong > 0 {
        faults.push(format!(
            "{name}: {} answers are not as they must be",
            tally.wrong
        ));
    }
    let transport = tally.transport.iter();
    faults.extend(
        transport.map(|(word, count)| format!("{name}: {count} requests had no answer: {word}")),
    );
    let examples = tally.examples.iter();
    faults.extend(examples.map(|example| format!("{name}: {example}")));
    if tally.status(202) == 0 {
        faults.push(format!("{name}: nothing was accepted"));
    }
    faults
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let open = &self.open;
        writeln!(
            f,
            "\n{:.0} requests a second were due, {:.2} × the {:.0} of saturation; {:.0} a second were accepted",
            self.schedule.rate(),
            self.schedule.rate() / self.saturation,
            self.saturation,
            self.accepted_per_s(),
        )?;
        if !self.is_overload() {
            writeln!(f, "  nothing was refused: this host was below its limit")?;
        }
        if open.unsent > 0 {
            writeln!(
                f,
                "  {} requests found no connection in time and were not sent: that is this program's limit",
                open.unsent
            )?;
        }
        writeln!(
            f,
            "\nlatencies                          p50       p99     p99.9       max"
        )?;
        for (name, latencies) in [
            ("accepted, since it was due", &open.accepted_due),
            ("accepted, since it was sent", &open.accepted_sent),
            ("429 and 503, since sent", &open.refused_sent),
            ("waited for a connection", &open.waited),
        ] {
            let [p50, p99, p999, max] = [0.5, 0.99, 0.999, 1.0].map(|share| latencies.ms(share));
            writeln!(
                f,
                "{name:<28} {p50:>6.1} ms {p99:>6.1} ms {p999:>6.1} ms {max:>6.1} ms"
            )?;
        }
        if let Some(memory) = self.memory {
            writeln!(
                f,
                "\nresident memory of the API, MiB: {:.1} at most; {:.1} in the first half of the overload, {:.1} in the last",
                mib(memory.max),
                mib(memory.first_half),
                mib(memory.last_half)
            )?;
        }
        let landed = &self.landed;
        writeln!(
            f,
            "{} records in the topic; {} of them without a 202, {} more than once; {} connections were made again",
            landed.records, landed.unconfirmed, landed.doubled, open.reconnects
        )?;
        self.last_line(f)
    }
}

impl Report {
    fn last_line(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let open = &self.open;
        let ms = |latencies: &Latencies, share| latencies.ms(share);
        write!(
            f,
            "\nsaturation={:.0} offered={:.0} sent={} accepted={} accepted_per_s={:.0} refused_429={} refused_503={} \
             other={} malformed={} transport_errors={} unsent={} p50_ms={:.1} p99_ms={:.1} p999_ms={:.1} \
             p99_sent_ms={:.1} memory_max_mib={:.1} published_unconfirmed={} lost={}",
            self.saturation,
            self.schedule.rate(),
            open.sent,
            open.status(202),
            self.accepted_per_s(),
            open.status(429),
            open.status(503),
            open.other(),
            // Those of another status are wrong as well, and counted before.
            open.wrong - open.other(),
            open.transport_errors(),
            open.unsent,
            ms(&open.accepted_due, 0.5),
            ms(&open.accepted_due, 0.99),
            ms(&open.accepted_due, 0.999),
            ms(&open.accepted_sent, 0.99),
            self.memory.map_or(0.0, |memory| mib(memory.max)),
            self.landed.unconfirmed,
            self.landed.lost,
        )
    }
}
