//! ClickHouse, as an HTTP client sees it.

mod common;

use std::io::Write;
use std::net::TcpStream;

use common::{STOP, ask, clickhouse, query};

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_there_after_a_stop_and_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    // The engine must not mistake a folder's name for its own command.
    let data = folder.path().join("local/share/clickhouse");
    let mut server = clickhouse(&data, None).await;
    query(&server, "CREATE DATABASE IF NOT EXISTS telecom")
        .await
        .unwrap();
    let table = "CREATE TABLE telecom.t (a UInt32, s LowCardinality(String))
                 ENGINE = ReplacingMergeTree ORDER BY a";
    query(&server, table).await.unwrap();
    query(&server, "INSERT INTO telecom.t VALUES (1, 'stop')")
        .await
        .unwrap();
    let stopped = server.process.stop(STOP).await.unwrap();
    assert!(stopped.is_orderly(), "{stopped:?}");

    server = clickhouse(&data, None).await;
    query(&server, "INSERT INTO telecom.t VALUES (2, 'kill')")
        .await
        .unwrap();
    let port = server.port();
    server.process.kill().await.unwrap();

    server = clickhouse(&data, Some(port)).await;
    let rows = query(&server, "SELECT * FROM telecom.t FINAL ORDER BY a").await;
    assert_eq!(rows.as_deref(), Ok("1\tstop\n2\tkill"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_reaches_its_database_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("clickhouse");
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    let server = clickhouse(&data, None).await;

    let insert = "SELECT value FROM system.settings WHERE name = 'async_insert'";
    assert_eq!(query(&server, insert).await.as_deref(), Ok("0"));
    assert_eq!(
        query(&server, "SELECT timezone()").await.as_deref(),
        Ok("UTC")
    );

    let file = format!(
        "SELECT * FROM file('{}', 'TSV', 'a String')",
        secret.display()
    );
    let forbidden = [
        file.as_str(),
        "SELECT * FROM url('http://127.0.0.1:1/', 'TSV', 'a String')",
        "SELECT * FROM remote('127.0.0.1', system.one)",
        "CREATE DATABASE other",
        "CREATE USER other",
        "SYSTEM SHUTDOWN",
        "SYSTEM STOP LISTEN HTTP",
    ];
    for sql in forbidden {
        let refused = query(&server, sql).await.unwrap_err();
        assert!(refused.contains("ACCESS_DENIED"), "{sql}: {refused}");
        // The engine's own user exists over HTTP as well.
        if !sql.contains("LISTEN") {
            let refused = ask(&server.url(), "default", "", sql).await.unwrap_err();
            assert!(refused.contains("ACCESS_DENIED"), "{sql}: {refused}");
        }
    }
    query(&server, "CREATE DATABASE telecom").await.unwrap();
    let table = "CREATE TABLE telecom.t (a UInt32) ENGINE = MergeTree ORDER BY a";
    query(&server, table).await.unwrap();
    for sql in [
        "SELECT * FROM telecom.t",
        "INSERT INTO telecom.t VALUES (1)",
    ] {
        let refused = ask(&server.url(), "default", "", sql).await.unwrap_err();
        assert!(refused.contains("ACCESS_DENIED"), "{sql}: {refused}");
    }
    let wrong = ask(&server.url(), server.user(), "wrong", "SELECT 1")
        .await
        .unwrap_err();
    assert!(wrong.contains("AUTHENTICATION_FAILED"), "{wrong}");
    assert!(!format!("{server:?}").contains(server.password()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_breaks_off_in_an_insert_kills_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = clickhouse(&folder.path().join("clickhouse"), None).await;
    query(&server, "CREATE DATABASE telecom").await.unwrap();
    let table = "CREATE TABLE telecom.t (a UInt32) ENGINE = MergeTree ORDER BY a";
    query(&server, table).await.unwrap();

    for round in 0..40 {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        let head = format!(
            "POST /?query=INSERT%20INTO%20telecom.t%20FORMAT%20TSV HTTP/1.1\r\nHost: localhost\r\n\
             X-ClickHouse-User: {}\r\nX-ClickHouse-Key: {}\r\nContent-Length: 10000000\r\n\r\n",
            server.user(),
            server.password()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
            .write_all("7\n".repeat(round * 500).as_bytes())
            .unwrap();
        if round % 2 == 0 {
            // With a reset in place of an end.
            socket2::SockRef::from(&stream)
                .set_linger(Some(std::time::Duration::ZERO))
                .unwrap();
        }
    }
    query(&server, "INSERT INTO telecom.t VALUES (1)")
        .await
        .unwrap();
    let rows = query(&server, "SELECT count() FROM telecom.t WHERE a = 1").await;
    assert_eq!(rows.as_deref(), Ok("1"));
    assert!(server.process.stop(STOP).await.unwrap().is_orderly());
}
