//! The same answers without WebAssembly: for unit tests, for benchmarks.

use crate::component::telecom::cdr::types as wit;
use crate::{Admission, Normalizer, ReceivedAt, Rejection, Violation};

pub use wit::{Batch, Blobs, Manifest, Outcome};

/// Configures a normalizer from a JSON text, as a host would.
///
/// # Errors
/// The sentence that an operator would be shown.
pub fn configure<N: Normalizer>(settings: &str) -> Result<N, String> {
    crate::guest::configure(settings)
}

/// What the component would say of itself.
pub fn manifest<N: Normalizer>() -> Manifest {
    crate::guest::manifest::<N>()
}

/// Reads and admits one payload.
///
/// # Errors
/// What the vendor would be told.
pub fn admit_one<N: Normalizer>(normalizer: &N, payload: &[u8]) -> Result<Admission, Violation> {
    normalizer.admit(&N::parse(payload)?)
}

/// Reads and normalizes one payload, received at so many milliseconds since
/// the Unix epoch.
///
/// # Errors
/// Why it makes no row.
pub fn normalize_one<'a, N: Normalizer>(
    normalizer: &N,
    payload: &'a [u8],
    received_at_ms: i64,
) -> Result<N::Row<'a>, Rejection> {
    normalizer.normalize(N::parse(payload)?, ReceivedAt::from_millis(received_at_ms))
}

/// A batch of payloads, all received at the same time.
pub fn batch<'a>(payloads: impl IntoIterator<Item = &'a [u8]>, received_at_ms: i64) -> Batch {
    let mut blobs = Blobs {
        offsets: vec![0],
        data: Vec::new(),
    };
    for payload in payloads {
        blobs.data.extend_from_slice(payload);
        blobs.offsets.push(blobs.data.len() as u32);
    }
    Batch {
        received_at: vec![received_at_ms; blobs.offsets.len() - 1],
        payloads: blobs,
    }
}

/// Normalizes a batch to columns, exactly as the component does.
pub fn normalize<N: Normalizer>(normalizer: &N, batch: &Batch) -> Outcome {
    crate::guest::normalize(normalizer, batch)
}
