//! The worker's question: what row does this record make?
//!
//! ```text
//! RawCdr ── missing? ── access type ── times ── everything else ──▶ Row
//!              │            │            │            │
//!              ▼            ▼            ▼            ▼
//!          missing_…   invalid_rat_…  invalid_epoch  normalization_error
//! ```
//!
//! The steps come in the order of precedence of their reasons, each over the
//! whole record, so that the highest reason wins wherever its field stands.
//! A wrong JSON type (a record that went past the API) takes the reason of its
//! field.

use crate::admit::{missing, type_sentence};
use crate::cdr_id::cdr_id;
use crate::field::{Field, Key, Service};
use crate::rat::Rat;
use crate::raw::{Malformed, RawCdr};
use crate::settings::Settings;
use crate::{epoch, ipv4, phone};
use std::borrow::Cow;
use std::net::Ipv4Addr;
use telecom_rules::text::{has_control, quoted};
use uuid::Uuid;

/// Why a record makes no row, highest precedence first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The payload is no record.
    MalformedJson,
    /// A required field is not there, `null`, or blank.
    MissingRequiredField,
    /// The radio access type is in no table.
    InvalidRatValue,
    /// A time is outside of the window, or the end is before the start.
    InvalidEpoch,
    /// Anything else.
    NormalizationError,
}

impl Reason {
    /// As it is written in a dead letter.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MalformedJson => "malformed_json",
            Self::MissingRequiredField => "missing_required_field",
            Self::InvalidRatValue => "invalid_rat_value",
            Self::InvalidEpoch => "invalid_epoch",
            Self::NormalizationError => "normalization_error",
        }
    }
}

/// A record that makes no row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// Why.
    pub reason: Reason,
    /// The field to blame, if there is one.
    pub field: Option<&'static str>,
    /// A sentence for the operator. It quotes short values at most, and no
    /// phone number.
    pub detail: String,
}

impl From<Malformed> for Rejection {
    fn from(malformed: Malformed) -> Self {
        Self {
            reason: Reason::MalformedJson,
            field: malformed.field,
            detail: malformed.detail,
        }
    }
}

/// A normalized record; its fields are the columns, in order.
///
/// Identifiers are stored as they came, untrimmed: they are keys in the
/// vendor's books, and `cdr_id` is made of the same bytes.
#[derive(Debug, Clone, PartialEq, Eq, cdr_plugin_sdk::Row)]
pub struct Row<'a> {
    /// `voice`, `sms` or `data`.
    #[column(category)]
    pub service_type: &'static str,
    /// The canonical access type, see [`rat`](crate::rat).
    #[column(category)]
    pub radio_access_type: &'static str,
    /// The orbit of a satellite, or empty.
    #[column(category)]
    pub rat_orbit: &'static str,
    /// `NR` for 5G non-standalone, or empty.
    #[column(category)]
    pub secondary_rat: &'static str,
    /// As it came.
    pub cell_id: Cow<'a, str>,
    /// Seconds since the Unix epoch.
    #[column(seconds)]
    pub session_start_time: u32,
    /// The caller in E.164, with `+`.
    pub msisdn: String,
    /// Whether the caller is a valid number, not only a possible one.
    pub msisdn_valid: bool,
    /// See [`cdr_id`](mod@crate::cdr_id).
    pub cdr_id: Uuid,
    /// Seconds since the Unix epoch.
    #[column(seconds)]
    pub session_end_time: Option<u32>,
    /// Seconds; 0 when absent.
    pub duration_s: u32,
    /// Octets from the subscriber; 0 when absent.
    pub bytes_up: u64,
    /// Octets to the subscriber; 0 when absent.
    pub bytes_down: u64,
    /// The called number in E.164, with `+`; empty if there is none.
    pub called_msisdn: String,
    /// What was called, as it came, if that is no E.164 number; else empty.
    pub called_raw: Cow<'a, str>,
    /// The address of the subscriber.
    pub ip_address: Option<Ipv4Addr>,
    /// As it came; empty when absent.
    pub imsi: Cow<'a, str>,
    /// As it came; empty when absent.
    pub imei: Cow<'a, str>,
    /// As it came; empty when absent.
    #[column(category)]
    pub cause: Cow<'a, str>,
    /// As it came; empty when absent.
    #[column(category)]
    pub direction: Cow<'a, str>,
    /// As it came.
    #[column(category)]
    pub vendor_id: Cow<'a, str>,
    /// As it came.
    pub raw_id: Cow<'a, str>,
}

/// Normalizes a record. `received_at_ms` is its Kafka timestamp in milliseconds
/// since the Unix epoch, the only clock there is.
///
/// # Errors
/// The record makes no row; the reason is the one of highest precedence.
pub fn normalize<'a>(
    mut record: RawCdr<'a>,
    received_at_ms: i64,
    settings: &Settings,
) -> Result<Row<'a>, Rejection> {
    if let Some(key) = record.first_missing() {
        return Err(Rejection {
            reason: Reason::MissingRequiredField,
            field: Some(key.name()),
            detail: missing(&record, key),
        });
    }
    let rat = access_type(record.take(Key::RadioAccessType))?;
    let (start, end) = session(&mut record, received_at_ms)?;

    let service_type = service(&record)?.as_str();
    let raw_id = identifier(&mut record, Key::RawId)?;
    let vendor_id = identifier(&mut record, Key::VendorId)?;
    let cell_id = identifier(&mut record, Key::CellId)?;
    let duration_s = duration(&mut record, start, end)?;
    let bytes_up = octets(&mut record, Key::BytesUp)?;
    let bytes_down = octets(&mut record, Key::BytesDown)?;
    let ip_address = address(&mut record)?;
    let imsi = identifier(&mut record, Key::Imsi)?;
    let imei = identifier(&mut record, Key::Imei)?;
    let cause = identifier(&mut record, Key::Cause)?;
    let direction = identifier(&mut record, Key::Direction)?;
    let region = settings.region_for(&vendor_id);
    let caller = caller(&mut record, region)?;
    let (called_msisdn, called_raw) = called(&mut record, region)?;

    Ok(Row {
        service_type,
        radio_access_type: rat.access,
        rat_orbit: rat.orbit,
        secondary_rat: rat.secondary,
        cell_id,
        session_start_time: start,
        msisdn: caller.e164,
        msisdn_valid: caller.valid,
        cdr_id: cdr_id(&vendor_id, &raw_id),
        session_end_time: end,
        duration_s,
        bytes_up,
        bytes_down,
        called_msisdn,
        called_raw,
        ip_address,
        imsi,
        imei,
        cause,
        direction,
        vendor_id,
        raw_id,
    })
}

/// A value of the right type, or `None` if there is none.
fn text(key: Key, field: Field<'_>, reason: Reason) -> Result<Option<Cow<'_, str>>, Rejection> {
    match field {
        absent if absent.is_missing() => Ok(None),
        Field::Text(text) => Ok(Some(text)),
        other => Err(reject(reason, key, type_sentence(key, &other))),
    }
}

fn integer(record: &mut RawCdr<'_>, key: Key, reason: Reason) -> Result<Option<i128>, Rejection> {
    match record.take(key) {
        absent if absent.is_missing() => Ok(None),
        Field::Integer(value) => Ok(Some(value)),
        other => Err(reject(reason, key, type_sentence(key, &other))),
    }
}

#[cold]
fn reject(reason: Reason, key: Key, detail: String) -> Rejection {
    Rejection {
        reason,
        field: Some(key.name()),
        detail,
    }
}

#[cold]
fn error(key: Key, detail: impl Into<String>) -> Rejection {
    reject(Reason::NormalizationError, key, detail.into())
}

fn access_type(field: Field<'_>) -> Result<Rat, Rejection> {
    let reason = Reason::InvalidRatValue;
    let value = text(Key::RadioAccessType, field, reason)?.unwrap_or_default();
    Rat::parse(&value).ok_or_else(|| {
        let detail = format!(
            "{} is in no table of radio access types: send a 3GPP name such as EUTRAN, or a \
             code of GTP (1 to 22) or Diameter (from 1000) as a string",
            quoted(&value)
        );
        reject(reason, Key::RadioAccessType, detail)
    })
}

fn session(record: &mut RawCdr<'_>, received_at_ms: i64) -> Result<(u32, Option<u32>), Rejection> {
    let reason = Reason::InvalidEpoch;
    let mut seconds = |key| {
        let Some(value) = integer(record, key, reason)? else {
            return Ok(None);
        };
        epoch::to_seconds(value, received_at_ms)
            .map(Some)
            .ok_or_else(|| {
                let detail = format!(
                    "{value} is not between 90 days before and 24 hours after the record was \
                 received ({received_at_ms} ms), neither as seconds nor as milliseconds"
                );
                reject(reason, key, detail)
            })
    };
    let start = seconds(Key::SessionStartTime)?.unwrap_or_default();
    let end = seconds(Key::SessionEndTime)?;
    if let Some(end) = end
        && end < start
    {
        let detail = format!("the session ends {} s before it starts", start - end);
        return Err(reject(reason, Key::SessionEndTime, detail));
    }
    Ok((start, end))
}

fn service(record: &RawCdr<'_>) -> Result<Service, Rejection> {
    record.service().ok_or_else(|| {
        let key = Key::ServiceType;
        match record.get(key) {
            Field::Text(name) => error(key, format!("{} is not voice, sms or data", quoted(name))),
            other => error(key, type_sentence(key, other)),
        }
    })
}

/// A text that is stored as it came. Control characters are refused: they are
/// a fault of the source, and would make two identifiers look like one.
fn identifier<'a>(record: &mut RawCdr<'a>, key: Key) -> Result<Cow<'a, str>, Rejection> {
    let field = record.take(key);
    let value = text(key, field, Reason::NormalizationError)?.unwrap_or_default();
    if has_control(&value) {
        let detail = format!("`{}` contains a control character", key.name());
        return Err(error(key, detail));
    }
    Ok(value)
}

fn duration(record: &mut RawCdr<'_>, start: u32, end: Option<u32>) -> Result<u32, Rejection> {
    let key = Key::DurationS;
    let Some(value) = integer(record, key, Reason::NormalizationError)? else {
        return Ok(0);
    };
    let seconds = u32::try_from(value)
        .map_err(|_| error(key, format!("{value} s is negative or far too long")))?;
    // Shorter is normal: the phone has to ring.
    match end.map(|end| end.saturating_sub(start)) {
        Some(session) if seconds > session => Err(error(
            key,
            format!("{seconds} s is longer than the session of {session} s; is it milliseconds?"),
        )),
        _ => Ok(seconds),
    }
}

fn octets(record: &mut RawCdr<'_>, key: Key) -> Result<u64, Rejection> {
    match integer(record, key, Reason::NormalizationError)? {
        None => Ok(0),
        Some(value) => u64::try_from(value)
            .map_err(|_| error(key, format!("{value} octets is negative or beyond 64 bits"))),
    }
}

fn address(record: &mut RawCdr<'_>) -> Result<Option<Ipv4Addr>, Rejection> {
    let key = Key::IpAddress;
    let field = record.take(key);
    let Some(value) = text(key, field, Reason::NormalizationError)? else {
        return Ok(None);
    };
    ipv4::parse(&value).map(Some).ok_or_else(|| {
        let detail = format!(
            "{} is not an IPv4 address in dotted-quad form",
            quoted(&value)
        );
        error(key, detail)
    })
}

fn caller(
    record: &mut RawCdr<'_>,
    region: Option<phone::Region>,
) -> Result<phone::Number, Rejection> {
    let key = Key::CallerNum;
    let field = record.take(key);
    let value = text(key, field, Reason::NormalizationError)?.unwrap_or_default();
    phone::normalize(&value, region).map_err(|fault| error(key, fault.to_string()))
}

/// A called number that is no E.164 is a short code or a name, and is kept.
fn called<'a>(
    record: &mut RawCdr<'a>,
    region: Option<phone::Region>,
) -> Result<(String, Cow<'a, str>), Rejection> {
    let key = Key::CalledNum;
    let field = record.take(key);
    let Some(value) = text(key, field, Reason::NormalizationError)? else {
        return Ok((String::new(), Cow::Borrowed("")));
    };
    Ok(match phone::normalize(&value, region) {
        Ok(number) => (number.e164, Cow::Borrowed("")),
        Err(_) => (String::new(), value),
    })
}
