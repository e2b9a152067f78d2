//! The worker's question: what row does this leg make?
//!
//! The steps come in the order of precedence of their reasons, each over the
//! whole record. (There is no access type to be invalid.) A wrong JSON type, of a
//! record that went past the API, takes the reason of its place.

use crate::fault::{Fault, MAX_IDENTIFIER, first_missing};
use crate::record::{Key, Record, Section};
use crate::row::CallRow;
use crate::settings::{Settings, Source};
use cdr_plugin_sdk::{Reason, ReceivedAt, Rejection};
use std::borrow::Cow;
use telecom_rules::cdr_id::cdr_id;
use telecom_rules::phone::{self, Number};
use telecom_rules::text::has_control;
use telecom_rules::{epoch, ipv4};

/// Normalizes a record.
pub(crate) fn normalize<'a>(
    mut record: Record<'a>,
    received_at: ReceivedAt,
    settings: &Settings,
) -> Result<CallRow<'a>, Rejection> {
    let source = settings.source_of(&record);
    if let Some((section, found)) = record.wrong_section {
        let fault = Fault::WrongSection { section, found };
        return Err(fault.rejection(match section {
            Section::ChannelData => Reason::NormalizationError,
            _ => Reason::MissingRequiredField,
        }));
    }
    if let Some(fault) = first_missing(&record, source.vendor_id.is_some()) {
        return Err(fault.rejection(Reason::MissingRequiredField));
    }
    let times =
        times(&mut record, received_at).map_err(|fault| fault.rejection(Reason::InvalidEpoch))?;
    row(&mut record, &source, &times).map_err(|fault| fault.rejection(Reason::NormalizationError))
}

/// When the leg began, was answered, and ended, in seconds.
struct Times {
    start: u32,
    answer: Option<u32>,
    end: Option<u32>,
}

fn times(record: &mut Record<'_>, received_at: ReceivedAt) -> Result<Times, Fault> {
    let mut instant = |key| {
        let Some(value) = integer(record, key)? else {
            return Ok(None);
        };
        // The switch's way to say "never".
        if value == 0 && key != Key::StartEpoch {
            return Ok(None);
        }
        // Seconds only: what would do as milliseconds is a fault of the source.
        epoch::to_seconds(value.into(), received_at.millis())
            .filter(|seconds| i64::from(*seconds) == value)
            .map(Some)
            .ok_or(Fault::OutOfWindow {
                key,
                value,
                received_at: received_at.millis(),
            })
    };
    let start = instant(Key::StartEpoch)?.unwrap_or_default();
    let answer = instant(Key::AnswerEpoch)?;
    let end = instant(Key::EndEpoch)?;
    in_order((Key::StartEpoch, Some(start)), (Key::AnswerEpoch, answer))?;
    in_order((Key::StartEpoch, Some(start)), (Key::EndEpoch, end))?;
    in_order((Key::AnswerEpoch, answer), (Key::EndEpoch, end))?;
    Ok(Times { start, answer, end })
}

fn in_order(earlier: (Key, Option<u32>), later: (Key, Option<u32>)) -> Result<(), Fault> {
    match (earlier.1, later.1) {
        (Some(first), Some(then)) if then < first => Err(Fault::TooEarly {
            key: later.0,
            before: earlier.0,
            seconds: first - then,
        }),
        _ => Ok(()),
    }
}

fn row<'a>(
    record: &mut Record<'a>,
    source: &Source<'_>,
    times: &Times,
) -> Result<CallRow<'a>, Fault> {
    let raw_id = identifier(record, Key::Uuid)?.unwrap_or_default();
    let switch_name = identifier(record, Key::Switchname)?;
    let vendor_id = match source.vendor_id {
        Some(vendor_id) => Cow::Owned(vendor_id.to_owned()),
        None => switch_name.clone().unwrap_or_default(),
    };
    let channel_direction = printable(record, Key::ChannelDirection)?;
    let direction = printable(record, Key::Direction)?.or(channel_direction);
    let address = printable(record, Key::NetworkAddr)?;
    let ip_address = address.as_deref().and_then(ipv4::parse);
    let duration_s = duration(record, times)?;
    let caller = caller(record, source)?;
    let last_destination = std::mem::take(&mut record.last_destination);
    let destination = printable(record, Key::DestinationNumber)?;
    // Read under the name of its place, which is free by now.
    record.set(Key::DestinationNumber, last_destination);
    let transferred_to = printable(record, Key::DestinationNumber)?
        .filter(|last| destination.as_ref() != Some(last));
    let (called_msisdn, called_raw) = called(destination, source);

    Ok(CallRow {
        service_type: "voice",
        radio_access_type: "VIRTUAL",
        rat_orbit: "",
        secondary_rat: "",
        cell_id: "",
        session_start_time: times.start,
        msisdn: caller.e164,
        msisdn_valid: caller.valid,
        cdr_id: cdr_id(&vendor_id, &raw_id),
        session_end_time: times.end,
        duration_s,
        bytes_up: 0,
        bytes_down: 0,
        called_msisdn,
        called_raw,
        ip_address,
        imsi: "",
        imei: "",
        cause: printable(record, Key::HangupCause)?.unwrap_or_default(),
        direction: direction.unwrap_or_default(),
        vendor_id,
        raw_id,
        answer_time: times.answer,
        cause_q850: unsigned(record, Key::HangupCauseQ850)?,
        call_uuid: printable(record, Key::CallUuid)?,
        sip_call_id: printable(record, Key::SipCallId)?,
        switch_name,
        sip_profile: printable(record, Key::SofiaProfileName)?,
        transferred_to,
        network_addr: address.filter(|_| ip_address.is_none()),
    })
}

/// The text at a place, if there is one.
fn text<'a>(record: &mut Record<'a>, key: Key) -> Result<Option<Cow<'a, str>>, Fault> {
    if let Some(found) = record.get(key).wrong_type() {
        return Err(Fault::WrongType { key, found });
    }
    record.take(key).map_err(|_| Fault::NotUtf8 { key })
}

/// A text that is stored as it came.
fn printable<'a>(record: &mut Record<'a>, key: Key) -> Result<Option<Cow<'a, str>>, Fault> {
    match text(record, key)? {
        Some(text) if has_control(&text) => Err(Fault::Control { key }),
        text => Ok(text),
    }
}

/// A text that is part of the record's identity.
fn identifier<'a>(record: &mut Record<'a>, key: Key) -> Result<Option<Cow<'a, str>>, Fault> {
    match printable(record, key)? {
        Some(text) if text.len() > MAX_IDENTIFIER => Err(Fault::TooLong {
            key,
            bytes: text.len(),
        }),
        text => Ok(text),
    }
}

/// A whole number, which the switch writes as a string.
fn integer(record: &mut Record<'_>, key: Key) -> Result<Option<i64>, Fault> {
    let Some(text) = text(record, key)? else {
        return Ok(None);
    };
    let digits = text.strip_prefix('-').unwrap_or(&text);
    let is_integer = digits.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(value) if is_integer => Ok(Some(value)),
        _ => Err(Fault::NotInteger {
            key,
            value: text.into_owned(),
        }),
    }
}

fn unsigned(record: &mut Record<'_>, key: Key) -> Result<Option<u32>, Fault> {
    integer(record, key)?
        .map(|value| u32::try_from(value).map_err(|_| Fault::OutOfRange { key, value }))
        .transpose()
}

fn duration(record: &mut Record<'_>, times: &Times) -> Result<u32, Fault> {
    let billed = unsigned(record, Key::Billsec)?.unwrap_or_default();
    match times.end.map(|end| end - times.start) {
        Some(leg) if billed > leg => Err(Fault::LongerThanLeg { billed, leg }),
        _ => Ok(billed),
    }
}

/// The number that is presented, or, where that is none (withheld, or rewritten
/// by a dialplan), the one that the network has.
fn caller(record: &mut Record<'_>, source: &Source<'_>) -> Result<Number, Fault> {
    let presented = (Key::CallerIdNumber, text(record, Key::CallerIdNumber)?);
    let network = (Key::Ani, text(record, Key::Ani)?);
    let mut first = None;
    for (key, dialled) in [presented, network] {
        match dialled.map(|dialled| number(&dialled, source)) {
            Some(Ok(number)) => return Ok(number),
            Some(Err(fault)) => first = first.or(Some(Fault::Caller { key, fault })),
            None => {}
        }
    }
    Err(first.unwrap_or(Fault::NoCaller))
}

/// What is no E.164 number is an extension, a name or a service, and is kept.
fn called<'a>(destination: Option<Cow<'a, str>>, source: &Source<'_>) -> (String, Cow<'a, str>) {
    let destination = destination.unwrap_or_default();
    match number(&destination, source) {
        Ok(number) => (number.e164, Cow::Borrowed("")),
        Err(_) => (String::new(), destination),
    }
}

fn number(dialled: &str, source: &Source<'_>) -> Result<Number, phone::Fault> {
    match source.extension(dialled) {
        Some(number) => Ok(number.clone()),
        None => phone::normalize(dialled, source.region),
    }
}
