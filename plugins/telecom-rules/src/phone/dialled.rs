//! From text to what was dialled: digits, with `+` in front or not.
//!
//! This is stricter than libphonenumber, which is made to find numbers in
//! prose: letters, codes and second numbers are refused rather than skipped.
//! What is left over reads the same to the engine as the text would, without
//! the punctuation.

use super::Fault;
use rlibphonenumber::PHONE_NUMBER_UTIL;
use std::borrow::Cow;

/// The most characters that are looked at, as in libphonenumber.
const MAX_CHARS: usize = 250;

/// An extension or a post-dial string of so many digits looks like a second
/// number.
const LIKE_A_NUMBER: usize = 7;

/// Reads `+` (at most once, in front) and ASCII digits out of a text.
pub(super) fn read(text: &str) -> Result<Cow<'_, str>, Fault> {
    if is_plain(text) {
        return Ok(Cow::Borrowed(text));
    }
    if text.len() > MAX_CHARS && text.chars().count() > MAX_CHARS {
        return Err(Fault::TooLong);
    }
    let clean: String = text
        .chars()
        .filter(|c| !is_mark(*c))
        .map(|c| if c == '\u{ff0b}' { '+' } else { c })
        .collect();
    let clean = unwrapped(clean.trim());
    match uri(clean)? {
        Some(user) => with_parameters(user, true),
        None => with_parameters(clean, false),
    }
    .map(Cow::Owned)
}

/// The usual case: nothing to be done.
fn is_plain(text: &str) -> bool {
    let digits = text.strip_prefix('+').unwrap_or(text);
    (1..=MAX_CHARS).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Marks that show nothing: bidirectional controls, zero-width characters.
fn is_mark(c: char) -> bool {
    matches!(c,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'
        | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Without the angle brackets that SIP headers put around a URI.
fn unwrapped(text: &str) -> &str {
    text.strip_prefix('<')
        .and_then(|rest| rest.strip_suffix('>'))
        .unwrap_or(text)
}

/// The user part of a `tel:`, `sip:` or `sips:` URI, its parameters included;
/// `None` if the text is no such URI.
fn uri(text: &str) -> Result<Option<&str>, Fault> {
    if let Some(number) = after_scheme(text, "tel:") {
        return Ok(Some(number));
    }
    let Some(rest) = after_scheme(text, "sip:").or_else(|| after_scheme(text, "sips:")) else {
        return Ok(None);
    };
    let Some((user, _host)) = rest.split_once('@') else {
        // Without `@` it is a host; but gateways leave the host out. A name or
        // an address has a point in it.
        return if rest
            .split(';')
            .next()
            .is_some_and(|host| host.contains('.'))
        {
            Err(Fault::Uri)
        } else {
            Ok(Some(rest))
        };
    };
    // user[:password]
    Ok(Some(user.split(':').next().unwrap_or(user)))
}

fn after_scheme<'a>(text: &'a str, scheme: &str) -> Option<&'a str> {
    let (head, rest) = text.split_at_checked(scheme.len())?;
    head.eq_ignore_ascii_case(scheme).then_some(rest)
}

/// Takes `;name=value` parameters off. In a URI any are allowed and only
/// `phone-context` counts. In other text only those are taken that
/// libphonenumber knows; the rest stays and is judged as part of the number.
fn with_parameters(text: &str, is_uri: bool) -> Result<String, Fault> {
    let mut parts = text.split(';');
    let number = parts.next().unwrap_or_default();
    let parameters: Vec<(&str, &str)> = parts
        .map(|part| part.split_once('=').unwrap_or((part, "")))
        .collect();
    let known = |name: &str| {
        ["phone-context", "isub", "ext"]
            .iter()
            .any(|known| known.eq_ignore_ascii_case(name.trim()))
    };
    if parameters.is_empty() || !(is_uri || parameters.iter().all(|(name, _)| known(name))) {
        return number_only(text);
    }
    let mut contexts = parameters
        .iter()
        .filter(|(name, _)| name.trim().eq_ignore_ascii_case("phone-context"))
        .map(|(_, value)| *value);
    match (contexts.next(), contexts.next()) {
        (None, _) => number_only(number),
        (Some(context), None) => in_context(number, context),
        (Some(_), Some(_)) => Err(Fault::Uri),
    }
}

/// A local number of RFC 3966: the context is the start of a global number, or
/// a domain, which says nothing about the number.
fn in_context(number: &str, context: &str) -> Result<String, Fault> {
    let dialled = number_only(number)?;
    let Some(prefix) = context.strip_prefix('+') else {
        return if is_domain(context) {
            Ok(dialled)
        } else {
            Err(Fault::Uri)
        };
    };
    let well_formed = prefix
        .bytes()
        .all(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b'.' | b'(' | b')'));
    let digits: String = prefix.chars().filter(char::is_ascii_digit).collect();
    if !well_formed || digits.is_empty() || dialled.starts_with('+') {
        return Err(Fault::Uri);
    }
    Ok(format!("+{digits}{dialled}"))
}

fn is_domain(text: &str) -> bool {
    let mut labels = text.strip_suffix('.').unwrap_or(text).split('.');
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let starts_with_letter = |label: &str| label.starts_with(|c: char| c.is_ascii_alphabetic());
    labels.clone().all(is_label) && labels.next_back().is_some_and(starts_with_letter)
}

/// The digits of a number that may have an extension.
fn number_only(text: &str) -> Result<String, Fault> {
    let text =
        text.trim_end_matches(|c: char| !c.is_alphanumeric() && !matches!(c, '#' | '*' | '+'));
    if is_decimal(text) {
        return Err(Fault::Decimal);
    }
    digits(super::extension::without(text)?)
}

/// A number that went through a spreadsheet or a data frame: `4930123456.0`.
/// The zero would become a digit of the number, and in countries without fixed
/// lengths nobody would notice.
fn is_decimal(text: &str) -> bool {
    text.split_once('.').is_some_and(|(whole, fraction)| {
        let whole = whole.strip_prefix('+').unwrap_or(whole);
        whole.len() >= LIKE_A_NUMBER
            && whole.bytes().all(|byte| byte.is_ascii_digit())
            && !fraction.is_empty()
            && fraction.bytes().all(|byte| byte == b'0')
    })
}

/// Punctuation within numbers, as in libphonenumber, but for `x`.
fn is_punctuation(c: char) -> bool {
    matches!(c,
        '-' | ' ' | '(' | ')' | '.' | '[' | ']' | '/' | '~' | '\u{a0}' | '\u{ad}'
        | '\u{2010}'..='\u{2015}' | '\u{2053}' | '\u{2212}' | '\u{223c}' | '\u{3000}'
        | '\u{30fc}' | '\u{ff08}' | '\u{ff09}' | '\u{ff0d}'..='\u{ff0f}' | '\u{ff3b}' | '\u{ff3d}')
}

fn digits(text: &str) -> Result<String, Fault> {
    let mut out = String::with_capacity(text.len());
    let mut odd = None;
    let mut after_plus = false;
    for c in text.chars() {
        let digit = match c {
            '0'..='9' => Some(c),
            '+' => {
                // Repeated signs are one sign.
                if out.is_empty() {
                    out.push('+');
                } else if !after_plus {
                    return Err(Fault::Plus);
                }
                after_plus = true;
                continue;
            }
            '*' | '#' => return Err(Fault::ServiceCode),
            '%' | '@' => return Err(Fault::Character(c)),
            _ if c.is_ascii() => None,
            _ => digit(c),
        };
        after_plus = false;
        match digit {
            Some(digit) => match odd {
                Some(odd) => return Err(odd_between(odd)),
                None => out.push(digit),
            },
            None if c != '\u{30fc}' && c.is_alphabetic() => return Err(Fault::Letter),
            None if c.is_numeric() => return Err(Fault::Character(c)),
            // Around the number anything goes, within it only punctuation.
            None if out.is_empty() || is_punctuation(c) => {}
            None => odd = odd.or(Some(c)),
        }
    }
    if out.trim_start_matches('+').is_empty() {
        return Err(Fault::NoDigit);
    }
    Ok(out)
}

fn odd_between(odd: char) -> Fault {
    match odd {
        ',' | ';' | '|' | '&' => Fault::Several,
        odd => Fault::Character(odd),
    }
}

/// A decimal digit of any script, as ASCII.
pub(super) fn digit(c: char) -> Option<char> {
    if c.is_ascii() {
        return c.is_ascii_digit().then_some(c);
    }
    if !c.is_numeric() {
        return None;
    }
    let mut buffer = [0; 4];
    let digits = PHONE_NUMBER_UTIL.normalize_digits_only(c.encode_utf8(&mut buffer));
    digits.chars().next()
}

pub(super) const fn looks_like_a_number(digits: usize) -> bool {
    digits >= LIKE_A_NUMBER
}
