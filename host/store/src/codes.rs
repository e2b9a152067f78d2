//! What each error of ClickHouse means for a batch: the one table.

use crate::error::ErrorClass::{self, Data, Setup, TooLarge, Transient};

/// One of ClickHouse's error codes, and what it means for an insert.
#[derive(Debug, Clone, Copy)]
pub struct ErrorCode {
    /// The number.
    pub code: i32,
    /// ClickHouse's own name for it.
    pub name: &'static str,
    /// What it means, unless a sign in the message says otherwise.
    pub class: ErrorClass,
    /// What it means where the message shows a sign; the first that it shows counts.
    pub unless: &'static [(Sign, ErrorClass)],
}

/// What a message is looked at for, where a code has two meanings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// The message holds this text. Only for codes whose messages quote no
    /// values: else a record could choose its class.
    Says(&'static str),
    /// The message ends with this text. ClickHouse says last where it was, so a
    /// quoted value is never at the end.
    EndsWith(&'static str),
}

impl Sign {
    fn is_in(self, message: &str) -> bool {
        match self {
            Self::Says(text) => message.contains(text),
            Self::EndsWith(text) => message.ends_with(text),
        }
    }
}

/// The class of one of ClickHouse's errors. `message` is what it says, without
/// the name and the version behind it.
///
/// A code that is not in the table is [`ErrorClass::Transient`]: to send a batch
/// again does no harm (its token sees to that), and when the attempts are used
/// up its payloads go to the dead-letter topic or wait, by policy. The others
/// would do harm where they are wrong: stop a worker for a hiccup, or blame one
/// record for it.
pub fn classify(code: i32, message: &str) -> ErrorClass {
    find(code).map_or(Transient, |row| {
        let sign = row.unless.iter().find(|(sign, _)| sign.is_in(message));
        sign.map_or(row.class, |(_, class)| *class)
    })
}

/// The name of a code that the table knows.
pub(crate) fn known_name(code: i32) -> Option<&'static str> {
    find(code).map(|row| row.name)
}

/// Whether a code is also what a table with other types gives.
pub(crate) fn may_be_conversion(code: i32) -> bool {
    find(code).is_some_and(|row| row.unless == WHILE_READING)
}

/// The table, for tests and documentation.
pub fn known_codes() -> &'static [ErrorCode] {
    CODES
}

fn find(code: i32) -> Option<&'static ErrorCode> {
    CODES.iter().find(|row| row.code == code)
}

const fn always(code: i32, name: &'static str, class: ErrorClass) -> ErrorCode {
    ErrorCode {
        code,
        name,
        class,
        unless: &[],
    }
}

const fn by_message(
    code: i32,
    name: &'static str,
    unless: &'static [(Sign, ErrorClass)],
    class: ErrorClass,
) -> ErrorCode {
    ErrorCode {
        code,
        name,
        class,
        unless,
    }
}

/// A value that something of the table does not take: a constraint, a computed
/// column, a view. But where the block itself was being read, no value is to
/// blame: that fails only where a column of the table is no longer of the type
/// that is sent, and then it would for every record.
const fn value(code: i32, name: &'static str) -> ErrorCode {
    by_message(code, name, WHILE_READING, Data)
}

const WHILE_READING: &[(Sign, ErrorClass)] = &[(Sign::EndsWith("While executing Native."), Setup)];

const CODES: &[ErrorCode] = &[
    // A body that was cut or damaged on its way; a second one may arrive whole.
    always(3, "UNEXPECTED_END_OF_FILE", Transient),
    always(23, "CANNOT_READ_FROM_ISTREAM", Transient),
    always(32, "ATTEMPT_TO_READ_AFTER_EOF", Transient),
    always(33, "CANNOT_READ_ALL_DATA", Transient),
    always(40, "CHECKSUM_DOESNT_MATCH", Transient),
    always(271, "CANNOT_DECOMPRESS", Transient),
    always(618, "LZ4_DECODER_FAILED", Transient),
    // Disks and object stores: full or failing, and then mended.
    always(74, "CANNOT_READ_FROM_FILE_DESCRIPTOR", Transient),
    always(75, "CANNOT_WRITE_TO_FILE_DESCRIPTOR", Transient),
    always(76, "CANNOT_OPEN_FILE", Transient),
    always(107, "FILE_DOESNT_EXIST", Transient),
    always(172, "CANNOT_CREATE_DIRECTORY", Transient),
    always(204, "CANNOT_FSYNC", Transient),
    always(214, "CANNOT_STATVFS", Transient),
    always(243, "NOT_ENOUGH_SPACE", Transient),
    always(499, "S3_ERROR", Transient),
    always(500, "AZURE_BLOB_STORAGE_ERROR", Transient),
    always(521, "ATOMIC_RENAME_FAIL", Transient),
    always(586, "CANNOT_CREATE_FILE", Transient),
    always(693, "AWS_ERROR", Transient),
    always(771, "CACHE_CANNOT_WRITE_TO_CACHE_DISK", Transient),
    // Memory. The query's own limit is respected by a smaller block; those of
    // the user and of the server are used up by others.
    by_message(
        241,
        "MEMORY_LIMIT_EXCEEDED",
        &[
            (Sign::Says("Query memory limit exceeded"), TooLarge),
            // Before 25.4.
            (Sign::Says("Memory limit (for query) exceeded"), TooLarge),
        ],
        Transient,
    ),
    always(173, "CANNOT_ALLOCATE_MEMORY", Transient),
    always(777, "MEMORY_RESERVATION_KILLED", Transient),
    always(778, "MEMORY_RESERVATION_FAILED", Transient),
    // Parts. One insert touches too many partitions, and a smaller one may not;
    // or merges lag behind, and will catch up.
    by_message(
        252,
        "TOO_MANY_PARTS",
        &[(
            Sign::Says("Too many partitions for single INSERT"),
            TooLarge,
        )],
        Transient,
    ),
    // Load, and limits that pass.
    always(159, "TIMEOUT_EXCEEDED", Transient),
    always(160, "TOO_SLOW", Transient),
    always(201, "QUOTA_EXCEEDED", Transient),
    always(202, "TOO_MANY_SIMULTANEOUS_QUERIES", Transient),
    always(203, "NO_FREE_CONNECTION", Transient),
    always(236, "ABORTED", Transient),
    always(364, "RECEIVED_ERROR_TOO_MANY_REQUESTS", Transient),
    always(394, "QUERY_WAS_CANCELLED", Transient),
    always(439, "CANNOT_SCHEDULE_TASK", Transient),
    always(473, "DEADLOCK_AVOIDED", Transient),
    always(692, "TOO_MANY_MUTATIONS", Transient),
    always(700, "USER_SESSION_LIMIT_EXCEEDED", Transient),
    always(718, "TOO_SLOW_PARSING", Transient),
    always(735, "QUERY_WAS_CANCELLED_BY_CLIENT", Transient),
    always(745, "SERVER_OVERLOADED", Transient),
    always(749, "TCP_CONNECTION_LIMIT_REACHED", Transient),
    always(762, "HTTP_CONNECTION_LIMIT_REACHED", Transient),
    always(776, "RESOURCE_LIMIT_EXCEEDED", Transient),
    // A table that is being exchanged, restarted or loaded. If it is gone for
    // good, the next attempt says UNKNOWN_TABLE.
    always(218, "TABLE_IS_DROPPED", Transient),
    always(696, "ASYNC_LOAD_CANCELED", Transient),
    always(722, "ASYNC_LOAD_WAIT_FAILED", Transient),
    always(733, "TABLE_IS_BEING_RESTARTED", Transient),
    always(741, "TABLE_UUID_MISMATCH", Transient),
    // Network, replicas, Keeper. After 319 the rows may be there.
    always(95, "CANNOT_READ_FROM_SOCKET", Transient),
    always(96, "CANNOT_WRITE_TO_SOCKET", Transient),
    always(198, "DNS_ERROR", Transient),
    always(209, "SOCKET_TIMEOUT", Transient),
    always(210, "NETWORK_ERROR", Transient),
    always(225, "NO_ZOOKEEPER", Transient),
    // A replica without Keeper; unless it lies on a disk that nobody can write to.
    by_message(
        242,
        "TABLE_IS_READ_ONLY",
        &[(Sign::Says("due to static storage"), Setup)],
        Transient,
    ),
    always(244, "UNEXPECTED_ZOOKEEPER_ERROR", Transient),
    always(254, "NO_ACTIVE_REPLICAS", Transient),
    always(265, "NO_AVAILABLE_REPLICA", Transient),
    always(279, "ALL_CONNECTION_TRIES_FAILED", Transient),
    always(285, "TOO_FEW_LIVE_REPLICAS", Transient),
    always(286, "UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE", Transient),
    always(289, "REPLICA_IS_NOT_IN_QUORUM", Transient),
    always(297, "SHARD_HAS_NO_CONNECTIONS", Transient),
    always(319, "UNKNOWN_STATUS_OF_INSERT", Transient),
    always(415, "ALL_REPLICAS_LOST", Transient),
    always(416, "REPLICA_STATUS_CHANGED", Transient),
    always(425, "SYSTEM_ERROR", Transient),
    always(519, "NO_REMOTE_SHARD_AVAILABLE", Transient),
    always(568, "RAFT_ERROR", Transient),
    always(574, "DISTRIBUTED_TOO_MANY_PENDING_BYTES", Transient),
    always(659, "UNKNOWN_STATUS_OF_TRANSACTION", Transient),
    always(999, "KEEPER_EXCEPTION", Transient),
    // Codes that say nothing of the cause. BAD_ARGUMENTS is used for everything,
    // in older versions also for a value that is no member of an Enum.
    by_message(36, "BAD_ARGUMENTS", WHILE_READING, Transient),
    always(49, "LOGICAL_ERROR", Transient),
    always(1000, "POCO_EXCEPTION", Transient),
    always(1001, "STD_EXCEPTION", Transient),
    always(1002, "UNKNOWN_EXCEPTION", Transient),
    // Values.
    value(6, "CANNOT_PARSE_TEXT"),
    value(25, "CANNOT_PARSE_ESCAPE_SEQUENCE"),
    value(26, "CANNOT_PARSE_QUOTED_STRING"),
    value(27, "CANNOT_PARSE_INPUT_ASSERTION_FAILED"),
    value(38, "CANNOT_PARSE_DATE"),
    value(41, "CANNOT_PARSE_DATETIME"),
    value(69, "ARGUMENT_OUT_OF_BOUND"),
    value(70, "CANNOT_CONVERT_TYPE"),
    value(72, "CANNOT_PARSE_NUMBER"),
    value(117, "INCORRECT_DATA"),
    value(128, "TOO_LARGE_ARRAY_SIZE"),
    value(130, "CANNOT_READ_ARRAY_FROM_TEXT"),
    value(131, "TOO_LARGE_STRING_SIZE"),
    value(153, "ILLEGAL_DIVISION"),
    value(321, "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE"),
    value(349, "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN"),
    value(376, "CANNOT_PARSE_UUID"),
    value(395, "FUNCTION_THROW_IF_VALUE_IS_NON_ZERO"),
    value(407, "DECIMAL_OVERFLOW"),
    value(441, "CANNOT_PARSE_DOMAIN_VALUE_FROM_STRING"),
    value(467, "CANNOT_PARSE_BOOL"),
    value(469, "VIOLATED_CONSTRAINT"),
    value(563, "CANNOT_READ_MAP_FROM_TEXT"),
    value(632, "UNEXPECTED_DATA_AFTER_PARSED_VALUE"),
    value(675, "CANNOT_PARSE_IPV4"),
    value(676, "CANNOT_PARSE_IPV6"),
    value(691, "UNKNOWN_ELEMENT_OF_ENUM"),
    // A batch that is too large for a limit: a smaller one may pass.
    always(158, "TOO_MANY_ROWS", TooLarge),
    always(307, "TOO_MANY_BYTES", TooLarge),
    always(396, "TOO_MANY_ROWS_OR_BYTES", TooLarge),
    // Who may do what. Some sinks retry READONLY; but it is the user's profile,
    // while a replica that can't write says TABLE_IS_READ_ONLY.
    always(164, "READONLY", Setup),
    always(192, "UNKNOWN_USER", Setup),
    always(193, "WRONG_PASSWORD", Setup),
    always(194, "REQUIRED_PASSWORD", Setup),
    always(195, "IP_ADDRESS_NOT_ALLOWED", Setup),
    always(291, "DATABASE_ACCESS_DENIED", Setup),
    always(392, "QUERY_IS_PROHIBITED", Setup),
    always(452, "SETTING_CONSTRAINT_VIOLATION", Setup),
    always(472, "READONLY_SETTING", Setup),
    always(496, "QUOTA_REQUIRES_CLIENT_KEY", Setup),
    always(497, "ACCESS_DENIED", Setup),
    always(511, "UNKNOWN_ROLE", Setup),
    always(512, "SET_NON_GRANTED_ROLE", Setup),
    always(516, "AUTHENTICATION_FAILED", Setup),
    always(720, "USER_EXPIRED", Setup),
    always(767, "REQUIRED_SECOND_FACTOR", Setup),
    // A table that is not there, or never takes rows.
    always(60, "UNKNOWN_TABLE", Setup),
    always(81, "UNKNOWN_DATABASE", Setup),
    always(774, "TABLE_IS_PERMANENTLY_READ_ONLY", Setup),
    // A table that is not the one we know, or a view on it that is broken: every
    // row would fail, and to blame the rows would empty the topic into the dead
    // letters. 53 is among these because a block carries its types: no value can
    // cause a mismatch.
    always(7, "INCORRECT_NUMBER_OF_COLUMNS", Setup),
    always(8, "THERE_IS_NO_COLUMN", Setup),
    always(10, "NOT_FOUND_COLUMN_IN_BLOCK", Setup),
    always(15, "DUPLICATE_COLUMN", Setup),
    always(16, "NO_SUCH_COLUMN_IN_TABLE", Setup),
    always(20, "NUMBER_OF_COLUMNS_DOESNT_MATCH", Setup),
    always(43, "ILLEGAL_TYPE_OF_ARGUMENT", Setup),
    always(44, "ILLEGAL_COLUMN", Setup),
    always(46, "UNKNOWN_FUNCTION", Setup),
    always(47, "UNKNOWN_IDENTIFIER", Setup),
    always(50, "UNKNOWN_TYPE", Setup),
    always(53, "TYPE_MISMATCH", Setup),
    always(122, "INCOMPATIBLE_COLUMNS", Setup),
    always(386, "NO_COMMON_TYPE", Setup),
    // A server that does not do what we ask for. 229 is the statement, not the
    // block: more columns than max_query_size has room for.
    always(1, "UNSUPPORTED_METHOD", Setup),
    always(48, "NOT_IMPLEMENTED", Setup),
    always(56, "UNKNOWN_STORAGE", Setup),
    always(62, "SYNTAX_ERROR", Setup),
    always(73, "UNKNOWN_FORMAT", Setup),
    always(85, "FORMAT_IS_NOT_SUITABLE_FOR_INPUT", Setup),
    always(89, "UNKNOWN_COMPRESSION_METHOD", Setup),
    always(115, "UNKNOWN_SETTING", Setup),
    always(217, "CLIENT_HAS_CONNECTED_TO_WRONG_PORT", Setup),
    always(229, "QUERY_IS_TOO_LARGE", Setup),
    always(344, "SUPPORT_IS_DISABLED", Setup),
    always(381, "HTTP_LENGTH_REQUIRED", Setup),
    always(471, "INVALID_SETTING_VALUE", Setup),
    always(726, "UNEXPECTED_HTTP_HEADERS", Setup),
    always(764, "DEDUPLICATION_IS_NOT_POSSIBLE", Setup),
    always(779, "UNSUPPORTED_MEDIA_TYPE", Setup),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_code_is_tried_again() {
        assert_eq!(classify(123_456, "what?"), ErrorClass::Transient);
    }

    #[test]
    fn a_quoted_value_does_not_choose_the_class() {
        let text = "Constraint `c` is violated at row 1. Column values: cell_id = 'While executing \
                    Native.'.";
        assert_eq!(classify(469, text), ErrorClass::Data);
        let text = "Cannot parse string 'Too many partitions for single INSERT' as UInt32: while \
                    pushing to view telecom.v.";
        assert_eq!(classify(6, text), ErrorClass::Data);
    }

    #[test]
    fn no_code_is_in_the_table_twice() {
        let mut codes: Vec<_> = CODES.iter().map(|row| row.code).collect();
        let count = codes.len();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), count);
    }
}
