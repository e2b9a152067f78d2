//! Where ClickHouse is, who asks, and how long an answer may take.

use std::{fmt, time::Duration};

use http::HeaderValue;
use url::Url;

use crate::schema::is_identifier;

/// How to reach ClickHouse. `Debug` shows neither the password nor credentials
/// in the URL.
#[derive(Clone)]
pub struct StoreConfig {
    /// The HTTP interface, as in `http://localhost:8123`.
    pub url: String,
    /// The user.
    pub user: String,
    /// The user's password; empty for none.
    pub password: Password,
    /// The database of the table: letters, digits, `_` and `-`.
    pub database: String,
    /// The table: letters, digits, `_` and `-`.
    pub table: String,
    /// For a connection to be made.
    pub connect_timeout: Duration,
    /// For an insert, from the first byte sent to the end of the answer.
    pub insert_timeout: Duration,
    /// For a query, in the same way.
    pub query_timeout: Duration,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            url: "http://localhost:8123".into(),
            user: "default".into(),
            password: Password::default(),
            database: "telecom".into(),
            table: "cdr_records".into(),
            connect_timeout: Duration::from_secs(5),
            // As long as ClickHouse itself waits on a socket.
            insert_timeout: Duration::from_secs(30),
            query_timeout: Duration::from_secs(30),
        }
    }
}

impl StoreConfig {
    /// The URL without credentials, path and query, for messages.
    pub fn address(&self) -> String {
        match Url::parse(&self.url) {
            Ok(url) => url.origin().ascii_serialization(),
            Err(_) => "an invalid URL".into(),
        }
    }

    /// The parsed URL, with everything else looked at too.
    pub(crate) fn checked(&self) -> Result<Url, ConfigError> {
        let url = Url::parse(&self.url).map_err(|error| ConfigError::InvalidUrl {
            reason: error.to_string(),
        })?;
        if url.scheme() != "http" {
            return Err(ConfigError::UnsupportedScheme {
                scheme: url.scheme().into(),
            });
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(ConfigError::InvalidUrl {
                reason: "it names no host".into(),
            });
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(ConfigError::CredentialsInUrl);
        }
        if url.query().is_some() {
            return Err(ConfigError::InvalidUrl {
                reason: "it must not have a query (?…)".into(),
            });
        }
        for (what, name) in [("database", &self.database), ("table", &self.table)] {
            if !is_identifier(name) {
                return Err(ConfigError::InvalidName {
                    what,
                    name: name.clone(),
                });
            }
        }
        for (what, text) in [
            ("user", self.user.as_str()),
            ("password", self.password.reveal()),
        ] {
            if HeaderValue::from_str(text).is_err() || !text.is_ascii() {
                return Err(ConfigError::InvalidCredential { what });
            }
        }
        let timeouts = [
            ("connect", self.connect_timeout),
            ("insert", self.insert_timeout),
            ("query", self.query_timeout),
        ];
        for (what, timeout) in timeouts {
            if timeout.is_zero() {
                return Err(ConfigError::ZeroTimeout { what });
            }
        }
        Ok(url)
    }
}

impl fmt::Debug for StoreConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreConfig")
            .field("url", &self.address())
            .field("user", &self.user)
            .field("password", &self.password)
            .field("database", &self.database)
            .field("table", &self.table)
            .field("connect_timeout", &self.connect_timeout)
            .field("insert_timeout", &self.insert_timeout)
            .field("query_timeout", &self.query_timeout)
            .finish()
    }
}

/// A password, which `Debug` doesn't show.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// Takes it in.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Password {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "***" })
    }
}

/// What is wrong with a [`StoreConfig`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Not a URL of an HTTP server.
    #[error(
        "the ClickHouse URL is not valid: {reason}; expected something like http://localhost:8123"
    )]
    InvalidUrl {
        /// What is wrong with it.
        reason: String,
    },
    /// A scheme other than `http`.
    #[error(
        "the ClickHouse URL begins with {scheme}://, expected http:// (the HTTP interface, by default on port 8123)"
    )]
    UnsupportedScheme {
        /// What was found.
        scheme: String,
    },
    /// `http://user:password@host`.
    #[error(
        "the ClickHouse URL holds a user or password; set them by themselves, so that they are not logged"
    )]
    CredentialsInUrl,
    /// A name that would need escaping.
    #[error(
        "{name:?} is no name for a ClickHouse {what}: expected a letter or `_`, then letters, digits, `_` and `-`"
    )]
    InvalidName {
        /// `database` or `table`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A user or password that doesn't fit into an HTTP header.
    #[error(
        "the ClickHouse {what} holds characters other than printable ASCII, which HTTP can't carry"
    )]
    InvalidCredential {
        /// `user` or `password`.
        what: &'static str,
    },
    /// A timeout of zero would refuse everything.
    #[error("the {what} timeout of ClickHouse is 0; expected more")]
    ZeroTimeout {
        /// Which one.
        what: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_url(url: &str) -> StoreConfig {
        StoreConfig {
            url: url.into(),
            ..StoreConfig::default()
        }
    }

    #[test]
    fn the_default_is_valid() {
        assert!(StoreConfig::default().checked().is_ok());
    }

    #[test]
    fn debug_shows_no_secret() {
        let config = StoreConfig {
            password: Password::new("hunter2"),
            ..with_url("http://bob:hunter2@ch:8123/?password=hunter2")
        };
        let debug = format!("{config:?}");
        assert!(!debug.contains("hunter2"), "{debug}");
        assert!(debug.contains("http://ch:8123"), "{debug}");
        assert!(!format!("{:?}", with_url("hunter2")).contains("hunter2"));
    }

    #[test]
    fn a_wrong_url_is_refused_with_what_is_wrong() {
        let of = |url: &str| with_url(url).checked().unwrap_err().to_string();
        assert!(of("localhost:8123").contains("http://"));
        assert!(of("https://ch:8443").contains("begins with https://"));
        assert!(of("http://bob:pw@ch:8123").contains("by themselves"));
        assert!(of("").contains("not valid"));
        assert!(of("http://ch:8123/?database=x").contains("query"));
    }

    #[test]
    fn names_and_credentials_that_need_escaping_are_refused() {
        for name in ["", "a`b", "1a", "a.b", "a b", "ä"] {
            let config = StoreConfig {
                table: name.into(),
                ..StoreConfig::default()
            };
            assert!(config.checked().is_err(), "{name}");
        }
        let config = StoreConfig {
            password: Password::new("a\nb"),
            ..StoreConfig::default()
        };
        let error = config.checked().unwrap_err();
        assert_eq!(error, ConfigError::InvalidCredential { what: "password" });
    }
}
