//! The form of values that stand in topics and in JSON.

use crate::mqtt::topic::escape_level;
use std::borrow::Cow;
use std::time::Duration;

/// Maximum length of a client id in a topic, in bytes. A longer one would leave no room in the
/// topic once it is escaped.
pub(super) const LONGEST_CLIENT_ID: usize = 1024;

/// Returns a client id as one level of a topic of the broker's own; `None` if the id is too long.
pub(super) fn client_level(client_id: &str) -> Option<Cow<'_, str>> {
    (client_id.len() <= LONGEST_CLIENT_ID).then(|| escape_level(client_id))
}

/// Returns a duration in whole milliseconds, rounded down.
pub(super) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
