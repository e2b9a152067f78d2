//! The phone rules, sentence by sentence. Numbers are reserved for fiction, or
//! in ranges that are not assigned to anyone, wherever there are such.

use cdr_normalizer::phone::{Fault, Number, Region, normalize};

fn number(text: &str, region: &str) -> Result<Number, Fault> {
    normalize(text, Region::from_code(region))
}

#[track_caller]
fn assert_e164(cases: &[(&str, &str, &str)]) {
    for (text, region, e164) in cases {
        let got = number(text, region).map(|number| number.e164);
        assert_eq!(got.as_deref(), Ok(*e164), "{text:?} in {region:?}");
    }
}

#[track_caller]
fn assert_refused(cases: &[(&str, &str, Fault)]) {
    for (text, region, fault) in cases {
        assert_eq!(number(text, region), Err(*fault), "{text:?} in {region:?}");
    }
}

#[test]
fn with_a_plus_the_region_does_not_matter() {
    for region in ["", "US", "GB", "AU", "RU"] {
        assert_e164(&[
            ("+442079460123", region, "+442079460123"),
            ("＋442079460123", region, "+442079460123"),
            ("++442079460123", region, "+442079460123"),
            ("+78001234567", region, "+78001234567"),
            ("+80012345678", region, "+80012345678"),
        ]);
        // The region's prefixes are not tried behind a plus.
        assert_refused(&[
            ("+00442079460123", region, Fault::Impossible),
            ("+011442079460123", region, Fault::Impossible),
            ("+999123456789", region, Fault::Impossible),
        ]);
    }
}

#[test]
fn possible_is_enough_and_valid_is_told() {
    assert_eq!(
        number("+447700900123", ""),
        Ok(Number {
            e164: "+447700900123".into(),
            valid: false
        })
    );
    assert_eq!(
        number("+12025550123", ""),
        Ok(Number {
            e164: "+12025550123".into(),
            valid: true
        })
    );
}

#[test]
fn the_first_valid_reading_wins() {
    assert_e164(&[
        // Leeds and Sheffield, not Spain and not Britain dialled from America.
        ("01134960999", "GB", "+441134960999"),
        ("0114 496 0123", "GB", "+441144960123"),
        // 0011 dials out of Australia.
        ("0011442079460123", "AU", "+442079460123"),
        ("0 15 11 96123-4567", "BR", "+5511961234567"),
        // A region that dials out with something else still reads 00 and 011.
        ("00442079460123", "US", "+442079460123"),
        ("011442079460123", "GB", "+442079460123"),
        ("0044 (0)20 7946 0123", "", "+442079460123"),
        ("(00)442079460123", "JP", "+442079460123"),
    ]);
    assert_refused(&[
        ("0011442079460123", "", Fault::Impossible),
        ("000442079460123", "", Fault::Impossible),
        ("01134960999", "US", Fault::Impossible),
    ]);
}

#[test]
fn bare_digits_without_a_region_are_not_guessed() {
    for text in [
        "442079460123",
        "12025550123",
        "2025550123",
        "112",
        "02079460123",
    ] {
        assert_refused(&[(text, "", Fault::NoRegion)]);
    }
    assert_refused(&[(
        "tel:2025550123;phone-context=example.com",
        "",
        Fault::NoRegion,
    )]);
}

#[test]
fn local_and_short_numbers_are_not_e164() {
    for (text, region) in [
        ("7946 0123", "GB"),
        ("555-0123", "US"),
        ("911", "US"),
        ("112", "DE"),
        ("1", "GB"),
        ("12", "GB"),
        ("32665", "US"),
        ("+44", ""),
        ("+1911", ""),
        ("+3312", ""),
        ("+4477009001234567", ""),
        ("+442", ""),
    ] {
        assert_refused(&[(text, region, Fault::Impossible)]);
    }
    // 16 digits, a length that the numbering plan of Germany would have.
    assert_refused(&[("+4915123456789012", "", Fault::Impossible)]);
}

#[test]
fn a_plus_is_in_front_or_refused() {
    for text in [
        "00+442079460123",
        "44+2079460123",
        "442079460123+",
        "0+442079460123",
        "+44+2079460123",
        "+ +442079460123",
        "+12025550123 +12025550199",
        "(0)+442079460123",
        "442079460123＋",
    ] {
        assert_refused(&[(text, "GB", Fault::Plus)]);
    }
    assert_e164(&[
        ("(+44) 20 7946 0123", "", "+442079460123"),
        ("+ 44 20 7946 0123", "", "+442079460123"),
        ("'+442079460123", "", "+442079460123"),
        ("=\"+442079460123\"", "", "+442079460123"),
    ]);
}

#[test]
fn marks_are_ignored_and_digits_of_all_scripts_read() {
    for mark in [
        '\u{61c}', '\u{200b}', '\u{200c}', '\u{200d}', '\u{200e}', '\u{200f}', '\u{202a}',
        '\u{202b}', '\u{202c}', '\u{202d}', '\u{202e}', '\u{2060}', '\u{2066}', '\u{2067}',
        '\u{2068}', '\u{2069}', '\u{feff}',
    ] {
        let text = format!("{mark}+{mark}44 20{mark}7946 0123{mark}");
        assert_e164(&[(&text, "", "+442079460123")]);
    }
    assert_e164(&[
        ("+٤٤٢٠٧٩٤٦٠١٢٣", "", "+442079460123"),
        ("۰۹۱۲۳۴۵۶۷۸۹", "IR", "+989123456789"),
        ("０２０７９４６０１２３", "GB", "+442079460123"),
        ("+४४ २० ७९४६ ०१२३", "", "+442079460123"),
        (" \t+442079460123\r\n", "", "+442079460123"),
    ]);
}

#[test]
fn punctuation_is_dropped_and_other_signs_are_not() {
    for text in [
        "+1 202-555-0123",
        "+1.202.555.0123",
        "+1/202/555/0123",
        "+1 (202) 555–0123",
        "+1\u{a0}202\u{a0}555\u{a0}0123",
        "+1-[202]-555-0123",
        "+1‑202‒555—0123",
        "+12025550123.",
        "+1\u{3000}202－555．0123",
        "<+12025550123>",
        "+12025550123;",
    ] {
        assert_e164(&[(text, "", "+12025550123")]);
    }
    for (text, odd) in [
        ("+1_202_555_0123", '_'),
        ("+1:2025550123", ':'),
        ("+1=2025550123", '='),
        ("+1\t2025550123", '\t'),
        ("+1\n2025550123", '\n'),
        ("+1\u{2009}2025550123", '\u{2009}'),
        ("+1\u{0}2025550123", '\0'),
        ("%2B12025550123", '%'),
        ("+1%202025550123", '%'),
        ("+12025550123@example.com", '@'),
        ("½2025550123", '½'),
        ("+1·2025550123", '·'),
        ("+1😀2025550123", '😀'),
    ] {
        assert_refused(&[(text, "US", Fault::Character(odd))]);
    }
}

#[test]
fn letters_are_refused() {
    for text in [
        "anonymous",
        "Restricted",
        "unknown",
        "null",
        "N/A",
        "MYBANK",
        "1-800-FLOWERS",
        "1-800-234-JMPT",
        "ks.2025550123",
        "l2025550123",
        "+1202555O123",
        "0x91442079460123",
        "0x9144207",
        "91442079460123F",
        "4.42079460123E+11",
        "442079460123e0",
        "1E10",
        "447700900123@s.whatsapp.net",
        "callto:+12025550123",
        "mailto:2025550123@example.com",
        "+44 20 7946 0123 (home)",
        "2025550123 or 2025550199",
        "2025550123p5",
        "ＳＯＳ112",
        "+44 20 7946 0123 доб. 5",
        "+44 20 7946 0123 int 5",
        "+44 20 7946 0123 anexo 5",
        "\"Alice\" <sip:+12025550123@example.com>",
        "x123",
        "x",
        "ext",
        "२०२५a",
    ] {
        let fault = number(text, "US").expect_err(text);
        assert!(
            matches!(fault, Fault::Letter | Fault::Plus | Fault::Character('@')),
            "{text}: {fault:?}"
        );
    }
}

#[test]
fn spreadsheets_leave_traces() {
    for text in ["442079460123.0", "+442079460123.00", "4930123456.0"] {
        assert_refused(&[(text, "DE", Fault::Decimal)]);
    }
    assert_e164(&[("+687 20.12.34", "", "+687201234")]);
}

#[test]
fn service_codes_are_refused() {
    for text in [
        "#31#2025550123",
        "*31#2025550123",
        "*67 2025550123",
        "*2025550123",
        "**21*2025550123#",
        "*123#",
        "#",
        "*",
        "2025550123#",
        "2025550123*",
        "2025550123#31#",
        "2025550123*5",
    ] {
        let fault = number(text, "US").expect_err(text);
        assert_eq!(fault, Fault::ServiceCode, "{text}");
    }
}

#[test]
fn extensions_are_dropped() {
    for text in [
        "+12025550123x5",
        "+12025550123 X5",
        "+12025550123 ext5",
        "+12025550123 ext. 5",
        "+12025550123 Ext: 5",
        "+12025550123,ext 5",
        "+12025550123 extn 5",
        "+12025550123 extension 5",
        "+12025550123;ext=5",
        "+12025550123 #5",
        "+12025550123,,5",
        "+12025550123;5",
        "+1 202-555-0123 - 503#",
        "tel:+12025550123;ext=5",
        "tel:+12025550123;isub=1411",
        "+12025550123;EXT=5",
        "+1 (202) 555-0123 x 5",
    ] {
        assert_e164(&[(text, "", "+12025550123")]);
    }
}

#[test]
fn one_number_only() {
    for text in [
        "2025550123,2025550199",
        "2025550123;2025550199",
        "2025550123, 2025550199",
        "2025550123|2025550199",
        "2025550123 & 2025550199",
        "1,202,555,0123",
        "202-555-0123, 202-555-0199",
    ] {
        assert_refused(&[(text, "US", Fault::Several)]);
    }
    for text in [
        "2025550123/2025550199",
        "2025550123 2025550199",
        "+12025550123,+12025550199",
    ] {
        assert!(number(text, "US").is_err(), "{text}");
    }
}

#[test]
fn uris_give_their_user_part() {
    for text in [
        "tel:+12025550123",
        "TEL:+1-202-555-0123",
        "tel:+1(202)555.0123",
        "tel:2025550123;phone-context=+1",
        "tel:555-0123;phone-context=+1-202",
        "2025550123;phone-context=+1",
        "tel:+12025550123;npdi;rn=+12025550199",
        "tel:+12025550123;npdi=yes;cic=+12345",
        "tel:2025550123;npdi;phone-context=+1;rn=2025550199",
        "sip:+12025550123@example.com",
        "sip:+12025550123@example.com:5060;user=phone?subject=x%40y",
        "sips:+12025550123@192.0.2.1",
        "SIP:+12025550123@[2001:db8::1]",
        "sip:+12025550123",
        "sip:+12025550123;npdi;rn=+12025550199@example.com;user=phone",
        "sip:2025550123;phone-context=+1@example.com",
        "sip:+12025550123:secret@example.com",
        "<sip:+12025550123@example.com>",
        "<tel:+12025550123>",
        "tel:+12025550123;x=abc",
    ] {
        assert_e164(&[(text, "GB", "+12025550123")]);
    }
    assert_e164(&[
        ("tel:02079460123;phone-context=+44", "", "+442079460123"),
        (
            "tel:02079460123;phone-context=example.com",
            "GB",
            "+442079460123",
        ),
        ("sip:02079460123@example.com", "GB", "+442079460123"),
    ]);
    assert_refused(&[
        ("sip:alice@example.com", "US", Fault::Letter),
        ("sip:example.com", "US", Fault::Uri),
        ("sip:198.51.100.123", "US", Fault::Uri),
        ("sip:198.51.100.123;transport=udp", "US", Fault::Uri),
        (
            "sip:%2B12025550123@example.com",
            "US",
            Fault::Character('%'),
        ),
        ("sip:*67@example.com", "US", Fault::ServiceCode),
        ("sip:@example.com", "US", Fault::NoDigit),
        ("sip:7378742833@example.com", "US", Fault::Withheld),
        ("tel:", "US", Fault::NoDigit),
        ("tel:911;phone-context=+1", "US", Fault::Impossible),
        ("tel:2025550123;phone-context=", "US", Fault::Uri),
        ("tel:2025550123;phone-context=+", "US", Fault::Uri),
        ("tel:2025550123;phone-context=+1x", "US", Fault::Uri),
        ("tel:2025550123;phone-context=1.2.3", "US", Fault::Uri),
        ("tel:2025550123;phone-context=-x.com", "US", Fault::Uri),
        (
            "tel:2025550123;phone-context=+1;phone-context=+44",
            "US",
            Fault::Uri,
        ),
        ("tel:+12025550123;phone-context=+1", "US", Fault::Uri),
    ]);
    // Routing parameters belong to URIs; elsewhere they are letters.
    assert_refused(&[("+12025550123;npdi", "US", Fault::Letter)]);
}

#[test]
fn stand_ins_for_withheld_numbers_are_refused() {
    for region in ["", "US", "GB", "ES"] {
        for text in [
            "0",
            "000",
            "0000000000",
            "+0000000000",
            "00000000000000",
            "+10000000000",
            "000-000-0000",
            "7378742833",
            "+7378742833",
            "17378742833",
            "+17378742833",
            "+1 737-874-2833",
            "001 737 874 2833",
            "011 1 737 874 2833",
            "86282452253",
            "+86282452253",
            "+186282452253",
            "0086282452253",
            "266696687",
            "+266696687",
            "+1266696687",
        ] {
            assert_refused(&[(text, region, Fault::Withheld)]);
        }
    }
    assert_refused(&[("(737) 874-2833", "US", Fault::Withheld)]);
    // A subscriber whose national digits happen to be those, written in full.
    assert_e164(&[
        ("07378742833", "GB", "+447378742833"),
        ("+447378742833", "", "+447378742833"),
        ("+351266696687", "", "+351266696687"),
    ]);
}

#[test]
fn nothing_in_it() {
    for text in ["+", "-", "()", "+-", ".", "\u{200b}", "++", "+()"] {
        assert_refused(&[(text, "GB", Fault::NoDigit)]);
    }
    assert_refused(&[
        (&"1".repeat(251), "US", Fault::TooLong),
        (
            &format!("+1{}2025550123", " ".repeat(300)),
            "US",
            Fault::TooLong,
        ),
    ]);
}
