//! A run of load fails for what it must, and for nothing else.

use std::time::Duration;

use cdr_verify::load::answers::Answer;
use cdr_verify::load::report::{Memory, Report};
use cdr_verify::load::schedule::Schedule;
use cdr_verify::load::tally::Tally;
use cdr_verify::load::topic::{Found, Landed};

const MS: Duration = Duration::from_millis(1);

fn accepted(number: u64) -> Answer {
    Answer {
        status: 202,
        retry_after: None,
        body: format!(r#"{{"status":"accepted","raw_id":"load-{number}"}}"#).into_bytes(),
    }
}

fn refusal(status: u16) -> Answer {
    Answer {
        status,
        retry_after: Some("1".to_owned()),
        body: br#"{"error":"too_many_outstanding","field":null,"message":"again"}"#.to_vec(),
    }
}

/// Two are accepted first; then of five that are due one is accepted, one refused, one
/// ambiguous though it landed, and two are never sent.
fn good() -> Report {
    let (mut closed, mut open) = (Tally::default(), Tally::default());
    closed.answered(0, Duration::ZERO, MS, &accepted(0));
    closed.answered(1, Duration::ZERO, MS, &accepted(1));
    open.answered(2, MS, MS, &accepted(2));
    open.answered(3, MS, MS, &refusal(429));
    open.answered(4, MS, MS, &refusal(503));
    open.unsent = 2;
    let mut report = Report {
        saturation: 2.0,
        schedule: Schedule::new(5.0, Duration::from_secs(1)),
        took: Duration::from_secs(1),
        closed,
        open,
        memory: Some(Memory {
            max: 100 << 20,
            first_half: 90 << 20,
            last_half: 100 << 20,
        }),
        max_memory_mib: Some(100),
        landed: Landed::default(),
        objections: Vec::new(),
    };
    landed(&mut report, &[0, 1, 2, 4]);
    report
}

/// Lets these lie in the topic.
fn landed(report: &mut Report, numbers: &[u64]) {
    let mut found = Found::default();
    for number in numbers {
        let id = format!("load-{number}");
        let payload = format!(r#"{{"raw_id":"{id}"}}"#);
        found.add(Some(id.as_bytes()), Some(payload.as_bytes()), 7);
    }
    let accepted = &report.closed.accepted | &report.open.accepted;
    let refused = &report.closed.refused | &report.open.refused;
    report.landed = Landed::compare(&found, &accepted, &refused);
}

/// Lets the last of the overload that was not sent be answered with this.
fn answer(report: &mut Report, answer: &Answer) {
    report.open.unsent -= 1;
    report.open.answered(5, MS, MS, answer);
}

#[test]
fn refusals_ambiguity_and_what_the_generator_could_not_send_are_no_faults() {
    let report = good();
    assert_eq!(report.faults(), [""; 0]);
    let text = report.to_string();
    let line = text.lines().last().unwrap();
    for pair in [
        "saturation=2",
        "offered=5",
        "sent=3",
        "accepted=1",
        "accepted_per_s=1",
        "refused_429=1",
        "refused_503=1",
        "other=0",
        "malformed=0",
        "transport_errors=0",
        "unsent=2",
        "p50_ms=2.0",
        "p99_sent_ms=1.0",
        "memory_max_mib=100.0",
        "published_unconfirmed=1",
        "lost=0",
    ] {
        assert!(line.split(' ').any(|found| found == pair), "{pair}: {line}");
    }
}

#[test]
fn each_fault_is_found() {
    type Change = fn(&mut Report);
    let changes: [(&str, Change); 15] = [
        ("load-5 was answered 500", |report| {
            answer(report, &refusal(500));
        }),
        ("load-5 was answered 400", |report| {
            answer(report, &refusal(400));
        }),
        ("Retry-After None", |report| {
            let full = Answer {
                retry_after: None,
                ..refusal(429)
            };
            answer(report, &full);
        }),
        ("answered 503 with busy", |report| {
            let busy = Answer {
                body: b"busy".to_vec(),
                ..refusal(503)
            };
            answer(report, &busy);
        }),
        ("not of that record", |report| answer(report, &accepted(6))),
        ("1 requests had no answer: broken", |report| {
            report.open.unsent -= 1;
            report.open.broken(5, MS, "broken", "connection reset");
        }),
        ("saturation: 1 answers are not", |report| {
            report.closed.answered(6, MS, MS, &refusal(500));
        }),
        ("lost, accepted and not in the topic: 1 (load-2", |report| {
            landed(report, &[0, 1, 4]);
        }),
        (
            "lost, accepted and not in the topic: 2 (load-0, load-1",
            |report| {
                landed(report, &[2, 4]);
            },
        ),
        ("a 429 said that they are not: 1 (load-3", |report| {
            landed(report, &[0, 1, 2, 3]);
        }),
        ("1 records in the topic were never sent", |report| {
            landed(report, &[0, 1, 2, 7]);
        }),
        ("held 100.0 MiB, 99 are allowed", |report| {
            report.max_memory_mib = Some(99);
        }),
        ("memory of the API was not seen", |report| {
            report.memory = None
        }),
        ("4 requests were begun of 5", |report| {
            report.open.unsent = 1
        }),
        ("ended by itself", |report| {
            report.objections.push("ended by itself".to_owned());
        }),
    ];
    for (words, change) in changes {
        let mut report = good();
        change(&mut report);
        let faults = report.faults().join("\n");
        assert!(faults.contains(words), "{words}: {faults}");
    }
}

#[test]
fn a_host_that_accepts_nothing_any_more_has_failed() {
    let mut report = good();
    let mut open = Tally::default();
    for number in 2..7 {
        open.answered(number, MS, MS, &refusal(429));
    }
    report.open = open;
    landed(&mut report, &[0, 1]);
    assert_eq!(report.faults(), ["overload: nothing was accepted"]);
}

#[test]
fn memory_is_no_fault_without_a_bound() {
    let mut report = good();
    report.max_memory_mib = None;
    assert_eq!(report.faults(), [""; 0]);
}

#[test]
fn a_run_that_refused_nothing_says_that_it_was_none() {
    let mut report = good();
    assert!(!report.to_string().contains("below its limit"));
    let mut open = Tally::default();
    for number in 2..7 {
        open.answered(number, MS, MS, &accepted(number));
    }
    report.open = open;
    assert!(report.to_string().contains("below its limit"));
}
