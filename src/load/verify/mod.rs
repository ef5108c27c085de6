//! The check of a run: the messages that were sent against the messages that arrived. Pure: every
//! event is an argument, and this folder knows no client and no clock.

mod ledger;
mod seen;
mod stamp;

pub use ledger::{Arrival, Counts, Ledger, Verdict};
pub use seen::Seen;
pub use stamp::{LENGTH, Stamp};
