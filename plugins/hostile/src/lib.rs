//! A guest that misbehaves on command, for the tests of the plugin host: each
//! payload, and the settings, say what to do. It goes around the SDK, which
//! would not let it.
//!
//! - settings: what `configure` does, and what `describe` says ([`manifest`])
//! - payloads: what happens before an answer ([`misbehave`]), what the answer
//!   to that record is ([`ask`]), and how the whole answer is spoilt ([`distort`])

#[cfg(target_family = "wasm")]
mod ask;
#[cfg(target_family = "wasm")]
mod distort;
#[cfg(target_family = "wasm")]
mod guest;
#[cfg(target_family = "wasm")]
mod manifest;
#[cfg(target_family = "wasm")]
mod misbehave;
