//! The slow look at a number: how it was written.
//!
//! `serde_json` turns `-0` and integers beyond 64 bits into floats, and then
//! `1e3` and `1.0` look the same as those. Here the token itself is found in a
//! payload that is already known to be good JSON. Only records with such a
//! number in an integer field come this way.

use crate::field::Key;
use std::borrow::Cow;

/// The token of the number at a key of the outermost object.
pub(crate) fn number(record: &str, wanted: Key) -> Option<&str> {
    let bytes = record.as_bytes();
    let mut at = 0;
    let mut depth = 0_usize;
    let mut key_is_next = false;
    let mut key = None;
    while let Some(byte) = bytes.get(at) {
        let end = match byte {
            b'"' => string_end(bytes, at),
            b'-' | b'0'..=b'9' => number_end(bytes, at),
            _ => at + 1,
        };
        match byte {
            b'"' if depth == 1 && key_is_next => {
                key = record.get(at..end).and_then(known);
                key_is_next = false;
            }
            b'-' | b'0'..=b'9' if depth == 1 && key == Some(wanted) => return record.get(at..end),
            b'{' | b'[' => {
                depth += 1;
                key_is_next = depth == 1;
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' if depth == 1 => key_is_next = true,
            _ => {}
        }
        at = end;
    }
    None
}

/// The value of an integer token, held at ±2¹²⁷; `None` if there is a point or
/// an exponent.
pub(crate) fn integer(token: &str) -> Option<i128> {
    if token.contains(['.', 'e', 'E']) {
        return None;
    }
    let bound = if token.starts_with('-') {
        i128::MIN
    } else {
        i128::MAX
    };
    Some(token.parse().unwrap_or(bound))
}

/// One past the closing quote of the string that opens at `start`.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn number_end(bytes: &[u8], start: usize) -> usize {
    bytes
        .iter()
        .skip(start)
        .position(|byte| !matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'))
        .map_or(bytes.len(), |length| start + length)
}

/// The known key that a string token, quotes included, spells.
fn known(token: &str) -> Option<Key> {
    let name: Cow<'_, str> = if token.contains('\\') {
        Cow::Owned(serde_json::from_str(token).ok()?)
    } else {
        Cow::Borrowed(token.get(1..token.len().checked_sub(1)?)?)
    };
    Key::from_name(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_token_at_the_outermost_key_only() {
        let record = r#" {"x":"\"bytes_up\":1,\\","y":{"bytes_up":[2,{"bytes_up":3}]},
            "bytes\u005fup" : -18446744073709551616 ,"duration_s":1E3}"#;
        assert_eq!(number(record, Key::BytesUp), Some("-18446744073709551616"));
        assert_eq!(number(record, Key::DurationS), Some("1E3"));
        assert_eq!(number(record, Key::BytesDown), None);
    }

    #[test]
    fn tells_integers_from_other_numbers() {
        assert_eq!(integer("-0"), Some(0));
        assert_eq!(integer("18446744073709551616"), Some(1 << 64));
        assert_eq!(integer(&"9".repeat(60)), Some(i128::MAX));
        assert_eq!(integer(&format!("-{}", "9".repeat(60))), Some(i128::MIN));
        for other in ["1.0", "1e3", "1E3", "-0.0", "0e0"] {
            assert_eq!(integer(other), None, "{other}");
        }
    }
}
