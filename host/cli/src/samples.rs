//! The sample file: payloads as vendors send them, one a line, with times that
//! are filled in when it is read, because records must be recent.
//!
//! `{{now}}`, `{{now-3600}}`, `{{now+60}}` become seconds since the Unix epoch,
//! `{{now_ms-…}}` the same in milliseconds. All else is taken as it is: some
//! lines are meant to be no JSON.

/// Fills the times of a line in.
pub fn fill_in(line: &str, now_ms: i64) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(start) = rest.find("{{now") {
        let (before, from) = rest.split_at(start);
        out.push_str(before);
        match from
            .find("}}")
            .and_then(|end| Some((time(&from[2..end], now_ms)?, end)))
        {
            Some((time, end)) => {
                out.push_str(&time.to_string());
                rest = &from[end + 2..];
            }
            None => {
                out.push_str("{{now");
                rest = &from["{{now".len()..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// `now-3600` and the like.
fn time(expression: &str, now_ms: i64) -> Option<i64> {
    let rest = expression.strip_prefix("now")?;
    let (now, rest) = match rest.strip_prefix("_ms") {
        Some(rest) => (now_ms, rest),
        None => (now_ms.div_euclid(1000), rest),
    };
    if rest.is_empty() {
        return Some(now);
    }
    // Signs are part of the number.
    rest.starts_with(['+', '-'])
        .then(|| rest.parse::<i64>().ok())
        .flatten()
        .and_then(|offset| now.checked_add(offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_filled_in_and_all_else_is_left() {
        let now = 1_700_000_000_123;
        for (line, filled) in [
            (r#"{"a":{{now}}}"#, r#"{"a":1700000000}"#),
            (
                r#"{"a":{{now-60}},"b":{{now+1}}}"#,
                r#"{"a":1699999940,"b":1700000001}"#,
            ),
            (r#"{"a":{{now_ms-123}}}"#, r#"{"a":1700000000000}"#),
            ("{{now", "{{now"),
            ("{{nowhere}}", "{{nowhere}}"),
            ("no JSON }} at {{ all", "no JSON }} at {{ all"),
        ] {
            assert_eq!(fill_in(line, now), filled, "{line}");
        }
    }
}
