//! The reference normalizer under another name, in any version and with other
//! columns, for the tests of swaps: one build, whose file is [`patched`] to be what
//! a test needs.
//!
//! It reads what it is from a text of fixed length in its own data: version, then
//! a change of a column each, as in `1.2.0 +roaming:category -imei duration_s=text`,
//! `reject` for a version that rejects everything, `poison` for one that panics over
//! some payloads, `hang` for one that never comes to an end.

mod change;
#[cfg(target_family = "wasm")]
mod guest;

pub use change::{Change, FAST_POISON, POISON, Spec};

/// Begins the text in the file.
const MARK: &[u8; 16] = b"@@cdr-versions@@";

/// Bytes of the text, the mark included.
const LENGTH: usize = 256;

/// What a build is before it is patched.
#[cfg(target_family = "wasm")]
static TEXT: [u8; LENGTH] = {
    let mut text = [b' '; LENGTH];
    let mut at = 0;
    while at < MARK.len() {
        text[at] = MARK[at];
        at += 1;
    }
    let version = b"1.0.0";
    let mut letter = 0;
    while letter < version.len() {
        text[at + letter] = version[letter];
        letter += 1;
    }
    text
};

/// The file with another text, as in `1.1.0 +roaming:category`.
///
/// # Panics
/// The file is not a build of this crate, or the text is longer than fits.
pub fn patched(wasm: &[u8], text: &str) -> Vec<u8> {
    let at = wasm
        .windows(MARK.len())
        .position(|window| window == MARK)
        .expect("a build of cdr-versions");
    let room = LENGTH - MARK.len();
    assert!(text.len() <= room, "at most {room} bytes: {text}");
    let mut patched = wasm.to_vec();
    let place = &mut patched[at + MARK.len()..at + LENGTH];
    place.fill(b' ');
    place[..text.len()].copy_from_slice(text.as_bytes());
    patched
}
