//! Extensions: what is dialled after the call is answered, and not part of the
//! number. The forms are libphonenumber's, without its labels in other words
//! than `x` and `ext`.

use super::Fault;
use super::dialled::{digit, looks_like_a_number};

/// What stands in front of an extension.
enum Label {
    /// `ext`, `extension` and the like.
    Word,
    /// A single `x`, `#` or `~`.
    Sign(char),
    /// `;`, or two commas: a pause of a dialler.
    Pause,
    /// One comma.
    Comma,
}

/// The text without its extension, if it has one.
///
/// # Errors
/// What follows a comma or a semicolon is rather a second number.
pub(super) fn without(text: &str) -> Result<&str, Fault> {
    let hash = text.strip_suffix('#');
    let body = hash.unwrap_or(text);
    let before = body.trim_end_matches(|c: char| digit(c).is_some());
    let count = body
        .get(before.len()..)
        .map_or(0, |run| run.chars().count());
    if count == 0 {
        return Ok(text);
    }
    // "- 503#", an American way of writing.
    let dashed = before.trim_end_matches(['-', ' ']);
    if hash.is_some() && dashed.len() < before.len() && count <= 6 && dashed.ends_with(is_digit) {
        return Ok(dashed);
    }
    let Some((number, label)) = split_label(before) else {
        return Ok(text);
    };
    let most = match label {
        Label::Word => 20,
        // `#31#` is a service code.
        Label::Sign('#') if hash.is_some() => return Err(Fault::ServiceCode),
        Label::Sign(_) | Label::Comma => 9,
        Label::Pause => 15,
    };
    if matches!(label, Label::Pause | Label::Comma) && looks_like_a_number(count) {
        return Err(Fault::Several);
    }
    let is_viable = number.chars().filter(|c| is_digit(*c)).count() >= 2;
    Ok(if count <= most && is_viable {
        number
    } else {
        text
    })
}

fn is_digit(c: char) -> bool {
    digit(c).is_some()
}

fn split_label(before: &str) -> Option<(&str, Label)> {
    let gap = [' ', '\u{a0}', '\t', ','];
    let spaced = before.trim_end_matches([' ', '\u{a0}', '\t', ',', '-']);
    let label_end = spaced
        .strip_suffix([':', '.', '\u{ff0e}'])
        .unwrap_or(spaced);
    if let Some(number) = strip_word(label_end) {
        return Some((number.trim_end_matches(gap), Label::Word));
    }
    let sign = ['x', 'X', '#', '~']
        .into_iter()
        .find(|sign| label_end.ends_with(*sign));
    if let Some(sign) = sign {
        let number = label_end.strip_suffix(sign)?;
        return Some((number.trim_end_matches(gap), Label::Sign(sign)));
    }
    if let Some(number) = label_end.strip_suffix(';') {
        return Some((number.trim_end_matches([' ', '\u{a0}', '\t']), Label::Pause));
    }
    let tail = before.get(before.trim_end_matches(gap).len()..)?;
    let label = match tail.matches(',').count() {
        0 => return None,
        1 => Label::Comma,
        _ => Label::Pause,
    };
    Some((before.trim_end_matches(gap), label))
}

/// `ext`, `xt`, `extn`, `extensi`, `extensio`, `extension`, `extensión`, in any
/// case.
fn strip_word(text: &str) -> Option<&str> {
    let mut rest = strip_letters(text, "n").unwrap_or(text);
    for ending in ["ensio", "ensió", "ensio\u{301}", "ensi"] {
        if let Some(shorter) = strip_letters(rest, ending) {
            rest = shorter;
            break;
        }
    }
    let rest = strip_letters(rest, "xt")?;
    Some(strip_letters(rest, "e").unwrap_or(rest))
}

fn strip_letters<'a>(text: &'a str, letters: &str) -> Option<&'a str> {
    let (rest, end) = text.split_at_checked(text.len().checked_sub(letters.len())?)?;
    end.eq_ignore_ascii_case(letters).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_are_dropped() {
        for text in [
            "2025550123x1",
            "2025550123 x123",
            "2025550123 X 123",
            "2025550123ext123",
            "2025550123 ext. 123",
            "2025550123 Ext: 123",
            "2025550123,extn 123",
            "2025550123 EXTENSION 12345678901234567890",
            "2025550123 extensión 12",
            "2025550123 xt 12",
            "2025550123#123",
            "2025550123 #123",
            "2025550123~123",
            "2025550123 - 503#",
            "2025550123,,123",
            "2025550123;123",
            "2025550123,123",
            "2025550123, 123#",
            "2025550123x۱۲",
        ] {
            assert_eq!(without(text), Ok("2025550123"), "{text:?}");
        }
    }

    #[test]
    fn what_is_no_extension_stays() {
        for text in [
            "",
            "x123",
            "ext 123",
            "0x91442079460123",
            "2025550123 x",
            "2025550123ext",
            "2025550123 x1234567890",
            "2025550123 int 5",
            "2025550123 anexo 5",
            "2025550123y12",
            "202-555-0123",
            "(202) 555.0123",
            "2025550123#",
        ] {
            assert_eq!(without(text), Ok(text), "{text:?}");
        }
    }

    #[test]
    fn a_second_number_is_no_extension() {
        for text in [
            "2025550123,2025550199",
            "2025550123;2025550199",
            "2025550123,,5550199",
        ] {
            assert_eq!(without(text), Err(Fault::Several), "{text:?}");
        }
        assert_eq!(without("2025550123#31#"), Err(Fault::ServiceCode));
    }
}
