//! What an operator may set: whose records these are, in which region numbers
//! without a country code are read, and which number an extension has.
//!
//! ```
//! use freeswitch_json_cdr::settings::Settings;
//!
//! let settings: Settings = serde_json::from_str(r#"{
//!     "default_region": "GB",
//!     "extensions": {"1001": "+442079460101"},
//!     "sources": [
//!         {"switch": "fs-1", "profile": "trunk", "vendor_id": "carrier", "default_region": "US"},
//!         {"profile": "trunk", "vendor_id": "trunks"}
//!     ]
//! }"#)?;
//! let source = settings.source(Some("fs-1"), Some("trunk"));
//! assert_eq!(source.vendor_id, Some("carrier"));
//! assert_eq!(source.region.unwrap().as_str(), "US");
//! // No entry, so the vendor is the switch itself.
//! assert_eq!(settings.source(Some("fs-2"), Some("internal")).vendor_id, None);
//! # Ok::<(), serde_json::Error>(())
//! ```

use crate::record::{Key, Record};
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;
use telecom_rules::phone::{self, DefaultRegion, Number, Region};

/// The settings, as JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The region of numbers without a country code; `None` (the default): bare
    /// digits are refused, not guessed.
    default_region: Option<DefaultRegion>,
    /// Whose records these are, where no source says so; `None` (the default):
    /// each switch's own, by its name.
    vendor_id: Option<Name>,
    /// The numbers of extensions.
    extensions: Extensions,
    /// What differs for some switches or profiles; the first that fits counts.
    sources: Vec<SourceSettings>,
}

/// What differs for the records of a switch, of a SIP profile, or of a profile
/// of a switch.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceSettings {
    #[serde(default)]
    switch: Option<Name>,
    #[serde(default)]
    profile: Option<Name>,
    #[serde(default)]
    vendor_id: Option<Name>,
    /// Left out: the general one. `null`: none, whatever the general one is.
    #[serde(default, deserialize_with = "even_null")]
    default_region: Option<Option<DefaultRegion>>,
    /// Left out: the general ones; else instead of them.
    #[serde(default)]
    extensions: Option<Extensions>,
}

/// What the settings say of a record.
#[derive(Debug, Clone, Copy)]
pub struct Source<'s> {
    /// Whose it is; `None`: the switch's own.
    pub vendor_id: Option<&'s str>,
    /// The region of numbers without a country code.
    pub region: Option<Region>,
    extensions: &'s Extensions,
}

impl Source<'_> {
    /// The number of an extension.
    pub fn extension(&self, dialled: &str) -> Option<&Number> {
        self.extensions.0.get(dialled).map(|E164(number)| number)
    }
}

/// Settings that say nothing, or that contradict themselves.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsFault {
    /// It would fit every record.
    #[error(
        "settings: source {0} names neither a `switch` nor a `profile`; what holds for all belongs outside of `sources`"
    )]
    FitsAll(usize),
    /// It would change nothing.
    #[error(
        "settings: source {0} sets nothing; give it a `vendor_id`, a `default_region` or `extensions`"
    )]
    SetsNothing(usize),
    /// An earlier one takes all its records.
    #[error(
        "settings: source {later} is never reached, for source {earlier} fits all its records; put it first"
    )]
    NeverReached {
        /// The earlier, from 1.
        earlier: usize,
        /// The later, from 1.
        later: usize,
    },
}

impl Settings {
    /// What the parts can't say of themselves.
    ///
    /// # Errors
    /// A source that says nothing, or is never reached.
    pub fn check(&self) -> Result<(), SettingsFault> {
        for (index, source) in self.sources.iter().enumerate() {
            if source.switch.is_none() && source.profile.is_none() {
                return Err(SettingsFault::FitsAll(index + 1));
            }
            if source.vendor_id.is_none()
                && source.default_region.is_none()
                && source.extensions.is_none()
            {
                return Err(SettingsFault::SetsNothing(index + 1));
            }
            let takes_all = |earlier: &SourceSettings| {
                (earlier.switch.is_none() || earlier.switch == source.switch)
                    && (earlier.profile.is_none() || earlier.profile == source.profile)
            };
            if let Some(earlier) = self.sources[..index].iter().position(takes_all) {
                return Err(SettingsFault::NeverReached {
                    earlier: earlier + 1,
                    later: index + 1,
                });
            }
        }
        Ok(())
    }

    /// What holds for the records of a profile of a switch.
    pub fn source(&self, switch: Option<&str>, profile: Option<&str>) -> Source<'_> {
        let fits = |wanted: &Option<Name>, found: Option<&str>| match wanted {
            None => true,
            Some(Name(wanted)) => found == Some(wanted),
        };
        let special = self
            .sources
            .iter()
            .find(|source| fits(&source.switch, switch) && fits(&source.profile, profile));
        Source {
            vendor_id: special
                .and_then(|source| source.vendor_id.as_ref())
                .or(self.vendor_id.as_ref())
                .map(|Name(name)| name.as_str()),
            region: special
                .and_then(|source| source.default_region)
                .unwrap_or(self.default_region)
                .map(DefaultRegion::region),
            extensions: special
                .and_then(|source| source.extensions.as_ref())
                .unwrap_or(&self.extensions),
        }
    }

    /// What holds for a record. (A name that is not there, or can't be decoded,
    /// fits no source that asks for one.)
    pub(crate) fn source_of(&self, record: &Record<'_>) -> Source<'_> {
        let switch = record.text(Key::Switchname).ok().flatten();
        let profile = record.text(Key::SofiaProfileName).ok().flatten();
        self.source(switch.as_deref(), profile.as_deref())
    }

    /// Every region that is set, some perhaps more than once.
    pub fn regions(&self) -> impl Iterator<Item = Region> + '_ {
        self.sources
            .iter()
            .filter_map(|source| source.default_region.flatten())
            .chain(self.default_region)
            .map(DefaultRegion::region)
    }
}

/// A name that is not blank, as it stands in records.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Name(String);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        if name.trim().is_empty() {
            return Err(D::Error::custom("a name must not be blank; leave it out"));
        }
        if name.len() > crate::fault::MAX_IDENTIFIER {
            return Err(D::Error::custom("a name has 512 bytes at most"));
        }
        Ok(Self(name))
    }
}

/// A full number, country code and all.
#[derive(Debug, Clone, PartialEq, Eq)]
struct E164(Number);

impl<'de> Deserialize<'de> for E164 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if !text.starts_with('+') {
            return Err(D::Error::custom(
                "the number of an extension begins with `+` and the country code",
            ));
        }
        phone::normalize(&text, None).map(Self).map_err(|fault| {
            D::Error::custom(format!("the number of an extension is unusable: {fault}"))
        })
    }
}

/// Extensions and their numbers. With two entries for one of them, which one
/// counts would be a surprise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Extensions(BTreeMap<String, E164>);

impl<'de> Deserialize<'de> for Extensions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Extensions;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object with the number of each extension")
            }
            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Extensions, M::Error> {
                let mut entries = BTreeMap::new();
                while let Some((extension, number)) = map.next_entry::<String, E164>()? {
                    if entries.contains_key(&extension) {
                        let message = format!("the extension {extension:?} comes twice");
                        return Err(M::Error::custom(message));
                    }
                    entries.insert(extension, number);
                }
                Ok(Extensions(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// A value that is there, `null` included.
fn even_null<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<DefaultRegion>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Settings, String> {
        let settings: Settings = serde_json::from_str(json).map_err(|error| error.to_string())?;
        settings.check().map_err(|fault| fault.to_string())?;
        Ok(settings)
    }

    #[test]
    fn the_first_source_that_fits_counts_and_the_rest_is_general() {
        let settings = read(
            r#"{"default_region":"GB","vendor_id":"all","extensions":{"1":"+442079460101"},"sources":[
                {"switch":"a","profile":"p","vendor_id":"a-p","default_region":null},
                {"switch":"a","default_region":"US"},
                {"profile":"p","vendor_id":"p","extensions":{"2":"+442079460102"}}]}"#,
        )
        .unwrap();
        for (switch, profile, vendor_id, region, extension) in [
            (Some("a"), Some("p"), "a-p", None, "1"),
            (Some("a"), None, "all", Some("US"), "1"),
            (Some("b"), Some("p"), "p", Some("GB"), "2"),
            (None, Some("p"), "p", Some("GB"), "2"),
            (Some("A"), Some("P"), "all", Some("GB"), "1"),
            (None, None, "all", Some("GB"), "1"),
        ] {
            let source = settings.source(switch, profile);
            assert_eq!(source.vendor_id, Some(vendor_id));
            let found = source.region.map(|region| region.as_str().to_owned());
            assert_eq!(found.as_deref(), region);
            let known: Vec<_> = ["1", "2"]
                .into_iter()
                .filter(|dialled| source.extension(dialled).is_some())
                .collect();
            assert_eq!(known, [extension]);
        }
        assert_eq!(settings.regions().count(), 2);
        assert_eq!(read("{}").unwrap().source(None, None).vendor_id, None);
    }

    #[test]
    fn what_is_wrong_is_refused_with_a_sentence() {
        for (json, part) in [
            (r#"{"region":"GB"}"#, "unknown field `region`"),
            (r#"{"default_region":"UK"}"#, "the United Kingdom is GB"),
            (r#"{"vendor_id":" "}"#, "must not be blank"),
            (r#"{"extensions":{"1":"1001"}}"#, "begins with `+`"),
            (r#"{"extensions":{"1":"+44"}}"#, "unusable"),
            (r#"{"extensions":["1"]}"#, "the number of each extension"),
            (
                r#"{"extensions":{"1":"+442079460101","1":"+442079460102"}}"#,
                "comes twice",
            ),
            (
                r#"{"sources":[{"vendor_id":"x"}]}"#,
                "source 1 names neither",
            ),
            (r#"{"sources":[{"switch":"x"}]}"#, "source 1 sets nothing"),
            (
                r#"{"sources":[{"switch":"x","vendor":"y"}]}"#,
                "unknown field `vendor`",
            ),
            (
                r#"{"sources":[{"switch":"x","vendor_id":"y"},{"switch":"x","profile":"p","vendor_id":"z"}]}"#,
                "source 2 is never reached",
            ),
        ] {
            let refused = read(json).expect_err(json);
            assert!(refused.contains(part), "{json}: {refused}");
        }
    }
}
