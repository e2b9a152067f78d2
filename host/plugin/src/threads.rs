//! The threads that guests run on.

use crate::error::{LoadError, RunError};
use crossbeam_channel::Sender;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tokio::sync::{Semaphore, oneshot};

type Job = Box<dyn FnOnce() + Send>;

/// Room for the host's own frames under a guest's stack, in bytes.
const HOST_STACK: usize = 2 << 20;

/// Sets the priority of this thread alone, as Linux has it. Refused: it is as good as
/// the others.
pub(crate) fn be_nice(nice: i32) {
    let this = rustix::thread::gettid();
    let _ = rustix::process::setpriority_process(Some(this), nice);
}

/// A fixed number of threads and a bounded queue before them.
#[derive(Clone)]
pub(crate) struct GuestThreads {
    jobs: Sender<Job>,
    places: Arc<Semaphore>,
}

impl GuestThreads {
    pub(crate) fn new(
        threads: usize,
        queue: usize,
        guest_stack: usize,
        nice: i32,
    ) -> Result<Self, LoadError> {
        let (jobs, waiting) = crossbeam_channel::unbounded::<Job>();
        for index in 0..threads.max(1) {
            let waiting = waiting.clone();
            std::thread::Builder::new()
                .name(format!("plugin-{index}"))
                .stack_size(guest_stack + HOST_STACK)
                .spawn(move || {
                    if nice != 0 {
                        be_nice(nice);
                    }
                    for job in waiting {
                        // A panic of the host's own code costs one batch, whose
                        // caller sees its channel closed; not the thread.
                        let _ = catch_unwind(AssertUnwindSafe(job));
                    }
                })
                .map_err(|error| LoadError::Host {
                    detail: format!("no thread for guests: {error}"),
                })?;
        }
        Ok(Self {
            jobs,
            places: Arc::new(Semaphore::new(threads.max(1) + queue)),
        })
    }

    /// Runs `work` on a guest thread, waiting while the queue is full.
    pub(crate) async fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, RunError> {
        let place = Arc::clone(&self.places)
            .acquire_owned()
            .await
            .map_err(|_| RunError::ShuttingDown)?;
        let (answer, result) = oneshot::channel();
        self.jobs
            .send(Box::new(move || {
                let done = work();
                drop(place);
                // Nobody may be waiting any more.
                let _ = answer.send(done);
            }))
            .map_err(|_| RunError::ShuttingDown)?;
        result.await.map_err(|_| RunError::ShuttingDown)
    }
}
