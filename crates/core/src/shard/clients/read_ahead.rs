//! Acknowledgements behind a pause.
//!
//! A pause stops the packets that need room: PUBLISH, SUBSCRIBE, UNSUBSCRIBE and AUTH.
//! Acknowledgements and PINGREQ need none, or little ([`has_room`]). If they were not read, the broker would send messages
//! again, or disconnect a client that acknowledges in time. So a paused connection is still read,
//! until [`MOST_WAITING`] bytes wait. Its acknowledgements are handled at once, in their order, and
//! the other packets wait in theirs.
//!
//! An acknowledgement may so pass a packet that the client sent before it. The standard orders
//! acknowledgements among themselves and PUBLISH packets among themselves, but not the one against
//! the other (3.1.1 and 5.0, section 4.6). Two packets do not pass:
//!
//! - PUBREL does not pass a PUBLISH at QoS 2. PUBREL frees a Packet Identifier, and a repetition of
//!   its PUBLISH may wait.
//! - DISCONNECT passes nothing, because it ends the connection.
//!
//! Beyond the bound nothing is read. The bytes then stay in the kernel, whose number the driver
//! passes in with each decision about a missing acknowledgement
//! ([`crate::shard::clients::deadlines`]).

use crate::mqtt::codec::{self, Decoded, PacketType};
use crate::session::policy::SendPolicy;
use crate::shard::Shard;
use crate::shard::clients::connection::FIRST_READ_SIZE;
use crate::shard::clients::pause::Pause;
use crate::shard::clients::rates;
use crate::shard::clients::receive::{self, ReadProgress};
use crate::shard::turn::flow::Flow;
use crate::slots::ConnectionId;
use crate::time::Instant;

/// Bytes of a client that wait behind a pause, from which on its socket is not read.
const MOST_WAITING: usize = 16 * 1024;

/// The search for acknowledgements in the bytes that wait behind a pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Search {
    /// Bytes at the front that were searched: whole packets that wait.
    searched: usize,
    /// True if one of them is a PUBLISH at QoS 2.
    has_exactly_once: bool,
    /// True if the search stopped before the end, so that acknowledgements may be behind it.
    pub is_unfinished: bool,
}

/// Returns the bytes that may be read if `waiting` bytes wait. `is_short` returns true if memory is
/// short.
pub(crate) fn room(waiting: usize, is_short: impl FnOnce() -> bool) -> usize {
    if waiting >= FIRST_READ_SIZE && is_short() {
        return 0;
    }
    MOST_WAITING.saturating_sub(waiting)
}

/// Returns true if a packet with this first byte may be handled while `outbox` bytes wait for the
/// client's socket. Requests are answered, and so are some acknowledgements.
pub(crate) fn has_room(first: u8, outbox: usize, policy: &SendPolicy) -> bool {
    match PacketType::from_first_byte(first) {
        Some(PacketType::Puback | PacketType::Pubcomp | PacketType::Disconnect) => true,
        Some(PacketType::Pubrec | PacketType::Pubrel | PacketType::Pingreq) => outbox < policy.answer_room(),
        _ => outbox < policy.request_room(),
    }
}

/// The decision about a whole packet behind a pause.
enum Decision {
    /// The packet is handled now.
    Pass,
    /// The packet waits for the end of the pause.
    Wait,
    /// The search stops before the packet, and continues when the cause of this is over.
    Stop(ReadProgress),
}

impl Search {
    /// Returns true if a packet of this type may pass the packets that wait before it.
    fn may_pass(&self, packet_type: PacketType) -> bool {
        match packet_type {
            PacketType::Puback | PacketType::Pubrec | PacketType::Pubcomp | PacketType::Pingreq => true,
            PacketType::Pubrel => !self.has_exactly_once,
            PacketType::Disconnect => self.searched == 0,
            _ => false,
        }
    }

    /// Notes that a packet with this first byte and length waits.
    fn wait(&mut self, first: u8, len: usize) {
        self.searched += len;
        let is_publish = PacketType::from_first_byte(first) == Some(PacketType::Publish);
        self.has_exactly_once |= is_publish && first & 0x04 != 0;
    }
}

/// Takes in bytes of a paused connection, after those that wait. Handles the acknowledgements
/// among them, and keeps the rest.
#[cold]
pub(crate) fn read_ahead(now: Instant, id: ConnectionId, input: &[u8], shard: &mut Shard) -> ReadProgress {
    let Some((mut waiting, mut search)) = shard.core.connections.take_waiting(id) else {
        return ReadProgress::Closed;
    };
    waiting.extend_from_slice(input);
    let progress = pass_acknowledgements(now, id, &mut waiting, &mut search, shard);
    if progress != ReadProgress::Closed {
        let core = &mut shard.core;
        core.connections.keep_waiting(now, id, waiting, search, &mut core.effects);
    }
    progress
}

/// Handles and removes the acknowledgements in the bytes that were not searched. Each byte is
/// moved at most once.
fn pass_acknowledgements(
    now: Instant,
    id: ConnectionId,
    waiting: &mut Vec<u8>,
    search: &mut Search,
    shard: &mut Shard,
) -> ReadProgress {
    search.is_unfinished = false;
    let begin = search.searched;
    let mut at = begin;
    let progress = loop {
        let rest = waiting.get(at..).unwrap_or_default();
        let Some(connection) = shard.core.connections.get(id).filter(|c| !c.is_closing()) else {
            return ReadProgress::Closed;
        };
        let (version, limit) = (connection.wire.version, connection.packet_size);
        let front = codec::front(rest, version, limit).filter(|(_, len)| *len <= rest.len());
        let (Some((packet_type, len)), Some(&first)) = (front, rest.first()) else {
            // An error is found when all before it is handled.
            break ReadProgress::Paused;
        };
        match decide_ahead(now, id, (packet_type, len), search, shard) {
            Decision::Stop(progress) => {
                search.is_unfinished = true;
                break progress;
            }
            Decision::Wait => {
                waiting.copy_within(at..at + len, search.searched);
                search.wait(first, len);
            }
            Decision::Pass => match handle_ahead(now, id, rest, shard) {
                Some(Flow::Continue) => {}
                Some(_) => return ReadProgress::Closed,
                None => break ReadProgress::Paused,
            },
        }
        at += len;
    };
    if at > begin
        && let Some(connection) = shard.core.connections.get_mut(id)
    {
        connection.keep_alive.heard(now);
    }
    waiting.drain(search.searched..at);
    progress
}

/// Decides about a whole packet behind a pause.
fn decide_ahead(
    now: Instant,
    id: ConnectionId,
    (packet_type, len): (PacketType, usize),
    search: &Search,
    shard: &mut Shard,
) -> Decision {
    if shard.core.turn.is_over() {
        shard.work.read_later(now, id, &mut shard.core.connections);
        return Decision::Stop(ReadProgress::Paused);
    }
    let core = &mut shard.core;
    if core.effects.is_much_unflushed() {
        return Decision::Stop(ReadProgress::Flush);
    }
    core.turn.begin_packet();
    if !search.may_pass(packet_type) {
        return Decision::Wait;
    }
    // The packets before this one may have ended the connection.
    let Some(connection) = core.connections.get_mut(id) else { return Decision::Wait };
    let outbox = connection.wire.outbox.len();
    if !has_room(packet_type.first_byte(), outbox, &core.settings.session.send) {
        connection.pause(Pause::Outbox, now);
        return Decision::Stop(ReadProgress::Paused);
    }
    if core.settings.rates.is_some() && !rates::meter_ahead(now, id, len, core) {
        return Decision::Stop(ReadProgress::Paused);
    }
    Decision::Pass
}

/// Handles the acknowledgement at the front of `rest`. Returns `None` if it breaks a rule of
/// its packet, which is reported when all before it is handled.
fn handle_ahead(now: Instant, id: ConnectionId, rest: &[u8], shard: &mut Shard) -> Option<Flow> {
    let connection = shard.core.connections.get(id)?;
    let (version, limit) = (connection.wire.version, connection.packet_size);
    if connection.wire.is_traced() {
        receive::trace_next(now, id, rest, &mut shard.core);
    }
    match codec::decode(rest, version, limit) {
        Ok(Decoded::Packet { packet, length }) => {
            shard.core.turn.spend_decoded(length);
            Some(receive::dispatch(now, id, packet, shard))
        }
        _ => None,
    }
}
