//! What can go wrong: at a load ([`LoadError`]), in a call ([`Fault`]), and
//! around it ([`RunError`]).

use crate::guest::shorten;
use crate::validate;
use std::path::PathBuf;
use std::time::Duration;

/// A normalizer was refused. Nothing was started, nothing changed.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file can't be read.
    #[error("can't read the normalizer {}: {reason}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: std::io::Error,
    },
    /// Larger than [`Limits::component_bytes`](crate::Limits::component_bytes).
    #[error("the file has {size} bytes; a normalizer may have {limit}")]
    TooLarge {
        /// In bytes.
        size: u64,
        /// In bytes.
        limit: usize,
    },
    /// Nothing in it.
    #[error("the file is empty; expected a WebAssembly component")]
    Empty,
    /// Another kind of file.
    #[error(
        "not WebAssembly: expected a component, found a file that begins with {found}; \
         build one with `cargo build --target wasm32-wasip2`"
    )]
    NotWasm {
        /// Its first bytes.
        found: String,
    },
    /// A module, not a component.
    #[error(
        "a core WebAssembly module, not a component; build for the target wasm32-wasip2 \
         (wasm32-wasip1 and wasm32-unknown-unknown make core modules)"
    )]
    CoreModule,
    /// Damaged.
    #[error("a damaged or truncated component: {detail}")]
    Damaged {
        /// What the parser found, and where.
        detail: String,
    },
    /// It exports something else.
    #[error(
        "not a normalizer for this host: expected the export `{expected}`, found {found}; {advice}"
    )]
    WrongInterface {
        /// The interface of the contract.
        expected: &'static str,
        /// What it exports instead.
        found: String,
        /// What to do.
        advice: &'static str,
    },
    /// It wants what the sandbox doesn't give.
    #[error(
        "it imports `{import}`, which a normalizer may not: it gets no network, files or host \
         functions, only the parts of WASI 0.2 that standard libraries need \
         (wasi:cli, wasi:io, wasi:clocks, wasi:filesystem, wasi:random)"
    )]
    ForbiddenImport {
        /// The interface.
        import: String,
    },
    /// Its functions have other types than the contract says.
    #[error("it exports `{interface}`, but not as the contract has it: {detail}")]
    WrongTypes {
        /// The interface of the contract.
        interface: &'static str,
        /// The difference.
        detail: String,
    },
    /// The compiler refused it.
    #[error("can't be compiled: {detail}")]
    Compile {
        /// Why.
        detail: String,
    },
    /// `configure` refused its settings.
    #[error("the normalizer refused its settings: {message}")]
    Settings {
        /// The normalizer's words.
        message: String,
    },
    /// `configure`, `describe` or the trial batch failed.
    #[error("it failed in `{call}` at the load: {fault}")]
    Failed {
        /// The function.
        call: &'static str,
        /// How.
        fault: Fault,
    },
    /// Its state after `configure` can't be the start of every batch.
    #[error("its state after `configure` can't be snapshotted: {detail}")]
    Snapshot {
        /// Why.
        detail: String,
    },
    /// Its manifest breaks the contract.
    #[error("its manifest is not acceptable: {detail}")]
    Manifest {
        /// What and where.
        detail: String,
    },
    /// The host itself failed (no memory for the pool, no threads).
    #[error("the host can't run normalizers: {detail}")]
    Host {
        /// Why.
        detail: String,
    },
}

/// The most that is kept of what a normalizer says about its settings, in bytes.
const MAX_SETTINGS_MESSAGE: usize = 1024;

impl LoadError {
    /// A word for metrics.
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Read { .. } => "unreadable",
            Self::TooLarge { .. } => "too_large",
            Self::Empty | Self::NotWasm { .. } | Self::CoreModule | Self::Damaged { .. } => {
                "not_a_component"
            }
            Self::WrongInterface { .. } | Self::WrongTypes { .. } => "wrong_contract",
            Self::ForbiddenImport { .. } => "forbidden_import",
            Self::Compile { .. } => "compile",
            Self::Settings { .. } => "settings",
            Self::Failed { .. } => "failed",
            Self::Snapshot { .. } => "snapshot",
            Self::Manifest { .. } => "manifest",
            Self::Host { .. } => "host",
        }
    }

    /// Whether it is the settings that were refused, by the normalizer itself.
    pub fn is_of_settings(&self) -> bool {
        matches!(self, Self::Settings { .. })
    }

    /// The normalizer's words about its settings, made fit to be shown.
    pub(crate) fn settings(mut message: String) -> Self {
        validate::make_printable(&mut message);
        Self::Settings {
            message: shorten(&message, MAX_SETTINGS_MESSAGE),
        }
    }
}

/// How a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// It trapped: a panic, an invalid access, an exhausted stack.
    Trap,
    /// It took longer than it may.
    Deadline,
    /// It wanted more memory than it may have.
    Memory,
    /// Its answer was larger than it may be.
    ResultSize,
    /// Its answer breaks the contract.
    ContractViolation,
    /// Not run: finding the faulty records of its batch took longer than it may.
    Isolation,
}

impl FaultKind {
    /// The word for metrics, logs and dead letters.
    pub fn tag(self) -> &'static str {
        match self {
            Self::Trap => "trap",
            Self::Deadline => "deadline",
            Self::Memory => "memory",
            Self::ResultSize => "result_size",
            Self::ContractViolation => "contract_violation",
            Self::Isolation => "isolation",
        }
    }
}

/// A call failed: a fault of the normalizer, not of the record's rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", kind.tag())]
pub struct Fault {
    /// How.
    pub kind: FaultKind,
    /// In a sentence, bounded.
    pub detail: String,
    /// What the guest wrote to its standard error (a panic message), bounded.
    pub stderr: String,
}

impl Fault {
    pub(crate) fn new(kind: FaultKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            stderr: String::new(),
        }
    }

    pub(crate) fn deadline(limit: Duration) -> Self {
        Self::new(
            FaultKind::Deadline,
            format!("it did not answer within {limit:?}"),
        )
    }

    pub(crate) fn breach(detail: impl Into<String>) -> Self {
        Self::new(FaultKind::ContractViolation, detail)
    }
}

/// A batch was not run.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RunError {
    /// The guest threads have stopped.
    #[error("the plugin host is shutting down")]
    ShuttingDown,
}
