//! Records whose right ends are known when they are made.

use bytes::Bytes;
use serde_json::{Value, json};

/// What must become of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// This row; or, when ClickHouse was away for too long, a dead letter.
    Row(Row),
    /// A dead letter of this reason, and never a row.
    DeadLetter(&'static str),
    /// The API answers 400 with this code, and nothing else becomes of it.
    Refused(&'static str),
}

/// What is looked at of a row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
pub struct Row {
    /// The vendor's id of the record.
    pub raw_id: String,
    /// In lower case.
    pub service_type: String,
    /// The canonical access type.
    pub radio_access_type: String,
    /// The caller, E.164.
    pub msisdn: String,
    /// Start of the session, seconds since the Unix epoch.
    pub start: u32,
    /// Seconds.
    pub duration_s: u32,
    /// Octets.
    pub bytes_up: u64,
    /// Octets.
    pub bytes_down: u64,
}

impl Row {
    /// What to select of the table, with the names above.
    pub const COLUMNS: &str = "raw_id, service_type, radio_access_type, msisdn, \
        toUInt32(session_start_time) AS start, duration_s, bytes_up, bytes_down";
}

/// A record as a vendor sends it.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Its id, which no other record has.
    pub raw_id: String,
    /// The body, the same at each attempt.
    pub payload: Bytes,
    /// What must become of it.
    pub fate: Fate,
}

/// Every so many records hold one of each kind of bad ones.
const KINDS: u64 = 50;

/// Record `i` of those whose ids begin with `prefix`: a good one, mostly. `now_s`
/// is the time in seconds since the Unix epoch.
pub fn sample(prefix: &str, i: u64, now_s: u64) -> Sample {
    let (mut record, row) = good(prefix, i, now_s);
    let raw_id = row.raw_id.clone();
    let (payload, fate) = match i % KINDS {
        7 => {
            record["radio_access_type"] = json!("6G");
            (record.to_string(), Fate::DeadLetter("invalid_rat_value"))
        }
        17 => {
            record["session_start_time"] = json!(0);
            (record.to_string(), Fate::DeadLetter("invalid_epoch"))
        }
        27 => {
            record["caller_num"] = json!("anonymous");
            (record.to_string(), Fate::DeadLetter("normalization_error"))
        }
        37 => (format!("{record}x"), Fate::Refused("malformed_json")),
        47 => {
            record["cell_id"] = Value::Null;
            (record.to_string(), Fate::Refused("missing_required_field"))
        }
        _ => (record.to_string(), Fate::Row(row)),
    };
    Sample {
        raw_id,
        payload: payload.into(),
        fate,
    }
}

fn good(prefix: &str, i: u64, now_s: u64) -> (Value, Row) {
    const RATS: [(&str, &str); 8] = [
        ("LTE", "EUTRAN"),
        ("6", "EUTRAN"),
        ("1001", "GERAN"),
        ("5G", "NR"),
        ("umts", "UTRAN"),
        ("VoWiFi", "WLAN"),
        ("NB-IoT", "EUTRAN_NB_IOT"),
        ("HSPA+", "HSPA_EVOLUTION"),
    ];
    let (written, canonical) = RATS[(i % 8) as usize];
    // London numbers reserved for fiction, as vendors write them.
    let line = i % 100;
    let caller = match i % 4 {
        0 => format!("+44 20 7946 0{line:03}"),
        1 => format!("020 7946 0{line:03}"),
        2 => format!("0044 20 7946 0{line:03}"),
        _ => format!("tel:+44-20-7946-0{line:03}"),
    };
    let start = now_s.saturating_sub(3600 + i % 86_400);
    let service = ["voice", "SMS", "data"][(i % 3) as usize];
    let raw_id = format!("{prefix}{i:06}");
    let mut record = json!({
        "raw_id": raw_id,
        "vendor_id": "albion-telecom",
        "service_type": service,
        "radio_access_type": written,
        "cell_id": format!("234-15-{i:07X}"),
        "caller_num": caller,
        "session_start_time": if i.is_multiple_of(2) { start } else { start * 1000 + i % 1000 },
    });
    let mut row = Row {
        raw_id,
        service_type: service.to_lowercase(),
        radio_access_type: canonical.to_owned(),
        msisdn: format!("+442079460{line:03}"),
        start: u32::try_from(start).unwrap_or(u32::MAX),
        duration_s: 0,
        bytes_up: 0,
        bytes_down: 0,
    };
    match service {
        "voice" => {
            record["duration_s"] = json!(i % 500);
            record["session_end_time"] = json!(start + 600);
            row.duration_s = (i % 500) as u32;
        }
        "data" => {
            record["bytes_up"] = json!(i);
            record["bytes_down"] = json!(i * 1_000_000_007);
            record["ip_address"] = json!("192.0.2.10");
            row.bytes_up = i;
            row.bytes_down = i * 1_000_000_007;
        }
        _ => {}
    }
    (record, row)
}
