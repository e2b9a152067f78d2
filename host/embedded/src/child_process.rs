//! One child process, from its start to its end.
//!
//! Every child has its own process group, so that a Ctrl-C in the terminal
//! reaches the parent alone, which then stops its children in order. It dies
//! with its parent ([`parent::follow`](crate::parent::follow)) and with its
//! [`ChildProcess`].

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Child;
use tokio::time::{sleep, timeout};

use crate::parent::PARENT_PID_VARIABLE;
use crate::port::PortFile;
use crate::{EmbeddedError, spawner};

const READY_POLL: Duration = Duration::from_millis(20);
/// How much of a log is shown when a child ends early.
const LOG_TAIL: usize = 600;

/// Where the output of children goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChildLogs {
    /// To the parent's own output: standard output and standard error as they are.
    Inherit,
    /// Both to `NAME.log` in this folder, which is made if missing; appended.
    Files(PathBuf),
}

/// What to run.
#[derive(Debug, Clone)]
pub struct ChildSpec {
    /// What to call it in messages and in the name of its log: "broker".
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Variables in addition to the parent's environment. Their values are never logged.
    pub env: Vec<(OsString, OsString)>,
    /// Where its output goes.
    pub logs: ChildLogs,
}

/// A running child. Dropping it kills the process at once.
#[derive(Debug)]
pub struct ChildProcess {
    name: String,
    pid: u32,
    child: Child,
    log: Option<PathBuf>,
}

/// How a child was stopped.
#[derive(Debug, Clone)]
pub struct Stopped {
    /// Name of the child.
    pub name: String,
    /// Its exit status.
    pub status: ExitStatus,
    /// True when it did not end within the budget and was killed.
    pub killed: bool,
    /// How long it took to end.
    pub took: Duration,
}

impl Stopped {
    /// Whether it ended by itself and with success.
    pub fn is_orderly(&self) -> bool {
        !self.killed && self.status.success()
    }
}

impl ChildProcess {
    /// Starts the program, with nothing on standard input. It is not ready yet.
    ///
    /// # Errors
    /// [`EmbeddedError::Spawn`] when the program can't be run, or a path error for its log.
    pub async fn spawn(spec: ChildSpec) -> Result<Self, EmbeddedError> {
        let ChildSpec {
            name,
            program,
            args,
            env,
            logs,
        } = spec;
        let (log, stdout, stderr) = match &logs {
            ChildLogs::Inherit => (None, Stdio::inherit(), Stdio::inherit()),
            ChildLogs::Files(folder) => {
                let (path, file) = open_log(folder, &name)?;
                let again = file
                    .try_clone()
                    .map_err(|source| EmbeddedError::io("open", &path, source))?;
                (Some(path), Stdio::from(file), Stdio::from(again))
            }
        };
        let mut command = tokio::process::Command::new(&program);
        command
            .args(args)
            .envs(env)
            .env(PARENT_PID_VARIABLE, std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .process_group(0)
            .kill_on_drop(true);
        let spawned = spawner::spawn(command).await;
        let child = spawned.map_err(|source| EmbeddedError::Spawn {
            name: name.clone(),
            program,
            source,
        })?;
        // Only a child that was waited for has none.
        let pid = child.id().unwrap_or_default();
        tracing::debug!(event = "child_started", child = %name, pid, "{name} started, pid {pid}");
        Ok(Self {
            name,
            pid,
            child,
            log,
        })
    }

    /// Its name, as given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id, also after its end.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits until `probe` gives something, asking every 20 ms, and gives up
    /// when the child ends or `budget` is over. The child runs on in the latter case.
    ///
    /// # Errors
    /// [`EmbeddedError::EndedEarly`] with the end of its log, or [`EmbeddedError::NotReady`].
    pub async fn ready_when<T>(
        &mut self,
        budget: Duration,
        mut probe: impl AsyncFnMut() -> Option<T>,
    ) -> Result<T, EmbeddedError> {
        let asking = async {
            loop {
                if let Some(ready) = probe().await {
                    return ready;
                }
                sleep(READY_POLL).await;
            }
        };
        tokio::select! {
            ready = timeout(budget, asking) => ready.map_err(|_| EmbeddedError::NotReady {
                name: self.name.clone(),
                budget,
                output: self.output(),
            }),
            ended = self.child.wait() => {
                let status = ended.map_err(|source| self.untracked(source))?;
                Err(EmbeddedError::EndedEarly {
                    name: self.name.clone(),
                    status,
                    reason: self.last_words(),
                })
            }
        }
    }

    /// Waits until the child has written its port file.
    pub(crate) async fn ready_by(
        &mut self,
        file: &PortFile,
        budget: Duration,
    ) -> Result<u16, EmbeddedError> {
        let ready = self.ready_when(budget, async || file.port()).await;
        ready.map_err(|error| match (error, file.reason()) {
            (EmbeddedError::EndedEarly { name, status, .. }, Some(reason)) => {
                EmbeddedError::EndedEarly {
                    name,
                    status,
                    reason,
                }
            }
            (error, _) => error,
        })
    }

    /// Waits for its end. Can be cancelled and called again.
    ///
    /// # Errors
    /// [`EmbeddedError::Untracked`] when the system can't say.
    pub async fn wait(&mut self) -> Result<ExitStatus, EmbeddedError> {
        self.child
            .wait()
            .await
            .map_err(|source| self.untracked(source))
    }

    /// Asks it to end (`SIGTERM`). Without effect on one that has ended.
    ///
    /// # Errors
    /// [`EmbeddedError::Untracked`] when the signal can't be sent.
    pub fn terminate(&self) -> Result<(), EmbeddedError> {
        self.signal(Signal::SIGTERM)
    }

    /// Kills it (`SIGKILL`) and waits for its end.
    ///
    /// # Errors
    /// [`EmbeddedError::Untracked`] when the system won't.
    pub async fn kill(&mut self) -> Result<ExitStatus, EmbeddedError> {
        self.signal(Signal::SIGKILL)?;
        self.wait().await
    }

    /// Asks it to end, waits up to `budget`, then kills it.
    ///
    /// # Errors
    /// [`EmbeddedError::Untracked`] when the system can't be asked.
    pub async fn stop(&mut self, budget: Duration) -> Result<Stopped, EmbeddedError> {
        let since = Instant::now();
        self.terminate()?;
        let (status, killed) = match timeout(budget, self.child.wait()).await {
            Ok(ended) => (ended.map_err(|source| self.untracked(source))?, false),
            Err(_) => (self.kill().await?, true),
        };
        let stopped = Stopped {
            name: self.name.clone(),
            status,
            killed,
            took: since.elapsed(),
        };
        if stopped.is_orderly() {
            tracing::debug!(event = "child_stopped", child = %self.name, "{} stopped", self.name);
        } else {
            tracing::warn!(
                event = "child_stopped", child = %self.name, %status, killed,
                "{} did not stop in order: {status}", self.name
            );
        }
        Ok(stopped)
    }

    fn signal(&self, signal: Signal) -> Result<(), EmbeddedError> {
        // The pid is ours for as long as nobody has waited for its end.
        let Some(pid) = self.child.id().and_then(|pid| i32::try_from(pid).ok()) else {
            return Ok(());
        };
        match kill(Pid::from_raw(pid), signal) {
            Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
            Err(errno) => Err(self.untracked(errno.into())),
        }
    }

    fn untracked(&self, source: std::io::Error) -> EmbeddedError {
        EmbeddedError::Untracked {
            name: self.name.clone(),
            source,
        }
    }

    fn output(&self) -> String {
        self.log
            .as_ref()
            .map_or("on this terminal".to_owned(), |log| {
                log.display().to_string()
            })
    }

    fn last_words(&self) -> String {
        let Some(log) = &self.log else {
            return "see its output above".to_owned();
        };
        let text = fs::read(log).unwrap_or_default();
        let tail = text
            .get(text.len().saturating_sub(LOG_TAIL)..)
            .unwrap_or_default();
        let tail = String::from_utf8_lossy(tail);
        match tail.trim() {
            "" => format!("it wrote nothing to {}", log.display()),
            words => format!("{words} (from {})", log.display()),
        }
    }
}

fn open_log(folder: &Path, name: &str) -> Result<(PathBuf, File), EmbeddedError> {
    fs::create_dir_all(folder).map_err(|source| EmbeddedError::io("create", folder, source))?;
    let path = folder.join(format!("{name}.log"));
    let file = OpenOptions::new().create(true).append(true).open(&path);
    match file {
        Ok(file) => Ok((path, file)),
        Err(source) => Err(EmbeddedError::io("write", path, source)),
    }
}
