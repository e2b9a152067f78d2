//! A compiled normalizer, and one instance of it for one batch.

use crate::batch::Batch;
use crate::config::Limits;
use crate::contract::{Admission, Manifest, Outcome, Plugin, PluginPre, Violation};
use crate::engine::{Engines, ticks};
use crate::error::{Fault, FaultKind};
use crate::sandbox::State;
use std::sync::Arc;
use std::time::Duration;
use wasmtime::{Store, Trap};

/// The longest text kept of an error, in bytes.
const MAX_DETAIL: usize = 512;

/// What wasmtime says when an answer exceeds `Store::set_hostcall_fuel`; it has
/// no type for it.
const RESULT_TOO_LARGE: &str = "fuel allocated for hostcalls has been exhausted";

/// Code that is ready to be instantiated, from the snapshot.
#[derive(Clone)]
pub(crate) struct Compiled {
    pub(crate) pre: PluginPre<State>,
    pub(crate) limits: Limits,
    /// Deadlines are counted as long as these live, so nothing may run without.
    pub(crate) _engines: Arc<Engines>,
}

/// One instance in its store. It is used for one call and dropped.
struct Instance {
    store: Store<State>,
    plugin: Plugin,
    time: Duration,
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
    store
}

impl Compiled {
    fn instantiate(&self, time: Duration, result_bytes: usize) -> Result<Instance, Fault> {
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

    fn instance_for(&self, records: usize) -> Result<Instance, Fault> {
        let limits = &self.limits;
        let count = u32::try_from(records).unwrap_or(u32::MAX);
        self.instantiate(
            limits.call_time(count),
            limits
                .result_base_bytes
                .saturating_add(limits.result_per_record_bytes.saturating_mul(records)),
        )
    }

    pub(crate) fn describe(&self) -> Result<Manifest, Fault> {
        let mut instance = self.instantiate(self.limits.load, 1 << 20)?;
        let result = instance
            .plugin
            .telecom_cdr_normalizer()
            .call_describe(&mut instance.store);
        instance.answer(result)
    }

    pub(crate) fn admit(&self, batch: &Batch) -> Result<Vec<Result<Admission, Violation>>, Fault> {
        let mut instance = self.instance_for(batch.len())?;
        let result = instance
            .plugin
            .telecom_cdr_normalizer()
            .call_admit(&mut instance.store, &batch.0);
        instance.answer(result)
    }

    pub(crate) fn normalize(&self, batch: &Batch) -> Result<Outcome, Fault> {
        let mut instance = self.instance_for(batch.len())?;
        let result = instance
            .plugin
            .telecom_cdr_normalizer()
            .call_normalize(&mut instance.store, &batch.0);
        instance.answer(result)
    }
}

impl Instance {
    fn answer<T>(&self, result: wasmtime::Result<T>) -> Result<T, Fault> {
        result.map_err(|error| fault(&error, self.store.data(), self.time))
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
    } else if let Some(wanted) = state.memory.refused {
        out_of_memory(wanted, state)
    } else if let Some(exit) = error.downcast_ref::<wasmtime_wasi::I32Exit>() {
        Fault::new(FaultKind::Trap, format!("it called exit({})", exit.0))
    } else if format!("{error:#}").contains(RESULT_TOO_LARGE) {
        Fault::new(FaultKind::ResultSize, "its answer is larger than it may be")
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
