//! The answers an author gives: admissions and violations, rejections.

use crate::component::telecom::cdr::types as wit;
use std::borrow::Cow;

pub use wit::{Reason, ViolationCode};

/// When a record was received: the Kafka timestamp, and the only clock there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReceivedAt(i64);

impl ReceivedAt {
    /// From milliseconds since the Unix epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }
    /// Milliseconds since the Unix epoch.
    pub const fn millis(self) -> i64 {
        self.0
    }
    /// Whole seconds since the Unix epoch, rounded down.
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }
}

/// A payload that is no record: the host answers `malformed_json`, to the
/// vendor as well as in the dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// The field to blame, if there is one.
    pub field: Option<Cow<'static, str>>,
    /// A sentence for a person.
    pub detail: Cow<'static, str>,
}

impl Malformed {
    /// Malformed as a whole.
    pub fn new(detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            field: None,
            detail: detail.into(),
        }
    }
    /// Blames a field.
    #[must_use]
    pub fn field(mut self, field: impl Into<Cow<'static, str>>) -> Self {
        self.field = Some(field.into());
        self
    }
}

/// The record may go onto the topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// The Kafka key: equal for duplicates of a record.
    pub key: String,
    /// Whose record it is, where that is known.
    pub source: Option<String>,
}

impl Admission {
    /// With a key and no source.
    pub fn keyed(key: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            source: None,
        }
    }
    /// Adds whose record it is.
    #[must_use]
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = Some(source.into());
        self
    }
}

/// The record may not go onto the topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// What kind of fault it is.
    pub code: ViolationCode,
    /// The field to blame, if there is one.
    pub field: Option<Cow<'static, str>>,
    /// A sentence for the vendor.
    pub detail: Cow<'static, str>,
}

impl Violation {
    /// A fault of the record as a whole.
    pub fn new(code: ViolationCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            field: None,
            detail: detail.into(),
        }
    }
    /// Blames a field.
    #[must_use]
    pub fn field(mut self, field: impl Into<Cow<'static, str>>) -> Self {
        self.field = Some(field.into());
        self
    }
}

impl From<Malformed> for Violation {
    fn from(malformed: Malformed) -> Self {
        Self {
            code: ViolationCode::MalformedJson,
            field: malformed.field,
            detail: malformed.detail,
        }
    }
}

/// The record makes no row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// Why.
    pub reason: Reason,
    /// The field to blame, if there is one.
    pub field: Option<Cow<'static, str>>,
    /// A sentence for the operator; never the whole payload.
    pub detail: Cow<'static, str>,
}

impl Rejection {
    /// A fault of the record as a whole.
    pub fn new(reason: Reason, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            reason,
            field: None,
            detail: detail.into(),
        }
    }
    /// Blames a field.
    #[must_use]
    pub fn field(mut self, field: impl Into<Cow<'static, str>>) -> Self {
        self.field = Some(field.into());
        self
    }
}

impl From<Malformed> for Rejection {
    fn from(malformed: Malformed) -> Self {
        Self {
            reason: Reason::MalformedJson,
            field: malformed.field,
            detail: malformed.detail,
        }
    }
}
