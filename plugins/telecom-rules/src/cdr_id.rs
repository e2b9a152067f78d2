//! The identity of a record: a UUIDv5 of what its vendor calls it.
//!
//! The identifiers go in byte for byte, each as a netstring, so that neither
//! case, Unicode forms nor a shifted boundary (`ab`+`c`, `a`+`bc`) can make two
//! records one, and no release of any metadata ever changes an id.

use uuid::Uuid;

/// UUIDv5(URL, `urn:telecom:cdr`).
pub const NAMESPACE: Uuid = Uuid::from_u128(0x1c56_04e3_0789_52ac_91ae_de0f_4030_1090);

/// UUIDv5([`NAMESPACE`], netstring(vendor_id) ‖ netstring(raw_id)), where
/// netstring(s) is the length of s in bytes, `:`, s, `,`.
pub fn cdr_id(vendor_id: &str, raw_id: &str) -> Uuid {
    let mut name = Vec::with_capacity(vendor_id.len() + raw_id.len() + 24);
    for part in [vendor_id, raw_id] {
        push_decimal(&mut name, part.len());
        name.push(b':');
        name.extend_from_slice(part.as_bytes());
        name.push(b',');
    }
    Uuid::new_v5(&NAMESPACE, &name)
}

fn push_decimal(out: &mut Vec<u8>, value: usize) {
    if value >= 10 {
        push_decimal(out, value / 10);
    }
    // Less than ten, so it fits.
    out.push(b'0' + (value % 10) as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_is_derived_from_the_urn() {
        assert_eq!(
            NAMESPACE,
            Uuid::new_v5(&Uuid::NAMESPACE_URL, b"urn:telecom:cdr")
        );
        assert_eq!(
            NAMESPACE.to_string(),
            "1c5604e3-0789-52ac-91ae-de0f40301090"
        );
    }

    #[test]
    fn version_5_is_that_of_rfc_9562_appendix_a4() {
        assert_eq!(
            Uuid::new_v5(&Uuid::NAMESPACE_DNS, b"www.example.com").to_string(),
            "2ed6657d-e927-568b-95e1-2665a8aea6a2"
        );
    }

    #[test]
    fn names_are_netstrings() {
        for (vendor_id, raw_id, name) in [
            ("vend-a", "r-0001", &b"6:vend-a,6:r-0001,"[..]),
            ("", "", b"0:,0:,"),
            ("a,1:b", "0123456789", b"5:a,1:b,10:0123456789,"),
            ("é", "\u{301}", "2:é,2:\u{301},".as_bytes()),
        ] {
            assert_eq!(cdr_id(vendor_id, raw_id), Uuid::new_v5(&NAMESPACE, name));
        }
        let long = "x".repeat(1234);
        let name = format!("1234:{long},1:y,");
        assert_eq!(
            cdr_id(&long, "y"),
            Uuid::new_v5(&NAMESPACE, name.as_bytes())
        );
    }

    #[test]
    fn nothing_is_folded() {
        let ids = [
            ("ab", "c"),
            ("a", "bc"),
            ("AB", "c"),
            ("ab ", "c"),
            ("c", "ab"),
        ]
        .map(|(vendor_id, raw_id)| cdr_id(vendor_id, raw_id));
        for (index, id) in ids.iter().enumerate() {
            assert!(!ids[..index].contains(id));
        }
        assert_ne!(cdr_id("v", "e\u{301}"), cdr_id("v", "\u{e9}"));
    }
}
