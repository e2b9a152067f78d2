//! The table of answers: what vendors get, and when. With fakes behind the
//! host's two ports (see `common`), since most of these faults can't be had from
//! the real parts on demand.

mod common;

use std::net::SocketAddr;

use cdr_telemetry::http as host_http;
use cdr_telemetry::shutdown::Shutdown;
use common::{host, raw};
use serde_json::{Value, json};

#[tokio::test]
async fn an_acknowledged_record_is_202_and_was_published_as_received() {
    let host = host(&[]).await;
    let payload = "{\"raw_id\" : \"r-1\",\u{9}\"x\":1.50}\n";
    let answer = host.post(payload).await;
    assert_eq!(answer.status, 202);
    assert_eq!(
        answer.body,
        json!({"status": "accepted", "raw_id": payload})
    );
    let sent = host.publish.sent();
    assert_eq!(sent.len(), 1);
    assert_eq!(
        sent[0].0,
        payload.as_bytes(),
        "the key is what admission said"
    );
    assert_eq!(sent[0].1, payload.as_bytes(), "byte for byte");
}

#[tokio::test]
async fn what_admission_refuses_is_400_and_never_published() {
    let host = host(&[]).await;
    for (payload, code, field) in [
        ("malformed", "malformed_json", Value::Null),
        ("missing", "missing_required_field", json!("raw_id")),
        ("type", "invalid_type", json!("session_start_time")),
    ] {
        let answer = host.post(payload).await;
        assert_eq!((answer.status, answer.code()), (400, code));
        assert_eq!(answer.body["field"], field);
        assert_eq!(answer.body["message"], format!("because of {payload}"));
    }
    assert!(host.publish.sent().is_empty());
}

#[tokio::test]
async fn faults_of_the_normalizer_are_told_apart_and_pass() {
    let host = host(&[]).await;
    for (payload, status, code, retry) in [
        ("fault", 500, "normalizer_fault", false),
        ("unjudged", 503, "normalizer_unavailable", true),
        ("down", 503, "normalizer_unavailable", true),
        ("short", 500, "internal_error", false),
        ("panic", 500, "internal_error", false),
    ] {
        let answer = host.post(payload).await;
        assert_eq!((answer.status, answer.code()), (status, code), "{payload}");
        assert_eq!(answer.header("retry-after").is_some(), retry, "{payload}");
    }
    assert!(host.publish.sent().is_empty());
    assert_eq!(host.post("good").await.status, 202, "nothing sticks");
    let live = host.send(host.request("GET", "/healthz")).await;
    assert_eq!(live.status, 200);
}

#[tokio::test]
async fn failed_deliveries_say_whether_the_record_may_be_there() {
    let host = host(&[]).await;
    for (payload, status, code, retry, ambiguous) in [
        ("lost", 503, "delivery_unconfirmed", true, true),
        ("denied", 503, "delivery_failed", true, false),
        ("full", 429, "too_many_outstanding", true, false),
        ("large", 413, "payload_too_large", false, false),
    ] {
        let answer = host.post(payload).await;
        assert_eq!((answer.status, answer.code()), (status, code));
        assert_eq!(answer.header("retry-after").is_some(), retry, "{payload}");
        let message = answer.body["message"].as_str().expect("text");
        assert_eq!(
            message.contains("identical record again"),
            ambiguous,
            "{message}"
        );
        assert_eq!(
            message.contains("was not published"),
            !ambiguous,
            "{message}"
        );
    }
    assert_eq!(
        host.post("good").await.status,
        202,
        "each request tries anew"
    );
}

#[tokio::test(start_paused = true)]
async fn a_delivery_without_end_is_answered_and_goes_on() {
    let host = host(&[]).await;
    host.publish.gate.close();
    let answer = host.post("slow").await;
    assert_eq!(
        (answer.status, answer.code()),
        (503, "delivery_unconfirmed")
    );
    assert_eq!(host.metric("cdr_api_outstanding_records"), 1.0);
    host.publish.gate.open();
    common::until(|| host.metric("cdr_api_records_total{outcome=\"acknowledged\"}") == 1.0).await;
}

#[tokio::test]
async fn other_types_and_encodings_are_refused() {
    let host = host(&[]).await;
    let with = |name: &str, value: &str| {
        host.request("POST", "/v1/cdrs")
            .body("good")
            .header(name, value)
    };
    for request in [
        host.request("POST", "/v1/cdrs").body("good"),
        with("content-type", "text/plain"),
        with("content-type", "application/json5"),
        with("content-type", "application/ndjson"),
        with("content-type", ""),
    ] {
        let answer = host.send(request).await;
        assert_eq!(
            (answer.status, answer.code()),
            (415, "unsupported_media_type")
        );
    }
    for encoding in ["br", "deflate", "gzip, gzip", "x"] {
        let zipped = with("content-type", "application/json").header("content-encoding", encoding);
        let answer = host.send(zipped).await;
        assert_eq!(
            (answer.status, answer.code()),
            (415, "unsupported_content_encoding")
        );
        assert_eq!(
            answer.header("accept-encoding"),
            Some("gzip, zstd, identity")
        );
    }
    assert!(host.publish.sent().is_empty());

    for request in [
        with("content-type", "application/json; charset=utf-8"),
        with("content-type", "Application/JSON"),
        with("content-type", "application/json").header("content-encoding", "identity"),
    ] {
        assert_eq!(host.send(request).await.status, 202);
    }
}

#[tokio::test]
async fn other_paths_and_methods_are_refused_in_the_same_shape() {
    let host = host(&[]).await;
    for path in ["/", "/v1/cdr", "/v1/cdrs/", "/v1/cdrs/1", "/%00"] {
        let answer = host.send(host.request("POST", path)).await;
        assert_eq!((answer.status, answer.code()), (404, "not_found"), "{path}");
    }
    for (method, path, allowed) in [
        ("GET", "/v1/cdrs", "POST"),
        ("DELETE", "/v1/cdrs", "POST"),
        ("POST", "/stats", "GET,HEAD"),
        ("POST", "/metrics", "GET,HEAD"),
        ("PUT", "/healthz", "GET,HEAD"),
    ] {
        let answer = host.send(host.request(method, path)).await;
        assert_eq!(
            (answer.status, answer.code()),
            (405, "method_not_allowed"),
            "{method} {path}"
        );
        assert_eq!(answer.header("allow"), Some(allowed), "{method} {path}");
    }
}

#[tokio::test]
async fn no_header_of_a_client_changes_what_is_published() {
    let host = host(&[]).await;
    let mut stream = host.connect().await;
    let request = b"POST /v1/cdrs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
        cdr-received-at: 1\r\nConnection: close\r\nContent-Length: 4\r\n\r\ngood";
    let (status, _) = raw(&mut stream, request).await;
    assert_eq!(status, 202);
    assert_eq!(host.publish.sent(), vec![(b"good".to_vec(), "good".into())]);
}

#[tokio::test]
async fn stats_tell_what_was_counted_and_what_the_worker_says() {
    let worker = axum::Router::new().route(
        "/internal/stats",
        axum::routing::get(async || axum::Json(json!({"inserted": 7}))),
    );
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let stop = Shutdown::new();
    let worker = host_http::serve(any, worker, stop.clone())
        .await
        .expect("bound");
    let url = format!(
        "--worker-stats-url=http://{}/internal/stats",
        worker.local_addr()
    );
    let host = host(&[&url, "--api-queue-max-size=77"]).await;
    host.post("good").await;
    host.post("missing").await;
    host.post("lost").await;

    let stats = host.send(host.request("GET", "/stats")).await;
    assert_eq!(stats.status, 200);
    let body = &stats.body;
    assert_eq!(body["service"], "cdr-api");
    assert_eq!(body["draining"], false);
    assert_eq!(
        body["normalizer"],
        json!({"name": "fake-normalizer", "version": "1.2.3", "digest": "abc"})
    );
    assert_eq!(
        body["outstanding"],
        json!({"records": 0, "limit": 77, "bytes": 0, "bytes_limit": 128 << 20})
    );
    assert_eq!(body["tokens"], Value::Null);
    assert!(body["connections"].as_i64().is_some_and(|open| open >= 1));
    assert_eq!(
        body["records"],
        json!({"acknowledged": 1, "missing_required_field": 1, "delivery_unconfirmed": 1})
    );
    assert_eq!(body["answers"]["accepted"], 1);
    assert_eq!(body["payload_bytes"], 15);
    assert_eq!(body["worker"], json!({"inserted": 7}));

    stop.request();
    worker.stopped().await;
    let stats = host.send(host.request("GET", "/stats")).await;
    assert_eq!((stats.status, &stats.body["worker"]), (200, &Value::Null));
}

#[tokio::test]
async fn the_common_routes_are_there() {
    let host = host(&[]).await;
    host.post("good").await;
    let ready = host.send(host.request("GET", "/readyz")).await;
    assert_eq!((ready.status, &ready.body), (200, &json!({"status": "ok"})));
    let metrics = host.send(host.request("GET", "/metrics")).await;
    let text = metrics.body.as_str().expect("text");
    for line in [
        "cdr_api_answers_total{code=\"accepted\"} 1",
        "cdr_api_records_total{outcome=\"acknowledged\"} 1",
        "cdr_api_outstanding_records 0",
        "cdr_api_outstanding_records_limit 10000",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}
