//! What an operator may set: the region in which a number without a country
//! code is read, in general and for each vendor.
//!
//! ```
//! let settings: cdr_normalizer::settings::Settings = serde_json::from_str(
//!     r#"{"default_region": "GB", "vendors": {"vend-a": {"default_region": "US"}}}"#,
//! )?;
//! assert_eq!(settings.region_for("vend-a").unwrap().as_str(), "US");
//! assert_eq!(settings.region_for("vend-b").unwrap().as_str(), "GB");
//! # Ok::<(), serde_json::Error>(())
//! ```

pub use crate::phone::DefaultRegion;
use crate::phone::Region;
use serde::Deserialize;
use serde::de::{Error as _, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;

/// The settings, as JSON. Whatever deserializes is good: an unknown region, an
/// unknown key or a doubled vendor is refused there, with a sentence.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The region of vendors that have no entry; `None` (the default): bare
    /// digits are refused, not guessed.
    pub default_region: Option<DefaultRegion>,
    /// Settings of vendors, by `vendor_id` exactly as in their records.
    #[serde(deserialize_with = "vendors")]
    pub vendors: BTreeMap<String, VendorSettings>,
}

/// The settings of one vendor.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VendorSettings {
    /// The vendor's region. It has to be there; `null` means none, whatever the
    /// general one is.
    #[serde(deserialize_with = "Option::deserialize")]
    pub default_region: Option<DefaultRegion>,
}

impl Settings {
    /// The region in which a vendor's numbers without a country code are read.
    pub fn region_for(&self, vendor_id: &str) -> Option<Region> {
        match self.vendors.get(vendor_id) {
            Some(vendor) => vendor.default_region,
            None => self.default_region,
        }
        .map(DefaultRegion::region)
    }

    /// Every region named in the settings, some perhaps more than once.
    pub fn regions(&self) -> impl Iterator<Item = Region> + '_ {
        self.vendors
            .values()
            .map(|vendor| vendor.default_region)
            .chain([self.default_region])
            .flatten()
            .map(DefaultRegion::region)
    }
}

/// A map in which no vendor comes twice: with two entries, which one counts
/// would be a surprise.
fn vendors<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, VendorSettings>, D::Error> {
    struct Vendors;
    impl<'de> Visitor<'de> for Vendors {
        type Value = BTreeMap<String, VendorSettings>;
        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("an object with an entry for each vendor")
        }
        fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
            let mut vendors = BTreeMap::new();
            while let Some((vendor, settings)) = map.next_entry::<String, VendorSettings>()? {
                if vendors.contains_key(&vendor) {
                    let message = format!("the vendor {vendor:?} has more than one entry");
                    return Err(M::Error::custom(message));
                }
                vendors.insert(vendor, settings);
            }
            Ok(vendors)
        }
    }
    deserializer.deserialize_map(Vendors)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Settings, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn a_vendor_goes_before_the_default() -> Result<(), String> {
        let settings = read(
            r#"{"default_region":"GB","vendors":{"a":{"default_region":"US"},"b":{"default_region":null}}}"#,
        )?;
        let region = |vendor| {
            settings
                .region_for(vendor)
                .map(|region| region.as_str().to_owned())
        };
        assert_eq!(region("a").as_deref(), Some("US"));
        assert_eq!(region("b"), None);
        assert_eq!(region("A").as_deref(), Some("GB"));
        assert_eq!(settings.regions().count(), 2);
        assert_eq!(read("{}")?.region_for("a"), None);
        assert_eq!(read(r#"{"default_region":null}"#)?, Settings::default());
        Ok(())
    }

    #[test]
    fn what_is_wrong_is_refused_with_a_sentence() {
        for (json, part) in [
            (r#"{"default_region":"UK"}"#, "the United Kingdom is GB"),
            (r#"{"default_region":"gb"}"#, "did you mean GB?"),
            (r#"{"default_region":"GBR"}"#, "two-letter"),
            (r#"{"default_region":"ZZ"}"#, "\"ZZ\" is not known"),
            (r#"{"default_region":"AQ"}"#, "phone metadata"),
            (r#"{"default_region":"001"}"#, "two-letter"),
            (r#"{"default_region":""}"#, "two-letter"),
            (r#"{"default_region":44}"#, "a region as a string"),
            (r#"{"region":"GB"}"#, "unknown field `region`"),
            (
                r#"{"vendors":{"a":{"default_region":"XX"}}}"#,
                "\"XX\" is not known",
            ),
            (r#"{"vendors":{"a":{}}}"#, "missing field `default_region`"),
            (
                r#"{"vendors":{"a":{"default_region":"GB","x":1}}}"#,
                "unknown field `x`",
            ),
            (r#"{"vendors":{"a":"GB"}}"#, "invalid type"),
            (r#"{"vendors":[]}"#, "an entry for each vendor"),
            (
                r#"{"vendors":{"a":{"default_region":"GB"},"a":{"default_region":"US"}}}"#,
                "more than one entry",
            ),
            (
                r#"{"default_region":"GB","default_region":"GB"}"#,
                "duplicate field",
            ),
        ] {
            let refused = read(json).expect_err(json);
            assert!(refused.contains(part), "{json}: {refused}");
        }
    }
}
