//! From bytes to packets to the session.
//!
//! The connection passes in the bytes from its socket. Whole packets are decoded in place, and each
//! goes to the session; PUBLISH takes a shorter way of its own. The rest of a packet stays in the
//! connection's `Partial`. The loop stops for three reasons: the connection is paused, the turn is
//! over, or much waits to be written. Behind a pause, `read_ahead` handles acknowledgements.

use crate::events::client_events::{DisconnectCause, Occurrence};
use crate::mqtt::codec::{self, DecodeError, Decoded, PacketType};
use crate::mqtt::packet::{Disconnect, Packet, ReasonCode};
use crate::routing::subscription_tree::ShardId;
use crate::session::{Action, Violation, disconnect};
use crate::shard::Shard;
use crate::shard::clients::auth_exchange;
use crate::shard::clients::connect::{ConnectRequest, refuse_undecodable};
use crate::shard::clients::connection::{Leaves, Phase};
use crate::shard::clients::connections::Unhandled;
use crate::shard::clients::follow_up::after_acknowledgement;
use crate::shard::clients::pause::Pause;
use crate::shard::clients::rates;
use crate::shard::clients::read_ahead::{self, read_ahead};
use crate::shard::core::Core;
use crate::shard::delivery::publish::ClientPublish;
use crate::shard::features::hold;
use crate::shard::subscriptions::subscribe::FilterChange;
use crate::shard::turn::flow::Flow;
use crate::shard::turn::io::Io;
use crate::slots::ConnectionId;
use crate::time::Instant;
use zeroize::{Zeroize, Zeroizing};

/// The packet type of PUBLISH.
pub(crate) const PUBLISH: u8 = 3;

/// The state of reading after some bytes were taken in.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadProgress {
    /// All whole packets were handled. The caller reads on.
    All,
    /// Much waits to be written. The caller flushes, then continues with [`Shard::receive`] and no
    /// bytes.
    Flush,
    /// Requests wait until the caller is told to resume.
    /// [`read_size`](crate::shard::clients::connection_view::ConnectionView::read_size) says how
    /// much is read meanwhile.
    Paused,
    /// The session lives in another shard. The caller sends the socket there, with these unread
    /// bytes.
    Home {
        /// The shard in which the session lives.
        shard: ShardId,
        /// The bytes from CONNECT on, which no shard has handled.
        unread: Vec<u8>,
    },
    /// The connection ends, and nothing more is read.
    Closed,
}

/// Bytes of one packet that count for Keep Alive as much as a whole packet.
///
/// On a slow link a long PUBLISH takes longer than its Keep Alive. A client whose library sends no
/// PINGREQ within a packet, which it cannot, would be disconnected at each attempt. A client that
/// sends a byte now and then has to send so many within its Keep Alive.
const STEADY: usize = 1_000;

/// Returns true if a packet that grows from `before` to `after` bytes has completed another
/// [`STEADY`] bytes. Needs no memory of earlier reads.
#[inline]
fn has_grown(before: usize, after: usize) -> bool {
    before / STEADY < after / STEADY
}

impl Shard {
    /// Takes in bytes that a socket had, and flushes whenever much waits to be written. Never
    /// returns [`ReadProgress::Flush`].
    pub fn take_in(
        &mut self,
        now: Instant,
        id: ConnectionId,
        bytes: &[u8],
        io: &mut impl Io,
    ) -> ReadProgress {
        let mut progress = self.receive(now, id, bytes);
        while progress == ReadProgress::Flush {
            self.flush(now, io);
            progress = self.receive(now, id, &[]);
        }
        // Parts of packets alone wake no flusher, whose turn reports them otherwise.
        if self.core.connections.has_large_unreported_partial() {
            self.report_memory();
        }
        progress
    }

    /// Takes in bytes of a socket, after the bytes that are kept from earlier, and handles every
    /// whole packet.
    ///
    /// Bytes that cannot be handled now are kept, unless the socket moves to another shard.
    /// [`Self::take_in`] also flushes where this asks for it.
    pub fn receive(&mut self, now: Instant, id: ConnectionId, input: &[u8]) -> ReadProgress {
        // The driver may read a socket whose connection has just ended.
        let Some(connection) = self.core.connections.get_mut(id) else { return ReadProgress::Closed };
        if connection.is_closing() {
            return ReadProgress::Closed;
        }
        if connection.reads_ahead() {
            self.core.connections.count_received(id, input.len(), 0);
            return read_ahead(now, id, input, self);
        }
        let has_password = matches!(connection.phase(), Phase::AwaitingConnect | Phase::Exchanging);
        let joined = (connection.partial_len() > 0).then(|| {
            let mut joined = self.core.connections.take_partial(id).unwrap_or_default();
            if has_password {
                // A stranger takes no more memory than it has sent. A CONNECT is short, so copies
                // at each of its reads cost little.
                joined.reserve_exact(input.len());
            }
            joined.extend_from_slice(input);
            joined
        });
        let bytes = joined.as_deref().unwrap_or(input);
        let others = self.core.effects.dirty.len();
        let was_dirty = self.core.connections.get(id).is_some_and(|c| c.dirty);
        // Counted by read, because a count in each message costs more.
        let publishes = self.core.counters.publishes_received.total();
        let (progress, taken) = handle_packets(now, id, bytes, self);
        let publishes = self.core.counters.publishes_received.total() - publishes;
        self.core.connections.count_received(id, input.len(), publishes);
        if !was_dirty {
            self.core.effects.flush_last(id, others);
        }
        if taken > 0
            && let Some(connection) = self.core.connections.get_mut(id)
            // The time of CONNECT goes on until CONNACK.
            && connection.phase() != Phase::Exchanging
        {
            connection.keep_alive.heard(now);
        } else if taken == 0 && has_grown(bytes.len() - input.len(), bytes.len()) {
            self.hear_part_of_packet(now, id);
        }
        match joined {
            None if taken == input.len() => progress,
            None => keep(now, id, progress, input[taken..].to_vec(), self),
            // A long packet grows in place, whatever number of reads it takes.
            Some(joined) if taken == 0 && matches!(progress, ReadProgress::All | ReadProgress::Paused) => {
                keep(now, id, progress, joined, self)
            }
            Some(mut joined) if has_password && progress == ReadProgress::Closed => {
                joined.zeroize();
                progress
            }
            Some(mut joined) => {
                let rest = joined.split_off(taken);
                if has_password {
                    joined.zeroize();
                }
                keep(now, id, progress, rest, self)
            }
        }
    }

    /// Records that a packet of a client has come a good part further.
    #[cold]
    fn hear_part_of_packet(&mut self, now: Instant, id: ConnectionId) {
        // The time of CONNECT goes on until CONNACK.
        if let Some(connection) = self.core.connections.get_mut(id).filter(|c| c.is_established()) {
            connection.keep_alive.heard(now);
        }
    }

    /// Adds the bytes that this thread charged and released, and the growth of this shard's partial
    /// packets, to the totals of all shards.
    pub fn report_memory(&mut self) {
        self.core.connections.report_partial(&self.core.shared.partial);
        self.core.shared.budget.report();
    }
}

/// Keeps bytes that were not handled, unless the connection closes or takes them to another
/// shard. If the partial packets of its pot then use up their share of the memory, the
/// connection of this pot and shard with the largest one is disconnected.
fn keep(
    now: Instant,
    id: ConnectionId,
    progress: ReadProgress,
    rest: Vec<u8>,
    shard: &mut Shard,
) -> ReadProgress {
    match progress {
        ReadProgress::Home { shard, .. } => return ReadProgress::Home { shard, unread: rest },
        ReadProgress::Closed => return ReadProgress::Closed,
        _ => {}
    }
    let Core { connections, effects, shared, peers, .. } = &mut shard.core;
    // At the end of the read bytes, the rest is the front of a packet.
    let kind = match progress {
        ReadProgress::All => Unhandled::PartialPacket,
        _ => Unhandled::BehindPause,
    };
    let large = connections.keep_partial(now, id, rest, kind, effects);
    if let Some(pot) = large
        && shared.partial.is_exceeded_by(
            pot,
            connections.partial_bytes(pot),
            connections.unreported_partial(pot),
            peers.shards(),
        )
        && let Some(largest) = connections.largest_partial(pot)
    {
        // The packet cannot be answered, because it cannot be kept.
        let what = "packets that are not whole use up their share of limits.memory";
        let violation = Violation { reason: ReasonCode::QUOTA_EXCEEDED, what };
        shard.fail(now, largest, violation);
    }
    match shard.core.connections.get(id) {
        Some(connection) if connection.is_closing() => ReadProgress::Closed,
        Some(connection) if connection.reads_ahead() => read_ahead(now, id, &[], shard),
        Some(_) => progress,
        None => ReadProgress::Closed,
    }
}

/// Handles whole packets. Returns the progress, and the number of bytes handled. Not inlined: that
/// costs each message of a read 15 instructions.
#[inline(never)]
fn handle_packets(now: Instant, id: ConnectionId, input: &[u8], shard: &mut Shard) -> (ReadProgress, usize) {
    let (mut taken, mut topic) = (0, "");
    while taken < input.len() {
        let Some(connection) = shard.core.connections.get_mut(id) else {
            return (ReadProgress::Closed, taken);
        };
        let (outbox, send) = (connection.wire.outbox.len(), &shard.core.settings.session.send);
        if outbox >= send.outbox && !read_ahead::has_room(input[taken], outbox, send) {
            // The client asks for more than it takes.
            connection.pause(Pause::Outbox, now);
        }
        if connection.pauses.any() {
            return (ReadProgress::Paused, taken);
        }
        if shard.core.turn.is_over() {
            shard.work.read_later(now, id, &mut shard.core.connections);
            return (ReadProgress::Paused, taken);
        }
        if shard.core.effects.is_much_unflushed() {
            return (ReadProgress::Flush, taken);
        }
        let rest = &input[taken..];
        if shard.fans.blocks_publishes() && rest.first().is_some_and(|b| b >> 4 == PUBLISH) {
            shard.fans.pause(now, id, &mut shard.core.connections);
            return (ReadProgress::Paused, taken);
        }
        shard.core.turn.begin_packet();
        let limit = connection.packet_size;
        let version = connection.wire.version;
        if connection.phase() != Phase::Untraced {
            if connection.phase() != Phase::Traced {
                match take_early(now, id, rest, shard) {
                    Ok(length) => taken += length,
                    Err(stop) => return (stop, taken),
                }
                continue;
            }
            trace_next(now, id, rest, &mut shard.core);
        }
        let (flow, length) = match codec::decode_next(rest, version, limit, topic) {
            Ok(Decoded::Packet { packet: Packet::Publish(ref publish), length }) => {
                topic = publish.topic;
                let payload = publish.payload.len();
                shard.core.counters.publishes_received.count(publish.qos, payload);
                shard.core.turn.spend_decoded(length - payload);
                (ClientPublish::handle(now, id, publish, shard), length)
            }
            Ok(Decoded::Packet { packet, length }) => {
                shard.core.turn.spend_decoded(length);
                (dispatch(now, id, packet, shard), length)
            }
            Ok(Decoded::Incomplete { .. }) => return (ReadProgress::All, taken),
            Err(error) => {
                undecodable(now, id, &error, rest, shard);
                return (ReadProgress::Closed, taken);
            }
        };
        if let Some(stop) = flow.stop() {
            return (stop, taken);
        }
        if shard.core.settings.rates.is_some() {
            rates::meter(now, id, rest.get(..length).unwrap_or_default(), &mut shard.core);
        }
        taken += length;
    }
    (ReadProgress::All, taken)
}

/// Adds the packet that comes next to the traces of its client. The packet is decoded here and
/// once more by the caller: a reference to it there would cost every message of every client
/// 50 instructions, because the packet would have to lie in memory.
#[cold]
pub(crate) fn trace_next(now: Instant, id: ConnectionId, rest: &[u8], core: &mut Core) {
    if let Some(connection) = core.connections.get(id)
        && let Ok(Decoded::Packet { packet, .. }) =
            codec::decode(rest, connection.wire.version, connection.packet_size)
    {
        core.recorder().add_packet(now, id, &packet);
    }
}

/// Handles a packet of a connection whose CONNECT is not accepted yet, or which closes. Returns
/// the length of the packet.
///
/// # Errors
/// Returns the reason to stop reading. The packet then counts as not handled.
#[inline(never)]
fn take_early(now: Instant, id: ConnectionId, rest: &[u8], shard: &mut Shard) -> Result<usize, ReadProgress> {
    // The packets before this one may have ended the connection.
    let Some(connection) = shard.core.connections.get(id) else { return Err(ReadProgress::Closed) };
    match connection.phase() {
        Phase::AwaitingConnect => {}
        // The connection is paused while it waits for the authenticator.
        Phase::Authenticating => return Err(ReadProgress::Paused),
        Phase::Exchanging => {
            let result = auth_exchange::continue_exchange(now, id, rest, shard);
            let length = handled_exchange(result)?;
            shard.core.counters.count_received(PacketType::Auth);
            return Ok(length);
        }
        // The caller handles the packets of an established connection.
        Phase::Untraced | Phase::Traced | Phase::Closing { .. } => return Err(ReadProgress::Closed),
    }
    let limit = shard.core.settings.connect_size(&connection.listener);
    let (packet, length) = match codec::decode_connect(rest, limit) {
        Ok(Decoded::Packet { packet, length }) => (packet, length),
        Ok(Decoded::Incomplete { .. }) => return Err(ReadProgress::All),
        Err(error) => {
            undecodable(now, id, &error, rest, shard);
            return Err(ReadProgress::Closed);
        }
    };
    shard.core.turn.spend_decoded(length);
    // `decode_connect` returns no other packet.
    let Packet::Connect(connect) = packet else { return Err(ReadProgress::Closed) };
    let flow = ConnectRequest::handle(now, id, &connect, shard);
    // A CONNECT that comes again, here or in its own shard, is counted then.
    if !matches!(flow, Flow::Wait | Flow::Home(_)) {
        shard.core.counters.count_received(PacketType::Connect);
    }
    let bytes = rest.get(..length).unwrap_or_default();
    if let Flow::Challenged = flow {
        shard.core.connections.keep_connect(id, Zeroizing::new(bytes.to_vec()));
    }
    if let Some(stop) = flow.stop() {
        return Err(stop);
    }
    if shard.core.settings.rates.is_some() {
        rates::meter(now, id, bytes, &mut shard.core);
    }
    Ok(length)
}

/// Handles any packet of a session but PUBLISH.
pub(crate) fn dispatch(now: Instant, id: ConnectionId, packet: Packet<'_>, shard: &mut Shard) -> Flow {
    // The packets before this one may have ended the connection.
    let Some(mut client) = shard.core.client(id) else { return Flow::Closed };
    let session_id = client.session_id;
    let before = client.begin_write();
    let (wire, policy) = (&mut client.connection.wire, &client.settings.session);
    let action = client.entry.session.handle(now, packet, wire, policy, client.counters);
    let written = client.end_write(before);
    let holds = client.entry.holds();
    if written > 0 {
        // A new packet may be due before all others. An acknowledgement without a new packet
        // only ends deadlines, and a deadline that ends needs no registration.
        client.register_retransmit(now);
        shard.core.turn.spend_bytes(written);
        shard.core.spend_senders();
    }
    if shard.core.counters.are_unreported() {
        shard.core.report(now, session_id);
    }
    let change = FilterChange { now, connection: id, session: session_id };
    match action {
        Action::None => {
            if holds {
                hold::admit(now, session_id, shard);
            }
            after_acknowledgement(now, session_id, shard);
            Flow::Continue
        }
        Action::Subscribe(subscribe) => change.subscribe(&subscribe, shard),
        Action::Unsubscribe(unsubscribe) => change.unsubscribe(&unsubscribe, shard),
        Action::Disconnect(disconnect) => {
            client_leaves(now, id, &disconnect, shard);
            Flow::Closed
        }
        Action::Authenticate(auth) => auth_exchange::take_auth(now, id, &auth, shard),
        Action::Fail(violation) => {
            shard.fail(now, id, violation);
            Flow::Closed
        }
        Action::Contradiction { packet_id, violation } => {
            let contradiction = Occurrence::Contradiction { packet_id, what: violation.what };
            shard.core.note_of(session_id, contradiction, None);
            shard.fail(now, id, violation);
            Flow::Closed
        }
    }
}

/// Handles a DISCONNECT, and closes the connection. The reason 0x00 discards the will. With any
/// other reason, the will is published or delayed.
fn client_leaves(now: Instant, id: ConnectionId, disconnect: &Disconnect<'_>, shard: &mut Shard) {
    // The drops of the packets before this one may have ended the connection.
    let Some(client) = shard.core.client(id) else { return };
    let connect = &client.settings.session.connect;
    let ending = client.entry.session.client_disconnects(disconnect, connect);
    shard.core.note_disconnected(now, id, DisconnectCause::Client(disconnect.reason));
    shard.detach_session(now, id, ending);
    shard.core.begin_closing(now, id, Leaves::Client);
}

/// Ends a connection whose bytes are not a packet, or not one that may come now.
fn undecodable(now: Instant, id: ConnectionId, error: &DecodeError, bytes: &[u8], shard: &mut Shard) {
    let awaiting = shard.core.connections.get(id).is_some_and(|c| c.phase() == Phase::AwaitingConnect);
    if awaiting {
        refuse_undecodable(now, id, error, bytes, &mut shard.core);
    } else {
        let reason = disconnect::undecodable(error);
        let why = DisconnectCause::Violation(reason, error.to_string().into());
        shard.disconnect(now, id, Some(reason), why);
    }
}

impl Flow {
    /// Returns the reason to stop reading, if there is one. The packet then counts as not handled.
    #[inline]
    fn stop(self) -> Option<ReadProgress> {
        match self {
            Flow::Continue | Flow::Challenged => None,
            Flow::Wait => Some(ReadProgress::Paused),
            Flow::Closed => Some(ReadProgress::Closed),
            Flow::Home(shard) => Some(ReadProgress::Home { shard, unread: Vec::new() }),
        }
    }
}

/// Returns the length of a packet between a challenge and CONNACK.
///
/// # Errors
/// Returns the reason to stop reading.
fn handled_exchange(result: Option<(Flow, usize)>) -> Result<usize, ReadProgress> {
    match result {
        None => Err(ReadProgress::All),
        Some((Flow::Continue, length)) => Ok(length),
        Some((Flow::Wait, _)) => Err(ReadProgress::Paused),
        Some(_) => Err(ReadProgress::Closed),
    }
}
