//! What surrounds a guest: WASI that grants nothing, a memory limit, and a
//! bounded ear for its standard error.

use bytes::Bytes;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use wasmtime::component::{Linker, Resource, ResourceTable};
use wasmtime::{Engine, ResourceLimiter};
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{DynPollable, OutputStream, Pollable, StreamResult};
use wasmtime_wasi::random::Deterministic;
use wasmtime_wasi::{HostMonotonicClock, HostWallClock, WasiCtx, WasiCtxView, WasiView};

/// The bytes that all "randomness" repeats. Any will do; they only have to stay
/// the same, so that a batch gives the same answer next year.
const SEED: [u8; 16] = *b"telecom:cdr@1.0.";

/// What a guest may ask of `wasi:random` at once, in bytes.
const MAX_RANDOM_BYTES: u64 = 1 << 20;

/// Handles (streams, pollables, directories, and its own) that a guest may hold
/// at once. Each is memory of the host.
pub(crate) const MAX_HANDLES: usize = 1024;

/// Core instances of a component. One of Rust's std is four (the module, an
/// adapter for imports, shims), one of CPython 38 (its shared libraries, and a
/// stub for each WASI interface). They cost nothing until they are used.
pub(crate) const MAX_CORE_INSTANCES: u32 = 64;

/// Memories of a component.
pub(crate) const MAX_MEMORIES: u32 = 2;

/// Tables of a component.
pub(crate) const MAX_TABLES: u32 = 16;

/// The state of one store.
pub(crate) struct State {
    wasi: WasiCtx,
    table: ResourceTable,
    pub(crate) memory: MemoryLimiter,
    pub(crate) stderr: Stderr,
}

impl State {
    pub(crate) fn new(memory_bytes: usize, stderr_bytes: usize) -> Self {
        let stderr = Stderr::new(stderr_bytes);
        let mut wasi = WasiCtx::builder();
        wasi.stderr(stderr.clone())
            .wall_clock(StandingClock)
            .monotonic_clock(StandingClock)
            .secure_random(Deterministic::new(SEED.to_vec()))
            .insecure_random(Deterministic::new(SEED.to_vec()))
            .insecure_random_seed(u128::from_le_bytes(SEED))
            .max_random_size(MAX_RANDOM_BYTES)
            .allow_tcp(false)
            .allow_udp(false)
            .allow_ip_name_lookup(false);
        let mut table = ResourceTable::new();
        table.set_max_capacity(MAX_HANDLES);
        Self {
            wasi: wasi.build(),
            table,
            memory: MemoryLimiter::new(memory_bytes),
            stderr,
        }
    }
}

impl State {
    /// Whether the guest has streams or the like open.
    pub(crate) fn holds_handles(&self) -> bool {
        !self.table.is_empty()
    }

    /// Forgets what the last call left for the host to read.
    pub(crate) fn begin_call(&mut self) {
        self.memory.refused = None;
        self.memory.beyond_its_own = false;
        self.stderr.clear();
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.table,
        }
    }
}

/// Links what a guest may import.
pub(crate) fn linker(engine: &Engine) -> wasmtime::Result<Linker<State>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_sync(&mut linker)?;
    // Waiting is no work: it would hold a guest thread in the host, where no
    // deadline is looked at.
    linker.allow_shadowing(true);
    let mut clock = linker.instance("wasi:clocks/monotonic-clock@0.2.12")?;
    for name in ["subscribe-duration", "subscribe-instant"] {
        clock.func_wrap(
            name,
            |_, (_,): (u64,)| -> wasmtime::Result<(Resource<DynPollable>,)> {
                wasmtime::bail!("a normalizer may not sleep")
            },
        )?;
    }
    linker.allow_shadowing(false);
    Ok(linker)
}

/// A clock that always says the same.
struct StandingClock;

impl HostWallClock for StandingClock {
    fn resolution(&self) -> Duration {
        Duration::from_secs(1)
    }
    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

impl HostMonotonicClock for StandingClock {
    fn resolution(&self) -> u64 {
        1_000_000_000
    }
    fn now(&self) -> u64 {
        0
    }
}

/// Counts the memory of an instance, over all its memories and tables.
#[derive(Debug)]
pub(crate) struct MemoryLimiter {
    limit: usize,
    used: usize,
    /// What was asked for when it was refused.
    pub(crate) refused: Option<usize>,
    /// Whether more was asked for than the guest itself declares as its maximum.
    pub(crate) beyond_its_own: bool,
}

impl MemoryLimiter {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            used: 0,
            refused: None,
            beyond_its_own: false,
        }
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// What is in use, in bytes. Memory never shrinks, so this is the most that was.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    fn grow(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> bool {
        if maximum.is_some_and(|maximum| desired > maximum) {
            self.beyond_its_own = true;
            return false;
        }
        let total = self.used.saturating_add(desired.saturating_sub(current));
        if total > self.limit {
            self.refused = Some(total);
            return false;
        }
        self.used = total;
        true
    }
}

/// The host's bookkeeping of a table element, in bytes.
const TABLE_ELEMENT_BYTES: usize = 16;

impl ResourceLimiter for State {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(self.memory.grow(current, desired, maximum))
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let bytes = |elements: usize| elements.saturating_mul(TABLE_ELEMENT_BYTES);
        Ok(self
            .memory
            .grow(bytes(current), bytes(desired), maximum.map(bytes)))
    }

    // The pool has the same bounds; these hold where instances are allocated on
    // demand, for `configure`.
    fn instances(&self) -> usize {
        MAX_CORE_INSTANCES as usize
    }

    fn memories(&self) -> usize {
        MAX_MEMORIES as usize
    }

    fn tables(&self) -> usize {
        MAX_TABLES as usize
    }
}

/// Keeps the first bytes of what a guest writes, and lets the rest go.
#[derive(Clone)]
pub(crate) struct Stderr {
    kept: Arc<Mutex<Vec<u8>>>,
    bound: usize,
}

impl Stderr {
    fn new(bound: usize) -> Self {
        Self {
            kept: Arc::default(),
            bound,
        }
    }

    fn clear(&self) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clear();
    }

    /// What was kept, as text.
    pub(crate) fn text(&self) -> String {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&kept).trim_end().to_owned()
    }
}

impl IsTerminal for Stderr {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Stderr {
    fn async_stream(&self) -> Box<dyn tokio::io::AsyncWrite + Send + Sync> {
        Box::new(tokio::io::sink())
    }
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[async_trait::async_trait]
impl Pollable for Stderr {
    async fn ready(&mut self) {}
}

impl OutputStream for Stderr {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let room = self.bound.saturating_sub(kept.len()).min(bytes.len());
        kept.extend_from_slice(&bytes[..room]);
        Ok(())
    }
    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }
    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(4096)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_memories_count_together() {
        let mut memory = MemoryLimiter::new(100);
        assert!(memory.grow(0, 60, None));
        assert!(memory.grow(0, 30, None));
        assert!(!memory.grow(30, 50, None));
        assert_eq!(memory.refused, Some(110));
        assert!(memory.grow(30, 40, None));
    }

    #[test]
    fn a_guest_that_exceeds_its_own_maximum_is_not_refused_by_the_host() {
        let mut memory = MemoryLimiter::new(100);
        assert!(!memory.grow(0, 60, Some(50)));
        assert!(memory.beyond_its_own);
        assert_eq!(memory.refused, None);
        assert!(memory.grow(0, 50, Some(50)));
    }

    #[test]
    fn the_start_of_standard_error_is_kept() {
        let mut stderr = Stderr::new(5);
        for part in ["abc", "defg", "hij"] {
            stderr.write(Bytes::from(part)).unwrap();
        }
        assert_eq!(stderr.text(), "abcde");
    }
}
