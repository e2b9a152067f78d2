//! Phone numbers: from what a vendor writes to E.164.
//!
//! ```text
//! text ── dialled ──▶ digits, with or without + ── pseudo? ── readings ──▶ E.164
//!         (URIs, marks, extensions)                (withheld)  (engine)
//! ```
//!
//! A number with `+` has one reading, without a region. Otherwise there are up
//! to two: the digits in the vendor's region, if there is one (this knows the
//! region's own prefixes, so that 0113 is Leeds in Britain, and 0011 dials out
//! of Australia), and the digits with a leading `00` or `011` taken for `+`.
//! The first reading that is a *valid* number wins, else the first that is
//! *possible*; what is possible only within a town is never enough. Bare digits
//! without a region are refused, not guessed.
//!
//! What a reading is worth is the [`Engine`]'s business: libphonenumber's rules.

mod default_region;
mod dialled;
mod engine;
mod extension;
mod pseudo;
mod region;

pub use default_region::DefaultRegion;
pub use engine::{Engine, Libphonenumber, warm_up};
pub use region::Region;

use std::borrow::Cow;

/// A number in E.164.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Number {
    /// `+` and at most 15 digits.
    pub e164: String,
    /// Whether it is in a range that is in use, not only of a possible length.
    pub valid: bool,
}

/// Why a text is no number. The sentences don't quote it: it may be one all the
/// same, and somebody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Longer than any number with all its decoration.
    #[error("longer than 250 characters, so it can't be a phone number")]
    TooLong,
    /// No digit at all.
    #[error("no phone number: there is no digit in it")]
    NoDigit,
    /// A letter that is neither part of a URI nor the label of an extension.
    #[error(
        "no phone number: there is a letter in it (names, vanity numbers, hexadecimal and 1E+11 are refused)"
    )]
    Letter,
    /// A `+` that is not in front.
    #[error("a `+` is allowed in front of the digits only")]
    Plus,
    /// `*` or `#`: a service code.
    #[error("`*` and `#` are part of service codes, not of phone numbers")]
    ServiceCode,
    /// A character that no phone number is written with, `%` among them.
    #[error("there is a character in it that phone numbers are not written with (U+{:04X})", u32::from(*.0))]
    Character(char),
    /// A decimal fraction, as spreadsheets make of numbers.
    #[error("it ends in `.0`, as a number does that went through a spreadsheet; send it as text")]
    Decimal,
    /// More than one number.
    #[error("there is more than one number in it")]
    Several,
    /// A URI that gives no number.
    #[error("the URI has no user part that is a number, or a faulty phone-context")]
    Uri,
    /// What is shown for a caller who withholds the number.
    #[error("a stand-in for a withheld or unknown number, not a number")]
    Withheld,
    /// Digits without a country code, and no default region for the vendor.
    #[error(
        "digits without a country code (no `+`, 00 or 011), and no default region is set for this vendor"
    )]
    NoRegion,
    /// No reading is a possible number.
    #[error("no possible phone number in any reading: unknown country code, or wrong length")]
    Impossible,
}

/// Normalizes what a vendor wrote, with the built-in engine.
///
/// # Errors
/// It is no number that E.164 could name.
pub fn normalize(text: &str, region: Option<Region>) -> Result<Number, Fault> {
    normalize_with(&Libphonenumber, text, region)
}

/// The same with another engine, so that engines can be held against each other.
///
/// # Errors
/// As [`normalize`].
pub fn normalize_with<E: Engine>(
    engine: &E,
    text: &str,
    region: Option<Region>,
) -> Result<Number, Fault> {
    let dialled = dialled::read(text)?;
    let digits = dialled.trim_start_matches('+');
    if pseudo::is_stand_in(digits) {
        return Err(Fault::Withheld);
    }
    let number = match best_reading(engine, &dialled, region) {
        Some(number) => number,
        None if region.is_none() && abroad(&dialled).is_none() => return Err(Fault::NoRegion),
        None => return Err(Fault::Impossible),
    };
    if pseudo::is_stand_in(number.e164.trim_start_matches('+')) {
        return Err(Fault::Withheld);
    }
    Ok(number)
}

fn best_reading<E: Engine>(engine: &E, dialled: &str, region: Option<Region>) -> Option<Number> {
    if dialled.starts_with('+') {
        return engine.read(dialled, None);
    }
    let at_home = region.and_then(|region| engine.read(dialled, Some(region)));
    if at_home.as_ref().is_some_and(|number| number.valid) {
        return at_home;
    }
    let abroad = abroad(dialled).and_then(|number| engine.read(&number, None));
    match (at_home, abroad) {
        (_, Some(abroad)) if abroad.valid => Some(abroad),
        (Some(at_home), _) => Some(at_home),
        (None, abroad) => abroad,
    }
}

/// With `+`, either as written or for a leading 00 or 011.
fn abroad(dialled: &str) -> Option<Cow<'_, str>> {
    if dialled.starts_with('+') {
        return Some(Cow::Borrowed(dialled));
    }
    let rest = dialled
        .strip_prefix("00")
        .or_else(|| dialled.strip_prefix("011"))?;
    Some(Cow::Owned(format!("+{rest}")))
}
