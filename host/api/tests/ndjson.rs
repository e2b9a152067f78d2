//! Many records in one request. With fakes behind the host (see `common`).

mod common;

use common::{host, raw, until};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

const HEAD: &str = "POST /v1/cdrs HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n";

fn statuses(results: &[Value]) -> Vec<(u64, u64)> {
    results
        .iter()
        .map(|result| {
            let number = |name: &str| result[name].as_u64().expect("a number");
            (number("line"), number("status"))
        })
        .collect()
}

#[tokio::test]
async fn all_acknowledged_is_202_with_a_result_a_line() {
    let host = host(&[]).await;
    let answer = host.send(host.lines("one 1\ntwo\r\n\n  \nthree")).await;
    assert_eq!(answer.status, 202);
    assert_eq!(
        answer.results(),
        [
            json!({"line": 1, "status": 202, "raw_id": "one 1"}),
            json!({"line": 2, "status": 202, "raw_id": "two"}),
            json!({"line": 5, "status": 202, "raw_id": "three"}),
        ]
    );
    let sent: Vec<_> = host
        .publish
        .sent()
        .into_iter()
        .map(|(_, sent)| sent)
        .collect();
    assert_eq!(sent, ["one 1", "two", "three"], "without the line's end");
    assert_eq!(host.metric("cdr_api_answers_total{code=\"accepted\"}"), 1.0);
    assert_eq!(host.metric("cdr_api_outstanding_records"), 0.0);
    assert_eq!(host.metric("cdr_api_outstanding_bytes"), 0.0);
}

#[tokio::test]
async fn a_refused_line_stops_no_other_and_is_told_in_its_place() {
    let host = host(&["--api-max-body-bytes=20"]).await;
    let long = "x".repeat(21);
    let body = format!("good\nmissing\n{long}\nlost\nlarge\nfault\nlast\n");
    let answer = host.send(host.lines(body)).await;
    assert_eq!(answer.status, 207);
    let results = answer.results();
    assert_eq!(
        statuses(&results),
        [
            (1, 202),
            (2, 400),
            (3, 413),
            (4, 503),
            (5, 413),
            (6, 500),
            (7, 202)
        ]
    );
    let codes: Vec<_> = results.iter().map(|result| &result["error"]).collect();
    assert_eq!(codes[1], "missing_required_field");
    assert_eq!(results[1]["field"], "raw_id");
    assert_eq!(codes[2], "payload_too_large");
    assert_eq!(codes[3], "delivery_unconfirmed");
    assert_eq!(codes[5], "normalizer_fault");
    assert!(results[1].get("raw_id").is_none());
    assert!(
        answer.header("retry-after").is_some(),
        "line 4 is to be sent again"
    );
    let answer = host.send(host.lines("good\ntype\n")).await;
    assert_eq!((answer.status, answer.header("retry-after")), (207, None));
    assert_eq!(host.metric("cdr_api_answers_total{code=\"mixed\"}"), 2.0);
}

#[tokio::test]
async fn nothing_in_it_is_an_error() {
    let host = host(&[]).await;
    for body in ["", "\n", " \r\n\n"] {
        let answer = host.send(host.lines(body)).await;
        assert_eq!((answer.status, answer.code()), (400, "no_records"));
    }
}

#[tokio::test]
async fn too_many_lines_and_bytes_are_413_that_say_what_was_taken_in() {
    let host = host(&[
        "--api-ndjson-max-lines=3",
        "--api-max-body-bytes=30",
        "--api-ndjson-max-bytes=60",
    ])
    .await;
    assert_eq!(host.send(host.lines("a\nb\nc\n")).await.status, 202);
    let answer = host.send(host.lines("a\nb\n\nc\nd\ne\n")).await;
    assert_eq!((answer.status, answer.code()), (413, "payload_too_large"));
    let message = answer.body["message"].as_str().expect("text");
    assert!(message.contains("more than 3 lines"), "{message}");
    assert!(message.contains("The 4 lines before"), "{message}");

    let line = "y".repeat(24);
    let announced = host
        .send(host.lines(format!("{line}\n{line}\n{line}\n")))
        .await;
    assert_eq!(announced.status, 413);
    let before = host.publish.sent().len();
    assert_eq!(
        before, 6,
        "nothing of what is announced as too long is read"
    );

    let mut stream = host.connect().await;
    let chunk = format!("19\r\n{line}\n\r\n");
    let request = format!(
        "{HEAD}Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}{chunk}{chunk}0\r\n\r\n"
    );
    let (status, text) = raw(&mut stream, request.as_bytes()).await;
    assert_eq!(status, 413, "{text}");
    assert!(text.contains("The 2 lines before"), "{text}");
}

#[tokio::test]
async fn lines_are_taken_in_as_they_come() {
    let host = host(&[]).await;
    let mut stream = host.connect().await;
    let head = format!("{HEAD}Connection: close\r\nContent-Length: 12\r\n\r\nfirst\nse");
    stream.write_all(head.as_bytes()).await.expect("written");
    until(|| host.publish.sent().len() == 1).await;
    let (status, text) = raw(&mut stream, b"cond").await;
    assert_eq!(status, 202, "{text}");
    assert_eq!(host.publish.sent().len(), 2);
}

#[tokio::test]
async fn a_client_that_hangs_up_loses_only_the_answer() {
    let host = host(&[]).await;
    let mut stream = host.connect().await;
    let head = format!("{HEAD}Content-Length: 100\r\n\r\nfirst\nsecond\nthi");
    stream.write_all(head.as_bytes()).await.expect("written");
    drop(stream);
    until(|| host.metric("cdr_api_records_total{outcome=\"acknowledged\"}") == 2.0).await;
    until(|| host.metric("cdr_api_outstanding_bytes") == 0.0).await;
    assert_eq!(host.publish.sent().len(), 2, "half a line is no record");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_trickles_is_408_and_says_what_was_taken_in() {
    let host = host(&["--api-ndjson-read-timeout-seconds=5"]).await;
    let mut stream = host.connect().await;
    let request = format!("{HEAD}Content-Length: 100\r\n\r\nfirst\nsec");
    let (status, text) = raw(&mut stream, request.as_bytes()).await;
    assert_eq!(status, 408, "{text}");
    assert!(text.contains("The 1 lines before"), "{text}");
    assert_eq!(host.publish.sent().len(), 1);
}

#[tokio::test]
async fn a_full_host_refuses_at_the_first_line_and_tells_later_ones_apart() {
    let host = host(&["--api-queue-max-size=2"]).await;
    host.publish.gate.close();
    let held = host.post_aside("held");
    until(|| host.publish.sent().len() == 1).await;
    let mixed = {
        let request = host.lines("a\nb\nc\n");
        tokio::spawn(request.send())
    };
    until(|| host.publish.sent().len() == 2).await;
    let refused = host.send(host.lines("d\ne\n")).await;
    assert_eq!(
        (refused.status, refused.code()),
        (429, "too_many_outstanding")
    );
    assert!(refused.header("retry-after").is_some());
    host.publish.gate.open();
    assert_eq!(held.await.expect("no panic").status, 202);
    let mixed = mixed.await.expect("no panic").expect("an answer");
    assert_eq!(mixed.status(), 207);
    assert!(mixed.headers().contains_key("retry-after"));
    let text = mixed.text().await.expect("text");
    let statuses: Vec<_> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["status"].clone())
        .collect();
    assert_eq!(statuses, [202, 429, 429]);
}

#[tokio::test]
async fn one_request_does_not_fill_the_bound_of_all() {
    let host = host(&[]).await;
    host.publish.gate.close();
    let body: String = (0..1500).map(|n| format!("r-{n}\n")).collect();
    let answer = tokio::spawn(host.lines(body).send());
    until(|| host.publish.sent().len() == 1000).await;
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(host.publish.sent().len(), 1000);
    assert_eq!(host.metric("cdr_api_outstanding_records"), 1000.0);
    host.publish.gate.open();
    let answer = answer.await.expect("no panic").expect("an answer");
    assert_eq!(answer.status(), 202);
    let text = answer.text().await.expect("text");
    assert_eq!(text.lines().count(), 1500);
    assert!(text.ends_with("{\"line\":1500,\"status\":202,\"raw_id\":\"r-1499\"}\n"));
}

#[tokio::test]
async fn a_drain_answers_for_the_lines_that_were_read() {
    let host = host(&[]).await;
    let mut stream = host.connect().await;
    let head = format!("{HEAD}Content-Length: 12\r\n\r\nfirst\n");
    stream.write_all(head.as_bytes()).await.expect("written");
    until(|| host.publish.sent().len() == 1).await;
    host.shutdown.request();
    until(|| std::net::TcpStream::connect(host.addr).is_err()).await;
    let (status, text) = raw(&mut stream, b"second").await;
    assert_eq!(status, 207, "{text}");
    assert!(text.contains("\"line\":1,\"status\":202"), "{text}");
    assert!(text.contains("\"line\":2,\"status\":503"), "{text}");
    host.stopped.await.expect("no panic").expect("drained");
    assert_eq!(host.publish.sent().len(), 1);
}
