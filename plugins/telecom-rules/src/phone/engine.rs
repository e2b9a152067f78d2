//! What a reading is worth: libphonenumber's rules, behind one small trait.

use super::{Number, Region};
use rlibphonenumber::{
    NumberLengthType, PHONE_NUMBER_UTIL, PhoneNumber, PhoneNumberFormat, PhoneNumberType,
};

/// Reads digits as a number.
pub trait Engine {
    /// The number that the text is: ASCII digits, in a region, or with `+` and
    /// without one. `None` unless its length is that of a whole number of its
    /// country (not of a local one) and it has at most 15 digits.
    fn read(&self, text: &str, region: Option<Region>) -> Option<Number>;
}

/// The engine in use, `rlibphonenumber`.
#[derive(Debug, Clone, Copy)]
pub struct Libphonenumber;

/// What E.164 allows, country code included.
const MAX_DIGITS: usize = 15;

impl Engine for Libphonenumber {
    fn read(&self, text: &str, region: Option<Region>) -> Option<Number> {
        let region = region.map(|region| region.inner);
        let number = PHONE_NUMBER_UTIL.parse(text, region).ok()?;
        let length = PHONE_NUMBER_UTIL.is_possible_number_with_reason(&number);
        if number.national_number == 0 || length != Ok(NumberLengthType::IsPossible) {
            return None;
        }
        let e164 = number.format_as(PhoneNumberFormat::E164).into_owned();
        if e164.len() > MAX_DIGITS + 1 {
            return None;
        }
        Some(Number {
            valid: PHONE_NUMBER_UTIL.is_valid_number(&number),
            e164,
        })
    }
}

/// Regions whose numbers are likely in any vendor's records.
const COMMON: [&str; 12] = [
    "US", "GB", "FR", "DE", "ES", "IT", "IN", "CN", "JP", "BR", "MX", "AU",
];

/// Uses the engine on numbers of every usual shape, in common regions and in
/// these, so that its expressions are compiled: the first number of a country
/// is otherwise some hundred times dearer than the next ones. To be called
/// before the state is snapshotted; the rest is compiled when it is met.
pub fn warm_up(regions: impl IntoIterator<Item = Region>) {
    let common = COMMON.into_iter().filter_map(Region::from_code);
    for region in regions.into_iter().chain(common) {
        for kind in [PhoneNumberType::Mobile, PhoneNumberType::FixedLine] {
            let example =
                PHONE_NUMBER_UTIL.get_example_number_for_type_and_region(region.inner, kind);
            if let Ok(example) = example {
                use_on(&example, region);
            }
        }
    }
    // Shapes rather than regions: marks, URIs, withheld, not NANP-valid (tries
    // every region of the country code), no country code, a short code.
    for text in [
        "\u{200e}+44 (0)20-7946.0123\u{202c}",
        "sip:+442079460123;npdi@example.com;user=phone",
        "+1 202-555-0123 x123",
        "+10000000001",
        "011442079460123",
        "12345",
    ] {
        let _ = super::normalize(text, None);
    }
}

fn use_on(example: &PhoneNumber, region: Region) {
    for format in [PhoneNumberFormat::E164, PhoneNumberFormat::National] {
        let _ = super::normalize(&example.format_as(format), Some(region));
    }
}
