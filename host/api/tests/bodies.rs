//! Bodies that are too large or too slow, by clients that write their own HTTP.
//! With fakes behind the host (see `common`).

mod common;

use common::{host, raw, read_answer};
use tokio::io::AsyncWriteExt;

const HEAD: &str = "POST /v1/cdrs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";

#[tokio::test]
async fn an_announced_length_over_the_limit_is_413_before_anything_is_sent() {
    let host = host(&[]).await;
    for length in ["65537", "1000000000000", "9223372036854775807"] {
        let mut stream = host.connect().await;
        let request = format!("{HEAD}Content-Length: {length}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("written");
        let mut answer = [0; 12];
        tokio::io::AsyncReadExt::read_exact(&mut stream, &mut answer)
            .await
            .expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 413", "{length}");
    }
}

#[tokio::test]
async fn a_client_that_waits_to_be_told_is_not_told_to_go_on() {
    let host = host(&[]).await;
    let mut stream = host.connect().await;
    let request = format!("{HEAD}Expect: 100-continue\r\nContent-Length: 65537\r\n\r\n");
    let (status, text) = raw(&mut stream, request.as_bytes()).await;
    assert_eq!(status, 413);
    assert!(!text.contains("100 Continue"), "{text}");
}

#[tokio::test]
async fn a_client_that_sends_it_all_gets_to_read_its_413() {
    let host = host(&[]).await;
    let body = vec![b'x'; 900_000];
    let mut request = format!("{HEAD}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
    request.extend(body);
    let mut stream = host.connect().await;
    let (status, text) = raw(&mut stream, &request).await;
    assert_eq!(status, 413);
    assert!(text.contains("\"error\":\"payload_too_large\""), "{text}");
    assert!(text.contains("connection: close"), "{text}");
    assert!(host.admit.batches().is_empty());
}

#[tokio::test]
async fn the_limit_is_exact_whether_the_length_is_announced_or_not() {
    let host = host(&["--api-max-body-bytes=1000"]).await;
    let chunked = |bytes: usize| {
        let mut body = String::new();
        for chunk in "x".repeat(bytes).as_bytes().chunks(300) {
            body += &format!("{:x}\r\n{}\r\n", chunk.len(), "x".repeat(chunk.len()));
        }
        format!("{HEAD}Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n{body}0\r\n\r\n")
    };
    let announced = |bytes: usize| {
        let body = "x".repeat(bytes);
        format!("{HEAD}Connection: close\r\nContent-Length: {bytes}\r\n\r\n{body}")
    };
    for (request, expected) in [
        (announced(1000), 202),
        (announced(1001), 413),
        (chunked(1000), 202),
        (chunked(1001), 413),
        (chunked(50_000), 413),
    ] {
        let mut stream = host.connect().await;
        let (status, text) = raw(&mut stream, request.as_bytes()).await;
        assert_eq!(status, expected, "{text}");
    }
    assert_eq!(host.publish.sent().len(), 2);
    assert!(
        host.publish
            .sent()
            .iter()
            .all(|(_, payload)| payload.len() == 1000)
    );
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_408() {
    let host = host(&[]).await;
    let mut stream = host.connect().await;
    let request = format!("{HEAD}Content-Length: 10\r\n\r\n{{\"raw");
    let (status, text) = raw(&mut stream, request.as_bytes()).await;
    assert_eq!(status, 408);
    assert!(text.contains("\"error\":\"request_timeout\""), "{text}");
    assert!(host.admit.batches().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_trickles_does_not_buy_time() {
    let host = host(&["--api-read-timeout-seconds=5"]).await;
    let (mut read, mut write) = host.connect().await.into_split();
    write
        .write_all(format!("{HEAD}Content-Length: 1000\r\n\r\n").as_bytes())
        .await
        .expect("written");
    let started = tokio::time::Instant::now();
    let trickle = tokio::spawn(async move {
        while write.write_all(b"x").await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
    });
    let mut answer = [0; 12];
    tokio::io::AsyncReadExt::read_exact(&mut read, &mut answer)
        .await
        .expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 408");
    assert!(
        started.elapsed().as_secs() <= 6,
        "{:?} of the paused clock",
        started.elapsed()
    );
    trickle.abort();
}

#[tokio::test]
async fn a_body_that_breaks_off_publishes_nothing() {
    let host = host(&[]).await;
    let mut stream = host.connect().await;
    let request = format!("{HEAD}Content-Length: 10\r\n\r\n{{\"raw");
    stream.write_all(request.as_bytes()).await.expect("written");
    stream.shutdown().await.expect("half closed");
    // An answer or none: the client has broken HTTP off. What counts is below.
    let mut rest = Vec::new();
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut rest).await;
    let mut stream = host.connect().await;
    let request = format!("{HEAD}Connection: close\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n");
    stream.write_all(request.as_bytes()).await.expect("written");
    let (status, text) = read_answer(&mut stream).await;
    assert_eq!(status, 400, "{text}");
    assert!(host.admit.batches().is_empty() && host.publish.sent().is_empty());
    assert_eq!(host.metric("cdr_api_outstanding_records"), 0.0);
}

#[tokio::test]
async fn an_empty_body_is_for_admission_to_judge() {
    let host = host(&[]).await;
    let answer = host.post("").await;
    assert_eq!(answer.status, 202);
    assert_eq!(host.admit.batches(), vec![1]);
}
