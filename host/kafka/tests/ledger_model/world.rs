//! A small world around real ledgers: a log, a broker with one group, and two
//! workers that read, finish, commit, are thrown out and crash.
//!
//! What is simplified, and why nothing is lost by it:
//! - a record has its durable outcome in the moment its worker settles it; an
//!   earlier one could only make more commits safe;
//! - requests of one worker arrive in the order sent (one connection); one that
//!   is given up may still arrive, until the next is sent;
//! - commits are refused by group generation, as Kafka does it. Kafka does not
//!   look whether a member owns what it commits, and neither does this broker.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use cdr_kafka::ledger::{Commit, Ledger, Outcome, RecordId, Settled};

/// What is the same in every state.
pub struct Setup {
    /// Offsets of the records, by partition.
    pub logs: &'static [&'static [i64]],
    /// Whether every record may be inserted as well as dead-lettered; else the
    /// offset decides.
    pub both_outcomes: bool,
    pub budget: Budget,
    pub flaw: Option<Flaw>,
}

/// How often misfortune may strike in one schedule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Revocations and expulsions.
    pub moves: u8,
    pub crashes: u8,
    /// Commits refused, lost, or answered in vain.
    pub faults: u8,
}

/// Workers that misuse the ledger, each as a peer once did: the model must see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Commits what was read, not what is settled.
    CommitsPositions,
    /// Settles a record when it is taken.
    SettlesBeforeTheOutcome,
    /// Does not tell the ledger what was taken away.
    ForgetsRevocations,
    /// Takes a refused commit for an acknowledged one.
    BelievesRefusals,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The broker gives an owner to a partition without one.
    Assign {
        partition: i32,
        worker: usize,
    },
    Poll {
        partition: i32,
        worker: usize,
    },
    /// The record at this place of the worker's work gets its outcome.
    Complete {
        worker: usize,
        index: usize,
        outcome: Outcome,
    },
    Send {
        worker: usize,
    },
    /// The request reaches the broker, which judges it.
    Arrive {
        worker: usize,
    },
    /// The same, and the broker refuses it for a reason that passes.
    Refuse {
        worker: usize,
    },
    /// The answer reaches the worker.
    Answer {
        worker: usize,
    },
    /// The worker gives the request up; it may still arrive.
    TimeOut {
        worker: usize,
    },
    /// The owner is asked for a partition and gives it back, whatever is in flight.
    Revoke {
        partition: i32,
    },
    /// The session of a worker runs out, and it does not know.
    Expel {
        worker: usize,
    },
    /// An expelled worker hears of it, drops all and joins again.
    Learn {
        worker: usize,
    },
    Crash {
        worker: usize,
    },
}

#[derive(Clone)]
pub(super) struct Partition {
    /// By index into the log.
    pub(super) durable: Vec<bool>,
    pub(super) committed: Option<i64>,
    pub(super) owner: Option<usize>,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) commits: Vec<Commit>,
    pub(super) generation: u8,
    /// The broker's answer, once it has judged.
    pub(super) accepted: Option<bool>,
    /// Whether the worker still waits for it.
    pub(super) wanted: bool,
}

#[derive(Clone, PartialEq, Eq, Default)]
pub(super) struct Worker {
    pub(super) ledger: Ledger,
    /// Next offset to fetch, of each partition it believes to hold.
    pub(super) positions: BTreeMap<i32, i64>,
    /// Records without an outcome, those of lost partitions included.
    pub(super) work: Vec<RecordId>,
    pub(super) request: Option<Request>,
    pub(super) generation: u8,
    pub(super) expelled: bool,
    /// It heard that it is no member, and sends nothing before it has learned.
    pub(super) refused: bool,
}

#[derive(Clone)]
pub struct World {
    pub(super) partitions: Vec<Partition>,
    pub(super) generation: u8,
    pub(super) workers: [Worker; 2],
    pub(super) budget: Budget,
}

/// All but generations.
impl Hash for Worker {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.ledger.hash(state);
        self.positions.hash(state);
        let work = self
            .work
            .iter()
            .map(|&id| (id.partition, id.offset, self.ledger.is_current(id)));
        let mut work: Vec<_> = work.collect();
        work.sort_unstable();
        work.hash(state);
        (self.expelled, self.refused).hash(state);
        if let Some(request) = &self.request {
            (request.accepted, request.wanted).hash(state);
            for &commit in &request.commits {
                (commit.partition, commit.next, self.ledger.holds(commit)).hash(state);
            }
        }
    }
}

impl Worker {
    fn give_back(&mut self, partition: i32, setup: &Setup) {
        self.positions.remove(&partition);
        if setup.flaw != Some(Flaw::ForgetsRevocations) {
            self.ledger.revoke(partition);
        }
    }
}

pub(super) fn place(partition: i32) -> usize {
    usize::try_from(partition).expect("partitions count from 0")
}

impl World {
    pub fn new(setup: &Setup) -> Self {
        let partition = |log: &&[i64]| Partition {
            durable: vec![false; log.len()],
            committed: None,
            owner: None,
        };
        World {
            partitions: setup.logs.iter().map(partition).collect(),
            generation: 0,
            workers: Default::default(),
            budget: setup.budget,
        }
    }

    /// Hashes the world with its workers in this order. Generations count only
    /// by whether they are the present ones.
    pub fn hash_as(&self, order: [usize; 2], state: &mut impl Hasher) {
        self.budget.hash(state);
        for partition in &self.partitions {
            (&partition.durable, partition.committed).hash(state);
            partition.owner.map(|owner| order[owner]).hash(state);
        }
        for worker in order.map(|worker| &self.workers[worker]) {
            worker.hash(state);
            let at_present = worker.generation == self.generation;
            let asked = worker.request.as_ref();
            let present = asked.map(|request| request.generation == self.generation);
            (at_present, present).hash(state);
        }
    }

    /// Everything that may happen next.
    pub fn actions(&self, setup: &Setup) -> Vec<Action> {
        let mut all = Vec::new();
        for (partition, here) in (0..).zip(&self.partitions) {
            match here.owner {
                None => all.extend(
                    (0..2)
                        .filter(|&worker| !self.workers[worker].expelled)
                        .map(|worker| Action::Assign { partition, worker }),
                ),
                Some(_) if self.budget.moves > 0 => all.push(Action::Revoke { partition }),
                Some(_) => {}
            }
        }
        for (worker, state) in self.workers.iter().enumerate() {
            for (&partition, &next) in &state.positions {
                if setup.logs[place(partition)].iter().any(|&o| o >= next) {
                    all.push(Action::Poll { partition, worker });
                }
            }
            for (index, id) in state.work.iter().enumerate() {
                let by_offset = match id.offset % 2 {
                    0 => Outcome::Inserted,
                    _ => Outcome::DeadLettered,
                };
                let outcomes: &[Outcome] = match setup.both_outcomes {
                    true => &[Outcome::Inserted, Outcome::DeadLettered],
                    false => &[by_offset],
                };
                all.extend(outcomes.iter().map(|&outcome| Action::Complete {
                    worker,
                    index,
                    outcome,
                }));
            }
            self.commit_actions(worker, setup, &mut all);
            if state.expelled {
                all.push(Action::Learn { worker });
            } else if self.budget.moves > 0 && self.owns_any(worker) {
                all.push(Action::Expel { worker });
            }
            if self.budget.crashes > 0 && *state != Worker::default() {
                all.push(Action::Crash { worker });
            }
        }
        all
    }

    fn owns_any(&self, worker: usize) -> bool {
        self.partitions.iter().any(|p| p.owner == Some(worker))
    }

    /// The world after `action`, or what was wrong about it.
    pub fn after(&self, action: Action, setup: &Setup) -> Result<World, String> {
        let mut next = self.clone();
        next.act(action, setup)?;
        next.check(setup)?;
        Ok(next)
    }

    fn act(&mut self, action: Action, setup: &Setup) -> Result<(), String> {
        match action {
            Action::Assign { partition, worker } => self.assign(partition, worker, setup),
            Action::Poll { partition, worker } => self.poll(partition, worker, setup)?,
            Action::Complete {
                worker,
                index,
                outcome,
            } => self.complete(worker, index, outcome, setup)?,
            Action::Send { worker } => self.send(worker, setup)?,
            Action::Arrive { worker } => self.judge(worker, false)?,
            Action::Refuse { worker } => {
                self.budget.faults -= 1;
                self.judge(worker, true)?;
            }
            Action::Answer { worker } => self.answered(worker, setup),
            Action::TimeOut { worker } => {
                self.budget.faults -= 1;
                self.gave_up(worker);
            }
            Action::Revoke { partition } => {
                self.budget.moves -= 1;
                if let Some(owner) = self.partitions[place(partition)].owner.take() {
                    self.workers[owner].give_back(partition, setup);
                }
            }
            Action::Expel { worker } => {
                self.budget.moves -= 1;
                self.workers[worker].expelled = true;
                self.disown(worker);
            }
            Action::Learn { worker } => {
                let state = &mut self.workers[worker];
                for partition in state.positions.clone().into_keys() {
                    state.give_back(partition, setup);
                }
                (state.expelled, state.refused) = (false, false);
                state.generation = self.generation;
            }
            Action::Crash { worker } => {
                self.budget.crashes -= 1;
                self.disown(worker);
                let request = self.workers[worker].request.take();
                self.workers[worker] = Worker {
                    generation: self.generation,
                    request: request
                        .filter(|request| request.accepted.is_none())
                        .map(|request| Request {
                            wanted: false,
                            ..request
                        }),
                    ..Worker::default()
                };
            }
        }
        Ok(())
    }

    fn disown(&mut self, worker: usize) {
        for partition in &mut self.partitions {
            partition.owner.take_if(|owner| *owner == worker);
        }
    }

    fn assign(&mut self, partition: i32, worker: usize, setup: &Setup) {
        self.generation += 1;
        for member in self.workers.iter_mut().filter(|w| !w.expelled) {
            member.generation = self.generation;
        }
        let here = &mut self.partitions[place(partition)];
        here.owner = Some(worker);
        let start = here.committed.unwrap_or(setup.logs[place(partition)][0]);
        let state = &mut self.workers[worker];
        if setup.flaw != Some(Flaw::ForgetsRevocations)
            || !state
                .ledger
                .partitions()
                .iter()
                .any(|v| v.partition == partition)
        {
            state.ledger.assign(partition);
        }
        state.positions.insert(partition, start);
    }

    fn poll(&mut self, partition: i32, worker: usize, setup: &Setup) -> Result<(), String> {
        let state = &mut self.workers[worker];
        let position = state.positions.entry(partition).or_default();
        let next = setup.logs[place(partition)].iter().find(|&o| o >= position);
        let &offset = next.ok_or("polled beyond the end")?;
        *position = offset + 1;
        let id = state
            .ledger
            .consumed(partition, offset, 10)
            .ok_or("a partition that is held takes no record")?;
        state.work.push(id);
        if setup.flaw == Some(Flaw::SettlesBeforeTheOutcome) {
            state.ledger.settle(id, Outcome::Inserted);
        }
        Ok(())
    }

    fn complete(
        &mut self,
        worker: usize,
        index: usize,
        outcome: Outcome,
        setup: &Setup,
    ) -> Result<(), String> {
        let state = &mut self.workers[worker];
        let id = state.work.remove(index);
        let log = setup.logs[place(id.partition)];
        let at = log.iter().position(|&o| o == id.offset);
        self.partitions[place(id.partition)].durable[at.ok_or("a record from nowhere")?] = true;
        let current = state.ledger.is_current(id);
        let settled = state.ledger.settle(id, outcome);
        if setup.flaw.is_none() && (settled == Settled::Now) != current {
            return Err(format!("{id:?}: current is {current}, but {settled:?}"));
        }
        Ok(())
    }
}
