//! Giving partitions back, one by one or all at the end.

use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer;
use tokio::sync::oneshot;

use super::PollLoop;
use crate::context::give_back;
use crate::failure::{CloseError, ConsumerEvent};

/// How much longer a revoked partition is kept for its last commit.
pub const REVOKE_COMMIT_GRACE: Duration = Duration::from_secs(3);

/// A revocation that is not answered yet.
pub(super) struct Revoking {
    pub(super) partitions: Vec<i32>,
    deadline: Instant,
}

/// The end, when it has been asked for.
pub(super) struct Closing {
    budget: Duration,
    deadline: Instant,
    reply: oneshot::Sender<Result<(), CloseError>>,
    left: oneshot::Sender<()>,
}

impl Closing {
    pub(super) fn new(
        budget: Duration,
        reply: oneshot::Sender<Result<(), CloseError>>,
        left: oneshot::Sender<()>,
    ) -> Self {
        Closing {
            budget,
            deadline: Instant::now() + budget,
            reply,
            left,
        }
    }
}

impl PollLoop {
    /// Partitions are to be given back, once their work is done.
    pub(super) fn start_revocation(&mut self, partitions: Vec<i32>) {
        let budget = self.shared.config.revoke_budget;
        tracing::info!(
            event = "partitions_revoking",
            partitions = ?partitions,
            "partitions {partitions:?} move to another worker; settling what is in flight of them"
        );
        self.shared.tell(ConsumerEvent::Revoking {
            partitions: partitions.clone(),
            budget,
        });
        self.revoking = Some(Revoking {
            partitions,
            deadline: Instant::now() + budget,
        });
        self.answer_revocation();
    }

    /// Gives them back when that is so, or can't be waited for.
    pub(super) fn answer_revocation(&mut self) {
        let Some(revoking) = &self.revoking else {
            return;
        };
        let now = Instant::now();
        let lost = self.consumer.assignment_lost();
        let (settled, clean) = {
            let ledger = self.shared.ledger();
            let held = || revoking.partitions.iter().copied();
            (
                held().all(|p| ledger.counts(p).is_none_or(|c| c.in_flight == 0)),
                held().all(|p| ledger.is_clean(p)),
            )
        };
        // First the work in flight has its budget, then the last commit.
        let over = now >= revoking.deadline;
        let commit_over = now >= revoking.deadline + REVOKE_COMMIT_GRACE;
        let committing = self.shared.failed().is_none()
            && (self.outstanding.is_some() || !self.shared.ledger().all_committable().is_empty());
        let wait = if settled || over {
            committing && !commit_over
        } else {
            true
        };
        if !lost && !clean && wait {
            return;
        }
        if let Some(revoking) = self.revoking.take() {
            self.overflow
                .retain(|record| !revoking.partitions.contains(&record.id.partition));
            give_back(&self.shared, &self.consumer, &revoking.partitions, lost);
        }
    }

    /// Whether the last commit is done, or can't be waited for.
    pub(super) fn close_is_due(&self) -> bool {
        let Some(closing) = &self.closing else {
            return false;
        };
        let committed =
            self.outstanding.is_none() && self.shared.ledger().all_committable().is_empty();
        committed || self.shared.failed().is_some() || Instant::now() >= closing.deadline
    }

    /// Says how it went and leaves the group.
    pub(super) fn end(mut self) {
        let result = self.result();
        // Held until the group is left.
        let _left = self.closing.take().map(|closing| {
            // Nobody may wait any more.
            let _ = closing.reply.send(result);
            closing.left
        });
        self.consumer.context().close();
        if let Some(revoking) = self.revoking.take() {
            give_back(&self.shared, &self.consumer, &revoking.partitions, false);
        }
        self.consumer.unsubscribe();
        let PollLoop { consumer, .. } = self;
        // Polls until the group is left; revocations are answered on the way.
        drop(consumer);
    }

    fn result(&self) -> Result<(), CloseError> {
        if let Some(failure) = self.shared.failed() {
            return Err(failure.into());
        }
        let ledger = self.shared.ledger();
        if self.outstanding.is_some() || !ledger.all_committable().is_empty() {
            let budget = self.closing.as_ref().map_or(Duration::ZERO, |c| c.budget);
            return Err(CloseError::Uncommitted { budget });
        }
        match ledger.in_flight() {
            0 => Ok(()),
            in_flight => Err(CloseError::Unsettled { in_flight }),
        }
    }
}
