//! One request: a task of its own, and what is answered where no router is asked.
//!
//! hyper drops the future of a request whose client is gone. Here that future only
//! waits for a task, so a client that hangs up right after its last byte loses the
//! answer and nothing else.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, Request, Response, StatusCode};
use axum::response::IntoResponse;
use hyper::body::Incoming;
use serde::Serialize;
use tokio::task::JoinHandle;
use tower::ServiceExt;

/// What the server answers by itself, in the same JSON shape as everything else:
/// `{"error": code, "field": null, "message": …}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unrouted {
    /// The head of a request is no HTTP.
    Malformed,
    /// The head of a request is too large, or has too many fields.
    HeadTooLarge,
    /// Its target is too long.
    TargetTooLong,
    /// As many connections are open as may be.
    TooManyConnections,
    /// The code behind the router panicked.
    Panicked,
}

impl Unrouted {
    /// The one that hyper means by a status line of its own.
    pub(super) fn by_status(status: &[u8]) -> Option<Self> {
        Some(match status {
            b"400" => Unrouted::Malformed,
            b"414" => Unrouted::TargetTooLong,
            b"431" => Unrouted::HeadTooLarge,
            _ => return None,
        })
    }

    /// The word for it in answers and metrics.
    pub fn code(self) -> &'static str {
        match self {
            Unrouted::Malformed => "malformed_request",
            Unrouted::HeadTooLarge => "headers_too_large",
            Unrouted::TargetTooLong => "uri_too_long",
            Unrouted::TooManyConnections => "too_many_connections",
            Unrouted::Panicked => "internal_error",
        }
    }

    /// Its HTTP status.
    pub fn status(self) -> StatusCode {
        match self {
            Unrouted::Malformed => StatusCode::BAD_REQUEST,
            Unrouted::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Unrouted::TargetTooLong => StatusCode::URI_TOO_LONG,
            Unrouted::TooManyConnections => StatusCode::SERVICE_UNAVAILABLE,
            Unrouted::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn message(self) -> &'static str {
        match self {
            Unrouted::Malformed => "the request is not well-formed HTTP",
            Unrouted::HeadTooLarge => "the header fields of the request are too large or too many",
            Unrouted::TargetTooLong => "the target of the request is too long",
            Unrouted::TooManyConnections => {
                "this host has as many connections as it takes; connect again after the time in \
                 Retry-After, and keep connections for many requests"
            }
            Unrouted::Panicked => {
                "a fault of this host; what was sent may or may not have been stored. Send it \
                 again, identically"
            }
        }
    }

    fn retry_after(self) -> Option<u8> {
        (self == Unrouted::TooManyConnections).then_some(5)
    }

    fn body(self) -> Vec<u8> {
        #[derive(Serialize)]
        struct Shape {
            error: &'static str,
            field: Option<&'static str>,
            message: &'static str,
        }
        // Strings alone: it can't fail.
        serde_json::to_vec(&Shape {
            error: self.code(),
            field: None,
            message: self.message(),
        })
        .unwrap_or_default()
    }

    /// The whole answer as HTTP/1.1 has it, after which the connection ends.
    pub(super) fn on_the_wire(self) -> Vec<u8> {
        let body = self.body();
        let retry = self
            .retry_after()
            .map(|seconds| format!("retry-after: {seconds}\r\n"))
            .unwrap_or_default();
        let mut wire = format!(
            "HTTP/1.1 {}\r\ncontent-type: application/json\r\n{retry}content-length: {}\r\n\
             connection: close\r\ndate: {}\r\n\r\n",
            self.status(),
            body.len(),
            httpdate::fmt_http_date(std::time::SystemTime::now()),
        )
        .into_bytes();
        wire.extend(body);
        wire
    }
}

impl IntoResponse for Unrouted {
    fn into_response(self) -> Response<Body> {
        let mut response = (self.status(), self.body()).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after() {
            headers.insert(RETRY_AFTER, HeaderValue::from(u16::from(seconds)));
        }
        response
    }
}

/// Learns of what happens outside the router.
pub trait Outside: Send + Sync + 'static {
    /// The server answered a request by itself.
    fn answered(&self, what: Unrouted) {
        let _ = what;
    }

    /// A client went away before its answer; its request goes on.
    fn hung_up(&self) {}

    /// A connection was opened.
    fn connected(&self) {}

    /// A connection ended.
    fn disconnected(&self) {}
}

/// Who wants to know nothing.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl Outside for Silent {}

/// The router as hyper calls it, for one connection.
#[derive(Clone)]
pub(super) struct Requests {
    router: Router,
    outside: Arc<dyn Outside>,
    /// Requests of this connection that are not answered yet.
    open: Arc<AtomicUsize>,
}

impl Requests {
    pub(super) fn new(router: Router, outside: Arc<dyn Outside>) -> Self {
        Requests {
            router,
            outside,
            open: Arc::default(),
        }
    }

    /// Requests of this connection that are not answered yet.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

impl hyper::service::Service<Request<Incoming>> for Requests {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, request: Request<Incoming>) -> Answering {
        // Begun here and not at the first poll, which never comes for a client that
        // closes right behind its request.
        let answer = tokio::spawn(self.router.clone().oneshot(request.map(Body::new)));
        self.open.fetch_add(1, Ordering::Relaxed);
        Answering {
            answer,
            is_answered: false,
            requests: self.clone(),
        }
    }
}

/// Waits for the task of a request.
pub(super) struct Answering {
    answer: JoinHandle<Result<Response<Body>, Infallible>>,
    is_answered: bool,
    requests: Requests,
}

impl Future for Answering {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Poll::Ready(answer) = Pin::new(&mut self.answer).poll(context) else {
            return Poll::Pending;
        };
        self.is_answered = true;
        Poll::Ready(answer.unwrap_or_else(|_| {
            // The panic itself is logged where panics are.
            self.requests.outside.answered(Unrouted::Panicked);
            Ok(Unrouted::Panicked.into_response())
        }))
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.requests.open.fetch_sub(1, Ordering::Relaxed);
        if !self.is_answered {
            self.requests.outside.hung_up();
        }
    }
}
