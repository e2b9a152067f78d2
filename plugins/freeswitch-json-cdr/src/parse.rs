//! From a payload to a [`Record`], in one pass. What is not known is read all
//! the same ([`Ignored`]), so that a payload that passes is good JSON in every
//! corner.

use crate::record::{Field, Found, Key, Record, Section, shows_plain};
use cdr_plugin_sdk::Malformed;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;
use telecom_rules::json::{self, Ignored};

/// Reads a payload.
///
/// # Errors
/// It is not UTF-8, not JSON, or not exactly one object; or a place that is read
/// has two values.
pub(crate) fn record(payload: &[u8]) -> Result<Record<'_>, Malformed> {
    let text = json::text(payload).map_err(|fault| Malformed::new(fault.to_string()))?;
    let mut document = Document::default();
    let mut reader = serde_json::Deserializer::from_str(text);
    Read(&mut document)
        .deserialize(&mut reader)
        .and_then(|_| reader.end())
        .map_err(|error| Malformed::new(format!("not JSON: {error}")))?;
    let record = document.record;
    match record.doubled {
        Some(path) => Err(Malformed::new(format!(
            "`{path}` comes more than once, with different values"
        ))
        .field(path)),
        None => Ok(record),
    }
}

/// Something that takes the members of a JSON object.
trait Members<'de> {
    /// Takes the value that comes next, which has this name.
    fn member<M: MapAccess<'de>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error>;

    /// Takes the elements, where an array comes instead.
    fn elements<S: SeqAccess<'de>>(&mut self, seq: S) -> Result<Found, S::Error> {
        Ignored.visit_seq(seq).map(|()| Found::Array)
    }
}

/// Reads any value into what takes its members, and says what it was.
struct Read<'m, T>(&'m mut T);

impl<'de, T: Members<'de>> DeserializeSeed<'de> for Read<'_, T> {
    type Value = Found;
    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<Found, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de, T: Members<'de>> Visitor<'de> for Read<'_, T> {
    type Value = Found;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a value")
    }
    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Found, M::Error> {
        while let Some(field) = map.next_key_seed(FieldSeed)? {
            let Field::Text(name) = field else { continue };
            self.0.member(&name, &mut map)?;
        }
        Ok(Found::Object)
    }
    fn visit_seq<S: SeqAccess<'de>>(self, seq: S) -> Result<Found, S::Error> {
        self.0.elements(seq)
    }
    fn visit_str<E>(self, _: &str) -> Result<Found, E> {
        Ok(Found::Text)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Found, E> {
        Ok(Found::Number)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Found, E> {
        Ok(Found::Number)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Found, E> {
        Ok(Found::Number)
    }
    fn visit_bool<E>(self, _: bool) -> Result<Found, E> {
        Ok(Found::Bool)
    }
    fn visit_unit<E>(self) -> Result<Found, E> {
        Ok(Found::Null)
    }
}

/// Reads a string, or says what else there is. (The key of an object is a
/// string, so this reads keys as well.)
struct FieldSeed;

impl<'de> DeserializeSeed<'de> for FieldSeed {
    type Value = Field<'de>;
    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<Field<'de>, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FieldSeed {
    type Value = Field<'de>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a value")
    }
    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Field<'de>, E> {
        Ok(Field::Text(Cow::Borrowed(text)))
    }
    fn visit_str<E>(self, text: &str) -> Result<Field<'de>, E> {
        Ok(Field::Text(Cow::Owned(text.to_owned())))
    }
    fn visit_u64<E>(self, _: u64) -> Result<Field<'de>, E> {
        Ok(Field::Other(Found::Number))
    }
    fn visit_i64<E>(self, _: i64) -> Result<Field<'de>, E> {
        Ok(Field::Other(Found::Number))
    }
    fn visit_f64<E>(self, _: f64) -> Result<Field<'de>, E> {
        Ok(Field::Other(Found::Number))
    }
    fn visit_bool<E>(self, _: bool) -> Result<Field<'de>, E> {
        Ok(Field::Other(Found::Bool))
    }
    fn visit_unit<E>(self) -> Result<Field<'de>, E> {
        Ok(Field::Other(Found::Null))
    }
    fn visit_seq<S: SeqAccess<'de>>(self, seq: S) -> Result<Field<'de>, S::Error> {
        Ignored.visit_seq(seq).map(|()| Field::Other(Found::Array))
    }
    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Field<'de>, M::Error> {
        Ignored.visit_map(map).map(|()| Field::Other(Found::Object))
    }
}

/// The whole document.
#[derive(Default)]
struct Document<'de> {
    record: Record<'de>,
    has_channel_data: bool,
    has_variables: bool,
    profiles: usize,
}

impl<'de> Document<'de> {
    /// Notes what a section was; with `seen`, that it came before.
    fn section(&mut self, section: Section, found: Found, seen: bool) {
        if seen {
            self.record.doubled.get_or_insert(section.path());
        }
        if !matches!(found, Found::Object | Found::Null) {
            self.record.wrong_section.get_or_insert((section, found));
        }
    }

    /// The next entry of the call flow: an older one than those before.
    fn flow(&mut self, flow: Flow<'de>) {
        if flow.doubled {
            self.section(Section::CallerProfile, Found::Object, true);
        }
        let Some((found, profile)) = flow.profile else {
            return;
        };
        self.section(Section::CallerProfile, found, false);
        if found == Found::Null {
            return;
        }
        if let Some(path) = profile.doubled {
            self.record.doubled.get_or_insert(path);
        }
        if self.profiles == 1 {
            self.record.last_destination = self.record.get(Key::DestinationNumber).clone();
        }
        self.profiles += 1;
        for key in [
            Key::CallerIdNumber,
            Key::Ani,
            Key::DestinationNumber,
            Key::NetworkAddr,
        ] {
            self.record.set(key, profile.get(key).clone());
        }
    }
}

impl<'de> Members<'de> for Document<'de> {
    fn member<M: MapAccess<'de>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            "switchname" => {
                let value = map.next_value_seed(FieldSeed)?;
                self.record.put(Key::Switchname, value);
            }
            "channel_data" => {
                let found = map.next_value_seed(Read(&mut ChannelData(&mut self.record)))?;
                let seen = std::mem::replace(&mut self.has_channel_data, true);
                self.section(Section::ChannelData, found, seen);
            }
            "variables" => {
                let found = map.next_value_seed(Read(&mut Variables(&mut self.record)))?;
                let seen = std::mem::replace(&mut self.has_variables, true);
                self.section(Section::Variables, found, seen);
            }
            // In older releases this key comes once for each entry.
            "callflow" => {
                let mut flows = Flows {
                    document: self,
                    single: Flow::default(),
                };
                let found = map.next_value_seed(Read(&mut flows))?;
                let single = flows.single;
                self.flow(single);
                self.section(Section::Callflow, found, false);
            }
            _ => map.next_value_seed(Ignored)?,
        }
        Ok(())
    }
}

struct ChannelData<'r, 'de>(&'r mut Record<'de>);

impl<'de> Members<'de> for ChannelData<'_, 'de> {
    fn member<M: MapAccess<'de>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        if name != "direction" {
            return map.next_value_seed(Ignored);
        }
        let value = map.next_value_seed(FieldSeed)?;
        self.0.put(Key::ChannelDirection, value);
        Ok(())
    }
}

struct Variables<'r, 'de>(&'r mut Record<'de>);

impl<'de> Members<'de> for Variables<'_, 'de> {
    fn member<M: MapAccess<'de>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        let value = map.next_value_seed(FieldSeed)?;
        if let Field::Text(text) = &value {
            self.0.is_plain = self.0.is_plain || shows_plain(text);
        }
        if let Some(key) = Key::variable(name) {
            self.0.put(key, value);
        }
        Ok(())
    }
}

/// The value of `callflow`: an array of entries, or a single one.
struct Flows<'d, 'de> {
    document: &'d mut Document<'de>,
    single: Flow<'de>,
}

impl<'de> Members<'de> for Flows<'_, 'de> {
    fn member<M: MapAccess<'de>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        self.single.member(name, map)
    }

    fn elements<S: SeqAccess<'de>>(&mut self, mut seq: S) -> Result<Found, S::Error> {
        loop {
            let mut flow = Flow::default();
            let Some(found) = seq.next_element_seed(Read(&mut flow))? else {
                return Ok(Found::Object);
            };
            self.document.flow(flow);
            if found != Found::Object {
                let wrong = (Section::Callflow, found);
                self.document.record.wrong_section.get_or_insert(wrong);
            }
        }
    }
}

/// An entry of the call flow.
#[derive(Default)]
struct Flow<'de> {
    profile: Option<(Found, Record<'de>)>,
    doubled: bool,
}

impl<'de> Members<'de> for Flow<'de> {
    fn member<M: MapAccess<'de>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        if name != "caller_profile" {
            return map.next_value_seed(Ignored);
        }
        let mut profile = Record::default();
        let found = map.next_value_seed(Read(&mut Profile(&mut profile)))?;
        self.doubled = self.doubled || self.profile.is_some();
        self.profile = Some((found, profile));
        Ok(())
    }
}

struct Profile<'r, 'de>(&'r mut Record<'de>);

impl<'de> Members<'de> for Profile<'_, 'de> {
    fn member<M: MapAccess<'de>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        let Some(key) = Key::of_profile(name) else {
            return map.next_value_seed(Ignored);
        };
        let value = map.next_value_seed(FieldSeed)?;
        self.0.put(key, value);
        Ok(())
    }
}
