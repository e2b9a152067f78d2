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
//! | `cdr-payload-encoding` | dead letters | `base64`: `original_payload` is base64, the payload was not UTF-8; `null`: the record had no payload (a tombstone); `truncated`, `truncated-base64`: only the beginning of the payload, as text or base64; absent: `original_payload` is the payload |
//! | `cdr-payload-truncated` | cut dead letters | length of the whole payload in bytes |
//! | `cdr-payload-sha256` | cut dead letters | sha256 of the whole payload, hexadecimal |
//! | `cdr-spool-file` | cut dead letters | name of the file with the whole dead letter, in `WORKER_SPOOL_DIR` of the worker that says so |
//! | `cdr-key-truncated` | cut dead letters | length of the whole key in bytes, where the key is cut too |
//! | `traceparent` | raw records, dead letters, replays | the W3C trace context: on a raw record the span of who put it there, on a dead letter the span of the worker in the same trace; absent on a dead letter whose record had none |

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
/// Value of [`PAYLOAD_ENCODING`] for the beginning of a payload.
pub const ENCODING_TRUNCATED: &str = "truncated";
/// The same in base64.
pub const ENCODING_TRUNCATED_BASE64: &str = "truncated-base64";
/// See the module's table.
pub const PAYLOAD_TRUNCATED: &str = "cdr-payload-truncated";
/// See the module's table.
pub const PAYLOAD_SHA256: &str = "cdr-payload-sha256";
/// See the module's table.
pub const SPOOL_FILE: &str = "cdr-spool-file";
/// See the module's table.
pub const KEY_TRUNCATED: &str = "cdr-key-truncated";

/// See the module's table.
pub const TRACEPARENT: &str = cdr_telemetry::trace::TRACEPARENT;

/// All of them.
const ALL: [&str; 16] = [
    SOURCE_TOPIC,
    SOURCE_PARTITION,
    SOURCE_OFFSET,
    SOURCE_TIMESTAMP,
    RECEIVED_AT,
    NORMALIZER,
    NORMALIZER_VERSION,
    NORMALIZER_DIGEST,
    DETAIL,
    REPLAY_COUNT,
    PAYLOAD_ENCODING,
    PAYLOAD_TRUNCATED,
    PAYLOAD_SHA256,
    SPOOL_FILE,
    KEY_TRUNCATED,
    TRACEPARENT,
];

/// The header of this name, if it is one of the table.
pub(crate) fn known(name: &str) -> Option<&'static str> {
    ALL.into_iter().find(|known| *known == name)
}
