//! The exports. What is not misbehaviour is a plain normalizer: the text of a
//! record goes into the column `text`.

use crate::ask::ask;
use crate::distort::{distort, distort_admissions};
use crate::misbehave::{endless, fill, hoard, misbehave};
use cdr_plugin_sdk::bindings::{
    Admission, Batch, Blobs, Column, Guest, Manifest, Outcome, Reason, Rejection, Values, Violation,
};
use std::cell::{Cell, RefCell};

std::thread_local! {
    static CALLS: Cell<u32> = const { Cell::new(0) };
    static SETTINGS: RefCell<String> = const { RefCell::new(String::new()) };
}

struct Hostile;

impl Guest for Hostile {
    fn describe() -> Manifest {
        SETTINGS.with_borrow(|settings| crate::manifest::manifest(settings))
    }

    fn configure(settings: String) -> Result<(), String> {
        match settings.as_str() {
            "refuse" => return Err("these settings are not to my taste".to_owned()),
            "refuse at length" => return Err("no ".repeat(100_000)),
            "refuse for ever" => return Err("no ".repeat(4 << 20)),
            "trap" => panic!("configure panics"),
            "exit" => std::process::exit(0),
            "loop" => endless(),
            "memory" => hoard(),
            "fill" => fill(24 << 20),
            "fill to the brim" => fill(usize::MAX),
            "print" => eprintln!("configured"),
            _ => {}
        }
        SETTINGS.set(settings);
        Ok(())
    }

    fn admit(batch: Batch) -> Vec<Result<Admission, Violation>> {
        count_call();
        SETTINGS.with_borrow(|settings| {
            if let Some(word) = settings.strip_prefix("admit ") {
                misbehave(word);
            }
        });
        let mut answers: Vec<_> = payloads(&batch)
            .map(|payload| {
                misbehave(&payload);
                Ok(Admission {
                    key: payload,
                    source: None,
                })
            })
            .collect();
        for payload in payloads(&batch) {
            distort_admissions(&payload, &mut answers);
        }
        answers
    }

    fn normalize(batch: Batch) -> Outcome {
        let calls = count_call();
        SETTINGS.with_borrow(|settings| {
            if let Some(word) = settings.strip_prefix("normalize ") {
                misbehave(word);
            }
        });
        let mut rows = Vec::new();
        let mut texts = Blobs {
            offsets: vec![0],
            data: Vec::new(),
        };
        let mut rejections = Vec::new();
        for (row, payload) in (0_u32..).zip(payloads(&batch)) {
            let alone = batch.received_at.len() == 1;
            assert!(alone || payload != "in company", "not in company");
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
            let text = match payload.strip_prefix("ask ") {
                Some(question) => ask(question, calls),
                None => payload,
            };
            rows.push(row);
            texts.data.extend_from_slice(text.as_bytes());
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

fn count_call() -> u32 {
    CALLS.with(|calls| {
        calls.set(calls.get() + 1);
        calls.get()
    })
}

fn payloads(batch: &Batch) -> impl Iterator<Item = String> + '_ {
    batch.payloads.offsets.windows(2).map(|ends| {
        let bytes = &batch.payloads.data[ends[0] as usize..ends[1] as usize];
        String::from_utf8_lossy(bytes).into_owned()
    })
}

cdr_plugin_sdk::bindings::__export_component!(Hostile with_types_in cdr_plugin_sdk::bindings);
