//! The check of a run: the messages that were sent against the messages that arrived. Pure: every
//! event is an argument, and this folder knows no client and no clock.

mod ledger;
mod seen;
mod stamp;

pub(super) use ledger::{Arrival, Counts, Ledger, Verdict};
pub(super) use seen::Seen;
pub(super) use stamp::{LENGTH, Stamp};
