//! What a batch costs a guest: instructions and memory. The same file with the
//! same batch gives the same figures, on any machine and under any load, so
//! that they can be accepted, kept beside the source, and compared; time is
//! none of them.
//!
//! Counting makes code slow, so it happens in an engine of its own, never where
//! batches are served.

use crate::batch::Batch;
use crate::contract::PluginPre;
use crate::engine;
use crate::error::{Fault, LoadError};
use crate::guest;
use crate::load::{PluginHost, compile_error, wrong_types};
use crate::sandbox::{State, linker};
use wasmtime::component::Component;
use wasmtime::{Engine, Store};

/// Instructions that a call may take…
const CALL_BUDGET: u64 = 1_000_000_000;
/// …and for each record on top: more than the limits of time leave room for, so
/// that only a loop without an end gets there.
const RECORD_BUDGET: u64 = 10_000_000;

/// What one call took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// WebAssembly instructions, the guest's part of passing the batch included.
    pub instructions: u64,
    /// The memory of the instance at the end, in bytes; it never shrinks.
    pub memory_bytes: usize,
}

/// What both questions about a batch took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// `admit`.
    pub admit: Cost,
    /// `normalize`.
    pub normalize: Cost,
}

/// A batch could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The normalizer was refused.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// It failed on the batch.
    #[error("it failed in `{call}` while its instructions were counted: {fault}")]
    Call {
        /// The function.
        call: &'static str,
        /// How.
        fault: Fault,
    },
}

impl PluginHost {
    /// Asks a normalizer both questions about a batch, each in a fresh instance,
    /// and counts. It compiles the component anew: this takes seconds.
    ///
    /// # Errors
    /// The normalizer was refused, or failed on the batch.
    pub async fn measure(
        &self,
        wasm: Vec<u8>,
        settings: &str,
        batch: Batch,
    ) -> Result<Costs, MeasureError> {
        let settings = settings.to_owned();
        self.on_a_loading_thread(move |host| host.measure_here(&wasm, &settings, &batch))
            .await?
    }

    fn measure_here(
        &self,
        wasm: &[u8],
        settings: &str,
        batch: &Batch,
    ) -> Result<Costs, MeasureError> {
        let host = |error: wasmtime::Error| LoadError::Host {
            detail: format!("{error:#}"),
        };
        let snapshot = self.snapshot(wasm, settings)?;
        let engine = engine::counting(self.limits()).map_err(host)?;
        let component =
            Component::new(&engine, &snapshot).map_err(|error| compile_error(&error))?;
        let pre = linker(&engine)
            .map_err(host)?
            .instantiate_pre(&component)
            .and_then(PluginPre::new)
            .map_err(|error| wrong_types(&error))?;
        let call = Call {
            host: self,
            engine: &engine,
            pre: &pre,
            batch,
        };
        Ok(Costs {
            admit: call.cost("admit", |plugin, store| {
                plugin
                    .telecom_cdr_normalizer()
                    .call_admit(store, &batch.0)
                    .map(drop)
            })?,
            normalize: call.cost("normalize", |plugin, store| {
                plugin
                    .telecom_cdr_normalizer()
                    .call_normalize(store, &batch.0)
                    .map(drop)
            })?,
        })
    }
}

struct Call<'a> {
    host: &'a PluginHost,
    engine: &'a Engine,
    pre: &'a PluginPre<State>,
    batch: &'a Batch,
}

impl Call<'_> {
    fn cost(
        &self,
        call: &'static str,
        ask: impl FnOnce(&crate::contract::Plugin, &mut Store<State>) -> wasmtime::Result<()>,
    ) -> Result<Cost, MeasureError> {
        let limits = self.host.limits();
        let records = self.batch.len();
        let time = limits.call_time(u32::try_from(records).unwrap_or(u32::MAX));
        let results = limits.result_bytes(records);
        let budget = RECORD_BUDGET
            .saturating_mul(records as u64)
            .saturating_add(CALL_BUDGET);
        let mut store = guest::store(self.engine, limits, time, results);
        let counted = store.set_fuel(budget).and_then(|()| {
            let plugin = self.pre.instantiate(&mut store)?;
            let before = store.get_fuel()?;
            ask(&plugin, &mut store)?;
            Ok(before.saturating_sub(store.get_fuel()?))
        });
        match counted {
            Ok(instructions) => Ok(Cost {
                instructions,
                memory_bytes: store.data().memory.used(),
            }),
            Err(error) => Err(MeasureError::Call {
                call,
                fault: guest::fault(&error, store.data(), time),
            }),
        }
    }
}
