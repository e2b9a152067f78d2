//! What can be said of a .wasm file without running it.

use crate::contract::{NORMALIZER_INTERFACE, NORMALIZER_INTERFACE_NAME, import_is_allowed};
use crate::error::LoadError;
use crate::guest::shorten;
use crate::validate;
use sha2::{Digest, Sha256};
use std::io::Read;
use std::path::Path;
use wasmparser::{Encoding, Parser, Payload};

/// The longest name kept of an import or export, in bytes.
const MAX_NAME_BYTES: usize = 200;

/// What a component says from outside.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Inspection {
    /// Bytes of the file.
    pub size: usize,
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
    /// The names of its imports.
    pub imports: Vec<String>,
    /// The names of its exports.
    pub exports: Vec<String>,
}

/// Reads a file of at most `limit` bytes.
///
/// # Errors
/// It can't be read, or is larger.
pub(crate) fn read(path: &Path, limit: usize) -> Result<Vec<u8>, LoadError> {
    let unreadable = |reason| LoadError::Read {
        path: path.to_owned(),
        reason,
    };
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let size = file.metadata().map_err(unreadable)?.len();
    let mut bytes = Vec::new();
    // The size may be that of a pipe, or change: what counts is what is read.
    file.take(limit as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() > limit {
        return Err(LoadError::TooLarge {
            size: size.max(bytes.len() as u64),
            limit,
        });
    }
    Ok(bytes)
}

/// Reads the outline of a component and checks what can be checked from it: the
/// kind of file, its imports against the allow-list, the name of its export.
///
/// # Errors
/// What was expected, what was found, what to do.
pub fn inspect(wasm: &[u8]) -> Result<Inspection, LoadError> {
    let inspection = outline(wasm)?;
    if let Some(import) = inspection
        .imports
        .iter()
        .find(|import| !import_is_allowed(import))
    {
        return Err(LoadError::ForbiddenImport {
            import: import.clone(),
        });
    }
    if !inspection
        .exports
        .iter()
        .any(|export| export == NORMALIZER_INTERFACE)
    {
        return Err(wrong_interface(&inspection.exports));
    }
    Ok(inspection)
}

fn wrong_interface(exports: &[String]) -> LoadError {
    let other_version = exports
        .iter()
        .any(|export| export.split('@').next() == Some(NORMALIZER_INTERFACE_NAME));
    LoadError::WrongInterface {
        expected: NORMALIZER_INTERFACE,
        found: if exports.is_empty() {
            "none at all".to_owned()
        } else {
            let names: Vec<_> = exports
                .iter()
                .take(5)
                .map(|name| format!("`{name}`"))
                .collect();
            names.join(", ")
        },
        advice: if other_version {
            "it was built against another version of wit/: build it again with the SDK that this host comes with"
        } else {
            "implement the world `plugin` of wit/1.0.0/cdr.wit (in Rust: cdr_plugin_sdk::export!)"
        },
    }
}

/// Names are shown to people, and nobody has validated them yet. What is cut or
/// replaced here is no name that is looked for.
fn presentable(name: &str) -> String {
    let mut name = shorten(name, MAX_NAME_BYTES);
    validate::make_one_line(&mut name);
    name
}

fn outline(wasm: &[u8]) -> Result<Inspection, LoadError> {
    if wasm.is_empty() {
        return Err(LoadError::Empty);
    }
    if !wasm.starts_with(b"\0asm") {
        return Err(LoadError::NotWasm {
            found: wasm[..wasm.len().min(8)].escape_ascii().to_string(),
        });
    }
    let damaged = |error: wasmparser::BinaryReaderError| LoadError::Damaged {
        detail: error.to_string(),
    };
    let (mut imports, mut exports) = (Vec::new(), Vec::new());
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(wasm) {
        match payload.map_err(damaged)? {
            Payload::Version { encoding, .. } => {
                if depth == 0 && encoding == Encoding::Module {
                    return Err(LoadError::CoreModule);
                }
                depth += 1;
            }
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 1 => {
                for import in section {
                    imports.push(presentable(import.map_err(damaged)?.name.name));
                }
            }
            Payload::ComponentExportSection(section) if depth == 1 => {
                for export in section {
                    exports.push(presentable(export.map_err(damaged)?.name.name));
                }
            }
            _ => {}
        }
    }
    Ok(Inspection {
        size: wasm.len(),
        sha256: hex::encode(Sha256::digest(wasm)),
        imports,
        exports,
    })
}
