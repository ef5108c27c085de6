//! The connections of one shard: slots, deadlines, pauses and partial packets.
//!
//! `Connections` has no sessions, only their identifiers. Requests to the driver go into the
//! [`Effects`] that the caller passes in.

use crate::expiry::deadline::DeadlineKind;
use crate::login::arrival::Arrival;
use crate::login::authentication::AuthDecision;
use crate::login::pending_exchange::PendingExchange;
use crate::mqtt::packet::ReasonCode;
use crate::persistence::records::Lsn;
use crate::session::outbox::Pool;
use crate::shard::clients::connection::{Connection, Leaves};
use crate::shard::clients::pause::Pause;
use crate::shard::clients::read_ahead::Search;
use crate::shard::settings::ShardSettings;
use crate::shard::turn::effects::Effects;
use crate::shared::{PartialShare, Pot};
use crate::slots::{ConnectionId, OfConnection, SessionId, Slots};
use crate::time::Instant;
use std::collections::BTreeSet;
use std::time::Duration;
use zeroize::Zeroizing;

/// Bytes of a partial packet that a connection may always hold, even if the partial packets of all
/// connections exceed their share of the memory.
const SMALL_PARTIAL: usize = 4096;

/// Bytes by which the partial packets of a pot may grow before the total of all shards has them.
const PARTIAL_GROWTH: i64 = 1024 * 1024;

/// Time for the client to read the reason and to close its side. If the broker closed a socket with
/// unread input, the kernel would drop bytes that the client has not read yet.
const LINGER: Duration = Duration::from_secs(2);

/// The connections of one shard.
#[derive(Debug)]
pub(crate) struct Connections {
    slots: Slots<Connection, OfConnection>,
    /// The traffic of the client in each slot. A [`Connection`] fills its class of the allocator.
    traffic: Vec<Traffic>,
    /// Connections that have a session.
    established: usize,
    /// The partial packets by [`Pot`].
    partials: [Partials; Pot::ALL.len()],
    /// The number of times that users were revoked.
    revocations: u32,
    /// The time at which the machine woke from its last suspend. Clients could send nothing during
    /// the suspend, so deadlines count from here.
    awake_since: Instant,
    connect_timeout: Duration,
    write_timeout: Duration,
    expiry_interval: Duration,
}

/// The traffic of a client on one connection. PUBLISH packets are counted with repetitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes of MQTT that were read.
    pub received_bytes: u64,
    /// PUBLISH packets that came.
    pub received_publishes: u64,
    /// PUBLISH packets that were written, as of the last flush.
    pub sent_publishes: u64,
}

/// The kind of bytes that were read from a connection and not handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unhandled {
    /// The front of a packet whose rest has not come yet.
    PartialPacket,
    /// Packets behind a pause.
    BehindPause,
}

/// The partial packets of the connections of one pot.
#[derive(Debug, Default)]
struct Partials {
    bytes: usize,
    /// The bytes that were last added to the total of all shards.
    reported: i64,
    /// Connections with more than [`SMALL_PARTIAL`] bytes, by their bytes, slot and generation. So
    /// the largest is found at once, whatever number of connections there is.
    large: BTreeSet<(usize, u32, u32)>,
}

impl Partials {
    fn unreported(&self) -> i64 {
        self.bytes as i64 - self.reported
    }

    /// Counts the bytes of a connection anew: they were `before`, and are `after`. Costs the
    /// logarithm of the number of large partial packets, and nothing but a sum for small ones.
    fn change(&mut self, id: ConnectionId, before: usize, after: usize) {
        self.bytes = self.bytes + after - before;
        if before > SMALL_PARTIAL {
            self.large.remove(&(before, id.slot, id.generation));
        }
        if after > SMALL_PARTIAL {
            self.large.insert((after, id.slot, id.generation));
        }
    }
}

impl Connections {
    /// Returns an empty set of connections.
    pub(crate) fn new(settings: &ShardSettings) -> Connections {
        Connections {
            slots: Slots::default(),
            traffic: Vec::new(),
            established: 0,
            partials: Default::default(),
            revocations: 0,
            awake_since: Instant::ZERO,
            connect_timeout: settings.connect_timeout,
            write_timeout: settings.write_timeout,
            expiry_interval: settings.expiry_interval,
        }
    }

    /// Replaces `network.connect_timeout` and `network.write_timeout`. A connection has the first
    /// one from its accept on, and the second one from its next deadline on.
    pub(crate) fn set_timeouts(&mut self, settings: &ShardSettings) {
        (self.connect_timeout, self.write_timeout) = (settings.connect_timeout, settings.write_timeout);
    }

    /// Adds a connection that was just accepted. `seed` determines its jitter.
    pub(crate) fn accept(
        &mut self,
        now: Instant,
        arrival: Arrival,
        seed: u32,
        effects: &mut Effects,
    ) -> ConnectionId {
        let id = self.slots.insert(Connection::accepted(now, arrival, self.connect_timeout, seed));
        match self.traffic.get_mut(id.slot as usize) {
            Some(traffic) => *traffic = Traffic::default(),
            None => self.traffic.push(Traffic::default()),
        }
        self.register_read_idle(id, effects);
        id
    }

    /// Counts what a read brought. The connection may have ended with it.
    pub(crate) fn count_received(&mut self, id: ConnectionId, bytes: usize, publishes: u64) {
        if let Some(traffic) = self.traffic.get_mut(id.slot as usize) {
            traffic.received_bytes += bytes as u64;
            traffic.received_publishes += publishes;
        }
    }

    /// Counts PUBLISH packets that were written to a client.
    pub(crate) fn count_sent(&mut self, id: ConnectionId, publishes: u32) {
        if let Some(traffic) = self.traffic.get_mut(id.slot as usize) {
            traffic.sent_publishes += u64::from(publishes);
        }
    }

    /// Returns the traffic of a client that is connected.
    pub(crate) fn traffic(&self, id: ConnectionId) -> Traffic {
        self.traffic.get(id.slot as usize).copied().unwrap_or_default()
    }

    /// Removes a connection, and returns it.
    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<Connection> {
        let connection = self.slots.remove(id)?;
        self.partials[connection.pot() as usize].change(id, connection.unfinished_len(), 0);
        Some(connection)
    }

    #[inline]
    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.slots.get(id)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.slots.get_mut(id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ConnectionId, &Connection)> {
        self.slots.iter()
    }

    /// Returns the connection in a slot; `None` if the slot is free.
    pub(crate) fn at(&self, slot: u32) -> Option<&Connection> {
        self.slots.at(slot).map(|(_, connection)| connection)
    }

    /// Returns one more than the highest slot that was ever used.
    pub(crate) fn end_of_slots(&self) -> u32 {
        self.slots.end()
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns how many connections have a session.
    pub(crate) fn established(&self) -> usize {
        self.established
    }

    /// Counts one more connection that has a session.
    pub(crate) fn count_established(&mut self) {
        self.established += 1;
    }

    /// Detaches the session from a connection, and returns the session.
    pub(crate) fn detach_session(&mut self, id: ConnectionId) -> Option<SessionId> {
        let session = self.slots.get_mut(id)?.session.take()?;
        self.established -= 1;
        Some(session)
    }

    /// Marks a connection as dirty if it has something to write, or is closing.
    pub(crate) fn touch(&mut self, id: ConnectionId, effects: &mut Effects) {
        if let Some(connection) = self.slots.get_mut(id)
            && (!connection.wire.outbox.is_empty() || connection.is_closing())
        {
            connection.mark_dirty(id, &mut effects.dirty);
        }
    }

    /// Keeps the decision of the authenticator until CONNECT is handled. Returns false if the
    /// connection does not wait for one, or is gone.
    pub(crate) fn decide(&mut self, id: ConnectionId, decision: AuthDecision) -> bool {
        let revocations = self.revocations;
        self.slots.get_mut(id).is_some_and(|connection| connection.decide(decision, revocations))
    }

    /// Returns the number of revocations so far.
    pub(crate) fn revocations(&self) -> u32 {
        self.revocations
    }

    /// Notes that users are revoked. A decision that allows a client and that no CONNECT has taken
    /// is void from now on.
    pub(crate) fn note_revocation(&mut self) {
        self.revocations = self.revocations.wrapping_add(1);
    }

    /// Pauses a connection for `cause`. Returns false if it is paused for this cause already, or
    /// gone.
    pub(crate) fn pause(&mut self, id: ConnectionId, cause: Pause, now: Instant) -> bool {
        let connection = self.slots.get_mut(id).filter(|c| !c.pauses.has(cause));
        connection.map(|connection| connection.pause(cause, now)).is_some()
    }

    /// Ends one cause of a pause. The requests that wait are handled after the last one, and the
    /// search for acknowledgements continues after each one.
    pub(crate) fn unpause(&mut self, now: Instant, id: ConnectionId, cause: Pause, effects: &mut Effects) {
        // The connection has ended during the pause.
        let Some(connection) = self.slots.get_mut(id) else { return };
        if connection.unpause(cause, now) {
            self.register_read_idle(id, effects);
            effects.resume.push(id);
        } else if connection.has_unsearched() {
            effects.resume.push(id);
        }
    }

    /// Notes a look whether a client that is paused for its rate is gone, and registers the next.
    /// Another deadline that has passed is found then.
    pub(crate) fn looked(&mut self, now: Instant, id: ConnectionId, effects: &mut Effects) {
        if let Some(connection) = self.slots.get_mut(id) {
            connection.looked(now);
        }
        self.register_read_idle(id, effects);
    }

    /// Ends the pause of a client for its rate, if the debt is paid. Returns true if it does.
    pub(crate) fn end_rate_pause(&mut self, now: Instant, id: ConnectionId, effects: &mut Effects) -> bool {
        let Some(connection) = self.slots.get_mut(id).filter(|c| c.rate_pause_ends() <= now) else {
            return false;
        };
        if let Some(metered) = &mut connection.rare_mut().metered {
            metered.until = now;
        }
        self.unpause(now, id, Pause::Rate, effects);
        // Another pause may go on. The other deadlines of this kind hold meanwhile.
        self.register_read_idle(id, effects);
        true
    }

    /// Releases the bytes in an outbox that waited for the commit of `lsn`. Returns false if the
    /// first bytes of the outbox wait for a later commit.
    pub(crate) fn release_committed(
        &mut self,
        now: Instant,
        id: ConnectionId,
        lsn: Lsn,
        effects: &mut Effects,
    ) -> bool {
        // The connection has ended before the commit.
        let Some(connection) = self.slots.get_mut(id) else { return true };
        connection.wire.outbox.committed(lsn);
        if connection.wire.outbox.writable() == 0 {
            return false;
        }
        connection.release_committed(now);
        connection.mark_dirty(id, &mut effects.dirty);
        self.register_read_idle(id, effects);
        true
    }

    /// Writes DISCONNECT to a 5.0 client. Writes nothing in 3.x, or if the connection is not
    /// established. Returns true if a DISCONNECT was written.
    // 5.0 [MQTT-3.14.0-1]
    pub(crate) fn write_disconnect(
        &mut self,
        id: ConnectionId,
        reason: ReasonCode,
        text: Option<&str>,
        pool: &mut Pool,
    ) -> bool {
        self.slots.get_mut(id).filter(|connection| connection.is_established()).is_some_and(|connection| {
            connection.wire.outbox.lend(pool);
            connection.wire.put_disconnect(reason, text)
        })
    }

    /// Begins to close a connection. Nothing more is read. The outbox is written, and then the
    /// socket is closed.
    // 5.0 [MQTT-3.14.4-1], [MQTT-3.14.4-2]
    pub(crate) fn begin_closing(
        &mut self,
        now: Instant,
        id: ConnectionId,
        leaves: Leaves,
        effects: &mut Effects,
    ) {
        if let Some(connection) = self.slots.get_mut(id) {
            let until = now + LINGER.min(self.write_timeout);
            let (pot, unfinished) = (connection.pot(), connection.unfinished_len());
            connection.close(until, leaves);
            connection.forget_unread();
            self.partials[pot as usize].change(id, unfinished, 0);
        }
        self.touch(id, effects);
        self.register_write_idle(id, effects);
    }
}

/// Deadlines.
impl Connections {
    /// Notes that the machine was suspended until now. Deadlines of clients count from `now` again.
    pub(crate) fn woke(&mut self, now: Instant) {
        self.awake_since = now;
    }

    /// Returns the time at which a silent client is disconnected, or [`Instant::NEVER`] if it is
    /// gone.
    pub(crate) fn read_deadline(&self, id: ConnectionId) -> Instant {
        self.get(id).map_or(Instant::NEVER, |c| c.read_deadline(self.awake_since))
    }

    /// Returns the time at which a socket that takes no bytes is closed, or [`Instant::NEVER`] if
    /// the connection is gone.
    pub(crate) fn write_deadline(&self, id: ConnectionId) -> Instant {
        self.get(id).map_or(Instant::NEVER, |c| c.write_deadline(self.write_timeout, self.awake_since))
    }

    /// Returns the time at which Keep Alive runs out, or [`Instant::NEVER`] if the connection is
    /// gone.
    pub(crate) fn keep_alive_deadline(&self, id: ConnectionId) -> Instant {
        self.get(id).map_or(Instant::NEVER, |c| c.keep_alive.deadline(self.awake_since))
    }

    /// Returns the latest time at which a re-authentication is complete, or [`Instant::NEVER`] if
    /// none is pending.
    pub(crate) fn authentication_deadline(&self, id: ConnectionId) -> Instant {
        self.get(id).map_or(Instant::NEVER, |c| c.authentication_deadline(self.awake_since))
    }

    /// Handles an expired deadline, and returns the true deadline of its kind. Returns `None` if
    /// the connection is gone. `unacknowledged` is the time at which the session's first
    /// unacknowledged packet is due.
    pub(crate) fn expired(
        &mut self,
        kind: DeadlineKind,
        id: ConnectionId,
        unacknowledged: Instant,
    ) -> Option<Instant> {
        let awake = self.awake_since;
        let connection = self.slots.get_mut(id)?;
        Some(match kind {
            DeadlineKind::ReadIdle => {
                connection.read_idle.fired();
                connection.read_deadline(awake)
            }
            DeadlineKind::WriteIdle => {
                connection.write_idle.fired();
                connection.write_deadline(self.write_timeout, awake)
            }
            _ => {
                connection.retransmit.fired();
                let ack_wait =
                    if awake == Instant::ZERO { Duration::ZERO } else { connection.wire.ack_wait() };
                unacknowledged.max(awake + ack_wait)
            }
        })
    }

    /// Registers the time at which the client is disconnected if it stays silent.
    pub(crate) fn register_read_idle(&mut self, id: ConnectionId, effects: &mut Effects) {
        self.register(DeadlineKind::ReadIdle, id, self.read_deadline(id), effects);
    }

    /// Registers the time at which the socket is closed if it takes no bytes.
    pub(crate) fn register_write_idle(&mut self, id: ConnectionId, effects: &mut Effects) {
        self.register(DeadlineKind::WriteIdle, id, self.write_deadline(id), effects);
    }

    /// Registers a deadline, unless the registered deadline of this kind is early enough.
    pub(crate) fn register(
        &mut self,
        kind: DeadlineKind,
        id: ConnectionId,
        deadline: Instant,
        effects: &mut Effects,
    ) {
        if let Some(connection) = self.slots.get_mut(id) {
            connection.register(kind, id, deadline, self.expiry_interval, effects);
        }
    }
}

/// Partial packets.
impl Connections {
    /// Changes the unhandled bytes of a connection, and counts them anew.
    fn change_unfinished<T>(
        &mut self,
        id: ConnectionId,
        change: impl FnOnce(&mut Connection) -> T,
    ) -> Option<T> {
        let connection = self.slots.get_mut(id)?;
        let (pot, before) = (connection.pot(), connection.unfinished_len());
        let result = change(connection);
        let after = connection.unfinished_len();
        self.partials[pot as usize].change(id, before, after);
        Some(result)
    }

    /// Removes and returns the bytes that were read from a connection and not handled.
    pub(crate) fn take_partial(&mut self, id: ConnectionId) -> Option<Vec<u8>> {
        self.change_unfinished(id, |connection| connection.rare_mut().partial.take())
    }

    /// Keeps bytes that were read from a connection and not handled. The rest of a partial packet
    /// gets a deadline. Returns the pot of the connection if the bytes are more than a small
    /// partial packet.
    pub(crate) fn keep_partial(
        &mut self,
        now: Instant,
        id: ConnectionId,
        rest: Vec<u8>,
        kind: Unhandled,
        effects: &mut Effects,
    ) -> Option<Pot> {
        if rest.is_empty() {
            return None;
        }
        let (is_large, timeout) = (rest.len() > SMALL_PARTIAL, self.write_timeout);
        let pot = self.change_unfinished(id, |connection| {
            let partial = &mut connection.rare_mut().partial;
            partial.keep(rest);
            partial.search.is_unfinished = kind == Unhandled::BehindPause;
            if kind == Unhandled::PartialPacket {
                // Keep Alive counts whole packets and may be off. So the rest of a partial packet
                // has a deadline of its own.
                partial.wait(now, timeout);
            }
            connection.pot()
        });
        if kind == Unhandled::PartialPacket {
            self.register_read_idle(id, effects);
        }
        pot.filter(|_| is_large)
    }

    /// Removes and returns the bytes behind a pause, with the search for acknowledgements in them.
    pub(crate) fn take_waiting(&mut self, id: ConnectionId) -> Option<(Vec<u8>, Search)> {
        let search = self.slots.get(id)?.rare().map_or_else(Search::default, |rare| rare.partial.search);
        Some((self.take_partial(id)?, search))
    }

    /// Keeps the bytes behind a pause, which were searched so far.
    pub(crate) fn keep_waiting(
        &mut self,
        now: Instant,
        id: ConnectionId,
        waiting: Vec<u8>,
        search: Search,
        effects: &mut Effects,
    ) {
        self.keep_partial(now, id, waiting, Unhandled::BehindPause, effects);
        if let Some(connection) = self.slots.get_mut(id).filter(|c| c.partial_len() > 0) {
            connection.rare_mut().partial.search = search;
        }
    }

    /// Returns the exchange of AUTH packets of a connection, if there is one.
    pub(crate) fn exchange_mut(&mut self, id: ConnectionId) -> Option<&mut PendingExchange> {
        self.slots.get_mut(id)?.exchange_mut()
    }

    /// Keeps the bytes of CONNECT until the exchange of AUTH packets ends. The bytes count as a
    /// partial packet.
    pub(crate) fn keep_connect(&mut self, id: ConnectionId, bytes: Zeroizing<Vec<u8>>) {
        self.change_unfinished(id, |connection| {
            if let Some(exchange) = connection.exchange_mut() {
                exchange.keep_connect(bytes);
            }
        });
    }

    /// Removes and returns the bytes of the CONNECT that led to the exchange of AUTH packets.
    pub(crate) fn take_connect(&mut self, id: ConnectionId) -> Option<Zeroizing<Vec<u8>>> {
        self.change_unfinished(id, |connection| Some(connection.exchange_mut()?.take_connect()))?
    }

    /// Notes that a part of a TLS record or WebSocket frame has just come, or that none waits for
    /// its rest.
    pub(crate) fn await_rest(
        &mut self,
        now: Instant,
        id: ConnectionId,
        has_partial: bool,
        effects: &mut Effects,
    ) {
        let timeout = self.write_timeout;
        let Some(connection) = self.slots.get_mut(id).filter(|c| !c.is_closing()) else { return };
        connection.rare_mut().rest_awaited = has_partial.then_some((now, timeout));
        if has_partial {
            self.register_read_idle(id, effects);
        }
    }

    /// Keeps unhandled bytes of a connection that moved here from another shard.
    pub(crate) fn keep_unread(&mut self, id: ConnectionId, unread: Vec<u8>) {
        self.count_received(id, unread.len(), 0);
        self.change_unfinished(id, |connection| connection.rare_mut().partial.keep(unread));
    }

    /// Returns the connection of a pot with the largest partial packet, if there is one above
    /// [`SMALL_PARTIAL`].
    pub(crate) fn largest_partial(&self, pot: Pot) -> Option<ConnectionId> {
        let (_, slot, generation) = self.partials[pot as usize].large.last()?;
        Some(ConnectionId::new(*slot, *generation))
    }

    /// Returns the bytes of all partial packets of a pot.
    pub(crate) fn partial_bytes(&self, pot: Pot) -> usize {
        self.partials[pot as usize].bytes
    }

    /// Returns the bytes of all partial packets.
    pub(crate) fn all_partial_bytes(&self) -> usize {
        Pot::ALL.map(|pot| self.partial_bytes(pot)).iter().sum()
    }

    /// Returns the growth of the partial packets of a pot, in bytes, since
    /// [`Self::report_partial`]. May be negative.
    pub(crate) fn unreported_partial(&self, pot: Pot) -> i64 {
        self.partials[pot as usize].unreported()
    }

    /// Returns true if the partial packets of a pot have grown by more than [`PARTIAL_GROWTH`]
    /// since [`Self::report_partial`].
    pub(crate) fn has_large_unreported_partial(&self) -> bool {
        self.partials.iter().any(|partials| partials.unreported() > PARTIAL_GROWTH)
    }

    /// Adds the growth of the partial packets to the totals of all shards.
    pub(crate) fn report_partial(&mut self, total: &PartialShare) {
        for (pot, partials) in Pot::ALL.into_iter().zip(&mut self.partials) {
            let grown = partials.unreported();
            if grown != 0 {
                partials.reported += grown;
                total.report(pot, grown);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::clients::connection::Phase;

    fn connections() -> Connections {
        let timeout = Duration::from_secs(10);
        Connections {
            slots: Slots::default(),
            traffic: Vec::new(),
            established: 0,
            partials: Default::default(),
            revocations: 0,
            awake_since: Instant::ZERO,
            connect_timeout: timeout,
            write_timeout: timeout,
            expiry_interval: Duration::from_millis(100),
        }
    }

    #[test]
    fn partial_bytes_are_counted_until_they_are_taken_or_the_connection_is_gone() {
        let (mut connections, mut effects) = (connections(), Effects::default());
        let now = Instant::from_millis(1);
        let [a, b] = [1, 2].map(|seed| connections.accept(now, Arrival::local(), seed, &mut effects));
        let keep = |connections: &mut Connections, effects: &mut Effects, id, len| {
            connections.keep_partial(now, id, vec![0; len], Unhandled::PartialPacket, effects)
        };
        assert_eq!(keep(&mut connections, &mut effects, a, 10), None);
        assert_eq!(keep(&mut connections, &mut effects, b, SMALL_PARTIAL + 1), Some(Pot::Strangers));
        let found = |connections: &Connections, pot| {
            (connections.partial_bytes(pot), connections.largest_partial(pot))
        };
        assert_eq!(found(&connections, Pot::Strangers), (SMALL_PARTIAL + 11, Some(b)));
        assert_eq!(found(&connections, Pot::Clients), (0, None));
        assert_eq!(connections.take_partial(a).map(|bytes| bytes.len()), Some(10));
        connections.begin_closing(now, b, Leaves::Broker, &mut effects);
        assert_eq!(found(&connections, Pot::Strangers), (0, None));
        connections.remove(b);
        connections.get_mut(a).expect("a connection").enter(Phase::Untraced);
        assert_eq!(keep(&mut connections, &mut effects, a, 2 * SMALL_PARTIAL), Some(Pot::Clients));
        assert_eq!(found(&connections, Pot::Clients), (2 * SMALL_PARTIAL, Some(a)));
        assert!(connections.remove(a).is_some());
        assert_eq!(found(&connections, Pot::Clients), (0, None));
    }

    #[test]
    fn the_largest_partial_packet_is_known_whatever_came_and_went() {
        let (mut connections, mut effects) = (connections(), Effects::default());
        let now = Instant::from_millis(1);
        let ids: Vec<_> =
            (0..50).map(|seed| connections.accept(now, Arrival::local(), seed, &mut effects)).collect();
        for step in 0..2_000_usize {
            let id = ids[step * 7 % ids.len()];
            connections.take_partial(id);
            let len = step * 7_919 % (4 * SMALL_PARTIAL);
            connections.keep_partial(now, id, vec![0; len], Unhandled::PartialPacket, &mut effects);
            let lengths = ids.iter().filter_map(|id| connections.get(*id)).map(Connection::partial_len);
            let largest = lengths.clone().max().filter(|len| *len > SMALL_PARTIAL);
            let found = connections.largest_partial(Pot::Strangers).and_then(|id| connections.get(id));
            assert_eq!(found.map(Connection::partial_len), largest);
            assert_eq!(connections.partial_bytes(Pot::Strangers), lengths.sum::<usize>());
        }
    }

    #[test]
    fn reading_resumes_when_the_last_cause_ends() {
        let (mut connections, mut effects) = (connections(), Effects::default());
        let now = Instant::from_millis(1);
        let id = connections.accept(now, Arrival::local(), 1, &mut effects);
        assert!(connections.pause(id, Pause::Turn, now) && connections.pause(id, Pause::Peer, now));
        assert!(!connections.pause(id, Pause::Peer, now));
        connections.unpause(now, id, Pause::Turn, &mut effects);
        assert_eq!(effects.resume, []);
        connections.unpause(now, id, Pause::Peer, &mut effects);
        connections.unpause(now, id, Pause::Peer, &mut effects);
        assert_eq!(effects.resume, [id]);
    }

    #[test]
    fn a_closing_connection_is_dirty_once_and_has_a_deadline() {
        let (mut connections, mut effects) = (connections(), Effects::default());
        let now = Instant::from_millis(1);
        let id = connections.accept(now, Arrival::local(), 1, &mut effects);
        connections.begin_closing(now, id, Leaves::Client, &mut effects);
        connections.touch(id, &mut effects);
        assert_eq!(effects.dirty, [id]);
        assert_eq!(connections.write_deadline(id), now + LINGER);
        assert!(connections.read_deadline(id).is_never());
    }
}
