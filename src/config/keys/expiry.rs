//! The key of `[expiry]`.

use crate::config::rule::{ValueType, millis, seconds};
use crate::config::table::section;
use std::time::Duration;

section! {
    /// The one timer of the broker.
    [expiry] Expiry {
        /// The precision of deadlines. Keep alive, redelivery, session expiry and all other
        /// deadlines fire never early, and at most this late.
        tick: Duration = Duration::from_millis(250),
            ValueType::Duration(millis(10), seconds(10)).only(),
            why: "A shorter tick buys precision with wake-ups.";
    }
}
