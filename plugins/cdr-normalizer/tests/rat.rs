//! Every row of the tables of radio access types, and what is in none.

use cdr_normalizer::rat::Rat;

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
        "+6",
        "-6",
        "06",
        "00",
        "6.0",
        "1.0",
        "1_0",
        "1 0",
        "1-0",
        "01004",
        "1004.0",
        "6e0",
        "0x6",
        "٦",
        "６",
        "99999999999999999999",
        "1,004",
        "6;",
        "10G",
    ] {
        assert_eq!(shown(value), None, "{value:?}");
    }
    assert_eq!(shown(" 6\t"), Some("EUTRAN".into()));
}

#[test]
fn every_name_of_the_table() {
    let table: &[(&str, &[&str])] = &[
        (
            "GERAN",
            &["GERAN", "GERA", "2G", "2.75G", "GSM", "GPRS", "EDGE"],
        ),
        (
            "UTRAN",
            &[
                "UTRAN", "UTRA", "3G", "3.5G", "UMTS", "WCDMA", "W-CDMA", "HSDPA", "HSUPA", "HSPA",
            ],
        ),
        (
            "HSPA_EVOLUTION",
            &[
                "HSPA Evolution",
                "HSPA_EVOLUTION",
                "HSPA+",
                "hspa +",
                "HSPAP",
            ],
        ),
        (
            "EUTRAN",
            &[
                "EUTRAN",
                "E-UTRAN",
                "EUTRA",
                "WB-E-UTRAN",
                "4G",
                "4G+",
                "LTE",
                "LTE-A",
                "LTE_CA",
                "VoLTE",
                "lte",
                " Lte\n",
                "E/UTRAN",
            ],
        ),
        (
            "EUTRAN NR",
            &["NSA", "5G_NSA", "5G NSA", "NR_NSA", "EN-DC", "endc"],
        ),
        (
            "EUTRAN_NB_IOT",
            &[
                "EUTRAN-NB-IoT",
                "EUTRAN_NB_IOT",
                "NB-IoT",
                "NBIOT",
                "Cat-NB1",
                "Cat-NB2",
                "CAT NB1",
            ],
        ),
        (
            "LTE_M",
            &["LTE-M", "LTE_M", "LTE-MTC", "eMTC", "Cat-M1", "LTE M"],
        ),
        (
            "NR",
            &[
                "NR",
                "5G",
                "5G NR",
                "5G_SA",
                "NG-RAN",
                "NR_U",
                "NR_REDCAP",
                "NR-U",
            ],
        ),
        (
            "WLAN",
            &[
                "WLAN",
                "WiFi",
                "Wi-Fi",
                "VoWiFi",
                "IWLAN",
                "I-WLAN",
                "TRUSTED_WLAN",
            ],
        ),
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
        "LEO",
        "(LEO)",
        "GERAN_LEO",
        "UTRAN(GEO)",
        "WLAN_LEO",
        "VIRTUAL_GEO",
        "NSA_LEO",
        "NR(LEO",
        "NRLEO)",
        "NR((LEO))",
        "NR()",
        "NR(XEO)",
        "NR[LEO]",
        "NR_LEO_MEO",
        "NR(LEO)MEO",
        "(NR)LEO",
        "11_LEO",
        "NR(LEO,MEO)",
        "6G_LEO",
    ] {
        assert_eq!(shown(value), None, "{value:?}");
    }
}

#[test]
fn what_is_in_no_table_is_refused() {
    for value in [
        "6G",
        "CDMA",
        "CDMA2000",
        "EVDO",
        "EV-DO",
        "eHRPD",
        "1xRTT",
        "WIRELINE",
        "UNKNOWN",
        "N/A",
        "NA",
        "none",
        "null",
        "-",
        "_",
        ".",
        "+",
        "LTEE",
        "E",
        "LT",
        "LTE/NR",
        "LTE,NR",
        "4G/5G",
        "2G|3G",
        "ＬＴＥ",
        "５G",
        "LТE",
        "ſms",
        "LTE\u{200b}",
        "L\u{a0}TE",
        "LTE\0",
        "L\tTE",
        "5G+",
        "LTE+",
        "2.5G",
        "WiMAX",
        "HSPA++",
        "RAT_LTE",
        "VoNR",
    ] {
        assert_eq!(shown(value), None, "{value:?}");
    }
    assert_eq!(shown(&"L".repeat(100_000)), None);
}
