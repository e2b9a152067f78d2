//! A normalizer in Python (`plugins/examples/python`) in the real host.
//! `just plugin-other-language` builds it and runs these tests; elsewhere they
//! are listed as ignored.

mod common;

use cdr_plugin_host::{Admitted, Batch, Limits, Normalized, Normalizer, inspect, json};
use common::{host, sms_hub};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// When records are received, in milliseconds.
const RECEIVED: i64 = 1_700_086_400_000;
const DAY: i64 = 86_400_000;

/// The normalizer with settings that are not its defaults, loaded once: to compile
/// an interpreter takes a debug build a minute.
async fn normalizer() -> &'static Normalizer {
    static LOADED: tokio::sync::OnceCell<Normalizer> = tokio::sync::OnceCell::const_new();
    // Time enough on a machine that is busy with other tests.
    let patient = Limits {
        call_base: Duration::from_secs(60),
        load: Duration::from_secs(120),
        ..Limits::default()
    };
    LOADED
        .get_or_init(async || {
            host(patient)
                .load_file(&sms_hub(), r#"{"max_age_days": 30}"#)
                .await
                .expect("the host takes a component of componentize-py")
        })
        .await
}

fn record(changes: Value) -> Vec<u8> {
    let mut record = json!({
        "message_id": "0190163d-8694-739b-aea5-966c26f8ad91", "hub": "hub-north", "access": "4G",
        "cell": "001-01-0012A3F4", "sent_at": RECEIVED - 5_000, "from": "+12025550123",
        "to": "+442079460018", "parts": 2,
    });
    let fields = record.as_object_mut().unwrap();
    fields.extend(changes.as_object().unwrap().clone());
    serde_json::to_vec(&record).unwrap()
}

async fn normalize(payloads: &[Vec<u8>]) -> Normalized {
    let payloads = payloads.iter().map(Vec::as_slice);
    let batch = Batch::of(payloads, RECEIVED).unwrap();
    let normalized = normalizer().await.normalize(batch).await.unwrap();
    assert!(normalized.faults.is_empty(), "{:?}", normalized.faults);
    normalized
}

/// The answers in the order of the records, as `cdr plugin eval` prints them.
async fn answers(payloads: &[Vec<u8>]) -> Vec<Value> {
    let normalized = normalize(payloads).await;
    let columns = &normalizer().await.manifest().columns;
    let mut answers = vec![Value::Null; payloads.len()];
    for part in &normalized.parts {
        for (index, row) in part.rows.iter().enumerate() {
            answers[*row as usize] = json!({"row": json::row(columns, part, index)});
        }
    }
    for rejection in &normalized.rejections {
        answers[rejection.row as usize] = json!({"rejected": json::rejection(rejection)});
    }
    answers
}

async fn admitted(payload: &[u8]) -> Value {
    let batch = Batch::of([payload], RECEIVED).unwrap();
    let mut answers = normalizer().await.admit(batch).await.unwrap();
    match answers.remove(0) {
        Admitted::Yes(admission) => {
            json!({"admitted": {"key": admission.key, "source": admission.source}})
        }
        Admitted::No(violation) => json!({"refused": json::violation(&violation)}),
        Admitted::Fault(fault) => panic!("{fault} {}", fault.stderr),
    }
}

#[tokio::test]
#[ignore = "needs `just plugin-other-language`, which builds the component with componentize-py"]
async fn it_says_what_it_is_and_imports_nothing_forbidden() {
    let outline = inspect(&std::fs::read(sms_hub()).unwrap()).expect("allowed imports alone");
    assert_eq!(outline.imports, ["telecom:cdr/types@1.0.0"]);
    let manifest = normalizer().await.manifest();
    assert_eq!(
        (manifest.name.as_str(), manifest.version.as_str()),
        ("sms-hub", "1.0.0")
    );
}

#[tokio::test]
#[ignore = "needs `just plugin-other-language`, which builds the component with componentize-py"]
async fn its_fixtures_come_out_as_they_say() {
    let folder =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../plugins/examples/python/fixtures");
    let mut names: Vec<String> = std::fs::read_dir(folder.clone())
        .unwrap()
        .filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            name.strip_suffix(".in.json").map(str::to_owned)
        })
        .collect();
    names.sort();
    assert!(names.len() >= 10, "{names:?}");
    for name in names {
        let payload = std::fs::read(folder.join(format!("{name}.in.json"))).unwrap();
        let expected: Value = serde_json::from_slice(
            &std::fs::read(folder.join(format!("{name}.out.json"))).unwrap(),
        )
        .unwrap();
        assert_eq!(expected["received_at"], json!(RECEIVED), "{name}");
        assert_eq!(admitted(&payload).await, expected["admit"], "{name}");
        let answer = answers(&[payload]).await.remove(0);
        assert_eq!(answer, expected["normalize"], "{name}");
    }
}

#[tokio::test]
#[ignore = "needs `just plugin-other-language`, which builds the component with componentize-py"]
async fn the_settings_of_configure_are_there_in_every_batch() {
    for _ in 0..3 {
        let old = record(json!({"sent_at": RECEIVED - 31 * DAY}));
        let young = record(json!({"sent_at": RECEIVED - 29 * DAY}));
        let answers = answers(&[old, young]).await;
        assert_eq!(answers[0]["rejected"]["reason"], "invalid_epoch");
        assert!(answers[1]["row"].is_object(), "{}", answers[1]);
    }
}

#[tokio::test]
#[ignore = "needs `just plugin-other-language`, which builds the component with componentize-py"]
async fn a_batch_of_a_thousand_is_right_in_every_row_and_the_same_every_time() {
    let good = |row: usize| row % 7 != 3;
    // Characters of one to four bytes: offsets count bytes.
    let cell = |row: usize| format!("{}{row}", ["e", "é", "€", "📱"][row % 4]);
    let payloads: Vec<Vec<u8>> = (0..1000)
        .map(|row| match good(row) {
            true => record(json!({
                "message_id": format!("0190163d-8694-739b-aea5-{row:012x}"),
                "cell": cell(row),
                "parts": 1 + row % 255,
                "delivered_at": (row % 2 == 0).then_some(RECEIVED + row as i64),
                "gateway": format!("192.0.2.{}", row % 256),
            })),
            false => record(json!({"to": row.to_string()})),
        })
        .collect();

    let first = answers(&payloads).await;
    for (row, answer) in first.iter().enumerate() {
        if !good(row) {
            assert_eq!(answer["rejected"]["field"], "to", "{row}");
            continue;
        }
        for (name, value) in [
            (
                "cdr_id",
                json!(format!("0190163d-8694-739b-aea5-{row:012x}")),
            ),
            ("cell_id", json!(cell(row))),
            ("message_parts", json!(1 + row % 255)),
            ("delivered", json!(row % 2 == 0)),
            ("ip_address", json!(format!("192.0.2.{}", row % 256))),
        ] {
            assert_eq!(answer["row"][name], value, "{row}: {name}");
        }
        assert_eq!(answer["row"]["delivered_at"].is_null(), row % 2 == 1);
    }

    assert_eq!(answers(&payloads).await, first, "again");
    let backwards: Vec<_> = payloads.iter().rev().cloned().collect();
    let mut turned = answers(&backwards).await;
    turned.reverse();
    assert_eq!(turned, first, "in another order");
    for row in [0, 3, 999] {
        let alone = answers(&payloads[row..=row]).await;
        assert_eq!(alone[0], first[row], "record {row} alone");
    }
}

#[tokio::test]
#[ignore = "needs `just plugin-other-language`, which builds the component with componentize-py"]
async fn strange_payloads_are_rejected_and_never_a_fault() {
    let nested = |depth: usize| {
        let mut payload = b"{\"hub\":".to_vec();
        payload.extend(std::iter::repeat_n(b'[', depth));
        payload.extend(std::iter::repeat_n(b']', depth));
        payload.push(b'}');
        payload
    };
    let strange: Vec<Vec<u8>> = vec![
        b"".to_vec(),
        b"\xff\xfe".to_vec(),
        b"\xef\xbb\xbf{}".to_vec(),
        b"null".to_vec(),
        b"\"text\"".to_vec(),
        b"{\"hub\":NaN}".to_vec(),
        record(json!({"sent_at": 1e300})),
        record(json!({"sent_at": [], "parts": {}})),
        record(json!({"parts": 18_446_744_073_709_551_615_u64})),
        record(json!({"from": true, "delivered_at": false})),
        b"{\"hub\":1,\"hub\":2}".to_vec(),
        [b"{\"parts\":".as_slice(), &[b'9'; 10_000], b"}"].concat(),
        nested(127),
        nested(100_000),
        vec![b'['; 1 << 20],
    ];
    for (row, answer) in answers(&strange).await.iter().enumerate() {
        assert!(answer["rejected"].is_object(), "{row}: {answer}");
    }
    for payload in &strange {
        // Whatever it says, it says it without failing.
        admitted(payload).await;
    }
}
