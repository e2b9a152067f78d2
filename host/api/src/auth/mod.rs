//! Who may post: tokens of vendors, from a file that is followed.
//!
//! ```text
//!   # vendor   SHA-256 of the token, hexadecimal   options
//!   vend-a     9f86d081884c7d659a2feaa0c55ad015…   expires=2027-06-30T00:00:00Z rate=200
//!   "vend b"   60303ae22b998861bce3b28f33eec1be…
//! ```
//!
//! Only digests are in the file, so that who reads it can't post. A token is 32
//! random bytes, for which a plain digest is enough: there is nothing to guess.

mod file;
mod token;

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use cdr_telemetry::followed::{Follow, Followed};
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

use crate::answer::{NoEntry, Refusal};

pub use file::{FileError, Line};
pub use token::Token;

/// SHA-256 of a token. Compared in constant time.
#[derive(Debug, Clone, Copy, Eq)]
pub(crate) struct TokenDigest([u8; 32]);

impl PartialEq for TokenDigest {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl std::hash::Hash for TokenDigest {
    // Keyed by the map's own random state, so what time a look-up takes says nothing
    // of the digests in it.
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl TokenDigest {
    fn of(token: &[u8]) -> Self {
        TokenDigest(Sha256::digest(token).into())
    }
}

/// What a token stands for.
pub(crate) struct Vendor {
    /// The only `vendor_id` that it may post.
    pub(crate) id: String,
    expires: Option<SystemTime>,
    rate: Option<NonZeroU32>,
    limiter: Option<DefaultDirectRateLimiter>,
}

impl Vendor {
    /// Counts a record against the rate of the token.
    pub(crate) fn may_post(&self) -> Result<(), Refusal> {
        let Some(limiter) = &self.limiter else {
            return Ok(());
        };
        limiter.check().map_err(|until| Refusal::RateLimited {
            wait: until.wait_time_from(DefaultClock::default().now()),
        })
    }
}

type Vendors = HashMap<TokenDigest, Arc<Vendor>>;

/// All tokens that count, as the file has them now.
#[derive(Clone)]
pub(crate) struct Tokens(Followed<Arc<Vendors>>);

/// The lines of a file of tokens.
///
/// # Errors
/// A line is wrong, and which.
pub fn lines(text: &str) -> Result<Vec<Line>, FileError> {
    file::parse(text)
}

/// What a file of tokens can be refused for.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// It can't be read.
    #[error("can't read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A line of it is wrong; then none of it counts.
    #[error("{}: {source}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Which, and what is wrong.
        source: FileError,
    },
}

impl Tokens {
    /// Reads the file and follows it on the current runtime. A change that can't be
    /// used is logged, and what counted before counts on.
    ///
    /// # Errors
    /// It can't be used now.
    pub(crate) fn follow(path: &Path) -> Result<Self, TokensError> {
        let follow = Follow {
            event: "tokens",
            files: vec![path.to_owned()],
        };
        let path = path.to_owned();
        // What of each token's rate is used up outlives a change of the file.
        let before = std::sync::Mutex::new(Arc::new(Vendors::new()));
        let read = move || {
            let mut before = before
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            let vendors = Arc::new(read(&path, &before)?);
            *before = vendors.clone();
            Ok::<_, TokensError>(vendors)
        };
        follow.begin(read).map(Tokens)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.current().len()
    }

    /// Whose token it is that a request carries.
    pub(crate) fn vendor(&self, headers: &HeaderMap) -> Result<Arc<Vendor>, Refusal> {
        let refused = |why| Refusal::Unauthorized { why };
        let mut all = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (all.next(), all.next()) else {
            return Err(refused(NoEntry::Missing));
        };
        let token = bearer(value.as_bytes()).ok_or(refused(NoEntry::Missing))?;
        let vendors = self.0.current();
        let vendor = vendors
            .get(&TokenDigest::of(token))
            .ok_or(refused(NoEntry::Unknown))?;
        if vendor
            .expires
            .is_some_and(|expires| expires <= SystemTime::now())
        {
            return Err(refused(NoEntry::Expired));
        }
        Ok(vendor.clone())
    }
}

/// The token in `Bearer TOKEN`; the scheme is case-insensitive (RFC 9110, 11.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty()).then_some(token)
}

fn read(path: &Path, before: &Vendors) -> Result<Vendors, TokensError> {
    let text = std::fs::read_to_string(path).map_err(|source| TokensError::Read {
        path: path.to_owned(),
        source,
    })?;
    let lines = file::parse(&text).map_err(|source| TokensError::Line {
        path: path.to_owned(),
        source,
    })?;
    Ok(lines
        .into_iter()
        .map(|line| {
            let digest = TokenDigest(line.digest);
            let same = before
                .get(&digest)
                .filter(|old| old.id == line.vendor && old.rate == line.rate);
            let vendor = match same {
                Some(old) if old.expires == line.expires => old.clone(),
                _ => Arc::new(Vendor {
                    id: line.vendor,
                    expires: line.expires,
                    rate: line.rate,
                    limiter: line.rate.map(limiter),
                }),
            };
            (digest, vendor)
        })
        .collect())
}

/// So many records a second, of which a second's worth may come at once.
fn limiter(rate: NonZeroU32) -> DefaultDirectRateLimiter {
    RateLimiter::direct(Quota::per_second(rate))
}
