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
        outcome(insert(Answer::Bytes(b"SSH-2.0\r\n")).await).2,
        "connection_lost"
    );
    let cut = b"HTTP/1.1 200 OK\r\nX-ClickHouse-Query-Id: 1\r\nContent-Length: 9\r\n\r\nab";
    assert_eq!(
        outcome(insert(Answer::Bytes(cut)).await).2,
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
