//! Compressed bodies, and bombs among them. With fakes behind the host (see
//! `common`).

mod common;

use async_compression::tokio::write::{GzipEncoder, ZstdEncoder};
use common::{Answer, Host, host};
use tokio::io::AsyncWriteExt;

async fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzipEncoder::new(Vec::new());
    encoder.write_all(text).await.expect("in memory");
    encoder.shutdown().await.expect("in memory");
    encoder.into_inner()
}

async fn zstd(text: &[u8]) -> Vec<u8> {
    let mut encoder = ZstdEncoder::new(Vec::new());
    encoder.write_all(text).await.expect("in memory");
    encoder.shutdown().await.expect("in memory");
    encoder.into_inner()
}

/// So many zeros, compressed: about a thousandth, or a thirty-thousandth, of them.
async fn bomb(encoding: &str, mebibytes: usize) -> Vec<u8> {
    let zeros = vec![b'0'; 1 << 20];
    macro_rules! bomb {
        ($encoder:expr) => {{
            let mut encoder = $encoder;
            for _ in 0..mebibytes {
                encoder.write_all(&zeros).await.expect("in memory");
            }
            encoder.shutdown().await.expect("in memory");
            encoder.into_inner()
        }};
    }
    match encoding {
        "gzip" => bomb!(GzipEncoder::new(Vec::new())),
        _ => bomb!(ZstdEncoder::new(Vec::new())),
    }
}

async fn post(host: &Host, kind: &str, encoding: &str, body: Vec<u8>) -> Answer {
    let request = host
        .request("POST", "/v1/cdrs")
        .header("content-type", kind)
        .header("content-encoding", encoding)
        .body(body);
    host.send(request).await
}

const JSON: &str = "application/json";
const NDJSON: &str = "application/x-ndjson";

#[tokio::test]
async fn compressed_bodies_are_published_as_what_they_decode_to() {
    let host = host(&[]).await;
    for (encoding, body) in [
        ("gzip", gzip(b"record").await),
        ("X-GZIP", gzip(b"record").await),
        ("zstd", zstd(b"record").await),
        ("identity", b"record".to_vec()),
        // Several members and frames are one body (RFC 1952, 2.2; RFC 8878, 3).
        ("gzip", [gzip(b"rec").await, gzip(b"ord").await].concat()),
        ("zstd", [zstd(b"rec").await, zstd(b"ord").await].concat()),
    ] {
        let answer = post(&host, JSON, encoding, body).await;
        assert_eq!(answer.status, 202, "{encoding}");
        assert_eq!(answer.body["raw_id"], "record");
    }
    assert!(host.publish.sent().iter().all(|(_, sent)| sent == "record"));

    for (encoding, body) in [
        ("gzip", gzip(b"a\nb\nc").await),
        ("zstd", zstd(b"a\nb\nc").await),
    ] {
        let answer = post(&host, NDJSON, encoding, body).await;
        assert_eq!(answer.status, 202);
        assert_eq!(answer.results().len(), 3);
    }
    assert_eq!(host.metric("cdr_api_outstanding_bytes"), 0.0);
}

#[tokio::test]
async fn what_is_not_encoded_as_it_says_is_400() {
    let host = host(&[]).await;
    let whole = gzip(&vec![b'x'; 5000]).await;
    let frame = zstd(&vec![b'x'; 5000]).await;
    let mut flipped = whole.clone();
    let checksum = flipped.len() - 8;
    flipped[checksum] ^= 1;
    for (encoding, body) in [
        ("gzip", b"{\"raw_id\":1}".to_vec()),
        ("zstd", b"{\"raw_id\":1}".to_vec()),
        ("gzip", frame.clone()),
        ("zstd", whole.clone()),
        ("gzip", whole[..whole.len() - 3].to_vec()),
        ("zstd", frame[..frame.len() - 3].to_vec()),
        ("gzip", flipped),
        ("gzip", [whole, b"behind".to_vec()].concat()),
    ] {
        let answer = post(&host, JSON, encoding, body).await;
        assert_eq!(
            (answer.status, answer.code()),
            (400, "malformed_encoding"),
            "{encoding}"
        );
    }
    assert!(host.publish.sent().is_empty());
}

#[tokio::test]
async fn the_limit_is_on_what_is_decoded_and_bombs_are_413() {
    let host = host(&[
        "--api-max-body-bytes=1000",
        "--api-ndjson-max-bytes=8000000",
    ])
    .await;
    for encoding in ["gzip", "zstd"] {
        let fits = match encoding {
            "gzip" => gzip(&[b'x'; 1000]).await,
            _ => zstd(&[b'x'; 1000]).await,
        };
        assert_eq!(post(&host, JSON, encoding, fits).await.status, 202);
        let over = match encoding {
            "gzip" => gzip(&[b'x'; 1001]).await,
            _ => zstd(&[b'x'; 1001]).await,
        };
        let bomb = bomb(encoding, 64).await;
        assert!(bomb.len() < 100_000);
        for (kind, body) in [(JSON, over), (JSON, bomb.clone()), (NDJSON, bomb)] {
            let answer = post(&host, kind, encoding, body).await;
            assert_eq!(
                (answer.status, answer.code()),
                (413, "payload_too_large"),
                "{kind} {encoding}"
            );
        }
    }
    assert_eq!(host.publish.sent().len(), 2);
    assert_eq!(host.metric("cdr_api_outstanding_bytes"), 0.0);
}

#[tokio::test]
async fn what_never_decodes_to_anything_is_413_too() {
    let host = host(&["--api-max-body-bytes=1000"]).await;
    let empty = gzip(b"").await;
    let endless = empty.repeat(10_000 / empty.len());
    let mut stream = host.connect().await;
    let request = format!(
        "POST /v1/cdrs HTTP/1.1\r\nHost: x\r\nContent-Type: {JSON}\r\nContent-Encoding: gzip\r\n\
         Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n",
        endless.len()
    );
    let request = [request.as_bytes(), &endless, b"\r\n0\r\n\r\n"].concat();
    let (status, text) = common::raw(&mut stream, &request).await;
    assert_eq!(status, 413, "{text}");
}

#[tokio::test]
async fn a_window_that_is_too_large_is_refused() {
    // A frame of zstd with a window of 16 MiB: magic, descriptor, window descriptor,
    // an empty last block (RFC 8878, 3.1.1).
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 14 << 3, 0x01, 0x00, 0x00];
    let host = host(&[]).await;
    let answer = post(&host, JSON, "zstd", frame.to_vec()).await;
    assert_eq!((answer.status, answer.code()), (400, "malformed_encoding"));
    let message = answer.body["message"].as_str().expect("text");
    assert!(message.contains("8 MiB"), "{message}");
}
