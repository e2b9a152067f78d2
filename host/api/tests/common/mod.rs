//! A host on a real socket, with fakes behind its two ports.
//!
//! They are fakes because the faults asked for here (a normalizer that traps on
//! a chosen record, a batch that stays in the sandbox until told, a delivery that
//! never ends) can't be made to happen on demand with the real parts. The path
//! through the real parts is tested where they are put together.
#![allow(dead_code)]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use cdr_api::ports::{
    Admit, AdmitError, AdmitResult, BoxFuture, Delivery, NormalizerInfo, Publish, PublishFailure,
    RefusalCode,
};
use cdr_api::{ApiArgs, ApiError, ApiHost};
use cdr_telemetry::health::Health;
use cdr_telemetry::metrics::Metrics;
use cdr_telemetry::shutdown::Shutdown;
use cdr_telemetry::trace::TraceContext;
use clap::Parser;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// A gate that many may wait at; open from the start.
pub struct Gate(watch::Sender<bool>);

impl Gate {
    fn new() -> Self {
        Gate(watch::Sender::new(true))
    }

    pub fn close(&self) {
        self.0.send_replace(false);
    }

    pub fn open(&self) {
        self.0.send_replace(true);
    }

    fn pass(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut gate = self.0.subscribe();
        async move {
            let _ = gate.wait_for(|open| *open).await;
        }
    }
}

/// Judges by the payload's first word: `refuse`, `fault`, `unjudged`; `panic`,
/// `down` and `short` concern the whole batch. Any other payload is its own key.
pub struct FakeAdmit {
    pub gate: Gate,
    /// Sizes of the batches that came.
    pub batches: Mutex<Vec<usize>>,
}

impl FakeAdmit {
    pub fn new() -> Self {
        FakeAdmit {
            gate: Gate::new(),
            batches: Mutex::default(),
        }
    }

    pub fn batches(&self) -> Vec<usize> {
        self.batches.lock().expect("not poisoned").clone()
    }

    fn judge(payload: &[u8]) -> AdmitResult {
        let text = String::from_utf8_lossy(payload).into_owned();
        let detail = format!("because of {text}");
        match text.split(' ').next().unwrap_or_default() {
            "malformed" => AdmitResult::Refused {
                code: RefusalCode::MalformedJson,
                field: None,
                detail,
            },
            "missing" => AdmitResult::Refused {
                code: RefusalCode::MissingRequiredField,
                field: Some("raw_id".to_owned()),
                detail,
            },
            "type" => AdmitResult::Refused {
                code: RefusalCode::InvalidType,
                field: Some("session_start_time".to_owned()),
                detail,
            },
            "fault" => AdmitResult::Fault { detail },
            "unjudged" => AdmitResult::NotJudged { detail },
            _ => AdmitResult::Admitted {
                key: text,
                source: Some("vend-a".to_owned()),
            },
        }
    }
}

impl Admit for FakeAdmit {
    fn admit(
        &self,
        batch: Vec<(Bytes, i64)>,
    ) -> BoxFuture<'_, Result<Vec<AdmitResult>, AdmitError>> {
        self.batches.lock().expect("not poisoned").push(batch.len());
        let passed = self.gate.pass();
        Box::pin(async move {
            passed.await;
            assert!(
                batch
                    .iter()
                    .all(|(_, received_at)| *received_at > 1_700_000_000_000)
            );
            assert!(batch[0].0 != "panic", "on purpose");
            if batch[0].0 == "down" {
                return Err(AdmitError::Unavailable {
                    detail: "stopped".to_owned(),
                });
            }
            let mut results: Vec<_> = batch
                .iter()
                .map(|(payload, _)| Self::judge(payload))
                .collect();
            if batch[0].0 == "short" {
                results.pop();
            }
            Ok(results)
        })
    }

    fn describe(&self) -> NormalizerInfo {
        NormalizerInfo {
            name: "fake-normalizer".to_owned(),
            version: "1.2.3".to_owned(),
            digest: "abc".to_owned(),
        }
    }
}

/// Takes what comes, and acknowledges when the gate is open; fails by the
/// payload's first word: `full`, `large`, `denied`, `lost`.
pub struct FakePublish {
    pub gate: Gate,
    pub sent: Mutex<Vec<(Vec<u8>, Bytes)>>,
    pub traces: Mutex<Vec<TraceContext>>,
}

impl FakePublish {
    fn new() -> Self {
        FakePublish {
            gate: Gate::new(),
            sent: Mutex::default(),
            traces: Mutex::default(),
        }
    }

    pub fn sent(&self) -> Vec<(Vec<u8>, Bytes)> {
        self.sent.lock().expect("not poisoned").clone()
    }
}

impl Publish for FakePublish {
    fn publish(
        &self,
        key: Vec<u8>,
        payload: Bytes,
        trace: TraceContext,
    ) -> BoxFuture<'static, Result<Delivery, PublishFailure>> {
        let word = payload
            .split(|byte| *byte == b' ')
            .next()
            .unwrap_or_default()
            .to_vec();
        self.traces.lock().expect("not poisoned").push(trace);
        let offset = {
            let mut sent = self.sent.lock().expect("not poisoned");
            sent.push((key, payload));
            sent.len() as i64
        };
        let passed = self.gate.pass();
        let detail = "broker kafka-1:9092 said so".to_owned();
        Box::pin(async move {
            passed.await;
            match word.as_slice() {
                b"full" => Err(PublishFailure::QueueFull { detail }),
                b"large" => Err(PublishFailure::TooLarge { detail }),
                b"denied" => Err(PublishFailure::Refused { detail }),
                b"lost" => Err(PublishFailure::Unacknowledged { detail }),
                _ => Ok(Delivery {
                    partition: 0,
                    offset,
                }),
            }
        })
    }

    fn delivery_timeout(&self) -> Duration {
        Duration::from_secs(10)
    }
}

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    api: ApiArgs,
}

/// A host and what is behind it.
pub struct Host<P = FakePublish> {
    pub addr: SocketAddr,
    pub ops_addr: Option<SocketAddr>,
    pub admit: Arc<FakeAdmit>,
    pub publish: Arc<P>,
    pub metrics: Metrics,
    pub shutdown: Shutdown,
    pub stopped: tokio::task::JoinHandle<Result<(), ApiError>>,
    client: reqwest::Client,
}

/// A host with these flags more, on a port of its own, and fakes behind it.
pub async fn host(flags: &[&str]) -> Host {
    serve(
        flags,
        Arc::new(FakeAdmit::new()),
        Arc::new(FakePublish::new()),
    )
    .await
}

/// A host with these flags more, on a port of its own.
pub async fn serve<P: Publish>(flags: &[&str], admit: Arc<FakeAdmit>, publish: Arc<P>) -> Host<P> {
    let defaults = [
        "cdr",
        "--api-listen=127.0.0.1:0",
        "--api-admission-lanes=1",
        // Nobody listens on the discard port.
        "--worker-stats-url=http://127.0.0.1:9/internal/stats",
    ];
    let name = |flag: &str| flag.split('=').next().unwrap_or_default().to_owned();
    let is_given = |default: &&&str| flags.iter().any(|flag| name(flag) == name(default));
    let kept = defaults.iter().filter(|default| !is_given(default));
    let args = Cli::parse_from(kept.chain(flags)).api;
    let metrics = Metrics::new("cdr-api");
    let shutdown = Shutdown::new();
    let host = ApiHost::new(
        args,
        admit.clone(),
        publish.clone(),
        metrics.clone(),
        Health::new(),
    )
    .expect("valid settings");
    let running = host.start(shutdown.clone()).await.expect("bound");
    Host {
        addr: running.local_addr(),
        ops_addr: running.ops_addr(),
        admit,
        publish,
        metrics,
        shutdown,
        stopped: tokio::spawn(running.stopped()),
        client: reqwest::Client::builder()
            .no_proxy()
            .build()
            .expect("a client"),
    }
}

/// An answer, taken apart.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub body: Value,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The results of an NDJSON answer, one a line.
    pub fn results(&self) -> Vec<Value> {
        assert_eq!(self.header("content-type"), Some("application/x-ndjson"));
        match &self.body {
            Value::String(text) => text
                .lines()
                .map(|line| serde_json::from_str(line).expect("JSON"))
                .collect(),
            one => vec![one.clone()],
        }
    }

    /// Checks the one shape of errors, and gives its code.
    pub fn code(&self) -> &str {
        let object = self.body.as_object().expect("an object");
        let names: Vec<_> = object.keys().map(String::as_str).collect();
        assert_eq!(names, ["error", "field", "message"], "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/json"));
        assert!(
            object["message"]
                .as_str()
                .is_some_and(|text| !text.is_empty())
        );
        assert!(
            !self.body.to_string().contains("kafka-1"),
            "no broker is named to vendors"
        );
        object["error"].as_str().expect("a code")
    }
}

impl<P> Host<P> {
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    pub fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = method.parse().expect("a method");
        self.client.request(method, self.url(path))
    }

    pub async fn send(&self, request: reqwest::RequestBuilder) -> Answer {
        let response = request.send().await.expect("an answer");
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.expect("a body");
        Answer {
            status,
            headers,
            body: serde_json::from_str(&text).unwrap_or(Value::String(text)),
        }
    }

    pub fn record(&self, payload: &str) -> reqwest::RequestBuilder {
        self.request("POST", "/v1/cdrs")
            .header("content-type", "application/json")
            .body(payload.to_owned())
    }

    pub async fn post(&self, payload: &str) -> Answer {
        self.send(self.record(payload)).await
    }

    /// Many records, as NDJSON.
    pub fn lines(&self, body: impl Into<reqwest::Body>) -> reqwest::RequestBuilder {
        self.request("POST", "/v1/cdrs")
            .header("content-type", "application/x-ndjson")
            .body(body)
    }

    /// A post in a task of its own.
    pub fn post_aside(&self, payload: &str) -> tokio::task::JoinHandle<Answer> {
        let request = self.record(payload);
        tokio::spawn(async move {
            let response = request.send().await.expect("an answer");
            let (status, headers) = (response.status().as_u16(), response.headers().clone());
            let body = response.json().await.expect("JSON");
            Answer {
                status,
                headers,
                body,
            }
        })
    }

    /// The value of a metric without labels, or with the labels given in `name`.
    pub fn metric(&self, name: &str) -> f64 {
        self.metrics
            .render()
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
            .unwrap_or(0.0)
    }

    /// Waits until `bytes` of payload have been handed to admission. On the
    /// single thread of these tests that is the very moment they are queued.
    pub async fn queued(&self, bytes: usize) {
        until(|| self.metric("cdr_api_payload_bytes_total") == bytes as f64).await;
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.addr).await.expect("connected")
    }
}

/// Lets everything else run until `condition` holds.
pub async fn until(condition: impl Fn() -> bool) {
    // A bound for a test that fails, not a way to synchronise.
    tokio::time::timeout(Duration::from_secs(60), async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("what was waited for did not come");
}

/// One answer of a connection that stays: status and the whole text.
pub async fn next_answer(stream: &mut TcpStream) -> (u16, String) {
    let mut text = Vec::new();
    let length = |head: &str| {
        head.lines()
            .find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok())
            .unwrap_or(0)
    };
    loop {
        let byte = stream.read_u8().await.expect("a head");
        text.push(byte);
        if text.ends_with(b"\r\n\r\n") {
            break;
        }
    }
    let head = String::from_utf8(text).expect("text");
    let mut body = vec![0; length(&head)];
    stream.read_exact(&mut body).await.expect("a body");
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok());
    (
        status.expect("a status"),
        head + &String::from_utf8_lossy(&body),
    )
}

/// Writes `request` and reads to the end of the connection: status and text.
pub async fn raw(stream: &mut TcpStream, request: &[u8]) -> (u16, String) {
    stream.write_all(request).await.expect("written");
    read_answer(stream).await
}

/// Reads to the end of the connection: status and text.
pub async fn read_answer(stream: &mut TcpStream) -> (u16, String) {
    let mut answer = Vec::new();
    stream
        .read_to_end(&mut answer)
        .await
        .expect("closed in order");
    let text = String::from_utf8(answer).expect("text");
    let status = text
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or_else(|| panic!("no answer: {text:?}"));
    (status, text)
}
