//! The API's question: may this record onto the topic?
//!
//! Presence and exact JSON types are judged here, nothing else. Ranges, access
//! types, phone numbers, addresses and unknown services are for
//! [`normalize`](crate::normalize), so that a vendor's 202 never depends on a
//! table or a clock.

use crate::field::{Field, Key};
use crate::raw::{Malformed, RawCdr};

/// The longest `raw_id` and `vendor_id` that are admitted, in bytes: they become
/// the record's key and source, and the host takes none that are longer.
const MAX_IDENTIFIER: usize = 4096;

/// What kind of fault keeps a record off the topic. The order is that of
/// precedence: of several faults in a record the first kind is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// The payload is no record.
    MalformedJson,
    /// A required field is not there, `null`, or blank.
    MissingRequiredField,
    /// A known field has another JSON type than it should.
    InvalidType,
}

/// Why a record was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What kind of fault it is.
    pub code: Code,
    /// The field to blame, if there is one.
    pub field: Option<&'static str>,
    /// A sentence for the vendor.
    pub detail: String,
}

impl From<Malformed> for Refusal {
    fn from(malformed: Malformed) -> Self {
        Self {
            code: Code::MalformedJson,
            field: malformed.field,
            detail: malformed.detail,
        }
    }
}

/// A record that may onto the topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admitted<'r> {
    /// The Kafka key, byte for byte as it was sent.
    pub raw_id: &'r str,
    /// Whose record it is.
    pub vendor_id: &'r str,
}

/// Judges a record that could be parsed.
///
/// # Errors
/// A required field is missing, or a known field has the wrong type.
pub fn admit<'r>(record: &'r RawCdr<'_>) -> Result<Admitted<'r>, Refusal> {
    if let Some(key) = record.first_missing() {
        return Err(Refusal {
            code: Code::MissingRequiredField,
            field: Some(key.name()),
            detail: missing(record, key),
        });
    }
    for key in Key::ALL {
        let field = record.get(key);
        if field.is_wrong_type(key.kind()) {
            return Err(wrong_type(key, field));
        }
    }
    match (record.get(Key::RawId), record.get(Key::VendorId)) {
        (Field::Text(raw_id), Field::Text(vendor_id)) => {
            for (key, identifier) in [(Key::RawId, raw_id), (Key::VendorId, vendor_id)] {
                if identifier.len() > MAX_IDENTIFIER {
                    return Err(too_long(key, identifier));
                }
            }
            Ok(Admitted { raw_id, vendor_id })
        }
        (Field::Text(_), other) => Err(wrong_type(Key::VendorId, other)),
        (other, _) => Err(wrong_type(Key::RawId, other)),
    }
}

fn wrong_type(key: Key, field: &Field<'_>) -> Refusal {
    Refusal {
        code: Code::InvalidType,
        field: Some(key.name()),
        detail: type_sentence(key, field),
    }
}

fn too_long(key: Key, identifier: &str) -> Refusal {
    Refusal {
        code: Code::InvalidType,
        field: Some(key.name()),
        detail: format!(
            "`{}` has {} bytes; an identifier may have {MAX_IDENTIFIER}",
            key.name(),
            identifier.len()
        ),
    }
}

pub(crate) fn type_sentence(key: Key, field: &Field<'_>) -> String {
    format!(
        "`{}` has to be {}, but it is {}",
        key.name(),
        key.kind().as_str(),
        field.found()
    )
}

pub(crate) fn missing(record: &RawCdr<'_>, key: Key) -> String {
    let found = record.get(key).found();
    match record.service() {
        Some(service) if service.required().contains(&key) => format!(
            "`{}` is required for {} records, but it is {found}",
            key.name(),
            service.as_str()
        ),
        _ => format!("`{}` is required, but it is {found}", key.name()),
    }
}
