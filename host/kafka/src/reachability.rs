//! Whether the brokers answer: one log line per change, however many errors
//! librdkafka reports meanwhile; and its own log lines, rate-limited.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

/// Lines of librdkafka that are passed on in one [`WINDOW`].
const LINES_PER_WINDOW: u32 = 20;
const WINDOW: Duration = Duration::from_secs(10);

/// What is known of the brokers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Nothing was tried yet.
    Unknown,
    /// The last attempt succeeded.
    Available,
    /// The last attempt failed.
    Unavailable,
}

#[derive(Debug)]
struct State {
    reach: Reach,
    since: Instant,
    window: Instant,
    lines: u32,
    suppressed: u64,
}

/// Shared by the callbacks of one client (and its helpers).
#[derive(Debug)]
pub struct Reachability {
    brokers: String,
    client: &'static str,
    state: Mutex<State>,
}

impl Reachability {
    /// For the client called `client` (`producer`, `consumer`) of `brokers`.
    pub fn new(brokers: impl Into<String>, client: &'static str) -> Self {
        let now = Instant::now();
        Reachability {
            brokers: brokers.into(),
            client,
            state: Mutex::new(State {
                reach: Reach::Unknown,
                since: now,
                window: now,
                lines: 0,
                suppressed: 0,
            }),
        }
    }

    /// What is known now.
    pub fn reach(&self) -> Reach {
        self.lock().reach
    }

    /// The brokers answered.
    pub fn up(&self) {
        let mut state = self.lock();
        if state.reach == Reach::Available {
            return;
        }
        let away = (state.reach == Reach::Unavailable).then(|| state.since.elapsed());
        state.reach = Reach::Available;
        state.since = Instant::now();
        drop(state);
        match away {
            Some(away) => tracing::info!(
                event = "kafka_available",
                brokers = self.brokers,
                client = self.client,
                away_seconds = away.as_secs(),
                "Kafka at {} answers again",
                self.brokers
            ),
            None => tracing::info!(
                event = "kafka_available",
                brokers = self.brokers,
                client = self.client,
                "connected to Kafka at {}",
                self.brokers
            ),
        }
    }

    /// The brokers did not answer.
    pub fn down(&self, reason: &str) {
        let mut state = self.lock();
        if state.reach == Reach::Unavailable {
            return;
        }
        state.reach = Reach::Unavailable;
        state.since = Instant::now();
        drop(state);
        tracing::error!(
            event = "kafka_unavailable",
            brokers = self.brokers,
            client = self.client,
            reason,
            "Kafka at {} does not answer ({reason}); retrying. Check that a broker runs there, \
             that its advertised listeners can be reached from here, and KAFKA_BOOTSTRAP_SERVERS, \
             KAFKA_SECURITY_PROTOCOL and KAFKA_SASL_*",
            self.brokers
        );
    }

    /// An error that librdkafka reported for the whole client.
    pub(crate) fn client_error(&self, error: &KafkaError, reason: &str) {
        match error.rdkafka_error_code() {
            // One broker of several: the client goes on with the others. With
            // all of them gone, AllBrokersDown follows.
            Some(RDKafkaErrorCode::BrokerTransportFailure | RDKafkaErrorCode::Resolve) => {
                tracing::debug!(event = "kafka_broker_error", reason, "{error}: {reason}");
            }
            Some(code) if is_unreachable(code) => self.down(reason),
            _ => {
                if self.admit_line() {
                    tracing::warn!(
                        event = "kafka_client_error",
                        client = self.client,
                        "{error}: {reason}"
                    );
                }
            }
        }
    }

    /// A log line of librdkafka.
    pub(crate) fn log_line(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        let serious = matches!(
            level,
            RDKafkaLogLevel::Emerg
                | RDKafkaLogLevel::Alert
                | RDKafkaLogLevel::Critical
                | RDKafkaLogLevel::Error
                | RDKafkaLogLevel::Warning
        );
        // FAIL, ERROR: connection failures, told once by `down`.
        if serious && facility != "FAIL" && facility != "ERROR" {
            if self.admit_line() {
                tracing::warn!(
                    event = "librdkafka",
                    client = self.client,
                    facility,
                    "{line}"
                );
            }
        } else {
            tracing::debug!(
                event = "librdkafka",
                client = self.client,
                facility,
                "{line}"
            );
        }
    }

    /// Whether one more line may be logged in the present window.
    fn admit_line(&self) -> bool {
        let mut state = self.lock();
        if state.window.elapsed() >= WINDOW {
            let suppressed = std::mem::take(&mut state.suppressed);
            state.window = Instant::now();
            state.lines = 0;
            if suppressed > 0 {
                tracing::warn!(
                    event = "librdkafka_suppressed",
                    client = self.client,
                    suppressed,
                    "{suppressed} further lines of the Kafka client were not logged"
                );
            }
        }
        state.lines += 1;
        let admitted = state.lines <= LINES_PER_WINDOW;
        if !admitted {
            state.suppressed += 1;
        }
        admitted
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Errors that say: no broker could be reached, or none let us in.
pub(crate) fn is_unreachable(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::AllBrokersDown
            | RDKafkaErrorCode::BrokerTransportFailure
            | RDKafkaErrorCode::Resolve
            | RDKafkaErrorCode::OperationTimedOut
            | RDKafkaErrorCode::Authentication
            | RDKafkaErrorCode::SaslAuthenticationFailed
            | RDKafkaErrorCode::SSL
    )
}

/// Callbacks of clients that have none of their own.
#[derive(Debug)]
pub(crate) struct PlainContext(pub(crate) std::sync::Arc<Reachability>);

impl rdkafka::ClientContext for PlainContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        self.0.log_line(level, facility, line);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.0.client_error(&error, reason);
    }
}

impl rdkafka::consumer::ConsumerContext for PlainContext {}
