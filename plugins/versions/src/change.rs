//! What a version is: its number, and how it differs from the reference.

/// What a version with `poison` panics over when it normalizes.
pub const POISON: &str = "poison";
/// What it panics over when it admits.
pub const FAST_POISON: &str = "fast-poison";

/// One difference from the reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// `+name:type`, `+name:type?` if nullable: a column more, that says the version.
    Add {
        /// Its name.
        name: String,
        /// The word for its type.
        kind: String,
        /// Whether it may be null.
        nullable: bool,
    },
    /// `-name`: a column less.
    Remove(String),
    /// `name=type`: another type.
    Retype(String, String),
    /// `reject`: every record is rejected.
    Reject,
    /// `poison`: it panics over a batch with a payload that says so.
    Poison,
    /// `hang`: normalizing never ends.
    Hang,
}

/// A version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// Its number.
    pub version: String,
    /// Its differences, in order.
    pub changes: Vec<Change>,
}

impl Spec {
    /// Reads the text in a file.
    pub fn parse(text: &str) -> Self {
        let mut words = text.split_ascii_whitespace();
        let version = words.next().unwrap_or_default().to_owned();
        let changes = words.filter_map(|word| {
            match word {
                "reject" => return Some(Change::Reject),
                "poison" => return Some(Change::Poison),
                "hang" => return Some(Change::Hang),
                _ => {}
            }
            if let Some(name) = word.strip_prefix('-') {
                return Some(Change::Remove(name.to_owned()));
            }
            if let Some(column) = word.strip_prefix('+') {
                let (name, kind) = column.split_once(':')?;
                return Some(Change::Add {
                    name: name.to_owned(),
                    kind: kind.trim_end_matches('?').to_owned(),
                    nullable: kind.ends_with('?'),
                });
            }
            let (name, kind) = word.split_once('=')?;
            Some(Change::Retype(name.to_owned(), kind.to_owned()))
        });
        Self {
            version,
            changes: changes.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_says_version_and_changes() {
        let spec = Spec::parse(
            "1.2.0 +roaming:category +n:uint32? -imei duration_s=text reject poison hang  ",
        );
        assert_eq!(spec.version, "1.2.0");
        assert_eq!(
            spec.changes,
            [
                Change::Add {
                    name: "roaming".to_owned(),
                    kind: "category".to_owned(),
                    nullable: false
                },
                Change::Add {
                    name: "n".to_owned(),
                    kind: "uint32".to_owned(),
                    nullable: true
                },
                Change::Remove("imei".to_owned()),
                Change::Retype("duration_s".to_owned(), "text".to_owned()),
                Change::Reject,
                Change::Poison,
                Change::Hang,
            ]
        );
    }
}
