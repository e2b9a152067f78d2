//! The contract, seen from the host: names, generated types, allowed imports.

mod generated {
    #![allow(missing_docs, clippy::all)]
    wasmtime::component::bindgen!({
        path: "../../wit/1.0.0",
        world: "plugin",
        additional_derives: [PartialEq, Clone],
    });
}

pub use generated::exports::telecom::cdr::normalizer;
pub use generated::telecom::cdr::types::{
    Admission, Batch as WitBatch, Blobs, Column, ColumnSpec, ColumnType, Manifest, Outcome, Reason,
    Rejection, Values, Violation, ViolationCode,
};
pub use generated::{Plugin, PluginPre};

/// The interface that a normalizer exports.
pub const NORMALIZER_INTERFACE: &str = "telecom:cdr/normalizer@1.0.0";

/// The same without its version: what a build for another version exports.
pub const NORMALIZER_INTERFACE_NAME: &str = "telecom:cdr/normalizer";

/// Interfaces a component may import, without their versions: what the standard
/// libraries of the usual languages pull in. They are linked, and grant nothing.
pub const ALLOWED_IMPORTS: [&str; 17] = [
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/stderr",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:cli/terminal-stderr",
    "wasi:clocks/monotonic-clock",
    "wasi:clocks/wall-clock",
    "wasi:filesystem/preopens",
    "wasi:filesystem/types",
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
];

/// Further allowed imports: randomness, from a fixed seed.
pub const ALLOWED_RANDOM_IMPORTS: [&str; 3] = [
    "wasi:random/random",
    "wasi:random/insecure",
    "wasi:random/insecure-seed",
];

/// The types-only interface of the package, which components re-export or import.
pub const TYPES_INTERFACE: &str = "telecom:cdr/types@1.0.0";

/// Whether a component may import this interface. Versions of WASI 0.2 are
/// compatible with each other; others are not.
pub fn import_is_allowed(import: &str) -> bool {
    if import == TYPES_INTERFACE {
        return true;
    }
    let Some((name, version)) = import.split_once('@') else {
        return false;
    };
    version.starts_with("0.2.")
        && (ALLOWED_IMPORTS.contains(&name) || ALLOWED_RANDOM_IMPORTS.contains(&name))
}

/// The word for a reason, as dead letters and metrics have it.
pub fn reason_word(reason: Reason) -> &'static str {
    match reason {
        Reason::MissingRequiredField => "missing_required_field",
        Reason::InvalidRatValue => "invalid_rat_value",
        Reason::InvalidEpoch => "invalid_epoch",
        Reason::MalformedJson => "malformed_json",
        Reason::NormalizationError => "normalization_error",
    }
}

/// The word for a violation, as the API answers it.
pub fn violation_word(code: ViolationCode) -> &'static str {
    match code {
        ViolationCode::MalformedJson => "malformed_json",
        ViolationCode::MissingRequiredField => "missing_required_field",
        ViolationCode::InvalidType => "invalid_type",
    }
}

/// The word for a column type, as in the WIT package.
pub fn column_type_word(kind: ColumnType) -> &'static str {
    match kind {
        ColumnType::Boolean => "boolean",
        ColumnType::Uint32 => "uint32",
        ColumnType::Uint64 => "uint64",
        ColumnType::Int64 => "int64",
        ColumnType::Float64 => "float64",
        ColumnType::Text => "text",
        ColumnType::Category => "category",
        ColumnType::Uuid => "uuid",
        ColumnType::Ipv4 => "ipv4",
        ColumnType::Seconds => "seconds",
        ColumnType::Millis => "millis",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_interfaces_of_wasi_0_2_may_be_imported() {
        for allowed in [
            "wasi:io/streams@0.2.0",
            "wasi:random/insecure-seed@0.2.12",
            "wasi:cli/stderr@0.2.3",
            TYPES_INTERFACE,
        ] {
            assert!(import_is_allowed(allowed), "{allowed}");
        }
        for refused in [
            "wasi:sockets/tcp@0.2.0",
            "wasi:http/outgoing-handler@0.2.0",
            "wasi:io/streams@0.3.0",
            "wasi:io/streams",
            "wasi:io/streams@0.2",
            "env",
            "telecom:cdr/types@2.0.0",
            "",
        ] {
            assert!(!import_is_allowed(refused), "{refused}");
        }
    }
}
