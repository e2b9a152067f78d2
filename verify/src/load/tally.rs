//! What was answered, counted in bounded memory. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use fixedbitset::FixedBitSet;
use hdrhistogram::Histogram;

use super::answers::{Answer, check};
use super::template::raw_id;

/// Longer than this is counted as this: more than the waits before and after sending
/// may take together.
const LONGEST: Duration = Duration::from_secs(600);
/// Latencies are true to the thousandth.
const DIGITS: u8 = 3;
/// How many wrong answers are kept to be shown.
const SHOWN: usize = 5;

/// Latencies.
#[derive(Debug, Clone)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        let longest = u64::try_from(LONGEST.as_micros()).unwrap_or(u64::MAX);
        let histogram = Histogram::new_with_bounds(1, longest, DIGITS);
        Self(histogram.expect("constants that histograms can have"))
    }
}

impl Latencies {
    /// Counts one.
    pub fn add(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.0.saturating_record(micros);
    }

    /// What this share of them does not exceed, in milliseconds; zero where there are none.
    pub fn ms(&self, share: f64) -> f64 {
        match self.0.is_empty() {
            true => 0.0,
            false => self.0.value_at_quantile(share) as f64 / 1000.0,
        }
    }
}

/// What became of the requests of a loop.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Requests that were sent.
    pub sent: u64,
    /// Requests that waited too long for a connection, and were never sent. That is the
    /// generator's limit, not the host's fault.
    pub unsent: u64,
    /// How often each status came.
    pub statuses: BTreeMap<u16, u64>,
    /// Requests without an answer: a word for each way, and how often.
    pub transport: BTreeMap<&'static str, u64>,
    /// Answers that were not as they must be, whatever their status.
    pub wrong: u64,
    /// The first few of those, and of requests without an answer.
    pub examples: Vec<String>,
    /// Connections that were made again.
    pub reconnects: u64,
    /// The numbers of records that got a 202.
    pub accepted: FixedBitSet,
    /// The numbers of records that got a 429.
    pub refused: FixedBitSet,
    /// Of accepted ones, from when they were due.
    pub accepted_due: Latencies,
    /// Of accepted ones, from when they were sent.
    pub accepted_sent: Latencies,
    /// Of 429 and 503, from when they were sent.
    pub refused_sent: Latencies,
    /// From when a request was due until it was sent.
    pub waited: Latencies,
}

impl Tally {
    /// Counts an answer to record `number`, which was sent so long after it was due, and
    /// answered so long after it was sent. Says whether it was accepted.
    pub fn answered(
        &mut self,
        number: u64,
        waited: Duration,
        took: Duration,
        answer: &Answer,
    ) -> bool {
        self.sent(waited);
        *self.statuses.entry(answer.status).or_default() += 1;
        if let Err(wrong) = check(&raw_id(number), answer) {
            self.wrong += 1;
            self.example(wrong.to_string());
        }
        // It fits: numbers are counted from nothing.
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        match answer.status {
            202 => {
                self.accepted.grow_and_insert(at);
                self.accepted_due.add(waited + took);
                self.accepted_sent.add(took);
            }
            429 => {
                self.refused.grow_and_insert(at);
                self.refused_sent.add(took);
            }
            503 => self.refused_sent.add(took),
            _ => {}
        }
        answer.status == 202
    }

    /// Counts a request that had no answer: a word for it, and how it was.
    pub fn broken(&mut self, number: u64, waited: Duration, word: &'static str, how: &str) {
        self.sent(waited);
        *self.transport.entry(word).or_default() += 1;
        self.example(format!("{} had no answer: {how}", raw_id(number)));
    }

    fn sent(&mut self, waited: Duration) {
        self.sent += 1;
        self.waited.add(waited);
    }

    fn example(&mut self, text: String) {
        if self.examples.len() < SHOWN {
            self.examples.push(text);
        }
    }

    /// How often this status came.
    pub fn status(&self, status: u16) -> u64 {
        self.statuses.get(&status).copied().unwrap_or(0)
    }

    /// Answers that were neither 202 nor 429 nor 503.
    pub fn other(&self) -> u64 {
        let statuses = self.statuses.iter();
        statuses
            .filter(|(status, _)| !matches!(status, 202 | 429 | 503))
            .map(|(_, count)| count)
            .sum()
    }

    /// Requests that had no answer.
    pub fn transport_errors(&self) -> u64 {
        self.transport.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn answer(status: u16, body: &str) -> Answer {
        Answer {
            status,
            retry_after: Some("1".to_owned()),
            body: body.as_bytes().to_vec(),
        }
    }

    fn is_about(found: f64, expected: f64) -> bool {
        (found - expected).abs() <= expected / 500.0
    }

    #[test]
    fn what_a_request_waited_to_be_sent_is_part_of_its_latency() {
        let mut tally = Tally::default();
        let accepted = answer(202, r#"{"raw_id":"load-7"}"#);
        assert!(tally.answered(7, ms(1500), ms(20), &accepted));
        assert!(is_about(tally.accepted_due.ms(0.99), 1520.0));
        assert!(is_about(tally.accepted_sent.ms(0.99), 20.0));
        assert!(is_about(tally.waited.ms(0.99), 1500.0));
        assert_eq!(tally.wrong, 0);
    }

    #[test]
    fn every_request_is_counted_under_one_end() {
        let mut tally = Tally::default();
        let refusal = r#"{"error":"full","field":null,"message":"again"}"#;
        tally.answered(0, ms(0), ms(1), &answer(202, r#"{"raw_id":"load-0"}"#));
        tally.answered(1, ms(0), ms(1), &answer(429, refusal));
        tally.answered(2, ms(0), ms(1), &answer(503, refusal));
        tally.answered(3, ms(0), ms(1), &answer(500, refusal));
        tally.broken(4, ms(0), "broken", "reset");
        tally.unsent += 1;
        let of = [202, 429, 503].map(|status| tally.status(status));
        assert_eq!(of, [1, 1, 1]);
        assert_eq!((tally.other(), tally.transport_errors()), (1, 1));
        assert_eq!((tally.sent, tally.unsent), (5, 1));
        assert_eq!(tally.wrong, 1, "the 500");
        assert_eq!(tally.examples.len(), 2);
        assert_eq!(tally.accepted.ones().collect::<Vec<_>>(), [0]);
        assert_eq!(tally.refused.ones().collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn refusals_do_not_make_accepted_ones_look_fast() {
        let mut tally = Tally::default();
        tally.answered(0, ms(0), ms(800), &answer(202, r#"{"raw_id":"load-0"}"#));
        for number in 1..100 {
            tally.answered(number, ms(0), ms(1), &answer(429, "{}"));
        }
        assert!(is_about(tally.accepted_due.ms(0.5), 800.0));
    }

    #[test]
    fn a_latency_beyond_all_bounds_is_counted_as_the_longest() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.ms(0.5), 0.0);
        latencies.add(Duration::MAX);
        assert!(is_about(latencies.ms(1.0), 600_000.0));
    }
}
