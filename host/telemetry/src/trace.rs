//! The trace that a request or a record belongs to: W3C Trace Context
//! (<https://www.w3.org/TR/trace-context/>), as a value of 25 bytes.
//!
//! A host takes up what a client sends in `traceparent`, or begins a trace, and
//! goes on under a span of its own ([`TraceContext::child`]). Logs carry both ids
//! as `trace_id` and `span_id`; Kafka carries the whole in a header of the same
//! name. `tracestate` is not passed on: it is free text of clients.

use std::fmt;

use uuid::Uuid;

/// Name of the HTTP and Kafka header.
pub const TRACEPARENT: &str = "traceparent";

/// Length of version 00: `00-<32>-<16>-<2>`.
const LENGTH: usize = 55;

/// A trace, the span in it, and whether its caller records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    trace: [u8; 16],
    span: [u8; 8],
    flags: u8,
}

impl TraceContext {
    /// Begins a trace that nobody records as yet.
    pub fn begin() -> Self {
        TraceContext {
            trace: *Uuid::new_v4().as_bytes(),
            span: random_span(),
            flags: 0,
        }
    }

    /// Reads a `traceparent`. None where the specification has it ignored: wrong
    /// lengths, upper-case or foreign digits, version `ff`, ids of all zeros, and
    /// anything behind the flags of version 00 (later versions may append).
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        if bytes.len() < LENGTH || [2, 35, 52].iter().any(|at| bytes[*at] != b'-') {
            return None;
        }
        let mut version = [0];
        let mut parsed = TraceContext {
            trace: [0; 16],
            span: [0; 8],
            flags: 0,
        };
        let mut flags = [0];
        unhex(&bytes[..2], &mut version)?;
        unhex(&bytes[3..35], &mut parsed.trace)?;
        unhex(&bytes[36..52], &mut parsed.span)?;
        unhex(&bytes[53..55], &mut flags)?;
        let may_go_on = version[0] > 0 && bytes.get(LENGTH) == Some(&b'-');
        let is_sound = version[0] != 0xff
            && (bytes.len() == LENGTH || may_go_on)
            && parsed.trace != [0; 16]
            && parsed.span != [0; 8];
        // Of the flags of later versions only `sampled` is known to mean the same.
        parsed.flags = flags[0] & 1;
        is_sound.then_some(parsed)
    }

    /// The same trace, in a new span of it.
    #[must_use]
    pub fn child(self) -> Self {
        TraceContext {
            span: random_span(),
            ..self
        }
    }

    /// 32 lower-case hexadecimal digits.
    pub fn trace_id(&self) -> String {
        hex(&self.trace)
    }

    /// 16 lower-case hexadecimal digits.
    pub fn span_id(&self) -> String {
        hex(&self.span)
    }
}

/// As `traceparent` has it, version 00.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "00-{}-{}-{:02x}",
            hex(&self.trace),
            hex(&self.span),
            self.flags
        )
    }
}

fn random_span() -> [u8; 8] {
    let mut span = [0; 8];
    // The last bytes of a UUIDv4 are random but for two bits, so never all zero.
    span.copy_from_slice(&Uuid::new_v4().as_bytes()[8..]);
    span
}

fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// Lower-case digits only, as the specification has it.
fn unhex(digits: &[u8], into: &mut [u8]) -> Option<()> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    for (pair, byte) in digits.chunks_exact(2).zip(into) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn the_example_of_the_specification_is_read_and_written() {
        let context = TraceContext::parse(EXAMPLE).expect("well-formed");
        assert_eq!(context.to_string(), EXAMPLE);
        assert_eq!(context.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(context.span_id(), "00f067aa0ba902b7");
        let child = context.child();
        assert_eq!(child.trace_id(), context.trace_id());
        assert_ne!(child.span_id(), context.span_id());
        assert!(child.to_string().ends_with("-01"));
    }

    #[test]
    fn what_the_specification_ignores_is_ignored() {
        for text in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01x",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01x",
            "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "é0-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
        ] {
            assert_eq!(TraceContext::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_later_version_goes_on_as_version_00() {
        let later = "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03-what-comes";
        let context = TraceContext::parse(later).expect("may be taken up");
        assert_eq!(context.to_string(), EXAMPLE);
    }

    #[test]
    fn traces_that_begin_here_are_sound_and_differ() {
        let (one, other) = (TraceContext::begin(), TraceContext::begin());
        assert_ne!(one, other);
        assert_eq!(TraceContext::parse(&one.to_string()), Some(one));
    }
}
