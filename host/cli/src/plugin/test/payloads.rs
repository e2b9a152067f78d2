//! Payloads that nobody sends on purpose: arbitrary bytes and JSON, and the
//! fixtures with something wrong about them. From a seed: the same one gives the
//! same payloads.

use fastrand::Rng;
use serde_json::{Map, Value};

/// The longest payload shown, in bytes.
const SHOWN: usize = 400;

/// A payload to ask about.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Where it comes from.
    pub origin: String,
    pub payload: Vec<u8>,
    /// In milliseconds since the Unix epoch.
    pub received_at: i64,
}

impl Record {
    /// The payload for people: one line, and not all of a long one.
    pub fn shown(&self) -> String {
        let start = &self.payload[..self.payload.len().min(SHOWN)];
        let text = start.escape_ascii().to_string().replace("\\\"", "\"");
        match self.payload.len().checked_sub(SHOWN) {
            None | Some(0) => format!("{text} ({} bytes)", self.payload.len()),
            Some(_) => format!("{text}… ({} bytes)", self.payload.len()),
        }
    }
}

/// A seed for a file: as long as the file is the same, so are the payloads.
pub fn seed(digest: &str) -> u64 {
    // 32 bits, so that the number is short enough to be typed.
    digest
        .get(..8)
        .and_then(|start| u64::from_str_radix(start, 16).ok())
        .unwrap_or(0)
}

/// Generates records without end.
pub struct Generator<'a> {
    rng: Rng,
    known: &'a [Record],
    /// The keys of the known records: what a normalizer looks for.
    keys: Vec<String>,
}

impl<'a> Generator<'a> {
    /// From records whose shape is what the normalizer expects.
    pub fn new(known: &'a [Record], seed: u64) -> Self {
        let mut keys = Vec::new();
        for record in known {
            if let Ok(value) = serde_json::from_slice(&record.payload) {
                collect_keys(&value, &mut keys);
            }
        }
        keys.sort();
        keys.dedup();
        if keys.is_empty() {
            keys.push("key".to_owned());
        }
        Self {
            rng: Rng::with_seed(seed),
            known,
            keys,
        }
    }

    fn pick<'t, T>(&mut self, from: &'t [T]) -> Option<&'t T> {
        match from.len() {
            0 => None,
            len => from.get(self.rng.usize(..len)),
        }
    }
}

impl Iterator for Generator<'_> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        let known = self.known;
        let base = self.pick(known).cloned().unwrap_or(Record {
            origin: "nothing".to_owned(),
            payload: Vec::new(),
            received_at: 0,
        });
        let (origin, payload) = match self.rng.u8(..10) {
            0 => ("arbitrary bytes".to_owned(), self.bytes()),
            1 => ("arbitrary text".to_owned(), self.text().into_bytes()),
            2 => {
                let value = self.object(3);
                ("arbitrary JSON".to_owned(), value.to_string().into_bytes())
            }
            3 | 4 => {
                let payload = self.damaged(&base.payload);
                (format!("{}, damaged", base.origin), payload)
            }
            _ => match serde_json::from_slice(&base.payload) {
                Ok(value) => {
                    let payload = self.distorted(value);
                    (format!("{}, distorted", base.origin), payload)
                }
                Err(_) => {
                    let payload = self.damaged(&base.payload);
                    (format!("{}, damaged", base.origin), payload)
                }
            },
        };
        let received_at = match self.rng.u8(..16) {
            0 => *self.pick(&[i64::MIN, i64::MAX, -1, 0, 1]).unwrap_or(&0),
            _ => base.received_at,
        };
        Some(Record {
            origin,
            payload,
            received_at,
        })
    }
}

/// Arbitrary values.
impl Generator<'_> {
    fn bytes(&mut self) -> Vec<u8> {
        let length = match self.rng.u8(..8) {
            0 => self.rng.usize(..5000),
            _ => self.rng.usize(..40),
        };
        std::iter::repeat_with(|| self.rng.u8(..))
            .take(length)
            .collect()
    }

    /// Text, with a bent for what parsers and tables stumble over.
    fn text(&mut self) -> String {
        const AWKWARD: &[&str] = &[
            "{", "}", "[", "]", "\"", ":", ",", "\\", "\0", "\n", " ", "-", "+", ".", "0", "9",
            "e", "null", "true", "NaN", "ß", "İ", "\u{200e}", "\u{feff}", "\u{ff11}", "😀",
            "e\u{301}", "\u{1f}", "\u{7f}",
        ];
        let mut text = String::new();
        for _ in 0..self.rng.usize(..30) {
            match self.rng.bool() {
                true => text.push_str(self.pick(AWKWARD).unwrap_or(&"")),
                false => text.push(self.rng.char(..)),
            }
        }
        text
    }

    fn key(&mut self) -> String {
        let index = self.rng.usize(..self.keys.len());
        match self.rng.u8(..8) {
            0 => self.text(),
            _ => self.keys[index].clone(),
        }
    }

    fn object(&mut self, depth: usize) -> Value {
        let fields = (0..self.rng.usize(..12)).map(|_| (self.key(), self.value(depth)));
        Value::Object(fields.collect::<Map<_, _>>())
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.rng.u8(..9) {
            0 => Value::Null,
            1 => self.rng.bool().into(),
            2 => self.rng.i64(..).into(),
            3 => self.rng.i64(-10..2_000_000_000).into(),
            4 => (self.rng.f64() * 1e12).into(),
            5 if depth > 0 => self.object(depth - 1),
            6 if depth > 0 => (0..self.rng.usize(..5))
                .map(|_| self.value(depth - 1))
                .collect(),
            _ => self.text().into(),
        }
    }
}

/// Good payloads gone wrong.
impl Generator<'_> {
    /// Bytes of it are lost, changed or doubled.
    fn damaged(&mut self, payload: &[u8]) -> Vec<u8> {
        let mut damaged = payload.to_vec();
        let place = |rng: &mut Rng, len: usize| rng.usize(..=len);
        match self.rng.u8(..8) {
            0 => damaged.truncate(place(&mut self.rng, payload.len())),
            1 if !payload.is_empty() => {
                for _ in 0..self.rng.usize(1..4) {
                    let at = self.rng.usize(..payload.len());
                    damaged[at] ^= 1 << self.rng.u8(..8);
                }
            }
            2 => {
                let at = place(&mut self.rng, payload.len());
                damaged.insert(at, self.rng.u8(..));
            }
            3 => {
                let (start, end) = self.range(payload.len());
                damaged.drain(start..end);
            }
            4 => {
                let (start, end) = self.range(payload.len());
                let again = payload[start..end].to_vec();
                damaged.splice(end..end, again);
            }
            5 => {
                let known = self.known;
                let other = self
                    .pick(known)
                    .map_or(&[][..], |record| record.payload.as_slice());
                damaged.extend_from_slice(other);
            }
            6 => drop(damaged.splice(0..0, *b"\xef\xbb\xbf")),
            _ => {
                let around = self.rng.usize(..4);
                damaged.splice(0..0, std::iter::repeat_n(b' ', around));
                damaged.extend(std::iter::repeat_n(b'\n', around));
            }
        }
        damaged
    }

    fn range(&mut self, len: usize) -> (usize, usize) {
        let (left, right) = (self.rng.usize(..=len), self.rng.usize(..=len));
        (left.min(right), left.max(right))
    }

    /// Still the same record, but for a value, a key, or a key twice.
    fn distorted(&mut self, mut value: Value) -> Vec<u8> {
        // Stand-ins for what a `Value` can't hold; no text of a payload contains
        // them, since they contain a NUL.
        const TOKEN: &str = "\0token";
        const KEY: &str = "\0key";
        let mut key = None;
        let mut token = self.token();
        let nodes = count(&value);
        let at = self.rng.usize(..nodes);
        if let Some(node) = nth(&mut value, at) {
            match (self.rng.u8(..8), node) {
                (0, Value::Object(fields)) => {
                    let names: Vec<String> = fields.keys().cloned().collect();
                    if let Some(name) = self.pick(&names) {
                        fields.remove(name);
                    }
                }
                (1 | 2, Value::Object(fields)) => {
                    let names: Vec<String> = fields.keys().cloned().collect();
                    key = self.pick(&names).cloned();
                    fields.insert(KEY.to_owned(), TOKEN.into());
                    if let Some(same) = key.as_ref().and_then(|key| fields.get(key))
                        && self.rng.bool()
                    {
                        token = same.to_string().into_bytes();
                    }
                }
                (3, Value::Object(fields)) => {
                    fields.insert(self.key(), TOKEN.into());
                }
                (_, Value::Object(fields)) if !fields.is_empty() => {
                    let names: Vec<String> = fields.keys().cloned().collect();
                    if let Some(name) = self.pick(&names) {
                        fields.insert(name.clone(), TOKEN.into());
                    }
                }
                (_, node) => *node = TOKEN.into(),
            }
        }
        let quoted = |text: &str| Value::from(text).to_string().into_bytes();
        let payload = value.to_string().into_bytes();
        let payload = replaced(&payload, &quoted(TOKEN), &token);
        let key = key.unwrap_or_else(|| "again".to_owned());
        replaced(&payload, &quoted(KEY), &quoted(&key))
    }

    /// What may stand where a value is expected, and much that may not.
    fn token(&mut self) -> Vec<u8> {
        const TOKENS: &[&[u8]] = &[
            b"null",
            b"true",
            b"false",
            b"\"\"",
            b"\" \"",
            b"0",
            b"-0",
            b"-1",
            b"1",
            b"1.0",
            b"1e3",
            b"0.1",
            b"1e999",
            b"-1e999",
            b"01",
            b"+1",
            b"0x10",
            b"NaN",
            b"Infinity",
            b"'text'",
            b"2147483648",
            b"4294967295",
            b"4294967296",
            b"9007199254740993",
            b"9223372036854775807",
            b"9223372036854775808",
            b"-9223372036854775808",
            b"18446744073709551615",
            b"18446744073709551616",
            b"340282366920938463463374607431768211456",
            b"\"0\"",
            b"\"1e400\"",
            b"\"\\ud800\"",
            b"\"\\u0000\"",
            b"\"\x01\"",
            b"\"\xff\"",
            b"\"\xed\xa0\x80\"",
            b"\"\\q\"",
            b"\"open",
            b"[]",
            b"{}",
            b"[1,]",
            b"{\"a\":}",
            b"",
            b"\"+\"",
            b"\"00000000000000000000\"",
            "\"\u{202e}\u{200f}\"".as_bytes(),
            "\"\u{ff0b}\u{ff11}\u{ff12}\"".as_bytes(),
        ];
        match self.rng.u8(..12) {
            0 => {
                let depth = *self
                    .pick(&[2, 120, 127, 128, 129, 1000, 20_000])
                    .unwrap_or(&2);
                let closed = self.rng.bool();
                let mut nested = b"[".repeat(depth);
                if closed {
                    nested.extend(b"]".repeat(depth));
                }
                nested
            }
            1 => {
                let length = *self.pick(&[100, 1000, 10_000, 70_000]).unwrap_or(&100);
                let letter = *self.pick(&["9", "x", "é", "\\n"]).unwrap_or(&"x");
                format!("\"{}\"", letter.repeat(length)).into_bytes()
            }
            2 => b"9".repeat(self.rng.usize(1..400)),
            3 => Value::from(self.text()).to_string().into_bytes(),
            4 => self.value(2).to_string().into_bytes(),
            _ => self
                .pick(TOKENS)
                .map_or_else(Vec::new, |token| token.to_vec()),
        }
    }
}

fn collect_keys(value: &Value, keys: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                keys.push(key.clone());
                collect_keys(value, keys);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_keys(item, keys)),
        _ => {}
    }
}

/// How many values there are, the outermost one included.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Object(fields) => fields.values().map(count).sum(),
        Value::Array(items) => items.iter().map(count).sum::<usize>(),
        _ => 0,
    }
}

/// Value number `at` of them.
fn nth(value: &mut Value, at: usize) -> Option<&mut Value> {
    if at == 0 {
        return Some(value);
    }
    let mut left = at - 1;
    let inner: Vec<&mut Value> = match value {
        Value::Object(fields) => fields.iter_mut().map(|(_, value)| value).collect(),
        Value::Array(items) => items.iter_mut().collect(),
        _ => return None,
    };
    for value in inner {
        let size = count(value);
        if left < size {
            return nth(value, left);
        }
        left -= size;
    }
    None
}

fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    match bytes.windows(from.len()).position(|window| window == from) {
        None => bytes.to_vec(),
        Some(at) => [&bytes[..at], to, &bytes[at + from.len()..]].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Vec<Record> {
        [
            r#"{"id":"a","seconds":3,"more":{"list":[1,"two"]}}"#,
            "no JSON",
        ]
        .map(|payload| Record {
            origin: "fixture".to_owned(),
            payload: payload.into(),
            received_at: 7,
        })
        .to_vec()
    }

    #[test]
    fn a_seed_gives_the_same_payloads_again_and_another_gives_others() {
        let known = known();
        let payloads = |seed| Generator::new(&known, seed).take(300).collect::<Vec<_>>();
        assert_eq!(payloads(1), payloads(1));
        assert_ne!(payloads(1), payloads(2));
    }

    /// What a normalizer has to survive is there, within the default number.
    #[test]
    fn the_payloads_are_of_every_kind() {
        let known = known();
        let all: Vec<Record> = Generator::new(&known, 0).take(2000).collect();
        let some = |what: &str, is: &dyn Fn(&Record) -> bool| {
            assert!(all.iter().any(is), "no payload is {what}");
        };
        let has = |record: &Record, part: &str| {
            let part = part.as_bytes();
            record
                .payload
                .windows(part.len())
                .any(|window| window == part)
        };
        some("not UTF-8", &|record| {
            std::str::from_utf8(&record.payload).is_err()
        });
        some("empty", &|record| record.payload.is_empty());
        some("truncated", &|record| {
            record.payload.len() > 5
                && known[0].payload.starts_with(&record.payload)
                && record.payload != known[0].payload
        });
        some("deep", &|record| has(record, &"[".repeat(1000)));
        some("long", &|record| record.payload.len() > 50_000);
        some("out of range", &|record| {
            has(record, "18446744073709551616")
        });
        some("with a key twice", &|record| {
            has(record, r#""id":"#)
                && record
                    .payload
                    .windows(5)
                    .filter(|w| *w == b"\"id\":")
                    .count()
                    > 1
        });
        some("without a key", &|record| {
            serde_json::from_slice::<Value>(&record.payload)
                .is_ok_and(|value| value.get("more").is_some() && value.get("id").is_none())
        });
        some("at the end of time", &|record| {
            record.received_at == i64::MAX
        });
        assert!(
            !all.iter()
                .any(|record| has(record, "\\u0000token") || has(record, "\\u0000key"))
        );
    }
}
