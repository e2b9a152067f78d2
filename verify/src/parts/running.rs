//! A process that runs, whoever started it.

use std::path::PathBuf;
use std::time::Duration;

use cdr_embedded::{ChildProcess, ClickHouse};
use rustix::process::{Pid, Signal, kill_process};

use crate::journal::Exit;

/// How often the end of a process that is not our child is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// A process that runs. Dropping it kills it.
#[derive(Debug)]
pub enum Running {
    /// A child of ours.
    Child(ChildProcess),
    /// ClickHouse, a child too.
    ClickHouse(ClickHouse),
    /// One that another process started.
    Foreign(Foreign),
}

impl Running {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        match self {
            Running::Child(child) => child.pid(),
            Running::ClickHouse(clickhouse) => clickhouse.process.pid(),
            Running::Foreign(foreign) => foreign.pid,
        }
    }

    /// Sends a signal; without effect on one that has ended.
    pub fn signal(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    /// Waits for its end. Can be cancelled and called again.
    pub async fn ended(&mut self) -> Exit {
        let child = match self {
            Running::Child(child) => child,
            Running::ClickHouse(clickhouse) => &mut clickhouse.process,
            Running::Foreign(foreign) => {
                while foreign.is_alive() {
                    tokio::time::sleep(LOOK).await;
                }
                return Exit::default();
            }
        };
        use std::os::unix::process::ExitStatusExt;
        match child.wait().await {
            Ok(status) => Exit {
                code: status.code(),
                signal: status.signal(),
            },
            Err(_) => Exit::default(),
        }
    }
}

/// Sends a signal to a process, if it is there.
pub fn send(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended just now.
        let _ = kill_process(pid, signal);
    }
}

/// A process of which only the id is known.
#[derive(Debug)]
pub struct Foreign {
    pid: u32,
    mark: String,
}

impl Foreign {
    /// The process `pid`, whose command line holds `mark`: a number may have gone to
    /// another process.
    pub fn new(pid: u32, mark: impl Into<String>) -> Self {
        Self {
            pid,
            mark: mark.into(),
        }
    }

    /// Whether it runs; one that is dead and not reaped has no command line.
    fn is_alive(&self) -> bool {
        command_line(self.pid).contains(&self.mark)
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        if self.is_alive() {
            send(self.pid, Signal::KILL);
        }
    }
}

/// The command line of a process, its words separated by blanks; empty where there
/// is none.
pub fn command_line(pid: u32) -> String {
    let raw = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&raw).replace('\0', " ")
}

/// The children of a process, by their command lines.
pub fn children(parent: u32) -> Vec<(u32, String)> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{parent}/task")) else {
        return Vec::new();
    };
    let lists = tasks
        .flatten()
        .map(|task| task.path().join("children"))
        .map(|list: PathBuf| std::fs::read_to_string(list).unwrap_or_default());
    lists
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<u32>>()
        })
        .map(|pid| (pid, command_line(pid)))
        .collect()
}
