//! A record as it was posted: the places of the document that are read, and
//! what stands there.
//!
//! Whether variables are percent-encoded is a setting of the switch that the
//! document does not mention. It shows, though: encoding replaces each space and
//! quote, and a record has a variable that always holds a space (`start_stamp`,
//! date and time). So a record in which any variable has one is plain, and every
//! other is decoded. A caller can't fake this: what is put into an encoded record
//! is encoded too.

use percent_encoding::percent_decode_str;
use std::borrow::Cow;

/// A place in the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Key {
    /// The name of the switch.
    Switchname,
    /// The direction of the leg, as the channel has it.
    ChannelDirection,
    /// Names this leg; unique among switches, unless a dialplan says otherwise.
    Uuid,
    /// The `uuid` of the leg that this one belongs to.
    CallUuid,
    /// The `Call-ID` of SIP.
    SipCallId,
    /// The SIP profile (a socket of the switch).
    SofiaProfileName,
    /// The direction of the leg.
    Direction,
    /// When the leg began, in seconds.
    StartEpoch,
    /// When it was answered, in seconds; `0` if it was not.
    AnswerEpoch,
    /// When it was hung up, in seconds.
    EndEpoch,
    /// Seconds from answer to end.
    Billsec,
    /// Why it ended, as in `NORMAL_CLEARING`.
    HangupCause,
    /// Why it ended, as a code of Q.850.
    HangupCauseQ850,
    /// The caller's number, as it is presented.
    CallerIdNumber,
    /// The caller's number, as the network has it.
    Ani,
    /// What was called.
    DestinationNumber,
    /// The address that the call came from.
    NetworkAddr,
}

impl Key {
    /// Every place, in the order of the declaration.
    pub const ALL: [Self; 17] = [
        Self::Switchname,
        Self::ChannelDirection,
        Self::Uuid,
        Self::CallUuid,
        Self::SipCallId,
        Self::SofiaProfileName,
        Self::Direction,
        Self::StartEpoch,
        Self::AnswerEpoch,
        Self::EndEpoch,
        Self::Billsec,
        Self::HangupCause,
        Self::HangupCauseQ850,
        Self::CallerIdNumber,
        Self::Ani,
        Self::DestinationNumber,
        Self::NetworkAddr,
    ];

    /// Where it stands, for people. Of several caller profiles it is the oldest.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Switchname => "switchname",
            Self::ChannelDirection => "channel_data.direction",
            Self::Uuid => "variables.uuid",
            Self::CallUuid => "variables.call_uuid",
            Self::SipCallId => "variables.sip_call_id",
            Self::SofiaProfileName => "variables.sofia_profile_name",
            Self::Direction => "variables.direction",
            Self::StartEpoch => "variables.start_epoch",
            Self::AnswerEpoch => "variables.answer_epoch",
            Self::EndEpoch => "variables.end_epoch",
            Self::Billsec => "variables.billsec",
            Self::HangupCause => "variables.hangup_cause",
            Self::HangupCauseQ850 => "variables.hangup_cause_q850",
            Self::CallerIdNumber => "callflow.caller_profile.caller_id_number",
            Self::Ani => "callflow.caller_profile.ani",
            Self::DestinationNumber => "callflow.caller_profile.destination_number",
            Self::NetworkAddr => "callflow.caller_profile.network_addr",
        }
    }

    /// The variable of that name, if it is read.
    pub(crate) fn variable(name: &str) -> Option<Self> {
        Some(match name {
            "uuid" => Self::Uuid,
            "call_uuid" => Self::CallUuid,
            "sip_call_id" => Self::SipCallId,
            "sofia_profile_name" => Self::SofiaProfileName,
            "direction" => Self::Direction,
            "start_epoch" => Self::StartEpoch,
            "answer_epoch" => Self::AnswerEpoch,
            "end_epoch" => Self::EndEpoch,
            "billsec" => Self::Billsec,
            "hangup_cause" => Self::HangupCause,
            "hangup_cause_q850" => Self::HangupCauseQ850,
            _ => return None,
        })
    }

    /// The member of a caller profile of that name, if it is read.
    pub(crate) fn of_profile(name: &str) -> Option<Self> {
        Some(match name {
            "caller_id_number" => Self::CallerIdNumber,
            "ani" => Self::Ani,
            "destination_number" => Self::DestinationNumber,
            "network_addr" => Self::NetworkAddr,
            _ => return None,
        })
    }

    /// Whether `encode-values` concerns it.
    const fn is_variable(self) -> bool {
        self as u8 >= Self::Uuid as u8 && self as u8 <= Self::HangupCauseQ850 as u8
    }
}

/// A part of the document that has to be an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// `channel_data`
    ChannelData,
    /// `variables`
    Variables,
    /// `callflow`: an object, or an array of such.
    Callflow,
    /// `callflow.caller_profile`
    CallerProfile,
}

impl Section {
    /// Where it stands, for people.
    pub const fn path(self) -> &'static str {
        match self {
            Self::ChannelData => "channel_data",
            Self::Variables => "variables",
            Self::Callflow => "callflow",
            Self::CallerProfile => "callflow.caller_profile",
        }
    }
}

/// What kind of JSON was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// A number.
    Number,
    /// A string.
    Text,
    /// An array.
    Array,
    /// An object.
    Object,
}

impl Found {
    /// For people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool => "a boolean",
            Self::Number => "a number",
            Self::Text => "a string",
            Self::Array => "an array",
            Self::Object => "an object",
        }
    }
}

/// What stands at a place.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Field<'a> {
    /// Nothing.
    #[default]
    Absent,
    /// A string, as it was posted.
    Text(Cow<'a, str>),
    /// Something that is no string: a fault, but for `null`.
    Other(Found),
}

impl Field<'_> {
    /// What was found, where that is neither nothing nor a string.
    pub fn wrong_type(&self) -> Option<Found> {
        match self {
            Self::Other(found) if *found != Found::Null => Some(*found),
            _ => None,
        }
    }

    /// What was found in a place where something is missing, for people.
    pub fn found(&self) -> &'static str {
        match self {
            Self::Absent => "not there",
            Self::Text(text) if text.is_empty() => "an empty string",
            Self::Text(_) => "a blank string",
            Self::Other(found) => found.as_str(),
        }
    }
}

/// A variable that is percent-encoded, but not of a text in UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotUtf8;

/// A record as it was posted; see the module's documentation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record<'a> {
    fields: [Field<'a>; Key::ALL.len()],
    /// `destination_number` of the newest profile, where there are several.
    pub(crate) last_destination: Field<'a>,
    /// Some variable has a character that encoding would have replaced.
    pub(crate) is_plain: bool,
    /// The first section that is not what it has to be, and what it is.
    pub(crate) wrong_section: Option<(Section, Found)>,
    /// The first place that has two values.
    pub(crate) doubled: Option<&'static str>,
}

impl<'a> Record<'a> {
    /// What stands at a place, as it was posted.
    pub fn get(&self, key: Key) -> &Field<'a> {
        &self.fields[key as usize]
    }

    /// Puts a value to its place; a second value, if it differs, is noted.
    pub(crate) fn put(&mut self, key: Key, value: Field<'a>) {
        let field = &mut self.fields[key as usize];
        if *field == Field::Absent {
            *field = value;
        } else if *field != value {
            self.doubled.get_or_insert(key.path());
        }
    }

    /// Replaces a value.
    pub(crate) fn set(&mut self, key: Key, value: Field<'a>) {
        self.fields[key as usize] = value;
    }

    /// Whether there is nothing at a place: no key, `null`, or a string that is
    /// empty or blank.
    pub(crate) fn is_missing(&self, key: Key) -> bool {
        self.get(key).wrong_type().is_none() && self.text(key) == Ok(None)
    }

    /// The text at a place, decoded; `None` if it is blank, or there is none.
    ///
    /// # Errors
    /// What was encoded is no text.
    pub(crate) fn text(&self, key: Key) -> Result<Option<Cow<'_, str>>, NotUtf8> {
        match self.get(key) {
            Field::Text(text) => self.decoded(key, Cow::Borrowed(text)),
            _ => Ok(None),
        }
    }

    /// The same, leaving [`Field::Absent`].
    ///
    /// # Errors
    /// What was encoded is no text.
    pub(crate) fn take(&mut self, key: Key) -> Result<Option<Cow<'a, str>>, NotUtf8> {
        match std::mem::take(&mut self.fields[key as usize]) {
            Field::Text(text) => self.decoded(key, text),
            _ => Ok(None),
        }
    }

    fn decoded<'t>(&self, key: Key, text: Cow<'t, str>) -> Result<Option<Cow<'t, str>>, NotUtf8> {
        let text = if self.is_plain || !key.is_variable() || !text.contains('%') {
            text
        } else {
            let decoded = percent_decode_str(&text).decode_utf8();
            Cow::Owned(decoded.map_err(|_| NotUtf8)?.into_owned())
        };
        Ok(Some(text).filter(|text| !text.trim().is_empty()))
    }
}

/// Whether a variable's value has a character that `encode-values` replaces, in
/// every release.
pub(crate) fn shows_plain(value: &str) -> bool {
    value
        .bytes()
        .any(|byte| matches!(byte, b' ' | b'"' | b'<' | b'>'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_listed_in_order_and_have_names_of_their_own() {
        for (index, key) in Key::ALL.into_iter().enumerate() {
            assert_eq!(key as usize, index);
            assert_eq!(
                Key::ALL
                    .iter()
                    .filter(|other| other.path() == key.path())
                    .count(),
                1
            );
            let (section, name) = key.path().rsplit_once('.').unwrap_or(("", key.path()));
            assert_eq!(Key::variable(name) == Some(key), section == "variables");
            assert_eq!(
                Key::of_profile(name) == Some(key),
                section == "callflow.caller_profile"
            );
            assert_eq!(key.is_variable(), section == "variables");
        }
    }
}
