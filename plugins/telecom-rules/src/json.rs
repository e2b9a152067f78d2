//! Strict JSON: what both readers of records hold a payload to.

use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Why a payload is not the text of one object. The sentences hold nothing of
/// the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TextFault {
    /// Bytes that are no characters.
    #[error("not UTF-8: the byte at {0} is not part of a character")]
    NotUtf8(usize),
    /// A mark that JSON does not allow, and that some readers skip.
    #[error("it starts with a byte order mark; send UTF-8 without one")]
    ByteOrderMark,
    /// Another encoding.
    #[error("it starts with NUL bytes, as UTF-16 or UTF-32 does; send UTF-8")]
    Nul,
    /// Several records, perhaps.
    #[error("an array, not an object; send one record as one object")]
    Array,
    /// Something else.
    #[error("not a JSON object")]
    NoObject,
    /// Nothing.
    #[error("it is empty")]
    Empty,
}

/// Checks what comes before any parsing: the encoding, and that an object
/// begins. (An error of `serde_json` about a wrong type would quote the value.)
///
/// # Errors
/// It is no text, or does not begin as an object.
pub fn text(payload: &[u8]) -> Result<&str, TextFault> {
    let text = str::from_utf8(payload).map_err(|error| TextFault::NotUtf8(error.valid_up_to()))?;
    if text.starts_with('\u{feff}') {
        return Err(TextFault::ByteOrderMark);
    }
    if text.as_bytes().iter().take(4).any(|byte| *byte == 0) {
        return Err(TextFault::Nul);
    }
    match text
        .trim_start_matches([' ', '\t', '\r', '\n'])
        .bytes()
        .next()
    {
        Some(b'{') => Ok(text),
        Some(b'[') => Err(TextFault::Array),
        Some(_) => Err(TextFault::NoObject),
        None => Err(TextFault::Empty),
    }
}

/// Reads any value in full and keeps nothing of it, but that it is good JSON:
/// `serde`'s `IgnoredAny` would skip over broken surrogates, overflowing numbers
/// and any depth.
#[derive(Debug, Clone, Copy)]
pub struct Ignored;

impl<'de> DeserializeSeed<'de> for Ignored {
    type Value = ();
    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Ignored {
    type Value = ();
    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a value")
    }
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<(), S::Error> {
        while seq.next_element_seed(self)?.is_some() {}
        Ok(())
    }
    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        while map.next_entry_seed(self, self)?.is_some() {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_begins_as_an_object() {
        assert_eq!(text(b" \r\n{\"a\":1"), Ok(" \r\n{\"a\":1"));
        for (payload, fault) in [
            (&b"{\"a\":\"\xe9\"}"[..], TextFault::NotUtf8(6)),
            (b"\xef\xbb\xbf{}", TextFault::ByteOrderMark),
            (b"{\0}\0", TextFault::Nul),
            (b" [{}]", TextFault::Array),
            (b"cdr=%7B%7D", TextFault::NoObject),
            (b" ", TextFault::Empty),
            (b"", TextFault::Empty),
        ] {
            assert_eq!(text(payload), Err(fault), "{payload:?}");
        }
    }

    #[test]
    fn what_is_ignored_is_good_json_all_the_same() {
        let read = |json: &str| {
            let mut reader = serde_json::Deserializer::from_str(json);
            Ignored.deserialize(&mut reader).and_then(|()| reader.end())
        };
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        for good in [
            "[1,{\"a\":[null,true,\"\\ud83d\\ude00\",-2.5e3]}]",
            &nested(127),
        ] {
            assert!(read(good).is_ok(), "{good}");
        }
        for bad in ["[\"\\ud83d\"]", "[1e999]", "[1,]", "[1] 2", &nested(128)] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
