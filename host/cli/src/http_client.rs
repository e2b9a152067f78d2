//! A plain HTTP client for loopback: no TLS, no redirects.

use anyhow::Context;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use std::time::Duration;

/// Longer than any answer of the hosts may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The client. Cloning shares its connections.
#[derive(Debug, Clone)]
pub struct HttpClient {
    client: Client<HttpConnector, Full<Bytes>>,
}

impl HttpClient {
    pub fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
        }
    }

    /// Posts JSON.
    pub async fn post(&self, url: &str, body: Bytes) -> anyhow::Result<(StatusCode, Bytes)> {
        self.send(Method::POST, url, body).await
    }

    /// Gets a page.
    pub async fn get(&self, url: &str) -> anyhow::Result<(StatusCode, Bytes)> {
        self.send(Method::GET, url, Bytes::new()).await
    }

    async fn send(
        &self,
        method: Method,
        url: &str,
        body: Bytes,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let request = Request::builder()
            .method(method)
            .uri(url)
            .header("content-type", "application/json")
            .body(Full::new(body))?;
        let exchange = async {
            let response = self.client.request(request).await?;
            let status = response.status();
            anyhow::Ok((status, response.into_body().collect().await?.to_bytes()))
        };
        tokio::time::timeout(PATIENCE, exchange)
            .await
            .with_context(|| format!("{url} did not answer within {PATIENCE:?}"))?
            .with_context(|| format!("{url} can't be reached"))
    }
}
