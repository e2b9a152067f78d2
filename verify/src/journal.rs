//! What was done to the parts and how they took it, with times: the record of a
//! run that is shown when a round fails, and from which ends are judged.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::plan::{Link, Target};
use crate::proxy::Fault;

/// Why a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// SIGKILL of ours.
    Killed,
    /// SIGTERM of ours, so long before.
    Terminated(Duration),
    /// A child of it was killed by us.
    ChildKilled,
    /// Nobody asked it to.
    Itself,
}

/// How a process ended; neither is known of one that is not our child.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exit {
    /// Its exit code.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.signal) {
            (Some(code), _) => write!(f, "exit code {code}"),
            (None, Some(signal)) => write!(f, "signal {signal}"),
            (None, None) => f.write_str("gone"),
        }
    }
}

/// What happened to a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// It was started.
    Started {
        /// Its process id.
        pid: u32,
    },
    /// It could not be started.
    StartFailed(String),
    /// SIGKILL was sent.
    Killed,
    /// SIGTERM was sent.
    Terminated,
    /// A child of it got SIGKILL.
    ChildKilled(Target),
    /// SIGSTOP was sent, for so long.
    Frozen(Duration),
    /// SIGCONT was sent.
    Thawed,
    /// It did not end in time after SIGTERM, and gets SIGKILL.
    Overdue(Duration),
    /// It ended.
    Ended {
        /// Why.
        cause: Cause,
        /// How.
        exit: Exit,
        /// The last that it logged.
        words: String,
    },
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Started { pid } => write!(f, "started, pid {pid}"),
            What::StartFailed(why) => write!(f, "could not be started: {why}"),
            What::Killed => f.write_str("SIGKILL"),
            What::Terminated => f.write_str("SIGTERM"),
            What::ChildKilled(child) => write!(f, "SIGKILL to its child {child}"),
            What::Frozen(time) => write!(f, "SIGSTOP for {:.1}s", time.as_secs_f64()),
            What::Thawed => f.write_str("SIGCONT"),
            What::Overdue(time) => {
                write!(f, "has not ended {:.0}s after SIGTERM", time.as_secs_f64())
            }
            What::Ended { cause, exit, words } => {
                write!(f, "ended, {exit} (")?;
                match cause {
                    Cause::Killed => f.write_str("killed")?,
                    Cause::Terminated(after) => {
                        write!(f, "{:.1}s after SIGTERM", after.as_secs_f64())?;
                    }
                    Cause::ChildKilled => f.write_str("its child was killed")?,
                    Cause::Itself => f.write_str("by itself")?,
                }
                f.write_str(")")?;
                match words.as_str() {
                    "" => Ok(()),
                    words => write!(f, ": {words}"),
                }
            }
        }
    }
}

/// What an entry is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A process.
    Process(Target, What),
    /// A proxy: what holds from now on.
    Network(Link, Fault),
    /// The run itself, in words.
    Note(String),
}

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Since the start of the run.
    pub at: Duration,
    /// What.
    pub event: Event,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:9.3}  ", self.at.as_secs_f64())?;
        match &self.event {
            Event::Process(target, what) => write!(f, "{target} {what}"),
            Event::Network(link, fault) => write!(f, "network of {link}: {fault}"),
            Event::Note(text) => f.write_str(text),
        }
    }
}

/// The journal. Clones share it.
#[derive(Debug, Clone)]
pub struct Journal {
    started: Instant,
    entries: Arc<Mutex<Vec<Entry>>>,
}

impl Default for Journal {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            entries: Arc::default(),
        }
    }
}

impl Journal {
    /// Writes an entry.
    pub fn note(&self, event: Event) {
        let at = self.started.elapsed();
        self.entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Entry { at, event });
    }

    /// Writes what happened to a process.
    pub fn process(&self, target: Target, what: What) {
        self.note(Event::Process(target, what));
    }

    /// All entries so far.
    pub fn entries(&self) -> Vec<Entry> {
        self.entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// How many there are so far.
    pub fn len(&self) -> usize {
        self.entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
