//! What ClickHouse answered, and whether that is a success. The one place that
//! says so.

use http::{HeaderMap, StatusCode, response};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::error::{ErrorClass, Operation, StoreError};

/// More of an answer is not read: no message is longer.
const MAX_ANSWER: usize = 64 * 1024;

/// An answer, as far as it came.
pub(crate) struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
    /// Why the body ended before its end.
    broken: Option<String>,
}

impl Answer {
    pub(crate) async fn read(head: response::Parts, mut body: Incoming) -> Self {
        let mut bytes = Vec::new();
        let mut broken = None;
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => bytes.extend(frame.into_data().unwrap_or_default()),
                // What came before may say why: older servers break off behind
                // an exception.
                Err(error) => broken = Some(chain(&error)),
            }
            // Where there is more, it was no success anyway.
            if broken.is_some() || bytes.len() > MAX_ANSWER {
                break;
            }
        }
        Self {
            status: head.status,
            headers: head.headers,
            text: String::from_utf8_lossy(&bytes).into_owned(),
            broken,
        }
    }

    /// What ClickHouse says, where it says that it did what it was asked for.
    pub(crate) fn success(&self, at: &Operation) -> Result<&str, StoreError> {
        let text = self.text.as_str();
        let exception = self
            .headers
            .get("X-ClickHouse-Exception-Code")
            .map(|code| code.to_str().ok().and_then(|code| code.parse().ok()));
        if exception.is_some() || text.contains("DB::Exception") {
            return Err(StoreError::exception(exception.flatten(), text, at));
        }
        if let Some(reason) = &self.broken {
            let (class, name) = (ErrorClass::Transient, "connection_lost");
            return Err(StoreError::request(class, name, reason, at));
        }
        if self.status != StatusCode::OK {
            return Err(StoreError::http(self.status.as_u16(), text, at));
        }
        let mut names = self.headers.keys().map(http::HeaderName::as_str);
        if !names.any(|name| name.starts_with("x-clickhouse-")) {
            let message = "the answer has status 200, but does not come from ClickHouse";
            let (class, name) = (ErrorClass::Setup, "other_server");
            return Err(StoreError::request(class, name, message, at));
        }
        Ok(text)
    }

    /// Whether it acknowledges an insert of so many rows.
    pub(crate) fn acknowledges(&self, rows: usize, at: &Operation) -> Result<(), StoreError> {
        let text = self.success(at)?.trim();
        if !text.is_empty() {
            return Err(unclear(
                format!("the answer has status 200, but says: {text}"),
                at,
            ));
        }
        let summary = self.headers.get("X-ClickHouse-Summary");
        match summary.and_then(|summary| rows_taken(summary.as_bytes())) {
            Some(taken) if taken < rows as u64 => Err(unclear(
                format!("ClickHouse acknowledged {taken} of {rows} rows"),
                at,
            )),
            _ => Ok(()),
        }
    }
}

pub(crate) fn unclear(message: String, at: &Operation) -> StoreError {
    StoreError::request(ErrorClass::Transient, "unclear_answer", message, at)
}

/// The rows that ClickHouse read; equal to those sent also where the token made
/// it drop them. (A request that lost its body on the way gets a 200 too.)
fn rows_taken(summary: &[u8]) -> Option<u64> {
    let summary: serde_json::Value = serde_json::from_slice(summary).ok()?;
    let count = |name| summary.get(name)?.as_str()?.parse::<u64>().ok();
    count("read_rows").max(count("written_rows"))
}

/// An error with its causes, since the outer ones say little.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        match text.contains(&cause) {
            true => text,
            false => format!("{text}: {cause}"),
        }
    })
}
