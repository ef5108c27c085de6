//! From bytes to packets to the session.
//!
//! The connection passes in the bytes that it read. Whole packets are decoded where they stand, and
//! each goes to the session; PUBLISH takes a shorter way of its own. The rest of a packet stays in
//! the connection's `Partial`. Reading stops for three reasons: the connection is paused, the turn
//! is over, or much waits to be written.

use crate::mqtt::codec::{self, DecodeError, Decoded};
use crate::mqtt::packet::{Packet, ReasonCode};
use crate::routing::subscription_tree::ShardId;
use crate::session::{Action, Violation, disconnect};
use crate::shard::connection::{Connection, Pause, Phase};
use crate::shard::observe::client_events::{DisconnectCause, Occurrence};
use crate::shard::slots::ConnectionId;
use crate::shard::{Shard, TURN};
use crate::time::Instant;

/// Bytes of a partial packet that a connection may hold even when partial packets use up their
/// share of the memory.
const SMALL_PARTIAL: usize = 4096;

/// The packet type of PUBLISH.
const PUBLISH: u8 = 3;

/// The state of reading after some bytes were taken in.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadProgress {
    /// All whole packets were handled. The caller reads on.
    All,
    /// Much waits to be written. The caller flushes, then continues with [`Shard::receive`] and no
    /// bytes.
    Flush,
    /// The caller does not read until it is told to resume.
    Paused,
    /// The session lives in another shard. The caller sends the socket there, with these unread
    /// bytes.
    Home { shard: ShardId, unread: Vec<u8> },
    /// The connection ends, and nothing more is read.
    Closed,
}

/// The result of one packet.
pub(super) enum Flow {
    Continue,
    Closed,
    Home(ShardId),
    /// The packet is not handled yet, and comes again in a later turn.
    Wait,
}

impl Shard {
    /// Takes in bytes of a socket, after the bytes that are kept from earlier, and handles every
    /// whole packet.
    ///
    /// Bytes that cannot be handled now are kept, unless the socket moves to another shard.
    /// [`Self::take_in`] also flushes where this asks for it.
    pub fn receive(&mut self, now: Instant, id: ConnectionId, input: &[u8]) -> ReadProgress {
        let Some(connection) = self.connections.get_mut(id) else { return ReadProgress::Closed };
        if connection.is_closing() {
            return ReadProgress::Closed;
        }
        if connection.partial_len() == 0 {
            let (progress, taken) = self.packets(now, id, input);
            return self.keep_rest(now, id, progress, &input[taken..]);
        }
        let mut joined = connection.rare_mut().partial.take();
        self.partial_bytes -= joined.len();
        joined.extend_from_slice(input);
        let (progress, taken) = self.packets(now, id, &joined);
        if taken == 0 && matches!(progress, ReadProgress::All | ReadProgress::Paused) {
            // A long packet grows in place, whatever number of reads it takes.
            return self.keep(now, id, progress, joined);
        }
        let rest = joined.split_off(taken);
        self.keep(now, id, progress, rest)
    }

    /// Returns true if bytes are kept that were read and not handled.
    pub fn has_unread(&self, id: ConnectionId) -> bool {
        self.connections.get(id).is_some_and(|c| c.partial_len() > 0)
    }

    /// Keeps bytes that came with a connection from another shard. The next [`Self::receive`]
    /// handles them.
    pub fn keep_unread(&mut self, id: ConnectionId, unread: Vec<u8>) {
        if let Some(connection) = self.connections.get_mut(id) {
            self.partial_bytes += unread.len();
            connection.rare_mut().partial.keep(unread);
        }
    }

    /// Returns true if the connection exists and is not paused, so that its socket is read.
    pub fn reads(&self, id: ConnectionId) -> bool {
        self.connections.get(id).is_some_and(|c| !c.pauses.any())
    }

    fn keep_rest(
        &mut self,
        now: Instant,
        id: ConnectionId,
        progress: ReadProgress,
        rest: &[u8],
    ) -> ReadProgress {
        if rest.is_empty() { progress } else { self.keep(now, id, progress, rest.to_vec()) }
    }

    /// Keeps bytes that were not handled, unless the connection closes or takes them to another
    /// shard.
    fn keep(
        &mut self,
        now: Instant,
        id: ConnectionId,
        progress: ReadProgress,
        rest: Vec<u8>,
    ) -> ReadProgress {
        match progress {
            ReadProgress::Home { shard, .. } => return ReadProgress::Home { shard, unread: rest },
            ReadProgress::Closed => return ReadProgress::Closed,
            _ => {}
        }
        let Some(connection) = self.connections.get_mut(id) else { return ReadProgress::Closed };
        let is_large = rest.len() > SMALL_PARTIAL;
        let has_begun = progress == ReadProgress::All && !rest.is_empty();
        self.partial_bytes += rest.len();
        if !rest.is_empty() {
            let partial = &mut connection.rare_mut().partial;
            partial.keep(rest);
            if has_begun {
                // A packet has begun. Keep Alive counts whole packets and may be off, so the rest has
                // a deadline of its own.
                partial.wait(now, self.settings.write_timeout);
            }
        }
        if is_large && !std::mem::replace(&mut connection.rare_mut().partial.listed, true) {
            self.large_partials.push(id);
        }
        if has_begun {
            self.register_read_idle(id);
        }
        if is_large && self.shared.partial.is_exceeded(self.unreported_partial()) {
            self.disconnect_largest_partial(now);
        }
        if self.connections.get(id).is_none_or(Connection::is_closing) {
            ReadProgress::Closed
        } else {
            progress
        }
    }

    /// Disconnects the connection of this shard that holds the largest partial packet, because
    /// partial packets hold more than their share of the memory. Costs a look at each connection
    /// with more than `SMALL_PARTIAL` bytes.
    fn disconnect_largest_partial(&mut self, now: Instant) {
        let mut largest = (0, None);
        let connections = &mut self.connections;
        self.large_partials.retain(|id| {
            let Some(connection) = connections.get_mut(*id).filter(|c| !c.is_closing()) else { return false };
            let len = connection.partial_len();
            let listed = len > SMALL_PARTIAL;
            connection.rare_mut().partial.listed = listed;
            if listed && len > largest.0 {
                largest = (len, Some(*id));
            }
            listed
        });
        if let Some(id) = largest.1 {
            // The packet cannot be answered, because it cannot be kept.
            let why = Violation {
                reason: ReasonCode::QUOTA_EXCEEDED,
                what: "packets that are not whole use up their share of limits.memory",
            };
            self.fail(now, id, why);
        }
    }

    /// Returns the growth of this shard's partial packets, in bytes, since [`Self::report_partial`].
    /// May be negative.
    pub fn unreported_partial(&self) -> i64 {
        self.partial_bytes as i64 - self.reported_partial
    }

    /// Adds the growth of this shard's partial packets to the total of all shards.
    pub fn report_partial(&mut self) {
        let grown = self.unreported_partial();
        if grown != 0 {
            self.reported_partial += grown;
            self.shared.partial.report(grown);
        }
    }

    /// Handles whole packets. Returns how far it came, and the number of bytes that it handled.
    fn packets(&mut self, now: Instant, id: ConnectionId, input: &[u8]) -> (ReadProgress, usize) {
        let others = self.effects.dirty.len();
        let was_dirty = self.connections.get(id).is_some_and(|c| c.dirty);
        let (progress, taken) = self.handle_packets(now, id, input);
        if !was_dirty {
            self.flush_last(id, others);
        }
        // Whole packets count, not bytes.
        if taken > 0
            && let Some(connection) = self.connections.get_mut(id)
        {
            connection.keep_alive.heard(now);
        }
        (progress, taken)
    }

    /// Moves a client behind the receivers of its packets in the dirty list. So a publisher gets no
    /// acknowledgement before the kernel has the message for every receiver of this shard that
    /// takes it at once.
    ///
    /// `from` is the length of the dirty list before the packets. Costs one comparison if the
    /// client is already the last one, else a look at each connection that its packets made dirty.
    fn flush_last(&mut self, id: ConnectionId, from: usize) {
        let dirty = &mut self.effects.dirty;
        if dirty.last() == Some(&id) {
            return;
        }
        if let Some(at) = dirty.iter().skip(from).position(|d| *d == id) {
            dirty.swap_remove(from + at);
            dirty.push(id);
        }
    }

    fn handle_packets(&mut self, now: Instant, id: ConnectionId, input: &[u8]) -> (ReadProgress, usize) {
        let (mut taken, mut topic) = (0, "");
        while taken < input.len() {
            let Some(connection) = self.connections.get_mut(id) else { return (ReadProgress::Closed, taken) };
            if connection.wire.outbox.len() >= self.settings.session.send.outbox {
                // The client asks for more than it takes.
                connection.pause(Pause::Outbox, now);
            }
            if connection.pauses.any() {
                return (ReadProgress::Paused, taken);
            }
            if self.turn.is_over() {
                self.read_later(now, id);
                return (ReadProgress::Paused, taken);
            }
            if self.unflushed >= TURN {
                return (ReadProgress::Flush, taken);
            }
            let rest = &input[taken..];
            if self.fans.holds_publishes() && rest.first().is_some_and(|b| b >> 4 == PUBLISH) {
                self.read_behind_fan(now, id);
                return (ReadProgress::Paused, taken);
            }
            self.turn.begin_packet();
            let limit = self.settings.session.connect.packet_size;
            let decoded = match connection.phase {
                Phase::AwaitingConnect => codec::decode_connect(rest, limit),
                Phase::Established => codec::decode_next(rest, connection.wire.version, limit, topic),
                Phase::Closing { .. } => return (ReadProgress::Closed, taken),
            };
            let (flow, length) = match decoded {
                Ok(Decoded::Packet { packet: Packet::Publish(ref publish), length }) => {
                    topic = publish.topic;
                    (self.take_publish(now, id, publish), length)
                }
                Ok(Decoded::Packet { packet, length }) => (self.dispatch(now, id, packet), length),
                Ok(Decoded::Incomplete { .. }) => return (ReadProgress::All, taken),
                Err(error) => {
                    self.undecodable(now, id, &error);
                    return (ReadProgress::Closed, taken);
                }
            };
            match flow {
                Flow::Continue => taken += length,
                Flow::Wait => return (ReadProgress::Paused, taken),
                Flow::Closed => return (ReadProgress::Closed, taken),
                Flow::Home(shard) => return (ReadProgress::Home { shard, unread: Vec::new() }, taken),
            }
        }
        (ReadProgress::All, taken)
    }

    /// Handles any packet but PUBLISH.
    fn dispatch(&mut self, now: Instant, id: ConnectionId, packet: Packet<'_>) -> Flow {
        let Shard { connections, sessions, settings, counters, scratch, .. } = self;
        let Some(connection) = connections.get_mut(id) else { return Flow::Closed };
        let Some(session_id) = connection.session else {
            return match packet {
                Packet::Connect(connect) => self.connect(now, id, &connect),
                // `decode_connect` returns no other packet.
                _ => Flow::Closed,
            };
        };
        let Some(session_entry) = sessions.get_mut(session_id) else { return Flow::Closed };
        connection.wire.outbox.lend(&mut scratch.pool);
        let before = connection.wire.outbox.len();
        let action =
            session_entry.session.handle(now, packet, &mut connection.wire, &settings.session, counters);
        let appended = connection.wire.outbox.len().saturating_sub(before);
        if appended > 0 {
            self.unflushed += appended;
            self.turn.charge_bytes(appended);
            connection.mark_dirty(id, &mut self.effects.dirty);
        }
        let holds = session_entry.holds();
        if counters.drops.are_unreported() {
            self.report_drops(session_id);
        }
        match action {
            Action::None => {
                self.after_acknowledgement(now, id, session_id, appended, holds);
                Flow::Continue
            }
            Action::Subscribe(subscribe) => self.subscribe(now, id, session_id, &subscribe),
            Action::Unsubscribe(unsubscribe) => self.unsubscribe(now, id, session_id, &unsubscribe),
            Action::Disconnect(disconnect) => {
                self.client_leaves(now, id, session_id, &disconnect);
                Flow::Closed
            }
            Action::Fail(violation) => {
                self.fail(now, id, violation);
                Flow::Closed
            }
            Action::Contradiction { packet_id, violation } => {
                let contradiction = Occurrence::Contradiction { packet_id, what: violation.what };
                self.note_of(session_id, contradiction, None);
                self.fail(now, id, violation);
                Flow::Closed
            }
        }
    }

    /// Ends a connection whose bytes are not a packet, or not one that may come now.
    fn undecodable(&mut self, now: Instant, id: ConnectionId, error: &DecodeError) {
        let awaiting = self.connections.get(id).is_some_and(|c| c.phase == Phase::AwaitingConnect);
        if awaiting {
            self.refuse_undecodable(now, id, error);
        } else {
            let reason = disconnect::undecodable(error);
            let why = DisconnectCause::Violation(reason, error.to_string().into());
            self.cut(now, id, Some(reason), why);
        }
    }

    /// Ends the connection of a client that broke a rule. A 5.0 client gets a DISCONNECT with the
    /// reason.
    pub(super) fn fail(&mut self, now: Instant, id: ConnectionId, violation: Violation) {
        let why = DisconnectCause::Violation(violation.reason, violation.what.into());
        self.cut(now, id, Some(violation.reason), why);
    }
}
