//! A plain HTTP client for loopback: no TLS, no redirects, every exchange within
//! a time that the caller gives.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The address is none.
    #[error("{0} is not an address to ask")]
    Address(String),
    /// No connection was made, so nothing was sent.
    #[error("no connection: {0}")]
    Connect(String),
    /// The connection broke before the whole answer was there.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The time was over.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
}

impl HttpError {
    /// One word for it.
    pub fn word(&self) -> &'static str {
        match self {
            HttpError::Address(_) => "bad address",
            HttpError::Connect(_) => "not connected",
            HttpError::Broken(_) => "broken",
            HttpError::TimedOut(_) => "timed out",
        }
    }
}

/// An answer, with the whole body.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its body.
    pub body: Bytes,
}

impl Answer {
    /// The body as JSON; null where it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// The client. Cloning shares its connections.
#[derive(Debug, Clone)]
pub struct HttpClient {
    client: Client<HttpConnector, Full<Bytes>>,
    timeout: Duration,
}

impl HttpClient {
    /// A client whose exchanges take no longer than `timeout`.
    pub fn new(timeout: Duration) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            timeout,
        }
    }

    /// Posts JSON.
    ///
    /// # Errors
    /// No answer came. Unless that is [`HttpError::Connect`], what was sent may
    /// have been acted on.
    pub async fn post(&self, url: &str, body: Bytes) -> Result<Answer, HttpError> {
        self.send(Method::POST, url, body).await
    }

    /// Gets a page.
    ///
    /// # Errors
    /// No answer came.
    pub async fn get(&self, url: &str) -> Result<Answer, HttpError> {
        self.send(Method::GET, url, Bytes::new()).await
    }

    async fn send(&self, method: Method, url: &str, body: Bytes) -> Result<Answer, HttpError> {
        let request = Request::builder()
            .method(method)
            .uri(url)
            .header("content-type", "application/json")
            .body(Full::new(body))
            .map_err(|_| HttpError::Address(url.to_owned()))?;
        let exchange =
            async {
                let response = self.client.request(request).await.map_err(|error| {
                    match error.is_connect() {
                        true => HttpError::Connect(error.to_string()),
                        false => HttpError::Broken(error.to_string()),
                    }
                })?;
                let status = response.status();
                let body = response.into_body().collect().await;
                let body = body.map_err(|error| HttpError::Broken(error.to_string()))?;
                Ok(Answer {
                    status,
                    body: body.to_bytes(),
                })
            };
        tokio::time::timeout(self.timeout, exchange)
            .await
            .map_err(|_| HttpError::TimedOut(self.timeout))?
    }
}
