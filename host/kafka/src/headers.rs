//! The Kafka headers this project writes and reads. Every value is UTF-8 text;
//! times are milliseconds since the Unix epoch in decimal.
//!
//! | header | on | value |
//! |---|---|---|
//! | `cdr-source-topic` | dead letters | topic the record was consumed from |
//! | `cdr-source-partition` | dead letters | its partition |
//! | `cdr-source-offset` | dead letters | its offset |
//! | `cdr-source-timestamp` | dead letters | its Kafka timestamp |
//! | `cdr-received-at` | dead letters, replays | when the record was first received: the normalizer's only clock |
//! | `cdr-normalizer` | dead letters | name of the normalizer that judged it |
//! | `cdr-normalizer-version` | dead letters | its version |
//! | `cdr-normalizer-digest` | dead letters | sha256 of its `.wasm` |
//! | `cdr-detail` | dead letters | what was wrong, for people; bounded |
//! | `cdr-replay-count` | dead letters, replays | how often the record was replayed; absent: 0 |
//! | `cdr-payload-encoding` | dead letters | `base64`: `original_payload` is base64, the payload was not UTF-8; `null`: the record had no payload (a tombstone); absent: `original_payload` is the payload |

/// See the module's table.
pub const SOURCE_TOPIC: &str = "cdr-source-topic";
/// See the module's table.
pub const SOURCE_PARTITION: &str = "cdr-source-partition";
/// See the module's table.
pub const SOURCE_OFFSET: &str = "cdr-source-offset";
/// See the module's table.
pub const SOURCE_TIMESTAMP: &str = "cdr-source-timestamp";
/// See the module's table.
pub const RECEIVED_AT: &str = "cdr-received-at";
/// See the module's table.
pub const NORMALIZER: &str = "cdr-normalizer";
/// See the module's table.
pub const NORMALIZER_VERSION: &str = "cdr-normalizer-version";
/// See the module's table.
pub const NORMALIZER_DIGEST: &str = "cdr-normalizer-digest";
/// See the module's table.
pub const DETAIL: &str = "cdr-detail";
/// See the module's table.
pub const REPLAY_COUNT: &str = "cdr-replay-count";
/// See the module's table.
pub const PAYLOAD_ENCODING: &str = "cdr-payload-encoding";
/// Value of [`PAYLOAD_ENCODING`] for payloads that are not UTF-8.
pub const ENCODING_BASE64: &str = "base64";
/// Value of [`PAYLOAD_ENCODING`] for records without a payload.
pub const ENCODING_NULL: &str = "null";
