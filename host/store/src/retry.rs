//! How long to wait between the attempts at one insert.

use std::time::Duration;

/// Exponential back-off: a first attempt and at most `max_attempts` retries,
/// with a growing pause before each of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryPolicy {
    /// Retries after the first attempt (`CH_RETRY_MAX_ATTEMPTS`).
    pub max_attempts: u32,
    /// The pause before the first retry.
    pub initial: Duration,
    /// By what each pause is longer than the one before it.
    pub factor: f64,
    /// No pause is longer than this.
    pub max_delay: Duration,
}

impl Default for RetryPolicy {
    /// Three retries, after 500 ms, 1 s and 2 s.
    fn default() -> Self {
        Self {
            max_attempts: 3,
            initial: Duration::from_millis(500),
            factor: 2.0,
            max_delay: Duration::from_secs(60),
        }
    }
}

impl RetryPolicy {
    /// The pauses, one before each retry; when they are used up, so are the
    /// attempts.
    pub fn delays(&self) -> impl Iterator<Item = Duration> + use<> {
        let attempts = usize::try_from(self.max_attempts).unwrap_or(usize::MAX);
        self.delays_without_end().take(attempts)
    }

    /// The same schedule without an end, for a caller that never gives up: it
    /// grows to `max_delay` and stays there.
    pub fn delays_without_end(&self) -> impl Iterator<Item = Duration> + use<> {
        let Self {
            initial,
            factor,
            max_delay,
            ..
        } = *self;
        let factor = if factor.is_finite() {
            factor.max(1.0)
        } else {
            1.0
        };
        std::iter::successors(Some(initial.min(max_delay)), move |delay| {
            let next = delay.as_secs_f64() * factor;
            Some(Duration::try_from_secs_f64(next).map_or(max_delay, |next| next.min(max_delay)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn three_retries_double_from_half_a_second() {
        let delays: Vec<u128> = RetryPolicy::default()
            .delays()
            .map(|d| d.as_millis())
            .collect();
        assert_eq!(delays, [500, 1000, 2000]);
    }

    #[test]
    fn no_retries_means_no_delays() {
        let policy = RetryPolicy {
            max_attempts: 0,
            ..RetryPolicy::default()
        };
        assert_eq!(policy.delays().count(), 0);
    }

    proptest! {
        #[test]
        fn delays_rise_and_stay_below_the_cap(
            initial in 0u64..100_000,
            factor in prop::num::f64::ANY,
            cap in 1u64..100_000,
        ) {
            let policy = RetryPolicy {
                max_attempts: 3,
                initial: Duration::from_millis(initial),
                factor,
                max_delay: Duration::from_millis(cap),
            };
            let delays: Vec<_> = policy.delays_without_end().take(200).collect();
            prop_assert!(delays.is_sorted());
            prop_assert!(delays.iter().all(|d| *d <= policy.max_delay));
        }
    }
}
