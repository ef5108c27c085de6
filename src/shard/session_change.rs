//! The epilogue: the steps that follow after something changed what a session has in its window or
//! its queue.

use crate::shard::Shard;
use crate::shard::slots::{ConnectionId, SessionId};
use crate::time::Instant;

impl Shard {
    /// Does what follows after messages of a session were sent, dropped, or read back. The order
    /// matters: drops are reported first, since they belong to this session; then held messages get
    /// the places that became free; only then is it known what there is to write, which deadline is
    /// the earliest, and which page the queue wants.
    ///
    /// Costs a look-up of the session and of its connection for each step. Nothing happens where
    /// nothing changed.
    pub(super) fn after_session_change(&mut self, now: Instant, session: SessionId) {
        self.report_drops(session);
        self.admit_held(now, session);
        if let Some(id) = self.sessions.get(session).and_then(|entry| entry.connection) {
            self.touch(id);
            self.register_retransmit(now, id);
        }
        self.fetch(session);
    }

    /// Does the same after a packet of the client that the session answered itself, which is an
    /// acknowledgement nearly always. This is the hot path, so each step is left out that cannot be
    /// needed: the caller has marked the connection as dirty and reported drops already, `appended`
    /// bytes of answers went into its outbox, and `holds` is true if messages wait for room.
    #[inline]
    pub(super) fn after_acknowledgement(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session: SessionId,
        appended: usize,
        holds: bool,
    ) {
        if holds {
            self.admit_held(now, session);
        }
        // A packet that was just sent may be due before all others. An acknowledgement alone only
        // ends deadlines.
        if holds || appended > 0 {
            self.register_retransmit(now, id);
        }
        if self.stored.is_some() {
            self.fetch(session);
        }
        if !self.orphaned_queues.is_empty() {
            self.has_room_for_orphaned_queues(now, session);
        }
    }
}
