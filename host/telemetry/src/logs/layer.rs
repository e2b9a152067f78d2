//! The tracing layer that writes lines.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::line::{Fields, Line};

/// A layer that writes each event as a flat JSON object on a line of its own.
#[derive(Debug)]
pub struct JsonLines<W> {
    service: &'static str,
    writer: Mutex<W>,
}

impl<W: Write + Send + 'static> JsonLines<W> {
    /// Lines of `service`, written to `writer` one `write_all` a line.
    pub fn new(service: &'static str, writer: W) -> Self {
        JsonLines {
            service,
            writer: Mutex::new(writer),
        }
    }
}

impl<S, W> Layer<S> for JsonLines<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: Write + Send + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut fields = Fields::default();
            attributes.record(&mut fields);
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        if let Some(scope) = context.event_scope(event) {
            for span in scope.from_root() {
                if let Some(of_span) = span.extensions().get::<Fields>() {
                    fields.extend(of_span);
                }
            }
        }
        event.record(&mut fields);
        let metadata: &Metadata<'_> = event.metadata();
        let line = Line {
            timestamp: time::OffsetDateTime::now_utc(),
            level: metadata.level().as_str(),
            service: self.service,
            target: metadata.target(),
            fields,
        }
        .render();
        // Where the log itself can't be written, there is nobody to tell.
        let _ = self
            .writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .write_all(line.as_bytes());
    }
}
