//! One connection of the generator, made again when it breaks.
//!
//! Generator, host and Kafka share the machine, so it does as little as it can: no
//! pool, no TLS, one request at a time, most of which is made once.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::answers::Answer;
use crate::http_client::HttpError;

/// What an answer to one record may have; more is none.
const ANSWER_BYTES: usize = 64 * 1024;

/// Where records are posted.
#[derive(Debug, Clone)]
pub struct Target {
    addr: SocketAddr,
    uri: Uri,
    headers: HeaderMap,
}

impl Target {
    /// `/v1/cdrs` at this address.
    ///
    /// # Errors
    /// The address can't be a header.
    pub fn new(addr: SocketAddr) -> anyhow::Result<Self> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_str(&addr.to_string())?);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(Self {
            addr,
            uri: Uri::from_static("/v1/cdrs"),
            headers,
        })
    }

    fn request(&self, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }
}

struct Open {
    requests: SendRequest<Full<Bytes>>,
    _driver: AbortOnDropHandle<()>,
}

/// A connection.
pub struct Connection {
    target: Target,
    /// For one step: to connect, or to be answered.
    patience: Duration,
    open: Option<Open>,
}

impl Connection {
    /// One that is not made yet.
    pub fn new(target: Target, patience: Duration) -> Self {
        Self {
            target,
            patience,
            open: None,
        }
    }

    /// Whether a request can be sent at once.
    pub fn is_open(&self) -> bool {
        let open = self.open.as_ref();
        open.is_some_and(|open| !open.requests.is_closed())
    }

    /// Makes it anew.
    ///
    /// # Errors
    /// The host takes no connection.
    pub async fn connect(&mut self) -> Result<(), HttpError> {
        self.open = None;
        let connecting = async {
            let stream = TcpStream::connect(self.target.addr).await?;
            stream.set_nodelay(true)?;
            let (requests, connection) = handshake(TokioIo::new(stream))
                .await
                .map_err(std::io::Error::other)?;
            // What it ends with is told to the request that it breaks.
            let driver = tokio::spawn(async { drop(connection.await) });
            Ok::<_, std::io::Error>(Open {
                requests,
                _driver: AbortOnDropHandle::new(driver),
            })
        };
        let connected = timeout(self.patience, connecting).await;
        let connected = connected.map_err(|_| HttpError::TimedOut(self.patience))?;
        self.open = Some(connected.map_err(|error| HttpError::Connect(error.to_string()))?);
        Ok(())
    }

    /// Posts a record; after a failure the connection is closed.
    ///
    /// # Errors
    /// There is no whole answer in time.
    pub async fn post(&mut self, body: Bytes) -> Result<Answer, HttpError> {
        let Some(open) = &mut self.open else {
            return Err(HttpError::Connect("it was not made".to_owned()));
        };
        let request = self.target.request(body);
        let answer = timeout(self.patience, exchange(&mut open.requests, request))
            .await
            .unwrap_or(Err(HttpError::TimedOut(self.patience)));
        if answer.is_err() {
            self.open = None;
        }
        answer
    }
}

async fn exchange(
    requests: &mut SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> Result<Answer, HttpError> {
    let broken = |error: hyper::Error| HttpError::Broken(in_full(&error));
    requests.ready().await.map_err(broken)?;
    let response = requests.send_request(request).await.map_err(broken)?;
    let status = response.status().as_u16();
    let retry_after = response.headers().get(RETRY_AFTER);
    let retry_after =
        retry_after.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let body = Limited::new(response.into_body(), ANSWER_BYTES);
    let body = body.collect().await;
    let body = body.map_err(|error| HttpError::Broken(in_full(&*error)))?;
    Ok(Answer {
        status,
        retry_after,
        body: body.to_bytes().to_vec(),
    })
}

/// An error with its causes, which say more than itself.
fn in_full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
