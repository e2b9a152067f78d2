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
