//! Users whose profiles refuse or limit something, for the engine of a test.

/// The password of all of them.
pub const PASSWORD: &str = "for-a-test";

/// Name, profile, quota, rights.
const USERS: [(&str, &str, &str, &str); 12] = [
    (
        "small",
        "<max_memory_usage>8000000</max_memory_usage>",
        "default",
        TABLES,
    ),
    ("reader", "<readonly>2</readonly>", "default", TABLES),
    ("strict_reader", "<readonly>1</readonly>", "default", TABLES),
    ("rationed", "", "tight", TABLES),
    (
        "lone",
        "<max_concurrent_queries_for_user>1</max_concurrent_queries_for_user>",
        "default",
        TABLES,
    ),
    (
        "hasty",
        "<max_execution_time>1</max_execution_time>",
        "default",
        TABLES,
    ),
    (
        "queued",
        "<async_insert>1</async_insert>\
         <constraints><async_insert><readonly/></async_insert></constraints>",
        "default",
        TABLES,
    ),
    (
        "doubling",
        "<deduplicate_insert>disable</deduplicate_insert>",
        "default",
        TABLES,
    ),
    (
        "limited",
        "<max_memory_usage_for_user>1000000000</max_memory_usage_for_user>\
         <max_partitions_per_insert_block>7</max_partitions_per_insert_block>\
         <throw_on_max_partitions_per_insert_block>0</throw_on_max_partitions_per_insert_block>\
         <http_receive_timeout>17</http_receive_timeout>",
        "default",
        TABLES,
    ),
    (
        "short_sighted",
        "<max_rows_to_read>10</max_rows_to_read>",
        "default",
        TABLES,
    ),
    ("writer", "", "default", "INSERT ON telecom.*"),
    // ClickHouse answers at once where it would try again for minutes.
    (
        "operator",
        "<insert_keeper_max_retries>0</insert_keeper_max_retries>",
        "default",
        "ALL ON *.*",
    ),
];

const TABLES: &str = "ALL ON telecom.*";

/// For `users.d`.
pub fn xml() -> String {
    let profiles = USERS.map(|(name, profile, ..)| format!("<{name}>{profile}</{name}>"));
    let users = USERS.map(|(name, _, quota, rights)| {
        format!(
            "<{name}><password>{PASSWORD}</password><networks><ip>127.0.0.1</ip></networks>\
             <profile>{name}</profile><quota>{quota}</quota>\
             <grants><query>GRANT {rights}</query></grants></{name}>"
        )
    });
    format!(
        "<profiles>{}</profiles><quotas><tight><interval><duration>3600</duration>\
         <written_bytes>100</written_bytes></interval></tight></quotas><users>{}</users>",
        profiles.concat(),
        users.concat()
    )
}
