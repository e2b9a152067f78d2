//! What is no acknowledgement: silence, lost connections, strangers, and a 200
//! that says otherwise.

mod common;

use std::time::Duration;

use cdr_store::{EncodedBlock, ErrorClass, Store, StoreConfig, StoreError};
use common::{
    data::cdr_rows,
    false_server::{self, Answer},
    token,
};

fn store(url: String) -> Store {
    Store::new(StoreConfig {
        url,
        insert_timeout: Duration::from_millis(500),
        query_timeout: Duration::from_millis(500),
        ..StoreConfig::default()
    })
    .unwrap()
}

async fn insert(answer: Answer) -> Result<(), StoreError> {
    let block = EncodedBlock::new(&cdr_rows(2, &[1_700_000_000])).unwrap();
    store(false_server::start(answer).await)
        .insert(&block, &token("a"))
        .await
}

fn outcome(result: Result<(), StoreError>) -> (ErrorClass, Option<i32>, String) {
    let error = result.unwrap_err();
    (error.class, error.code, error.name)
}

const SUMMARY: &str = r#"X-ClickHouse-Summary: {"read_rows":"2","written_rows":"2"}"#;
const EXCEPTION: &str = "Code: 241. DB::Exception: (total) memory limit exceeded. (MEMORY_LIMIT_EXCEEDED) (version 26.7.2.1)\n";

#[tokio::test]
async fn a_plain_200_for_every_row_is_a_success() {
    insert(Answer::Http("200 OK", &[SUMMARY], ""))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_200_with_an_exception_is_none() {
    let header: &[&str] = &[SUMMARY, "X-ClickHouse-Exception-Code: 241"];
    let expected = (
        ErrorClass::Transient,
        Some(241),
        "MEMORY_LIMIT_EXCEEDED".to_owned(),
    );
    for (headers, body) in [(header, EXCEPTION), (header, ""), (&header[..1], EXCEPTION)] {
        let result = insert(Answer::Http("200 OK", Box::leak(headers.into()), body)).await;
        assert_eq!(outcome(result), expected, "{headers:?} {body}");
    }
    let unreadable = insert(Answer::Http(
        "200 OK",
        &["X-ClickHouse-Exception-Code: x"],
        "",
    ))
    .await;
    assert_eq!(outcome(unreadable).0, ErrorClass::Transient);
}

#[tokio::test]
async fn a_200_that_leaves_room_for_doubt_is_none() {
    let fewer = [r#"X-ClickHouse-Summary: {"read_rows":"1","written_rows":"1"}"#];
    let answers = [
        Answer::Http("200 OK", Box::leak(Box::new(fewer)), ""),
        Answer::Http("200 OK", &[SUMMARY], "something"),
    ];
    for answer in answers {
        let (class, code, name) = outcome(insert(answer).await);
        assert_eq!(
            (class, code, name.as_str()),
            (ErrorClass::Transient, None, "unclear_answer")
        );
    }
}

#[tokio::test]
async fn a_stranger_is_told_from_clickhouse() {
    let strangers = [
        Answer::Http("200 OK", &["Server: nginx"], ""),
        Answer::Http("200 OK", &[], "<html>welcome</html>"),
        Answer::Http("404 Not Found", &[], "no such page"),
        Answer::Http(
            "301 Moved Permanently",
            &["Location: http://127.0.0.1:1/"],
            "",
        ),
    ];
    for answer in strangers {
        let (class, code, name) = outcome(insert(answer).await);
        assert_eq!(
            (class, code, name.as_str()),
            (ErrorClass::Setup, None, "other_server")
        );
    }
    let url = false_server::start(Answer::Http("200 OK", &[], "<html>welcome</html>")).await;
    let error = store(url).ping().await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Setup);
    assert!(error.to_string().contains("check the URL"), "{error}");
}

#[tokio::test]
async fn a_proxy_without_its_server_passes() {
    let (class, code, name) = outcome(insert(Answer::Http("502 Bad Gateway", &[], "<html>")).await);
    assert_eq!(
        (class, code, name.as_str()),
        (ErrorClass::Transient, None, "http_502")
    );
    let url = false_server::start(Answer::Http("503 Service Unavailable", &[], "")).await;
    assert_eq!(
        store(url).ping().await.unwrap_err().class,
        ErrorClass::Transient
    );
}

#[tokio::test]
async fn no_answer_is_transient_and_bounded() {
    assert_eq!(outcome(insert(Answer::Silence).await).2, "timeout");
    assert_eq!(outcome(insert(Answer::HangUp).await).2, "connection_lost");
    assert_eq!(
        outcome(insert(Answer::Bytes(b"SSH-2.0\r\n".to_vec())).await).2,
        "connection_lost"
    );
    let cut = b"HTTP/1.1 200 OK\r\nX-ClickHouse-Query-Id: 1\r\nContent-Length: 9\r\n\r\nab";
    assert_eq!(
        outcome(insert(Answer::Bytes(cut.to_vec())).await).2,
        "connection_lost"
    );

    let silent = store(false_server::start(Answer::Silence).await);
    let error = silent.ping().await.unwrap_err();
    assert_eq!(
        (error.class, error.name.as_str()),
        (ErrorClass::Transient, "timeout")
    );
}

#[tokio::test]
async fn nobody_there_is_named_with_its_address() {
    // Bound and dropped: a port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let store = store(format!("http://{free}"));
    let block = EncodedBlock::new(&cdr_rows(2, &[1_700_000_000])).unwrap();
    let errors = [
        store.insert(&block, &token("a")).await.unwrap_err(),
        store.ping().await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(
            (error.class, error.name.as_str()),
            (ErrorClass::Transient, "connect")
        );
        let text = error.to_string();
        assert!(text.contains(&free.to_string()), "{text}");
        assert!(text.contains("refused"), "{text}");
        assert!(text.contains("check that ClickHouse runs there"), "{text}");
    }
}

/// What a retry must be: the same batch under the same name, or ClickHouse
/// would write it twice.
#[tokio::test]
async fn a_repeated_insert_sends_identical_bytes_and_token() {
    let (url, requests) = false_server::start_recording(Answer::HangUp).await;
    let block = EncodedBlock::new(&cdr_rows(1000, &[1_700_000_000])).unwrap();
    let store = store(url);
    for _ in 0..3 {
        store.insert(&block, &token("a")).await.unwrap_err();
    }
    let requests = requests.lock().unwrap();
    assert_eq!(requests.len(), 3);
    assert!(requests.iter().all(|request| *request == requests[0]));
    assert!(requests[0].ends_with(block.body()));
    let head = String::from_utf8_lossy(&requests[0]);
    assert!(head.contains(
        "insert_deduplication_token=a%3B0%3A0-9%401700000000000%3Bsha256%3Atest%3Bn%3D1000&"
    ));
}

#[tokio::test]
async fn a_query_says_what_it_was_for() {
    let url = false_server::start(Answer::Http("503 Service Unavailable", &[], "")).await;
    let error = store(url).execute("DROP TABLE x").await.unwrap_err();
    assert!(
        error.to_string().starts_with("DROP TABLE at http://127."),
        "{error}"
    );
}
