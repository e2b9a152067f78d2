//! Records that differ in nothing but their id: made fast, and counted in few bits.

use bytes::Bytes;

use crate::records::sample;

/// What every id begins with; a number follows.
const PREFIX: &str = "load-";
/// The record that the template is made of: of data, the longest.
const MODEL: u64 = 2;

/// A body with a place for the id.
#[derive(Debug, Clone)]
pub struct Template {
    before: Bytes,
    after: Bytes,
}

impl Template {
    /// A template of a good record, at this time in seconds since the Unix epoch.
    ///
    /// # Errors
    /// The model does not hold its id exactly once.
    pub fn new(now_s: u64) -> anyhow::Result<Self> {
        let model = sample(PREFIX, MODEL, now_s);
        let text = std::str::from_utf8(&model.payload)?;
        match text.split(&model.raw_id).collect::<Vec<_>>()[..] {
            [before, after] => Ok(Self {
                before: Bytes::copy_from_slice(before.as_bytes()),
                after: Bytes::copy_from_slice(after.as_bytes()),
            }),
            _ => anyhow::bail!("the model does not hold {} once: {text}", model.raw_id),
        }
    }

    /// The body of record `number`.
    pub fn body(&self, number: u64) -> Bytes {
        let id = raw_id(number);
        [&self.before[..], id.as_bytes(), &self.after[..]]
            .concat()
            .into()
    }
}

/// The id of a record.
pub fn raw_id(number: u64) -> String {
    format!("{PREFIX}{number}")
}

/// The number of a record with this id; none for an id that was never made here.
pub fn number(raw_id: &str) -> Option<u64> {
    let digits = raw_id.strip_prefix(PREFIX)?;
    // What `+7` and `007` parse to has another id.
    let is_canonical = digits == "0" || digits.starts_with(|first| matches!(first, '1'..='9'));
    digits.parse().ok().filter(|_| is_canonical)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_differ_in_their_id_alone() {
        let template = Template::new(1_700_000_000).unwrap();
        let record = |number| -> serde_json::Value {
            serde_json::from_slice(&template.body(number)).unwrap()
        };
        let (mut one, other) = (record(7), record(1_000_000));
        assert_eq!(one["raw_id"], "load-7");
        assert_eq!(other["raw_id"], "load-1000000");
        one["raw_id"] = other["raw_id"].clone();
        assert_eq!(one, other);
    }

    #[test]
    fn only_ids_that_are_made_here_have_a_number() {
        for number_made in [0, 7, 10, u64::MAX] {
            assert_eq!(number(&raw_id(number_made)), Some(number_made));
        }
        for other in [
            "",
            "7",
            "load-",
            "load-+7",
            "load-07",
            "load-00",
            "load--7",
            "s-7",
            "Load-7",
            "load-99999999999999999999",
        ] {
            assert_eq!(number(other), None, "{other}");
        }
    }
}
