//! [`Publish`] by Kafka.

use std::time::Duration;

use bytes::Bytes;
use cdr_kafka::{PublishError, Publisher};
use cdr_telemetry::trace::{TRACEPARENT, TraceContext};

use crate::ports::{BoxFuture, Delivery, Publish, PublishFailure};

/// Publishes to one topic, with the trace as the only header.
#[derive(Clone)]
pub struct KafkaPublish {
    publisher: Publisher,
    topic: String,
    delivery_timeout: Duration,
}

impl KafkaPublish {
    /// Publishes to `topic`. `delivery_timeout` is the publisher's own.
    pub fn new(publisher: Publisher, topic: String, delivery_timeout: Duration) -> Self {
        KafkaPublish {
            publisher,
            topic,
            delivery_timeout,
        }
    }
}

impl Publish for KafkaPublish {
    fn publish(
        &self,
        key: Vec<u8>,
        payload: Bytes,
        trace: TraceContext,
    ) -> BoxFuture<'static, Result<Delivery, PublishFailure>> {
        let headers = [(TRACEPARENT, trace.to_string())];
        let delivery = self
            .publisher
            .publish(&self.topic, Some(&key), Some(&payload), &headers);
        Box::pin(async move {
            match delivery.await {
                Ok(done) => Ok(Delivery {
                    partition: done.partition,
                    offset: done.offset,
                }),
                Err(error) => {
                    let detail = error.to_string();
                    Err(match error {
                        PublishError::QueueFull { .. } => PublishFailure::QueueFull { detail },
                        PublishError::TooLarge { .. } => PublishFailure::TooLarge { detail },
                        PublishError::TopicMissing { .. } | PublishError::Refused { .. } => {
                            PublishFailure::Refused { detail }
                        }
                        PublishError::Unacknowledged { .. } => {
                            PublishFailure::Unacknowledged { detail }
                        }
                    })
                }
            }
        })
    }

    fn delivery_timeout(&self) -> Duration {
        self.delivery_timeout
    }
}
