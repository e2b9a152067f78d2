//! Texts of others: what may be stored, and how they are shown.

/// A vendor's value in a sentence: escaped, and cut.
pub fn quoted(value: &str) -> String {
    const SHOWN: usize = 40;
    let mut shown: String = value.chars().take(SHOWN).collect();
    if shown.len() < value.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}

/// Whether there is a control character in it: a fault of the source, which
/// would make two identifiers look like one.
pub fn has_control(text: &str) -> bool {
    // All of Unicode's controls are below U+00A0, so ASCII is nearly always enough.
    if text.is_ascii() {
        text.bytes().any(|byte| byte.is_ascii_control())
    } else {
        text.chars().any(char::is_control)
    }
}
