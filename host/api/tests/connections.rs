//! Slow, hostile and unusual clients, by what they write to the socket. With fakes
//! behind the host (see `common`). Ten thousand of them, and memory, are in
//! `host/cli/tests/hostile_clients.rs`.

mod common;

use bytes::Bytes;
use common::{Host, host, next_answer, raw, read_answer, until};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const HEAD: &str = "POST /v1/cdrs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";

fn post(payload: &str) -> String {
    format!("{HEAD}Content-Length: {}\r\n\r\n{payload}", payload.len())
}

/// The one shape of errors, in an answer taken apart by hand.
fn code(text: &str) -> String {
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.contains("content-type: application/json"), "{text}");
    let body: Value = serde_json::from_str(body).expect("JSON");
    let names: Vec<_> = body.as_object().expect("an object").keys().collect();
    assert_eq!(names, ["error", "field", "message"]);
    body["error"].as_str().expect("a code").to_owned()
}

#[tokio::test]
async fn heads_that_are_refused_have_the_shape_of_all_errors() {
    let host = host(&["--api-max-head-bytes=4096"]).await;
    let many: String = (0..200).map(|n| format!("x-{n}: y\r\n")).collect();
    for (request, status, expected) in [
        ("nonsense\r\n\r\n".to_owned(), 400, "malformed_request"),
        (
            "GET / HTTP/3.9\r\n\r\n".to_owned(),
            400,
            "malformed_request",
        ),
        (format!("{HEAD}no colon\r\n\r\n"), 400, "malformed_request"),
        (
            format!("{HEAD}x-large: {}\r\n\r\n", "y".repeat(5000)),
            431,
            "headers_too_large",
        ),
        (format!("{HEAD}{many}\r\n"), 431, "headers_too_large"),
    ] {
        let mut stream = host.connect().await;
        let (found, text) = raw(&mut stream, request.as_bytes()).await;
        assert_eq!(found, status, "{text}");
        assert_eq!(code(&text), expected);
        assert!(text.contains("connection: close"), "{text}");
        let counted = format!("cdr_api_answers_total{{code=\"{expected}\"}}");
        assert!(host.metric(&counted) >= 1.0);
    }
    assert_eq!(host.post("good").await.status, 202);
}

#[tokio::test]
async fn a_length_said_twice_or_besides_chunks_is_no_request() {
    let host = host(&[]).await;
    for headers in [
        "Content-Length: 4\r\nContent-Length: 5\r\n",
        "Content-Length: -4\r\n",
        "Content-Length: 4, 5\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
    ] {
        let mut stream = host.connect().await;
        let request = format!("{HEAD}{headers}\r\ngood");
        let (status, text) = raw(&mut stream, request.as_bytes()).await;
        assert_eq!(status, 400, "{headers}: {text}");
        assert_eq!(code(&text), "malformed_request");
    }
    assert!(host.publish.sent().is_empty());
}

#[tokio::test]
async fn requests_sent_ahead_are_answered_in_order() {
    let host = host(&[]).await;
    let mut stream = host.connect().await;
    let all = [post("one"), post("missing"), post("three")].concat();
    stream.write_all(all.as_bytes()).await.expect("written");
    for (status, part) in [
        (202, "\"raw_id\":\"one\""),
        (400, "raw_id"),
        (202, "\"raw_id\":\"three\""),
    ] {
        let (found, text) = next_answer(&mut stream).await;
        assert_eq!(found, status, "{text}");
        assert!(text.contains(part), "{text}");
    }
    // Nonsense behind a good request spoils the connection, not the request.
    let spoilt = [post("four"), "nonsense\r\n\r\n".to_owned()].concat();
    stream.write_all(spoilt.as_bytes()).await.expect("written");
    assert_eq!(next_answer(&mut stream).await.0, 202);
    let (status, text) = read_answer(&mut stream).await;
    assert_eq!((status, code(&text).as_str()), (400, "malformed_request"));
}

#[tokio::test]
async fn a_client_that_closes_right_behind_its_request_has_it_published() {
    let host = host(&[]).await;
    for n in 0..200 {
        let mut stream = host.connect().await;
        let request = post(&format!("gone-{n}"));
        stream.write_all(request.as_bytes()).await.expect("written");
        drop(stream);
    }
    until(|| host.metric("cdr_api_records_total{outcome=\"acknowledged\"}") == 200.0).await;
    assert_eq!(host.publish.sent().len(), 200);
    until(|| host.metric("cdr_api_connections") == 0.0).await;
}

#[tokio::test]
async fn connections_above_the_bound_are_told_so() {
    let host = host(&["--api-max-connections=3"]).await;
    let mut held = Vec::new();
    for n in 1..=3 {
        held.push(host.connect().await);
        until(|| host.metric("cdr_api_connections") == f64::from(n)).await;
    }
    let mut refused = host.connect().await;
    let (status, text) = read_answer(&mut refused).await;
    assert_eq!(
        (status, code(&text).as_str()),
        (503, "too_many_connections")
    );
    assert!(text.contains("retry-after: "), "{text}");
    held.pop();
    until(|| host.metric("cdr_api_connections") == 2.0).await;
    assert_eq!(host.post("good").await.status, 202);
}

#[tokio::test(start_paused = true)]
async fn heads_that_trickle_and_connections_that_idle_are_closed() {
    let host = host(&["--api-head-timeout-seconds=5"]).await;
    for begun in ["", "P", "POST /v1", HEAD, "PRI * HTTP/2.0\r\n\r\nSM"] {
        let mut stream = host.connect().await;
        stream.write_all(begun.as_bytes()).await.expect("written");
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        assert!(rest.is_empty(), "{begun}");
    }
    let (mut read, mut write) = host.connect().await.into_split();
    let trickle = tokio::spawn(async move {
        for byte in HEAD.bytes().cycle() {
            if write.write_all(&[byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
    });
    let started = tokio::time::Instant::now();
    let _ = read.read_to_end(&mut Vec::new()).await;
    assert!(started.elapsed().as_secs() <= 6, "a byte buys no time");
    trickle.abort();
    // Between requests too.
    let mut stream = host.connect().await;
    let request = post("good");
    stream.write_all(request.as_bytes()).await.expect("written");
    assert_eq!(next_answer(&mut stream).await.0, 202);
    let _ = stream.read_to_end(&mut Vec::new()).await;
    until(|| host.metric("cdr_api_connections") == 0.0).await;
}

#[tokio::test]
async fn a_client_that_takes_no_answer_is_let_go() {
    let host = host(&[]).await;
    let (_read, mut write) = host.connect().await.into_split();
    // Answers of 100 bytes and more to requests of 20: they fill every buffer on the way.
    let many = "GET /x HTTP/1.1\r\n\r\n".repeat(1000);
    let flood =
        tokio::spawn(async move { while write.write_all(many.as_bytes()).await.is_ok() {} });
    until(|| host.metric("cdr_api_connections") == 1.0).await;
    let answered = || host.metric("cdr_api_answers_total{code=\"not_found\"}");
    // Stuck: nothing more is answered, however long the flood goes on.
    let mut before = -1.0;
    while answered() != before {
        before = answered();
        for _ in 0..20_000 {
            tokio::task::yield_now().await;
        }
    }
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(11)).await;
    until(|| host.metric("cdr_api_connections") == 0.0).await;
    flood.abort();
}

async fn http2_client(stream: TcpStream) -> http2::SendRequest<Full<Bytes>> {
    let (client, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .expect("HTTP/2");
    tokio::spawn(connection);
    client
}

fn request<P>(host: &Host<P>, payload: &str) -> hyper::Request<Full<Bytes>> {
    hyper::Request::post(host.url("/v1/cdrs"))
        .header("content-type", "application/json")
        .body(Full::from(payload.to_owned()))
        .expect("a request")
}

#[tokio::test]
async fn http2_is_spoken_without_tls() {
    let host = host(&[]).await;
    host.publish.gate.close();
    let mut client = http2_client(host.connect().await).await;
    let first = client.send_request(request(&host, "one"));
    let second = client.send_request(request(&host, "two"));
    let both = tokio::spawn(async move { (first.await, second.await) });
    until(|| host.publish.sent().len() == 2).await;
    assert_eq!(host.metric("cdr_api_connections"), 1.0, "on one connection");
    host.publish.gate.open();
    let (first, second) = both.await.expect("no panic");
    assert_eq!(first.expect("an answer").status(), 202);
    assert_eq!(second.expect("an answer").status(), 202);
    let refused = client.send_request(request(&host, "missing")).await;
    let refused = refused.expect("an answer");
    assert_eq!(refused.status(), 400);
    let body = refused
        .into_body()
        .collect()
        .await
        .expect("a body")
        .to_bytes();
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(body["error"], "missing_required_field");
}

#[tokio::test]
async fn a_stream_that_is_reset_has_its_record_published() {
    let host = host(&[]).await;
    host.publish.gate.close();
    let mut client = http2_client(host.connect().await).await;
    let answer = tokio::spawn(client.send_request(request(&host, "gone")));
    until(|| host.publish.sent().len() == 1).await;
    answer.abort();
    until(|| host.metric("cdr_api_hang_ups_total") == 1.0).await;
    host.publish.gate.open();
    until(|| host.metric("cdr_api_records_total{outcome=\"acknowledged\"}") == 1.0).await;
}

#[tokio::test]
async fn heads_of_http2_are_bounded_too() {
    let host = host(&["--api-max-head-bytes=4096"]).await;
    let mut client = http2_client(host.connect().await).await;
    let mut large = request(&host, "good");
    let value = "y".repeat(8000).parse().expect("a value");
    large.headers_mut().insert("x-large", value);
    match client.send_request(large).await {
        Ok(answer) => assert_eq!(answer.status(), 431),
        Err(error) => assert!(error.to_string().contains("http2"), "{error}"),
    }
    assert!(host.publish.sent().is_empty());
    assert_eq!(host.post("good").await.status, 202);
}

#[tokio::test]
async fn an_http2_connection_that_idles_is_closed() {
    let host = host(&["--api-head-timeout-seconds=5"]).await;
    let mut client = http2_client(host.connect().await).await;
    let answer = client.send_request(request(&host, "good")).await;
    assert_eq!(answer.expect("an answer").status(), 202);
    tokio::time::pause();
    while !client.is_closed() {
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
    }
    while host.metric("cdr_api_connections") != 0.0 {
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
    }
}
