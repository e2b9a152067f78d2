//! The phone engine in use against another one, on the phone cases.
//!
//! Both get the same readings, so that what differs is the engine and not the
//! rules around it. The list of differences, with who is right by the case, is
//! checked in as `phone_differences.txt`; when it changes, look at it and put
//! the new one there (the test prints it).

mod common;

use cdr_normalizer::phone::{Engine, Libphonenumber, Number, Region, normalize_with};
use common::cases;
use std::fmt::Write as _;

/// The `phonenumber` crate.
struct Peer;

impl Engine for Peer {
    fn read(&self, text: &str, region: Option<Region>) -> Option<Number> {
        let region = region.and_then(|region| region.as_str().parse().ok());
        // It is known to panic on some inputs; that is no answer either.
        let number = std::panic::catch_unwind(|| phonenumber::parse(region, text))
            .ok()?
            .ok()?;
        let e164 = number.format().mode(phonenumber::Mode::E164).to_string();
        let valid = phonenumber::is_valid(&number);
        (e164.len() <= 16).then_some(Number { e164, valid })
    }
}

fn shown(number: Option<&Number>) -> String {
    match number {
        Some(Number { e164, valid: true }) => e164.clone(),
        Some(Number { e164, valid: false }) => format!("{e164} (not valid)"),
        None => "refused".into(),
    }
}

#[test]
fn differences_are_those_on_record() {
    let mut list = String::from(
        "# Phone cases on which two engines differ under the same rules. \"right\" is by the case.\n",
    );
    for case in cases("phone") {
        let Some(raw) = case.input["raw"].as_str() else {
            continue;
        };
        let region = case.input["default_region"]
            .as_str()
            .and_then(Region::from_code);
        let ours = normalize_with(&Libphonenumber, raw, region).ok();
        let peers = normalize_with(&Peer, raw, region).ok();
        if ours == peers {
            continue;
        }
        let expected = case.expect["e164"].as_str().map(|e164| Number {
            e164: e164.to_owned(),
            valid: case.expect["valid"].as_bool().unwrap_or_default(),
        });
        let right = match (ours == expected, peers == expected) {
            (true, _) => "rlibphonenumber",
            (_, true) => "phonenumber",
            _ => "neither",
        };
        writeln!(
            list,
            "{}: rlibphonenumber {}, phonenumber {}; right: {right}",
            case.id,
            shown(ours.as_ref()),
            shown(peers.as_ref()),
        )
        .expect("writing to a string");
    }
    println!("{list}");
    assert!(
        !list.contains("right: phonenumber"),
        "the peer knows better:\n{list}"
    );
    let recorded = include_str!("phone_differences.txt");
    assert_eq!(
        list, recorded,
        "tests/phone_differences.txt does not hold this list:\n{list}"
    );
}
