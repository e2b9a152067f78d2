//! `/openapi.json`, and the address for operators. What it says is held against a
//! running host by schemathesis (`verify/schemathesis`).

mod common;

use std::collections::BTreeSet;

use common::{host, raw};
use serde_json::Value;

#[tokio::test]
async fn the_description_names_every_path_and_answer() {
    let host = host(&[]).await;
    let answer = host.send(host.request("GET", "/openapi.json")).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let api = answer.body;
    assert!(
        api["openapi"]
            .as_str()
            .is_some_and(|v| v.starts_with("3.1."))
    );
    let keys = |value: &Value| -> BTreeSet<String> {
        value
            .as_object()
            .expect("an object")
            .keys()
            .cloned()
            .collect()
    };
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(
        keys(&api["paths"]),
        set(&[
            "/healthz",
            "/metrics",
            "/openapi.json",
            "/readyz",
            "/stats",
            "/v1/cdrs"
        ])
    );
    let post = &api["paths"]["/v1/cdrs"]["post"];
    assert_eq!(
        keys(&post["responses"]),
        set(&[
            "202", "207", "400", "401", "403", "408", "413", "415", "429", "431", "500", "503"
        ])
    );
    assert_eq!(
        keys(&post["requestBody"]["content"]),
        set(&["application/json", "application/x-ndjson"])
    );
    assert!(post.get("security").is_none(), "tokens are off");
    // Every reference leads somewhere.
    let text = api.to_string();
    for target in text.split("\"$ref\":\"#").skip(1) {
        let pointer = target.split('"').next().expect("a pointer");
        assert!(api.pointer(pointer).is_some(), "{pointer}");
    }
    let record = &api["components"]["schemas"]["CallDetailRecord"];
    assert_eq!(record["required"].as_array().map(Vec::len), Some(7));
}

#[tokio::test]
async fn operators_can_have_an_address_of_their_own() {
    let host = host(&["--api-ops-listen=127.0.0.1:0"]).await;
    let ops = host.ops_addr.expect("an address");
    assert_ne!(ops, host.addr);
    for path in ["/stats", "/metrics", "/healthz", "/readyz"] {
        let answer = host.send(host.request("GET", path)).await;
        assert_eq!((answer.status, answer.code()), (404, "not_found"), "{path}");
        let mut stream = tokio::net::TcpStream::connect(ops)
            .await
            .expect("connected");
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        assert_eq!(raw(&mut stream, request.as_bytes()).await.0, 200, "{path}");
    }
    let mut stream = tokio::net::TcpStream::connect(ops)
        .await
        .expect("connected");
    let request =
        b"POST /v1/cdrs HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(raw(&mut stream, request).await.0, 404);
    let api = host.send(host.request("GET", "/openapi.json")).await.body;
    assert!(api["paths"].get("/stats").is_none());
    assert_eq!(host.post("good").await.status, 202);
    host.shutdown.request();
    host.stopped.await.expect("no panic").expect("drained");
    assert!(tokio::net::TcpStream::connect(ops).await.is_err());
}
