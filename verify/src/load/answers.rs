//! Whether an answer is one that a vendor may get from a host that is asked too much.
//! Pure.

use serde_json::Value;

/// How much of a body is shown.
const SHOWN: usize = 200;

/// An answer, as far as it is looked at.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its `Retry-After`.
    pub retry_after: Option<String>,
    /// Its body.
    pub body: Vec<u8>,
}

/// What is wrong with an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// Neither 202 nor 429 nor 503.
    #[error("{raw_id} was answered {status}: {body}")]
    Status {
        /// Of this record.
        raw_id: String,
        /// What it was instead.
        status: u16,
        /// The beginning of the body.
        body: String,
    },
    /// A 202 that is of another record, or of none.
    #[error("{raw_id} was answered 202 with {body}, which is not of that record")]
    OtherRecord {
        /// Of this record.
        raw_id: String,
        /// The beginning of the body.
        body: String,
    },
    /// A refusal that does not say when to come again.
    #[error("{raw_id} was answered {status} with Retry-After {found:?}, not a number of seconds")]
    RetryAfter {
        /// Of this record.
        raw_id: String,
        /// 429 or 503.
        status: u16,
        /// What was there.
        found: Option<String>,
    },
    /// A refusal that is not in the one shape of refusals.
    #[error(
        "{raw_id} was answered {status} with {body}, not {{\"error\": …, \"field\": …, \"message\": …}}"
    )]
    Shape {
        /// Of this record.
        raw_id: String,
        /// 429 or 503.
        status: u16,
        /// The beginning of the body.
        body: String,
    },
}

/// Finds fault with the answer to the record of this id.
///
/// # Errors
/// It is not 202, 429 or 503, or is not as such an answer must be.
pub fn check(raw_id: &str, answer: &Answer) -> Result<(), Wrong> {
    let status = answer.status;
    let raw_id = raw_id.to_owned();
    let body = || {
        String::from_utf8_lossy(&answer.body)
            .chars()
            .take(SHOWN)
            .collect()
    };
    let json = || serde_json::from_slice::<Value>(&answer.body).unwrap_or_default();
    match status {
        202 if json()["raw_id"] == raw_id.as_str() => Ok(()),
        202 => Err(Wrong::OtherRecord {
            body: body(),
            raw_id,
        }),
        429 | 503 => {
            let seconds = answer.retry_after.as_deref();
            if seconds.is_none_or(|seconds| seconds.parse::<u32>().is_err()) {
                return Err(Wrong::RetryAfter {
                    raw_id,
                    status,
                    found: answer.retry_after.clone(),
                });
            }
            match is_refusal(&json()) {
                true => Ok(()),
                false => Err(Wrong::Shape {
                    raw_id,
                    status,
                    body: body(),
                }),
            }
        }
        _ => Err(Wrong::Status {
            raw_id,
            status,
            body: body(),
        }),
    }
}

/// Whether it has a code, a field or null, a message, and nothing else.
fn is_refusal(body: &Value) -> bool {
    let is_said = |name| body[name].as_str().is_some_and(|text| !text.is_empty());
    let field = body.get("field");
    body.as_object().is_some_and(|body| body.len() == 3)
        && is_said("error")
        && is_said("message")
        && field.is_some_and(|field| field.is_null() || field.is_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSAL: &str = r#"{"error":"too_many_outstanding","field":null,"message":"again"}"#;

    fn judged(status: u16, retry_after: Option<&str>, body: &str) -> Result<(), Wrong> {
        let answer = Answer {
            status,
            retry_after: retry_after.map(str::to_owned),
            body: body.as_bytes().to_vec(),
        };
        check("load-7", &answer)
    }

    #[test]
    fn what_a_full_host_may_answer_passes() {
        let accepted = r#"{"status":"accepted","raw_id":"load-7"}"#;
        assert_eq!(judged(202, None, accepted), Ok(()));
        assert_eq!(judged(429, Some("2"), REFUSAL), Ok(()));
        assert_eq!(judged(503, Some("10"), REFUSAL), Ok(()));
    }

    #[test]
    fn any_other_status_is_wrong_however_well_formed() {
        for status in [200, 207, 400, 408, 413, 500, 502, 504] {
            let wrong = judged(status, Some("2"), REFUSAL);
            assert!(matches!(wrong, Err(Wrong::Status { .. })), "{wrong:?}");
        }
    }

    #[test]
    fn a_refusal_must_say_when_to_come_again() {
        for status in [429, 503] {
            for seconds in [None, Some(""), Some("soon"), Some("-1"), Some("1.5")] {
                let wrong = judged(status, seconds, REFUSAL);
                assert!(matches!(wrong, Err(Wrong::RetryAfter { .. })), "{wrong:?}");
            }
        }
    }

    #[test]
    fn a_refusal_must_have_its_shape() {
        for body in [
            "",
            "busy",
            "null",
            r#"["error","field","message"]"#,
            r#"{"error":"full","message":"again"}"#,
            r#"{"error":"","field":null,"message":"again"}"#,
            r#"{"error":"full","field":null,"message":null}"#,
            r#"{"error":"full","field":7,"message":"again"}"#,
            r#"{"error":"full","field":null,"message":"again","trace":"a.rs:7"}"#,
        ] {
            let wrong = judged(429, Some("2"), body);
            assert!(
                matches!(wrong, Err(Wrong::Shape { .. })),
                "{body}: {wrong:?}"
            );
        }
    }

    #[test]
    fn a_202_must_be_of_the_record_that_was_sent() {
        for body in ["", "{}", r#"{"status":"accepted","raw_id":"load-8"}"#] {
            let wrong = judged(202, None, body);
            assert!(matches!(wrong, Err(Wrong::OtherRecord { .. })), "{wrong:?}");
        }
    }
}
