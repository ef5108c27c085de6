//! The sessions with an overdue acknowledgement that was reported and has not come yet. A session
//! counts while its client is connected.

use crate::shard::clients::sessions::Sessions;
use crate::slots::SessionId;
use std::collections::HashMap;

/// Sessions that are remembered. Further sessions are not counted until a counted session has
/// recovered.
const MOST_STALLED: usize = 1_024;

/// The sessions of a shard that have stalled. 64 KiB at most. A session whose client has left stays
/// while there is room, so that it counts again when the client returns.
#[derive(Debug, Default)]
pub(crate) struct StalledSessions {
    /// By slot: the session, and the running number of the message that is overdue.
    overdue: HashMap<u32, (SessionId, u64), foldhash::fast::RandomState>,
}

impl StalledSessions {
    /// Notes that the acknowledgement of a message is overdue. `number` is its running number.
    pub(crate) fn note(&mut self, session: SessionId, number: u64) {
        if self.overdue.len() < MOST_STALLED || self.overdue.contains_key(&session.slot) {
            self.overdue.insert(session.slot, (session, number));
        }
    }

    /// Forgets the sessions that have recovered or ended, and without room also those whose clients
    /// have left. Costs one binary search for each session that stalled. Returns the number of
    /// stalled sessions whose clients are connected.
    pub(crate) fn recount(&mut self, sessions: &Sessions) -> usize {
        let has_room = self.overdue.len() < MOST_STALLED;
        let mut connected = 0;
        self.overdue.retain(|_, (session, number)| {
            let entry = sessions.get(*session).filter(|entry| entry.session.sender.window.contains(*number));
            let is_connected = entry.is_some_and(|entry| entry.connection.is_some());
            connected += usize::from(is_connected);
            is_connected || entry.is_some() && has_room
        });
        connected
    }
}
