//! Signatures of normalizers, as minisign makes them.
//!
//! A registry folder is often a shared volume: whoever can write there decides
//! what runs. With trusted keys, only what was signed with one of them does.
//! Legacy signatures (of the file itself, not of its hash) are not accepted.

use minisign_verify::{PublicKey, Signature};

/// The keys of which one must have signed a file. None: signatures are not
/// looked at.
#[derive(Debug, Clone, Default)]
pub struct TrustedKeys {
    keys: Vec<(String, PublicKey)>,
}

/// Keys that are none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Text that is no key.
    #[error(
        "{text:?} is no minisign public key: expected the second line of a minisign.pub, \
         56 characters that begin with RW"
    )]
    NoKey {
        /// The text, cut.
        text: String,
    },
    /// Text without a key in it: whoever set it wanted signatures to be checked.
    #[error("there is no key in it; leave it out if signatures are not to be checked")]
    Empty,
}

/// A file is not signed as it must be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// There is no signature.
    #[error(
        "it is not signed: with NORMALIZER_TRUSTED_KEYS set, FILE.wasm.minisig must lie beside it \
         (`cdr plugin sign` or `minisign -S` make it)"
    )]
    Unsigned,
    /// What lies there is no signature.
    #[error("its signature can't be read: {detail}")]
    Unreadable {
        /// Why.
        detail: String,
    },
    /// No trusted key made it, or not of this file.
    #[error("its signature is not by a trusted key, or not of this file ({detail}); trusted are {}", trusted.join(", "))]
    Untrusted {
        /// What the last key said.
        detail: String,
        /// The trusted keys.
        trusted: Vec<String>,
    },
}

impl TrustedKeys {
    /// Of public keys in base64, separated by commas or white space. The empty text is
    /// none: signatures are not looked at.
    ///
    /// # Errors
    /// One of them is none, or there is none in a text that is not empty.
    pub fn new(text: &str) -> Result<Self, KeyError> {
        let keys: Vec<_> = text
            .split(|letter: char| letter == ',' || letter.is_whitespace())
            .filter(|text| !text.is_empty())
            .map(|text| match PublicKey::from_base64(text) {
                Ok(key) => Ok((text.to_owned(), key)),
                Err(_) => Err(KeyError::NoKey {
                    text: crate::guest::shorten(text, 80),
                }),
            })
            .collect::<Result<_, _>>()?;
        if keys.is_empty() && !text.is_empty() {
            return Err(KeyError::Empty);
        }
        Ok(Self { keys })
    }

    /// Whether signatures are looked at.
    pub fn is_on(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Checks a file; gives the key that signed it. None when signatures are not
    /// looked at.
    ///
    /// # Errors
    /// It is not signed, or not by a trusted key.
    pub fn check(
        &self,
        file: &[u8],
        signature: Option<&str>,
    ) -> Result<Option<&str>, SignatureError> {
        if !self.is_on() {
            return Ok(None);
        }
        let signature = signature.ok_or(SignatureError::Unsigned)?;
        let signature =
            Signature::decode(signature).map_err(|error| SignatureError::Unreadable {
                detail: error.to_string(),
            })?;
        let mut detail = String::new();
        for (text, key) in &self.keys {
            match key.verify(file, &signature, false) {
                Ok(()) => return Ok(Some(text)),
                Err(error) => detail = error.to_string(),
            }
        }
        Err(SignatureError::Untrusted {
            detail,
            trusted: self.keys.iter().map(|(text, _)| text.clone()).collect(),
        })
    }
}
