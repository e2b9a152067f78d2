//! The engines: one that serves, one that prepares, and the clock of deadlines.

use crate::config::{HostConfig, Limits};
use crate::error::LoadError;
use crate::sandbox::{MAX_CORE_INSTANCES, MAX_MEMORIES, MAX_TABLES};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wasmtime::{Config, Engine, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig};

/// How often deadlines are looked at. A guest may overrun by as much.
const TICK: Duration = Duration::from_millis(5);

/// Instances beside those of the guest threads: loads, and their trials.
const SPARE_INSTANCES: u32 = 4;

/// Normalizers that may have reused instances waiting at the same time: the one
/// that serves, the one before, a shadow, and one that is being loaded.
const REUSING_NORMALIZERS: u32 = 4;

/// Memory of an instance that stays mapped for the next one, in bytes. More
/// saves page faults, and costs this much resident memory a pooled instance.
const KEEP_RESIDENT: usize = 2 << 20;

pub(crate) struct Engines {
    /// Runs batches: pooled, optimised.
    pub(crate) serving: Engine,
    /// Runs `configure`, once a load: compiled fast, allocated on demand.
    pub(crate) preparing: Engine,
    stop: Arc<AtomicBool>,
}

impl Engines {
    pub(crate) fn new(config: &HostConfig) -> Result<Self, LoadError> {
        let host = |error: wasmtime::Error| LoadError::Host {
            detail: format!("{error:#}"),
        };
        let limits = &config.limits;

        let mut preparing = common(limits);
        let on_all_cores = config.load_nice.is_none();
        preparing
            .cranelift_opt_level(OptLevel::None)
            .parallel_compilation(on_all_cores);

        let threads = u32::try_from(config.threads.max(1)).unwrap_or(u32::MAX);
        let waiting = match config.reuse {
            Some(_) => threads.saturating_mul(REUSING_NORMALIZERS),
            None => 0,
        };
        let instances = threads
            .saturating_add(waiting)
            .saturating_add(SPARE_INSTANCES);
        let mut pool = PoolingAllocationConfig::new();
        pool.total_component_instances(instances)
            .total_core_instances(instances.saturating_mul(MAX_CORE_INSTANCES))
            .max_core_instances_per_component(MAX_CORE_INSTANCES)
            .total_memories(instances.saturating_mul(MAX_MEMORIES))
            .max_memories_per_component(MAX_MEMORIES)
            .total_tables(instances.saturating_mul(MAX_TABLES))
            .max_tables_per_component(MAX_TABLES)
            .table_elements(100_000)
            .max_component_instance_size(1 << 20)
            .max_core_instance_size(1 << 20)
            .total_stacks(1)
            .max_memory_size(limits.memory_bytes)
            .max_unused_warm_slots(instances)
            .linear_memory_keep_resident(KEEP_RESIDENT)
            .table_keep_resident(64 << 10);
        let mut serving = common(limits);
        serving
            .cranelift_opt_level(OptLevel::Speed)
            .parallel_compilation(on_all_cores)
            .allocation_strategy(InstanceAllocationStrategy::Pooling(pool))
            .memory_init_cow(true);

        let engines = Self {
            serving: Engine::new(&serving).map_err(host)?,
            preparing: Engine::new(&preparing).map_err(host)?,
            stop: Arc::new(AtomicBool::new(false)),
        };
        engines.start_ticking()?;
        Ok(engines)
    }

    /// Deadlines are counted in ticks of a thread, because looking at a counter
    /// is all that a guest's loops can afford.
    fn start_ticking(&self) -> Result<(), LoadError> {
        let (serving, preparing) = (self.serving.weak(), self.preparing.weak());
        let stop = Arc::clone(&self.stop);
        std::thread::Builder::new()
            .name("plugin-deadlines".to_owned())
            .spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(TICK);
                    for engine in [&serving, &preparing] {
                        if let Some(engine) = engine.upgrade() {
                            engine.increment_epoch();
                        }
                    }
                }
            })
            .map(drop)
            .map_err(|error| LoadError::Host {
                detail: format!("no thread for deadlines: {error}"),
            })
    }
}

impl Drop for Engines {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// An engine that counts what a guest does, for [`measure`](crate::measure): too
/// slow to serve. No thread ticks for it; what bounds a call is its fuel.
pub(crate) fn counting(limits: &Limits) -> wasmtime::Result<Engine> {
    let mut counting = common(limits);
    counting
        .cranelift_opt_level(OptLevel::None)
        .consume_fuel(true);
    Engine::new(&counting)
}

/// The ticks after which a call that may take so long is over. One more than
/// fit, because the tick under way has already begun.
pub(crate) fn ticks(limit: Duration) -> u64 {
    let ticks = limit.as_nanos().div_ceil(TICK.as_nanos());
    u64::try_from(ticks).unwrap_or(u64::MAX - 1) + 1
}

/// What both engines share, and with them the meaning of a guest's code: the
/// answers must not depend on which of them ran it.
fn common(limits: &Limits) -> Config {
    let mut engine = Config::new();
    engine
        .epoch_interruption(true)
        .cranelift_nan_canonicalization(true)
        .max_wasm_stack(limits.stack_bytes)
        .async_stack_size(limits.stack_bytes + (1 << 20))
        .wasm_component_model(true)
        .wasm_memory64(false)
        .wasm_multi_memory(false)
        .wasm_threads(false)
        .wasm_relaxed_simd(false)
        .wasm_tail_call(true)
        .generate_address_map(false)
        .memory_may_move(false);
    engine
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_never_rounded_down() {
        assert_eq!(ticks(Duration::ZERO), 1);
        assert_eq!(ticks(Duration::from_nanos(1)), 2);
        assert_eq!(ticks(TICK), 2);
        assert_eq!(ticks(TICK + Duration::from_nanos(1)), 3);
        assert_eq!(ticks(Duration::MAX), u64::MAX);
    }
}
