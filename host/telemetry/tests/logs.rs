//! Log lines as an operator's tools see them: each is one flat JSON object.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use cdr_telemetry::logs::JsonLines;
use serde_json::{Map, Value, json};
use tracing_subscriber::layer::SubscriberExt;

#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .lock()
            .expect("no test panics while writing")
            .write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines that `log` writes, with the order of their members.
fn lines(log: impl FnOnce()) -> Vec<(String, Map<String, Value>)> {
    let captured = Captured::default();
    let subscriber =
        tracing_subscriber::registry().with(JsonLines::new("cdr-test", captured.clone()));
    tracing::subscriber::with_default(subscriber, log);
    let bytes = captured
        .0
        .lock()
        .expect("no test panics while writing")
        .clone();
    let text = String::from_utf8(bytes).expect("lines are UTF-8");
    assert!(text.is_empty() || text.ends_with('\n'));
    text.lines()
        .map(|line| {
            let Ok(Value::Object(object)) = serde_json::from_str(line) else {
                panic!("not a JSON object: {line}");
            };
            (line.to_owned(), object)
        })
        .collect()
}

#[test]
fn a_line_begins_with_the_six_members_in_order() {
    let lines = lines(|| {
        tracing::info!(
            event = "batch_inserted",
            rows = 1000_u64,
            "{} rows inserted",
            1000
        );
    });
    let [(line, object)] = lines.as_slice() else {
        panic!("one line expected: {lines:?}");
    };
    let names = [
        "timestamp",
        "level",
        "service",
        "raw_id",
        "event",
        "message",
        "rows",
        "target",
    ];
    let places: Vec<_> = names
        .iter()
        .map(|name| line.find(&format!("\"{name}\":")).expect(name))
        .collect();
    assert!(places.is_sorted(), "{line}");
    assert_eq!(object.len(), names.len());
    assert_eq!(object["level"], "INFO");
    assert_eq!(object["service"], "cdr-test");
    assert_eq!(object["raw_id"], Value::Null);
    assert_eq!(object["event"], "batch_inserted");
    assert_eq!(object["message"], "1000 rows inserted");
    assert_eq!(object["rows"], 1000);
    let timestamp = object["timestamp"].as_str().expect("text");
    assert_eq!(timestamp.len(), "2026-03-01T12:00:00.000Z".len());
    assert!(
        time::OffsetDateTime::parse(timestamp, &time::format_description::well_known::Rfc3339)
            .is_ok()
    );
}

#[test]
fn fields_of_spans_are_flat_and_the_innermost_wins() {
    let lines = lines(|| {
        let outer = tracing::info_span!("outer", partition = 2, attempt = 1, service = "cdr-other");
        let _outer = outer.enter();
        let inner = tracing::info_span!("inner", attempt = 2, raw_id = tracing::field::Empty);
        let _inner = inner.enter();
        inner.record("raw_id", "r-1");
        tracing::warn!(event = "record_refused", "said {}", "why");
        tracing::warn!(
            event = "record_refused",
            raw_id = "r-2",
            attempt = 3,
            "again"
        );
    });
    let objects: Vec<_> = lines.iter().map(|(_, object)| object).collect();
    assert_eq!(objects.len(), 2);
    for object in &objects {
        assert_eq!(object["service"], "cdr-other");
        assert_eq!(object["partition"], 2);
    }
    assert_eq!(
        (&objects[0]["raw_id"], &objects[0]["attempt"]),
        (&json!("r-1"), &json!(2))
    );
    assert_eq!(
        (&objects[1]["raw_id"], &objects[1]["attempt"]),
        (&json!("r-2"), &json!(3))
    );
}

#[test]
fn no_text_breaks_a_line_and_no_field_hides_the_six() {
    let nasty = "two\nlines \" \\ \u{1} \u{2028} {\"level\":\"FAKE\"}";
    let lines = lines(|| {
        tracing::error!(
            event = "nasty",
            raw_id = nasty,
            level = "FAKE",
            timestamp = "never",
            ratio = f64::NAN,
            error = &io::Error::other("deep") as &dyn std::error::Error,
            "{nasty}"
        );
    });
    let [(_, object)] = lines.as_slice() else {
        panic!("one line expected: {lines:?}");
    };
    assert_eq!(object["raw_id"], nasty);
    assert_eq!(object["message"], nasty);
    assert_eq!(object["level"], "ERROR");
    assert_eq!(object["level_"], "FAKE");
    assert_ne!(object["timestamp"], "never");
    assert_eq!(object["ratio"], "NaN");
    assert_eq!(object["error"], "deep");
}

#[test]
fn an_event_without_a_name_has_one() {
    let lines = lines(|| tracing::info!("just said"));
    assert_eq!(lines[0].1["event"], "log");
    assert_eq!(lines[0].1["target"], "logs");
}

#[test]
fn lines_of_many_threads_do_not_mix() {
    let captured = Captured::default();
    let subscriber =
        tracing_subscriber::registry().with(JsonLines::new("cdr-test", captured.clone()));
    let dispatch = tracing::Dispatch::new(subscriber);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let dispatch = dispatch.clone();
            scope.spawn(move || {
                tracing::dispatcher::with_default(&dispatch, || {
                    for n in 0..200 {
                        tracing::info!(event = "said", thread, n, "something");
                    }
                });
            });
        }
    });
    let bytes = captured
        .0
        .lock()
        .expect("no test panics while writing")
        .clone();
    let text = String::from_utf8(bytes).expect("UTF-8");
    let parsed: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a JSON object"))
        .collect();
    assert_eq!(parsed.len(), 800);
}
