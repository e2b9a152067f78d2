//! More load than one API can take, and what it makes of it.
//!
//! ```text
//!   stand ─▶ saturation: a closed loop ─▶ overload: on a schedule, ─▶ topic ─▶ report
//!   Kafka,   finds how many records       faster than that,           is all there
//!   one API  a second are accepted        whatever is answered        that got a 202?
//! ```
//!
//! Beyond its limit a host must say so (429, 503, when to come again) and keep its
//! promise: what got a 202 is in the topic, nothing breaks, memory is bounded. How fast
//! it is is reported, since that is the machine's to say.

pub mod answers;
pub mod connection;
pub mod generator;
pub mod report;
pub mod schedule;
pub mod stand;
pub mod tally;
pub mod template;
pub mod topic;

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::ensure;
use tokio::time::Instant;

use crate::parts::Build;
use crate::swaps::memory::{MemorySampler, Sample, peak};
use connection::Target;
use generator::{Generator, Pace};
use report::{Memory, Report};
use schedule::Schedule;
use stand::Stand;
use topic::Landed;

/// Of the closed loop; not counted.
pub const WARM_UP: Duration = Duration::from_secs(3);
/// How often the memory of the API is looked at.
const LOOK: Duration = Duration::from_millis(250);
/// Names it among the samples.
const API: &str = "api";

/// A run.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Connections of the closed loop.
    pub saturation_connections: u32,
    /// How long that lasts, with [`WARM_UP`].
    pub saturation: Duration,
    /// How many times that rate is sent afterwards.
    pub factor: f64,
    /// For how long.
    pub overload: Duration,
    /// Over how many connections.
    pub connections: u32,
    /// How long a request may wait for a connection, and how long for its answer.
    pub patience: Duration,
    /// What the API may hold, in MiB.
    pub max_memory_mib: Option<u64>,
}

impl Load {
    /// Makes the run, and reports.
    ///
    /// # Errors
    /// Kafka or the API does not start, or the run can't be judged.
    pub async fn run(&self, build: Build) -> anyhow::Result<Report> {
        let say = |step: &str| eprintln!("==> {step}");
        let mut stand = Stand::start(&build, say).await?;
        let memory = MemorySampler::every(LOOK, BTreeMap::from([(API.into(), stand.api_pid())]));
        let sampled_since = Instant::now();
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let generator = Generator {
            target: Target::new(stand.addr)?,
            template: template::Template::new(now_s)?,
            patience: self.patience,
        };

        say(&format!(
            "saturation: {} connections for {} s, of which the first {} do not count",
            self.saturation_connections,
            self.saturation.as_secs(),
            WARM_UP.as_secs(),
        ));
        let pace = Pace::Closed {
            warm_up: WARM_UP,
            lasts: self.saturation,
        };
        let closed = generator.run(pace, self.saturation_connections, 0).await?;
        let counted_for = self.saturation.saturating_sub(WARM_UP);
        let saturation = closed.counted as f64 / counted_for.as_secs_f64();
        ensure!(
            closed.counted > 0,
            "nothing was accepted at all, so there is no rate to go beyond: {:?} {:?} {}",
            closed.tally.statuses,
            closed.tally.transport,
            closed.tally.examples.join("; ")
        );

        let schedule = Schedule::new(saturation * self.factor, self.overload);
        say(&format!(
            "overload: {:.0} requests a second, {:.2} × the {saturation:.0} that were accepted, for {} s over {} connections",
            schedule.rate(),
            self.factor,
            self.overload.as_secs(),
            self.connections,
        ));
        let first = closed.next;
        let from = sampled_since.elapsed();
        let open = generator
            .run(Pace::Open(schedule), self.connections, first)
            .await?;
        let to = sampled_since.elapsed();

        say("stopping the API, and reading the topic");
        let memory = memory.seen().remove(API);
        let objections = stand.stop_api().await?.into_iter().collect();
        let issued = first + schedule.total();
        let found = topic::read(stand.kafka.clone(), &stand.names.raw, issued).await?;
        let accepted = &closed.tally.accepted | &open.tally.accepted;
        let refused = &closed.tally.refused | &open.tally.refused;
        Ok(Report {
            saturation,
            schedule,
            took: open.took,
            landed: Landed::compare(&found, &accepted, &refused),
            closed: closed.tally,
            open: open.tally,
            memory: memory.and_then(|samples| memory_of(&samples, from, to)),
            max_memory_mib: self.max_memory_mib,
            objections,
        })
    }
}

/// What was held in all, and in the halves of what lasted from `from` until `to`.
fn memory_of(samples: &[Sample], from: Duration, to: Duration) -> Option<Memory> {
    let middle = (from + to) / 2;
    Some(Memory {
        max: peak(samples, Duration::ZERO, Duration::MAX)?,
        first_half: peak(samples, from, middle)?,
        last_half: peak(samples, middle, to)?,
    })
}
