//! What was promised against what came. Pure: told of every message sent and received, it knows no
//! client and no clock.

mod ledger;
mod seen;
mod stamp;

pub use ledger::{Arrival, Counts, Ledger, Verdict};
pub use seen::Seen;
pub use stamp::{LENGTH, Stamp};
