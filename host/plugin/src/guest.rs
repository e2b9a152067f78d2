//! A compiled normalizer, and the instances that answer its calls: one a call,
//! unless there is a pool.

use crate::batch::Batch;
use crate::config::Limits;
use crate::contract::{Admission, Manifest, Outcome, Plugin, PluginPre, Violation, normalizer};
use crate::engine::{Engines, ticks};
use crate::error::{Fault, FaultKind};
use crate::pool::{Lease, Pool};
use crate::sandbox::{MAX_HANDLES, State};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use wasmtime::component::ResourceTableError;
use wasmtime::{Store, Trap};

/// The longest text kept of an error, in bytes.
const MAX_DETAIL: usize = 512;

/// What `configure` and `describe` may return, in bytes.
pub(crate) const LOAD_RESULT_BYTES: usize = 1 << 20;

/// What wasmtime says when an answer exceeds `Store::set_hostcall_fuel`; it has
/// no type for it.
const RESULT_TOO_LARGE: &str = "fuel allocated for hostcalls has been exhausted";

/// The same of a guest that holds more than `Store::set_max_component_handles`.
const TOO_MANY_HANDLES: &str = "store handle limit exceeded";

/// The same of a handle that isn't open: as a rule one from before the snapshot.
const NO_SUCH_HANDLE: &str = "unknown handle index";

/// Code that is ready to be instantiated.
#[derive(Clone)]
pub(crate) struct Compiled {
    pub(crate) pre: PluginPre<State>,
    pub(crate) limits: Limits,
    /// None for code from a snapshot: each call has an instance of its own.
    pub(crate) pool: Option<Arc<Pool>>,
    /// Deadlines are counted as long as these live, so nothing may run without.
    pub(crate) _engines: Arc<Engines>,
}

/// One instance in its store.
pub(crate) struct Instance {
    store: Store<State>,
    plugin: Plugin,
    /// What the call under way may take.
    time: Duration,
}

/// What a call may use.
#[derive(Clone, Copy)]
struct Allowance {
    time: Duration,
    result_bytes: usize,
}

/// A store with its limits set, for so much time.
pub(crate) fn store(
    engine: &wasmtime::Engine,
    limits: &Limits,
    time: Duration,
    result_bytes: usize,
) -> Store<State> {
    let mut store = Store::new(engine, State::new(limits.memory_bytes, limits.stderr_bytes));
    store.limiter(|state| state);
    // Before instantiation as well: a start function is guest code.
    store.set_epoch_deadline(ticks(time));
    store.set_hostcall_fuel(result_bytes);
    store.set_max_component_handles(MAX_HANDLES);
    store
}

impl Compiled {
    /// An instance whose store may be used for so much.
    fn instantiate(&self, allowed: Allowance) -> Result<Instance, Fault> {
        let Allowance { time, result_bytes } = allowed;
        let mut store = store(self.pre.engine(), &self.limits, time, result_bytes);
        match self.pre.instantiate(&mut store) {
            Ok(plugin) => Ok(Instance {
                store,
                plugin,
                time,
            }),
            Err(error) => Err(fault(&error, store.data(), time)),
        }
    }

    fn at_load(&self) -> Allowance {
        Allowance {
            time: self.limits.load,
            result_bytes: LOAD_RESULT_BYTES,
        }
    }

    fn for_records(&self, records: usize) -> Allowance {
        let limits = &self.limits;
        let count = u32::try_from(records).unwrap_or(u32::MAX);
        Allowance {
            time: limits.call_time(count),
            result_bytes: limits.result_bytes(records),
        }
    }

    /// A new instance for the pool: what a snapshot would have saved.
    ///
    /// The inner error is the normalizer's about its settings.
    pub(crate) fn configured(&self, settings: &str) -> Result<Result<Instance, String>, Fault> {
        let mut instance = self.instantiate(self.at_load())?;
        let answer = instance.call(|plugin, store| plugin.call_configure(store, settings))?;
        Ok(answer.map(|()| instance))
    }

    /// Asks an instance, and looks at its answer before the instance may be used
    /// again.
    fn ask<R>(
        &self,
        allowed: Allowance,
        question: impl Fn(&mut Instance) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        // A panic of the host's own code is the fault of one batch, like a trap: the
        // record that does it is found, and no other is held up.
        let question = |instance: &mut Instance| {
            catch_unwind(AssertUnwindSafe(|| question(instance))).unwrap_or_else(|_| {
                Err(Fault::new(
                    FaultKind::Trap,
                    "the host panicked over its answer; please report it",
                ))
            })
        };
        let Some(pool) = &self.pool else {
            return question(&mut self.instantiate(allowed)?);
        };
        if let Some(mut lease) = pool.take() {
            lease.instance.begin(allowed);
            if let Ok(answer) = question(&mut lease.instance) {
                pool.give_back(lease);
                return Ok(answer);
            }
            // What it failed on may lie in its past. Only a new instance's
            // fault says something about this batch.
        }
        let mut lease = match self.configured(&pool.settings)? {
            Ok(instance) => Lease::new(instance),
            Err(_) => {
                return Err(Fault::breach(
                    "it refused the settings that it was loaded with",
                ));
            }
        };
        lease.instance.begin(allowed);
        let answer = question(&mut lease.instance)?;
        pool.give_back(lease);
        Ok(answer)
    }

    pub(crate) fn describe(&self) -> Result<Manifest, Fault> {
        self.ask(self.at_load(), |instance| {
            instance.call(|plugin, store| plugin.call_describe(store))
        })
    }

    /// The answer is good if `check` finds it so; it says what is wrong.
    pub(crate) fn admit(
        &self,
        batch: &Batch,
        check: impl Fn(&mut Vec<Result<Admission, Violation>>) -> Result<(), String>,
    ) -> Result<Vec<Result<Admission, Violation>>, Fault> {
        self.ask(self.for_records(batch.len()), |instance| {
            let mut answers = instance.call(|plugin, store| plugin.call_admit(store, &batch.0))?;
            check(&mut answers).map_err(Fault::breach)?;
            Ok(answers)
        })
    }

    /// The answer is good if `check` finds it so; it says what is wrong.
    pub(crate) fn normalize(
        &self,
        batch: &Batch,
        check: impl Fn(&mut Outcome) -> Result<(), String>,
    ) -> Result<Outcome, Fault> {
        self.ask(self.for_records(batch.len()), |instance| {
            let mut outcome =
                instance.call(|plugin, store| plugin.call_normalize(store, &batch.0))?;
            check(&mut outcome).map_err(Fault::breach)?;
            Ok(outcome)
        })
    }
}

impl Instance {
    /// Allows a further call so much.
    fn begin(&mut self, allowed: Allowance) {
        self.time = allowed.time;
        self.store.set_epoch_deadline(ticks(allowed.time));
        self.store.set_hostcall_fuel(allowed.result_bytes);
        self.store.data_mut().begin_call();
    }

    fn call<R>(
        &mut self,
        function: impl FnOnce(&normalizer::Guest, &mut Store<State>) -> wasmtime::Result<R>,
    ) -> Result<R, Fault> {
        function(self.plugin.telecom_cdr_normalizer(), &mut self.store)
            .map_err(|error| fault(&error, self.store.data(), self.time))
    }

    /// Of all its memories and tables, in bytes.
    pub(crate) fn memory_used(&self) -> usize {
        self.store.data().memory.used()
    }
}

/// What kind of failure an error of wasmtime is.
pub(crate) fn fault(error: &wasmtime::Error, state: &State, time: Duration) -> Fault {
    let stderr = state.stderr.text();
    let root = error.root_cause().to_string();
    let mut fault = if let Some(trap) = error.downcast_ref::<Trap>() {
        match (trap, state.memory.refused) {
            (Trap::Interrupt, _) => Fault::deadline(time),
            // A guest that is refused memory aborts: the trap is a symptom.
            (Trap::UnreachableCodeReached, Some(wanted)) => out_of_memory(wanted, state),
            _ => Fault::new(FaultKind::Trap, trap_detail(&root, &stderr)),
        }
    } else if let Some(exit) = error.downcast_ref::<wasmtime_wasi::I32Exit>() {
        Fault::new(FaultKind::Trap, format!("it called exit({})", exit.0))
    } else if let Some(wanted) = state.memory.refused {
        out_of_memory(wanted, state)
    } else if format!("{error:#}").contains(RESULT_TOO_LARGE) {
        Fault::new(FaultKind::ResultSize, "its answer is larger than it may be")
    } else if matches!(error.downcast_ref(), Some(ResourceTableError::Full))
        || root.contains(TOO_MANY_HANDLES)
    {
        let detail = format!("it wanted more than the {MAX_HANDLES} handles that it may have");
        Fault::new(FaultKind::Memory, detail)
    } else if root.contains(NO_SUCH_HANDLE) {
        Fault::new(
            FaultKind::Trap,
            "it used a handle that is not open: what `configure` opened (standard error, if it \
             printed) does not outlive it",
        )
    } else if root.contains("may not sleep") {
        Fault::new(FaultKind::Trap, root)
    } else {
        // What is left are answers that can't be read: addresses outside of
        // memory, text that is not UTF-8, cases that don't exist.
        Fault::breach(root)
    };
    fault.detail = shorten(&fault.detail, MAX_DETAIL);
    fault.stderr = stderr;
    fault
}

fn out_of_memory(wanted: usize, state: &State) -> Fault {
    Fault::new(
        FaultKind::Memory,
        format!(
            "it wanted {wanted} bytes of memory and may have {}",
            state.memory.limit()
        ),
    )
}

/// A panic writes its message to standard error and traps; the message says
/// more than the trap.
fn trap_detail(trap: &str, stderr: &str) -> String {
    match stderr.find("panicked at") {
        Some(start) => stderr[start..].lines().collect::<Vec<_>>().join(" "),
        None => trap.trim_start_matches("wasm trap: ").to_owned(),
    }
}

/// The text, cut at a character boundary to so many bytes.
pub(crate) fn shorten(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let mut end = bytes.saturating_sub('…'.len_utf8());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(shorten("abc", 3), "abc");
        assert_eq!(shorten("abcdef", 5), "ab…");
        assert_eq!(shorten("ééé", 5), "é…");
        assert!(shorten(&"é".repeat(600), 512).len() <= 512);
    }
}
