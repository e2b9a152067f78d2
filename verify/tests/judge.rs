//! The judge finds what it must and lets pass what is by contract.

use cdr_verify::judge::{Answered, Findings, Letter, Posted, judge};
use cdr_verify::records::{Fate, Row, Sample, sample};

const NOW_S: u64 = 1_700_000_000;
/// Numbers of records of each kind.
const GOOD: u64 = 0;
const ANOTHER_GOOD: u64 = 1;
const BAD: u64 = 7;
const REFUSED: u64 = 37;

fn record(i: u64) -> Sample {
    sample("r1-", i, NOW_S)
}

fn posted(i: u64, answer: Answered) -> Posted {
    Posted {
        sample: record(i),
        answer,
    }
}

fn accepted(i: u64) -> Posted {
    posted(i, Answered::Accepted)
}

fn refused() -> Posted {
    posted(REFUSED, Answered::Refused("malformed_json".to_owned()))
}

fn row(i: u64) -> Row {
    match record(i).fate {
        Fate::Row(row) => row,
        other => panic!("{other:?}"),
    }
}

fn letter(i: u64, reason: &str) -> Letter {
    let Sample {
        raw_id, payload, ..
    } = record(i);
    Letter {
        raw_id: Some(raw_id),
        reason: reason.to_owned(),
        payload: payload.to_vec(),
    }
}

fn bad_letter() -> Letter {
    letter(BAD, "invalid_rat_value")
}

fn given_up() -> Letter {
    letter(GOOD, "normalization_error")
}

#[test]
fn a_round_in_which_all_is_well_is_clean() {
    let posted = [accepted(GOOD), accepted(BAD), refused()];
    let findings = judge(&posted, &[row(GOOD)], &[bad_letter()]);
    let expected = Findings {
        sent: 3,
        acked: 2,
        rows: 1,
        dead_letters: 1,
        ..Findings::default()
    };
    assert_eq!(findings, expected);
    assert!(findings.is_clean());
}

#[test]
fn a_202_that_is_nowhere_is_lost() {
    let posted = [accepted(GOOD), accepted(ANOTHER_GOOD), accepted(BAD)];
    let findings = judge(&posted, &[row(GOOD)], &[]);
    assert_eq!(findings.lost, ["r1-000001", "r1-000007"]);
    assert!(!findings.is_clean());
}

#[test]
fn two_rows_of_a_record_are_doubled() {
    let findings = judge(&[accepted(GOOD)], &[row(GOOD), row(GOOD)], &[]);
    assert_eq!(findings.doubled, ["r1-000000"]);
    assert!(!findings.is_clean());
}

#[test]
fn dead_letters_may_double_and_stand_beside_a_row() {
    let posted = [accepted(GOOD), accepted(BAD)];
    let letters = [given_up(), bad_letter(), bad_letter(), bad_letter()];
    let findings = judge(&posted, &[row(GOOD)], &letters);
    assert!(findings.is_clean(), "{findings:?}");
    assert_eq!(findings.dead_letters, 2);
    assert_eq!(findings.dead_letters_doubled, 2);
    assert_eq!(findings.both, 1);
    assert_eq!(findings.given_up, 1);
}

#[test]
fn a_good_record_may_be_given_up_as_what_it_is_only() {
    assert!(judge(&[accepted(GOOD)], &[], &[given_up()]).is_clean());
    let as_another = letter(GOOD, "invalid_epoch");
    let findings = judge(&[accepted(GOOD)], &[], &[as_another]);
    assert_eq!(findings.wrong.len(), 1, "{findings:?}");
}

#[test]
fn what_nobody_sent_is_unexpected() {
    let no_id = Letter {
        raw_id: None,
        ..bad_letter()
    };
    let findings = judge(&[], &[row(GOOD)], &[bad_letter(), no_id]);
    assert_eq!(findings.unexpected.len(), 3, "{findings:?}");
}

#[test]
fn what_was_refused_is_unexpected_however_it_was_answered() {
    for answer in [refused(), posted(REFUSED, Answered::Never)] {
        let found = letter(REFUSED, "malformed_json");
        let findings = judge(&[answer], &[], &[found]);
        assert_eq!(findings.unexpected.len(), 1, "{findings:?}");
    }
}

#[test]
fn what_never_got_an_answer_may_have_landed_or_not() {
    let posted = [
        posted(GOOD, Answered::Never),
        posted(ANOTHER_GOOD, Answered::Never),
    ];
    let findings = judge(&posted, &[row(GOOD)], &[]);
    assert!(findings.is_clean(), "{findings:?}");
    assert_eq!((findings.acked, findings.unanswered), (0, 2));
}

#[test]
fn a_row_with_another_content_is_wrong() {
    let other = Row {
        msisdn: "+442079460999".to_owned(),
        ..row(GOOD)
    };
    let findings = judge(&[accepted(GOOD)], &[other], &[]);
    assert_eq!(findings.wrong.len(), 1);
    assert!(findings.wrong[0].contains("+442079460999"), "{findings:?}");
}

#[test]
fn a_row_of_a_bad_record_is_wrong() {
    let row = Row {
        raw_id: record(BAD).raw_id,
        ..row(GOOD)
    };
    let findings = judge(&[accepted(BAD)], &[row], &[bad_letter()]);
    assert_eq!(findings.wrong.len(), 1, "{findings:?}");
}

#[test]
fn a_dead_letter_with_another_reason_or_payload_is_wrong() {
    let reason = letter(BAD, "invalid_epoch");
    let mut payload = bad_letter();
    payload.payload.push(b' ');
    for letter in [reason, payload] {
        let findings = judge(&[accepted(BAD)], &[], &[letter]);
        assert_eq!(findings.wrong.len(), 1, "{findings:?}");
    }
}

#[test]
fn a_wrong_answer_is_wrong() {
    let code = |code: &str| Answered::Refused(code.to_owned());
    for answer in [
        posted(GOOD, code("missing_required_field")),
        posted(REFUSED, code("missing_required_field")),
        accepted(REFUSED),
    ] {
        let findings = judge(&[answer], &[], &[]);
        assert!(!findings.wrong.is_empty(), "{findings:?}");
    }
}

#[test]
fn every_kind_of_record_is_made_and_each_has_an_id_of_its_own() {
    let records: Vec<_> = (0..200).map(record).collect();
    let ids: std::collections::BTreeSet<_> = records.iter().map(|one| &one.raw_id).collect();
    assert_eq!(ids.len(), records.len());
    let count = |is: fn(&Fate) -> bool| records.iter().filter(|one| is(&one.fate)).count();
    assert_eq!(count(|fate| matches!(fate, Fate::DeadLetter(_))), 12);
    assert_eq!(count(|fate| matches!(fate, Fate::Refused(_))), 8);
    assert_eq!(count(|fate| matches!(fate, Fate::Row(_))), 180);
}
