//! Instances that outlive a call: for components whose state after `configure`
//! can't be snapshotted, where the operator allows it ([`Reuse`]).
//!
//! An instance belongs to one call at a time, and comes back only after an
//! answer that has been found good; whatever else happens ends it. It is retired
//! after so many calls, or once it holds so much memory.

use crate::config::Reuse;
use crate::guest::Instance;
use std::sync::{Mutex, PoisonError};

pub(crate) struct Pool {
    /// What each new instance is configured with.
    pub(crate) settings: String,
    reuse: Reuse,
    /// The most that wait: one a guest thread.
    most: usize,
    idle: Mutex<Vec<Lease>>,
}

/// An instance, and the calls that it has answered.
pub(crate) struct Lease {
    pub(crate) instance: Instance,
    calls: u32,
}

impl Lease {
    /// Of an instance that has been configured and not called yet.
    pub(crate) fn new(instance: Instance) -> Self {
        Self { instance, calls: 0 }
    }
}

impl Pool {
    pub(crate) fn new(settings: String, reuse: Reuse, most: usize) -> Self {
        Self {
            settings,
            reuse,
            most,
            idle: Mutex::default(),
        }
    }

    /// The instance that was used last, because its memory is warm.
    pub(crate) fn take(&self) -> Option<Lease> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.pop()
    }

    /// Takes back an instance whose answer was good, unless it has served its time.
    pub(crate) fn give_back(&self, mut lease: Lease) {
        lease.calls = lease.calls.saturating_add(1);
        if lease.calls >= self.reuse.max_calls
            || lease.instance.memory_used() > self.reuse.max_memory_bytes
        {
            return;
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < self.most {
            idle.push(lease);
        }
    }
}
