//! `NAME@VERSION`: what a file of the registry is called, and what operators
//! type.

use std::fmt;
use std::str::FromStr;

/// A normalizer's name and version, as in `cdr-normalizer@1.2.0`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct VersionId {
    name: String,
    version: semver::Version,
}

/// Text that is no [`VersionId`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no version of a normalizer: {why}; expected NAME@VERSION, as in cdr-normalizer@1.2.0"
)]
pub struct VersionIdError {
    /// The text, cut.
    pub text: String,
    /// What is wrong with it.
    pub why: String,
}

impl VersionId {
    /// Of a name and a version that are known apart.
    ///
    /// # Errors
    /// The name is not 1 to 64 lower-case letters, digits and `-`, or the version
    /// is no semantic version.
    pub fn new(name: &str, version: &str) -> Result<Self, VersionIdError> {
        let refused = |why: String| VersionIdError {
            text: crate::guest::shorten(&format!("{name}@{version}"), 160),
            why,
        };
        let name_is_good = !name.is_empty()
            && name.len() <= 64
            && name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        if !name_is_good {
            return Err(refused(
                "a name is 1 to 64 lower-case letters, digits and `-`".to_owned(),
            ));
        }
        let version = semver::Version::parse(version)
            .map_err(|error| refused(format!("{version:?} is no semantic version ({error})")))?;
        Ok(Self {
            name: name.to_owned(),
            version,
        })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version.
    pub fn version(&self) -> &semver::Version {
        &self.version
    }

    /// `NAME@VERSION.wasm`
    pub fn file_name(&self) -> String {
        format!("{self}.wasm")
    }

    /// Of a file name that ends in `.wasm`.
    pub(crate) fn of_file_name(file_name: &str) -> Option<Self> {
        file_name.strip_suffix(".wasm")?.parse().ok()
    }
}

impl fmt::Display for VersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.version)
    }
}

impl FromStr for VersionId {
    type Err = VersionIdError;

    fn from_str(text: &str) -> Result<Self, VersionIdError> {
        match text.split_once('@') {
            Some((name, version)) => Self::new(name, version),
            None => Err(VersionIdError {
                text: crate::guest::shorten(text, 160),
                why: "there is no `@`".to_owned(),
            }),
        }
    }
}

impl PartialOrd for VersionId {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for VersionId {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (&self.name, &self.version).cmp(&(&other.name, &other.version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_versions_are_read_back_as_they_are_written() {
        for text in ["cdr-normalizer@1.2.0", "a@0.0.1-rc.1+build.5"] {
            let id: VersionId = text.parse().unwrap();
            assert_eq!(id.to_string(), text);
            assert_eq!(VersionId::of_file_name(&id.file_name()), Some(id));
        }
    }

    #[test]
    fn nothing_else_is_taken_for_one_least_of_all_a_path() {
        for text in [
            "",
            "cdr-normalizer",
            "cdr-normalizer@",
            "@1.0.0",
            "cdr-normalizer@1.2",
            "cdr-normalizer@v1.2.0",
            "../x@1.0.0",
            "a/b@1.0.0",
            "Upper@1.0.0",
            "a@1.0.0/../../x",
            "a@1.0.0\0",
        ] {
            let error = text.parse::<VersionId>().unwrap_err();
            assert!(error.to_string().contains("NAME@VERSION"), "{text}");
        }
    }

    #[test]
    fn versions_are_ordered_by_precedence_not_by_letters() {
        let mut ids: Vec<VersionId> = ["a@1.10.0", "a@1.9.0", "a@1.9.0-rc.1"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        ids.sort();
        let texts: Vec<_> = ids.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["a@1.9.0-rc.1", "a@1.9.0", "a@1.10.0"]);
    }
}
