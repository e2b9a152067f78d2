//! The rules as a normalizer: from the SDK's questions to the modules that
//! answer them.

use crate::admit;
use crate::normalize::{self, Row};
use crate::phone;
use crate::raw::RawCdr;
use crate::settings::Settings;
use cdr_plugin_sdk::{
    Admission, Malformed, Normalizer, Reason, ReceivedAt, Rejection, Violation, ViolationCode,
};

/// The reference normalizer.
#[derive(Debug)]
pub struct CdrNormalizer {
    settings: Settings,
}

impl Normalizer for CdrNormalizer {
    const NAME: &'static str = env!("CARGO_PKG_NAME");
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const DESCRIPTION: &'static str =
        "Voice, SMS and data records of mobile networks, with E.164 numbers and 3GPP access types.";

    type Settings = Settings;
    type Raw<'a> = RawCdr<'a>;
    type Row<'a> = Row<'a>;

    fn configure(settings: Settings) -> Result<Self, String> {
        phone::warm_up(settings.regions());
        Ok(Self { settings })
    }

    fn parse(payload: &[u8]) -> Result<RawCdr<'_>, Malformed> {
        RawCdr::parse(payload).map_err(|malformed| Malformed {
            field: malformed.field.map(Into::into),
            detail: malformed.detail.into(),
        })
    }

    fn admit(&self, record: &RawCdr<'_>) -> Result<Admission, Violation> {
        match admit::admit(record) {
            Ok(admitted) => Ok(Admission::keyed(admitted.raw_id).source(admitted.vendor_id)),
            Err(refusal) => Err(Violation {
                code: match refusal.code {
                    admit::Code::MalformedJson => ViolationCode::MalformedJson,
                    admit::Code::MissingRequiredField => ViolationCode::MissingRequiredField,
                    admit::Code::InvalidType => ViolationCode::InvalidType,
                },
                field: refusal.field.map(Into::into),
                detail: refusal.detail.into(),
            }),
        }
    }

    fn normalize<'a>(
        &self,
        record: Self::Raw<'a>,
        received_at: ReceivedAt,
    ) -> Result<Self::Row<'a>, Rejection> {
        normalize::normalize(record, received_at.millis(), &self.settings).map_err(|rejection| {
            Rejection {
                reason: match rejection.reason {
                    normalize::Reason::MalformedJson => Reason::MalformedJson,
                    normalize::Reason::MissingRequiredField => Reason::MissingRequiredField,
                    normalize::Reason::InvalidRatValue => Reason::InvalidRatValue,
                    normalize::Reason::InvalidEpoch => Reason::InvalidEpoch,
                    normalize::Reason::NormalizationError => Reason::NormalizationError,
                },
                field: rejection.field.map(Into::into),
                detail: rejection.detail.into(),
            }
        })
    }
}

#[cfg(feature = "component")]
cdr_plugin_sdk::export!(CdrNormalizer);
