//! A registry of Prometheus metrics and its text form.
//!
//! Each host makes one [`Metrics`] and registers what it counts there; nothing
//! uses the process-wide default registry, so that hosts that share a process
//! (and tests) keep apart.

use prometheus::{IntGauge, Opts, Registry, TextEncoder};

/// The content type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

/// One host's metrics. Clones share the registry.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Registry,
    service: &'static str,
}

impl Metrics {
    /// A registry that holds `cdr_build_info{service, version}` and nothing else.
    pub fn new(service: &'static str) -> Self {
        let registry = Registry::new();
        let info = Opts::new("cdr_build_info", "The running build; always 1.")
            .const_label("service", service)
            .const_label("version", env!("CARGO_PKG_VERSION"));
        // Neither can fail: the name is well-formed and the registry empty.
        if let Ok(gauge) = IntGauge::with_opts(info) {
            gauge.set(1);
            let _ = registry.register(Box::new(gauge));
        }
        Metrics { registry, service }
    }

    /// Where a host registers its metrics.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The service these metrics are of.
    pub fn service(&self) -> &'static str {
        self.service
    }

    /// All metrics in the Prometheus text format.
    pub fn render(&self) -> String {
        match TextEncoder::new().encode_to_string(&self.registry.gather()) {
            Ok(text) => text,
            Err(error) => {
                tracing::error!(
                    event = "metrics_unavailable",
                    "metrics can't be written: {error}"
                );
                String::new()
            }
        }
    }
}
