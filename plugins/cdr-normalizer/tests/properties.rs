//! What holds for every payload.

mod common;

use cdr_normalizer::admit::{Code, admit};
use cdr_normalizer::field::Key;
use cdr_normalizer::normalize::{Reason, normalize};
use cdr_normalizer::phone::{self, Region};
use cdr_normalizer::rat::Rat;
use cdr_normalizer::raw::RawCdr;
use cdr_normalizer::{epoch, ipv4};
use common::{NOW_S, base, settings};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Any JSON text: good values, some numbers and strings that are not.
fn any_json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        any::<i64>().prop_map(|value| value.to_string()),
        any::<u64>().prop_map(|value| format!("{value}0")),
        any::<f64>().prop_map(|value| format!("{value:e}")),
        "-?[0-9]{1,3}(\\.[0-9]{0,2})?(e[-+]?[0-9]{1,3})?",
        ".{0,6}".prop_map(|text| Value::String(text).to_string()),
        "\"(\\\\u[0-9a-f]{4}|\\\\ud[89a-f][0-9a-f]{2}|[a-z ]|\\\\[nrt\"x]){0,4}\"",
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let key = prop_oneof![
            Just("\"raw_id\"".to_owned()),
            Just("\"cell\\u005fid\"".to_owned()),
            "\"[a-z]{0,2}\"",
            "\"\\\\u[0-9a-f]{4}\"",
        ];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4)
                .prop_map(|values| format!("[{}]", values.join(","))),
            proptest::collection::vec((key, inner), 0..4).prop_map(|pairs| {
                let pairs: Vec<String> = pairs
                    .into_iter()
                    .map(|(key, value)| format!("{key}:{value}"))
                    .collect();
                format!("{{{}}}", pairs.join(" , "))
            }),
        ]
    })
}

/// A value that may stand in a record.
fn any_field() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (NOW_S - 100..NOW_S + 100).prop_map(Value::from),
        (-5_i64..70).prop_map(Value::from),
        any::<f64>().prop_map(|value| json!(value)),
        ".{0,12}".prop_map(Value::from),
        Just(json!("")),
        Just(json!(" ")),
        Just(json!("voice")),
        Just(json!("DATA")),
        Just(json!("LTE")),
        Just(json!("+442079460123")),
        Just(json!("192.0.2.1")),
        Just(json!(["x"])),
        Just(json!({"raw_id": 1})),
    ]
}

fn any_record() -> impl Strategy<Value = String> {
    let change = (0..Key::COUNT, any_field());
    proptest::collection::vec(change, 0..6).prop_map(|changes| {
        let mut record = base();
        for (index, value) in changes {
            record.insert(Key::ALL[index].name().to_owned(), value);
        }
        Value::Object(record).to_string()
    })
}

/// What a number might look like, with all that comes around numbers.
fn any_phone() -> impl Strategy<Value = String> {
    prop_oneof![
        ".{0,24}",
        "[+0-9]{0,20}",
        "[-+0-9 ().x#*;,~/=@:%\u{200e}\u{ff0b}٠-٩０-９]{0,30}",
        "(tel:|sip:|SIPS:|<)?\\+?[0-9 -]{2,16}(;ext=[0-9]{0,3}|;phone-context=\\+?[a-z0-9.]{0,4}|;npdi|x[0-9]{1,9})?(@[a-z.]{1,8})?>?",
        "(00|011|0|\\+)?(1|44|49|39|7|86|800|870|999)[0-9]{3,13}",
    ]
}

fn any_region() -> impl Strategy<Value = Option<Region>> {
    proptest::sample::select(vec![
        "", "US", "GB", "DE", "IT", "AU", "BR", "RU", "JP", "AR", "KR",
    ])
    .prop_map(Region::from_code)
}

/// Whether every known key of the outermost object is there at most once, as
/// `serde_json::Value` can't tell.
fn known_keys_once(text: &str) -> bool {
    struct Pairs(Vec<String>);
    impl<'de> serde::Deserialize<'de> for Pairs {
        fn deserialize<D: serde::Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
            struct Keys;
            impl<'de> serde::de::Visitor<'de> for Keys {
                type Value = Pairs;
                fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    out.write_str("an object")
                }
                fn visit_map<M: serde::de::MapAccess<'de>>(
                    self,
                    mut map: M,
                ) -> Result<Pairs, M::Error> {
                    let mut keys = Vec::new();
                    while let Some((key, _)) = map.next_entry::<String, Value>()? {
                        keys.push(key);
                    }
                    Ok(Pairs(keys))
                }
            }
            json.deserialize_map(Keys)
        }
    }
    let Ok(Pairs(mut keys)) = serde_json::from_str::<Pairs>(text) else {
        return false;
    };
    keys.retain(|key| Key::from_name(key).is_some());
    let all = keys.len();
    keys.sort();
    keys.dedup();
    keys.len() == all
}

fn judge_all(payload: &[u8]) {
    if let Ok(record) = RawCdr::parse(payload) {
        let _ = admit(&record);
        for now in [i64::MIN, -1, 0, NOW_S * 1000, i64::MAX] {
            let _ = normalize(record.clone(), now, &settings(&json!("GB")));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_it_panic(payload in proptest::collection::vec(any::<u8>(), 0..80)) {
        judge_all(&payload);
    }

    #[test]
    fn no_mutation_of_a_record_makes_it_panic(
        record in any_record(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut payload = record.into_bytes();
        let at = at.index(payload.len());
        payload[at] = byte;
        judge_all(&payload);
    }

    #[test]
    fn well_formed_is_what_serde_json_says(text in any_json()) {
        let value: Result<Map<String, Value>, _> = serde_json::from_str(&text);
        let expected = value.is_ok() && known_keys_once(&text);
        prop_assert_eq!(RawCdr::parse(text.as_bytes()).is_ok(), expected, "{}", text);
        // The same in a field that nobody knows.
        let wrapped = format!("{{\"x\":{text}}}");
        let expected = serde_json::from_str::<Value>(&wrapped).is_ok();
        prop_assert_eq!(RawCdr::parse(wrapped.as_bytes()).is_ok(), expected, "{}", wrapped);
    }

    #[test]
    fn what_was_admitted_is_neither_malformed_nor_missing_nor_of_a_wrong_type(record in any_record()) {
        let Ok(parsed) = RawCdr::parse(record.as_bytes()) else {
            return Err(TestCaseError::fail(record));
        };
        let admitted = admit(&parsed).map(|_| ());
        let answer = normalize(parsed.clone(), NOW_S * 1000, &settings(&json!("GB")));
        match (admitted, answer) {
            (Ok(()), Err(rejection)) => {
                prop_assert!(rejection.reason > Reason::MissingRequiredField, "{:?}", rejection);
                prop_assert!(!rejection.detail.contains("has to be"), "{:?}", rejection);
            }
            (Err(refusal), answer) => {
                // And what was refused makes no row either.
                let Err(rejection) = answer else {
                    return Err(TestCaseError::fail(format!("a row, though {refusal:?}")));
                };
                prop_assert_eq!(
                    refusal.code == Code::MissingRequiredField,
                    rejection.reason == Reason::MissingRequiredField
                );
            }
            (Ok(()), Ok(_)) => {}
        }
    }

    #[test]
    fn the_same_record_gives_the_same_row(record in any_record()) {
        let rows: Vec<_> = (0..2)
            .map(|_| RawCdr::parse(record.as_bytes()).map(|raw| normalize(raw, NOW_S * 1000, &settings(&json!("US")))))
            .collect();
        prop_assert_eq!(&rows[0], &rows[1]);
    }

    #[test]
    fn a_phone_number_is_e164_and_stays_what_it_is(text in any_phone(), region in any_region()) {
        if let Ok(number) = phone::normalize(&text, region) {
            let digits = number.e164.strip_prefix('+').unwrap_or_default();
            prop_assert!((3..=15).contains(&digits.len()), "{}", number.e164);
            prop_assert!(digits.bytes().all(|byte| byte.is_ascii_digit()));
            prop_assert!(!digits.starts_with('0'));
            if number.valid {
                prop_assert_eq!(phone::normalize(&number.e164, region), Ok(number));
            }
        }
    }

    #[test]
    fn an_access_type_is_canonical_and_stays_what_it_is(text in ".{0,12}|[A-Za-z0-9+_ -]{0,10}") {
        if let Some(rat) = Rat::parse(&text) {
            prop_assert_eq!(Rat::parse(rat.access).map(|rat| rat.access), Some(rat.access));
        }
    }

    #[test]
    fn a_moment_is_inside_the_window(value in any::<i64>(), received in 0_i64..4_000_000_000) {
        for value in [value, received + value % 8_000_000, (received + value % 8_000_000) * 1000] {
            if let Some(seconds) = epoch::to_seconds(value.into(), received * 1000) {
                let age = received - i64::from(seconds);
                prop_assert!((-86_400..=90 * 86_400).contains(&age));
            }
        }
    }

    #[test]
    fn an_address_is_written_in_one_way(text in "[0-9.]{0,16}|.{0,8}") {
        if let Some(address) = ipv4::parse(&text) {
            prop_assert_eq!(address.to_string(), text);
        }
    }
}
