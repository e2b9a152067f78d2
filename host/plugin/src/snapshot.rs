//! The state that every batch starts from: `configure` runs once, on an engine
//! made for it, and the memory it leaves behind is written into a copy of the
//! component.

use crate::config::Limits;
use crate::contract::{Plugin, PluginPre};
use crate::engine::ticks;
use crate::error::LoadError;
use crate::guest::{self, LOAD_RESULT_BYTES, shorten};
use crate::load::{compile_error, wrong_types};
use crate::sandbox::State;
use crate::validate;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use wasmtime::component::{Component, Linker};
use wasmtime::{Engine, Store};
use wasmtime_wizer::{WasmtimeWizerComponent, Wizer};

/// What Wizer says of a component that is none, before it looks for state in it;
/// it has no type for it.
const INVALID: &str = "wasm validation failed";

/// Time to read a guest's memory out, which is no work of the guest's.
const READ_OUT: Duration = Duration::from_secs(120);

/// Configures a component and returns it with the state it then has.
///
/// # Errors
/// It can't be compiled or has other types than the contract; `configure` failed
/// or refused its settings; its state can't be written down.
pub(crate) fn configured(
    engine: &Engine,
    linker: &Linker<State>,
    limits: &Limits,
    wasm: &[u8],
    settings: &str,
) -> Result<Vec<u8>, LoadError> {
    let wizer = {
        let mut wizer = Wizer::new();
        wizer.keep_init_func(true);
        wizer
    };
    let (outline, instrumented) =
        wizer.instrument_component(wasm).map_err(|error| {
            match format!("{error:#}").contains(INVALID) {
                true => compile_error(&error),
                false => unsnapshottable(&error),
            }
        })?;
    let component = Component::new(engine, &instrumented).map_err(|error| compile_error(&error))?;
    let pre = linker
        .instantiate_pre(&component)
        .and_then(PluginPre::new)
        .map_err(|error| wrong_types(&error))?;

    let mut store = guest::store(engine, limits, limits.load, LOAD_RESULT_BYTES);
    let failed = |call, error: wasmtime::Error, store: &Store<State>| LoadError::Failed {
        call,
        fault: validate::fault(guest::fault(&error, store.data(), limits.load), b""),
    };
    let instance = pre
        .instance_pre()
        .instantiate(&mut store)
        .map_err(|error| failed("start", error, &store))?;
    let plugin = Plugin::new(&mut store, &instance).map_err(|error| wrong_types(&error))?;
    plugin
        .telecom_cdr_normalizer()
        .call_configure(&mut store, settings)
        .map_err(|error| failed("configure", error, &store))?
        .map_err(LoadError::settings)?;
    if store.data().holds_handles() {
        tracing::warn!(
            event = "normalizer_keeps_handles",
            "`configure` printed or opened something and keeps it open; handles are no part of a \
             snapshot, so that using them again (printing a panic's message, say) will be a fault"
        );
    }

    store.set_epoch_deadline(ticks(READ_OUT));
    // All of the guest's memory is read as one answer.
    store.set_hostcall_fuel(limits.memory_bytes.saturating_add(1 << 20));
    store.data_mut().begin_call();
    let mut configured = WasmtimeWizerComponent {
        store: &mut store,
        instance,
    };
    // Not a tokio executor: WASI's functions block on one of their own, which
    // is forbidden inside another. And it panics where the guest's memory can't
    // be read.
    let snapshot = catch_unwind(AssertUnwindSafe(|| {
        futures::executor::block_on(wizer.snapshot_component(&outline, &mut configured))
    }));
    match snapshot {
        Ok(snapshot) => snapshot.map_err(|error| unsnapshottable(&error)),
        Err(_) => Err(LoadError::Snapshot {
            detail: unreadable(&store),
        }),
    }
}

/// Reading a memory takes one page more of it, for where it begins and ends.
fn unreadable(store: &Store<State>) -> String {
    let memory = &store.data().memory;
    if memory.refused.is_some() {
        format!(
            "it has filled the {} bytes of memory that it may have; leave 64 KiB free",
            memory.limit()
        )
    } else if memory.beyond_its_own {
        "its memory is at the maximum that it declares; declare none, or 64 KiB more".to_owned()
    } else {
        "its memory can't be read".to_owned()
    }
}

fn unsnapshottable(error: &wasmtime::Error) -> LoadError {
    LoadError::Snapshot {
        detail: shorten(&format!("{error:#}"), 1024),
    }
}
