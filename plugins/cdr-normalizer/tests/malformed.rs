//! What is no record at all: the API and the worker say the same of it.

mod common;

use cdr_normalizer::admit::Code;
use cdr_normalizer::field::{Field, Key};
use cdr_normalizer::normalize::Reason;
use cdr_normalizer::raw::{Malformed, RawCdr};
use cdr_normalizer::settings::Settings;
use common::{NOW_S, api, with, with_json, worker};
use serde_json::json;

fn malformed(payload: &[u8]) -> Option<Malformed> {
    let parsed = RawCdr::parse(payload);
    let refused = api(payload).err().map(|refusal| refusal.code);
    let rejected = worker(payload, &Settings::default(), NOW_S)
        .err()
        .map(|rejection| rejection.reason);
    let fault = parsed.err();
    assert_eq!(fault.is_some(), refused == Some(Code::MalformedJson));
    assert_eq!(fault.is_some(), rejected == Some(Reason::MalformedJson));
    fault
}

#[track_caller]
fn assert_malformed(payload: impl AsRef<[u8]>) -> Malformed {
    let payload = payload.as_ref();
    malformed(payload).unwrap_or_else(|| panic!("accepted: {}", String::from_utf8_lossy(payload)))
}

#[track_caller]
fn assert_good(payload: impl AsRef<[u8]>) {
    let payload = payload.as_ref();
    assert_eq!(
        malformed(payload),
        None,
        "{}",
        String::from_utf8_lossy(payload)
    );
}

#[test]
fn other_encodings() {
    let good = with(&[]);
    let utf16: Vec<u16> = good.encode_utf16().collect();
    let little: Vec<u8> = utf16.iter().flat_map(|unit| unit.to_le_bytes()).collect();
    let big: Vec<u8> = utf16.iter().flat_map(|unit| unit.to_be_bytes()).collect();
    let utf32: Vec<u8> = good
        .chars()
        .flat_map(|c| u32::from(c).to_le_bytes())
        .collect();
    for other in [little, big, utf32] {
        assert!(assert_malformed(&other).detail.contains("UTF-16"));
        assert_malformed([&[0xff, 0xfe][..], &other].concat());
    }
    assert!(
        assert_malformed(format!("\u{feff}{good}"))
            .detail
            .contains("byte order mark")
    );
    assert_malformed([&[0xef, 0xbb][..], good.as_bytes()].concat());
    // Latin-1, overlong, a surrogate and a cut character, in known and unknown fields.
    for bytes in [
        &b"\xe9"[..],
        b"\xc0\xaf",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xe2\x82",
    ] {
        for name in ["cell_id", "x"] {
            let text = with(&[(name, json!("@"))]);
            let at = text.find('@').expect("it is there");
            let payload = [&text.as_bytes()[..at], bytes, &text.as_bytes()[at + 1..]].concat();
            assert!(assert_malformed(payload).detail.contains("UTF-8"));
        }
    }
}

#[test]
fn not_one_object() {
    for payload in [
        "",
        " ",
        "\n\t\r ",
        "null",
        "true",
        "42",
        "\"x\"",
        "[]",
        "[{}]",
        "{}{}",
        "{} {}",
        "{}x",
        "{},",
        "{}]",
        "{}\0",
        "\0{}",
        "\u{b}{}",
        "\u{a0}{}",
        "{}\u{a0}",
        "cdr=%7B%7D",
        "<cdr/>",
        "{",
        "}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1",
        "{\"a\":1,}",
        "{,}",
        "{\"a\":1 \"b\":2}",
        "{\"a\":1;\"b\":2}",
        "{a:1}",
        "{'a':1}",
        "{1:1}",
        "{null:1}",
        "{\"a\"=1}",
        "{\"a\":1}//",
        "{\"a\":1}#",
        "{/**/}",
        "{\"a\":[1,]}",
        "{\"a\":[,1]}",
        "{\"a\":[1}}",
        "{\"a\":{]}",
        "{\"a\":[1 2]}",
        "\u{1e}{}",
        ")]}'{}",
    ] {
        assert_malformed(payload);
        if let Some(inside) = payload.strip_prefix("{\"a\"") {
            let good = with(&[]);
            let start = good.strip_suffix('}').expect("an object");
            assert_malformed(format!("{start},\"a\"{inside}"));
        }
    }
    let good = with(&[]);
    assert_malformed(format!("[{good}]"));
    assert_malformed(format!("{good}{good}"));
    assert_malformed(format!("{good}\n{good}"));
    for end in 0..good.len() {
        assert_malformed(&good[..end]);
    }
    assert_good(format!(" \r\n\t{good}\n \r\t"));
    assert_good("{}");
}

#[test]
fn literals_and_numbers() {
    for name in ["x", "cell_id", "duration_s"] {
        for token in [
            "NaN",
            "-NaN",
            "nan",
            "Infinity",
            "-Infinity",
            "+Infinity",
            "inf",
            "True",
            "False",
            "None",
            "TRUE",
            "NULL",
            "undefined",
            "nul",
            "nulll",
            "truee",
            "+1",
            "01",
            "-01",
            "00",
            "1.",
            ".5",
            "-.5",
            "-",
            "--1",
            "1e",
            "1e+",
            "1.e5",
            "0x10",
            "1_000",
            "1 000",
            "1e999",
            "-1e999",
            "1e309",
            "123e400",
            "1f",
            "0b1",
            "0o7",
            "１",
            "",
            "'x'",
            "`x`",
            "1e99999999999999999999",
            "-0.0e",
            "1.2.3",
            "(1)",
            "b\"x\"",
            "\"x\"\"y\"",
            "\"a\" \"b\"",
        ] {
            assert_malformed(with_json(name, token));
            assert_malformed(with_json("x", &format!("[{token}]").replace("[]", "[,]")));
            assert_malformed(with_json("x", &format!("{{\"{name}\":{token}}}")));
        }
        // More digits than a double can hold.
        assert_malformed(with_json(name, &"9".repeat(400)));
        assert_malformed(with_json(name, &format!("-{}", "9".repeat(400))));
        for token in [
            "0",
            "-0",
            "1e308",
            "1E+2",
            "-1.5e-3",
            "1e-999",
            "0e999",
            "18446744073709551616",
        ] {
            assert_good(with_json(name, token));
        }
    }
}

#[test]
fn strings() {
    for name in ["cell_id", "x"] {
        for text in [
            r#""\ud800""#,
            r#""\udc00""#,
            r#""\ud800x""#,
            r#""\ud800\n""#,
            r#""\ud800\ud800""#,
            r#""\udc00\ud800""#,
            r#""\ud83d\u0041""#,
            r#""\uD83D""#,
            r#""\ud8""#,
            r#""\u12g4""#,
            r#""\x41""#,
            r#""\'""#,
            r#""\U0041""#,
            r#""\""#,
            r#"""#,
            "\"a\tb\"",
            "\"a\nb\"",
            "\"a\0b\"",
            "\"\u{1f}\"",
            r#""\u""#,
            r#""\u{41}""#,
            r#""\a""#,
            r#""\0""#,
        ] {
            assert_malformed(with_json(name, text));
            assert_malformed(with_json("x", &format!("[[{text}]]")));
            assert_malformed(with_json("x", &format!("{{{text}:1}}")));
            let good = with(&[]);
            let start = good.strip_suffix('}').expect("an object");
            assert_malformed(format!("{start},{text}:1}}"));
        }
        for text in [
            r#""\ud83d\ude00""#,
            r#""\u0000\u001f\b\f\/""#,
            "\"\u{7f}\u{85}\u{10ffff}\u{ffff}\"",
        ] {
            assert_good(with_json(name, text));
            assert_good(with_json("x", &format!("{{{text}:[{text}]}}")));
        }
    }
}

#[test]
fn depth_is_bounded_at_127() {
    // The record itself is the first level.
    for (levels, good) in [
        (1, true),
        (126, true),
        (127, false),
        (128, false),
        (100_000, false),
    ] {
        let arrays = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let objects = format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
        for deep in [arrays, objects] {
            for name in ["x", "cell_id"] {
                let payload = with_json(name, &deep);
                assert_eq!(
                    malformed(payload.as_bytes()).is_none(),
                    good,
                    "{levels} in {name}"
                );
            }
        }
    }
    // Many side by side are not deep.
    assert_good(with_json("x", &format!("[{}[]]", "[[]],".repeat(1000))));
}

#[test]
fn a_known_key_comes_once_however_it_is_spelled() {
    let good = with(&[]);
    let start = good.strip_suffix('}').expect("an object");
    for key in Key::REQUIRED {
        let name = key.name();
        let escaped: String = name.bytes().map(|byte| format!("\\u{byte:04x}")).collect();
        let half = name.replacen('_', "\\u005F", 1);
        for spelling in [name, &escaped, &half] {
            for value in ["null", "1", "\"\"", "[]"] {
                let fault = assert_malformed(format!("{start},\"{spelling}\":{value}}}"));
                assert_eq!(fault.field, Some(name));
                assert!(fault.detail.contains(name));
            }
        }
    }
    for key in Key::ALL {
        let name = key.name();
        let twice = assert_malformed(format!("{{\"{name}\":null,\"a\":1,\"{name}\":null}}"));
        assert_eq!(twice.field, Some(name));
    }
}

#[test]
fn other_keys_may_come_twice_and_inner_ones_are_not_known() {
    let good = with(&[]);
    let start = good.strip_suffix('}').expect("an object");
    for tail in [
        r#""x":1,"x":2"#,
        r#""x":{"raw_id":1,"raw_id":2}"#,
        r#""RAW_ID":1,"Raw_Id":2"#,
        r#""raw_id ":1,"raw\u0000_id":2"#,
        r#""":1,"":2"#,
    ] {
        assert_good(format!("{start},{tail}}}"));
    }
}

#[test]
fn escaped_keys_and_values_are_the_same_as_plain_ones() -> Result<(), Malformed> {
    let record = RawCdr::parse(br#"{"raw\u005fid":"a\u002Fb\/\"","bytes\u005Fup":-0}"#)?;
    assert_eq!(record.get(Key::RawId), &Field::Text("a/b/\"".into()));
    assert_eq!(record.get(Key::BytesUp), &Field::Integer(0));
    Ok(())
}

#[test]
fn an_integer_is_an_integer_token() -> Result<(), Malformed> {
    for (token, field) in [
        ("0", Field::Integer(0)),
        ("-0", Field::Integer(0)),
        ("-1", Field::Integer(-1)),
        ("9223372036854775808", Field::Integer(1 << 63)),
        ("18446744073709551615", Field::Integer(u64::MAX.into())),
        ("18446744073709551616", Field::Integer(1 << 64)),
        (
            "-9223372036854775809",
            Field::Integer(i128::from(i64::MIN) - 1),
        ),
        ("1.0", Field::OtherNumber),
        ("-0.0", Field::OtherNumber),
        ("1e3", Field::OtherNumber),
        ("1E3", Field::OtherNumber),
        ("0e0", Field::OtherNumber),
        ("1e-999", Field::OtherNumber),
        ("123456789012345678901234567890.0", Field::OtherNumber),
    ] {
        let payload =
            format!("{{\"x\":{{\"bytes_up\":7}},\"duration_s\":1.5,\"bytes_up\" : {token} }}");
        let record = RawCdr::parse(payload.as_bytes())?;
        assert_eq!(record.get(Key::BytesUp), &field, "{token}");
        assert_eq!(record.get(Key::DurationS), &Field::OtherNumber);
    }
    let huge = format!("{{\"duration_s\":{}}}", "9".repeat(300));
    assert_eq!(
        RawCdr::parse(huge.as_bytes())?.get(Key::DurationS),
        &Field::Integer(i128::MAX)
    );
    Ok(())
}

#[test]
fn the_detail_holds_nothing_of_the_payload() {
    let secret = "+12025550123".repeat(1000);
    for payload in [
        format!("\"{secret}\""),
        format!("{{\"x\":\"{secret}\" \"y\":1}}"),
        format!("{{\"{secret}\":1e999}}"),
        format!("{{\"raw_id\":\"{secret}\",\"raw_id\":\"{secret}\"}}"),
        format!("{{\"x\":1}}{secret}"),
    ] {
        let fault = assert_malformed(payload);
        assert!(!fault.detail.contains("2025550123"), "{fault:?}");
        assert!(fault.detail.len() < 200);
    }
}
