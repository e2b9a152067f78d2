//! Something said at most once a second, however often it happens.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

const INTERVAL: Duration = Duration::from_secs(1);

/// Counts what happens between two times of saying so.
#[derive(Debug, Default)]
pub(crate) struct Quiet(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    said: Option<Instant>,
    count: u64,
}

impl Quiet {
    /// It happened. Some: say so now, and how often it happened since last said.
    pub(crate) fn happened(&self) -> Option<u64> {
        let now = Instant::now();
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.count += 1;
        if state
            .said
            .is_some_and(|at| now.duration_since(at) < INTERVAL)
        {
            return None;
        }
        state.said = Some(now);
        Some(std::mem::take(&mut state.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_one_line_a_second_and_nothing_is_uncounted() {
        let quiet = Quiet::default();
        assert_eq!(quiet.happened(), Some(1));
        for _ in 0..99 {
            assert_eq!(quiet.happened(), None);
        }
        tokio::time::advance(INTERVAL).await;
        assert_eq!(quiet.happened(), Some(100));
    }
}
