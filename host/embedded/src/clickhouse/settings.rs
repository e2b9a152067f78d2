//! The two files that ClickHouse reads at its start: limits, and who may do what.
//!
//! The engine's own session, which opens the HTTP port, is always the user
//! `default`, without a password. Over HTTP that user exists as well, and
//! neither an address nor a password can tell the two apart. So `default` may
//! start and stop listening, and nothing else: no table, no file, no URL.

use sha2::{Digest, Sha256};

use super::{DATABASE, USER};

/// Name of the file with the limits, as ClickHouse finds it: it runs in its folder.
pub(super) const CONFIG_FILE: &str = "config.xml";
/// Name of the file with the users.
pub(super) const USERS_FILE: &str = "users.xml";
/// Errors that the server logs, at most 2 × 10 MB.
pub(super) const ERROR_LOG: &str = "errors.log";

/// 4 GiB or half of the machine, whichever is less; caches that fit a small one.
pub(super) fn config() -> String {
    format!(
        "<clickhouse>
  <users_config>{USERS_FILE}</users_config>
  <logger><level>error</level><errorlog>{ERROR_LOG}</errorlog><size>10M</size><count>1</count></logger>
  <max_server_memory_usage>4294967296</max_server_memory_usage>
  <max_server_memory_usage_to_ram_ratio>0.5</max_server_memory_usage_to_ram_ratio>
  <mark_cache_size>134217728</mark_cache_size>
  <uncompressed_cache_size>0</uncompressed_cache_size>
  <max_concurrent_queries>200</max_concurrent_queries>
</clickhouse>
"
    )
}

/// `async_insert` is 1 by default in this engine, which would answer before
/// rows are on disk in the order they came; both profiles set it to 0.
pub(super) fn users(password: &str) -> String {
    let digest = hex::encode(Sha256::digest(password.as_bytes()));
    format!(
        "<clickhouse>
  <profiles>
    <default><async_insert>0</async_insert></default>
    <{USER}><async_insert>0</async_insert><max_memory_usage>2147483648</max_memory_usage></{USER}>
  </profiles>
  <quotas><default></default></quotas>
  <users>
    <default>
      <password></password>
      <networks><ip>127.0.0.1</ip></networks>
      <profile>default</profile><quota>default</quota>
      <grants><query>GRANT SYSTEM LISTEN ON *.*</query></grants>
    </default>
    <{USER}>
      <password_sha256_hex>{digest}</password_sha256_hex>
      <networks><ip>127.0.0.1</ip></networks>
      <profile>{USER}</profile><quota>default</quota>
      <grants>
        <query>GRANT SHOW, SELECT, INSERT, ALTER, CREATE, DROP, TRUNCATE, OPTIMIZE ON {DATABASE}.*</query>
        <query>GRANT TABLE ENGINE ON MergeTree</query>
        <query>GRANT TABLE ENGINE ON ReplacingMergeTree</query>
        <query>GRANT SELECT ON system.*</query>
        <query>GRANT KILL QUERY ON *.*</query>
      </grants>
    </{USER}>
  </users>
</clickhouse>
"
    )
}
