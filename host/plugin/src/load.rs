//! From a .wasm file to a [`Normalizer`].

use crate::batch::Batch;
use crate::cache::{self, Cache};
use crate::config::{HostConfig, Limits};
use crate::contract::{NORMALIZER_INTERFACE, PluginPre};
use crate::engine::Engines;
use crate::error::{Fault, LoadError};
use crate::guest::{self, Compiled};
use crate::inspect::{self, Inspection};
use crate::normalizer::{Normalizer, Provenance};
use crate::sandbox::{State, linker};
use crate::snapshot;
use crate::threads::GuestThreads;
use crate::validate;
use sha2::{Digest, Sha256};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use wasmtime::component::{Component, Linker};

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
    threads: GuestThreads,
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
                threads: GuestThreads::new(
                    config.threads,
                    config.queue,
                    config.limits.stack_bytes,
                )?,
            }),
        })
    }

    /// Reads a file and loads it; see [`load`](Self::load).
    ///
    /// # Errors
    /// Why it was refused.
    pub async fn load_file(&self, path: &Path, settings: &str) -> Result<Normalizer, LoadError> {
        let wasm = inspect::read(path, self.shared.limits.component_bytes)?;
        self.load(wasm, settings).await
    }

    /// Checks a component, configures it, snapshots and compiles it (or takes the
    /// compiled code from the cache), and tries it on a batch. This takes about a
    /// second without the cache, on a thread of its own.
    ///
    /// # Errors
    /// Why it was refused.
    pub async fn load(&self, wasm: Vec<u8>, settings: &str) -> Result<Normalizer, LoadError> {
        let host = self.clone();
        let settings = settings.to_owned();
        let (answer, result) = tokio::sync::oneshot::channel();
        std::thread::Builder::new()
            .name("plugin-load".to_owned())
            .stack_size(LOADER_STACK)
            .spawn(move || {
                // Compilers and snapshots work on input that nobody vouches for:
                // a panic there is a refusal, not the end of the host.
                let loaded = catch_unwind(AssertUnwindSafe(|| host.load_here(&wasm, &settings)));
                let _ = answer.send(loaded.unwrap_or_else(|panic| {
                    Err(LoadError::Compile {
                        detail: panic_text(panic.as_ref()),
                    })
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

    fn load_here(&self, wasm: &[u8], settings: &str) -> Result<Normalizer, LoadError> {
        let started = Instant::now();
        let inspection = inspect::inspect(wasm)?;
        let provenance = |name: &str, version: &str| digests(&inspection, settings, name, version);
        let key = {
            let digests = provenance("", "");
            cache::key(
                &self.shared.engines.serving,
                &digests.file_digest,
                &digests.settings_digest,
            )
        };

        let cached = self.shared.cache.get(&key).and_then(|code| {
            // SAFETY: `code` is what `Component::serialize` gave to this cache:
            // it lies in a directory that only this user may write to, and its
            // digest is right (see `cache`). Wasmtime checks that it was made
            // by the same version with compatible settings.
            unsafe { Component::deserialize(&self.shared.engines.serving, &code) }.ok()
        });
        let was_cached = cached.is_some();
        let component = match cached {
            Some(component) => component,
            None => {
                let snapshot = snapshot::configured(
                    &self.shared.engines.preparing,
                    &self.shared.preparing_linker,
                    &self.shared.limits,
                    wasm,
                    settings,
                )?;
                let component = Component::new(&self.shared.engines.serving, &snapshot)
                    .map_err(|error| compile_error(&error))?;
                if self.shared.cache.is_on()
                    && let Ok(code) = component.serialize()
                {
                    self.shared.cache.put(&key, &code);
                }
                component
            }
        };

        let pre = self
            .shared
            .serving_linker
            .instantiate_pre(&component)
            .and_then(PluginPre::new)
            .map_err(|error| wrong_types(&error))?;
        let compiled = Compiled {
            pre,
            limits: self.shared.limits.clone(),
            _engines: Arc::clone(&self.shared.engines),
        };
        let failed = |call| move |fault: Fault| LoadError::Failed { call, fault };
        let manifest = compiled.describe().map_err(failed("describe"))?;
        validate::manifest(&manifest).map_err(|detail| LoadError::Manifest { detail })?;

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
            millis = started.elapsed().as_millis() as u64,
            "normalizer loaded"
        );
        Ok(normalizer)
    }
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
