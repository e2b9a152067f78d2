//! Records whose right answers are known when they are made.

use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// What must become of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// A row: service, access type, E.164, start, duration, octets up and down.
    Row(Expected),
    /// A dead letter of this reason.
    DeadLetter(&'static str),
    /// The API answers 400 with this word.
    Refused(&'static str),
}

/// What a row must say.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
pub struct Expected {
    pub raw_id: String,
    pub service_type: String,
    pub radio_access_type: String,
    pub msisdn: String,
    pub start: u32,
    pub duration_s: u32,
    pub bytes_up: u64,
    pub bytes_down: u64,
}

/// A payload and its fate.
#[derive(Debug, Clone)]
pub struct Sample {
    pub payload: Vec<u8>,
    pub fate: Fate,
}

pub fn now_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

/// A good record, number `i`.
pub fn good(i: u64, now: u64) -> (Value, Expected) {
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
    let line = i % 100;
    // London numbers reserved for fiction, as vendors write them.
    let caller = match i % 4 {
        0 => format!("+44 20 7946 0{line:03}"),
        1 => format!("020 7946 0{line:03}"),
        2 => format!("0044 20 7946 0{line:03}"),
        _ => format!("tel:+44-20-7946-0{line:03}"),
    };
    let start = now - 3600 - i % 86_400;
    let service = ["voice", "SMS", "data"][(i % 3) as usize];
    let mut record = json!({
        "raw_id": format!("r-{i:06}"),
        "vendor_id": "albion-telecom",
        "service_type": service,
        "radio_access_type": written,
        "cell_id": format!("234-15-{i:07X}"),
        "caller_num": caller,
        "session_start_time": if i.is_multiple_of(2) { start } else { start * 1000 + i % 1000 },
    });
    let mut expected = Expected {
        raw_id: format!("r-{i:06}"),
        service_type: service.to_lowercase(),
        radio_access_type: canonical.to_owned(),
        msisdn: format!("+442079460{line:03}"),
        start: start as u32,
        duration_s: 0,
        bytes_up: 0,
        bytes_down: 0,
    };
    match service {
        "voice" => {
            record["duration_s"] = json!(i % 500);
            record["session_end_time"] = json!(start + 600);
            expected.duration_s = (i % 500) as u32;
        }
        "data" => {
            record["bytes_up"] = json!(i);
            record["bytes_down"] = json!(i * 1_000_000_007);
            record["ip_address"] = json!("192.0.2.10");
            expected.bytes_up = i;
            expected.bytes_down = i * 1_000_000_007;
        }
        _ => {}
    }
    (record, expected)
}

/// Good records, numbers `from` to `to`, and their rows.
pub fn goods(from: u64, to: u64) -> (Vec<Sample>, Vec<Expected>) {
    let now = now_s();
    (from..to)
        .map(|i| {
            let (record, row) = good(i, now);
            let sample = Sample {
                payload: serde_json::to_vec(&record).unwrap(),
                fate: Fate::Row(row.clone()),
            };
            (sample, row)
        })
        .unzip()
}

fn sample(record: &Value, fate: Fate) -> Sample {
    Sample {
        payload: serde_json::to_vec(record).unwrap(),
        fate,
    }
}

/// So many records as they come over HTTP: mostly good ones, duplicates, and
/// faults of every kind, mixed.
pub fn over_http(count: u64) -> Vec<Sample> {
    let now = now_s();
    let mut samples = Vec::new();
    for i in 0..count {
        let (mut record, expected) = good(i, now);
        samples.push(match i % 50 {
            7 => {
                record["radio_access_type"] = json!("6G");
                sample(&record, Fate::DeadLetter("invalid_rat_value"))
            }
            17 => {
                record["session_start_time"] = json!(0);
                sample(&record, Fate::DeadLetter("invalid_epoch"))
            }
            27 => {
                record["caller_num"] = json!("anonymous");
                sample(&record, Fate::DeadLetter("normalization_error"))
            }
            37 => Sample {
                payload: format!("{record}x").into_bytes(),
                fate: Fate::Refused("malformed_json"),
            },
            47 => {
                record.as_object_mut().unwrap().remove("cell_id");
                sample(&record, Fate::Refused("missing_required_field"))
            }
            // A good one before, sent again as it is.
            8 | 18 | 28 => {
                let (again, expected) = good(i - 2, now);
                sample(&again, Fate::Row(expected))
            }
            _ => sample(&record, Fate::Row(expected)),
        });
    }
    samples
}

/// Records as they come past the API, straight onto the topic.
pub fn injected(count: u64) -> Vec<Sample> {
    let now = now_s();
    let mut samples = vec![
        Sample {
            payload: Vec::new(),
            fate: Fate::DeadLetter("malformed_json"),
        },
        Sample {
            payload: vec![0xff, 0x00, 0x7b],
            fate: Fate::DeadLetter("malformed_json"),
        },
    ];
    for i in 1_000_000..1_000_000 + count {
        let (mut record, _) = good(i, now);
        samples.push(if i.is_multiple_of(2) {
            Sample {
                payload: format!("{record}}}").into_bytes(),
                fate: Fate::DeadLetter("malformed_json"),
            }
        } else {
            record["vendor_id"] = Value::Null;
            sample(&record, Fate::DeadLetter("missing_required_field"))
        });
    }
    samples
}
