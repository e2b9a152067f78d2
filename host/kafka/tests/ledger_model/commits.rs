//! Commits on their way: what is offered, what the broker says, what is heard.

use cdr_kafka::ledger::{Commit, PartitionView};

use super::world::{Action, Flaw, Request, Setup, Worker, World, place};

/// What a worker would commit now.
fn offered(state: &Worker, setup: &Setup) -> Vec<Commit> {
    if setup.flaw != Some(Flaw::CommitsPositions) {
        return state.ledger.all_committable();
    }
    let read = |view: PartitionView| {
        Some(Commit {
            partition: view.partition,
            generation: view.generation,
            next: view.position.filter(|_| view.committed < view.position)?,
        })
    };
    state
        .ledger
        .partitions()
        .into_iter()
        .filter_map(read)
        .collect()
}

impl World {
    pub(super) fn commit_actions(&self, worker: usize, setup: &Setup, all: &mut Vec<Action>) {
        let state = &self.workers[worker];
        let waits = state.request.as_ref().is_some_and(|request| {
            request.wanted && request.commits.iter().any(|&c| state.ledger.holds(c))
        });
        if !waits && !state.refused && !offered(state, setup).is_empty() {
            all.push(Action::Send { worker });
        }
        let Some(request) = &state.request else {
            return;
        };
        match request.accepted {
            None => all.push(Action::Arrive { worker }),
            Some(_) if request.wanted => all.push(Action::Answer { worker }),
            Some(_) => {}
        }
        if self.budget.faults > 0 && request.wanted {
            all.push(Action::TimeOut { worker });
            if request.accepted.is_none() {
                all.push(Action::Refuse { worker });
            }
        }
    }

    pub(super) fn send(&mut self, worker: usize, setup: &Setup) -> Result<(), String> {
        let state = &mut self.workers[worker];
        let commits = offered(state, setup);
        for &commit in &commits {
            if !state.ledger.commit_sent(commit) {
                return Err(format!("{commit:?} is offered, and not taken when sent"));
            }
        }
        state.request = Some(Request {
            commits,
            generation: state.generation,
            accepted: None,
            wanted: true,
        });
        Ok(())
    }

    pub(super) fn judge(&mut self, worker: usize, refuse: bool) -> Result<(), String> {
        let state = &mut self.workers[worker];
        let Some(request) = &mut state.request else {
            return Err("no request is on its way".to_owned());
        };
        // An expelled member is unknown, whatever generation it names.
        let accepted = !refuse && !state.expelled && request.generation == self.generation;
        request.accepted = Some(accepted);
        if accepted {
            for commit in &request.commits {
                let here = &mut self.partitions[place(commit.partition)];
                if here.committed.is_some_and(|before| before > commit.next) {
                    return Err(format!(
                        "{commit:?} steps back from {:?}: a partition that was gone was committed",
                        here.committed
                    ));
                }
                here.committed = Some(commit.next);
            }
        }
        if !request.wanted {
            state.request = None;
        }
        Ok(())
    }

    pub(super) fn answered(&mut self, worker: usize, setup: &Setup) {
        let state = &mut self.workers[worker];
        let Some(request) = state.request.take() else {
            return;
        };
        let accepted = request.accepted == Some(true);
        for commit in request.commits {
            if accepted || setup.flaw == Some(Flaw::BelievesRefusals) {
                state.ledger.commit_done(commit);
            } else {
                state.ledger.commit_failed(commit);
            }
        }
        state.refused = !accepted && state.expelled;
    }

    /// No answer came in time.
    pub(super) fn gave_up(&mut self, worker: usize) {
        let state = &mut self.workers[worker];
        if let Some(mut request) = state.request.take() {
            for &commit in &request.commits {
                state.ledger.commit_failed(commit);
            }
            request.wanted = false;
            state.request = Some(request).filter(|r| r.accepted.is_none());
        }
    }
}
