//! A normalizer for FreeSWITCH: the JSON that its `mod_json_cdr` posts at the
//! end of each leg of a call becomes a row of the table that all normalizers
//! share.
//!
//! ```text
//! payload ──▶ parse ──▶ record::Record ──▶ admit      (the API: onto the topic?)
//!                                     └──▶ normalize  (the worker: what row?)
//!                                            settings · telecom-rules
//! ```
//!
//! What is known of the format comes from FreeSWITCH's documentation and source
//! (`mod_json_cdr`, `switch_ivr_generate_json_cdr`, `switch_channel_set_timestamps`):
//!
//! | read | what it is |
//! |---|---|
//! | `switchname` | the switch; older releases leave it out |
//! | `channel_data.direction` | `inbound` or `outbound`, as the switch sees the leg |
//! | `variables.*` | the channel's variables: strings all of them, numbers and times too; empty ones are left out |
//! | `callflow[].caller_profile` | who called what, newest first: each transfer adds an entry in front |
//!
//! Of the variables: `uuid` (this leg), `call_uuid` (the leg that it belongs to),
//! `sip_call_id`, `sofia_profile_name`, `direction`, `start_epoch`,
//! `answer_epoch` (`0`: not answered), `end_epoch`, `billsec` (from answer to
//! end, 0 without answer), `hangup_cause`, `hangup_cause_q850`. Of a caller
//! profile: `caller_id_number`, `ani`, `destination_number`, `network_addr`.
//! All else is read over, but has to be good JSON.
//!
//! Three oddities:
//! - With `encode-values` (the default of the switch) each variable is
//!   percent-encoded, and nothing says so; see [`record`].
//! - Older releases repeat the key `callflow` instead of giving an array.
//! - A variable may come twice: the switch keeps them as a list. The same value
//!   twice is one value; two values are refused, for nothing says which counts.

mod admit;
mod fault;
mod normalize;
mod parse;
mod plugin;
pub mod record;
mod row;
pub mod settings;

pub use plugin::FreeswitchJsonCdr;
pub use row::CallRow;
