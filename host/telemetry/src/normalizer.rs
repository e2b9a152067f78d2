//! Which normalizer a host runs, as metrics: the same in every host, under the
//! host's own prefix.

use crate::metrics::Maker;
use prometheus::{IntCounter, IntGauge, IntGaugeVec};

/// `…_normalizer_info` and its company.
#[derive(Debug)]
pub struct NormalizerMetrics {
    info: IntGaugeVec,
    refused: IntGaugeVec,
    revision: IntGauge,
    swaps: IntCounter,
    refusals: IntCounter,
}

/// What there is to show.
#[derive(Debug, Clone, Copy)]
pub struct NormalizerView<'a> {
    /// Name, version and digest of what serves.
    pub serving: [&'a str; 3],
    /// The activation that it came by.
    pub revision: u64,
    /// A word for why another one that was activated does not serve.
    pub refused: Option<&'a str>,
    /// How often another one began to serve.
    pub swaps: u64,
    /// How often one was refused.
    pub refusals: u64,
}

impl NormalizerMetrics {
    /// Registers them as `{prefix}_normalizer_…`, as in `cdr_worker`.
    ///
    /// # Errors
    /// They are registered already.
    pub fn new(make: Maker<'_>, prefix: &str) -> Result<Self, prometheus::Error> {
        let name = |suffix: &str| format!("{prefix}_normalizer_{suffix}");
        Ok(Self {
            info: make.gauges(
                &name("info"),
                "The normalizer that serves; always 1.",
                &["name", "version", "digest"],
            )?,
            refused: make.gauges(
                &name("refused"),
                "1 while the activated normalizer is refused and the last good one serves.",
                &["kind"],
            )?,
            revision: make.gauge(
                &name("revision"),
                "The activation that the serving normalizer came by; 0 without a registry.",
            )?,
            swaps: make.counter(
                &name("swaps_total"),
                "How often another normalizer began to serve.",
            )?,
            refusals: make.counter(
                &name("refusals_total"),
                "How often an activated normalizer was refused.",
            )?,
        })
    }

    /// Brings them up to date.
    pub fn show(&self, view: NormalizerView<'_>) {
        self.info.reset();
        self.info.with_label_values(&view.serving).set(1);
        self.refused.reset();
        if let Some(kind) = view.refused {
            self.refused.with_label_values(&[kind]).set(1);
        }
        self.revision
            .set(i64::try_from(view.revision).unwrap_or(i64::MAX));
        self.swaps
            .inc_by(view.swaps.saturating_sub(self.swaps.get()));
        self.refusals
            .inc_by(view.refusals.saturating_sub(self.refusals.get()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn one_version_is_shown_at_a_time() {
        let metrics = Metrics::new("test");
        let shown = NormalizerMetrics::new(metrics.maker(), "cdr_test").unwrap();
        let view = |version, refused| NormalizerView {
            serving: ["n", version, "d"],
            revision: 3,
            refused,
            swaps: 2,
            refusals: 1,
        };
        shown.show(view("1.0.0", Some("wrong_digest")));
        shown.show(view("1.1.0", None));
        let text = metrics.render();
        assert!(text.contains("version=\"1.1.0\""), "{text}");
        assert!(!text.contains("version=\"1.0.0\""), "{text}");
        assert!(!text.contains("wrong_digest"), "{text}");
        assert!(text.contains("cdr_test_normalizer_swaps_total 2"), "{text}");
    }
}
