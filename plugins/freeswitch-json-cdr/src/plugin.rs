//! The SDK's questions, and who answers them.

use crate::record::Record;
use crate::row::CallRow;
use crate::settings::Settings;
use crate::{admit, normalize, parse};
use cdr_plugin_sdk::{Admission, Malformed, Normalizer, ReceivedAt, Rejection, Violation};
use telecom_rules::phone;

/// The normalizer of FreeSWITCH's call records.
#[derive(Debug)]
pub struct FreeswitchJsonCdr {
    settings: Settings,
}

impl Normalizer for FreeswitchJsonCdr {
    const NAME: &'static str = env!("CARGO_PKG_NAME");
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const DESCRIPTION: &'static str =
        "Legs of calls as FreeSWITCH's mod_json_cdr posts them, with E.164 numbers.";

    type Settings = Settings;
    type Raw<'a> = Record<'a>;
    type Row<'a> = CallRow<'a>;

    fn configure(settings: Settings) -> Result<Self, String> {
        settings.check().map_err(|fault| fault.to_string())?;
        phone::warm_up(settings.regions());
        Ok(Self { settings })
    }

    fn parse(payload: &[u8]) -> Result<Record<'_>, Malformed> {
        parse::record(payload)
    }

    fn admit(&self, record: &Record<'_>) -> Result<Admission, Violation> {
        admit::admit(record, &self.settings)
    }

    fn normalize<'a>(
        &self,
        record: Self::Raw<'a>,
        received_at: ReceivedAt,
    ) -> Result<Self::Row<'a>, Rejection> {
        normalize::normalize(record, received_at, &self.settings)
    }
}

cdr_plugin_sdk::export!(FreeswitchJsonCdr);
