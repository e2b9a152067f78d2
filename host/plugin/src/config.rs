//! What an operator may set of the sandbox.

use std::path::PathBuf;
use std::time::Duration;

/// What a normalizer may use. Every bound is enforced, none is advice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// All memories of an instance together, in bytes.
    pub memory_bytes: usize,
    /// Time for any call…
    pub call_base: Duration,
    /// …and for each record of its batch on top.
    pub call_per_record: Duration,
    /// Time for `configure` and `describe`, at a load.
    pub load: Duration,
    /// The WebAssembly stack, in bytes.
    pub stack_bytes: usize,
    /// What a call may return, in bytes as the host holds it…
    pub result_base_bytes: usize,
    /// …and for each record of its batch on top.
    pub result_per_record_bytes: usize,
    /// The size of the .wasm file, in bytes.
    pub component_bytes: usize,
    /// What is kept of its standard error a call, in bytes.
    pub stderr_bytes: usize,
    /// What finding the records that make a batch fail may take a batch. Past
    /// it, the records not yet answered count as faulty, all of them.
    pub isolation: Duration,
}

impl Limits {
    /// Time for a call about so many records.
    pub fn call_time(&self, records: u32) -> Duration {
        self.call_base
            .saturating_add(self.call_per_record.saturating_mul(records))
    }

    /// What a call about so many records may return, in bytes.
    pub(crate) fn result_bytes(&self, records: usize) -> usize {
        self.result_base_bytes
            .saturating_add(self.result_per_record_bytes.saturating_mul(records))
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: 256 << 20,
            call_base: Duration::from_millis(250),
            call_per_record: Duration::from_millis(1),
            load: Duration::from_secs(10),
            stack_bytes: 1 << 20,
            result_base_bytes: 64 << 10,
            result_per_record_bytes: 16 << 10,
            component_bytes: 64 << 20,
            stderr_bytes: 4 << 10,
            isolation: Duration::from_secs(10),
        }
    }
}

/// How long instances are reused that can't be started fresh for every batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reuse {
    /// Calls after which an instance is retired.
    pub max_calls: u32,
    /// Memory, in bytes, above which it is; below [`Limits::memory_bytes`].
    pub max_memory_bytes: usize,
}

impl Default for Reuse {
    fn default() -> Self {
        Self {
            max_calls: 1000,
            max_memory_bytes: 64 << 20,
        }
    }
}

/// How the host runs normalizers.
#[derive(Debug, Clone)]
pub struct HostConfig {
    /// See [`Limits`].
    pub limits: Limits,
    /// Guest threads; a batch runs on one from start to end.
    pub threads: usize,
    /// Batches that may wait for a thread before callers wait.
    pub queue: usize,
    /// The priority of the guest threads, as `nice` counts it: 0 is that of the
    /// process, 19 takes only what nobody else wants.
    pub nice: i32,
    /// The priority of the threads that load, which then compile on one core each;
    /// none: that of the process, on all cores.
    pub load_nice: Option<i32>,
    /// Where compiled code is kept; none: it isn't. The directory must belong to
    /// this user and be closed to others.
    pub cache_dir: Option<PathBuf>,
    /// Whether a normalizer whose state after `configure` can't be snapshotted is
    /// run with instances that are reused; none: it is refused. What such a
    /// normalizer remembers from a batch can be seen in the next, so its answers
    /// need not be reproducible. Others always start every batch fresh.
    pub reuse: Option<Reuse>,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            threads: std::thread::available_parallelism().map_or(2, usize::from),
            queue: 64,
            nice: 0,
            load_nice: None,
            cache_dir: None,
            reuse: None,
        }
    }
}

/// Where compiled code is kept unless set: `$XDG_CACHE_HOME/cdr/compiled`, or
/// `~/.cache/cdr/compiled`. None without a home directory.
pub fn default_cache_dir() -> Option<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))?;
    Some(base.join("cdr").join("compiled"))
}
