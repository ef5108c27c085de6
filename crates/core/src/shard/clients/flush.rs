//! The flush of one connection: its outbox goes to its socket, as far as the socket and the commits
//! let it.

use crate::session::outbox::Outbox;
use crate::shard::Shard;
use crate::shard::clients::connection::{Leaves, Phase};
use crate::shard::clients::follow_up::outbox_has_room;
use crate::shard::turn::io::{Io, Written};
use crate::slots::ConnectionId;
use crate::time::Instant;

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
