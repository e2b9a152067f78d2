//! The API's question: may this record onto the topic?
//!
//! Presence and JSON types are judged here, nothing else: what a time or a
//! number is worth is for [`normalize`](crate::normalize).

use crate::fault::{Fault, MAX_IDENTIFIER, first_missing};
use crate::record::{Field, Key, Record};
use crate::settings::Settings;
use cdr_plugin_sdk::{Admission, Violation, ViolationCode};

/// Judges a record that could be read. Its key is the call's `uuid`.
pub(crate) fn admit(record: &Record<'_>, settings: &Settings) -> Result<Admission, Violation> {
    if let Some((section, found)) = record.wrong_section {
        let fault = Fault::WrongSection { section, found };
        return Err(fault.violation(ViolationCode::InvalidType));
    }
    let source = settings.source_of(record);
    if let Some(fault) = first_missing(record, source.vendor_id.is_some()) {
        return Err(fault.violation(ViolationCode::MissingRequiredField));
    }
    for key in Key::ALL {
        if let Some(found) = record.get(key).wrong_type() {
            let fault = Fault::WrongType { key, found };
            return Err(fault.violation(ViolationCode::InvalidType));
        }
    }
    // What can't be decoded is the worker's to reject; duplicates meet all the
    // same under the text as it was posted.
    let named = |key| match (record.text(key), record.get(key)) {
        (Ok(Some(text)), _) => text.into_owned(),
        (_, Field::Text(text)) => text.clone().into_owned(),
        _ => String::new(),
    };
    let bounded = |key: Key| {
        let name = named(key);
        let bytes = name.len();
        if bytes > MAX_IDENTIFIER {
            let fault = Fault::TooLong { key, bytes };
            return Err(fault.violation(ViolationCode::InvalidType));
        }
        Ok(name)
    };
    let vendor_id = match source.vendor_id {
        Some(vendor_id) => vendor_id.to_owned(),
        None => bounded(Key::Switchname)?,
    };
    Ok(Admission::keyed(bounded(Key::Uuid)?).source(vendor_id))
}
