//! Stand-ins for numbers that are withheld or not known.
//!
//! Networks without a way to say "anonymous" spell it on the keypad, and the
//! digits then pass for a subscriber. Listed are the spellings that are long
//! enough to be taken for a full number and that are reported from real
//! networks. Left out are the short ones, PRIVATE (7748483), UNKNOWN (8656696),
//! WITHHELD (94844353): those digits are real subscribers in countries with
//! seven or eight digits, and no number in others.
//!
//! ANONYMOUS is a Portuguese landline when written without its country code;
//! one number whose owner has to be written with it is the lesser evil.

/// RESTRICTED, UNAVAILABLE, ANONYMOUS (ITU-T E.161 keypad).
const WORDS: [&str; 3] = ["7378742833", "86282452253", "266696687"];

/// Whether digits stand for no number: all zeros, or one of the words, with or
/// without a 1 in front (NANP gateways prepend it) or a prefix for dialling
/// abroad.
pub(super) fn is_stand_in(digits: &str) -> bool {
    let is_word = |digits: &str| WORDS.contains(&digits);
    let is_zeros = |digits: &str| digits.bytes().all(|digit| digit == b'0');
    let stands_in = |digits: &str| {
        is_word(digits)
            || is_zeros(digits)
            || digits
                .strip_prefix('1')
                .is_some_and(|rest| is_word(rest) || (rest.len() >= 7 && is_zeros(rest)))
    };
    stands_in(digits)
        || ["00", "011"]
            .iter()
            .any(|prefix| digits.strip_prefix(prefix).is_some_and(stands_in))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_keypad(word: &str) -> String {
        word.chars()
            .map(|letter| match letter {
                'A'..='C' => '2',
                'D'..='F' => '3',
                'G'..='I' => '4',
                'J'..='L' => '5',
                'M'..='O' => '6',
                'P'..='S' => '7',
                'T'..='V' => '8',
                _ => '9',
            })
            .collect()
    }

    #[test]
    fn the_words_are_spelled_right() {
        let words = ["RESTRICTED", "UNAVAILABLE", "ANONYMOUS"].map(on_keypad);
        assert_eq!(words, WORDS);
    }

    #[test]
    fn words_and_zeros_with_prefixes() {
        for digits in [
            "7378742833",
            "17378742833",
            "0017378742833",
            "01117378742833",
            "86282452253",
            "186282452253",
            "0086282452253",
            "266696687",
            "1266696687",
            "0",
            "000",
            "0000000000",
            "10000000000",
            "00",
        ] {
            assert!(is_stand_in(digits), "{digits}");
        }
        for digits in [
            "07378742833",
            "737874283",
            "73787428331",
            "447378742833",
            "1",
            "10",
            "100",
            "1000",
        ] {
            assert!(!is_stand_in(digits), "{digits}");
        }
    }
}
