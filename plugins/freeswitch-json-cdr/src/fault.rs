//! What can be wrong with a record, in sentences for whoever posted it and for
//! the operator who finds it among the dead letters. Short values are quoted,
//! and no phone number.

use crate::record::{Found, Key, Record, Section};
use cdr_plugin_sdk::{Reason, Rejection, Violation, ViolationCode};
use telecom_rules::phone;
use telecom_rules::text::quoted;

/// See the module's documentation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    #[error("`{}` is required, but it is {found}", key.path())]
    Missing { key: Key, found: &'static str },
    #[error(
        "no caller: neither `{}` nor `{}` is there", Key::CallerIdNumber.path(), Key::Ani.path()
    )]
    NoCaller,
    #[error(
        "`{}` is {found}, and no `vendor_id` is set for such records", Key::Switchname.path()
    )]
    NoVendor { found: &'static str },
    #[error("`{}` has to be {}, but it is {}", section.path(), section.wanted(), found.as_str())]
    WrongSection { section: Section, found: Found },
    #[error(
        "`{}` has to be a string (FreeSWITCH writes numbers and times as strings too), but it is {}",
        key.path(), found.as_str()
    )]
    WrongType { key: Key, found: Found },
    #[error("`{}` has {bytes} bytes; an identifier has {MAX_IDENTIFIER} at most", key.path())]
    TooLong { key: Key, bytes: usize },
    #[error("`{}` is percent-encoded, but not of a text in UTF-8", key.path())]
    NotUtf8 { key: Key },
    #[error("`{}` contains a control character", key.path())]
    Control { key: Key },
    #[error("{} is no whole number", quoted(value))]
    NotInteger { key: Key, value: String },
    #[error(
        "{value} s is not between 90 days before and 24 hours after the record was received \
         ({received_at} ms)"
    )]
    OutOfWindow {
        key: Key,
        value: i64,
        received_at: i64,
    },
    #[error("{seconds} s before `{}`", before.path())]
    TooEarly { key: Key, before: Key, seconds: u32 },
    #[error("{value} is negative or far too large")]
    OutOfRange { key: Key, value: i64 },
    #[error("{billed} s is longer than the leg, which took {leg} s")]
    LongerThanLeg { billed: u32, leg: u32 },
    #[error("{fault}")]
    Caller { key: Key, fault: phone::Fault },
}

/// The longest identifier. The switch's own have 36 characters; what a dialplan
/// sets in their place is bounded, for it becomes a Kafka key.
pub(crate) const MAX_IDENTIFIER: usize = 512;

impl Section {
    const fn wanted(self) -> &'static str {
        match self {
            Self::Callflow => "an array of objects",
            _ => "an object",
        }
    }
}

impl Fault {
    /// The place to blame.
    fn path(&self) -> &'static str {
        match self {
            Self::Missing { key, .. }
            | Self::WrongType { key, .. }
            | Self::TooLong { key, .. }
            | Self::NotUtf8 { key }
            | Self::Control { key }
            | Self::NotInteger { key, .. }
            | Self::OutOfWindow { key, .. }
            | Self::TooEarly { key, .. }
            | Self::OutOfRange { key, .. }
            | Self::Caller { key, .. } => key.path(),
            Self::NoCaller => Key::CallerIdNumber.path(),
            Self::NoVendor { .. } => Key::Switchname.path(),
            Self::WrongSection { section, .. } => section.path(),
            Self::LongerThanLeg { .. } => Key::Billsec.path(),
        }
    }

    /// As the worker tells it.
    #[cold]
    pub(crate) fn rejection(&self, reason: Reason) -> Rejection {
        Rejection::new(reason, self.to_string()).field(self.path())
    }

    /// As the API tells it.
    #[cold]
    pub(crate) fn violation(&self, code: ViolationCode) -> Violation {
        Violation::new(code, self.to_string()).field(self.path())
    }
}

/// The places that every record has to have, beside a caller and a vendor.
const REQUIRED: [Key; 3] = [Key::Uuid, Key::StartEpoch, Key::Billsec];

/// The first thing that is missing; both questions begin with this.
pub(crate) fn first_missing(record: &Record<'_>, has_vendor: bool) -> Option<Fault> {
    let missing = |key| record.is_missing(key);
    if let Some(key) = REQUIRED.into_iter().find(|key| missing(*key)) {
        let found = record.get(key).found();
        return Some(Fault::Missing { key, found });
    }
    if missing(Key::CallerIdNumber) && missing(Key::Ani) {
        return Some(Fault::NoCaller);
    }
    if !has_vendor && missing(Key::Switchname) {
        let found = record.get(Key::Switchname).found();
        return Some(Fault::NoVendor { found });
    }
    None
}
