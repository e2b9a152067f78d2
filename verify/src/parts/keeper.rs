//! Looks after one process: does to it what it is told, notes how it takes it, and
//! starts it again when it ends, as an orchestrator would.

use std::time::Duration;

use rustix::process::Signal;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::launcher::{Launcher, tail};
use super::running::Running;
use crate::journal::{Cause, Event, Exit, Journal, What};
use crate::plan::Target;

/// What hosts allow themselves after SIGTERM, and what a loaded machine may add.
const DRAIN: Duration = Duration::from_secs(45 + 10);
/// Before a process that ended by itself is started again.
const BACK_OFF: Duration = Duration::from_millis(500);
/// Attempts to start it.
const TRIES: u32 = 3;
/// Bytes of last words that are kept.
const WORDS: usize = 600;

/// What is asked of a keeper.
enum Order {
    Kill {
        again_after: Duration,
    },
    Terminate {
        again_after: Duration,
    },
    Freeze {
        lasts: Duration,
    },
    KillChild {
        child: Target,
        pid: u32,
        again_after: Duration,
    },
    Heal(oneshot::Sender<Result<(), String>>),
    Stop(oneshot::Sender<()>),
}

/// The process as it is now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct State {
    /// Its process id; none while it is not there.
    pub pid: Option<u32>,
    /// How often it was started.
    pub starts: u32,
}

/// A process that is looked after. It is killed when this is dropped.
#[derive(Debug)]
pub struct Keeper {
    target: Target,
    orders: mpsc::UnboundedSender<Order>,
    state: watch::Receiver<State>,
    _task: AbortOnDropHandle<()>,
}

impl Keeper {
    /// Starts the process.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start(
        target: Target,
        launcher: Launcher,
        journal: Journal,
    ) -> anyhow::Result<Self> {
        let (orders, inbox) = mpsc::unbounded_channel();
        let (tell, state) = watch::channel(State::default());
        let mut kept = Kept {
            target,
            launcher,
            journal,
            tell,
            starts: 0,
            process: None,
            asked: None,
            thaw_at: None,
            start_at: None,
            again_after: BACK_OFF,
            waiting: Vec::new(),
        };
        kept.launch().await?;
        Ok(Self {
            target,
            orders,
            state,
            _task: AbortOnDropHandle::new(tokio::spawn(kept.run(inbox))),
        })
    }

    /// Which one.
    pub fn target(&self) -> Target {
        self.target
    }

    /// The process as it is now, and its changes.
    pub fn state(&self) -> watch::Receiver<State> {
        self.state.clone()
    }

    /// SIGKILL; it is started again so long after its end.
    pub fn kill(&self, again_after: Duration) {
        self.order(Order::Kill { again_after });
    }

    /// SIGTERM; it is started again so long after its end.
    pub fn terminate(&self, again_after: Duration) {
        self.order(Order::Terminate { again_after });
    }

    /// SIGSTOP, and SIGCONT so long after it.
    pub fn freeze(&self, lasts: Duration) {
        self.order(Order::Freeze { lasts });
    }

    /// SIGKILL to a child of the process, which is expected to end by that.
    pub fn kill_child(&self, child: Target, pid: u32, again_after: Duration) {
        self.order(Order::KillChild {
            child,
            pid,
            again_after,
        });
    }

    /// Thaws it or starts it at once, and returns when it runs.
    ///
    /// # Errors
    /// It does not start any more.
    pub async fn heal(&self) -> anyhow::Result<()> {
        let (tell, told) = oneshot::channel();
        self.order(Order::Heal(tell));
        told.await?.map_err(anyhow::Error::msg)
    }

    /// Kills it for good; returns when it is gone.
    pub async fn stop(self) {
        let (tell, told) = oneshot::channel();
        self.order(Order::Stop(tell));
        // Without an answer it is gone, too.
        let _ = told.await;
    }

    fn order(&self, order: Order) {
        // The keeper is there for as long as this is.
        let _ = self.orders.send(order);
    }
}

/// What was asked of a process that has not ended yet.
#[derive(Clone, Copy)]
enum Asked {
    Kill,
    Terminate { at: Instant, deadline: Instant },
    KillChild,
}

struct Kept {
    target: Target,
    launcher: Launcher,
    journal: Journal,
    tell: watch::Sender<State>,
    starts: u32,
    process: Option<Running>,
    asked: Option<Asked>,
    thaw_at: Option<Instant>,
    start_at: Option<Instant>,
    again_after: Duration,
    /// Those who wait until it runs.
    waiting: Vec<oneshot::Sender<Result<(), String>>>,
}

impl Kept {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Order>) {
        loop {
            let overdue_at = match self.asked {
                Some(Asked::Terminate { deadline, .. }) => Some(deadline),
                _ => None,
            };
            tokio::select! {
                order = inbox.recv() => match order {
                    Some(Order::Stop(tell)) => {
                        if let Some(mut process) = self.process.take() {
                            process.signal(Signal::KILL);
                            process.ended().await;
                        }
                        let _ = tell.send(());
                        return;
                    }
                    Some(order) => self.follow(order),
                    None => return,
                },
                exit = ended(self.process.as_mut()) => self.note_end(exit),
                () = at(self.thaw_at) => self.thaw(),
                () = at(overdue_at) => self.give_up(),
                () = at(self.start_at) => {
                    self.start_at = None;
                    if let Err(error) = self.launch().await {
                        for waiting in self.waiting.drain(..) {
                            let _ = waiting.send(Err(format!("{}: {error:#}", self.target)));
                        }
                    }
                }
            }
            if self.process.is_some() && self.asked.is_none() && self.thaw_at.is_none() {
                for waiting in self.waiting.drain(..) {
                    // Nobody may wait any more.
                    let _ = waiting.send(Ok(()));
                }
            }
        }
    }

    fn follow(&mut self, order: Order) {
        let now = Instant::now();
        if let Order::Heal(waiting) = order {
            self.waiting.push(waiting);
            if self.thaw_at.is_some() {
                self.thaw();
            }
            if self.process.is_none() {
                self.start_at = Some(now);
            }
            return;
        }
        // What is not there can't be hurt.
        let Some(process) = &self.process else { return };
        match order {
            Order::Kill { again_after } => {
                process.signal(Signal::KILL);
                self.journal.process(self.target, What::Killed);
                (self.asked, self.again_after) = (Some(Asked::Kill), again_after);
            }
            Order::Terminate { again_after } if self.asked.is_none() => {
                process.signal(Signal::TERM);
                self.journal.process(self.target, What::Terminated);
                // Time that it was stopped for is not its own.
                let frozen = self.thaw_at.map_or(Duration::ZERO, |at| at - now);
                self.asked = Some(Asked::Terminate {
                    at: now,
                    deadline: now + frozen + DRAIN,
                });
                self.again_after = again_after;
            }
            Order::Freeze { lasts } => {
                process.signal(Signal::STOP);
                self.journal.process(self.target, What::Frozen(lasts));
                self.thaw_at = self.thaw_at.max(Some(now + lasts));
                if let Some(Asked::Terminate { deadline, .. }) = &mut self.asked {
                    *deadline += lasts;
                }
            }
            Order::KillChild {
                child,
                pid,
                again_after,
            } if self.asked.is_none() => {
                super::running::send(pid, Signal::KILL);
                self.journal.process(self.target, What::ChildKilled(child));
                (self.asked, self.again_after) = (Some(Asked::KillChild), again_after);
            }
            Order::Terminate { .. } | Order::KillChild { .. } | Order::Heal(_) | Order::Stop(_) => {
            }
        }
    }

    fn thaw(&mut self) {
        self.thaw_at = None;
        if let Some(process) = &self.process {
            process.signal(Signal::CONT);
            self.journal.process(self.target, What::Thawed);
        }
    }

    fn give_up(&mut self) {
        if let (Some(process), Some(Asked::Terminate { at, .. })) = (&self.process, self.asked) {
            process.signal(Signal::KILL);
            self.journal
                .process(self.target, What::Overdue(at.elapsed()));
            self.asked = Some(Asked::Kill);
        }
    }

    fn note_end(&mut self, exit: Exit) {
        let now = Instant::now();
        let (cause, again_after) = match self.asked.take() {
            Some(Asked::Kill) => (Cause::Killed, self.again_after),
            Some(Asked::Terminate { at, .. }) => (Cause::Terminated(now - at), self.again_after),
            Some(Asked::KillChild) => (Cause::ChildKilled, self.again_after),
            None => (Cause::Itself, BACK_OFF),
        };
        let mut words = match cause {
            Cause::Killed => String::new(),
            _ => tail(&self.launcher.log(self.starts), 1),
        };
        words.truncate(words.floor_char_boundary(WORDS));
        self.journal
            .process(self.target, What::Ended { cause, exit, words });
        self.process = None;
        self.thaw_at = None;
        let waited_for = !self.waiting.is_empty();
        self.start_at = Some(if waited_for { now } else { now + again_after });
        self.tell.send_replace(State {
            pid: None,
            starts: self.starts,
        });
    }

    async fn launch(&mut self) -> anyhow::Result<()> {
        let mut tries = 0;
        let process = loop {
            tries += 1;
            match self.launcher.launch(self.starts + 1).await {
                Ok(process) => break process,
                Err(error) if tries == TRIES => {
                    self.journal
                        .process(self.target, What::StartFailed(format!("{error:#}")));
                    return Err(error);
                }
                Err(error) => {
                    let note = format!("{} did not start, once more: {error:#}", self.target);
                    self.journal.note(Event::Note(note));
                    tokio::time::sleep(BACK_OFF).await;
                }
            }
        };
        self.starts += 1;
        let pid = process.pid();
        self.process = Some(process);
        self.journal.process(self.target, What::Started { pid });
        self.tell.send_replace(State {
            pid: Some(pid),
            starts: self.starts,
        });
        Ok(())
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

async fn ended(process: Option<&mut Running>) -> Exit {
    match process {
        Some(process) => process.ended().await,
        None => std::future::pending().await,
    }
}
