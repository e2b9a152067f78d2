//! The server and the common routes, over a socket.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use cdr_telemetry::health::Health;
use cdr_telemetry::http::{self, HttpError, ServeOptions};
use cdr_telemetry::metrics::Metrics;
use cdr_telemetry::shutdown::Shutdown;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// One request on a connection of its own: status and body.
async fn fetch(addr: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(addr).await.expect("the server listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answered");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|s| s.parse().ok())
        .expect("a status");
    (status, body.to_owned())
}

async fn fetch_json(addr: SocketAddr, path: &str) -> (u16, Value) {
    let (status, body) = fetch(addr, path).await;
    (status, serde_json::from_str(&body).expect("JSON"))
}

#[tokio::test]
async fn health_is_told_with_the_component_that_fails() {
    let (health, shutdown) = (Health::new(), Shutdown::new());
    let router = http::routes(Metrics::new("cdr-test"), health.clone());
    let server = http::serve(ANY, router, shutdown.clone())
        .await
        .expect("bound");
    let addr = server.local_addr();
    assert_eq!(
        fetch_json(addr, "/healthz").await,
        (200, json!({"status": "ok"}))
    );
    assert_eq!(
        fetch_json(addr, "/readyz").await,
        (200, json!({"status": "ok"}))
    );

    health.set_ready("normalizer", Err("not loaded".to_owned()));
    health.set_live("poll", Err("stuck".to_owned()));
    let failing = |component, reason| json!({"status": "failing", "failing": [{"component": component, "reason": reason}]});
    assert_eq!(
        fetch_json(addr, "/readyz").await,
        (503, failing("normalizer", "not loaded"))
    );
    assert_eq!(
        fetch_json(addr, "/healthz").await,
        (503, failing("poll", "stuck"))
    );
    shutdown.request();
    server.stopped().await;
}

#[tokio::test]
async fn metrics_are_prometheus_text() {
    let metrics = Metrics::new("cdr-test");
    let counter = prometheus::IntCounter::new("things_total", "Things.").expect("a name");
    metrics
        .registry()
        .register(Box::new(counter.clone()))
        .expect("new");
    counter.inc();
    let router = http::routes(metrics, Health::new());
    let server = http::serve(ANY, router, Shutdown::new())
        .await
        .expect("bound");
    let (status, text) = fetch(server.local_addr(), "/metrics").await;
    assert_eq!(status, 200);
    assert!(text.contains("\nthings_total 1\n"), "{text}");
    assert!(
        text.contains("cdr_build_info{service=\"cdr-test\""),
        "{text}"
    );
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let server = http::serve(ANY, Router::new(), Shutdown::new())
        .await
        .expect("bound");
    let taken = server.local_addr();
    let error = http::serve(taken, Router::new(), Shutdown::new())
        .await
        .expect_err("the port is taken");
    assert!(matches!(error, HttpError::InUse { addr } if addr == taken));
    assert!(error.to_string().contains(&taken.to_string()), "{error}");
}

#[tokio::test]
async fn the_port_file_holds_the_bound_address_while_the_server_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("api.addr");
    let shutdown = Shutdown::new();
    let options = ServeOptions {
        port_file: Some(path.clone()),
        ..ServeOptions::default()
    };
    let server = options
        .serve(ANY, Router::new(), shutdown.clone())
        .await
        .expect("bound");
    let written: SocketAddr = std::fs::read_to_string(&path)
        .expect("there")
        .parse()
        .expect("an address");
    assert_eq!(written, server.local_addr());
    assert_ne!(written.port(), 0);
    let files = std::fs::read_dir(folder.path()).expect("readable").count();
    assert_eq!(files, 1, "no temporary file is left");
    shutdown.request();
    server.stopped().await;
    assert!(!path.exists());

    let nowhere = folder.path().join("missing/api.addr");
    let options = ServeOptions {
        port_file: Some(nowhere.clone()),
        ..ServeOptions::default()
    };
    let error = options
        .serve(ANY, Router::new(), Shutdown::new())
        .await
        .expect_err("no folder");
    assert!(
        error.to_string().contains(&nowhere.display().to_string()),
        "{error}"
    );
}

#[tokio::test]
async fn a_shutdown_answers_what_had_begun_and_lets_go_of_the_idle() {
    let (begun_tx, mut begun) = tokio::sync::mpsc::channel(1);
    let (go, gone) = tokio::sync::watch::channel(false);
    let router = Router::new().route(
        "/slow",
        get(move || async move {
            let _ = begun_tx.send(()).await;
            let _ = gone.clone().wait_for(|go| *go).await;
            "done"
        }),
    );
    let shutdown = Shutdown::new();
    let server = http::serve(ANY, router, shutdown.clone())
        .await
        .expect("bound");
    let addr = server.local_addr();
    let mut idle = TcpStream::connect(addr).await.expect("connected");
    let slow = tokio::spawn(async move { fetch(addr, "/slow").await });
    begun.recv().await.expect("the request has begun");
    shutdown.request();
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).await.expect("closed in order");
    assert!(rest.is_empty());
    go.send(true).expect("the handler waits");
    assert_eq!(slow.await.expect("no panic"), (200, "done".to_owned()));
    server.stopped().await;
    assert!(
        TcpStream::connect(addr).await.is_err(),
        "nobody listens any more"
    );
}

#[tokio::test]
async fn what_never_ends_is_cut_after_the_grace_time() {
    let (begun_tx, mut begun) = tokio::sync::mpsc::channel(1);
    let router = Router::new().route(
        "/never",
        get(move || async move {
            let _ = begun_tx.send(()).await;
            std::future::pending::<()>().await;
        }),
    );
    let shutdown = Shutdown::new();
    let options = ServeOptions {
        grace: Duration::from_secs(3),
        ..ServeOptions::default()
    };
    let server = options
        .serve(ANY, router, shutdown.clone())
        .await
        .expect("bound");
    let mut stream = TcpStream::connect(server.local_addr())
        .await
        .expect("connected");
    stream
        .write_all(b"GET /never HTTP/1.1\r\nHost: test\r\n\r\n")
        .await
        .expect("written");
    begun.recv().await.expect("the request has begun");
    tokio::time::pause();
    shutdown.request();
    server.stopped().await;
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(rest.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_head_that_trickles_is_given_up() {
    let options = ServeOptions {
        head_timeout: Duration::from_secs(2),
        ..ServeOptions::default()
    };
    let server = options
        .serve(ANY, Router::new(), Shutdown::new())
        .await
        .expect("bound");
    let mut stream = TcpStream::connect(server.local_addr())
        .await
        .expect("connected");
    stream
        .write_all(b"GET / HTTP/1.1\r\nHo")
        .await
        .expect("written");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(!String::from_utf8_lossy(&rest).starts_with("HTTP/1.1 200"));
}
