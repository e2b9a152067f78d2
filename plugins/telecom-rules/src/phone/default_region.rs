//! A region as operators write it in settings.

use super::Region;
use serde::Deserialize;
use serde::de::Visitor;
use std::fmt;

/// A region for which there is phone metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultRegion(Region);

impl DefaultRegion {
    /// The region.
    pub const fn region(self) -> Region {
        self.0
    }
}

impl<'de> Deserialize<'de> for DefaultRegion {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Code;
        impl Visitor<'_> for Code {
            type Value = DefaultRegion;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a region as a string, such as \"GB\"")
            }
            fn visit_str<E: serde::de::Error>(self, code: &str) -> Result<DefaultRegion, E> {
                Region::from_code(code)
                    .map(DefaultRegion)
                    .ok_or_else(|| E::custom(unknown_region(code)))
            }
        }
        deserializer.deserialize_str(Code)
    }
}

fn unknown_region(code: &str) -> String {
    let upper = code.trim().to_ascii_uppercase();
    let hint = match upper.as_str() {
        "UK" => "; the United Kingdom is GB".into(),
        _ if upper != code && Region::from_code(&upper).is_some() => {
            format!("; did you mean {upper}?")
        }
        _ => String::new(),
    };
    let shown: String = code.chars().take(16).collect();
    format!(
        "the default region {shown:?} is not known: it has to be an upper-case \
         two-letter ISO 3166-1 code that has phone metadata, such as GB or US{hint}"
    )
}
