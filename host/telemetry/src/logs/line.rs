//! One line: fields collected by name, rendered in a fixed order.

use std::error::Error;
use std::fmt::{self, Write as _};

use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use tracing::field::{Field, Visit};

/// RFC 3339, UTC, milliseconds.
const TIMESTAMP: &[BorrowedFormatItem<'static>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

/// Names that a line has of its own; a field of that name gets a `_` behind it.
const RESERVED: &[&str] = &["timestamp", "level"];

/// What a line says of an event that has no `event` field.
const UNNAMED: &str = "log";

/// Fields in the order they came, each name once; the last value wins.
#[derive(Debug, Clone, Default)]
pub(super) struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    pub(super) fn extend(&mut self, other: &Fields) {
        for (name, value) in &other.0 {
            self.put(name, value.clone());
        }
    }

    fn put(&mut self, name: &'static str, value: Value) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        let at = self.0.iter().position(|(known, _)| *known == name)?;
        Some(self.0.remove(at).1)
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field.name(), format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field.name(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no NaN and no infinity.
        let value = serde_json::Number::from_f64(value)
            .map_or_else(|| Value::from(value.to_string()), Value::Number);
        self.put(field.name(), value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        let mut text = value.to_string();
        let mut source = value.source();
        while let Some(error) = source {
            let _ = write!(text, ": {error}");
            source = error.source();
        }
        self.put(field.name(), text.into());
    }
}

/// All that a line is made of.
pub(super) struct Line<'a> {
    pub(super) timestamp: OffsetDateTime,
    pub(super) level: &'a str,
    pub(super) service: &'a str,
    pub(super) target: &'a str,
    pub(super) fields: Fields,
}

impl Line<'_> {
    /// The JSON object and its line feed.
    pub(super) fn render(mut self) -> String {
        let fields = &mut self.fields;
        let or = |value: Option<Value>, other: Value| match value {
            None | Some(Value::Null) => other,
            Some(value) => value,
        };
        let timestamp = self.timestamp.format(TIMESTAMP).unwrap_or_default();
        let service = or(fields.take("service"), self.service.into());
        let raw_id = fields.take("raw_id").unwrap_or(Value::Null);
        let event = or(fields.take("event"), UNNAMED.into());
        let message = or(fields.take("message"), "".into());
        // What comes by way of the `log` crate hides its module in a field.
        let target = or(
            fields.take("target").or(fields.take("log.target")),
            self.target.into(),
        );
        let mut line = String::with_capacity(256);
        line.push('{');
        member(&mut line, "timestamp", &timestamp.into());
        member(&mut line, "level", &self.level.into());
        member(&mut line, "service", &service);
        member(&mut line, "raw_id", &raw_id);
        member(&mut line, "event", &event);
        member(&mut line, "message", &message);
        for (name, value) in &fields.0 {
            if name.starts_with("log.") {
                continue;
            }
            let name = name.strip_prefix("r#").unwrap_or(name);
            if RESERVED.contains(&name) {
                member(&mut line, &format!("{name}_"), value);
            } else {
                member(&mut line, name, value);
            }
        }
        member(&mut line, "target", &target);
        line.push_str("}\n");
        line
    }
}

fn member(line: &mut String, name: &str, value: &Value) {
    if !line.ends_with('{') {
        line.push(',');
    }
    let _ = write!(line, "{}:{value}", Value::from(name));
}
