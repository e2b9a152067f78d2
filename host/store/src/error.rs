//! An insert or query that failed: what happened, and what to do about it.
//! What each of ClickHouse's codes means is in [`crate::codes`].

use std::fmt;

use crate::{
    advice::advice,
    codes::{classify, known_name},
};

/// What to do about a failed insert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// It may succeed later: send the same bytes again.
    Transient,
    /// The block is over a limit that a smaller one respects: split it. A single
    /// row that is still over it blames the limit, not itself: transient.
    TooLarge,
    /// Something in the batch is to blame, and a part of it may succeed: bisect.
    Data,
    /// The set-up is broken, and no batch can succeed before someone mends it:
    /// stop, commit nothing, blame no record.
    Setup,
}

impl ErrorClass {
    /// All classes.
    pub const ALL: [ErrorClass; 4] = [Self::Transient, Self::TooLarge, Self::Data, Self::Setup];

    /// For logs and metrics.
    pub fn tag(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::TooLarge => "too_large",
            Self::Data => "data",
            Self::Setup => "setup",
        }
    }
}

/// An insert or query that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct StoreError {
    /// What to do about it.
    pub class: ErrorClass,
    /// ClickHouse's error code, where it was ClickHouse that answered.
    pub code: Option<i32>,
    /// Its name, as in `MEMORY_LIMIT_EXCEEDED`, or what happened to the request:
    /// `connect`, `timeout`, `connection_lost`, `http_503`, `unclear_answer`,
    /// `other_server`, `request`.
    pub name: String,
    /// What was said, cut to 500 characters.
    pub message: String,
    /// What was tried, as in `insert of 1000 rows into telecom.cdr_records`.
    pub operation: String,
    /// Where, as in `http://localhost:8123`.
    pub address: String,
}

/// ClickHouse quotes the data that it can't parse: enough to understand, not
/// enough to fill a log.
const MAX_MESSAGE: usize = 500;

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} failed: ", self.operation, self.address)?;
        match self.code {
            Some(code) => write!(f, "{} (code {code}): {}", self.name, self.message)?,
            None => write!(f, "{}", self.message)?,
        }
        match self.advice() {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}

impl StoreError {
    /// What an operator can do, where that is more than to wait.
    pub fn advice(&self) -> Option<&'static str> {
        advice(self.code, &self.name, self.class)
    }

    /// From the text of an exception, which ClickHouse puts into the body.
    pub(crate) fn exception(header_code: Option<i32>, text: &str, at: &Operation) -> Self {
        let code = header_code.or_else(|| code_in(text));
        let message = message_in(text);
        let class = code.map_or(ErrorClass::Transient, |code| classify(code, &message));
        let name = name_in(text)
            .or_else(|| code.and_then(known_name).map(str::to_owned))
            .unwrap_or_else(|| "UNKNOWN".into());
        let message = match message.is_empty() {
            true => "the answer has no text".to_owned(),
            false => message,
        };
        Self::new(class, code, name, message, at)
    }

    /// From a status of HTTP that no exception of ClickHouse explains: something
    /// in front of it answered.
    pub(crate) fn http(status: u16, text: &str, at: &Operation) -> Self {
        let class = match status {
            // A limit on the size of requests: half a batch may pass.
            413 => ErrorClass::TooLarge,
            408 | 425 | 429 | 500.. => ErrorClass::Transient,
            _ => ErrorClass::Setup,
        };
        let name = match class {
            ErrorClass::Setup => "other_server".into(),
            _ => format!("http_{status}"),
        };
        let text = text.trim();
        let message = match text.is_empty() {
            true => format!("HTTP status {status}"),
            false => format!("HTTP status {status}: {text}"),
        };
        Self::new(class, None, name, message, at)
    }

    pub(crate) fn request(
        class: ErrorClass,
        name: &str,
        message: impl Into<String>,
        at: &Operation,
    ) -> Self {
        Self::new(class, None, name.into(), message.into(), at)
    }

    fn new(
        class: ErrorClass,
        code: Option<i32>,
        name: String,
        message: String,
        at: &Operation,
    ) -> Self {
        let message = match message.char_indices().nth(MAX_MESSAGE) {
            Some((end, _)) => format!("{}…", &message[..end]),
            None => message,
        };
        Self {
            class,
            code,
            name,
            message,
            operation: at.what.clone(),
            address: at.address.clone(),
        }
    }
}

/// What is being tried, and where; for messages.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub(crate) what: String,
    pub(crate) address: String,
}

/// The number in `Code: 241. DB::Exception: …`.
fn code_in(text: &str) -> Option<i32> {
    let (_, rest) = text.split_once("Code: ")?;
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// The name in `… (MEMORY_LIMIT_EXCEEDED) (version 26.7.2.1)`; the message before
/// it may have brackets of its own.
fn name_in(text: &str) -> Option<String> {
    text.rmatch_indices('(').find_map(|(at, _)| {
        let (name, _) = text[at + 1..].split_once(')')?;
        let shaped = name.len() > 2
            && name
                .bytes()
                .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
        shaped.then(|| name.to_owned())
    })
}

/// The sentence between `DB::Exception: ` and the name.
fn message_in(text: &str) -> String {
    let text = text.trim();
    let text = text
        .split_once("Exception: ")
        .map_or(text, |(_, message)| message);
    let end = name_in(text).and_then(|name| text.rfind(&format!("({name})")));
    text[..end.unwrap_or(text.len())].trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at() -> Operation {
        Operation {
            what: "insert of 2 rows into telecom.cdr_records".into(),
            address: "http://ch:8123".into(),
        }
    }

    #[test]
    fn an_exception_is_taken_apart() {
        let text = "Code: 60. DB::Exception: Table telecom.x (of user (bob)) does not exist. \
                    (UNKNOWN_TABLE) (version 26.7.2.1)\n";
        let error = StoreError::exception(None, text, &at());
        assert_eq!(error.code, Some(60));
        assert_eq!(error.name, "UNKNOWN_TABLE");
        assert_eq!(error.class, ErrorClass::Setup);
        assert_eq!(
            error.message,
            "Table telecom.x (of user (bob)) does not exist."
        );
        assert_eq!(
            error.to_string(),
            "insert of 2 rows into telecom.cdr_records at http://ch:8123 failed: UNKNOWN_TABLE \
             (code 60): Table telecom.x (of user (bob)) does not exist.; run `cdr provision`, or \
             check the database and table names"
        );
    }

    #[test]
    fn what_stands_before_clickhouse_is_classified_by_status() {
        let class = |status| StoreError::http(status, "", &at()).class;
        assert_eq!(class(502), ErrorClass::Transient);
        assert_eq!(class(503), ErrorClass::Transient);
        assert_eq!(class(429), ErrorClass::Transient);
        assert_eq!(class(413), ErrorClass::TooLarge);
        assert_eq!(class(302), ErrorClass::Setup);
        assert_eq!(class(401), ErrorClass::Setup);
        assert_eq!(class(404), ErrorClass::Setup);
    }

    #[test]
    fn a_long_message_is_cut() {
        let text = format!(
            "Code: 6. DB::Exception: {}. (CANNOT_PARSE_TEXT)",
            "ä".repeat(9000)
        );
        let error = StoreError::exception(Some(6), &text, &at());
        assert_eq!(error.message.chars().count(), MAX_MESSAGE + 1);
    }

    proptest! {
        #[test]
        fn any_text_is_taken(text in "\\PC*", code in prop::option::of(any::<i32>())) {
            let error = StoreError::exception(code, &text, &at());
            prop_assert!(error.message.chars().count() <= MAX_MESSAGE + 1);
            let _ = error.to_string();
        }
    }
}
