//! The state that every batch starts from: `configure` runs once, on an engine
//! made for it, and the memory it leaves behind is written into a copy of the
//! component.

use crate::config::Limits;
use crate::contract::{Plugin, PluginPre};
use crate::engine::ticks;
use crate::error::LoadError;
use crate::guest::{self, shorten};
use crate::load::{compile_error, wrong_types};
use crate::sandbox::State;
use std::time::Duration;
use wasmtime::Engine;
use wasmtime::component::{Component, Linker};
use wasmtime_wizer::{WasmtimeWizerComponent, Wizer};

/// The most that is kept of what a normalizer says about its settings, in bytes.
const MAX_SETTINGS_MESSAGE: usize = 1024;

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
    let (outline, instrumented) = wizer
        .instrument_component(wasm)
        .map_err(|error| unsnapshottable(&error))?;
    let component = Component::new(engine, &instrumented).map_err(|error| compile_error(&error))?;
    let pre = linker
        .instantiate_pre(&component)
        .and_then(PluginPre::new)
        .map_err(|error| wrong_types(&error))?;

    // The snapshot reads all of the guest's memory as one answer.
    let readable = limits.memory_bytes.saturating_add(1 << 20);
    let mut store = guest::store(engine, limits, limits.load, readable);
    let answer = pre
        .instance_pre()
        .instantiate(&mut store)
        .and_then(|instance| {
            let plugin = Plugin::new(&mut store, &instance)?;
            let answer = plugin
                .telecom_cdr_normalizer()
                .call_configure(&mut store, settings)?;
            Ok((instance, answer))
        });
    let instance = match answer {
        Ok((instance, Ok(()))) => instance,
        Ok((_, Err(message))) => {
            return Err(LoadError::Settings {
                message: shorten(&message, MAX_SETTINGS_MESSAGE),
            });
        }
        Err(error) => {
            return Err(LoadError::Failed {
                call: "configure",
                fault: guest::fault(&error, store.data(), limits.load),
            });
        }
    };

    store.set_epoch_deadline(ticks(READ_OUT));
    let mut configured = WasmtimeWizerComponent {
        store: &mut store,
        instance,
    };
    // Not a tokio executor: WASI's functions block on one of their own, which
    // is forbidden inside another.
    futures::executor::block_on(wizer.snapshot_component(&outline, &mut configured))
        .map_err(|error| unsnapshottable(&error))
}

fn unsnapshottable(error: &wasmtime::Error) -> LoadError {
    LoadError::Snapshot {
        detail: shorten(&format!("{error:#}"), 1024),
    }
}
