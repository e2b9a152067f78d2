//! The one parser of a raw record, for admission and normalization alike, so
//! that the two can't disagree about what is well-formed.
//!
//! It reads the payload once and keeps only what is known. What it does not
//! know it reads all the same ([`Ignored`]): a payload that passes is good JSON
//! in every corner.

use crate::field::{Field, Key, Kind, Service};
use crate::token;
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;
use telecom_rules::json::{self, Ignored};

/// A payload that is no record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// The field to blame, where one is.
    pub field: Option<&'static str>,
    /// What is wrong, in a sentence that holds nothing of the payload.
    pub detail: String,
}

/// A record as it was sent: one JSON object, its known keys by [`Key`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawCdr<'a> {
    fields: [Field<'a>; Key::COUNT],
}

impl<'a> RawCdr<'a> {
    /// Reads a payload.
    ///
    /// # Errors
    /// It is not UTF-8, not JSON, or not exactly one object; it starts with a
    /// byte order mark; a known key comes twice (however it is spelled); and
    /// anywhere, known or not: a lone surrogate, a number that a double can't
    /// hold, or a depth of more than 127.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Malformed> {
        let text = json::text(payload).map_err(|fault| Malformed {
            field: None,
            detail: fault.to_string(),
        })?;
        let mut doubled = None;
        let mut floats = false;
        let mut reader = serde_json::Deserializer::from_str(text);
        let record = RecordSeed {
            doubled: &mut doubled,
            floats: &mut floats,
        }
        .deserialize(&mut reader);
        let parsed = record.and_then(|record| reader.end().map(|()| record));
        let mut record = parsed.map_err(|error| Malformed {
            field: doubled.map(Key::name),
            detail: match doubled {
                Some(key) => format!("the key `{}` comes more than once", key.name()),
                None => format!("not JSON: {error}"),
            },
        })?;
        if floats {
            record.settle_floats(text);
        }
        Ok(record)
    }

    /// The value of a known key.
    pub fn get(&self, key: Key) -> &Field<'a> {
        &self.fields[key as usize]
    }

    /// The value of a known key, leaving [`Field::Absent`].
    pub fn take(&mut self, key: Key) -> Field<'a> {
        std::mem::take(&mut self.fields[key as usize])
    }

    /// What the record is about, if `service_type` names a known service.
    pub fn service(&self) -> Option<Service> {
        match self.get(Key::ServiceType) {
            Field::Text(name) => Service::from_name(name),
            _ => None,
        }
    }

    /// The first required key, those required by the service included, that is
    /// [missing](Field::is_missing).
    pub fn first_missing(&self) -> Option<Key> {
        let by_service = self.service().map_or(&[][..], Service::required);
        Key::REQUIRED
            .iter()
            .chain(by_service)
            .copied()
            .find(|key| self.get(*key).is_missing())
    }

    /// `serde_json` hands over `-0` and integers beyond 64 bits as floats. They
    /// are rare, so the tokens themselves are looked up afterwards.
    fn settle_floats(&mut self, text: &str) {
        for key in Key::ALL {
            if key.kind() == Kind::Integer
                && *self.get(key) == Field::OtherNumber
                && let Some(integer) = token::number(text, key).and_then(token::integer)
            {
                self.fields[key as usize] = Field::Integer(integer);
            }
        }
    }
}

/// Reads the object, and says through its references what the error type
/// can't: which key came twice, and whether a float needs a second look.
struct RecordSeed<'p> {
    doubled: &'p mut Option<Key>,
    floats: &'p mut bool,
}

impl<'de> DeserializeSeed<'de> for RecordSeed<'_> {
    type Value = RawCdr<'de>;
    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<RawCdr<'de>, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RecordSeed<'_> {
    type Value = RawCdr<'de>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<RawCdr<'de>, M::Error> {
        let mut fields = [const { Field::Absent }; Key::COUNT];
        while let Some(key) = map.next_key_seed(KeySeed)? {
            let Some(key) = key else {
                map.next_value_seed(Ignored)?;
                continue;
            };
            let field = &mut fields[key as usize];
            if *field != Field::Absent {
                *self.doubled = Some(key);
                return Err(M::Error::custom("a doubled key"));
            }
            *field = map.next_value_seed(FieldSeed)?;
            *self.floats |= *field == Field::OtherNumber;
        }
        Ok(RawCdr { fields })
    }
}

struct KeySeed;

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = Option<Key>;
    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<Option<Key>, D::Error> {
        json.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed {
    type Value = Option<Key>;
    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a key")
    }
    fn visit_str<E>(self, name: &str) -> Result<Option<Key>, E> {
        Ok(Key::from_name(name))
    }
}

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
    fn visit_u64<E>(self, value: u64) -> Result<Field<'de>, E> {
        Ok(Field::Integer(value.into()))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Field<'de>, E> {
        Ok(Field::Integer(value.into()))
    }
    fn visit_f64<E>(self, _: f64) -> Result<Field<'de>, E> {
        Ok(Field::OtherNumber)
    }
    fn visit_bool<E>(self, _: bool) -> Result<Field<'de>, E> {
        Ok(Field::Bool)
    }
    fn visit_unit<E>(self) -> Result<Field<'de>, E> {
        Ok(Field::Null)
    }
    fn visit_seq<S: SeqAccess<'de>>(self, seq: S) -> Result<Field<'de>, S::Error> {
        Ignored.visit_seq(seq).map(|()| Field::Array)
    }
    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Field<'de>, M::Error> {
        Ignored.visit_map(map).map(|()| Field::Object)
    }
}
