//! What an operator can do about an error, where that is more than to wait.

use crate::{
    codes::may_be_conversion,
    error::ErrorClass::{self, TooLarge},
};

/// One phrase, or nothing. `name` is ClickHouse's, or what happened to the
/// request.
pub(crate) fn advice(code: Option<i32>, name: &str, class: ErrorClass) -> Option<&'static str> {
    let Some(code) = code else {
        return of_request(name);
    };
    let advice = match (code, class) {
        (516 | 192..=195 | 291 | 497 | 511 | 512 | 720 | 767, _) => {
            "check the user, the password and the user's grants"
        }
        (164, _) => "set readonly = 0 in the profile of the user",
        (452 | 472, _) => {
            "let the user's profile allow the settings that inserts send (insert_deduplicate, \
             insert_deduplication_token, async_insert, input_format_null_as_default)"
        }
        (60 | 81, _) => "run `cdr provision`, or check the database and table names",
        (7 | 8 | 10 | 16 | 20 | 44 | 47 | 50 | 53 | 122, _) => {
            "the table does not fit the normalizer: run `cdr provision` to see where"
        }
        (_, ErrorClass::Setup) if may_be_conversion(code) => {
            "a column of the table has another type than the normalizer gives: run `cdr provision` \
             to see which"
        }
        (43 | 46 | 386, _) => {
            "check the views, defaults and computed columns of the table: one of them does not fit"
        }
        (75 | 243, _) => {
            "check the disk of the ClickHouse server: free space, or lower its keep_free_space_bytes"
        }
        (201, _) => {
            "wait until the quota's interval ends (see system.quotas_usage), or raise the quota"
        }
        (202 | 700 | 745 | 749 | 762, _) => {
            "ClickHouse is over a limit on queries or connections: raise it, or run fewer workers \
             or batches in flight"
        }
        (252, TooLarge) => {
            "a batch of records of so many months is split; raise max_partitions_per_insert_block \
             for the user if that happens often"
        }
        (252, _) => {
            "merges lag behind (see system.merges and the load of the disks); insert larger \
             batches less often"
        }
        (241, TooLarge) => {
            "the batch is split; lower the batch size, or raise max_memory_usage for the user"
        }
        (241 | 173 | 777 | 778, _) => {
            "ClickHouse is short of memory: see system.processes for what uses it, or raise \
             max_memory_usage_for_user or max_server_memory_usage"
        }
        (158 | 307 | 396 | 229, _) => "raise the limit that is named, or lower the batch size",
        (242, _) => {
            "the replica can't reach Keeper or has lost its metadata there: see is_readonly and \
             zookeeper_exception in system.replicas"
        }
        (774, _) => "make the table writable, or use another",
        (225 | 244 | 999, _) => "check ClickHouse Keeper",
        (159, _) => "raise max_execution_time for the user, or lower the batch size",
        (160 | 209 | 718, _) => {
            "check the load of ClickHouse and the network to it; the insert is repeated under the \
             same token"
        }
        _ => return None,
    };
    Some(advice)
}

fn of_request(name: &str) -> Option<&'static str> {
    match name {
        "connect" => Some("check that ClickHouse runs there and that the URL is right"),
        "timeout" => Some(
            "check the load of ClickHouse and the network to it; the rows of an insert may have \
             been written, so it is repeated under the same token",
        ),
        "http_413" => {
            Some("raise the limit on the size of requests of the proxy before ClickHouse")
        }
        "other_server" => {
            Some("check the URL: expected ClickHouse's HTTP interface, by default on port 8123")
        }
        _ => None,
    }
}
