//! One connection, from its first byte to its last: TLS, then HTTP/1.1 or
//! HTTP/2 (by ALPN with TLS, by the client's preface without), within the limits.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;

use super::request::{Outside, Requests};
use super::serve::ServeOptions;
use super::stream::Stream;
use crate::shutdown::Shutdown;

/// The least that hyper takes as the limit of its buffer, and enough for bodies to
/// arrive in large pieces.
const BUFFER: usize = 64 << 10;
/// What an HTTP/2 client may send of a body ahead of its being read, for a stream
/// and for all of them. Held outside every other bound, so kept small.
const STREAM_WINDOW: u32 = 128 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;
/// After this silence an HTTP/2 client is asked whether it is still there, and TCP
/// asks the same of every client.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// What all connections of a server share.
pub(super) struct Shared {
    pub(super) router: Router,
    pub(super) options: ServeOptions,
    pub(super) shutdown: Shutdown,
    pub(super) cut: CancellationToken,
}

/// Serves it to its end. How it ends is the client's business: hung up, too slow.
pub(super) async fn serve(shared: Arc<Shared>, stream: TcpStream) {
    // Answers are small and whole; waiting to fill a segment only delays them.
    let _ = stream.set_nodelay(true);
    // Finds out clients that are gone without a word.
    let keep_alive = TcpKeepalive::new()
        .with_time(KEEP_ALIVE)
        .with_interval(KEEP_ALIVE);
    let _ = SockRef::from(&stream).set_tcp_keepalive(&keep_alive);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(shared.options.write_timeout));
    let stream = Box::pin(stream);
    let Some(tls) = &shared.options.tls else {
        return speak(&shared, stream, None).await;
    };
    let handshake = tokio_rustls::TlsAcceptor::from(tls.current()).accept(stream);
    let shaken = tokio::select! {
        shaken = tokio::time::timeout(shared.options.head_timeout, handshake) => shaken,
        () = shared.shutdown.requested() => return,
    };
    match shaken {
        Ok(Ok(stream)) => {
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            speak(&shared, stream, Some(is_http2)).await;
        }
        Ok(Err(error)) => tracing::debug!(event = "tls_refused", "a TLS handshake failed: {error}"),
        Err(_) => tracing::debug!(event = "tls_overdue", "a TLS handshake took too long"),
    }
}

/// Speaks HTTP; which one is told, or found out.
async fn speak<S>(shared: &Arc<Shared>, stream: S, is_http2: Option<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let outside: Arc<dyn Outside> = shared.options.outside.clone();
    let mut stream = Stream::new(stream, outside.clone());
    let is_http2 = match is_http2 {
        Some(is_http2) => is_http2,
        None => tokio::select! {
            found = tokio::time::timeout(shared.options.head_timeout, stream.is_http2()) => {
                let Ok(Ok(found)) = found else { return };
                found
            }
            () = shared.shutdown.requested() => return,
        },
    };
    let requests = Requests::new(shared.router.clone(), outside);
    if is_http2 {
        http_2(shared, stream, requests).await;
    } else {
        http_1(shared, stream, requests).await;
    }
}

async fn http_1<S>(shared: &Shared, stream: Stream<S>, requests: Requests)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let options = &shared.options;
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(options.head_timeout)
        .max_header_size(options.max_head_bytes)
        .max_buf_size(BUFFER.max(options.max_head_bytes))
        .serve_connection(TokioIo::new(stream), requests);
    let mut served = std::pin::pin!(served);
    tokio::select! {
        _ = served.as_mut() => return,
        () = shared.shutdown.requested() => served.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        _ = served => {}
        () = shared.cut.cancelled() => {}
    }
}

async fn http_2<S>(shared: &Shared, stream: Stream<S>, requests: Requests)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let options = &shared.options;
    let served = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(options.max_streams)
        .max_header_list_size(u32::try_from(options.max_head_bytes).unwrap_or(u32::MAX))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .serve_connection(TokioIo::new(stream), requests.clone());
    let mut served = std::pin::pin!(served);
    tokio::select! {
        _ = served.as_mut() => return,
        () = shared.shutdown.requested() => {}
        () = idle(&requests, options.head_timeout) => {}
    }
    served.as_mut().graceful_shutdown();
    tokio::select! {
        _ = served.as_mut() => {}
        () = shared.cut.cancelled() => {}
        // A client that answers pings and ends nothing.
        () = idle(&requests, options.head_timeout) => {}
    }
}

/// Waits until there was nothing to answer for as long as `patience`.
async fn idle(requests: &Requests, patience: Duration) {
    let step = patience / 8;
    let mut quiet = 0;
    while quiet < 8 {
        tokio::time::sleep(step).await;
        quiet = if requests.open() == 0 { quiet + 1 } else { 0 };
    }
}
