//! What each error of ClickHouse means for a batch: the one table.

use crate::error::ErrorClass::{self, Data, Setup, TooLarge, Transient};

/// The class of one of ClickHouse's errors. `message` decides where a code has
/// two meanings.
///
/// A code that is not in the table is [`ErrorClass::Transient`]: to send a batch
/// again does no harm (its token sees to that), and when the attempts are used
/// up its payloads go to the dead-letter topic or wait, by policy. The other two
/// would do harm where they are wrong: stop a worker for a hiccup, or blame one
/// record for it.
pub fn classify(code: i32, message: &str) -> ErrorClass {
    match code {
        // TOO_MANY_PARTS: one insert touches too many partitions, and a smaller
        // one may not; or merges lag behind, and will catch up.
        252 if message.contains("partitions for single INSERT") => TooLarge,
        // MEMORY_LIMIT_EXCEEDED: the query's own limit, which a smaller block
        // respects; or that of the user or server, which others use up.
        241 if message.contains("(for query)") || message.contains("Query memory limit") => TooLarge,
        _ => CODES
            .iter()
            .find(|(known, ..)| *known == code)
            .map_or(Transient, |(_, _, class)| *class),
    }
}

/// The codes that the class of an insert depends on, with ClickHouse's own
/// names.
const CODES: &[(i32, &str, ErrorClass)] = &[
    // A body that was cut or damaged on its way; a second one may arrive whole.
    (3, "UNEXPECTED_END_OF_FILE", Transient),
    (32, "ATTEMPT_TO_READ_AFTER_EOF", Transient),
    (33, "CANNOT_READ_ALL_DATA", Transient),
    (40, "CHECKSUM_DOESNT_MATCH", Transient),
    (271, "CANNOT_DECOMPRESS", Transient),
    (618, "LZ4_DECODER_FAILED", Transient),
    // Files, disks, memory.
    (74, "CANNOT_READ_FROM_FILE_DESCRIPTOR", Transient),
    (75, "CANNOT_WRITE_TO_FILE_DESCRIPTOR", Transient),
    (76, "CANNOT_OPEN_FILE", Transient),
    (173, "CANNOT_ALLOCATE_MEMORY", Transient),
    (204, "CANNOT_FSYNC", Transient),
    (241, "MEMORY_LIMIT_EXCEEDED", Transient),
    (243, "NOT_ENOUGH_SPACE", Transient),
    // Load and limits that pass.
    (159, "TIMEOUT_EXCEEDED", Transient),
    (160, "TOO_SLOW", Transient),
    (201, "QUOTA_EXCEEDED", Transient),
    (202, "TOO_MANY_SIMULTANEOUS_QUERIES", Transient),
    (203, "NO_FREE_CONNECTION", Transient),
    (236, "ABORTED", Transient),
    (252, "TOO_MANY_PARTS", Transient),
    (364, "RECEIVED_ERROR_TOO_MANY_REQUESTS", Transient),
    (394, "QUERY_WAS_CANCELLED", Transient),
    (473, "DEADLOCK_AVOIDED", Transient),
    (692, "TOO_MANY_MUTATIONS", Transient),
    (733, "TABLE_IS_BEING_RESTARTED", Transient),
    (735, "QUERY_WAS_CANCELLED_BY_CLIENT", Transient),
    (745, "SERVER_OVERLOADED", Transient),
    (749, "TCP_CONNECTION_LIMIT_REACHED", Transient),
    (762, "HTTP_CONNECTION_LIMIT_REACHED", Transient),
    // Network, replicas, Keeper.
    (95, "CANNOT_READ_FROM_SOCKET", Transient),
    (96, "CANNOT_WRITE_TO_SOCKET", Transient),
    (198, "DNS_ERROR", Transient),
    (209, "SOCKET_TIMEOUT", Transient),
    (210, "NETWORK_ERROR", Transient),
    (225, "NO_ZOOKEEPER", Transient),
    (242, "TABLE_IS_READ_ONLY", Transient),
    (244, "UNEXPECTED_ZOOKEEPER_ERROR", Transient),
    (254, "NO_ACTIVE_REPLICAS", Transient),
    (279, "ALL_CONNECTION_TRIES_FAILED", Transient),
    (285, "TOO_FEW_LIVE_REPLICAS", Transient),
    (286, "UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE", Transient),
    (289, "REPLICA_IS_NOT_IN_QUORUM", Transient),
    (319, "UNKNOWN_STATUS_OF_INSERT", Transient),
    (415, "ALL_REPLICAS_LOST", Transient),
    (416, "REPLICA_STATUS_CHANGED", Transient),
    (425, "SYSTEM_ERROR", Transient),
    (499, "S3_ERROR", Transient),
    (574, "DISTRIBUTED_TOO_MANY_PENDING_BYTES", Transient),
    (659, "UNKNOWN_STATUS_OF_TRANSACTION", Transient),
    (999, "KEEPER_EXCEPTION", Transient),
    // A value that the table does not take.
    (6, "CANNOT_PARSE_TEXT", Data),
    (25, "CANNOT_PARSE_ESCAPE_SEQUENCE", Data),
    (26, "CANNOT_PARSE_QUOTED_STRING", Data),
    (27, "CANNOT_PARSE_INPUT_ASSERTION_FAILED", Data),
    (38, "CANNOT_PARSE_DATE", Data),
    (41, "CANNOT_PARSE_DATETIME", Data),
    (69, "ARGUMENT_OUT_OF_BOUND", Data),
    (70, "CANNOT_CONVERT_TYPE", Data),
    (72, "CANNOT_PARSE_NUMBER", Data),
    (117, "INCORRECT_DATA", Data),
    (128, "TOO_LARGE_ARRAY_SIZE", Data),
    (131, "TOO_LARGE_STRING_SIZE", Data),
    (153, "ILLEGAL_DIVISION", Data),
    (321, "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", Data),
    (349, "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN", Data),
    (376, "CANNOT_PARSE_UUID", Data),
    (395, "FUNCTION_THROW_IF_VALUE_IS_NON_ZERO", Data),
    (407, "DECIMAL_OVERFLOW", Data),
    (441, "CANNOT_PARSE_DOMAIN_VALUE_FROM_STRING", Data),
    (467, "CANNOT_PARSE_BOOL", Data),
    (469, "VIOLATED_CONSTRAINT", Data),
    (675, "CANNOT_PARSE_IPV4", Data),
    (676, "CANNOT_PARSE_IPV6", Data),
    (691, "UNKNOWN_ELEMENT_OF_ENUM", Data),
    // A batch that is too large for a limit: a smaller one may pass.
    (158, "TOO_MANY_ROWS", TooLarge),
    (307, "TOO_MANY_BYTES", TooLarge),
    (396, "TOO_MANY_ROWS_OR_BYTES", TooLarge),
    // Who may do what.
    (164, "READONLY", Setup),
    (192, "UNKNOWN_USER", Setup),
    (193, "WRONG_PASSWORD", Setup),
    (194, "REQUIRED_PASSWORD", Setup),
    (195, "IP_ADDRESS_NOT_ALLOWED", Setup),
    (291, "DATABASE_ACCESS_DENIED", Setup),
    (392, "QUERY_IS_PROHIBITED", Setup),
    (452, "SETTING_CONSTRAINT_VIOLATION", Setup),
    (472, "READONLY_SETTING", Setup),
    (497, "ACCESS_DENIED", Setup),
    (511, "UNKNOWN_ROLE", Setup),
    (516, "AUTHENTICATION_FAILED", Setup),
    (720, "USER_EXPIRED", Setup),
    // A table that is not there.
    (60, "UNKNOWN_TABLE", Setup),
    (81, "UNKNOWN_DATABASE", Setup),
    (218, "TABLE_IS_DROPPED", Setup),
    (774, "TABLE_IS_PERMANENTLY_READ_ONLY", Setup),
    // A table that is not the one we know: every row would fail, and to blame
    // the rows would empty the topic into the dead letters. 53 is among these
    // because a block carries its types: no value can cause a mismatch.
    (8, "THERE_IS_NO_COLUMN", Setup),
    (10, "NOT_FOUND_COLUMN_IN_BLOCK", Setup),
    (15, "DUPLICATE_COLUMN", Setup),
    (16, "NO_SUCH_COLUMN_IN_TABLE", Setup),
    (20, "NUMBER_OF_COLUMNS_DOESNT_MATCH", Setup),
    (44, "ILLEGAL_COLUMN", Setup),
    (47, "UNKNOWN_IDENTIFIER", Setup),
    (50, "UNKNOWN_TYPE", Setup),
    (53, "TYPE_MISMATCH", Setup),
    (122, "INCOMPATIBLE_COLUMNS", Setup),
    // A server that does not do what we ask for.
    (1, "UNSUPPORTED_METHOD", Setup),
    (48, "NOT_IMPLEMENTED", Setup),
    (56, "UNKNOWN_STORAGE", Setup),
    (62, "SYNTAX_ERROR", Setup),
    (73, "UNKNOWN_FORMAT", Setup),
    (85, "FORMAT_IS_NOT_SUITABLE_FOR_INPUT", Setup),
    (89, "UNKNOWN_COMPRESSION_METHOD", Setup),
    (115, "UNKNOWN_SETTING", Setup),
    (217, "CLIENT_HAS_CONNECTED_TO_WRONG_PORT", Setup),
    (344, "SUPPORT_IS_DISABLED", Setup),
    (764, "DEDUPLICATION_IS_NOT_POSSIBLE", Setup),
];

pub(crate) fn known_name(code: i32) -> Option<&'static str> {
    CODES
        .iter()
        .find(|(known, ..)| *known == code)
        .map(|(_, name, _)| *name)
}

/// Every code that the table knows, with the name that ClickHouse gives it.
pub fn known_codes() -> impl Iterator<Item = (i32, &'static str)> {
    CODES.iter().map(|(code, name, _)| (*code, *name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_with_two_meanings_is_told_by_its_message() {
        let lagging = "Too many parts (3000 with average size of 1 KiB) in table. Merges are \
                       processing significantly slower than inserts.";
        let partitions = "Too many partitions for single INSERT block (more than 100).";
        assert_eq!(classify(252, lagging), ErrorClass::Transient);
        assert_eq!(classify(252, partitions), ErrorClass::TooLarge);

        let total = "(total) memory limit exceeded: would use 3 GiB";
        let query = "Query memory limit exceeded: would use 3 GiB";
        assert_eq!(classify(241, total), ErrorClass::Transient);
        assert_eq!(classify(241, query), ErrorClass::TooLarge);
        assert_eq!(
            classify(241, "Memory limit (for query) exceeded"),
            ErrorClass::TooLarge
        );
    }

    #[test]
    fn an_unknown_code_is_tried_again() {
        assert_eq!(classify(123_456, "what?"), ErrorClass::Transient);
    }

    #[test]
    fn no_code_is_in_the_table_twice() {
        let mut codes: Vec<_> = known_codes().map(|(code, _)| code).collect();
        let count = codes.len();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), count);
    }
}
