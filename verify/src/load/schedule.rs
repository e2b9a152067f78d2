//! When each request of an open loop is due. Pure.
//!
//! Clients out there do not wait for each other's answers, so a request is due at its
//! time, whatever became of those before it. What it waits for a connection is part of
//! its latency: counting from the sending alone would leave out exactly the requests
//! that a slow server has kept from being sent (coordinated omission).

use std::time::Duration;

/// Requests at even distances.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    rate: f64,
    total: u64,
}

impl Schedule {
    /// So many requests a second, for so long; at least one.
    pub fn new(rate: f64, lasts: Duration) -> Self {
        Self {
            rate,
            // A float becomes the nearest integer that there is, zero for none.
            total: ((rate * lasts.as_secs_f64()).round() as u64).max(1),
        }
    }

    /// How many requests there are.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Requests a second.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// When request `n` is due, from the start; `None` after the last.
    pub fn due(&self, n: u64) -> Option<Duration> {
        (n < self.total).then(|| Duration::from_secs_f64(n as f64 / self.rate))
    }

    /// How long ago request `n` was due, at this time from the start; nothing for one
    /// that is not due yet.
    pub fn late(&self, n: u64, now: Duration) -> Duration {
        now.saturating_sub(self.due(n).unwrap_or(now))
    }

    /// How many requests were due by this time from the start.
    pub fn due_by(&self, now: Duration) -> u64 {
        let due = (now.as_secs_f64() * self.rate) as u64 + 1;
        due.min(self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn requests_are_due_at_even_distances_and_end() {
        let schedule = Schedule::new(100.0, Duration::from_secs(2));
        assert_eq!(schedule.total(), 200);
        assert_eq!(schedule.due(0), Some(ms(0)));
        assert_eq!(schedule.due(1), Some(ms(10)));
        assert_eq!(schedule.due(199), Some(ms(1990)));
        assert_eq!(schedule.due(200), None);
    }

    #[test]
    fn lateness_counts_from_when_it_was_due_whatever_was_sent_meanwhile() {
        let schedule = Schedule::new(100.0, Duration::from_secs(2));
        // A server that stalled for a second makes everything late that was due in it,
        // and each by its own.
        assert_eq!(schedule.late(0, ms(1000)), ms(1000));
        assert_eq!(schedule.late(50, ms(1000)), ms(500));
        assert_eq!(schedule.late(100, ms(1000)), ms(0));
        assert_eq!(schedule.late(150, ms(1000)), ms(0), "not due yet");
    }

    #[test]
    fn what_was_due_by_a_time_is_counted_and_ends_with_the_last() {
        let schedule = Schedule::new(100.0, Duration::from_secs(2));
        assert_eq!(schedule.due_by(ms(0)), 1);
        assert_eq!(schedule.due_by(ms(1005)), 101);
        assert_eq!(schedule.due_by(ms(60_000)), 200);
    }

    #[test]
    fn a_rate_that_is_no_whole_number_neither_drifts_nor_loses_requests() {
        let schedule = Schedule::new(1234.56, Duration::from_secs(60));
        assert_eq!(schedule.total(), 74_074);
        let last = schedule.due(schedule.total() - 1).unwrap();
        assert!(last > ms(59_998) && last < ms(60_000), "{last:?}");
    }
}
