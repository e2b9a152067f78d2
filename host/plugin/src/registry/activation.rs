//! `active.json`: which version serves, with which settings, and what runs in
//! its shadow. Pure.

use super::version::{VersionId, VersionIdError};
use serde::{Deserialize, Serialize};

/// The largest `active.json` that is read, in bytes.
pub(crate) const MAX_BYTES: u64 = 1 << 20;

/// A version with its settings, each named with its digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// The name in its manifest.
    pub name: String,
    /// The version in its manifest.
    pub version: String,
    /// SHA-256 of the .wasm file, in hexadecimal.
    pub sha256: String,
    /// Its settings; none: `{}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<SettingsFile>,
}

impl Choice {
    /// Its name and version as one.
    ///
    /// # Errors
    /// They are none.
    pub fn id(&self) -> Result<VersionId, VersionIdError> {
        VersionId::new(&self.name, &self.version)
    }
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}", self.name, self.version)
    }
}

/// A settings file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettingsFile {
    /// Its path inside the registry.
    pub file: String,
    /// SHA-256 of its content, in hexadecimal.
    pub sha256: String,
}

/// A candidate that is shown live records, and whose answers go nowhere.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shadow {
    /// The candidate.
    pub candidate: Choice,
    /// The share of batches that it is shown, above 0 and up to 1.
    pub sample: f64,
}

/// The content of `active.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Activation {
    /// What serves.
    pub active: Choice,
    /// What runs in its shadow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shadow: Option<Shadow>,
    /// The number of this activation; each has a higher one than those before.
    #[serde(default)]
    pub revision: u64,
    /// The activation that a rollback returns to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<u64>,
    /// When it was made, in RFC 3339, UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activated_at: Option<String>,
}

/// Why an `active.json` can't be followed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ActivationError {
    /// No JSON, or another shape.
    #[error("it is not as it must be: {0}")]
    Shape(String),
    /// The name or version is none.
    #[error(transparent)]
    Version(#[from] VersionIdError),
    /// A digest that is none.
    #[error("{digest:?} is no SHA-256 in hexadecimal (64 characters)")]
    Digest {
        /// The text, cut.
        digest: String,
    },
    /// A settings file outside the registry.
    #[error(
        "settings file {file:?}: expected a path inside the registry, without `..` and not absolute"
    )]
    SettingsPath {
        /// The path, cut.
        file: String,
    },
    /// No share of batches.
    #[error("the shadow's sample is {sample}: expected a share above 0 and up to 1")]
    Sample {
        /// The number.
        sample: f64,
    },
}

impl Activation {
    /// The settings files that it names, by their paths inside the registry.
    pub(crate) fn settings_files(&self) -> Vec<String> {
        let shadow = self.shadow.iter().map(|shadow| &shadow.candidate);
        std::iter::once(&self.active)
            .chain(shadow)
            .filter_map(|choice| Some(choice.settings.as_ref()?.file.clone()))
            .collect()
    }

    /// Reads the text of an `active.json`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &[u8]) -> Result<Self, ActivationError> {
        let activation: Self = serde_json::from_slice(text)
            .map_err(|error| ActivationError::Shape(error.to_string()))?;
        check(&activation.active)?;
        if let Some(shadow) = &activation.shadow {
            check(&shadow.candidate)?;
            check_sample(shadow.sample)?;
        }
        Ok(activation)
    }

    /// Its text.
    pub(crate) fn to_text(&self) -> String {
        // Nothing in it can fail to be written: strings and finite numbers.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

/// Whether this is a share of batches.
///
/// # Errors
/// It is not above 0 and up to 1.
pub fn check_sample(sample: f64) -> Result<(), ActivationError> {
    if sample > 0.0 && sample <= 1.0 {
        Ok(())
    } else {
        Err(ActivationError::Sample { sample })
    }
}

fn check(choice: &Choice) -> Result<(), ActivationError> {
    choice.id()?;
    check_digest(&choice.sha256)?;
    if let Some(settings) = &choice.settings {
        check_digest(&settings.sha256)?;
        let path = std::path::Path::new(&settings.file);
        let stays_inside = path
            .components()
            .all(|part| matches!(part, std::path::Component::Normal(_)));
        if !stays_inside || settings.file.is_empty() || settings.file.contains('\0') {
            return Err(ActivationError::SettingsPath {
                file: crate::guest::shorten(&settings.file, 200),
            });
        }
    }
    Ok(())
}

fn check_digest(digest: &str) -> Result<(), ActivationError> {
    if digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        Ok(())
    } else {
        Err(ActivationError::Digest {
            digest: crate::guest::shorten(digest, 100),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activation() -> Activation {
        Activation {
            active: Choice {
                name: "n".to_owned(),
                version: "1.0.0".to_owned(),
                sha256: "a".repeat(64),
                settings: Some(SettingsFile {
                    file: "settings/x.json".to_owned(),
                    sha256: "b".repeat(64),
                }),
            },
            shadow: None,
            revision: 7,
            previous: Some(6),
            activated_at: Some("2026-01-01T00:00:00Z".to_owned()),
        }
    }

    #[test]
    fn it_is_read_back_as_it_was_written() {
        let mut written = activation();
        assert_eq!(
            Activation::parse(written.to_text().as_bytes()).unwrap(),
            written
        );
        written.shadow = Some(Shadow {
            candidate: written.active.clone(),
            sample: 0.1,
        });
        assert_eq!(
            Activation::parse(written.to_text().as_bytes()).unwrap(),
            written
        );
    }

    #[test]
    fn the_least_that_a_person_writes_is_enough() {
        let text = format!(
            r#"{{"active": {{"name": "n", "version": "1.0.0", "sha256": "{}"}}}}"#,
            "0".repeat(64)
        );
        let read = Activation::parse(text.as_bytes()).unwrap();
        assert_eq!((read.revision, read.previous, read.shadow), (0, None, None));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let good = activation();
        let mut cases = vec![
            (b"{".to_vec(), "not as it must be"),
            (b"{}".to_vec(), "missing field `active`"),
            (
                good.to_text().replace("revision", "revison").into_bytes(),
                "unknown field `revison`",
            ),
        ];
        let mut with = |change: &dyn Fn(&mut Activation), word| {
            let mut changed = good.clone();
            change(&mut changed);
            cases.push((changed.to_text().into_bytes(), word));
        };
        with(&|a| a.active.name = "../n".to_owned(), "NAME@VERSION");
        with(&|a| a.active.version = "1".to_owned(), "semantic version");
        with(&|a| a.active.sha256 = "abc".to_owned(), "SHA-256");
        for path in ["", "/etc/passwd", "../x", "a/../../x", "./x"] {
            with(
                &|a| a.active.settings.as_mut().unwrap().file = path.to_owned(),
                "inside the registry",
            );
        }
        for sample in [0.0, -1.0, 1.01] {
            with(
                &|a| {
                    a.shadow = Some(Shadow {
                        candidate: a.active.clone(),
                        sample,
                    });
                },
                "above 0 and up to 1",
            );
        }
        for (text, word) in cases {
            let error = Activation::parse(&text).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
