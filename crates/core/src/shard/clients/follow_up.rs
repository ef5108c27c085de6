//! The steps that follow when a session or its outbox changes.

use crate::shard::Shard;
use crate::shard::clients::pause::Pause;
use crate::shard::features::hold;
use crate::shard::turn::work::Job;
use crate::slots::{ConnectionId, SessionId};
use crate::time::Instant;

impl Shard {
    /// Does the steps that follow after messages of a session were sent, dropped or read back. The
    /// order matters. Drops are reported first, because the list of drops belongs to the last
    /// session. Then held messages take the places that became free. Only then is the next page
    /// known.
    ///
    /// Each step costs a look-up of the session or its connection. A step without a change does
    /// nothing.
    pub(crate) fn after_session_change(&mut self, now: Instant, session: SessionId) {
        self.core.report_drops(session);
        hold::admit(now, session, self);
        if let Some(mut client) = self.core.client_of(session) {
            client.flush_later();
        }
        self.core.fetch(session);
        self.core.spend_senders();
    }
}

/// Does the steps of [`Shard::after_session_change`] after a packet that the session handled
/// alone. Such a packet is nearly always an acknowledgement. The function is on the hot path,
/// so it leaves out each step that is not needed. The caller has reported drops and admitted held
/// messages.
#[inline]
pub(crate) fn after_acknowledgement(now: Instant, session: SessionId, shard: &mut Shard) {
    if shard.core.durability.is_on() {
        shard.core.fetch(session);
    }
    if !shard.routes.orphaned_queues.is_empty() {
        shard.routes.has_room_for_orphaned_queues(now, session, &mut shard.core);
    }
}

/// Continues the work that waited for room in a connection's outbox: the client's requests, the
/// queue, and held messages. Requests go first: a queue that takes all room at once would keep
/// the client from publishing. The queue follows at the next write.
pub(crate) fn outbox_has_room(now: Instant, id: ConnectionId, shard: &mut Shard) {
    // A connection without a session has written its CONNACK or an AUTH.
    let Some(mut client) = shard.core.client(id) else { return };
    let waits = client.entry.session.sender.has_waiting() || client.entry.holds();
    let paused = client.connection.pauses.has(Pause::Outbox);
    let is_full = client.connection.wire.outbox.len() >= client.settings.session.send.outbox;
    if !waits && !paused || is_full {
        return;
    }
    if paused {
        return shard.core.unpause(now, id, Pause::Outbox);
    }
    client.pump(now);
    let session = client.session_id;
    shard.after_session_change(now, session);
}

/// Sends the next messages of a queue. Returns the job that is left. More jobs follow while all
/// messages are dropped.
pub(crate) fn go_on_sending(now: Instant, id: SessionId, shard: &mut Shard) -> Option<Job> {
    shard.core.turn.spend(1);
    // The dead letters of the last portion are published before the next portion adds more.
    if !shard.core.dead_letters.is_empty() {
        return Some(Job::Send(id));
    }
    shard.core.client_of(id)?.pump(now);
    shard.after_session_change(now, id);
    None
}
