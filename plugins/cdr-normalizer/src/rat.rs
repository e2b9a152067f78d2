//! Radio access types: from names and codes to one canonical set.
//!
//! Codes are those of GTP (3GPP TS 29.274 table 8.17-1) below 1000 and those of
//! the Diameter RAT-Type (TS 29.212) from 1000; names are those of TS 29.274
//! and TS 29.571, and what vendors write. What is in no table is refused: a
//! guess would be stored as a fact.

/// A radio access type. Texts are empty where there is nothing to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rat {
    /// `GERAN`, `UTRAN`, `HSPA_EVOLUTION`, `EUTRAN`, `EUTRAN_NB_IOT`, `LTE_M`,
    /// `NR`, `WLAN`, `GAN` or `VIRTUAL`.
    pub access: &'static str,
    /// `LEO`, `MEO`, `GEO` or `OTHERSAT` for access by satellite.
    pub orbit: &'static str,
    /// `NR` where the anchor is LTE and a second leg is 5G (EN-DC).
    pub secondary: &'static str,
}

const ORBITS: [&str; 4] = ["LEO", "MEO", "GEO", "OTHERSAT"];

/// No name in the table is longer, separators left out.
const LONGEST: usize = 32;

impl Rat {
    const fn plain(access: &'static str) -> Self {
        Self {
            access,
            orbit: "",
            secondary: "",
        }
    }

    const fn in_orbit(access: &'static str, orbit: usize) -> Self {
        Self {
            access,
            orbit: ORBITS[orbit],
            secondary: "",
        }
    }

    /// The access type that a vendor's value means; `None` if it means none.
    pub fn parse(value: &str) -> Option<Self> {
        let value = value.trim();
        if value.bytes().all(|byte| byte.is_ascii_digit()) {
            return Self::from_code(value);
        }
        let mut buffer = [0; LONGEST];
        let mut length = 0;
        for byte in value.bytes() {
            if matches!(byte, b' ' | b'_' | b'-' | b'/' | b'.') {
                continue;
            }
            if !byte.is_ascii_graphic() {
                return None;
            }
            *buffer.get_mut(length)? = byte.to_ascii_uppercase();
            length += 1;
        }
        let name = str::from_utf8(buffer.get(..length)?).ok()?;
        Self::from_name(name).or_else(|| Self::from_satellite_name(name))
    }

    fn from_code(digits: &str) -> Option<Self> {
        if digits.starts_with('0') || digits.len() > 4 {
            return None;
        }
        let code: usize = digits.parse().ok()?;
        Some(match code {
            1 | 1000 => Self::plain("UTRAN"),
            2 | 1001 => Self::plain("GERAN"),
            3 => Self::plain("WLAN"),
            4 | 1002 => Self::plain("GAN"),
            5 | 1003 => Self::plain("HSPA_EVOLUTION"),
            6 | 1004 => Self::plain("EUTRAN"),
            7 => Self::plain("VIRTUAL"),
            8 | 1005 => Self::plain("EUTRAN_NB_IOT"),
            9 | 1007 => Self::plain("LTE_M"),
            10 | 1006 | 1008 => Self::plain("NR"),
            11..=14 => Self::in_orbit("EUTRAN", code - 11),
            15..=18 => Self::in_orbit("EUTRAN_NB_IOT", code - 15),
            19..=22 => Self::in_orbit("LTE_M", code - 19),
            1011..=1014 => Self::in_orbit("EUTRAN", code - 1011),
            1021..=1024 => Self::in_orbit("EUTRAN_NB_IOT", code - 1021),
            1031..=1034 => Self::in_orbit("LTE_M", code - 1031),
            _ => return None,
        })
    }

    /// By a name in upper case without separators.
    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "GERAN" | "GERA" | "2G" | "275G" | "GSM" | "GPRS" | "EDGE" => Self::plain("GERAN"),
            "UTRAN" | "UTRA" | "3G" | "35G" | "UMTS" | "WCDMA" | "HSDPA" | "HSUPA" | "HSPA" => {
                Self::plain("UTRAN")
            }
            "HSPAEVOLUTION" | "HSPA+" | "HSPAP" => Self::plain("HSPA_EVOLUTION"),
            "EUTRAN" | "EUTRA" | "WBEUTRAN" | "4G" | "4G+" | "LTE" | "LTEA" | "LTECA" | "VOLTE" => {
                Self::plain("EUTRAN")
            }
            "NSA" | "5GNSA" | "NRNSA" | "ENDC" => Self {
                access: "EUTRAN",
                orbit: "",
                secondary: "NR",
            },
            "EUTRANNBIOT" | "NBIOT" | "CATNB1" | "CATNB2" => Self::plain("EUTRAN_NB_IOT"),
            "LTEM" | "LTEMTC" | "EMTC" | "CATM1" => Self::plain("LTE_M"),
            "NR" | "5G" | "5GNR" | "5GSA" | "NGRAN" | "NRU" | "NRREDCAP" => Self::plain("NR"),
            "WLAN" | "WIFI" | "VOWIFI" | "IWLAN" | "TRUSTEDWLAN" => Self::plain("WLAN"),
            "GAN" | "UMA" => Self::plain("GAN"),
            "VIRTUAL" => Self::plain("VIRTUAL"),
            _ => return None,
        })
    }

    /// A name with the orbit in brackets or as a suffix. Only the access types
    /// that 3GPP defines over satellite can have one.
    fn from_satellite_name(name: &str) -> Option<Self> {
        let (base, orbit) = ORBITS.into_iter().find_map(|orbit| {
            let base = match name.strip_suffix(')') {
                Some(inside) => inside.strip_suffix(orbit)?.strip_suffix('(')?,
                None => name.strip_suffix(orbit)?,
            };
            Some((base, orbit))
        })?;
        let rat = Self::from_name(base)?;
        let by_satellite = matches!(rat.access, "EUTRAN" | "EUTRAN_NB_IOT" | "LTE_M" | "NR")
            && rat.secondary.is_empty();
        by_satellite.then_some(Self { orbit, ..rat })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(value: &str) -> Option<String> {
        Rat::parse(value).map(|rat| {
            [rat.access, rat.orbit, rat.secondary]
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect::<Vec<_>>()
                .join(" ")
        })
    }

    #[test]
    fn every_code_is_known_or_refused() {
        let known = [
            (1, "UTRAN"),
            (2, "GERAN"),
            (3, "WLAN"),
            (4, "GAN"),
            (5, "HSPA_EVOLUTION"),
            (6, "EUTRAN"),
            (7, "VIRTUAL"),
            (8, "EUTRAN_NB_IOT"),
            (9, "LTE_M"),
            (10, "NR"),
            (11, "EUTRAN LEO"),
            (12, "EUTRAN MEO"),
            (13, "EUTRAN GEO"),
            (14, "EUTRAN OTHERSAT"),
            (15, "EUTRAN_NB_IOT LEO"),
            (16, "EUTRAN_NB_IOT MEO"),
            (17, "EUTRAN_NB_IOT GEO"),
            (18, "EUTRAN_NB_IOT OTHERSAT"),
            (19, "LTE_M LEO"),
            (20, "LTE_M MEO"),
            (21, "LTE_M GEO"),
            (22, "LTE_M OTHERSAT"),
            (1000, "UTRAN"),
            (1001, "GERAN"),
            (1002, "GAN"),
            (1003, "HSPA_EVOLUTION"),
            (1004, "EUTRAN"),
            (1005, "EUTRAN_NB_IOT"),
            (1006, "NR"),
            (1007, "LTE_M"),
            (1008, "NR"),
            (1011, "EUTRAN LEO"),
            (1012, "EUTRAN MEO"),
            (1013, "EUTRAN GEO"),
            (1014, "EUTRAN OTHERSAT"),
            (1021, "EUTRAN_NB_IOT LEO"),
            (1022, "EUTRAN_NB_IOT MEO"),
            (1023, "EUTRAN_NB_IOT GEO"),
            (1024, "EUTRAN_NB_IOT OTHERSAT"),
            (1031, "LTE_M LEO"),
            (1032, "LTE_M MEO"),
            (1033, "LTE_M GEO"),
            (1034, "LTE_M OTHERSAT"),
        ];
        for code in 0..=10_100 {
            let expected = known.iter().find(|(known, _)| *known == code);
            assert_eq!(
                shown(&code.to_string()).as_deref(),
                expected.map(|(_, rat)| *rat),
                "{code}"
            );
        }
    }

    #[test]
    fn a_code_has_no_sign_point_separator_or_leading_zero() {
        for value in [
            "+6", "-6", "06", "00", "6.0", "1.0", "1_0", "1 0", "1-0", "01004", "1004.0", "6e0",
            "0x6", "٦", "６", "99999999999999999999", "1,004", "6;", "10G",
        ] {
            assert_eq!(shown(value), None, "{value:?}");
        }
        assert_eq!(shown(" 6\t"), Some("EUTRAN".into()));
    }

    #[test]
    fn every_name_of_the_table() {
        let table: &[(&str, &[&str])] = &[
            ("GERAN", &["GERAN", "GERA", "2G", "2.75G", "GSM", "GPRS", "EDGE"]),
            (
                "UTRAN",
                &["UTRAN", "UTRA", "3G", "3.5G", "UMTS", "WCDMA", "W-CDMA", "HSDPA", "HSUPA", "HSPA"],
            ),
            (
                "HSPA_EVOLUTION",
                &["HSPA Evolution", "HSPA_EVOLUTION", "HSPA+", "hspa +", "HSPAP"],
            ),
            (
                "EUTRAN",
                &[
                    "EUTRAN", "E-UTRAN", "EUTRA", "WB-E-UTRAN", "4G", "4G+", "LTE", "LTE-A",
                    "LTE_CA", "VoLTE", "lte", " Lte\n", "E/UTRAN",
                ],
            ),
            ("EUTRAN NR", &["NSA", "5G_NSA", "5G NSA", "NR_NSA", "EN-DC", "endc"]),
            (
                "EUTRAN_NB_IOT",
                &["EUTRAN-NB-IoT", "EUTRAN_NB_IOT", "NB-IoT", "NBIOT", "Cat-NB1", "Cat-NB2", "CAT NB1"],
            ),
            ("LTE_M", &["LTE-M", "LTE_M", "LTE-MTC", "eMTC", "Cat-M1", "LTE M"]),
            ("NR", &["NR", "5G", "5G NR", "5G_SA", "NG-RAN", "NR_U", "NR_REDCAP", "NR-U"]),
            ("WLAN", &["WLAN", "WiFi", "Wi-Fi", "VoWiFi", "IWLAN", "I-WLAN", "TRUSTED_WLAN"]),
            ("GAN", &["GAN", "UMA"]),
            ("VIRTUAL", &["VIRTUAL", "Virtual"]),
        ];
        for (canonical, values) in table {
            for value in *values {
                assert_eq!(shown(value).as_deref(), Some(*canonical), "{value:?}");
            }
        }
    }

    #[test]
    fn satellites_by_suffix_and_in_brackets() {
        let bases = [
            ("WB-E-UTRAN", "EUTRAN"),
            ("E-UTRAN", "EUTRAN"),
            ("LTE", "EUTRAN"),
            ("EUTRAN-NB-IoT", "EUTRAN_NB_IOT"),
            ("NB_IOT", "EUTRAN_NB_IOT"),
            ("LTE-M", "LTE_M"),
            ("NR", "NR"),
            ("5G", "NR"),
        ];
        let orbits = [
            ("LEO", "LEO"),
            ("meo", "MEO"),
            ("GEO", "GEO"),
            ("OTHERSAT", "OTHERSAT"),
            ("OTHER_SAT", "OTHERSAT"),
            ("Other Sat", "OTHERSAT"),
        ];
        for (base, access) in bases {
            for (orbit, canonical) in orbits {
                let expected = Some(format!("{access} {canonical}"));
                for value in [
                    format!("{base}_{orbit}"),
                    format!("{base}{orbit}"),
                    format!("{base}({orbit})"),
                    format!(" {base} ( {orbit} ) "),
                ] {
                    assert_eq!(shown(&value), expected, "{value:?}");
                }
            }
        }
        for value in [
            "LEO", "(LEO)", "GERAN_LEO", "UTRAN(GEO)", "WLAN_LEO", "VIRTUAL_GEO", "NSA_LEO",
            "NR(LEO", "NRLEO)", "NR((LEO))", "NR()", "NR(XEO)", "NR[LEO]", "NR_LEO_MEO",
            "NR(LEO)MEO", "(NR)LEO", "11_LEO", "NR(LEO,MEO)", "6G_LEO",
        ] {
            assert_eq!(shown(value), None, "{value:?}");
        }
    }

    #[test]
    fn what_is_in_no_table_is_refused() {
        for value in [
            "6G", "CDMA", "CDMA2000", "EVDO", "EV-DO", "eHRPD", "1xRTT", "WIRELINE", "UNKNOWN",
            "N/A", "NA", "none", "null", "-", "_", ".", "+", "LTEE", "E", "LT", "LTE/NR", "LTE,NR",
            "4G/5G", "2G|3G", "ＬＴＥ", "５G", "LТE", "ſms", "LTE\u{200b}", "L\u{a0}TE", "LTE\0",
            "L\tTE", "5G+", "LTE+", "2.5G", "WiMAX", "HSPA++", "RAT_LTE", "VoNR",
        ] {
            assert_eq!(shown(value), None, "{value:?}");
        }
        assert_eq!(shown(&"L".repeat(100_000)), None);
    }
}
