//! From a .wasm file to a [`Normalizer`].

use crate::batch::Batch;
use crate::cache::{self, Cache};
use crate::config::{HostConfig, Limits, Reuse};
use crate::contract::{NORMALIZER_INTERFACE, PluginPre};
use crate::engine::Engines;
use crate::error::{Fault, LoadError};
use crate::guest::{self, Compiled};
use crate::inspect::{self, Inspection};
use crate::normalizer::{Normalizer, Provenance};
use crate::pool::{Lease, Pool};
use crate::sandbox::{State, linker};
use crate::snapshot;
use crate::threads::{self, GuestThreads};
use crate::validate;
use sha2::{Digest, Sha256};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Semaphore;
use wasmtime::component::{Component, Linker};

/// Loads that go on at the same time; others wait. Each has an instance for its trial.
const LOADS: usize = 2;

/// Stack of the thread that compiles, in bytes; parsing nests with its input.
const LOADER_STACK: usize = 16 << 20;

/// Loads normalizers and gives them threads to run on. Cheap to clone.
#[derive(Clone)]
pub struct PluginHost {
    shared: Arc<Shared>,
}

struct Shared {
    engines: Arc<Engines>,
    serving_linker: Linker<State>,
    preparing_linker: Linker<State>,
    cache: Cache,
    limits: Limits,
    reuse: Option<Reuse>,
    thread_count: usize,
    threads: GuestThreads,
    load_nice: Option<i32>,
    loads: Arc<Semaphore>,
}

impl std::fmt::Debug for PluginHost {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("PluginHost")
            .field("limits", &self.shared.limits)
            .finish_non_exhaustive()
    }
}

impl PluginHost {
    /// Starts the engines and the guest threads.
    ///
    /// # Errors
    /// [`LoadError::Host`]: no address space for the pool, no threads.
    pub fn new(config: &HostConfig) -> Result<Self, LoadError> {
        let host = |error: wasmtime::Error| LoadError::Host {
            detail: format!("{error:#}"),
        };
        let engines = Arc::new(Engines::new(config)?);
        Ok(Self {
            shared: Arc::new(Shared {
                serving_linker: linker(&engines.serving).map_err(host)?,
                preparing_linker: linker(&engines.preparing).map_err(host)?,
                engines,
                cache: Cache::new(config.cache_dir.clone()),
                limits: config.limits.clone(),
                reuse: config.reuse,
                thread_count: config.threads.max(1),
                load_nice: config.load_nice,
                loads: Arc::new(Semaphore::new(LOADS)),
                threads: GuestThreads::new(
                    config.threads,
                    config.queue,
                    config.limits.stack_bytes,
                    config.nice,
                )?,
            }),
        })
    }

    /// The largest .wasm file that is loaded, in bytes.
    pub fn component_limit(&self) -> usize {
        self.shared.limits.component_bytes
    }

    /// Reads a file and loads it; see [`load`](Self::load).
    ///
    /// # Errors
    /// Why it was refused.
    pub async fn load_file(&self, path: &Path, settings: &str) -> Result<Normalizer, LoadError> {
        self.load(self.read(path)?, settings).await
    }

    /// Reads a file that is to be loaded.
    ///
    /// # Errors
    /// It can't be read, or is larger than is loaded.
    pub fn read(&self, path: &Path) -> Result<Vec<u8>, LoadError> {
        inspect::read(path, self.component_limit())
    }

    /// Checks a component, configures it, snapshots and compiles it (or takes the
    /// compiled code from the cache), and tries it on a batch. This takes about a
    /// second without the cache, on a thread of its own.
    ///
    /// # Errors
    /// Why it was refused.
    pub async fn load(&self, wasm: Vec<u8>, settings: &str) -> Result<Normalizer, LoadError> {
        let settings = settings.to_owned();
        self.on_a_loading_thread(move |host| host.load_here(&wasm, &settings))
            .await?
    }

    /// Runs work that compiles, on a thread with the stack for it.
    pub(crate) async fn on_a_loading_thread<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> R + Send + 'static,
    ) -> Result<R, LoadError> {
        let host = self.clone();
        // The thread holds it: one whose caller has lost interest still works.
        let place = Arc::clone(&self.shared.loads).acquire_owned().await;
        let place = place.map_err(|closed| LoadError::Host {
            detail: closed.to_string(),
        })?;
        let (answer, result) = tokio::sync::oneshot::channel();
        std::thread::Builder::new()
            .name("plugin-load".to_owned())
            .stack_size(LOADER_STACK)
            .spawn(move || {
                let _place = place;
                // Compilers and snapshots work on input that nobody vouches for:
                // a panic there is a refusal, not the end of the host.
                let done = catch_unwind(AssertUnwindSafe(|| work(&host)));
                let _ = answer.send(done.map_err(|panic| LoadError::Compile {
                    detail: panic_text(panic.as_ref()),
                }));
            })
            .map_err(|error| LoadError::Host {
                detail: format!("no thread for loading: {error}"),
            })?;
        result.await.unwrap_or_else(|_| {
            Err(LoadError::Host {
                detail: "the loading thread ended early".to_owned(),
            })
        })
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// The component with the state that its `configure` leaves behind.
    pub(crate) fn snapshot(&self, wasm: &[u8], settings: &str) -> Result<Vec<u8>, LoadError> {
        snapshot::configured(
            &self.shared.engines.preparing,
            &self.shared.preparing_linker,
            &self.shared.limits,
            wasm,
            settings,
        )
    }

    fn load_here(&self, wasm: &[u8], settings: &str) -> Result<Normalizer, LoadError> {
        let started = Instant::now();
        let limit = self.component_limit();
        if wasm.len() > limit {
            return Err(LoadError::TooLarge {
                size: wasm.len() as u64,
                limit,
            });
        }
        let inspection = inspect::inspect(wasm)?;
        let provenance = |name: &str, version: &str| digests(&inspection, settings, name, version);
        let code = self.code(wasm, &provenance("", ""), settings)?;
        let was_cached = code.was_cached;
        let compiled = self.compiled(&code, settings)?;
        let failed = |call| {
            move |fault: Fault| LoadError::Failed {
                call,
                fault: validate::fault(fault, b""),
            }
        };
        if let Some(pool) = &compiled.pool {
            let instance = compiled
                .configured(&pool.settings)
                .map_err(failed("configure"))?
                .map_err(LoadError::settings)?;
            pool.give_back(Lease::new(instance));
        }
        let manifest = compiled.describe().map_err(failed("describe"))?;
        validate::manifest(&manifest).map_err(|detail| LoadError::Manifest { detail })?;

        let is_reused = compiled.pool.is_some();
        let provenance = provenance(&manifest.name, &manifest.version);
        let normalizer =
            Normalizer::new(compiled, manifest, provenance, self.shared.threads.clone());
        trial(&normalizer)?;
        tracing::info!(
            event = "normalizer_loaded",
            name = normalizer.provenance().name,
            version = normalizer.provenance().version,
            digest = normalizer.provenance().digest,
            cached = was_cached,
            reused = is_reused,
            millis = started.elapsed().as_millis() as u64,
            "normalizer loaded"
        );
        Ok(normalizer)
    }

    /// What runs: from the cache, from a snapshot, or, where there can't be one
    /// and the operator allows it, the component as it came.
    fn code(&self, wasm: &[u8], digests: &Provenance, settings: &str) -> Result<Code, LoadError> {
        let key = |settings_digest: &str| {
            cache::key(
                &self.shared.engines.serving,
                &digests.file_digest,
                settings_digest,
            )
        };
        let of_snapshot = key(&digests.settings_digest);
        if let Some(component) = self.cached(&of_snapshot) {
            return Ok(Code {
                component,
                is_snapshot: true,
                was_cached: true,
            });
        }
        // From here on it is work for seconds; what is cached should serve at once.
        if let Some(nice) = self.shared.load_nice {
            threads::be_nice(nice);
        }
        match self.snapshot(wasm, settings) {
            Ok(snapshot) => Ok(Code {
                component: self.compile(&of_snapshot, &snapshot)?,
                is_snapshot: true,
                was_cached: false,
            }),
            Err(LoadError::Snapshot { detail }) if self.shared.reuse.is_some() => {
                tracing::warn!(
                    event = "normalizer_not_snapshotted",
                    detail,
                    "its batches share instances: what it remembers from one can be seen in the next"
                );
                let as_it_came = key("");
                let cached = self.cached(&as_it_came);
                Ok(Code {
                    is_snapshot: false,
                    was_cached: cached.is_some(),
                    component: match cached {
                        Some(component) => component,
                        None => self.compile(&as_it_came, wasm)?,
                    },
                })
            }
            Err(refused) => Err(refused),
        }
    }

    fn cached(&self, key: &str) -> Option<Component> {
        let code = self.shared.cache.get(key)?;
        // SAFETY: `code` is what `Component::serialize` gave to this cache: it
        // lies in a directory that only this user may write to, and its digest
        // is right (see `cache`). Wasmtime checks that it was made by the same
        // version with compatible settings.
        unsafe { Component::deserialize(&self.shared.engines.serving, &code) }.ok()
    }

    fn compile(&self, key: &str, wasm: &[u8]) -> Result<Component, LoadError> {
        let component = Component::new(&self.shared.engines.serving, wasm)
            .map_err(|error| compile_error(&error))?;
        if self.shared.cache.is_on()
            && let Ok(code) = component.serialize()
        {
            self.shared.cache.put(key, &code);
        }
        Ok(component)
    }

    fn compiled(&self, code: &Code, settings: &str) -> Result<Compiled, LoadError> {
        let pre = self
            .shared
            .serving_linker
            .instantiate_pre(&code.component)
            .and_then(PluginPre::new)
            .map_err(|error| wrong_types(&error))?;
        let pool = match self.shared.reuse {
            Some(reuse) if !code.is_snapshot => Some(Arc::new(Pool::new(
                settings.to_owned(),
                reuse,
                self.shared.thread_count,
            ))),
            _ => None,
        };
        Ok(Compiled {
            pre,
            limits: self.shared.limits.clone(),
            pool,
            _engines: Arc::clone(&self.shared.engines),
        })
    }
}

/// Compiled code, and where it is from.
struct Code {
    component: Component,
    is_snapshot: bool,
    was_cached: bool,
}

/// Both questions about payloads that any normalizer must survive.
fn trial(normalizer: &Normalizer) -> Result<(), LoadError> {
    let payloads: [&[u8]; 3] = [b"", b"{}", b"\xff\x00"];
    let batch = Batch::of(payloads, 0).unwrap_or_default();
    let failed = |call| move |fault: Fault| LoadError::Failed { call, fault };
    let normalized = normalizer.normalize_here(&batch);
    if let Some((_, fault)) = normalized.faults.into_iter().next() {
        return Err(failed("normalize")(fault));
    }
    for answer in normalizer.admit_here(&batch) {
        if let crate::Admitted::Fault(fault) = answer {
            return Err(failed("admit")(fault));
        }
    }
    Ok(())
}

fn digests(inspection: &Inspection, settings: &str, name: &str, version: &str) -> Provenance {
    let settings_digest = hex::encode(Sha256::digest(settings));
    let both = Sha256::new()
        .chain_update(&inspection.sha256)
        .chain_update(&settings_digest)
        .finalize();
    Provenance {
        name: name.to_owned(),
        version: version.to_owned(),
        digest: hex::encode(both),
        file_digest: inspection.sha256.clone(),
        settings_digest,
    }
}

pub(crate) fn compile_error(error: &wasmtime::Error) -> LoadError {
    LoadError::Compile {
        detail: guest::shorten(&format!("{error:#}"), 1024),
    }
}

pub(crate) fn wrong_types(error: &wasmtime::Error) -> LoadError {
    LoadError::WrongTypes {
        interface: NORMALIZER_INTERFACE,
        detail: guest::shorten(&format!("{error:#}"), 1024),
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "the compiler panicked".to_owned())
}
