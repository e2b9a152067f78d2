//! Reading a body within its limits: bytes, checked against what is announced
//! and against what comes, and time for all of it.

use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, EXPECT};
use bytes::Bytes;
use http_body_util::BodyExt;

use crate::answer::Refusal;

/// How much of a refused body is read and thrown away, so that a client that is
/// still sending gets to read the answer instead of a reset connection.
const LINGER_BYTES: usize = 1 << 20;
/// And for how long.
const LINGER: Duration = Duration::from_secs(2);

/// Reads a body of at most `max` bytes within `timeout`.
pub(crate) async fn read(
    headers: &HeaderMap,
    mut body: Body,
    max: usize,
    timeout: Duration,
) -> Result<Bytes, Refusal> {
    let announced = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.parse::<u64>().ok());
    let too_large = Refusal::BodyTooLarge { limit: max };
    if announced.is_some_and(|bytes| bytes > max as u64) {
        // Who waits to be told to go on has sent nothing.
        if !headers.contains_key(EXPECT) {
            linger(body);
        }
        return Err(too_large);
    }
    let expected = announced.and_then(|bytes| usize::try_from(bytes).ok());
    // Copied: the frames are parts of the connection's larger buffers, which a
    // record that waits for its acknowledgement would hold on to.
    let mut whole = Vec::with_capacity(expected.unwrap_or(0));
    let reading = async {
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| Refusal::BodyBroken)?.into_data() else {
                continue;
            };
            if data.len() > max - whole.len() {
                return Err(too_large.clone());
            }
            whole.extend_from_slice(&data);
        }
        Ok(())
    };
    match tokio::time::timeout(timeout, reading).await {
        Ok(Ok(())) => Ok(Bytes::from(whole)),
        Ok(Err(refusal)) => {
            if refusal == too_large {
                linger(body);
            }
            Err(refusal)
        }
        Err(_) => Err(Refusal::BodyTimeout { limit: timeout }),
    }
}

/// Reads on in the background and throws away, within bounds.
pub(crate) fn linger(mut body: Body) {
    tokio::spawn(tokio::time::timeout(LINGER, async move {
        let mut read = 0;
        while read < LINGER_BYTES
            && let Some(Ok(frame)) = body.frame().await
        {
            read += frame.data_ref().map_or(0, Bytes::len);
        }
    }));
}
