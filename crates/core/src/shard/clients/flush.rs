//! The flush of one connection: its outbox goes to its socket, as far as the socket and the commits
//! let it.
//!
//! A client that has closed its side of the connection may still read. It gets what it is owed: the
//! answers to the packets that it sent, and what was in its outbox before them. Then the connection
//! ends as one without DISCONNECT. It ends at `network.write_timeout` at the latest, because a
//! client that has vanished looks the same. Messages that are sent to it meanwhile may come, but
//! nothing waits for them. Otherwise a flood would keep the connection until its deadline.

use crate::session::outbox::Outbox;
use crate::shard::Shard;
use crate::shard::clients::connection::{Connection, Leaves, Phase};
use crate::shard::clients::follow_up::outbox_has_room;
use crate::shard::clients::pause::Pause;
use crate::shard::clients::sessions::Sessions;
use crate::shard::turn::io::{Io, Written};
use crate::slots::ConnectionId;
use crate::time::Instant;

/// The end of a client's stream, and what the client is owed.
#[derive(Clone, Copy, Debug)]
pub(super) struct HalfClosed {
    /// The time at which the driver found the end.
    pub since: Instant,
    /// The offset in the stream to the client up to which it is owed the bytes. `None` while a
    /// packet of the client is not answered.
    owed: Option<u64>,
}

impl Shard {
    /// Writes one connection's outbox as far as its socket takes bytes. In a cluster no promise
    /// leaves without a valid lease, or the commit of what is recorded until now.
    pub fn flush_connection(&mut self, now: Instant, id: ConnectionId, io: &mut impl Io) {
        let promise = self.core.connections.get_mut(id).and_then(|connection| connection.wire.take_promise());
        if let Some(from) = promise
            && !self.core.shared.lease.lets_promise(|| io.read_clock())
        {
            self.core.hold_from(id, from);
        }
        // The connection has ended, or its socket is gone.
        let Some(written) = self.outbox(id).and_then(|outbox| io.write(id, outbox)) else { return };
        match flushed(now, id, written, self) {
            Flushed::Drained | Flushed::GatedUntilCommit | Flushed::Gone => {}
            Flushed::Blocked => io.await_writable(id),
            Flushed::Finished(leaves) => io.finish(id, leaves),
        }
    }

    /// Returns the outbox of a connection, with its commits up to date.
    pub fn outbox(&mut self, id: ConnectionId) -> Option<&mut Outbox> {
        let outbox = &mut self.core.connections.get_mut(id)?.wire.outbox;
        if let Some(write_buffer) = self.core.durability.write_buffer() {
            outbox.committed(write_buffer.last_committed());
        }
        Some(outbox)
    }

    /// Notes that a client has closed its side of the connection, and that all its packets are
    /// handled. Returns true while the client is owed bytes. The connection then ends by
    /// [`Io::finish`], or by its write deadline. May be called again.
    pub fn half_close(&mut self, now: Instant, id: ConnectionId) -> bool {
        let Some(connection) = self.core.connections.get_mut(id) else { return false };
        if connection.is_closing() {
            // It has a deadline of its own, and ends once its outbox is empty.
            return !connection.wire.outbox.is_empty();
        }
        if connection.half_closed().is_none() {
            // Nearly every client that goes is owed nothing, and costs no allocation.
            if connection.wire.outbox.is_empty() && !is_unanswered(connection, &self.core.sessions) {
                return false;
            }
            connection.rare_mut().half_closed = Some(HalfClosed { since: now, owed: None });
        }
        let is_owed = !is_paid(connection, &self.core.sessions);
        self.core.connections.register_write_idle(id, &mut self.core.effects);
        is_owed
    }
}

/// Notes that a connection was flushed as far as its socket takes bytes. Returns what is left.
fn flushed(now: Instant, id: ConnectionId, written: Written, shard: &mut Shard) -> Flushed {
    let Written { taken, pending, progressed } = written;
    shard.core.turn.spend_write(taken);
    let Some(connection) = shard.core.connections.get_mut(id) else { return Flushed::Gone };
    connection.dirty = false;
    let (has_steps, publishes) = (connection.wire.has_steps(), connection.wire.take_publishes());
    let drained = connection.wire.outbox.end_flush(&mut shard.core.scratch.pool);
    if pending > 0 {
        // The socket has not taken the sealed bytes, so nothing more is sealed.
        if progressed || connection.blocked.is_never() {
            connection.blocked = now;
        }
    } else if drained {
        connection.blocked = Instant::NEVER;
    } else if connection.wire.outbox.writable() == 0 {
        // The rest waits for a commit, not for the socket.
        connection.blocked = Instant::NEVER;
        if shard.core.durability.is_on() && !connection.gated_until_commit {
            connection.gate_until_commit(now);
            shard.core.durability.gate_outbox(id);
        }
    } else if progressed || connection.blocked.is_never() {
        connection.blocked = now;
    }
    let gated_until_commit = connection.gated_until_commit;
    let closing = connection.is_closing();
    let finished = drained && pending == 0;
    let phase = connection.phase();
    if publishes > 0 {
        shard.core.connections.count_sent(id, publishes);
    }
    if has_steps {
        shard.core.recorder().collect_written(now, id);
    }
    if finished && let Phase::Closing { leaves, .. } = phase {
        return Flushed::Finished(leaves);
    }
    if pending == 0
        && let Some(connection) = shard.core.connections.get_mut(id)
        && is_paid(connection, &shard.core.sessions)
    {
        // The client sends nothing more, so it need not be waited for.
        return Flushed::Finished(Leaves::Client);
    }
    if !finished {
        shard.core.connections.register_write_idle(id, &mut shard.core.effects);
    }
    if !closing && taken > 0 {
        outbox_has_room(now, id, shard);
    }
    match (finished, gated_until_commit) {
        (true, _) => Flushed::Drained,
        (_, true) if pending == 0 => Flushed::GatedUntilCommit,
        _ => Flushed::Blocked,
    }
}

/// The state of a connection after a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flushed {
    /// Nothing waits.
    Drained,
    /// The socket takes no more for now.
    Blocked,
    /// The rest may not leave before it is committed.
    GatedUntilCommit,
    /// Nothing waits, and the connection is to be closed.
    Finished(Leaves),
    /// There is no such connection any more.
    Gone,
}

/// Returns true if a client has closed its side, and its socket has taken all that it is owed. Costs
/// one load for every other client.
// 3.1.1 [MQTT-3.2.0-1], [MQTT-3.8.4-1], [MQTT-4.3.2-2], [MQTT-4.3.3-2]; 5.0 [MQTT-3.2.0-1],
// [MQTT-3.8.4-1], [MQTT-4.3.2-4], [MQTT-4.3.3-8]
#[inline]
fn is_paid(connection: &mut Connection, sessions: &Sessions) -> bool {
    let Some(mut half_closed) = connection.half_closed() else { return false };
    if half_closed.owed.is_none() && !is_unanswered(connection, sessions) {
        half_closed.owed = Some(connection.wire.outbox.end_offset());
        connection.rare_mut().half_closed = Some(half_closed);
    }
    half_closed.owed.is_some_and(|owed| connection.wire.outbox.written() >= owed)
}

/// Returns true if a packet of the client has no answer in the outbox yet: a PUBLISH that waits for
/// a commit or for another shard, a SUBSCRIBE or UNSUBSCRIBE that is not in force, or a packet that
/// takes several turns.
fn is_unanswered(connection: &Connection, sessions: &Sessions) -> bool {
    let session = connection.session.and_then(|session| sessions.get(session));
    session.is_some_and(|entry| entry.session.receiver.unanswered() > 0)
        || connection.pauses.has(Pause::PeerBarrier)
        || connection.pauses.has(Pause::Work)
}
