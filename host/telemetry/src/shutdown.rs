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
    /// # Errors
    /// The system gives no thread.
    pub fn enforce(&self, budget: std::time::Duration) -> std::io::Result<()> {
        let token = self.token.clone();
        std::thread::Builder::new()
            .name("shutdown-guard".to_owned())
            .spawn(move || {
                futures::executor::block_on(token.cancelled());
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
/// Signals are received on a thread and a runtime of their own, so that they are
/// also heard when every thread of the host's runtime is stuck. Call it as early as
/// possible: a signal that comes before it kills the process without a drain. Where
/// the handlers can't be installed, that is logged, and signals keep killing.
pub fn on_signals() -> Shutdown {
    let shutdown = Shutdown::new();
    let (installed, result) = std::sync::mpsc::channel();
    let requests = shutdown.clone();
    let spawned = std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || receive(requests, &installed));
    let outcome = match spawned {
        Ok(_) => result
            .recv()
            .unwrap_or_else(|_| Err(std::io::Error::other("the thread ended"))),
        Err(error) => Err(error),
    };
    if let Err(error) = outcome {
        tracing::error!(
            event = "signals_unavailable",
            "signal handlers can't be installed ({error}): SIGTERM and SIGINT will kill without a drain"
        );
    }
    shutdown
}

fn receive(shutdown: Shutdown, installed: &std::sync::mpsc::Sender<std::io::Result<()>>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = installed.send(Err(error));
            return;
        }
    };
    runtime.block_on(async move {
        match (
            signal(SignalKind::terminate()),
            signal(SignalKind::interrupt()),
        ) {
            (Ok(terminate), Ok(interrupt)) => {
                let _ = installed.send(Ok(()));
                watch(terminate, interrupt, shutdown).await;
            }
            (Err(error), _) | (_, Err(error)) => {
                let _ = installed.send(Err(error));
            }
        }
    });
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
