//! The name of a batch, by which ClickHouse recognises its repetition.
//!
//! A retry after a lost answer, or the same batch consumed again after a crash,
//! carries the same token, and ClickHouse (with a deduplication window on the
//! table) takes it without writing it twice. So a token must be equal exactly
//! where the rows are: it names the topic, the offsets, when the first of them
//! was received, and the normalizer; the number of rows is put behind it when a
//! block is sent. The time is there for a topic that was deleted and made again:
//! its offsets begin at 0 once more, and without it the new records would be
//! taken for the old ones and silently dropped.

use std::{fmt, ops::Range};

use sha2::{Digest, Sha256};

/// Longer tokens are replaced by their hash, so that one never outgrows a URL.
const MAX_LEN: usize = 200;

/// The records of one partition that a batch covers, those that became no row
/// included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OffsetRange {
    /// The partition.
    pub partition: i32,
    /// The first offset.
    pub first: i64,
    /// The last offset, itself included.
    pub last: i64,
    /// The Kafka timestamp of the record at `first`, in milliseconds.
    pub first_timestamp: i64,
}

/// A deduplication token: printable ASCII, at most 200 characters, equal for
/// equal batches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DedupToken {
    text: String,
}

impl DedupToken {
    /// For a whole batch. The order of `ranges` does not matter. `normalizer`
    /// stands for everything beside the payloads that decides on the rows: the
    /// digests of the component and of its settings.
    pub fn new(topic: &str, ranges: &[OffsetRange], normalizer: &str) -> Self {
        let mut sorted = ranges.to_vec();
        sorted.sort_unstable();
        let mut text = topic.to_owned();
        for range in sorted {
            let OffsetRange {
                partition,
                first,
                last,
                first_timestamp,
            } = range;
            text += &format!(";{partition}:{first}-{last}@{first_timestamp}");
        }
        text += ";";
        text += normalizer;
        Self::bounded(text)
    }

    /// For some rows of that batch, when it is inserted in parts. Ranges count
    /// in rows of the whole batch, also when parts are divided further.
    pub fn rows(&self, rows: Range<usize>) -> Self {
        Self::bounded(format!("{};rows={}-{}", self.text, rows.start, rows.end))
    }

    /// For the same rows again, where the token turned out to be spent on rows
    /// that are not there. `unique` is a number that was never used.
    pub(crate) fn anew(&self, unique: u128) -> Self {
        Self::bounded(format!("{};anew={unique}", self.text))
    }

    /// The token as it is sent.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn bounded(text: String) -> Self {
        let printable = text.bytes().all(|b| b.is_ascii_graphic());
        if text.len() <= MAX_LEN && printable {
            return Self { text };
        }
        Self {
            text: format!("sha256:{}", hex::encode(Sha256::digest(text.as_bytes()))),
        }
    }
}

impl fmt::Display for DedupToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(partition: i32, first: i64, last: i64) -> OffsetRange {
        OffsetRange {
            partition,
            first,
            last,
            first_timestamp: 1_700_000_000_000,
        }
    }

    #[test]
    fn a_token_reads_like_what_it_names() {
        let token = DedupToken::new(
            "cdr.raw",
            &[range(2, 5, 7), range(0, 100, 199)],
            "sha256:ab",
        );
        assert_eq!(
            token.as_str(),
            "cdr.raw;0:100-199@1700000000000;2:5-7@1700000000000;sha256:ab"
        );
        assert_eq!(token.rows(0..50).as_str(), format!("{token};rows=0-50"));
    }

    #[test]
    fn a_topic_made_again_gives_other_tokens() {
        let later = OffsetRange {
            first_timestamp: 1_800_000_000_000,
            ..range(0, 0, 999)
        };
        assert_ne!(
            DedupToken::new("cdr.raw", &[range(0, 0, 999)], "n"),
            DedupToken::new("cdr.raw", &[later], "n")
        );
    }

    #[test]
    fn another_normalizer_gives_another_token() {
        assert_ne!(
            DedupToken::new("t", &[range(0, 0, 9)], "sha256:aa"),
            DedupToken::new("t", &[range(0, 0, 9)], "sha256:ab")
        );
    }

    fn ranges() -> impl Strategy<Value = Vec<OffsetRange>> {
        prop::collection::vec(
            (0..100i32, 0..1000i64, 0..1000i64).prop_map(|(p, f, n)| range(p, f, f + n)),
            0..40,
        )
    }

    proptest! {
        #[test]
        fn order_does_not_matter(
            (ranges, shuffled) in ranges().prop_flat_map(|r| (Just(r.clone()), Just(r).prop_shuffle())),
        ) {
            prop_assert_eq!(
                DedupToken::new("t", &ranges, "n"),
                DedupToken::new("t", &shuffled, "n")
            );
        }

        #[test]
        fn different_ranges_give_different_tokens(mut a in ranges(), mut b in ranges()) {
            let equal_tokens = DedupToken::new("t", &a, "n") == DedupToken::new("t", &b, "n");
            a.sort_unstable();
            b.sort_unstable();
            prop_assert_eq!(equal_tokens, a == b);
        }

        #[test]
        fn a_token_is_short_and_printable(topic in "\\PC*", ranges in ranges(), n in "\\PC*") {
            let token = DedupToken::new(&topic, &ranges, &n).rows(3..9);
            prop_assert!(token.as_str().len() <= MAX_LEN);
            prop_assert!(token.as_str().bytes().all(|b| b.is_ascii_graphic()));
        }
    }
}
