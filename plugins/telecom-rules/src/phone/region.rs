//! The regions of the phone metadata.

use rlibphonenumber::PHONE_NUMBER_UTIL;
use std::fmt;

/// A region that has phone metadata, such as GB.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Region {
    code: [u8; 2],
    pub(super) inner: rlibphonenumber::Region,
}

impl Region {
    /// By its ISO 3166-1 code: two upper-case letters.
    pub fn from_code(code: &str) -> Option<Self> {
        let letters: [u8; 2] = code.as_bytes().try_into().ok()?;
        if !letters.iter().all(u8::is_ascii_uppercase) {
            return None;
        }
        let inner = rlibphonenumber::Region::from_code(code).ok()?;
        // The type has all pairs of letters; the metadata has not.
        PHONE_NUMBER_UTIL.get_country_code_for_region(inner)?;
        Some(Self {
            code: letters,
            inner,
        })
    }

    /// The two letters.
    pub fn as_str(&self) -> &str {
        // They were a str, and are ASCII.
        str::from_utf8(&self.code).unwrap_or_default()
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}
