//! Settings that are each fine and together can't work: refused at the start,
//! with both names and values, instead of showing as a fault months later.

use crate::config::{ExhaustedPolicy, WorkerArgs};
use crate::insert::MAX_PAUSE;
use cdr_store::{InsertLimits, RetryPolicy};
use std::time::Duration;

/// What is kept of the time for a shutdown for the last commit, for leaving the
/// group, and for the process to end.
pub(crate) const LAST_COMMIT: Duration = Duration::from_secs(5);

/// How much memory a call of a normalizer needs a byte of payloads: the
/// payloads, the columns, and what it makes on the way.
const MEMORY_PER_BYTE: u64 = 4;

/// What else the worker is told, beside its own settings.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings {
    /// `KAFKA_DELIVERY_TIMEOUT_SECONDS`.
    pub delivery_timeout: Duration,
    /// `CLICKHOUSE_TIMEOUT_SECONDS`.
    pub insert_timeout: Duration,
    /// `NORMALIZER_MEMORY_MIB`, in bytes.
    pub sandbox_memory: u64,
}

/// Settings that contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    /// A shutdown would end before what it waits for.
    #[error(
        "WORKER_SHUTDOWN_TIMEOUT_SECONDS ({shutdown:?}) is below CLICKHOUSE_TIMEOUT_SECONDS ({insert:?}) + \
         KAFKA_DELIVERY_TIMEOUT_SECONDS ({delivery:?}) + {LAST_COMMIT:?} for the last commit: a shutdown could not wait for \
         the insert and the dead letters that are under way; raise the first or lower the others"
    )]
    Shutdown {
        /// The budget of a shutdown.
        shutdown: Duration,
        /// How long an insert may take.
        insert: Duration,
        /// How long a dead letter may take.
        delivery: Duration,
    },
    /// The group would give a worker up that is alive.
    #[error(
        "KAFKA_SESSION_TIMEOUT_SECONDS ({session:?}) is above KAFKA_MAX_POLL_INTERVAL_SECONDS ({poll:?}): librdkafka refuses that; lower the first"
    )]
    Session {
        /// `session.timeout.ms`.
        session: Duration,
        /// `max.poll.interval.ms`.
        poll: Duration,
    },
    /// The group would move on before a worker has given its partitions back.
    #[error(
        "KAFKA_REVOKE_TIMEOUT_SECONDS ({revoke:?}) + 3 s for its commit is not below KAFKA_MAX_POLL_INTERVAL_SECONDS ({poll:?}): \
         the group would go on without a worker that settles its last records; lower the first or raise the second"
    )]
    Revoke {
        /// How long a partition may be kept.
        revoke: Duration,
        /// How long a rebalance waits.
        poll: Duration,
    },
    /// The watchdog would call patience a fault.
    #[error(
        "WORKER_PROGRESS_TIMEOUT_SECONDS ({progress:?}) is below the {longest:?} that a batch may take: BATCH_FLUSH_INTERVAL_SECONDS \
         ({flush:?}), CH_RETRY_MAX_ATTEMPTS ({attempts}) + 1 attempts of CLICKHOUSE_TIMEOUT_SECONDS ({insert:?}) with their pauses, and \
         KAFKA_DELIVERY_TIMEOUT_SECONDS ({delivery:?}); raise the first or lower the others"
    )]
    Progress {
        /// The budget of the watchdog.
        progress: Duration,
        /// What a batch may take in all.
        longest: Duration,
        /// How long rows wait.
        flush: Duration,
        /// Retries.
        attempts: u32,
        /// How long an insert may take.
        insert: Duration,
        /// How long a dead letter may take.
        delivery: Duration,
    },
    /// A full batch could not be normalized.
    #[error(
        "BATCH_MAX_BYTES ({batch}) is too large for NORMALIZER_MEMORY_MIB ({memory_mib}): a call needs about {MEMORY_PER_BYTE} times its payloads; \
         lower the first to {fits} or raise the second"
    )]
    SandboxMemory {
        /// Bytes of a batch.
        batch: u64,
        /// Memory of the sandbox, in MiB.
        memory_mib: u64,
        /// The largest batch that fits, in bytes.
        fits: u64,
    },
    /// ClickHouse could not take as many inserts at a time.
    #[error(
        "BATCHES_IN_FLIGHT ({in_flight}) is above the queries that this ClickHouse user may run at a time \
         (max_concurrent_queries_for_user = {limit}): batches would fail; lower the first or raise the second, \
         and count all workers of the user"
    )]
    ClickHouseQueries {
        /// Inserts of this worker at a time.
        in_flight: u32,
        /// The user's limit.
        limit: u64,
    },
    /// Dead letters would be consumed as raw records.
    #[error(
        "KAFKA_RAW_TOPIC and KAFKA_DLQ_TOPIC are both {topic:?}: every dead letter would be consumed, and dead-lettered, \
         again without end; give them different names"
    )]
    Topics {
        /// The name of both.
        topic: String,
    },
    /// Who waits would be called stuck.
    #[error(
        "WORKER_PROGRESS_TIMEOUT_SECONDS ({progress:?}) is below BATCH_FLUSH_INTERVAL_SECONDS ({flush:?}) and \
         CLICKHOUSE_TIMEOUT_SECONDS ({insert:?}) together: rows that wait for their batch would count as stuck; \
         raise the first or lower the others"
    )]
    ProgressBelowFlush {
        /// The budget of the watchdog.
        progress: Duration,
        /// How long rows wait.
        flush: Duration,
        /// How long an insert may take.
        insert: Duration,
    },
    /// ClickHouse could take no full batch.
    #[error(
        "BATCH_MAX_BYTES ({batch}) is above a third of what a query of this ClickHouse user may use (max_memory_usage = {limit}): full batches \
         would fail; lower the first to {fits} or raise the second"
    )]
    ClickHouseMemory {
        /// Bytes of a batch.
        batch: u64,
        /// The user's limit, in bytes.
        limit: u64,
        /// The largest batch that fits, in bytes.
        fits: u64,
    },
}

impl WorkerArgs {
    /// Refuses settings that can't work together.
    ///
    /// # Errors
    /// The first contradiction that is found.
    pub fn check(&self, around: Surroundings) -> Result<(), Contradiction> {
        let Surroundings {
            delivery_timeout: delivery,
            insert_timeout: insert,
            sandbox_memory,
        } = around;
        let shutdown = self.shutdown_timeout();
        if shutdown < insert + delivery + LAST_COMMIT {
            return Err(Contradiction::Shutdown {
                shutdown,
                insert,
                delivery,
            });
        }
        let poll = self.max_poll_interval();
        let session = self.session_timeout();
        if session > poll {
            return Err(Contradiction::Session { session, poll });
        }
        let revoke = self.revoke_timeout();
        if revoke + cdr_kafka::consumer::REVOKE_COMMIT_GRACE >= poll {
            return Err(Contradiction::Revoke { revoke, poll });
        }
        let progress = self.progress_timeout();
        let attempts = self.ch_retry_max_attempts;
        let flush = self.policy().interval;
        let pauses: Duration = self.retry().delays().map(|d| d.min(MAX_PAUSE)).sum();
        let longest = flush
            .saturating_add(insert.saturating_mul(attempts.saturating_add(1)))
            .saturating_add(pauses)
            .saturating_add(delivery);
        if progress < flush.saturating_add(insert) {
            return Err(Contradiction::ProgressBelowFlush {
                progress,
                flush,
                insert,
            });
        }
        // Who waits for ever is told by the watchdog that it is so.
        if self.ch_exhausted_policy == ExhaustedPolicy::DeadLetter && progress < longest {
            return Err(Contradiction::Progress {
                progress,
                longest,
                flush,
                attempts,
                insert,
                delivery,
            });
        }
        let batch = self.batch_max_bytes;
        if batch.saturating_mul(MEMORY_PER_BYTE) > sandbox_memory {
            return Err(Contradiction::SandboxMemory {
                batch,
                memory_mib: sandbox_memory >> 20,
                fits: sandbox_memory / MEMORY_PER_BYTE,
            });
        }
        Ok(())
    }

    /// Refuses batches that the connected user of ClickHouse can't insert.
    ///
    /// # Errors
    /// [`Contradiction::ClickHouseMemory`], [`Contradiction::ClickHouseQueries`].
    pub fn check_store(&self, limits: &InsertLimits) -> Result<(), Contradiction> {
        let in_flight = self.batches_in_flight;
        if let Some(limit) = limits.max_concurrent_queries
            && limit < u64::from(in_flight)
        {
            return Err(Contradiction::ClickHouseQueries { in_flight, limit });
        }
        let batch = self.batch_max_bytes;
        match limits.max_memory_usage {
            // The body, the block, and the part that is written.
            Some(limit) if batch.saturating_mul(3) > limit => {
                Err(Contradiction::ClickHouseMemory {
                    batch,
                    limit,
                    fits: limit / 3,
                })
            }
            _ => Ok(()),
        }
    }

    /// Retries of an insert.
    pub fn retry(&self) -> RetryPolicy {
        RetryPolicy {
            max_attempts: self.ch_retry_max_attempts,
            ..RetryPolicy::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        worker: WorkerArgs,
    }

    fn args(args: &[&str]) -> WorkerArgs {
        Cli::try_parse_from(std::iter::once(&"cdr").chain(args))
            .expect("valid by themselves")
            .worker
    }

    const DEFAULTS: Surroundings = Surroundings {
        delivery_timeout: Duration::from_secs(10),
        insert_timeout: Duration::from_secs(30),
        sandbox_memory: 256 << 20,
    };

    fn limits(memory: Option<u64>, queries: Option<u64>) -> InsertLimits {
        InsertLimits {
            max_memory_usage: memory,
            max_memory_usage_for_user: None,
            max_partitions_per_block: None,
            max_concurrent_queries: queries,
            max_execution_time: None,
            receive_timeout: None,
            readonly: false,
            async_insert: false,
            deduplicates: true,
            forbidden_settings: Vec::new(),
        }
    }

    #[test]
    fn the_defaults_work_together() {
        assert_eq!(args(&[]).check(DEFAULTS), Ok(()));
        assert_eq!(
            args(&[]).check_store(&limits(Some(10 << 30), Some(2))),
            Ok(())
        );
        assert_eq!(args(&[]).check_store(&limits(None, None)), Ok(()));
    }

    #[test]
    fn what_can_not_work_is_refused_with_both_names_and_values() {
        let cases: [(&[&str], [&str; 4]); 7] = [
            (
                &["--worker-shutdown-timeout-seconds", "20"],
                [
                    "WORKER_SHUTDOWN_TIMEOUT_SECONDS",
                    "20s",
                    "CLICKHOUSE_TIMEOUT_SECONDS",
                    "30s",
                ],
            ),
            (
                &["--kafka-session-timeout-seconds", "400"],
                [
                    "KAFKA_SESSION_TIMEOUT_SECONDS",
                    "400s",
                    "KAFKA_MAX_POLL_INTERVAL_SECONDS",
                    "300s",
                ],
            ),
            (
                &["--kafka-revoke-timeout-seconds", "297"],
                [
                    "KAFKA_REVOKE_TIMEOUT_SECONDS",
                    "297s",
                    "KAFKA_MAX_POLL_INTERVAL_SECONDS",
                    "300s",
                ],
            ),
            (
                &["--worker-progress-timeout-seconds", "100"],
                [
                    "WORKER_PROGRESS_TIMEOUT_SECONDS",
                    "100s",
                    "CH_RETRY_MAX_ATTEMPTS",
                    "3",
                ],
            ),
            (
                &["--ch-retry-max-attempts", "1000"],
                [
                    "WORKER_PROGRESS_TIMEOUT_SECONDS",
                    "300s",
                    "CH_RETRY_MAX_ATTEMPTS",
                    "1000",
                ],
            ),
            (
                &[
                    "--batch-flush-interval-seconds",
                    "280",
                    "--ch-exhausted-policy",
                    "pause",
                ],
                [
                    "WORKER_PROGRESS_TIMEOUT_SECONDS",
                    "300s",
                    "BATCH_FLUSH_INTERVAL_SECONDS",
                    "280s",
                ],
            ),
            (
                &["--batch-max-bytes", "134217728"],
                [
                    "BATCH_MAX_BYTES",
                    "134217728",
                    "NORMALIZER_MEMORY_MIB",
                    "256",
                ],
            ),
        ];
        for (given, words) in cases {
            let refused = args(given).check(DEFAULTS).expect_err(&given.join(" "));
            let text = refused.to_string();
            for word in words {
                assert!(text.contains(word), "{word}: {text}");
            }
        }
        let refused = args(&[])
            .check_store(&limits(Some(32 << 20), None))
            .expect_err("16 MiB of 32");
        let text = refused.to_string();
        assert!(text.contains("BATCH_MAX_BYTES (16777216)"), "{text}");
        assert!(text.contains("max_memory_usage = 33554432"), "{text}");
        let refused = args(&[])
            .check_store(&limits(None, Some(1)))
            .expect_err("two batches, one query");
        let text = refused.to_string();
        assert!(text.contains("BATCHES_IN_FLIGHT (2)"), "{text}");
        assert!(
            text.contains("max_concurrent_queries_for_user = 1"),
            "{text}"
        );
    }

    #[test]
    fn who_waits_for_ever_has_no_longest_batch() {
        let patient = args(&[
            "--worker-progress-timeout-seconds",
            "100",
            "--ch-exhausted-policy",
            "pause",
        ]);
        assert_eq!(patient.check(DEFAULTS), Ok(()));
    }
}
