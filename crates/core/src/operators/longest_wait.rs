//! The sessions that have waited longest for an acknowledgement. An operator asks for them.
//!
//! The search visits every session of the shard, so it is not a part of the regular work of a turn.

use crate::events::client_events::{Addressed, addressed};
use crate::operators::session_rows::{SessionSummary, row};
use crate::session::outbound::stall::Stall;
use crate::shard::Shard;
use crate::shard::clients::session_entry::SessionEntry;
use crate::slots::SessionId;
use crate::time::Instant;

/// A session with an unacknowledged packet.
#[derive(Clone, Debug)]
pub struct LongestWait {
    /// The session.
    pub session: SessionSummary,
    /// The oldest unacknowledged packet.
    pub stall: Stall,
    /// The message of that packet; `None` for a PUBREL.
    pub message: Option<Addressed>,
}

impl LongestWait {
    /// Returns the sessions whose oldest unacknowledged packets are the oldest, the oldest first,
    /// at most `most`. Costs a visit of every session: never for a turn's work.
    pub fn find(now: Instant, most: usize, shard: &Shard) -> Vec<LongestWait> {
        let shard = shard.view();
        let mut oldest: Vec<(Stall, SessionId, &SessionEntry)> = Vec::new();
        for (id, entry) in (0..shard.end_of_slots()).filter_map(|slot| shard.session_at(slot)) {
            if let Some(stall) = entry.session.sender.oldest_unacknowledged(now) {
                oldest.push((stall, id, entry));
                // The list is cut now and then, so that it stays short even if every session is
                // stalled.
                if oldest.len() >= 2 * most.max(1) {
                    keep_oldest(&mut oldest, most);
                }
            }
        }
        keep_oldest(&mut oldest, most);
        let found = |(stall, id, entry): (Stall, SessionId, &SessionEntry)| LongestWait {
            session: row(now, (id, entry), shard),
            stall,
            message: entry.session.sender.window.delivery(stall.number).map(addressed),
        };
        oldest.into_iter().map(found).collect()
    }
}

fn keep_oldest(oldest: &mut Vec<(Stall, SessionId, &SessionEntry)>, most: usize) {
    oldest.sort_by_key(|(stall, ..)| std::cmp::Reverse(stall.age));
    oldest.truncate(most);
}
