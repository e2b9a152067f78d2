//! What is done to the parts in a round, drawn from a seed. Pure: the same seed
//! and [`Parts`] give the same plan.
//!
//! The plan can be replayed; the instant at which a fault meets a batch can't.

use std::fmt;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use crate::proxy::Fault;

/// What the system under test is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Parts {
    /// Apache Kafka, ClickHouse, one `cdr api` and two `cdr worker`, each a process
    /// of its own, with proxies between them
    ApacheKafka,
    /// `cdr up`, with the parts that it starts itself
    Embedded,
}

/// A process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// `cdr api`.
    Api,
    /// The first `cdr worker`; the only one of `cdr up`.
    Worker1,
    /// The second.
    Worker2,
    /// The broker.
    Kafka,
    /// ClickHouse.
    ClickHouse,
    /// `cdr up` itself.
    Up,
}

impl Target {
    /// The hosts and their peers, without `cdr up`.
    pub const APART: [Target; 5] = [
        Target::Api,
        Target::Worker1,
        Target::Worker2,
        Target::Kafka,
        Target::ClickHouse,
    ];
    /// `cdr up` and its children.
    pub const EMBEDDED: [Target; 5] = [
        Target::Up,
        Target::Api,
        Target::Worker1,
        Target::Kafka,
        Target::ClickHouse,
    ];

    /// Its name, in logs and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Target::Api => "api",
            Target::Worker1 => "worker-1",
            Target::Worker2 => "worker-2",
            Target::Kafka => "kafka",
            Target::ClickHouse => "clickhouse",
            Target::Up => "up",
        }
    }

    /// Whether it is a worker.
    pub fn is_worker(self) -> bool {
        matches!(self, Target::Worker1 | Target::Worker2)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a proxy stands in front of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Link {
    /// Between the hosts and Kafka.
    Kafka,
    /// Between the workers and ClickHouse.
    ClickHouse,
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Link::Kafka => "kafka",
            Link::ClickHouse => "clickhouse",
        })
    }
}

/// A fault that comes and goes while it lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pulse {
    /// How long it holds.
    pub on: Duration,
    /// How long bytes pass in between.
    pub off: Duration,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// SIGKILL.
    Kill {
        /// To whom.
        target: Target,
        /// When it is started again, after its end.
        again_after: Duration,
    },
    /// SIGTERM.
    Terminate {
        /// To whom.
        target: Target,
        /// When it is started again, after its end.
        again_after: Duration,
    },
    /// SIGSTOP, and SIGCONT later.
    Freeze {
        /// Whom.
        target: Target,
        /// How much later.
        lasts: Duration,
    },
    /// A fault of a proxy.
    Network {
        /// Which one.
        link: Link,
        /// Which fault.
        fault: Fault,
        /// For how long in all.
        lasts: Duration,
        /// In pulses, or all the time.
        pulse: Option<Pulse>,
    },
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Kill {
                target,
                again_after,
            } => {
                write!(f, "kill -9 {target} (back after {})", Short(*again_after))
            }
            Action::Terminate {
                target,
                again_after,
            } => {
                write!(f, "term {target} (back after {})", Short(*again_after))
            }
            Action::Freeze { target, lasts } => write!(f, "stop {target} for {}", Short(*lasts)),
            Action::Network {
                link,
                fault,
                lasts,
                pulse,
            } => {
                write!(f, "{link} net {fault} for {}", Short(*lasts))?;
                match pulse {
                    Some(Pulse { on, off }) => {
                        write!(f, " ({} on, {} off)", Short(*on), Short(*off))
                    }
                    None => Ok(()),
                }
            }
        }
    }
}

/// Seconds, as short as they can be read.
struct Short(Duration);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1}s", self.0.as_secs_f64())
    }
}

/// An action and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Since the start of the round.
    pub at: Duration,
    /// What.
    pub action: Action,
}

/// A round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// From which it was drawn.
    pub seed: u64,
    /// In the order of their times.
    pub steps: Vec<Step>,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.steps.iter().enumerate() {
            let comma = if i == 0 { "" } else { "; " };
            write!(f, "{comma}+{} {}", Short(step.at), step.action)?;
        }
        Ok(())
    }
}

/// The seed of the round after that of `seed`. The first round of a run has the
/// run's own, so that any round can be run alone.
pub fn next_seed(seed: u64) -> u64 {
    StdRng::seed_from_u64(seed).random()
}

/// Draws the plan of a round in which vendors post for `posting`.
pub fn plan(seed: u64, parts: Parts, posting: Duration) -> Plan {
    let mut draw = Draw(StdRng::seed_from_u64(seed));
    let count = match parts {
        Parts::ApacheKafka => draw.0.random_range(1..=4),
        Parts::Embedded => draw.0.random_range(1..=2),
    };
    let first_s = 0.3_f64.min(posting.as_secs_f64() / 4.0);
    let last_s = posting.as_secs_f64() * 0.7;
    let mut steps: Vec<_> = (0..count)
        .map(|_| Step {
            at: draw.seconds(first_s, last_s.max(first_s)),
            action: match parts {
                Parts::ApacheKafka => draw.action(),
                Parts::Embedded => draw.embedded_action(),
            },
        })
        .collect();
    steps.sort_by_key(|step| step.at);
    Plan { seed, steps }
}

/// Longest time that a host is stopped or a network faulty, in seconds.
const LONGEST_S: f64 = 8.0;
/// A worker that is stopped for so long, in seconds, was given up by its group when
/// it wakes up: above the session timeout that workers are run with here.
const ZOMBIE_S: f64 = 6.5;

struct Draw(StdRng);

impl Draw {
    /// In whole milliseconds, so that a plan reads as it is.
    fn seconds(&mut self, from: f64, to: f64) -> Duration {
        let ms = |s: f64| (s * 1000.0) as u64;
        Duration::from_millis(self.0.random_range(ms(from)..=ms(to)))
    }

    fn target(&mut self, of: &[Target]) -> Target {
        // The choice is never among none.
        of.choose(&mut self.0).copied().unwrap_or(Target::Api)
    }

    fn action(&mut self) -> Action {
        match self.0.random_range(0..20) {
            0..7 => Action::Kill {
                target: self.target(&Target::APART),
                again_after: self.seconds(0.0, 2.0),
            },
            7..9 => Action::Terminate {
                target: self.target(&[Target::Api, Target::Worker1, Target::Worker2]),
                again_after: self.seconds(0.0, 2.0),
            },
            9..13 => self.freeze(),
            _ => self.network(),
        }
    }

    fn freeze(&mut self) -> Action {
        let target = self.target(&Target::APART);
        let becomes_zombie = target.is_worker() && self.0.random();
        let shortest_s = if becomes_zombie { ZOMBIE_S } else { 1.0 };
        Action::Freeze {
            target,
            lasts: self.seconds(shortest_s, LONGEST_S),
        }
    }

    fn network(&mut self) -> Action {
        let link = match self.0.random() {
            true => Link::Kafka,
            false => Link::ClickHouse,
        };
        let fault = match self.0.random_range(0..7) {
            // Twice: only this and a long cut use up the attempts of an insert.
            0 | 1 => Fault::Refuse,
            2 => Fault::Delay(Duration::from_millis(self.0.random_range(5..=800))),
            3 => Fault::Hang,
            4 => Fault::Cut,
            5 => Fault::CutAfterWrite,
            _ => Fault::CutMidRequest(self.0.random_range(1..=6000)),
        };
        // Those that end connections would, all the time, let none begin.
        let ends = matches!(
            fault,
            Fault::Cut | Fault::CutAfterWrite | Fault::CutMidRequest(_)
        );
        let pulse = (ends && self.0.random_bool(0.6)).then(|| Pulse {
            on: self.seconds(0.05, 0.4),
            off: self.seconds(0.3, 1.2),
        });
        Action::Network {
            link,
            fault,
            lasts: self.seconds(0.5, LONGEST_S),
            pulse,
        }
    }

    fn embedded_action(&mut self) -> Action {
        let again_after = self.seconds(0.0, 2.0);
        match self.0.random_bool(0.15) {
            true => Action::Terminate {
                target: Target::Up,
                again_after,
            },
            false => Action::Kill {
                target: self.target(&Target::EMBEDDED),
                again_after,
            },
        }
    }
}
