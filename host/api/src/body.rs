//! Reading a body within its limits: bytes as they come and as they decode, the
//! time that its client takes, and what the host may hold.

use std::io;
use std::pin::Pin;
use std::time::Duration;

use async_compression::tokio::bufread::{GzipDecoder, ZstdDecoder};
use async_compression::zstd::DParameter;
use axum::body::{Body, BodyDataStream};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, EXPECT};
use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt, TryStreamExt};
use http_body_util::{LengthLimitError, Limited};
use tokio::io::AsyncReadExt;
use tokio::time::Instant;
use tokio_util::io::StreamReader;

use crate::answer::Refusal;
use crate::outstanding::Held;

/// How much of a refused body is read and thrown away, so that a client that is
/// still sending gets to read the answer instead of a reset connection.
const LINGER_BYTES: usize = 1 << 20;
/// And for how long.
const LINGER: Duration = Duration::from_secs(2);

/// Bytes that a decoder gives at a time.
const PIECE: usize = 16 << 10;
/// A compressed body may be that much longer than what it decodes to: frames and
/// checksums. More is neither text nor compressed.
const FRAMING: usize = 4 << 10;
/// What a decoder holds, beside the window of zstd, which is counted as it fills.
const GZIP_BYTES: usize = 64 << 10;
const ZSTD_BYTES: usize = 256 << 10;
/// The window that every decoder of zstd should support (RFC 8878, 3.1.1.1.2):
/// 8 MiB.
const ZSTD_WINDOW_LOG: u32 = 23;

/// How a body is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Identity,
    Gzip,
    Zstd,
}

impl Encoding {
    /// What `Content-Encoding` says. One encoding, not a chain of them.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, Refusal> {
        let mut all = headers.get_all(CONTENT_ENCODING).iter();
        let Some(value) = all.next() else {
            return Ok(Encoding::Identity);
        };
        let found = String::from_utf8_lossy(value.as_bytes());
        let known = match found.trim().to_ascii_lowercase().as_str() {
            "identity" | "" => Some(Encoding::Identity),
            "gzip" | "x-gzip" => Some(Encoding::Gzip),
            "zstd" => Some(Encoding::Zstd),
            _ => None,
        };
        match (known, all.next()) {
            (Some(encoding), None) => Ok(encoding),
            _ => Err(Refusal::ContentEncoding {
                found: found.chars().take(100).collect(),
            }),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Encoding::Identity => "text",
            Encoding::Gzip => "gzip",
            Encoding::Zstd => "zstd",
        }
    }
}

/// What a body may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes, decoded.
    pub(crate) bytes: usize,
    /// Time to wait for its client.
    pub(crate) time: Duration,
}

type Raw = futures::stream::MapErr<BodyDataStream, fn(axum::Error) -> io::Error>;

enum Source {
    Plain(Raw),
    Gzip(Box<GzipDecoder<StreamReader<Raw, Bytes>>>),
    Zstd(Box<ZstdDecoder<StreamReader<Raw, Bytes>>>),
}

/// A body that is being read, piece by piece.
pub(crate) struct Reading {
    source: Source,
    encoding: Encoding,
    limits: Limits,
    /// Bytes given so far.
    read: usize,
    /// Time left to wait for the client.
    left: Duration,
    /// What decoding holds.
    held: Held,
}

impl Reading {
    /// Begins to read; nothing of it is read when what is announced is too long, or
    /// when there is no room for a decoder.
    pub(crate) fn begin(
        headers: &HeaderMap,
        body: Body,
        encoding: Encoding,
        limits: Limits,
        mut held: Held,
    ) -> Result<Self, Refusal> {
        let announced = headers
            .get(CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.parse::<u64>().ok());
        let most = match encoding {
            Encoding::Identity => limits.bytes,
            Encoding::Gzip | Encoding::Zstd => limits.bytes.saturating_add(FRAMING),
        };
        if announced.is_some_and(|bytes| bytes > most as u64) {
            // Who waits to be told to go on has sent nothing.
            if !headers.contains_key(EXPECT) {
                linger(body);
            }
            return Err(Refusal::BodyTooLarge {
                limit: limits.bytes,
            });
        }
        let decoder = match encoding {
            Encoding::Identity => 0,
            Encoding::Gzip => GZIP_BYTES,
            Encoding::Zstd => ZSTD_BYTES,
        };
        if held.grow(decoder).is_err() {
            linger(body);
            return Err(Refusal::Full);
        }
        let raw = |body: Body| -> Raw {
            body.into_data_stream()
                .map_err(io::Error::other as fn(axum::Error) -> io::Error)
        };
        let limited = |body| StreamReader::new(raw(Body::new(Limited::new(body, most))));
        let source = match encoding {
            Encoding::Identity => Source::Plain(raw(body)),
            Encoding::Gzip => {
                let mut decoder = GzipDecoder::new(limited(body));
                decoder.multiple_members(true);
                Source::Gzip(Box::new(decoder))
            }
            Encoding::Zstd => {
                let window = DParameter::window_log_max(ZSTD_WINDOW_LOG);
                let mut decoder = ZstdDecoder::with_params(limited(body), &[window]);
                decoder.multiple_members(true);
                Source::Zstd(Box::new(decoder))
            }
        };
        Ok(Reading {
            source,
            encoding,
            limits,
            read: 0,
            left: limits.time,
            held,
        })
    }

    /// The next piece, decoded; none at the end. After a refusal there is no more:
    /// see [`refuse`](Self::refuse).
    pub(crate) async fn piece(&mut self) -> Result<Option<Bytes>, Refusal> {
        let began = Instant::now();
        let read = tokio::time::timeout(self.left, self.source.piece()).await;
        self.left = self.left.saturating_sub(began.elapsed());
        let piece = match read {
            Err(_) => {
                return Err(Refusal::BodyTimeout {
                    limit: self.limits.time,
                });
            }
            Ok(Err(error)) => return Err(self.failed(&error)),
            Ok(Ok(None)) => return Ok(None),
            Ok(Ok(Some(piece))) => piece,
        };
        if piece.len() > self.limits.bytes - self.read {
            return Err(self.too_large());
        }
        let window = 1 << ZSTD_WINDOW_LOG;
        let fills = self.encoding == Encoding::Zstd && self.read < window;
        if fills && self.held.grow(piece.len().min(window - self.read)).is_err() {
            return Err(Refusal::Full);
        }
        self.read += piece.len();
        // A decoder has much to give from little, and others wait for this thread.
        tokio::task::consume_budget().await;
        Ok(Some(piece))
    }

    /// Lets the client send on for a while, and gives the refusal back.
    pub(crate) fn refuse(self, refusal: Refusal) -> Refusal {
        let raw = match self.source {
            Source::Plain(raw) => raw,
            Source::Gzip(decoder) => decoder.into_inner().into_inner(),
            Source::Zstd(decoder) => decoder.into_inner().into_inner(),
        };
        // A client that did not send in time, or broke off, is not waited for.
        if !matches!(refusal, Refusal::BodyTimeout { .. } | Refusal::BodyBroken) {
            discard(raw);
        }
        refusal
    }

    fn too_large(&self) -> Refusal {
        Refusal::BodyTooLarge {
            limit: self.limits.bytes,
        }
    }

    fn failed(&self, error: &io::Error) -> Refusal {
        // The body's own errors are wrapped in those of axum, a decoder's are not.
        let mut source = error
            .get_ref()
            .and_then(|error| error.downcast_ref::<axum::Error>())
            .map(|error| error as &dyn std::error::Error);
        if source.is_none() {
            return Refusal::BodyUndecodable {
                encoding: self.encoding.name(),
            };
        }
        while let Some(error) = source {
            if error.is::<LengthLimitError>() {
                return self.too_large();
            }
            source = error.source();
        }
        Refusal::BodyBroken
    }
}

impl Source {
    async fn piece(&mut self) -> io::Result<Option<Bytes>> {
        let mut piece = BytesMut::new();
        match self {
            Source::Plain(raw) => return raw.next().await.transpose(),
            Source::Gzip(decoder) => {
                piece.reserve(PIECE);
                decoder.read_buf(&mut piece).await?
            }
            Source::Zstd(decoder) => {
                piece.reserve(PIECE);
                decoder.read_buf(&mut piece).await?
            }
        };
        Ok((!piece.is_empty()).then(|| piece.freeze()))
    }
}

/// Reads a body whole; its bytes are held, and come with it.
pub(crate) async fn read(mut reading: Reading, mut held: Held) -> Result<(Bytes, Held), Refusal> {
    // Copied: the pieces are parts of the connection's larger buffers, which a
    // record that waits for its acknowledgement would hold on to.
    let mut whole = Vec::new();
    loop {
        match reading.piece().await {
            Ok(None) => break,
            Ok(Some(piece)) if held.grow(piece.len()).is_ok() => {
                whole.extend_from_slice(&piece);
            }
            Ok(Some(_)) => return Err(reading.refuse(Refusal::Full)),
            Err(refusal) => return Err(reading.refuse(refusal)),
        }
    }
    whole.shrink_to_fit();
    Ok((Bytes::from(whole), held))
}

/// Reads on in the background and throws away, within bounds.
pub(crate) fn linger(body: Body) {
    discard(body.into_data_stream());
}

fn discard<E: Send + 'static>(raw: impl Stream<Item = Result<Bytes, E>> + Send + 'static) {
    let mut raw: Pin<Box<_>> = Box::pin(raw);
    tokio::spawn(tokio::time::timeout(LINGER, async move {
        let mut read = 0;
        while read < LINGER_BYTES
            && let Some(Ok(piece)) = raw.next().await
        {
            read += piece.len();
        }
    }));
}
