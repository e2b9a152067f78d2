//! Errors of polling: of the topic, of a partition, of the client as a whole.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use super::PollLoop;
use crate::context::code_of;
use crate::failure::ConsumerFailure;

impl PollLoop {
    /// An error came out of `poll`. Consumption goes on after it, unless it says
    /// that it never will.
    pub(super) fn poll_error(&mut self, error: &KafkaError) {
        let shared = &self.shared;
        *shared
            .fetch_errors
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(word(code_of(error)))
            .or_default() += 1;
        let (brokers, group, topic) = (
            shared.brokers.clone(),
            shared.config.group.clone(),
            shared.config.topic.clone(),
        );
        match (error, code_of(error)) {
            (KafkaError::MessageConsumptionFatal(code), _) => self.fail(ConsumerFailure::Client {
                brokers,
                group,
                cause: code.to_string(),
            }),
            (
                _,
                cause @ (RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::GroupAuthorizationFailed),
            ) => self.fail(ConsumerFailure::Unauthorized {
                brokers,
                group,
                topic,
                cause,
            }),
            (_, RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => {
                if !shared.topic_missing.swap(true, Ordering::Relaxed) {
                    tracing::error!(
                        event = "topic_missing",
                        topic,
                        brokers,
                        "topic {topic} does not exist at {brokers}; waiting for it. \
                         Create it with `cdr provision`"
                    );
                }
            }
            // Told once by the context.
            (_, code) if crate::reachability::is_unreachable(code) => {}
            (error, _) => shared.reach.client_error(error, "polling"),
        }
    }
}

/// The name of a code as a word for metrics: `NotLeaderForPartition` becomes
/// `not_leader_for_partition`.
fn word(code: RDKafkaErrorCode) -> String {
    let mut word = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_ascii_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.push(letter.to_ascii_lowercase());
    }
    word
}

#[cfg(test)]
mod tests {
    use super::{RDKafkaErrorCode, word};

    #[test]
    fn codes_become_words() {
        assert_eq!(word(RDKafkaErrorCode::BadMessage), "bad_message");
        assert_eq!(
            word(RDKafkaErrorCode::NotLeaderForPartition),
            "not_leader_for_partition"
        );
    }
}
