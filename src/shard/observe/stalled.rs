//! The sessions with an overdue acknowledgement that was reported and has not come yet.

use crate::shard::sessions::Sessions;
use crate::shard::slots::SessionId;
use std::collections::HashMap;

/// Sessions that are remembered. Further ones are not counted until one of these has recovered.
const MOST_STALLED: usize = 1_024;

/// The sessions of a shard that have stalled. 64 KiB at most.
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

    /// Forgets the sessions that have recovered or ended. Costs one binary search for each session
    /// that stalled. Returns the number of those that are left.
    pub(crate) fn recount(&mut self, sessions: &Sessions) -> usize {
        self.overdue.retain(|_, (session, number)| {
            sessions.get(*session).is_some_and(|entry| entry.session.sender.is_unfinished(*number))
        });
        self.overdue.len()
    }
}
