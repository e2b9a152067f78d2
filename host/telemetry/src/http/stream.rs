//! The bytes of a connection: what was read to tell HTTP/1.1 from 2 comes first
//! again, and where hyper answers a head by itself, with an empty body, the answer
//! gets the one shape that all errors have.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use super::request::{Outside, Unrouted};

/// The first bytes of HTTP/2, by which a client tells that it knows the server
/// speaks it (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A stream whose beginning was read.
pub(super) struct Stream<S> {
    inner: S,
    begun: Vec<u8>,
    /// Bytes of `begun` that were given out.
    given: usize,
    outside: Arc<dyn Outside>,
    /// What is written instead of hyper's own answer, and how far it is.
    instead: Option<(Vec<u8>, usize)>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream<S> {
    /// One of which nothing was read.
    pub(super) fn new(inner: S, outside: Arc<dyn Outside>) -> Self {
        Stream {
            inner,
            begun: Vec::new(),
            given: 0,
            outside,
            instead: None,
        }
    }

    /// Reads as much as tells whether it is HTTP/2. An error: it ended before.
    pub(super) async fn is_http2(&mut self) -> io::Result<bool> {
        loop {
            let known = self.begun.len().min(PREFACE.len());
            if self.begun[..known] != PREFACE[..known] {
                return Ok(false);
            }
            if known == PREFACE.len() {
                return Ok(true);
            }
            let mut some = [0; PREFACE.len()];
            let read = self.inner.read(&mut some[known..]).await?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.begun.extend_from_slice(&some[known..known + read]);
        }
    }
}

/// hyper's own answer to a head: one of three statuses, and nothing in it. No
/// router here answers those with an empty body.
fn of_hyper(bytes: &[u8]) -> Option<Unrouted> {
    let status = bytes
        .strip_prefix(b"HTTP/1.1 ")
        .or_else(|| bytes.strip_prefix(b"HTTP/1.0 "))?
        .get(..3)?;
    let what = Unrouted::by_status(status)?;
    let is_empty = bytes.ends_with(b"\r\n\r\n")
        && bytes
            .windows(b"\r\ncontent-length: 0\r\n".len())
            .any(|window| window == b"\r\ncontent-length: 0\r\n");
    is_empty.then_some(what)
}

impl<S: AsyncRead + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = &mut *self;
        let rest = &stream.begun[stream.given..];
        if rest.is_empty() {
            return Pin::new(&mut stream.inner).poll_read(context, into);
        }
        let some = rest.len().min(into.remaining());
        into.put_slice(&rest[..some]);
        stream.given += some;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let stream = &mut *self;
        if stream.instead.is_none()
            && let Some(what) = of_hyper(bytes)
        {
            stream.outside.answered(what);
            stream.instead = Some((what.on_the_wire(), 0));
        }
        let Some((wire, done)) = &mut stream.instead else {
            return Pin::new(&mut stream.inner).poll_write(context, bytes);
        };
        while *done < wire.len() {
            let written = ready!(Pin::new(&mut stream.inner).poll_write(context, &wire[*done..]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *done += written;
        }
        // It is the last that hyper has to say.
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
