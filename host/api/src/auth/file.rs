//! The lines of a file of tokens.

use std::fmt;
use std::num::NonZeroU32;
use std::time::SystemTime;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A token that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The `vendor_id` that may be posted with it.
    pub vendor: String,
    /// SHA-256 of the token.
    pub digest: [u8; 32],
    /// From when on it counts no more.
    pub expires: Option<SystemTime>,
    /// Records a second.
    pub rate: Option<NonZeroU32>,
}

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct FileError {
    /// Which, from 1.
    pub line: usize,
    /// What is wrong, and what should be there.
    pub what: String,
}

/// Reads a file; blank lines and those that begin with `#` say nothing.
pub(super) fn parse(text: &str) -> Result<Vec<Line>, FileError> {
    let mut lines: Vec<Line> = Vec::new();
    let mut seen = std::collections::HashMap::new();
    for (index, text) in text.lines().enumerate() {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let refused = |what| FileError {
            line: index + 1,
            what,
        };
        let line: Line = text.parse().map_err(refused)?;
        if let Some(first) = seen.insert(line.digest, index + 1) {
            return Err(refused(format!(
                "the same token as in line {first}; each token is of one vendor"
            )));
        }
        lines.push(line);
    }
    Ok(lines)
}

impl std::str::FromStr for Line {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (vendor, rest) = vendor(text)?;
        let mut words = rest.split_whitespace();
        let mut digest = [0; 32];
        words
            .next()
            .and_then(|word| hex::decode_to_slice(word, &mut digest).ok())
            .ok_or(
                "after the vendor comes the SHA-256 of the token, 64 hexadecimal digits \
                 (a vendor_id with spaces is put in quotes)",
            )?;
        let mut line = Line {
            vendor,
            digest,
            expires: None,
            rate: None,
        };
        for word in words {
            match word.split_once('=') {
                Some(("expires", time)) if line.expires.is_none() => {
                    line.expires = Some(expiry(time)?);
                }
                Some(("rate", rate)) if line.rate.is_none() => {
                    line.rate = Some(rate.parse().map_err(|_| {
                        format!("rate={rate} is no whole number of records a second above 0")
                    })?);
                }
                Some(("expires" | "rate", _)) => return Err(format!("{word} is a second one")),
                _ => {
                    return Err(format!(
                        "{word:?} is no option; there are expires=TIME and rate=RECORDS_PER_SECOND"
                    ));
                }
            }
        }
        Ok(line)
    }
}

/// The vendor, bare or as a JSON string, and what comes behind.
fn vendor(text: &str) -> Result<(String, &str), String> {
    let (vendor, rest) = if text.starts_with('"') {
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<String>();
        let vendor = values
            .next()
            .and_then(Result::ok)
            .ok_or("the quotes around the vendor do not close, or hold no JSON string")?;
        (vendor, &text[values.byte_offset()..])
    } else {
        let end = text.find(char::is_whitespace).unwrap_or(text.len());
        (text[..end].to_owned(), &text[end..])
    };
    if vendor.trim().is_empty() {
        return Err("the vendor is empty".to_owned());
    }
    Ok((vendor, rest))
}

/// An end by RFC 3339, as `2027-06-30T00:00:00Z`.
fn expiry(text: &str) -> Result<SystemTime, String> {
    OffsetDateTime::parse(text, &Rfc3339)
        .map(SystemTime::from)
        .map_err(|_| format!("expires={text} is no time as 2027-06-30T00:00:00Z"))
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_bare = !self.vendor.starts_with(['"', '#'])
            && !self
                .vendor
                .contains(|c: char| c.is_whitespace() || c.is_control());
        if is_bare {
            f.write_str(&self.vendor)?;
        } else {
            write!(f, "{}", serde_json::Value::from(self.vendor.as_str()))?;
        }
        write!(f, " {}", hex::encode(self.digest))?;
        if let Some(expires) = self.expires {
            let expires = OffsetDateTime::from(expires).format(&Rfc3339);
            write!(f, " expires={}", expires.map_err(|_| fmt::Error)?)?;
        }
        if let Some(rate) = self.rate {
            write!(f, " rate={rate}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

    #[test]
    fn a_file_is_read_line_by_line() {
        let other = DIGEST.replace('9', "8");
        let text = format!(
            "# tokens\n\nvend-a {DIGEST} expires=2027-06-30T00:00:00Z rate=200\r\n  \"vend b\\t#\"\t{} \n",
            other.to_uppercase()
        );
        let lines = parse(&text).expect("well-formed");
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].vendor, "vend-a");
        assert_eq!(lines[0].rate, NonZeroU32::new(200));
        assert_eq!(
            lines[0].to_string(),
            format!("vend-a {DIGEST} expires=2027-06-30T00:00:00Z rate=200")
        );
        assert_eq!(lines[1].vendor, "vend b\t#");
        assert_eq!(lines[1].expires, None);
    }

    #[test]
    fn what_is_written_is_read_back() {
        for vendor in ["vend-a", "vend b", "\"", "#1", "é\n", "a\"b", "a=b"] {
            let line = Line {
                vendor: vendor.to_owned(),
                digest: [7; 32],
                expires: Some(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1 << 31)),
                rate: NonZeroU32::new(1),
            };
            assert_eq!(parse(&line.to_string()), Ok(vec![line]));
        }
    }

    #[test]
    fn a_wrong_line_is_named_with_what_is_wrong() {
        for (line, what) in [
            ("vend-a", "SHA-256"),
            ("vend a 00", "in quotes"),
            ("\"vend-a 00", "do not close"),
            ("\" \" 00", "empty"),
            (&format!("vend-a {DIGEST}00"), "64 hexadecimal"),
            (&format!("vend-a {DIGEST} rate=0"), "above 0"),
            (&format!("vend-a {DIGEST} rate=1 rate=2"), "second one"),
            (&format!("vend-a {DIGEST} expires=tomorrow"), "2027-06-30T"),
            (&format!("vend-a {DIGEST} admin"), "no option"),
            (&format!("vend-a {DIGEST}\nvend-b {DIGEST}"), "same token"),
        ] {
            let error = parse(&format!("# tokens\n{line}")).expect_err(line);
            assert!(error.line == 2 || error.line == 3, "{error}");
            assert!(error.what.contains(what), "{error}");
        }
    }
}
