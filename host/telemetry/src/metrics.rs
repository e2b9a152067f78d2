//! A registry of Prometheus metrics and its text form.
//!
//! Each host makes one [`Metrics`] and registers what it counts there; nothing
//! uses the process-wide default registry, so that hosts that share a process
//! (and tests) keep apart.

use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};

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

    /// Makes and registers metrics, a call each.
    pub fn maker(&self) -> Maker<'_> {
        Maker {
            registry: &self.registry,
        }
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

/// Makes metrics that are registered already. Each method fails when the name
/// is taken, or no name for a metric.
#[derive(Debug, Clone, Copy)]
pub struct Maker<'a> {
    registry: &'a Registry,
}

impl<'a> Maker<'a> {
    /// For a registry of one's own.
    pub fn new(registry: &'a Registry) -> Self {
        Maker { registry }
    }

    /// A number that only rises.
    pub fn counter(&self, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
        self.register(IntCounter::new(name, help)?)
    }

    /// Numbers that only rise, told apart by labels.
    pub fn counters(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntCounterVec, prometheus::Error> {
        self.register(IntCounterVec::new(Opts::new(name, help), labels)?)
    }

    /// A number.
    pub fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        self.register(IntGauge::new(name, help)?)
    }

    /// Numbers, told apart by labels.
    pub fn gauges(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntGaugeVec, prometheus::Error> {
        self.register(IntGaugeVec::new(Opts::new(name, help), labels)?)
    }

    /// A distribution; `bounds` are the upper ends of its buckets.
    pub fn histogram(
        &self,
        name: &str,
        help: &str,
        bounds: &[f64],
    ) -> Result<Histogram, prometheus::Error> {
        let options = HistogramOpts::new(name, help).buckets(bounds.to_vec());
        self.register(Histogram::with_opts(options)?)
    }

    fn register<C: Collector + Clone + 'static>(
        &self,
        collector: C,
    ) -> Result<C, prometheus::Error> {
        self.registry.register(Box::new(collector.clone()))?;
        Ok(collector)
    }
}
