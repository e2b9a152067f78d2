//! A guest that misbehaves on command, for the tests of the plugin host: each
//! payload, and the settings, say what to do. It goes around the SDK, which
//! would not let it.

#[cfg(target_family = "wasm")]
mod guest {
    use cdr_plugin_sdk::bindings::{
        Admission, Batch, Blobs, Column, ColumnSpec, ColumnType, Guest, Manifest, Outcome, Reason,
        Rejection, Values, Violation,
    };
    use std::cell::Cell;

    std::thread_local! {
        static CALLS: Cell<u32> = const { Cell::new(0) };
    }

    struct Hostile;

    impl Guest for Hostile {
        fn describe() -> Manifest {
            Manifest {
                name: "hostile".to_owned(),
                version: "0.1.0".to_owned(),
                description: "misbehaves on command".to_owned(),
                columns: vec![
                    ColumnSpec {
                        name: "text".to_owned(),
                        kind: ColumnType::Text,
                        nullable: false,
                    },
                    ColumnSpec {
                        name: "calls".to_owned(),
                        kind: ColumnType::Uint32,
                        nullable: true,
                    },
                ],
            }
        }

        fn configure(settings: String) -> Result<(), String> {
            match settings.as_str() {
                "refuse" => Err("these settings are not to my taste".to_owned()),
                "trap" => panic!("configure panics"),
                "loop" => endless(),
                "memory" => hoard(),
                _ => Ok(()),
            }
        }

        fn admit(batch: Batch) -> Vec<Result<Admission, Violation>> {
            let mut answers: Vec<_> = payloads(&batch)
                .map(|payload| {
                    misbehave(&payload);
                    Ok(Admission {
                        key: payload,
                        source: None,
                    })
                })
                .collect();
            if payloads(&batch).any(|payload| payload == "short") {
                answers.pop();
            }
            answers
        }

        fn normalize(batch: Batch) -> Outcome {
            let calls = CALLS.with(|calls| {
                calls.set(calls.get() + 1);
                calls.get()
            });
            let mut rows = Vec::new();
            let mut texts = Blobs {
                offsets: vec![0],
                data: Vec::new(),
            };
            let mut rejections = Vec::new();
            for (row, payload) in (0_u32..).zip(payloads(&batch)) {
                misbehave(&payload);
                if let Some(detail) = payload.strip_prefix("reject ") {
                    rejections.push(Rejection {
                        row,
                        reason: Reason::InvalidEpoch,
                        field: Some("f".repeat(1000)),
                        detail: detail.repeat(1000),
                    });
                    continue;
                }
                rows.push(row);
                texts.data.extend_from_slice(payload.as_bytes());
                texts.offsets.push(texts.data.len() as u32);
            }
            let count = rows.len();
            let mut outcome = Outcome {
                rows,
                columns: vec![
                    Column {
                        values: Values::Blobs(texts),
                        nulls: None,
                    },
                    Column {
                        values: Values::Uint32s(vec![calls; count]),
                        nulls: None,
                    },
                ],
                rejections,
            };
            for payload in payloads(&batch) {
                distort(&payload, &mut outcome);
            }
            outcome
        }
    }

    fn payloads(batch: &Batch) -> impl Iterator<Item = String> + '_ {
        batch.payloads.offsets.windows(2).map(|ends| {
            let bytes = &batch.payloads.data[ends[0] as usize..ends[1] as usize];
            String::from_utf8_lossy(bytes).into_owned()
        })
    }

    fn misbehave(payload: &str) {
        match payload {
            "trap" => panic!("poison {}", "x".repeat(100_000)),
            "loop" => endless(),
            "memory" => hoard(),
            "stack" => {
                std::hint::black_box(deep(1));
            }
            "exit" => std::process::exit(3),
            "sleep" => std::thread::sleep(std::time::Duration::from_secs(3600)),
            "stderr" => {
                for _ in 0..200 {
                    eprintln!("{}", "noise ".repeat(100));
                }
                panic!("after the noise");
            }
            _ => {}
        }
    }

    /// Breaks the contract in the way that the payload names.
    fn distort(payload: &str, outcome: &mut Outcome) {
        let Column { values, nulls } = &mut outcome.columns[0];
        let Values::Blobs(texts) = values else { return };
        match payload {
            "answered twice" => outcome.rows.push(0),
            "not answered" => drop(outcome.rows.pop()),
            "foreign row" => outcome.rejections.push(Rejection {
                row: 4_000_000_000,
                reason: Reason::MalformedJson,
                field: None,
                detail: String::new(),
            }),
            "falling offsets" => texts.offsets.swap(0, 1),
            "offsets beyond" => {
                if let Some(last) = texts.offsets.last_mut() {
                    *last += 10;
                }
            }
            "not text" => texts.data[0] = 0xff,
            "nulls" => *nulls = Some(vec![0; outcome.rows.len()]),
            "wrong kind" => *values = Values::Int64s(vec![0; outcome.rows.len()]),
            "wrong length" => outcome.columns[1].values = Values::Uint32s(vec![]),
            "no column" => drop(outcome.columns.pop()),
            "giant" => {
                texts.data.resize(20 << 20, b'x');
                if let Some(last) = texts.offsets.last_mut() {
                    *last = 20 << 20;
                }
            }
            _ => {}
        }
    }

    fn endless() -> ! {
        loop {
            std::hint::black_box(());
        }
    }

    fn hoard() -> ! {
        let mut all = Vec::new();
        loop {
            all.push(std::hint::black_box(vec![1_u8; 1 << 20]));
        }
    }

    fn deep(level: u64) -> u64 {
        if std::hint::black_box(level) == 0 {
            return 0;
        }
        deep(level + 1) + std::hint::black_box(level)
    }

    cdr_plugin_sdk::bindings::__export_component!(Hostile with_types_in cdr_plugin_sdk::bindings);
}
