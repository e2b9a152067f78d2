//! What clients can do to a whole API process: ten thousand of them that say
//! nothing, bombs, a SIGTERM under load. Single clients are in
//! `host/api/tests/connections.rs`, a broker that goes away in `apache_kafka_away.rs`.

mod common;

use async_compression::tokio::write::{GzipEncoder, ZstdEncoder};
use bytes::Bytes;
use common::bed::{Bed, Host};
use common::http_client::HttpClient;
use common::judge::post_all;
use common::process::PATIENCE;
use common::records::{Sample, goods};
use futures::StreamExt;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const CONNECTIONS: u64 = 10_000;
const MIB: u64 = 1 << 20;

/// A value of the process in `/proc/PID/status`, in bytes.
fn memory(host: &Host, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", host.cdr.pid())).unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

async fn metric(host: &Host, name: &str) -> f64 {
    let url = format!("{}/metrics", host.url);
    let (_, text) = HttpClient::new().get(&url).await.unwrap();
    String::from_utf8_lossy(&text)
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
        .unwrap_or(0.0)
}

async fn until_metric(host: &Host, name: &str, wanted: impl Fn(f64) -> bool) {
    let started = Instant::now();
    loop {
        let value = metric(host, name).await;
        if wanted(value) {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{name} stays at {value}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_idle_connections_hurt_nobody() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    )
    .unwrap();
    assert!(
        limit.maximum.is_none_or(|most| most > CONNECTIONS + 1000),
        "this test needs a hard limit of open files (`ulimit -Hn`) above {}, not {:?}",
        CONNECTIONS + 1000,
        limit.maximum
    );
    let bed = Bed::start().await;
    let api = bed.api(&[("API_HEAD_TIMEOUT_SECONDS", "3600")]);
    let (samples, _) = goods(0, 100);
    assert_eq!(post_all(&api.url, &samples).await, 100);
    let before = memory(&api, "VmRSS");

    let addr = api.url.replace("http://", "");
    let begun: [&[u8]; 4] = [
        b"",
        b"P",
        b"POST /v1/cdrs HTTP/1.1\r\nHost: x\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    ];
    let mut idle = Vec::new();
    for n in 0..CONNECTIONS {
        let mut stream = TcpStream::connect(&addr).await.unwrap();
        let some = begun[usize::try_from(n).unwrap() % begun.len()];
        stream.write_all(some).await.unwrap();
        idle.push(stream);
    }
    until_metric(&api, "cdr_api_connections", |open| {
        open >= CONNECTIONS as f64
    })
    .await;
    let (samples, _) = goods(100, 400);
    assert_eq!(post_all(&api.url, &samples).await, 300);
    let after = memory(&api, "VmRSS");
    let each = after.saturating_sub(before) / CONNECTIONS;
    println!("an idle connection takes {each} bytes");
    assert!(each < 48 << 10, "{before} → {after}");

    drop(idle);
    until_metric(&api, "cdr_api_connections", |open| open < 100.0).await;
    let (samples, _) = goods(400, 500);
    assert_eq!(post_all(&api.url, &samples).await, 100);
    api.stop();
}

/// So many MiB of zeros, compressed, in two ways.
async fn bombs(mebibytes: u64) -> [(&'static str, Vec<u8>); 2] {
    let zeros = vec![b'0'; 1 << 20];
    let (mut gzip, mut zstd) = (GzipEncoder::new(Vec::new()), ZstdEncoder::new(Vec::new()));
    for _ in 0..mebibytes {
        gzip.write_all(&zeros).await.unwrap();
        zstd.write_all(&zeros).await.unwrap();
    }
    gzip.shutdown().await.unwrap();
    zstd.shutdown().await.unwrap();
    [("gzip", gzip.into_inner()), ("zstd", zstd.into_inner())]
}

#[tokio::test(flavor = "multi_thread")]
async fn bombs_end_in_413_with_flat_memory() {
    let bed = Bed::start().await;
    // So that what is measured is not the budget itself.
    let api = bed.api(&[("API_QUEUE_MAX_BYTES", "33554432")]);
    let (samples, _) = goods(0, 100);
    assert_eq!(post_all(&api.url, &samples).await, 100);
    let before = memory(&api, "VmHWM");
    let addr = api.url.replace("http://", "");
    let bombs = bombs(1024).await;
    for kind in ["application/json", "application/x-ndjson"] {
        for (encoding, bomb) in &bombs {
            let head = format!(
                "POST /v1/cdrs HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Encoding: \
                 {encoding}\r\nContent-Length: {}\r\n\r\n",
                bomb.len()
            );
            let request = Bytes::from([head.as_bytes(), bomb].concat());
            let mut answers = futures::stream::iter((0..64).map(|_| {
                let (addr, request) = (addr.clone(), request.clone());
                async move {
                    let mut stream = TcpStream::connect(addr).await.unwrap();
                    // A host that has seen enough reads no further.
                    let _ = stream.write_all(&request).await;
                    let mut answer = Vec::new();
                    let _ = stream.read_to_end(&mut answer).await;
                    String::from_utf8_lossy(&answer).into_owned()
                }
            }))
            .buffer_unordered(32);
            let mut too_large = 0;
            while let Some(answer) = answers.next().await {
                match answer.get(9..12) {
                    Some("413") => too_large += 1,
                    // As many at once as their windows leave room for.
                    Some("429") => {}
                    _ => panic!("{kind} {encoding}: {answer:?}"),
                }
            }
            assert!(too_large > 0, "{kind} {encoding}");
        }
    }
    let after = memory(&api, "VmHWM");
    println!("128 bombs of 1 GiB: {} MiB more", (after - before) / MIB);
    assert!(after - before < 128 * MIB, "{before} → {after}");
    assert_eq!(metric(&api, "cdr_api_outstanding_bytes").await, 0.0);
    let (samples, _) = goods(100, 200);
    assert_eq!(post_all(&api.url, &samples).await, 100);
    api.stop();
}

/// Posts one and gives the status; none where the connection failed.
async fn post(client: &HttpClient, api: &str, sample: &Sample) -> Option<u16> {
    let url = format!("{api}/v1/cdrs");
    let body = Bytes::from(sample.payload.clone());
    client
        .post(&url, body)
        .await
        .ok()
        .map(|(status, _)| status.as_u16())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sigterm_under_load_answers_what_was_read_and_loses_nothing() {
    let bed = Bed::start().await;
    let mut api = bed.api(&[]);
    let (samples, rows) = goods(0, 20_000);
    let stopping = Arc::new(AtomicBool::new(false));
    let shares: Vec<Vec<(usize, Sample)>> = (0..32)
        .map(|share| {
            let own = samples.iter().cloned().enumerate();
            own.skip(share).step_by(32).collect()
        })
        .collect();
    let posters: Vec<_> = shares
        .into_iter()
        .map(|share| {
            let (url, stopping) = (api.url.clone(), stopping.clone());
            tokio::spawn(async move {
                let client = HttpClient::new();
                let (mut accepted, mut refused) = (Vec::new(), 0);
                for (n, sample) in share {
                    let is_late = stopping.load(Ordering::SeqCst);
                    match post(&client, &url, &sample).await {
                        Some(202) => accepted.push(n),
                        Some(503) => refused += 1,
                        Some(other) => panic!("{other}"),
                        // Nobody listens any more, or the connection closed between two
                        // requests.
                        None => {
                            assert!(is_late || stopping.load(Ordering::SeqCst));
                            break;
                        }
                    }
                }
                (accepted, refused)
            })
        })
        .collect();
    until_metric(
        &api,
        "cdr_api_records_total{outcome=\"acknowledged\"}",
        |done| done >= 500.0,
    )
    .await;
    stopping.store(true, Ordering::SeqCst);
    let asked = Instant::now();
    api.cdr.signal(Signal::TERM);
    let status = api.cdr.ended();
    let log = api.cdr.lines().join("\n");
    assert!(status.success(), "{status}: {log}");
    assert!(asked.elapsed() < Duration::from_secs(45));
    assert!(log.contains("every record that was taken in has been answered"));

    let (mut accepted, mut refused) = (Vec::new(), 0);
    for poster in posters {
        let (own, no) = poster.await.unwrap();
        accepted.extend(own);
        refused += no;
    }
    assert!(accepted.len() >= 500 && accepted.len() < rows.len());
    println!("{} accepted, {refused} refused", accepted.len());
    let worker = bed.worker(&[("BATCH_FLUSH_INTERVAL_SECONDS", "0.2")]);
    let subject = bed.subject(&api.url, &worker.url);
    subject.everything_is_committed().await;
    let landed: std::collections::BTreeSet<_> = subject.rows().await.into_iter().collect();
    for n in accepted {
        assert!(
            landed.contains(&rows[n]),
            "record {n} got a 202 and is nowhere"
        );
    }
    worker.stop();
}

/// Why a trace is carried: the worker's lines name the vendor's.
#[tokio::test(flavor = "multi_thread")]
async fn a_vendor_s_trace_reaches_the_dead_letter_and_both_logs() {
    let bed = Bed::start().await;
    let api = bed.api(&[("LOG_LEVEL", "debug")]);
    let worker = bed.worker(&[("BATCH_FLUSH_INTERVAL_SECONDS", "0.2")]);
    let subject = bed.subject(&api.url, &worker.url);
    let (mut record, _) = common::records::good(7, common::records::now_s());
    record["radio_access_type"] = Value::from("no such network");
    let payload = record.to_string();
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let mut stream = TcpStream::connect(api.url.replace("http://", ""))
        .await
        .unwrap();
    let request = format!(
        "POST /v1/cdrs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: \
         close\r\ntraceparent: 00-{trace}-00f067aa0ba902b7-01\r\nContent-Length: {}\r\n\r\n{payload}",
        payload.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
    assert!(answer.contains(&format!("traceresponse: 00-{trace}-")));
    subject.settled(1).await;
    let dead = subject.dead_letters().await;
    assert_eq!(dead.len(), 1);
    for lines in [api.stop(), worker.stop()] {
        let named = lines
            .iter()
            .filter(|line| line.contains(trace) && line.contains("\"span_id\""))
            .count();
        assert!(named > 0, "{}", lines.join("\n"));
    }
}
