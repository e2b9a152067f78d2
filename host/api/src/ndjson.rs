//! Many records in one request, one a line, each taken in as soon as it is read.
//!
//! ```text
//!   body ─► line ─► taken in ─► … ─► outcome ─┐   one result line a record, in order;
//!           line ─► refused ─────────────────►├─► 202 if every record was acknowledged,
//!           line ─► taken in ─► … ─► outcome ─┘   207 otherwise
//! ```
//!
//! A line that is refused stops no other. What ends the request (its limits, its
//! time, a body that breaks off) is answered in the shape of all errors, and says
//! how many lines were taken in before.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use serde::Serialize;
use tokio::time::Instant;
use tokio_util::codec::{AnyDelimiterCodec, AnyDelimiterCodecError, Decoder};
use utoipa::ToSchema;

use crate::answer::{Code, ErrorBody, Refusal};
use crate::body::Reading;
use crate::outstanding::Held;
use crate::post::{log, settled};
use crate::record::{Accepted, Origin, Outcome};
use crate::routes::Shared;

/// Records of one request that may be outstanding at a time; then its body is read
/// on as they are settled, so that one large request does not fill the bound of all.
const WINDOW: usize = 1000;

/// The result of a line.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LineResult)]
pub(crate) struct LineBody<'a> {
    /// Which line of the body, from 1; blank lines count, and have no result.
    line: usize,
    /// What the answer would have been, had the record come alone.
    #[schema(example = 202)]
    status: u16,
    /// The record's own, if it was acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    raw_id: Option<String>,
    /// Why it was not.
    #[serde(flatten)]
    error: Option<ErrorBody<'a>>,
}

/// A line whose record was taken in, or was refused at once.
enum Begun {
    Taken { outcome: Outcome, deadline: Instant },
    Refused(Refusal),
}

/// One request.
struct Batch<'a> {
    shared: &'a Arc<Shared>,
    origin: &'a Origin,
    begun: VecDeque<(usize, Begun)>,
    /// Result lines.
    results: Vec<u8>,
    /// What results hold.
    held: Held,
    /// Lines so far, blank ones too.
    lines: usize,
    /// Records so far.
    records: usize,
    /// Whether every result so far is a 202.
    all_accepted: bool,
    /// The longest time that a refused record asks for.
    retry_after: Option<u64>,
}

/// Reads, takes in and answers.
pub(crate) async fn many(
    shared: &Arc<Shared>,
    mut reading: Reading,
    origin: &Origin,
) -> Result<Response, Refusal> {
    let mut batch = Batch {
        shared,
        origin,
        begun: VecDeque::new(),
        results: Vec::new(),
        held: shared.intake.outstanding.holding(),
        lines: 0,
        records: 0,
        all_accepted: true,
        retry_after: None,
    };
    let mut lines = Lines::new(shared.one.bytes);
    // What a line may take while it is read, by whoever sends it.
    if batch.held.grow(shared.one.bytes).is_err() {
        return Err(reading.refuse(Refusal::Full));
    }
    loop {
        let piece = match reading.piece().await {
            Ok(piece) => piece,
            Err(why) => return Err(reading.refuse(batch.unfinished(why, batch.lines))),
        };
        let is_last = piece.is_none();
        lines.feed(piece);
        while let Some(line) = lines.next(is_last) {
            if let Err(why) = batch.line(line).await {
                return Err(reading.refuse(why));
            }
        }
        if is_last {
            break;
        }
    }
    if batch.records == 0 {
        return Err(Refusal::NoRecords);
    }
    // What decoding and cutting held is free while the last records are settled.
    drop((reading, lines));
    Ok(batch.answer().await)
}

impl Batch<'_> {
    /// One line; an error ends the request.
    async fn line(&mut self, line: Line) -> Result<(), Refusal> {
        self.lines += 1;
        if matches!(&line, Line::Whole(line) if line.trim_ascii().is_empty()) {
            return Ok(());
        }
        let limit = self.shared.max_lines;
        if self.records == limit {
            return Err(self.unfinished(Refusal::TooManyLines { limit }, self.lines - 1));
        }
        while self.begun.len() >= WINDOW {
            self.settle_one().await;
        }
        let begun = match line {
            Line::Whole(payload) => self.take(payload),
            Line::TooLong => Err(self.shared.intake.counted(Refusal::LineTooLarge {
                limit: self.shared.one.bytes,
            })),
        };
        let begun =
            match begun {
                Ok(outcome) => Begun::Taken {
                    outcome,
                    deadline: Instant::now() + self.shared.answer_timeout,
                },
                // Nothing was taken in, and the rest would fare no better.
                Err(
                    why @ (Refusal::Full | Refusal::RateLimited { .. } | Refusal::ShuttingDown),
                ) if self.records == 0 => return Err(why),
                Err(why) => {
                    log(self.shared, &why, self.origin.trace);
                    Begun::Refused(why)
                }
            };
        self.records += 1;
        self.begun.push_back((self.lines, begun));
        Ok(())
    }

    fn take(&self, payload: Bytes) -> Result<Outcome, Refusal> {
        let intake = &self.shared.intake;
        let mut held = intake.outstanding.holding();
        held.grow(payload.len())
            .map_err(|_| intake.counted(Refusal::Full))?;
        intake.take(payload, held, self.origin)
    }

    /// Waits for the oldest record and writes its result.
    async fn settle_one(&mut self) {
        let Some((line, begun)) = self.begun.pop_front() else {
            return;
        };
        let settled = match begun {
            Begun::Taken { outcome, deadline } => {
                settled(self.shared, outcome, deadline, self.origin.trace).await
            }
            Begun::Refused(why) => Err(why),
        };
        let before = self.results.len();
        let body = match &settled {
            Ok(Accepted { key }) => LineBody {
                line,
                status: StatusCode::ACCEPTED.as_u16(),
                raw_id: Some(key.clone()),
                error: None,
            },
            Err(why) => {
                self.all_accepted = false;
                self.retry_after = self.retry_after.max(why.retry_after());
                LineBody {
                    line,
                    status: why.status().as_u16(),
                    raw_id: None,
                    error: Some(why.body()),
                }
            }
        };
        // Into memory, of strings and numbers: it can't fail.
        let _ = serde_json::to_writer(&mut self.results, &body);
        self.results.push(b'\n');
        self.held.grow_anyway(self.results.len() - before);
    }

    async fn answer(mut self) -> Response {
        while !self.begun.is_empty() {
            self.settle_one().await;
        }
        let (status, code) = if self.all_accepted {
            (StatusCode::ACCEPTED, Code("accepted"))
        } else {
            (StatusCode::MULTI_STATUS, Code("mixed"))
        };
        let mut response = (status, std::mem::take(&mut self.results)).into_response();
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-ndjson"),
        );
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response.extensions_mut().insert(code);
        response
    }

    /// What ends the request after so many lines.
    fn unfinished(&self, why: Refusal, after: usize) -> Refusal {
        if self.records == 0 {
            return why;
        }
        Refusal::Unfinished {
            after,
            why: Box::new(why),
        }
    }
}

/// A line of the body, without its end.
enum Line {
    Whole(Bytes),
    TooLong,
}

/// Cuts what comes into lines.
struct Lines {
    codec: AnyDelimiterCodec,
    rest: BytesMut,
    most: usize,
}

impl Lines {
    fn new(most: usize) -> Self {
        Lines {
            // One more, for the CR of clients that end lines with CR LF.
            codec: AnyDelimiterCodec::new_with_max_length(b"\n".to_vec(), Vec::new(), most + 1),
            rest: BytesMut::new(),
            most,
        }
    }

    fn feed(&mut self, piece: Option<Bytes>) {
        if let Some(piece) = piece {
            self.rest.extend_from_slice(&piece);
        }
    }

    /// The next line that is there whole; at the end of the body, what is left too.
    fn next(&mut self, is_last: bool) -> Option<Line> {
        let line = if is_last {
            self.codec.decode_eof(&mut self.rest)
        } else {
            self.codec.decode(&mut self.rest)
        };
        match line {
            Ok(None) => None,
            Ok(Some(line)) => {
                let line = line.strip_suffix(b"\r").unwrap_or(&line);
                if line.len() > self.most {
                    return Some(Line::TooLong);
                }
                // Copied: a record that waits for its acknowledgement would hold on to
                // the whole piece.
                Some(Line::Whole(Bytes::copy_from_slice(line)))
            }
            Err(AnyDelimiterCodecError::MaxChunkLengthExceeded | AnyDelimiterCodecError::Io(_)) => {
                Some(Line::TooLong)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Lines as the codec finds them in pieces of these lengths; None: too long.
    fn cut(text: &[u8], pieces: &[usize], most: usize) -> Vec<Option<Vec<u8>>> {
        let mut lines = Lines::new(most);
        let mut found = Vec::new();
        let mut rest = text;
        let mut pieces = pieces.iter().copied().chain(std::iter::repeat(7));
        loop {
            let piece = pieces.next().unwrap_or(1).clamp(1, rest.len().max(1));
            let is_last = rest.is_empty();
            let (head, tail) = rest.split_at(piece.min(rest.len()));
            lines.feed((!is_last).then(|| Bytes::copy_from_slice(head)));
            rest = tail;
            while let Some(line) = lines.next(is_last) {
                found.push(match line {
                    Line::Whole(line) => Some(line.to_vec()),
                    Line::TooLong => None,
                });
            }
            if is_last {
                return found;
            }
        }
    }

    /// The same by splitting the whole text.
    fn split(text: &[u8], most: usize) -> Vec<Option<Vec<u8>>> {
        let mut lines: Vec<_> = text.split(|byte| *byte == b'\n').collect();
        if lines.last().is_some_and(|line| line.is_empty()) {
            lines.pop();
        }
        lines
            .into_iter()
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
            .map(|line| (line.len() <= most).then(|| line.to_vec()))
            .collect()
    }

    proptest! {
        #[test]
        fn lines_are_the_same_however_they_come(
            text in proptest::collection::vec(prop_oneof![2 => Just(b'\n'), 1 => Just(b'\r'), 6 => Just(b'x')], 0..200),
            pieces in proptest::collection::vec(1usize..20, 0..20),
        ) {
            prop_assert_eq!(cut(&text, &pieces, 5), split(&text, 5));
        }
    }
}
