//! Who may post. With fakes behind the host (see `common`): every record is of
//! `vend-a`.

mod common;

use std::path::Path;

use cdr_api::auth::{Line, Token};
use common::{Answer, Host, host, until};
use serde_json::{Value, json};

struct Vendor {
    token: Token,
    line: Line,
}

fn vendor(id: &str) -> Vendor {
    let token = Token::random().expect("random numbers");
    let line = Line {
        vendor: id.to_owned(),
        digest: token.digest(),
        expires: None,
        rate: None,
    };
    Vendor { token, line }
}

fn write(file: &Path, vendors: &[&Vendor]) {
    let text: String = vendors
        .iter()
        .map(|one| format!("{}\n", one.line))
        .collect();
    let new = file.with_extension("new");
    std::fs::write(&new, text).expect("written");
    std::fs::rename(&new, file).expect("replaced");
}

async fn with_tokens(file: &Path) -> Host {
    host(&[&format!("--api-tokens-file={}", file.display())]).await
}

async fn post(host: &Host, token: &str) -> Answer {
    host.send(host.record("good").bearer_auth(token)).await
}

#[tokio::test]
async fn only_the_vendor_of_the_record_may_post_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tokens");
    let (own, other, mut old) = (vendor("vend-a"), vendor("vend-b"), vendor("vend-a"));
    old.line.expires = Some(std::time::SystemTime::UNIX_EPOCH);
    write(&file, &[&own, &other, &old]);
    let host = with_tokens(&file).await;

    assert_eq!(post(&host, own.token.secret()).await.status, 202);
    let answer = post(&host, other.token.secret()).await;
    assert_eq!((answer.status, answer.code()), (403, "wrong_vendor"));
    let expired = post(&host, old.token.secret()).await;
    assert_eq!((expired.status, expired.code()), (401, "unauthorized"));
    let message = expired.body["message"].as_str().expect("text");
    assert!(message.contains("expired"), "{message}");
    let unknown = post(&host, "cdr_guessed").await;
    assert_eq!((unknown.status, unknown.code()), (401, "unauthorized"));
    assert_eq!(
        unknown.header("www-authenticate"),
        Some("Bearer realm=\"cdr\", error=\"invalid_token\"")
    );
    for value in ["", "Bearer", "Bearer ", "Basic dTpw", own.token.secret()] {
        let answer = host
            .send(host.record("good").header("authorization", value))
            .await;
        assert_eq!((answer.status, answer.code()), (401, "unauthorized"));
        assert_eq!(
            answer.header("www-authenticate"),
            Some("Bearer realm=\"cdr\"")
        );
    }
    let twice = host
        .record("good")
        .bearer_auth(own.token.secret())
        .bearer_auth(own.token.secret());
    assert_eq!(host.send(twice).await.status, 401);
    let lower = host
        .record("good")
        .header("authorization", format!("bearer {}", own.token.secret()));
    assert_eq!(host.send(lower).await.status, 202);
    assert_eq!(host.publish.sent().len(), 2);
    let stats = host.send(host.request("GET", "/stats")).await;
    assert_eq!(stats.body["tokens"], 3);
    let text = stats.body.to_string();
    assert!(!text.contains(&hex::encode(own.line.digest)), "{text}");
}

#[tokio::test]
async fn lines_of_another_vendor_are_told_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tokens");
    let other = vendor("vend-b");
    write(&file, &[&other]);
    let host = with_tokens(&file).await;
    let lines = host
        .lines("good\nmissing\n")
        .bearer_auth(other.token.secret());
    let answer = host.send(lines).await;
    assert_eq!(answer.status, 207);
    let results = answer.results();
    let codes: Vec<_> = results
        .iter()
        .map(|result| (&result["status"], &result["error"]))
        .collect();
    assert_eq!(
        codes,
        [
            (&json!(403), &json!("wrong_vendor")),
            (&json!(400), &json!("missing_required_field"))
        ]
    );
    assert_eq!(host.send(host.lines("good\n")).await.status, 401);
    assert!(host.publish.sent().is_empty());
}

#[tokio::test]
async fn the_file_is_read_again_when_it_changes() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tokens");
    let (first, second) = (vendor("vend-a"), vendor("vend-a"));
    write(&file, &[&first]);
    let host = with_tokens(&file).await;
    assert_eq!(post(&host, second.token.secret()).await.status, 401);
    write(&file, &[&second]);
    let tokens = async || {
        let stats = host.send(host.request("GET", "/stats")).await;
        stats.body["tokens"].clone()
    };
    while post(&host, second.token.secret()).await.status != 202 {
        tokio::task::yield_now().await;
    }
    assert_eq!(post(&host, first.token.secret()).await.status, 401);

    std::fs::write(&file, "vend-a 00\n").expect("written");
    write(&file.with_extension("other"), &[&first, &second]);
    // Nothing is heard of a file that can't be used; a good one after it is taken up.
    assert_eq!(post(&host, second.token.secret()).await.status, 202);
    std::fs::rename(file.with_extension("other"), &file).expect("replaced");
    while tokens().await != 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(post(&host, first.token.secret()).await.status, 202);
}

#[tokio::test]
async fn a_rate_is_429_when_it_is_used_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tokens");
    let (mut slow, free) = (vendor("vend-a"), vendor("vend-a"));
    slow.line.rate = std::num::NonZeroU32::new(2);
    write(&file, &[&slow, &free]);
    let host = with_tokens(&file).await;
    let lines = host
        .lines("good\ngood\ngood\ngood\n")
        .bearer_auth(slow.token.secret());
    let answer = host.send(lines).await;
    assert_eq!(answer.status, 207);
    let statuses: Vec<Value> = answer
        .results()
        .iter()
        .map(|result| result["status"].clone())
        .collect();
    assert_eq!(statuses[..2], [json!(202), json!(202)]);
    assert_eq!(statuses[3], 429);
    assert!(answer.header("retry-after").is_some());
    // However fast this machine is, a hundred are not posted in a second's worth of two.
    let mut refused = None;
    for _ in 0..100 {
        let answer = post(&host, slow.token.secret()).await;
        if answer.status == 429 {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("the rate is used up");
    assert_eq!(refused.code(), "rate_limited");
    let wait: u64 = refused
        .header("retry-after")
        .and_then(|text| text.parse().ok())
        .expect("seconds");
    assert!((1..=4).contains(&wait), "{wait}");
    assert_eq!(post(&host, free.token.secret()).await.status, 202);
    until(|| host.metric("cdr_api_outstanding_records") == 0.0).await;
}

#[tokio::test]
async fn other_paths_need_no_token() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tokens");
    write(&file, &[&vendor("vend-a")]);
    let host = with_tokens(&file).await;
    for path in ["/openapi.json", "/healthz", "/readyz", "/metrics", "/stats"] {
        let answer = host.send(host.request("GET", path)).await;
        assert_eq!(answer.status, 200, "{path}");
    }
    let api = host.send(host.request("GET", "/openapi.json")).await.body;
    assert_eq!(
        api["paths"]["/v1/cdrs"]["post"]["security"],
        json!([{"token": []}])
    );
    assert_eq!(
        api["components"]["securitySchemes"]["token"]["scheme"],
        "bearer"
    );
}
