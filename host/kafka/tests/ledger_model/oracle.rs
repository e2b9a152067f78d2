//! What must be true in every state, and that every state can still end well.

use std::collections::HashSet;

use super::explore::{Fingerprint, fingerprint};
use super::world::{Action, Budget, Setup, Worker, World, place};

impl World {
    /// The invariants.
    pub fn check(&self, setup: &Setup) -> Result<(), String> {
        for (partition, here) in (0..).zip(&self.partitions) {
            if let Some(offset) = self.open_before(partition, here.committed, setup) {
                return Err(format!(
                    "partition {partition} is committed to {:?}, but offset {offset} has no outcome",
                    here.committed
                ));
            }
        }
        match setup.flaw {
            // A flawed worker is caught by what it does to the group.
            Some(_) => Ok(()),
            None => self
                .workers
                .iter()
                .try_for_each(|w| self.check_worker(w, setup)),
        }
    }

    /// The first record before `next` that nobody finished.
    fn open_before(&self, partition: i32, next: Option<i64>, setup: &Setup) -> Option<i64> {
        let log = setup.logs[place(partition)].iter();
        log.zip(&self.partitions[place(partition)].durable)
            .find(|&(&offset, durable)| next.is_some_and(|next| offset < next) && !durable)
            .map(|(&offset, _)| offset)
    }

    fn check_worker(&self, worker: &Worker, setup: &Setup) -> Result<(), String> {
        let ledger = &worker.ledger;
        for view in ledger.partitions() {
            if !view.counts.balanced() || view.counts.given_back != 0 {
                return Err(format!("a held partition does not balance: {view:?}"));
            }
            if view.committed > self.partitions[place(view.partition)].committed {
                return Err(format!("the broker does not know of this commit: {view:?}"));
            }
        }
        let held: Vec<i32> = ledger.partitions().iter().map(|v| v.partition).collect();
        if !held.iter().eq(worker.positions.keys()) {
            return Err(format!("it holds {held:?}, not {:?}", worker.positions));
        }
        for commit in ledger.all_committable() {
            if let Some(offset) = self.open_before(commit.partition, Some(commit.next), setup) {
                return Err(format!(
                    "{commit:?} is offered, but {offset} has no outcome"
                ));
            }
        }
        let current = worker.work.iter().filter(|&&id| ledger.is_current(id));
        let current = u64::try_from(current.count()).unwrap_or(u64::MAX);
        let totals = ledger.totals();
        if !totals.balanced() || totals.in_flight != current || ledger.in_flight() != current {
            return Err(format!("{current} are in flight, not as in {totals:?}"));
        }
        if ledger.in_flight_bytes() != current * 10 {
            return Err(format!(
                "{current} in flight of {} bytes",
                ledger.in_flight_bytes()
            ));
        }
        match ledger.all_lifetime_counts().values().all(|c| c.balanced()) {
            true => Ok(()),
            false => Err("a lifetime does not balance".to_owned()),
        }
    }

    /// Nothing bad happens any more and everybody does what he can: then
    /// everything must end committed, and nobody must be stuck. `ended` holds
    /// the states that are known to end so.
    pub fn finish(&self, setup: &Setup, ended: &mut HashSet<Fingerprint>) -> Result<(), String> {
        let mut world = self.clone();
        // Misfortunes are over; so the choices left are all fair.
        world.budget = Budget::default();
        let mut on_the_way = HashSet::new();
        loop {
            let print = fingerprint(&world);
            if ended.contains(&print) {
                break;
            }
            if !on_the_way.insert(print) {
                return Err("it goes round in circles".to_owned());
            }
            match world.fair(setup) {
                Some(action) => world = world.after(action, setup)?,
                None => {
                    world.check_end(setup)?;
                    break;
                }
            }
        }
        ended.extend(on_the_way);
        Ok(())
    }

    fn check_end(&self, setup: &Setup) -> Result<(), String> {
        for (partition, here) in (0..).zip(&self.partitions) {
            let end = setup.logs[place(partition)].last().map(|last| last + 1);
            if here.committed != end {
                return Err(format!(
                    "stuck: partition {partition} ends at {end:?}, committed is {:?}",
                    here.committed
                ));
            }
        }
        let clean = |worker: &Worker| {
            let partitions = worker.ledger.partitions();
            partitions
                .iter()
                .all(|v| worker.ledger.is_clean(v.partition))
        };
        match setup.flaw.is_some() || self.workers.iter().all(clean) {
            true => Ok(()),
            false => Err("everything is committed, but a ledger is not clean".to_owned()),
        }
    }

    /// The next step of a fair end: those thrown out learn of it first.
    fn fair(&self, setup: &Setup) -> Option<Action> {
        let actions = self.actions(setup);
        let learn = actions.iter().find(|a| matches!(a, Action::Learn { .. }));
        learn.or(actions.first()).copied()
    }
}
