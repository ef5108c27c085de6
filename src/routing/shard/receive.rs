//! From bytes to packets to the session.

use super::connection::{Connection, Pause, Phase};
use super::effects::{Event, Why};
use super::{ConnectionId, Shard, TURN};
use crate::mqtt::codec::{self, DecodeError, Decoded};
use crate::mqtt::packet::{Packet, ReasonCode};
use crate::mqtt::session::{Action, Violation};
use crate::routing::subscription_tree::ShardId;
use crate::time::Instant;

/// Bytes of a packet that are kept even when partial packets use up their share of the memory.
const SMALL_PARTIAL: usize = 4096;

/// The packet type of PUBLISH.
const PUBLISH: u8 = 3;

/// Where reading stands after some bytes were taken in.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// All whole packets were handled: read on.
    All,
    /// Much waits to be written: flush, then go on with what is kept here ([`Shard::receive`] with no bytes).
    Flush,
    /// Do not read until told to.
    Paused,
    /// The connection's session lives in another shard: hand it the socket with these unread bytes.
    Home { shard: ShardId, unread: Vec<u8> },
    /// Nothing more is to be read.
    Closed,
}

/// What a packet leads to.
pub(super) enum Flow {
    Continue,
    Closed,
    Home(ShardId),
}

impl Shard {
    /// Takes in what a socket had, after what is kept from earlier; handles every whole packet in it.
    pub fn receive(&mut self, now: Instant, id: ConnectionId, input: &[u8]) -> Progress {
        let Some(connection) = self.connections.get_mut(id) else { return Progress::Closed };
        if connection.is_closing() {
            return Progress::Closed;
        }
        if connection.partial.is_empty() {
            let (progress, taken) = self.packets(now, id, input);
            return self.keep_rest(now, id, progress, &input[taken..]);
        }
        let mut joined = connection.partial.take();
        self.partial_bytes -= joined.len();
        joined.extend_from_slice(input);
        let (progress, taken) = self.packets(now, id, &joined);
        if taken == 0 && matches!(progress, Progress::All | Progress::Paused) {
            // A long packet grows in place, whatever number of reads it takes.
            return self.keep(now, id, progress, joined);
        }
        let rest = joined.split_off(taken);
        self.keep(now, id, progress, rest)
    }

    /// Whether packets wait here that were read already.
    pub fn has_unread(&self, id: ConnectionId) -> bool {
        self.connections.get(id).is_some_and(|c| !c.partial.is_empty())
    }

    /// Bytes that came with a connection from another shard: handled with the next [`Self::receive`].
    pub fn keep_unread(&mut self, id: ConnectionId, unread: Vec<u8>) {
        if let Some(connection) = self.connections.get_mut(id) {
            self.partial_bytes += unread.len();
            connection.partial.keep(unread);
        }
    }

    /// Whether its socket is to be read.
    pub fn reads(&self, id: ConnectionId) -> bool {
        self.connections.get(id).is_some_and(|c| !c.pauses.any())
    }

    fn keep_rest(&mut self, now: Instant, id: ConnectionId, progress: Progress, rest: &[u8]) -> Progress {
        if rest.is_empty() { progress } else { self.keep(now, id, progress, rest.to_vec()) }
    }

    /// Keeps what was not handled, unless the connection goes elsewhere with it.
    fn keep(&mut self, now: Instant, id: ConnectionId, progress: Progress, rest: Vec<u8>) -> Progress {
        match progress {
            Progress::Home { shard, .. } => return Progress::Home { shard, unread: rest },
            Progress::Closed => return Progress::Closed,
            _ => {}
        }
        let Some(connection) = self.connections.get_mut(id) else { return Progress::Closed };
        let is_large = rest.len() > SMALL_PARTIAL;
        let has_begun = progress == Progress::All && !rest.is_empty();
        self.partial_bytes += rest.len();
        connection.partial.keep(rest);
        if is_large && !connection.partial.listed {
            connection.partial.listed = true;
            self.large_partials.push(id);
        }
        if has_begun {
            // A packet has begun, and more of it is waited for. Keep Alive counts whole packets, and may be off.
            connection.partial.wait(now, self.settings.write_timeout);
            self.register_read_idle(id);
        }
        if is_large && self.common.partial.is_exceeded(self.untold_partial()) {
            self.cut_largest_partial(now);
        }
        if self.connections.get(id).is_none_or(Connection::is_closing) { Progress::Closed } else { progress }
    }

    /// Packets that are not whole hold more than their share: the connection of this shard that holds the most of them is
    /// disconnected. Costs a look at each that has more than a little.
    fn cut_largest_partial(&mut self, now: Instant) {
        let mut largest = (0, None);
        let connections = &mut self.connections;
        self.large_partials.retain(|id| {
            let Some(connection) = connections.get_mut(*id) else { return false };
            let len = connection.partial.len();
            connection.partial.listed = len > SMALL_PARTIAL && !connection.is_closing();
            if connection.partial.listed && len > largest.0 {
                largest = (len, Some(*id));
            }
            connection.partial.listed
        });
        if let Some(id) = largest.1 {
            // A packet that cannot be kept cannot be answered either.
            let why = Violation {
                reason: ReasonCode::QUOTA_EXCEEDED,
                what: "packets that are not whole use up their share of limits.memory",
            };
            self.fail(now, id, why);
        }
    }

    /// By how much the bytes of packets that are not whole have grown since the total was told.
    pub fn untold_partial(&self) -> i64 {
        self.partial_bytes as i64 - self.told_partial
    }

    /// Adds that to the total.
    pub fn tell_partial(&mut self) {
        let grown = self.untold_partial();
        if grown != 0 {
            self.told_partial += grown;
            self.common.partial.tell(grown);
        }
    }

    /// Handles whole packets; how many bytes they were.
    fn packets(&mut self, now: Instant, id: ConnectionId, input: &[u8]) -> (Progress, usize) {
        let others = self.effects.dirty.len();
        let was_dirty = self.connections.get(id).is_some_and(|c| c.dirty);
        let (progress, taken) = self.handle_packets(now, id, input);
        if !was_dirty {
            self.flush_last(id, others);
        }
        // 3.1.1 [MQTT-3.1.2-24], 5.0 [MQTT-3.1.2-22]: whole packets count, not bytes.
        if taken > 0
            && let Some(connection) = self.connections.get_mut(id)
        {
            connection.keep_alive.heard(now);
        }
        (progress, taken)
    }

    /// What a client's packets put into the outboxes of others is written before the answers to the client: no publisher
    /// hears of a PUBLISH that the kernel does not have for every receiver here that takes it at once. `from`: the length of
    /// the dirty list before those packets. Costs a comparison where the client is the last one already, else a look at those
    /// that its packets made dirty.
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

    fn handle_packets(&mut self, now: Instant, id: ConnectionId, input: &[u8]) -> (Progress, usize) {
        let (mut taken, mut topic) = (0, "");
        while taken < input.len() {
            let Some(connection) = self.connections.get_mut(id) else { return (Progress::Closed, taken) };
            if connection.wire.outbox.len() >= self.settings.session.send.outbox {
                // It asks for more than it takes.
                connection.pause(Pause::Outbox, now);
            }
            if connection.pauses.any() {
                return (Progress::Paused, taken);
            }
            if self.turn.is_over() {
                self.read_later(now, id);
                return (Progress::Paused, taken);
            }
            if self.unflushed >= TURN {
                return (Progress::Flush, taken);
            }
            let rest = &input[taken..];
            if self.fans.present.is_some() && rest.first().is_some_and(|b| b >> 4 == PUBLISH) {
                self.read_behind_fan(now, id);
                return (Progress::Paused, taken);
            }
            self.turn.begin_packet();
            let limit = self.settings.packet_size;
            let decoded = match connection.phase {
                Phase::AwaitingConnect => codec::decode_connect(rest, limit),
                Phase::Established => codec::decode_next(rest, connection.wire.version, limit, topic),
                Phase::Closing { .. } => return (Progress::Closed, taken),
            };
            let (packet, length) = match decoded {
                Ok(Decoded::Packet { packet, length }) => (packet, length),
                Ok(Decoded::Incomplete { .. }) => return (Progress::All, taken),
                Err(error) => {
                    self.undecodable(now, id, &error);
                    return (Progress::Closed, taken);
                }
            };
            if let Packet::Publish(publish) = &packet {
                topic = publish.topic;
            }
            match self.dispatch(now, id, packet) {
                Flow::Continue => taken += length,
                Flow::Closed => return (Progress::Closed, taken),
                Flow::Home(shard) => return (Progress::Home { shard, unread: Vec::new() }, taken),
            }
        }
        (Progress::All, taken)
    }

    fn dispatch(&mut self, now: Instant, id: ConnectionId, packet: Packet<'_>) -> Flow {
        if let Packet::Publish(publish) = &packet
            && let Err(violation) = self.name(id, publish)
        {
            self.fail(now, id, violation);
            return Flow::Closed;
        }
        let Shard { connections, sessions, settings, tally, pool, .. } = self;
        let Some(connection) = connections.get_mut(id) else { return Flow::Closed };
        let Some(session_id) = connection.session else {
            return match packet {
                Packet::Connect(connect) => self.connect(now, id, &connect),
                // `decode_connect` gives nothing else.
                _ => Flow::Closed,
            };
        };
        let Some(resident) = sessions.get_mut(session_id) else { return Flow::Closed };
        connection.wire.outbox.lend(pool);
        let before = connection.wire.outbox.len();
        let action = resident.session.handle(now, packet, &mut connection.wire, &settings.session, tally);
        let appended = connection.wire.outbox.len().saturating_sub(before);
        if appended > 0 {
            self.unflushed += appended;
            self.turn.charge_bytes(appended);
            connection.mark_dirty(id, &mut self.effects.dirty);
        }
        let holds = resident.holds();
        if tally.losses.are_untold() {
            self.settle_losses(session_id);
        }
        match action {
            Action::None => {
                if holds {
                    self.admit_held(now, session_id);
                }
                // What was sent may be due before all else; what was acknowledged only ends deadlines.
                if holds || appended > 0 {
                    self.register_retransmit(now, id);
                }
                self.fetch(session_id);
                if !self.estates.is_empty() {
                    self.has_room_for_estates(now, session_id);
                }
                Flow::Continue
            }
            Action::Publish(publish) => self.publish(now, id, session_id, publish),
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
                let Some(resident) = self.sessions.get(session_id) else { return Flow::Closed };
                let client_id = resident.session.client_id.clone();
                self.note(Event::Contradiction { client_id, packet_id, what: violation.what });
                self.fail(now, id, violation);
                Flow::Closed
            }
        }
    }

    /// The bytes are no packet that may stand there.
    fn undecodable(&mut self, now: Instant, id: ConnectionId, error: &DecodeError) {
        let awaiting = self.connections.get(id).is_some_and(|c| c.phase == Phase::AwaitingConnect);
        if awaiting {
            self.refuse_undecodable(now, id, error);
        } else {
            // A second CONNECT, whatever it names: 5.0 [MQTT-3.1.0-2]; the reason is none of DISCONNECT's, [MQTT-3.14.2-1].
            let reason = match error.reason_code() {
                ReasonCode::UNSUPPORTED_PROTOCOL_VERSION => ReasonCode::PROTOCOL_ERROR,
                reason => reason,
            };
            let why = Why::Violation(reason, error.to_string().into());
            self.cut(now, id, Some(reason), why);
        }
    }

    /// The client broke a rule: it is told where 5.0 has a way, and the connection ends.
    // 5.0 [MQTT-4.13.1-1], 3.1.1 [MQTT-4.8.0-1]
    pub(super) fn fail(&mut self, now: Instant, id: ConnectionId, violation: Violation) {
        let why = Why::Violation(violation.reason, violation.what.into());
        self.cut(now, id, Some(violation.reason), why);
    }
}
