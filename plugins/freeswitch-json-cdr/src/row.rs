//! What a leg of a call becomes.
//!
//! The columns of the reference normalizer are all there, so that a table made
//! for either suits both; those that a soft switch can't know are empty. What
//! FreeSWITCH knows beyond them is nullable: in the rows of other normalizers it
//! is null.

use std::borrow::Cow;
use std::net::Ipv4Addr;
use uuid::Uuid;

/// A row; its fields are the columns, in order.
#[derive(Debug, Clone, PartialEq, Eq, cdr_plugin_sdk::Row)]
pub struct CallRow<'a> {
    /// `voice`: a channel is a call.
    #[column(category)]
    pub service_type: &'static str,
    /// `VIRTUAL`: what 3GPP has for an access that is not known (TS 29.212), as
    /// it is to a switch that sees a SIP peer.
    #[column(category)]
    pub radio_access_type: &'static str,
    /// Empty.
    #[column(category)]
    pub rat_orbit: &'static str,
    /// Empty.
    #[column(category)]
    pub secondary_rat: &'static str,
    /// Empty: there is no cell.
    pub cell_id: &'static str,
    /// `start_epoch`
    #[column(seconds)]
    pub session_start_time: u32,
    /// The caller in E.164, with `+`.
    pub msisdn: String,
    /// Whether the caller is a valid number, not only a possible one.
    pub msisdn_valid: bool,
    /// Of vendor and `uuid`, see [`telecom_rules::cdr_id`].
    pub cdr_id: Uuid,
    /// `end_epoch`
    #[column(seconds)]
    pub session_end_time: Option<u32>,
    /// `billsec`: from answer to end, without the ringing.
    pub duration_s: u32,
    /// 0
    pub bytes_up: u64,
    /// 0
    pub bytes_down: u64,
    /// What was dialled, in E.164, with `+`; empty if it is no such number.
    pub called_msisdn: String,
    /// What was dialled, as it came, if it is no E.164 number; else empty.
    pub called_raw: Cow<'a, str>,
    /// Where the call came from, if that is an IPv4 address.
    pub ip_address: Option<Ipv4Addr>,
    /// Empty.
    pub imsi: &'static str,
    /// Empty.
    pub imei: &'static str,
    /// `hangup_cause`
    #[column(category)]
    pub cause: Cow<'a, str>,
    /// `inbound` or `outbound`, as the switch sees the leg.
    #[column(category)]
    pub direction: Cow<'a, str>,
    /// By the settings; else the name of the switch.
    #[column(category)]
    pub vendor_id: Cow<'a, str>,
    /// `uuid`
    pub raw_id: Cow<'a, str>,

    /// `answer_epoch`; null if the call was not answered.
    #[column(seconds)]
    pub answer_time: Option<u32>,
    /// `hangup_cause_q850`
    pub cause_q850: Option<u32>,
    /// `call_uuid`: what the legs of a call have in common.
    pub call_uuid: Option<Cow<'a, str>>,
    /// `sip_call_id`
    pub sip_call_id: Option<Cow<'a, str>>,
    /// The name of the switch.
    pub switch_name: Option<Cow<'a, str>>,
    /// `sofia_profile_name`
    pub sip_profile: Option<Cow<'a, str>>,
    /// Where a transfer took the call at last, if that is not what was dialled.
    pub transferred_to: Option<Cow<'a, str>>,
    /// Where the call came from, as it came, if that is no IPv4 address.
    pub network_addr: Option<Cow<'a, str>>,
}
