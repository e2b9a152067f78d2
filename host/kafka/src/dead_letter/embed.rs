//! Which payloads may stand in an envelope as they are.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// Levels of nesting of a payload that is embedded; common readers stop at 128,
/// and the envelope is one of them.
const MAX_DEPTH: usize = 126;

/// Whether `text` is a JSON object that every reader understands alike and that
/// comes out of an envelope byte for byte.
pub(super) fn is_embeddable(text: &str) -> bool {
    if !text.starts_with('{') || !text.ends_with('}') {
        return false;
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    Unambiguous { depth: MAX_DEPTH }
        .deserialize(&mut reader)
        .is_ok()
        && reader.end().is_ok()
}

/// Walks a JSON value and fails on doubled keys and on more than `depth` levels.
/// Lone surrogates and infinite numbers fail in the reader itself.
#[derive(Clone, Copy)]
struct Unambiguous {
    depth: usize,
}

impl Unambiguous {
    fn inner<E: serde::de::Error>(self) -> Result<Self, E> {
        match self.depth.checked_sub(1) {
            Some(depth) => Ok(Unambiguous { depth }),
            None => Err(E::custom("too deep")),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Unambiguous {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Unambiguous {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<(), E> {
        match number.is_finite() {
            true => Ok(()),
            false => Err(E::custom("not finite")),
        }
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<(), A::Error> {
        let inner = self.inner()?;
        while values.next_element_seed(inner)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let inner = self.inner()?;
        let mut seen = HashSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            if !seen.insert(key) {
                return Err(serde::de::Error::custom("doubled key"));
            }
            entries.next_value_seed(inner)?;
        }
        Ok(())
    }
}
