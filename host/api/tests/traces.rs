//! Traces: taken up from `traceparent` or begun, told to the client, carried with the
//! record. With fakes behind the host (see `common`).

mod common;

use cdr_telemetry::trace::TraceContext;
use common::{Answer, host};

const SENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn told(answer: &Answer) -> TraceContext {
    let text = answer.header("traceresponse").expect("a trace");
    TraceContext::parse(text).expect("well-formed")
}

#[tokio::test]
async fn a_trace_is_taken_up_in_a_span_of_this_host() {
    let host = host(&[]).await;
    let answer = host
        .send(host.record("good").header("traceparent", SENT))
        .await;
    let told = told(&answer);
    assert_eq!(told.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_ne!(told.span_id(), "00f067aa0ba902b7");
    assert!(told.to_string().ends_with("-01"), "still recorded");
    let carried = host.publish.traces.lock().expect("not poisoned").clone();
    assert_eq!(carried, [told]);
}

#[tokio::test]
async fn a_trace_is_begun_where_none_is_sent_or_none_that_counts() {
    let host = host(&[]).await;
    let twice = host
        .record("good")
        .header("traceparent", SENT)
        .header("traceparent", SENT);
    let bad = host.record("good").header("traceparent", "00-1-2-3");
    let mut seen = Vec::new();
    for request in [host.record("good"), twice, bad] {
        let trace = told(&host.send(request).await).trace_id();
        assert_ne!(trace, "4bf92f3577b34da6a3ce929d0e0e4736");
        assert!(!seen.contains(&trace));
        seen.push(trace);
    }
    let carried = host.publish.traces.lock().expect("not poisoned").clone();
    let carried: Vec<_> = carried.iter().map(TraceContext::trace_id).collect();
    assert_eq!(carried, seen);
}

#[tokio::test]
async fn all_lines_of_a_request_and_all_refusals_have_its_trace() {
    let host = host(&[]).await;
    let answer = host
        .send(host.lines("a\nb\n").header("traceparent", SENT))
        .await;
    let one = told(&answer);
    let carried = host.publish.traces.lock().expect("not poisoned").clone();
    assert_eq!(carried, [one, one]);
    let refused = host
        .send(host.record("missing").header("traceparent", SENT))
        .await;
    assert_eq!(
        (refused.status, told(&refused).trace_id()),
        (400, one.trace_id())
    );
    let nowhere = host
        .send(host.request("GET", "/nowhere").header("traceparent", SENT))
        .await;
    assert_eq!(
        (nowhere.status, told(&nowhere).trace_id()),
        (404, one.trace_id())
    );
}
