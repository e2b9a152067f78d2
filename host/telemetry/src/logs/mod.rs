//! Logs: one flat JSON object a line, on stderr.
//!
//! ```json
//! {"timestamp":"2026-03-01T12:00:00.000Z","level":"INFO","service":"cdr-worker","raw_id":null,"event":"batch_inserted","message":"1000 rows inserted","rows":1000,"target":"cdr_worker::insert"}
//! ```
//!
//! The first six are always there, in this order: `raw_id` is null where no
//! single record is concerned, `event` is `log` where code outside this project
//! named none. Fields of the spans around an event are fields of its line; an
//! event's own field wins over a span's, an inner span's over an outer's. A span
//! field `service` replaces the process's (for two hosts in one process).

mod layer;
mod line;

use std::io::{self, Write};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

pub use layer::JsonLines;

/// Starts logging to stderr for the whole process, panics included. Events of
/// the `log` crate are taken up too.
///
/// What is logged is chosen by `LOG_LEVEL`, or else by `RUST_LOG`: a level
/// (`info`, the default) or filter directives (`info,cdr_kafka=debug`). Only the
/// first call has an effect.
pub fn init(service: &'static str) {
    init_at(service, "info");
}

/// [`init`] with another level where none is asked for: commands that talk to a
/// person log warnings only.
pub fn init_at(service: &'static str, level: &str) {
    let (filter, complaint) = filter(
        std::env::var("LOG_LEVEL").ok().as_deref(),
        std::env::var("RUST_LOG").ok().as_deref(),
        level,
    );
    let started = tracing_subscriber::registry()
        .with(filter)
        .with(JsonLines::new(service, Stderr))
        .try_init();
    if started.is_err() {
        return;
    }
    log_panics();
    if let Some(complaint) = complaint {
        tracing::warn!(event = "log_level_refused", "{complaint}");
    }
}

/// What to log, and what was wrong with how it was asked for.
fn filter(
    log_level: Option<&str>,
    rust_log: Option<&str>,
    level: &str,
) -> (EnvFilter, Option<String>) {
    let asked = [("LOG_LEVEL", log_level), ("RUST_LOG", rust_log)]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?.trim())))
        .find(|(_, value)| !value.is_empty());
    let Some((name, value)) = asked else {
        return (EnvFilter::new(level), None);
    };
    // A lone word that is no level would be taken for a module, which silences
    // everything else.
    let is_word = value.chars().all(|c| c.is_ascii_alphanumeric());
    let directives = match (value.to_ascii_lowercase().as_str(), name) {
        ("warning", _) => Ok("warn".to_owned()),
        ("critical" | "fatal", _) => Ok("error".to_owned()),
        (level, "LOG_LEVEL") if is_word && level.parse::<LevelFilter>().is_err() => {
            Err("it is no level".to_owned())
        }
        _ => Ok(value.to_owned()),
    };
    match directives.and_then(|d| EnvFilter::try_new(d).map_err(|e| e.to_string())) {
        Ok(filter) => (filter, None),
        Err(reason) => (
            EnvFilter::new("info"),
            Some(format!(
                "{name} is {value:?}: {reason}. Logging at info; use error, warn, info, debug, trace, \
                 or directives as in info,cdr_kafka=debug"
            )),
        ),
    }
}

fn log_panics() {
    std::panic::set_hook(Box::new(|info| {
        let what = info.payload_as_str().unwrap_or("a panic without a message");
        let location = info.location().map(ToString::to_string);
        let thread = std::thread::current();
        tracing::error!(event = "panic", location, thread = thread.name(), "{what}");
    }));
}

/// Standard error as it is now; a line is one write under its lock.
#[derive(Debug, Clone, Copy)]
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        io::stderr().lock().write(buf)
    }

    fn write_all(&mut self, buf: &[u8]) -> io::Result<()> {
        io::stderr().lock().write_all(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directives(log_level: Option<&str>, rust_log: Option<&str>) -> (String, bool) {
        let (filter, complaint) = filter(log_level, rust_log, "info");
        (filter.to_string(), complaint.is_some())
    }

    #[test]
    fn the_level_comes_from_log_level_then_rust_log_then_info() {
        let of = |level, rust| directives(level, rust).0;
        assert_eq!(of(None, None), "info");
        assert_eq!(of(Some(""), Some(" ")), "info");
        assert_eq!(of(Some("DEBUG"), Some("warn")), "debug");
        assert_eq!(of(None, Some("cdr_kafka=trace")), "cdr_kafka=trace");
        assert_eq!(of(Some("WARNING"), None), "warn");
        assert_eq!(of(Some("off"), None), "off");
    }

    #[test]
    fn nonsense_is_complained_of_and_silences_nothing() {
        assert_eq!(directives(Some("verbose"), None), ("info".to_owned(), true));
        assert_eq!(directives(Some("a=b=c"), None), ("info".to_owned(), true));
        assert!(!directives(Some("info,cdr_kafka=debug"), None).1);
    }
}
