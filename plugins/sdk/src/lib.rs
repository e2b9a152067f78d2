//! What the author of a CDR normalizer depends on.
//!
//! A normalizer is a WebAssembly component that answers two questions about
//! batches of call detail records: may they onto the topic (*admit*), and what
//! rows do they make (*normalize*). With this crate it is ordinary Rust: a type
//! for the record as posted, a type for the row, a function for each question,
//! and one line that exports them.
//!
//! ```
//! use cdr_plugin_sdk::{Admission, Malformed, Normalizer, Reason, ReceivedAt, Rejection, Row, Violation};
//!
//! #[derive(serde::Deserialize)]
//! struct Call<'a> {
//!     id: &'a str,
//!     seconds: i64,
//! }
//!
//! #[derive(Row)]
//! struct CallRow<'a> {
//!     id: &'a str,
//!     duration_s: u32,
//!     #[column(category)]
//!     source: &'static str,
//! }
//!
//! struct Calls;
//!
//! impl Normalizer for Calls {
//!     const NAME: &'static str = "calls";
//!     const VERSION: &'static str = "1.0.0";
//!     const DESCRIPTION: &'static str = "Calls of an imaginary switch.";
//!     type Settings = cdr_plugin_sdk::NoSettings;
//!     type Raw<'a> = Call<'a>;
//!     type Row<'a> = CallRow<'a>;
//!
//!     fn configure(_: Self::Settings) -> Result<Self, String> {
//!         Ok(Calls)
//!     }
//!     fn parse(payload: &[u8]) -> Result<Call<'_>, Malformed> {
//!         serde_json::from_slice(payload).map_err(|error| Malformed::new(error.to_string()))
//!     }
//!     fn admit(&self, call: &Call<'_>) -> Result<Admission, Violation> {
//!         Ok(Admission::keyed(call.id))
//!     }
//!     fn normalize<'a>(
//!         &self,
//!         call: Self::Raw<'a>,
//!         _: ReceivedAt,
//!     ) -> Result<Self::Row<'a>, Rejection> {
//!         let duration_s = u32::try_from(call.seconds).map_err(|_| {
//!             Rejection::new(Reason::NormalizationError, "a duration is not negative")
//!                 .field("seconds")
//!         })?;
//!         Ok(CallRow { id: call.id, duration_s, source: "switch" })
//!     }
//! }
//!
//! cdr_plugin_sdk::export!(Calls);
//!
//! // Natively, in a unit test:
//! let answers = cdr_plugin_sdk::native::normalize_one(&Calls, br#"{"id":"a","seconds":3}"#, 0);
//! assert_eq!(answers.unwrap().duration_s, 3);
//! ```
//!
//! Build it with `cargo build --target wasm32-wasip2 --release` as a
//! `crate-type = ["cdylib"]`; what comes out is the file that ships.
//!
//! Not for: running normalizers (that is `cdr-plugin-host`), and not for other
//! languages (they implement `wit/1.0.0/cdr.wit` directly).

// The derive names this crate by its full path, here too.
extern crate self as cdr_plugin_sdk;

mod answer;
#[allow(missing_docs, clippy::all)]
mod component;
mod guest;
pub mod native;
mod row;

pub use answer::{Admission, Malformed, Reason, ReceivedAt, Rejection, Violation, ViolationCode};
pub use cdr_plugin_sdk_derive::Row;
pub use row::{Builder, Column, ColumnType, Row, Value};

/// The types of the WIT package, and what [`export!`] needs. Authors have no
/// business here.
#[doc(hidden)]
pub mod bindings {
    pub use crate::component::__export_component;
    pub use crate::component::exports;
    pub use crate::component::exports::telecom::cdr::normalizer::Guest;
    pub use crate::component::telecom::cdr::types::*;
    pub use crate::guest::Exported;
}

/// A normalizer: how records are read, admitted and turned into rows.
pub trait Normalizer: Sized + 'static {
    /// Lower-case letters, digits and `-`.
    const NAME: &'static str;
    /// The semantic version that is stored with every row; by custom
    /// `env!("CARGO_PKG_VERSION")`.
    const VERSION: &'static str;
    /// One sentence for operators.
    const DESCRIPTION: &'static str;

    /// What an operator may set, as JSON; [`NoSettings`] if nothing. Give it
    /// `#[serde(deny_unknown_fields, default)]`, so that a slip of the pen is
    /// refused at the load rather than ignored.
    type Settings: serde::de::DeserializeOwned;
    /// The record as posted. It may borrow from the payload.
    type Raw<'a>;
    /// The row that comes out. It may borrow from the payload.
    type Row<'a>: Row;

    /// Takes the settings and warms up (builds tables, compiles expressions):
    /// every batch starts from the state that this leaves behind.
    ///
    /// # Errors
    /// A sentence for the operator; the load is refused.
    fn configure(settings: Self::Settings) -> Result<Self, String>;

    /// Reads a payload. Both questions go through this one function, so that
    /// they can't disagree about what is well-formed.
    ///
    /// # Errors
    /// The payload is no record at all (`malformed_json`).
    fn parse(payload: &[u8]) -> Result<Self::Raw<'_>, Malformed>;

    /// May this record onto the topic? Judge presence and types here; what
    /// needs a range, a table or a clock is for [`normalize`](Self::normalize).
    ///
    /// # Errors
    /// What is wrong, for whoever posted it.
    fn admit(&self, raw: &Self::Raw<'_>) -> Result<Admission, Violation>;

    /// What row does this record make? (Write `Self::Raw<'a>` and `Self::Row<'a>`
    /// in the signature, as here: Rust takes the types' own names for others.)
    ///
    /// # Errors
    /// Why it makes none; the record goes to the dead-letter topic.
    fn normalize<'a>(
        &self,
        raw: Self::Raw<'a>,
        received_at: ReceivedAt,
    ) -> Result<Self::Row<'a>, Rejection>;
}

/// The settings of a normalizer that has none: only `{}` is accepted.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoSettings {}

/// Exports a [`Normalizer`] from a component. It has no effect on native
/// targets, so that the crate can be unit-tested there.
#[macro_export]
macro_rules! export {
    ($normalizer:ty) => {
        #[cfg(target_family = "wasm")]
        const _: () = {
            type Component = $crate::bindings::Exported<$normalizer>;
            ::std::thread_local! {
                static CONFIGURED: ::std::cell::OnceCell<$normalizer> =
                    const { ::std::cell::OnceCell::new() };
            }
            impl $crate::Configured for $normalizer {
                fn with<R>(work: impl FnOnce(&::std::cell::OnceCell<Self>) -> R) -> R {
                    CONFIGURED.with(work)
                }
            }
    $crate::bindings::__export_component!(Component with_types_in $crate::bindings);
        };
    };
}

/// Where [`export!`] keeps the configured normalizer.
#[doc(hidden)]
pub trait Configured: Normalizer {
    /// Runs `work` on the place of the one instance.
    fn with<R>(work: impl FnOnce(&std::cell::OnceCell<Self>) -> R) -> R;
}
