//! The keys of a record that this normalizer knows, and the values they can have.

use std::borrow::Cow;

/// A known key of a raw record, required ones first.
///
/// Keys are case sensitive; any other key is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Key {
    /// `raw_id`: names one immutable event of the vendor.
    RawId,
    /// `vendor_id`: who sent the record.
    VendorId,
    /// `service_type`: `voice`, `sms` or `data`.
    ServiceType,
    /// `radio_access_type`: a name or a code, see [`rat`](crate::rat).
    RadioAccessType,
    /// `cell_id`: opaque.
    CellId,
    /// `caller_num`: see [`phone`](crate::phone).
    CallerNum,
    /// `session_start_time`: integer seconds or milliseconds.
    SessionStartTime,
    /// `called_num`: a number, a short code or an alphanumeric name.
    CalledNum,
    /// `session_end_time`: integer seconds or milliseconds.
    SessionEndTime,
    /// `duration_s`: integer seconds.
    DurationS,
    /// `bytes_up`: integer octets from the subscriber.
    BytesUp,
    /// `bytes_down`: integer octets to the subscriber.
    BytesDown,
    /// `ip_address`: IPv4, dotted quad.
    IpAddress,
    /// `imsi`: opaque.
    Imsi,
    /// `imei`: opaque.
    Imei,
    /// `cause`: opaque.
    Cause,
    /// `direction`: opaque.
    Direction,
}

/// What JSON type a known key has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A string.
    Text,
    /// An integer token: no quotes, point or exponent.
    Integer,
}

impl Kind {
    /// How the type is named to an operator.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "a string",
            Self::Integer => "an integer (without quotes, point or exponent)",
        }
    }
}

impl Key {
    /// How many keys are known.
    pub const COUNT: usize = Self::ALL.len();

    /// Every known key, in the order of the declaration.
    pub const ALL: [Self; 17] = [
        Self::RawId,
        Self::VendorId,
        Self::ServiceType,
        Self::RadioAccessType,
        Self::CellId,
        Self::CallerNum,
        Self::SessionStartTime,
        Self::CalledNum,
        Self::SessionEndTime,
        Self::DurationS,
        Self::BytesUp,
        Self::BytesDown,
        Self::IpAddress,
        Self::Imsi,
        Self::Imei,
        Self::Cause,
        Self::Direction,
    ];

    /// The keys that every record has to have, whatever its service.
    pub const REQUIRED: [Self; 7] = [
        Self::RawId,
        Self::VendorId,
        Self::ServiceType,
        Self::RadioAccessType,
        Self::CellId,
        Self::CallerNum,
        Self::SessionStartTime,
    ];

    /// The key as it is written in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RawId => "raw_id",
            Self::VendorId => "vendor_id",
            Self::ServiceType => "service_type",
            Self::RadioAccessType => "radio_access_type",
            Self::CellId => "cell_id",
            Self::CallerNum => "caller_num",
            Self::SessionStartTime => "session_start_time",
            Self::CalledNum => "called_num",
            Self::SessionEndTime => "session_end_time",
            Self::DurationS => "duration_s",
            Self::BytesUp => "bytes_up",
            Self::BytesDown => "bytes_down",
            Self::IpAddress => "ip_address",
            Self::Imsi => "imsi",
            Self::Imei => "imei",
            Self::Cause => "cause",
            Self::Direction => "direction",
        }
    }

    /// The key of that name, if it is a known one.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "raw_id" => Self::RawId,
            "vendor_id" => Self::VendorId,
            "service_type" => Self::ServiceType,
            "radio_access_type" => Self::RadioAccessType,
            "cell_id" => Self::CellId,
            "caller_num" => Self::CallerNum,
            "session_start_time" => Self::SessionStartTime,
            "called_num" => Self::CalledNum,
            "session_end_time" => Self::SessionEndTime,
            "duration_s" => Self::DurationS,
            "bytes_up" => Self::BytesUp,
            "bytes_down" => Self::BytesDown,
            "ip_address" => Self::IpAddress,
            "imsi" => Self::Imsi,
            "imei" => Self::Imei,
            "cause" => Self::Cause,
            "direction" => Self::Direction,
            _ => return None,
        })
    }

    /// The JSON type that its value has to have.
    pub const fn kind(self) -> Kind {
        match self {
            Self::SessionStartTime
            | Self::SessionEndTime
            | Self::DurationS
            | Self::BytesUp
            | Self::BytesDown => Kind::Integer,
            _ => Kind::Text,
        }
    }
}

/// The value of a known key, as it was sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Field<'a> {
    /// The key is not there.
    #[default]
    Absent,
    /// `null`.
    Null,
    /// A string, borrowed from the payload unless it has escapes.
    Text(Cow<'a, str>),
    /// An integer token. Tokens beyond ±2¹²⁷ are held at that bound: they are
    /// out of every range anyway.
    Integer(i128),
    /// A number that is no integer token, such as `1.0` or `1e3`.
    OtherNumber,
    /// `true` or `false`.
    Bool,
    /// An array.
    Array,
    /// An object.
    Object,
}

impl Field<'_> {
    /// Whether there is nothing: no key, `null`, or an empty or blank string.
    /// In a required field that is "missing", in an optional one "absent".
    pub fn is_missing(&self) -> bool {
        match self {
            Self::Absent | Self::Null => true,
            Self::Text(text) => is_blank(text),
            _ => false,
        }
    }

    /// Whether something is there, but not of this type.
    pub fn is_wrong_type(&self, kind: Kind) -> bool {
        !self.is_missing()
            && !matches!(
                (self, kind),
                (Self::Text(_), Kind::Text) | (Self::Integer(_), Kind::Integer)
            )
    }

    /// What was found, for an operator.
    pub fn found(&self) -> &'static str {
        match self {
            Self::Absent => "not there",
            Self::Null => "null",
            Self::Text(text) if text.is_empty() => "an empty string",
            Self::Text(text) if is_blank(text) => "a blank string",
            Self::Text(_) => "a string",
            Self::Integer(_) => "an integer",
            Self::OtherNumber => "a number with a point or an exponent",
            Self::Bool => "a boolean",
            Self::Array => "an array",
            Self::Object => "an object",
        }
    }
}

fn is_blank(text: &str) -> bool {
    // Nearly every text starts with a visible ASCII character.
    match text.as_bytes().first() {
        None => true,
        Some(first) if first.is_ascii_graphic() => false,
        Some(_) => text.trim().is_empty(),
    }
}

/// The services a record can be about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// A call.
    Voice,
    /// A short message.
    Sms,
    /// A data session.
    Data,
}

impl Service {
    /// The service of that name. ASCII case is folded, nothing is trimmed.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Voice, Self::Sms, Self::Data]
            .into_iter()
            .find(|service| service.as_str().eq_ignore_ascii_case(name))
    }

    /// As it is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Voice => "voice",
            Self::Sms => "sms",
            Self::Data => "data",
        }
    }

    /// The keys that are required for this service, beside [`Key::REQUIRED`].
    pub const fn required(self) -> &'static [Key] {
        match self {
            Self::Voice => &[Key::DurationS],
            Self::Sms => &[],
            Self::Data => &[Key::BytesUp, Key::BytesDown],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_listed_in_order_and_named_both_ways() {
        for (index, key) in Key::ALL.into_iter().enumerate() {
            assert_eq!(key as usize, index);
            assert_eq!(Key::from_name(key.name()), Some(key));
        }
        for other in ["", "RAW_ID", "raw_id ", "msisdn", "peer_number"] {
            assert_eq!(Key::from_name(other), None, "{other:?}");
        }
    }

    #[test]
    fn blank_is_missing_and_an_odd_string_is_not() {
        for blank in ["", " ", "\t\r\n", "\u{a0}\u{3000}", "\u{85}"] {
            assert!(Field::Text(blank.into()).is_missing(), "{blank:?}");
        }
        for text in ["0", " x", "\0", "\u{1f}", "\u{200b}", "null"] {
            assert!(!Field::Text(text.into()).is_missing(), "{text:?}");
        }
        assert!(!Field::Bool.is_missing());
    }

    #[test]
    fn services_fold_case_only() {
        assert_eq!(Service::from_name("VoIcE"), Some(Service::Voice));
        assert_eq!(Service::from_name("SMS"), Some(Service::Sms));
        assert_eq!(Service::from_name("data"), Some(Service::Data));
        for other in [" voice", "voice\n", "fax", "", "ｖｏｉｃｅ", "ſms"] {
            assert_eq!(Service::from_name(other), None, "{other:?}");
        }
    }
}
