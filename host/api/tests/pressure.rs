//! Many records at once: batches, the bound, clients that hang up, the drain.
//! With fakes behind the host (see `common`), which stand still until told.

mod common;

use cdr_api::ApiError;
use common::{host, raw, until};
use serde_json::json;
use tokio::io::AsyncWriteExt;

#[tokio::test]
async fn records_that_come_while_a_batch_is_judged_form_the_next() {
    let host = host(&[]).await;
    host.admit.gate.close();
    let mut posts = vec![host.post_aside("r-000")];
    host.queued(5).await;
    until(|| host.admit.batches() == [1]).await;
    posts.extend((1..=20).map(|n| host.post_aside(&format!("r-{n:03}"))));
    host.queued(21 * 5).await;
    assert_eq!(host.admit.batches(), [1], "the lane is busy");
    host.admit.gate.open();
    for (n, post) in posts.into_iter().enumerate() {
        let answer = post.await.expect("no panic");
        assert_eq!(answer.status, 202);
        assert_eq!(
            answer.body["raw_id"],
            format!("r-{n:03}"),
            "each gets its own verdict"
        );
    }
    assert_eq!(host.admit.batches(), [1, 20]);
    assert_eq!(host.publish.sent().len(), 21);
}

#[tokio::test]
async fn verdicts_of_one_batch_reach_their_own_records() {
    let host = host(&[]).await;
    host.admit.gate.close();
    let first = host.post_aside("first");
    until(|| host.admit.batches() == [1]).await;
    let payloads = ["a", "missing", "b", "fault", "lost", "type"];
    let posts: Vec<_> = payloads
        .iter()
        .map(|payload| host.post_aside(payload))
        .collect();
    host.queued(5 + payloads.concat().len()).await;
    host.admit.gate.open();
    let mut statuses = Vec::new();
    for post in posts {
        statuses.push(post.await.expect("no panic").status);
    }
    assert_eq!(statuses, [202, 400, 202, 500, 503, 400]);
    assert_eq!(first.await.expect("no panic").status, 202);
    assert_eq!(host.admit.batches(), [1, 6]);
}

#[tokio::test]
async fn a_batch_has_a_bound_in_records() {
    let host = host(&["--api-queue-max-size=1000"]).await;
    host.admit.gate.close();
    let mut posts = vec![host.post_aside("r")];
    until(|| host.admit.batches() == [1]).await;
    posts.extend((0..300).map(|_| host.post_aside("r")));
    host.queued(301).await;
    host.admit.gate.open();
    for post in posts {
        assert_eq!(post.await.expect("no panic").status, 202);
    }
    assert_eq!(host.admit.batches(), [1, 256, 44]);
}

#[tokio::test]
async fn as_many_batches_are_judged_at_once_as_there_are_lanes() {
    let host = host(&["--api-admission-lanes=2"]).await;
    host.admit.gate.close();
    let one = host.post_aside("one");
    until(|| host.admit.batches().len() == 1).await;
    let two = host.post_aside("two");
    until(|| host.admit.batches().len() == 2).await;
    host.admit.gate.open();
    assert_eq!(one.await.expect("no panic").status, 202);
    assert_eq!(two.await.expect("no panic").status, 202);
}

#[tokio::test]
async fn at_the_bound_records_are_429_until_there_is_room() {
    let host = host(&["--api-queue-max-size=3"]).await;
    host.publish.gate.close();
    let posts: Vec<_> = ["a", "b", "c"]
        .map(|payload| host.post_aside(payload))
        .into();
    until(|| host.publish.sent().len() == 3).await;
    for _ in 0..5 {
        let answer = host.post("d").await;
        assert_eq!(
            (answer.status, answer.code()),
            (429, "too_many_outstanding")
        );
        assert!(answer.header("retry-after").is_some());
    }
    assert_eq!(
        host.admit.batches().iter().sum::<usize>(),
        3,
        "refused before admission"
    );
    host.publish.gate.open();
    for post in posts {
        assert_eq!(post.await.expect("no panic").status, 202);
    }
    assert_eq!(host.metric("cdr_api_outstanding_records"), 0.0);
    assert_eq!(host.post("d").await.status, 202);
}

#[tokio::test]
async fn records_in_admission_count_against_the_bound() {
    let host = host(&["--api-queue-max-size=2"]).await;
    host.admit.gate.close();
    let posts = ["a", "b"].map(|payload| host.post_aside(payload));
    host.queued(2).await;
    assert_eq!(host.post("c").await.status, 429);
    host.admit.gate.open();
    for post in posts {
        assert_eq!(post.await.expect("no panic").status, 202);
    }
}

#[tokio::test]
async fn a_record_outlives_its_client() {
    for wait_in_admission in [true, false] {
        let host = host(&[]).await;
        let gate = if wait_in_admission {
            &host.admit.gate
        } else {
            &host.publish.gate
        };
        gate.close();
        let mut stream = host.connect().await;
        let request = b"POST /v1/cdrs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
            Content-Length: 4\r\n\r\ngone";
        stream.write_all(request).await.expect("written");
        until(|| {
            let begun = if wait_in_admission {
                host.admit.batches().len()
            } else {
                host.publish.sent().len()
            };
            begun == 1
        })
        .await;
        drop(stream);
        until(|| host.metric("cdr_api_hang_ups_total") == 1.0).await;
        gate.open();
        until(|| host.metric("cdr_api_records_total{outcome=\"acknowledged\"}") == 1.0).await;
        assert_eq!(host.publish.sent(), vec![(b"gone".to_vec(), "gone".into())]);
        assert_eq!(host.metric("cdr_api_outstanding_records"), 0.0);
    }
}

#[tokio::test]
async fn a_drain_answers_what_was_taken_and_refuses_the_rest() {
    let host = host(&[]).await;
    host.publish.gate.close();
    let posts: Vec<_> = (0..10)
        .map(|n| host.post_aside(&format!("r-{n}")))
        .collect();
    until(|| host.publish.sent().len() == 10).await;
    host.shutdown.request();
    // On one thread the drain begins no later than the next answer.
    let late = host.post("late").await;
    assert_eq!((late.status, late.code()), (503, "shutting_down"));
    assert_eq!(late.header("connection"), Some("close"));
    assert!(late.header("retry-after").is_some());
    let ready = host.send(host.request("GET", "/readyz")).await;
    assert_eq!(ready.status, 503);
    assert_eq!(ready.body["failing"][0]["component"], "api");
    let live = host.send(host.request("GET", "/healthz")).await;
    assert_eq!((live.status, live.body), (200, json!({"status": "ok"})));
    assert!(!host.stopped.is_finished());
    host.publish.gate.open();
    for post in posts {
        assert_eq!(post.await.expect("no panic").status, 202);
    }
    host.stopped.await.expect("no panic").expect("drained");
    assert!(tokio::net::TcpStream::connect(host.addr).await.is_err());
    assert_eq!(host.publish.sent().len(), 10);
}

#[tokio::test]
async fn a_drain_waits_for_records_whose_clients_are_gone() {
    let host = host(&[]).await;
    host.publish.gate.close();
    let post = host.post_aside("gone");
    until(|| host.publish.sent().len() == 1).await;
    post.abort();
    until(|| host.metric("cdr_api_hang_ups_total") == 1.0).await;
    host.shutdown.request();
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert!(!host.stopped.is_finished());
    host.publish.gate.open();
    host.stopped.await.expect("no panic").expect("drained");
}

#[tokio::test]
async fn a_body_that_is_being_read_when_the_drain_begins_is_answered() {
    let host = host(&[]).await;
    let mut stream = host.connect().await;
    let head = b"POST /v1/cdrs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
        Expect: 100-continue\r\nContent-Length: 4\r\n\r\n";
    stream.write_all(head).await.expect("written");
    let mut go_on = [0; 25];
    tokio::io::AsyncReadExt::read_exact(&mut stream, &mut go_on)
        .await
        .expect("told to go on");
    assert!(go_on.starts_with(b"HTTP/1.1 100"));
    host.shutdown.request();
    until(|| std::net::TcpStream::connect(host.addr).is_err()).await;
    let (status, text) = raw(&mut stream, b"late").await;
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("shutting_down"), "{text}");
    host.stopped.await.expect("no panic").expect("drained");
    assert!(host.publish.sent().is_empty());
}

#[tokio::test]
async fn a_drain_that_does_not_end_is_an_error() {
    let host = host(&["--api-shutdown-timeout-seconds=10"]).await;
    host.publish.gate.close();
    let _post = host.post_aside("stuck");
    until(|| host.publish.sent().len() == 1).await;
    tokio::time::pause();
    host.shutdown.request();
    let error = host
        .stopped
        .await
        .expect("no panic")
        .expect_err("one is unacknowledged");
    assert!(
        matches!(error, ApiError::NotDrained { outstanding: 1, .. }),
        "{error}"
    );
}
