//! TLS by files that are followed. With fakes behind the host (see `common`).

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{Host, raw};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Writes a certificate for `localhost` and its key, and gives the certificate.
fn write(folder: &Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("made");
    for (name, text) in [
        ("cert.pem", made.cert.pem()),
        ("key.pem", made.signing_key.serialize_pem()),
    ] {
        let new = folder.join(format!("{name}.new"));
        std::fs::write(&new, text).expect("written");
        std::fs::rename(&new, folder.join(name)).expect("replaced");
    }
    made.cert.der().clone()
}

async fn with_tls(folder: &Path) -> Host {
    common::host(&[
        &format!("--api-tls-cert-file={}", folder.join("cert.pem").display()),
        &format!("--api-tls-key-file={}", folder.join("key.pem").display()),
        "--api-ops-listen=127.0.0.1:0",
    ])
    .await
}

async fn connect(
    host: &Host,
    trusted: &CertificateDer<'static>,
    alpn: &[u8],
) -> std::io::Result<TlsStream<tokio::net::TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("known versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.to_vec()];
    let name = ServerName::try_from("localhost").expect("a name");
    TlsConnector::from(Arc::new(config))
        .connect(name, host.connect().await)
        .await
}

const REQUEST: &[u8] = b"POST /v1/cdrs HTTP/1.1\r\nHost: localhost\r\n\
    Content-Type: application/json\r\nConnection: close\r\nContent-Length: 4\r\n\r\ngood";

async fn post(stream: &mut TlsStream<tokio::net::TcpStream>) -> String {
    stream.write_all(REQUEST).await.expect("written");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).expect("text")
}

#[tokio::test]
async fn records_are_taken_over_tls_and_only_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let certificate = write(folder.path());
    let host = with_tls(folder.path()).await;
    let mut stream = connect(&host, &certificate, b"http/1.1")
        .await
        .expect("TLS");
    let answer = post(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
    assert_eq!(host.publish.sent().len(), 1);

    let mut plain = host.connect().await;
    plain.write_all(REQUEST).await.expect("written");
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP"));
    assert_eq!(host.publish.sent().len(), 1);

    // Operators have their own address, without.
    let mut stream = tokio::net::TcpStream::connect(host.ops_addr.expect("an address"))
        .await
        .expect("connected");
    let request = b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    assert_eq!(raw(&mut stream, request).await.0, 200);
}

#[tokio::test]
async fn http2_is_chosen_by_alpn() {
    let folder = tempfile::tempdir().expect("a folder");
    let certificate = write(folder.path());
    let host = with_tls(folder.path()).await;
    let stream = connect(&host, &certificate, b"h2").await.expect("TLS");
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
    let (mut client, connection) = hyper::client::conn::http2::handshake(
        hyper_util::rt::TokioExecutor::new(),
        hyper_util::rt::TokioIo::new(stream),
    )
    .await
    .expect("HTTP/2");
    tokio::spawn(connection);
    let request = hyper::Request::post("https://localhost/v1/cdrs")
        .header("content-type", "application/json")
        .body("good".to_owned())
        .expect("a request");
    let answer = client.send_request(request).await.expect("an answer");
    assert_eq!(answer.status(), 202);
}

#[tokio::test]
async fn a_new_certificate_is_taken_up_and_a_broken_one_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let old = write(folder.path());
    let host = with_tls(folder.path()).await;
    let mut kept = connect(&host, &old, b"http/1.1").await.expect("TLS");
    let new = write(folder.path());
    assert_ne!(old, new);
    while connect(&host, &new, b"http/1.1").await.is_err() {
        tokio::task::yield_now().await;
    }
    assert!(connect(&host, &old, b"http/1.1").await.is_err());
    let answer = post(&mut kept).await;
    assert!(
        answer.starts_with("HTTP/1.1 202"),
        "connections go on: {answer}"
    );

    std::fs::write(folder.path().join("cert.pem"), "nonsense").expect("written");
    assert!(connect(&host, &new, b"http/1.1").await.is_ok());
    let third = write(folder.path());
    while connect(&host, &third, b"http/1.1").await.is_err() {
        tokio::task::yield_now().await;
    }
}
