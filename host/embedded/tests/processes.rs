//! The life and death of the processes.

mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use cdr_embedded::{Broker, ChildLogs, ClickHouse, Embedded, EmbeddedConfig};
use common::{STOP, ask, broker, exe, library, part};

async fn config(data: &Path) -> EmbeddedConfig {
    EmbeddedConfig {
        exe: exe(),
        data: data.to_owned(),
        kafka_port: None,
        clickhouse_port: None,
        logs: ChildLogs::Files(data.join("logs")),
        clickhouse_library: Some(library().await),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_start_serve_and_stop_in_order_and_start_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut password = None;
    for _ in 0..2 {
        let embedded = Embedded::start(config(folder.path()).await).await.unwrap();
        let url = embedded.clickhouse_url();
        let one = ask(
            &url,
            embedded.clickhouse_user(),
            embedded.clickhouse_password(),
            "SELECT 1",
        );
        assert_eq!(one.await.as_deref(), Ok("1"));
        std::net::TcpStream::connect(embedded.kafka_bootstrap()).unwrap();
        let before = password.replace(embedded.clickhouse_password().to_owned());
        assert!(
            before.is_none() || before == password,
            "the password belongs to the folder"
        );
        for stopped in embedded.stop(STOP).await.unwrap() {
            assert!(stopped.is_orderly(), "{stopped:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_in_use_is_refused_with_the_pid_of_its_holder() {
    let folder = tempfile::tempdir().unwrap();
    let embedded = Embedded::start(config(folder.path()).await).await.unwrap();
    let refused = Embedded::start(config(folder.path()).await)
        .await
        .unwrap_err();
    assert_eq!(refused.class(), "locked");
    let sentence = refused.to_string();
    assert!(
        sentence.contains(&std::process::id().to_string()),
        "{sentence}"
    );
    assert!(
        sentence.contains(&folder.path().display().to_string()),
        "{sentence}"
    );
    embedded.stop(STOP).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_whose_folder_is_in_use_names_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("broker");
    let first = broker(&data, None).await;
    let refused = Broker::start(part(&data, None)).await.unwrap_err();
    assert_eq!(refused.class(), "ended_early");
    let sentence = refused.to_string();
    assert!(
        sentence.contains(&format!("pid {}", first.process.pid())),
        "{sentence}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_in_use_is_refused_with_its_address() {
    let folder = tempfile::tempdir().unwrap();
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = holder.local_addr().unwrap();
    let port = Some(address.port());
    let broker = Broker::start(part(&folder.path().join("b"), port))
        .await
        .unwrap_err();
    let library = library().await;
    let config = part(&folder.path().join("c"), port);
    let clickhouse = ClickHouse::start(config, &library).await.unwrap_err();
    for refused in [broker, clickhouse] {
        assert_eq!(refused.class(), "port_in_use");
        assert!(
            refused.to_string().contains(&address.to_string()),
            "{refused}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_no_library_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libchdb.so");
    std::fs::write(&library, "not a library").unwrap();
    let config = part(&folder.path().join("c"), None);
    let refused = ClickHouse::start(config, &library)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains(&library.display().to_string()),
        "{refused}"
    );
    assert!(refused.contains("CLICKHOUSE_LIBRARY"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_death_of_a_part_is_reported_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut embedded = Embedded::start(config(folder.path()).await).await.unwrap();
    let pid = std::fs::read_to_string(folder.path().join("broker/lock")).unwrap();
    kill_9(pid.trim());
    let ended = embedded.wait_for_exit().await.unwrap();
    assert_eq!(ended.name, "broker");
    assert!(!ended.status.success());
    embedded.stop(STOP).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn children_die_with_a_parent_that_is_killed_and_the_folder_is_free() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut parent = Command::new(exe())
        .args(["embedded", "up", "--data"])
        .arg(&data)
        .arg("--library")
        .arg(library().await)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(parent.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line.trim(), "ready");

    parent.kill().unwrap();
    parent.wait().unwrap();
    // Takes the locks of all three, so they are gone.
    let embedded = Embedded::start(config(&data).await).await.unwrap();
    for stopped in embedded.stop(STOP).await.unwrap() {
        assert!(stopped.is_orderly(), "{stopped:?}");
    }
}

fn kill_9(pid: &str) {
    assert!(
        Command::new("kill")
            .args(["-9", pid])
            .status()
            .unwrap()
            .success()
    );
}
