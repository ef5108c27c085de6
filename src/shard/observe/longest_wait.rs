//! The sessions that have waited longest for an acknowledgement. An operator asks for them.
//!
//! The search visits every session of the shard, so it is not a part of the regular work of a turn.

use crate::mqtt::packet::ProtocolVersion;
use crate::session::outbound::stall::Stall;
use crate::shard::connections::Connections;
use crate::shard::observe::client_events::{Addressed, addressed};
use crate::shard::sessions::Sessions;
use crate::shard::slots::{ConnectionId, SessionId};
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
    /// Returns the sessions with the oldest unacknowledged packets, the oldest first, at most
    /// `most`. Costs a visit of every session.
    pub(crate) fn find(
        now: Instant,
        most: usize,
        sessions: &Sessions,
        connections: &Connections,
    ) -> Vec<LongestWait> {
        let mut oldest: Vec<(SessionId, Stall)> = Vec::new();
        for (id, session_entry) in sessions.iter() {
            if let Some(stall) = session_entry.session.sender.oldest_unacknowledged(now) {
                oldest.push((id, stall));
                // The list is cut now and then, so that it stays short even if every session is
                // stalled.
                if oldest.len() >= 2 * most.max(1) {
                    keep_oldest(&mut oldest, most);
                }
            }
        }
        keep_oldest(&mut oldest, most);
        oldest
            .into_iter()
            .filter_map(|(id, stall)| LongestWait::of(id, stall, sessions, connections))
            .collect()
    }

    fn of(
        id: SessionId,
        stall: Stall,
        sessions: &Sessions,
        connections: &Connections,
    ) -> Option<LongestWait> {
        let session_entry = sessions.get(id)?;
        let sender = &session_entry.session.sender;
        let connection = session_entry.connection.and_then(|id| Some((id, connections.get(id)?.version())));
        Some(LongestWait {
            client_id: session_entry.session.client_id.clone(),
            connection,
            stall,
            message: sender.window.delivery(stall.number).map(addressed),
            due: if connection.is_some() { sender.window.earliest_due() } else { Instant::NEVER },
            in_flight: sender.window.len(),
            queued: sender.queue.len(),
        })
    }
}

fn keep_oldest(oldest: &mut Vec<(SessionId, Stall)>, most: usize) {
    oldest.sort_by_key(|(_, stall)| std::cmp::Reverse(stall.age));
    oldest.truncate(most);
}
