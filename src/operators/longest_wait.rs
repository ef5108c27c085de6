//! The sessions that have waited longest for an acknowledgement. An operator asks for them.
//!
//! The search visits every session of the shard, so it is not a part of the regular work of a turn.

use crate::mqtt::packet::ProtocolVersion;
use crate::session::outbound::stall::Stall;
use crate::shard::Shard;
use crate::shard::observe::client_events::{Addressed, addressed};
use crate::shard::session_entry::SessionEntry;
use crate::shard::slots::ConnectionId;
use crate::shard::view::ShardView;
use crate::time::Instant;

/// A session with an unacknowledged packet.
#[derive(Clone, Debug)]
pub struct LongestWait {
    /// The Client Identifier.
    pub client_id: Box<str>,
    /// The connection and its protocol version; `None` while the client is away.
    pub connection: Option<(ConnectionId, ProtocolVersion)>,
    /// The oldest unacknowledged packet.
    pub stall: Stall,
    /// The message of that packet; `None` for a PUBREL.
    pub message: Option<Addressed>,
    /// The time at which the first packet is sent again or reported as overdue. [`Instant::NEVER`]
    /// if there is none.
    pub due: Instant,
    /// Messages in flight.
    pub in_flight: usize,
    /// Messages in the queue.
    pub queued: usize,
}

impl LongestWait {
    /// Returns the sessions whose oldest unacknowledged packets are the oldest, the oldest first,
    /// at most `most`. Costs a visit of every session: never for a turn's work.
    pub fn find(now: Instant, most: usize, shard: &Shard) -> Vec<LongestWait> {
        let view = shard.view();
        let mut oldest: Vec<(Stall, &SessionEntry)> = Vec::new();
        for slot in 0..view.end_of_slots() {
            if let Some((_, entry)) = view.session_at(slot)
                && let Some(stall) = entry.session.sender.oldest_unacknowledged(now)
            {
                oldest.push((stall, entry));
                // The list is cut now and then, so that it stays short even if every session is
                // stalled.
                if oldest.len() >= 2 * most.max(1) {
                    keep_oldest(&mut oldest, most);
                }
            }
        }
        keep_oldest(&mut oldest, most);
        oldest.into_iter().map(|(stall, entry)| LongestWait::of(stall, entry, view)).collect()
    }

    fn of(stall: Stall, entry: &SessionEntry, shard: ShardView<'_>) -> LongestWait {
        let sender = &entry.session.sender;
        let connection = entry.connection.and_then(|id| Some((id, shard.connection(id)?.version())));
        LongestWait {
            client_id: entry.session.client_id.clone(),
            connection,
            stall,
            message: sender.unacknowledged(stall.number).map(addressed),
            due: if connection.is_some() { sender.earliest_due() } else { Instant::NEVER },
            in_flight: sender.in_flight(),
            queued: sender.backlog.len(),
        }
    }
}

fn keep_oldest(oldest: &mut Vec<(Stall, &SessionEntry)>, most: usize) {
    oldest.sort_by_key(|(stall, _)| std::cmp::Reverse(stall.age));
    oldest.truncate(most);
}
