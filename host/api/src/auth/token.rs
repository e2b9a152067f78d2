//! A token: made, shown once, kept as a digest.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

/// By which people, and scanners for leaked secrets, know one.
const PREFIX: &str = "cdr_";

/// A new token of 32 random bytes. Debug output does not show it.
pub struct Token(String);

impl Token {
    /// Makes one with the system's random numbers.
    ///
    /// # Errors
    /// The system has none.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Token(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))))
    }

    /// The token itself, for its vendor.
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// Its SHA-256, for the file.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}
