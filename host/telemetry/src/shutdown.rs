//! How a process is asked to stop.
//!
//! One [`Shutdown`] is shared by everything that runs. Asking is idempotent and
//! can't be taken back; how long the answer may take is each component's own
//! budget.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The exit code when a second signal cuts the drain short.
const EXIT_INTERRUPTED: i32 = 130;

/// The exit code of a process that does not end by itself.
const EXIT_OVERDUE: i32 = 1;

/// A request to stop, shared by all clones.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    token: CancellationToken,
}

impl Shutdown {
    /// One that nobody has requested.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks everything that holds a clone (or a [`child`](Self::child)) to stop.
    pub fn request(&self) {
        self.token.cancel();
    }

    /// Whether somebody has asked.
    pub fn is_requested(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Waits until somebody asks.
    pub async fn requested(&self) {
        self.token.cancelled().await;
    }

    /// One that is requested with this one, and can be requested alone.
    pub fn child(&self) -> Self {
        Shutdown {
            token: self.token.child_token(),
        }
    }

    /// Ends the process with exit code 1 when it still runs `budget` after the
    /// request: for what no deadline inside it can see, a runtime or a foreign
    /// thread that is stuck. It should never be needed.
    ///
    /// Call it within a tokio runtime.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn enforce(&self, budget: std::time::Duration) -> std::io::Result<()> {
        let token = self.token.clone();
        let runtime = tokio::runtime::Handle::current();
        std::thread::Builder::new()
            .name("shutdown-guard".to_owned())
            .spawn(move || {
                runtime.block_on(token.cancelled());
                // A thread of its own, which sleeps whatever the others do.
                std::thread::sleep(budget);
                tracing::error!(
                    event = "shutdown_overdue",
                    "still running {budget:?} after the request to stop: ending by force; \
                     what was not settled is consumed again"
                );
                std::process::exit(EXIT_OVERDUE);
            })?;
        Ok(())
    }

    /// The token itself, for code that takes one.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }
}

impl From<CancellationToken> for Shutdown {
    fn from(token: CancellationToken) -> Self {
        Shutdown { token }
    }
}

/// A [`Shutdown`] that SIGTERM or SIGINT requests. A second signal ends the
/// process at once with exit code 130.
///
/// Call it within a tokio runtime, as early as possible: a signal that comes
/// before it kills the process without a drain. Where the handlers can't be
/// installed, that is logged, and signals keep killing.
pub fn on_signals() -> Shutdown {
    let shutdown = Shutdown::new();
    match (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) {
        (Ok(terminate), Ok(interrupt)) => {
            tokio::spawn(watch(terminate, interrupt, shutdown.clone()));
        }
        (Err(error), _) | (_, Err(error)) => tracing::error!(
            event = "signals_unavailable",
            "signal handlers can't be installed ({error}): SIGTERM and SIGINT will kill without a drain"
        ),
    }
    shutdown
}

async fn watch(mut terminate: Signal, mut interrupt: Signal, shutdown: Shutdown) {
    let name = either(&mut terminate, &mut interrupt).await;
    tracing::info!(
        event = "shutdown_requested",
        signal = name,
        "{name} received: finishing what was accepted, then stopping; a second signal stops at once"
    );
    shutdown.request();
    let name = either(&mut terminate, &mut interrupt).await;
    tracing::error!(
        event = "shutdown_cut_short",
        signal = name,
        "a second signal, {name}: stopping at once"
    );
    std::process::exit(EXIT_INTERRUPTED);
}

async fn either(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_child_stops_with_its_parent_and_not_the_other_way_round() {
        let parent = Shutdown::new();
        let (one, other) = (parent.child(), parent.child());
        one.request();
        assert!(one.is_requested());
        assert!(!parent.is_requested() && !other.is_requested());
        parent.request();
        other.requested().await;
        assert!(other.is_requested());
    }
}
