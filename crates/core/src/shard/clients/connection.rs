//! The part of one Network Connection that needs no I/O: its partial packet, its outbox, its pauses
//! and its deadlines.
//!
//! The connection actor (`src/broker/connection`) owns the socket, and this value belongs to the
//! shard. A connection has no session before CONNECT is accepted, and none after a take-over. The
//! Keep Alive does not run while a connection is paused, because the broker may not read then.

use crate::access::bans::Ban;
use crate::expiry::deadline::{DeadlineKind, Registration};
use crate::expiry::lazy::Registered;
use crate::login::arrival::Arrival;
use crate::login::authentication::{AuthDecision, Authentication};
use crate::login::listener_terms::ListenerTerms;
use crate::login::pending_exchange::{ExchangeEnd, PendingExchange};
use crate::mqtt::owner::Owner;
use crate::mqtt::packet::{Connect, ProtocolVersion};
use crate::mqtt::publisher_name::PublisherName;
use crate::session::authentication::EnhancedMethod;
use crate::session::authentication::Reach;
use crate::session::keep_alive::KeepAlive;
use crate::session::outbound::sender::Sender;
use crate::session::outbox::Pool;
use crate::session::topic_alias::IncomingAliases;
use crate::session::trace_steps::NotedPackets;
use crate::session::wire::Wire;
use crate::shard::clients::bans::BanSearch;
use crate::shard::clients::flush::HalfClosed;
use crate::shard::clients::metered_traffic::MeteredTraffic;
use crate::shard::clients::partial::{Partial, next_byte};
use crate::shard::clients::pause::{Pause, Pauses};
use crate::shard::turn::effects::Effects;
use crate::shared::Pot;
use crate::slots::{ConnectionId, SessionId};
use crate::time::Instant;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Most bytes that are read at once from a client that is not connected yet.
pub const FIRST_READ_SIZE: usize = 4096;

/// A connection from its acceptance to its close.
#[derive(Debug)]
pub struct Connection {
    /// The outbox and the limits of the client.
    pub wire: Wire,
    /// `None` until CONNECT is accepted, and after the session was detached.
    pub session: Option<SessionId>,
    phase: Phase,
    /// The time at which CONNECT was accepted; in [`Phase::Closing`] the latest time at which the
    /// connection is closed. [`Instant::NEVER`] before CONNECT. In the phase the time would take 16
    /// bytes.
    phase_time: Instant,
    /// The listener that accepted the connection.
    pub listener: Arc<ListenerTerms>,
    /// The reach of the connection, for the rule about anonymous clients.
    pub reach: Reach,
    /// The Authentication Method of an accepted CONNECT; `None` if CONNECT had none.
    pub method: Option<EnhancedMethod>,
    /// The largest packet in bytes that the client may send after its CONNECT; 0 before CONNACK.
    /// CONNACK tells it to a 5.0 client, so it holds as long as the connection.
    pub packet_size: u32,
    /// True if the client must not set Retain: its CONNACK had Retain Available 0.
    pub refuses_retain: bool,
    /// True if the CONNECT asked for a new session.
    clean_start: bool,
    /// The parts that an idle connection does not have. Allocated when the first of them is needed.
    rare: Option<Box<Rare>>,
    /// The time of the last packet, and the Keep Alive.
    pub keep_alive: KeepAlive,
    /// The reasons why the client's requests wait.
    pub pauses: Pauses,
    /// True if the connection is in the shard's dirty list.
    pub dirty: bool,
    /// True if the connection is in the list of connections whose outbox waits for a commit.
    pub gated_until_commit: bool,
    /// The time at which the socket first refused the bytes that are still pending.
    /// [`Instant::NEVER`] if no bytes wait for the socket.
    pub blocked: Instant,
    /// The registered deadline of kind `ReadIdle`.
    pub read_idle: Registered,
    /// The registered deadline of kind `WriteIdle`.
    pub write_idle: Registered,
    /// The registered deadline of kind `Retransmit`.
    pub retransmit: Registered,
}

/// Parts of a connection that an idle one does not have.
#[derive(Debug, Default)]
pub struct Rare {
    /// Bytes that were read and not handled: a partial packet, or packets behind a pause.
    pub partial: Partial,
    /// `None` until the client sets a topic alias.
    pub aliases: Option<Box<IncomingAliases>>,
    /// The time of the last byte of a partial TLS record or WebSocket frame, and the maximum time
    /// until the next byte; `None` if no byte is expected.
    pub rest_awaited: Option<(Instant, Duration)>,
    /// The end of the client's stream, while the client is owed bytes; `None` for most clients.
    pub(super) half_closed: Option<HalfClosed>,
    /// The authentication, from the request until CONNECT is handled.
    authentication: Option<Box<Authentication>>,
    /// The exchange of AUTH packets, while it waits for the client.
    exchange: Option<Box<PendingExchange>>,
    /// The name of the client that its messages share; `None` if they do not keep it.
    pub(crate) publisher: Option<PublisherName>,
    /// The client under which its retained and delayed messages count; `None` until set.
    pub(crate) owner: Option<Arc<Owner>>,
    /// The user name in the client's verified certificate; `None` without one.
    pub certificate_user: Option<Box<str>>,
    /// The ban of the address or of the certificate, until CONNECT is handled.
    pub ban: Option<Ban>,
    /// The search for a ban of the client identifier; `None` while none is under way.
    pub(crate) ban_search: Option<BanSearch>,
    /// True if CONNECT has waited until the client's older connection was read.
    pub(crate) has_let_older_be_read: bool,
    /// The host of the client until CONNACK, if its listener has rates.
    pub host: Option<IpAddr>,
    /// The time at which the client's credentials expire; `None` if they do not.
    ends: Option<Instant>,
    /// The time of the last report that a redelivery request of this client is unreadable.
    pub unreadable: Option<Instant>,
    /// The meters of the client's traffic. `None` where no rate holds.
    pub metered: Option<Box<MeteredTraffic>>,
}

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No packet has come yet.
    AwaitingConnect,
    /// CONNECT has come, and the authenticator has not decided yet. The bytes of CONNECT are in the
    /// partial packet.
    Authenticating,
    /// The client has been challenged, and has not answered yet. CONNECT is kept with the exchange.
    Exchanging,
    /// CONNECT was accepted.
    Untraced,
    /// CONNECT was accepted, and a trace follows the client. A phase of its own, so that one branch
    /// for each packet tells it from the phase of nearly every connection.
    Traced,
    /// The outbox is written, and then the connection is closed. Nothing more is read.
    Closing {
        /// The side that ends the connection.
        leaves: Leaves,
    },
}

/// The side that ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// The client, by DISCONNECT, so it expects nothing more.
    Client,
    /// The broker. The client gets time to read the reason.
    Broker,
}

impl Connection {
    /// Returns a connection that was just accepted. `seed` determines its jitter.
    pub fn accepted(now: Instant, arrival: Arrival, connect_timeout: Duration, seed: u32) -> Connection {
        let Arrival { listener, reach, certificate_user, ban, host } = arrival;
        let has_rare = certificate_user.is_some() || ban.is_some() || host.is_some();
        let rare = has_rare.then(|| Box::new(Rare { certificate_user, ban, host, ..Rare::default() }));
        Connection {
            wire: Wire::new(ProtocolVersion::V3_1_1, seed),
            session: None,
            phase: Phase::AwaitingConnect,
            phase_time: Instant::NEVER,
            listener,
            reach,
            method: None,
            packet_size: 0,
            refuses_retain: false,
            clean_start: false,
            rare,
            keep_alive: KeepAlive::awaiting_connect(connect_timeout, now),
            pauses: Pauses::default(),
            dirty: false,
            gated_until_commit: false,
            blocked: Instant::NEVER,
            read_idle: Registered::default(),
            write_idle: Registered::default(),
            retransmit: Registered::default(),
        }
    }

    /// Returns the facts about the connection before its first packet.
    pub(crate) fn into_arrival(self) -> Arrival {
        let (certificate_user, ban, host) =
            self.rare.map_or((None, None, None), |rare| (rare.certificate_user, rare.ban, rare.host));
        Arrival { listener: self.listener, reach: self.reach, certificate_user, ban, host }
    }

    /// Returns the phase of the connection.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Begins a phase.
    pub fn enter(&mut self, phase: Phase) {
        self.phase = match phase {
            Phase::Untraced | Phase::Traced if self.wire.is_traced() => Phase::Traced,
            Phase::Traced => Phase::Untraced,
            other => other,
        };
    }

    /// Notes that a CONNECT was accepted, and how it wants its session.
    pub(crate) fn accept_connect(&mut self, now: Instant, connect: &Connect<'_>) {
        self.enter(Phase::Untraced);
        (self.phase_time, self.clean_start) = (now, connect.clean_start);
    }

    /// Returns the time at which CONNECT was accepted; `None` before it, and while the connection
    /// closes.
    pub(crate) fn connected_since(&self) -> Option<Instant> {
        self.is_established().then_some(self.phase_time)
    }

    /// Returns true if the CONNECT asked for a new session.
    pub(crate) fn clean_start(&self) -> bool {
        self.clean_start
    }

    /// Begins to close the connection, which takes until `until` at most.
    pub(crate) fn close(&mut self, until: Instant, leaves: Leaves) {
        self.phase_time = until;
        self.enter(Phase::Closing { leaves });
    }

    /// Returns true if CONNECT was accepted, and the connection does not close yet.
    pub fn is_established(&self) -> bool {
        matches!(self.phase, Phase::Untraced | Phase::Traced)
    }

    /// Sets which packets are noted for traces.
    pub fn note_packets(&mut self, noted: NotedPackets) {
        self.wire.note_packets(noted);
        self.enter(self.phase);
    }

    /// Returns the parts that an idle connection does not have, if there are any.
    pub fn rare(&self) -> Option<&Rare> {
        self.rare.as_deref()
    }

    /// Returns the exchange of AUTH packets, if there is one.
    pub(crate) fn exchange(&self) -> Option<&PendingExchange> {
        self.rare.as_ref()?.exchange.as_deref()
    }

    /// Returns the end of the client's stream, if the client has closed its side.
    #[inline]
    pub(super) fn half_closed(&self) -> Option<HalfClosed> {
        self.rare.as_ref()?.half_closed
    }

    /// Returns the parts of [`Self::rare`], to change them. Allocates missing parts.
    pub fn rare_mut(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Returns the number of bytes that were read and not handled.
    pub fn partial_len(&self) -> usize {
        self.rare.as_ref().map_or(0, |rare| rare.partial.size())
    }

    /// Returns true if bytes were read that nobody has looked at. Acknowledgements may be among
    /// them.
    pub(crate) fn has_unsearched(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.partial.search.is_unfinished)
    }

    /// Returns true if requests wait behind a pause, and acknowledgements are handled meanwhile.
    #[inline]
    pub(crate) fn reads_ahead(&self) -> bool {
        self.pauses.requests_wait() && self.is_established()
    }

    /// Returns the number of bytes that were read and not handled, with those of a CONNECT whose
    /// exchange of AUTH packets is not complete.
    pub(crate) fn unfinished_len(&self) -> usize {
        self.partial_len() + self.exchange().map_or(0, PendingExchange::connect_len)
    }

    /// Returns the pot in which the partial packet counts.
    pub(crate) fn pot(&self) -> Pot {
        if self.is_established() { Pot::Clients } else { Pot::Strangers }
    }

    /// Drops the bytes that were read and not handled, and the client's topic aliases. Called when
    /// nothing more is read.
    pub fn forget_unread(&mut self) {
        self.rare = None;
    }

    /// Begins to write packets: the outbox gets a buffer, if it has none. Returns the value for
    /// [`Self::end_write`].
    #[inline]
    pub(crate) fn begin_write(&mut self, pool: &mut Pool) -> usize {
        self.wire.outbox.lend(pool);
        self.wire.outbox.len()
    }

    /// Ends the write that [`Self::begin_write`] began: counts the bytes that were written, and
    /// lets the turn flush them. Returns their number.
    #[inline]
    pub(crate) fn end_write(&mut self, before: usize, id: ConnectionId, effects: &mut Effects) -> usize {
        let written = self.wire.outbox.len().saturating_sub(before);
        if written > 0 {
            effects.unflushed += written;
            self.mark_dirty(id, &mut effects.dirty);
        }
        written
    }

    /// Adds the connection to the dirty list, if it is not there already.
    pub fn mark_dirty(&mut self, id: ConnectionId, list: &mut Vec<ConnectionId>) {
        if !self.dirty {
            self.dirty = true;
            list.push(id);
        }
    }

    /// Registers a deadline, unless the registered deadline of this kind is early enough.
    pub(crate) fn register(
        &mut self,
        kind: DeadlineKind,
        id: ConnectionId,
        deadline: Instant,
        interval: Duration,
        effects: &mut Effects,
    ) {
        let registered = match kind {
            DeadlineKind::ReadIdle => &mut self.read_idle,
            DeadlineKind::WriteIdle => &mut self.write_idle,
            _ => &mut self.retransmit,
        };
        if registered.needs(deadline, interval) {
            let (slot, generation) = (id.slot, id.generation);
            effects.registrations.push(Registration { kind, slot, generation, deadline });
        }
    }

    /// Registers the due time of the first unacknowledged packet of `sender`. Nearly every call
    /// ends at the first test, because the registered deadline is early enough for the newest
    /// packets. If the redelivery policy depends on the topic, another new packet may be due before
    /// the newest one.
    #[inline]
    pub(crate) fn register_retransmit(
        &mut self,
        now: Instant,
        id: ConnectionId,
        sender: &Sender,
        interval: Duration,
        effects: &mut Effects,
    ) {
        let differs = sender.redelivery().differ_by_topic();
        if differs || !self.retransmit.covers(sender.window.newest_due(), interval) {
            self.register_first_due(now, id, sender, interval, effects);
        }
    }

    /// If a deadline is registered, only the packets sent since then can be due before it. The
    /// window knows their due time (`newest_due`) without a search. If nothing is registered, the
    /// whole window is searched, because backoff may put older packets behind newer ones.
    #[inline(never)]
    fn register_first_due(
        &mut self,
        now: Instant,
        id: ConnectionId,
        sender: &Sender,
        interval: Duration,
        effects: &mut Effects,
    ) {
        let by_topic = sender.redelivery().differ_by_topic();
        if self.wire.ack_wait().is_zero() && !by_topic {
            return;
        }
        // If the redelivery policy depends on the topic, the newest packet may be due after another
        // packet of the same turn. Then the window is always searched.
        let known = self.retransmit.is_registered() && !by_topic;
        let deadline = if known { sender.window.newest_due() } else { sender.window.earliest_due() };
        // A tick resends a limited number of packets, so some may be overdue here. Overdue packets
        // wait for the next tick, because an immediate deadline would resend all of them at once.
        self.register(DeadlineKind::Retransmit, id, deadline.max(now), interval, effects);
    }

    /// Returns the time at which a silent client is disconnected. A client that stops in the midst
    /// of a packet counts as silent too, and so does one whose credentials expire. Returns
    /// [`Instant::NEVER`] for a connection that is closing.
    pub fn read_deadline(&self, awake_since: Instant) -> Instant {
        let keep_alive = self.keep_alive.deadline(awake_since);
        match self.phase {
            // Before CONNECT is complete, this deadline is `network.connect_timeout`. So it also
            // bounds a partial CONNECT, and the exchange of AUTH packets behind it.
            Phase::AwaitingConnect | Phase::Exchanging => keep_alive,
            // Keep Alive is paused. The decision has a deadline of its own.
            Phase::Authenticating => self.authentication_deadline(awake_since),
            Phase::Untraced | Phase::Traced => match &self.rare {
                // Nothing is waited for. The write deadline holds.
                Some(rare) if rare.half_closed.is_some() => Instant::NEVER,
                // Keep Alive is paused during a pause for the rate, which ends by this deadline.
                Some(rare) => {
                    let ends = rare.ends.unwrap_or(Instant::NEVER).min(self.rate_pause_look());
                    let ends = ends.min(self.authentication_deadline(awake_since));
                    // The client is not waited for while the broker does not read.
                    let awaited = rare.rest_awaited.filter(|_| !self.pauses.any());
                    let rest = next_byte(awaited, awake_since);
                    keep_alive.min(rare.partial.deadline(awake_since)).min(ends).min(rest)
                }
                None => keep_alive,
            },
            Phase::Closing { .. } => Instant::NEVER,
        }
    }

    /// Returns the time at which a socket that takes no bytes is closed, or [`Instant::NEVER`] if
    /// no bytes wait for the socket. A client that has closed its side has no more time than this
    /// to get what it is owed.
    pub fn write_deadline(&self, timeout: Duration, awake_since: Instant) -> Instant {
        let half_closed = self.half_closed().map_or(Instant::NEVER, |half_closed| half_closed.since);
        match (self.phase, self.blocked.min(half_closed)) {
            (Phase::Closing { .. }, _) => self.phase_time,
            (_, Instant::NEVER) => Instant::NEVER,
            (_, since) => since.max(awake_since) + timeout,
        }
    }

    /// Returns true once a packet of the client was measured against a rate.
    #[inline]
    pub(crate) fn is_metered(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.metered.is_some())
    }

    /// Returns the end of the pause for the rate, or [`Instant::NEVER`] without a pause.
    pub(crate) fn rate_pause_ends(&self) -> Instant {
        self.rate_pause().map_or(Instant::NEVER, |metered| metered.until)
    }

    /// Returns the meters of a client that is paused for its rate.
    fn rate_pause(&self) -> Option<&MeteredTraffic> {
        self.rare.as_ref()?.metered.as_deref().filter(|_| self.pauses.has(Pause::Rate))
    }

    /// Returns the earlier of the end of the pause for the rate and the next look whether the
    /// client is gone, or [`Instant::NEVER`] if there is no such pause.
    fn rate_pause_look(&self) -> Instant {
        self.rate_pause().map_or(Instant::NEVER, |metered| metered.until.min(metered.look))
    }

    /// Returns true if it is time to look whether a client that is paused for its rate is gone.
    pub(crate) fn is_look_due(&self, now: Instant) -> bool {
        self.rate_pause().is_some_and(|metered| metered.look <= now)
    }

    /// Arranges the next look whether a client that is paused for its rate is gone.
    pub(crate) fn looked(&mut self, now: Instant) {
        if let Some(metered) = self.rare.as_mut().and_then(|rare| rare.metered.as_mut()) {
            metered.looked(now);
        }
    }

    /// Begins to wait for the decision of the authenticator. Nothing more is read meanwhile.
    pub(crate) fn begin_authentication(&mut self, now: Instant, authentication: Authentication) {
        self.enter(Phase::Authenticating);
        self.rare_mut().authentication = Some(Box::new(authentication));
        self.pause(Pause::Authentication, now);
    }

    /// Returns the latest time at which a decision or a re-authentication is complete, or
    /// [`Instant::NEVER`] if none is pending.
    pub(crate) fn authentication_deadline(&self, awake_since: Instant) -> Instant {
        let authentication = self.rare.as_ref().and_then(|rare| rare.authentication.as_ref());
        authentication.map_or(Instant::NEVER, |authentication| authentication.deadline(awake_since))
    }

    /// Begins an exchange of AUTH packets.
    pub(crate) fn begin_exchange(&mut self, exchange: PendingExchange) {
        self.rare_mut().exchange = Some(Box::new(exchange));
    }

    /// Returns the exchange of AUTH packets, if there is one.
    pub(crate) fn exchange_mut(&mut self) -> Option<&mut PendingExchange> {
        self.rare.as_mut()?.exchange.as_deref_mut()
    }

    /// Removes and returns the result of the exchange of AUTH packets, if there is one.
    pub(crate) fn take_exchange_end(&mut self) -> Option<ExchangeEnd> {
        self.exchange_mut()?.take_end()
    }

    /// Begins a re-authentication. Traffic continues meanwhile.
    pub(crate) fn begin_reauthentication(&mut self, authentication: Authentication) {
        self.rare_mut().authentication = Some(Box::new(authentication));
    }

    /// Ends a re-authentication.
    pub(crate) fn end_reauthentication(&mut self) {
        let rare = self.rare_mut();
        (rare.authentication, rare.exchange) = (None, None);
    }

    /// Returns true if a re-authentication is not complete.
    pub(crate) fn is_reauthenticating(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.authentication.is_some())
    }

    /// Returns true if a re-authentication waits for the authenticator.
    pub(crate) fn awaits_challenge(&self) -> bool {
        self.is_reauthenticating() && self.rare.as_ref().is_some_and(|rare| rare.exchange.is_none())
    }

    /// Keeps the decision of the authenticator until CONNECT is handled. Returns false if the
    /// connection does not wait for one.
    pub(crate) fn decide(&mut self, decision: AuthDecision, revocations: u32) -> bool {
        if self.phase == Phase::Authenticating
            && let Some(authentication) = &mut self.rare_mut().authentication
        {
            authentication.decide(decision, revocations);
            self.enter(Phase::AwaitingConnect);
            return true;
        }
        false
    }

    /// Removes and returns the decision of the authenticator. Returns `None` if it was not asked,
    /// or has to be asked again.
    pub(crate) fn take_decision(&mut self, revocations: u32) -> Option<AuthDecision> {
        self.rare.as_mut()?.authentication.take()?.into_decision(revocations)
    }

    /// Frees the parts that were needed until CONNECT was accepted, as far as an idle connection
    /// does not need them.
    pub(crate) fn end_connect(&mut self) {
        let ends = self.rare.take().and_then(|rare| rare.ends);
        self.rare = ends.map(|ends| Box::new(Rare { ends: Some(ends), ..Rare::default() }));
    }

    /// Sets the time at which the client's credentials expire; [`Instant::NEVER`] if they do not.
    pub(crate) fn set_end(&mut self, ends: Instant) {
        if !ends.is_never() {
            self.rare_mut().ends = Some(ends);
        }
    }

    /// Returns true if the client's credentials have expired.
    pub(crate) fn has_expired(&self, now: Instant) -> bool {
        self.rare.as_ref().and_then(|rare| rare.ends).is_some_and(|ends| ends <= now)
    }

    /// Returns true if the connection is being closed.
    pub fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing { .. })
    }

    /// Returns the client's protocol version; 3.1.1 before CONNECT.
    pub fn version(&self) -> ProtocolVersion {
        self.wire.version
    }

    /// Pauses the connection for `cause`. The Keep Alive does not run while it is paused.
    pub fn pause(&mut self, cause: Pause, now: Instant) {
        self.pauses.set(cause);
        self.keep_alive.pause(now);
        if let Some(reauthentication) = self.reauthentication() {
            reauthentication.pause(now);
        }
    }

    /// Returns the re-authentication that is not complete, if there is one.
    fn reauthentication(&mut self) -> Option<&mut Authentication> {
        let is_established = self.is_established();
        self.rare.as_mut().filter(|_| is_established)?.authentication.as_deref_mut()
    }

    /// Ends one cause of a pause. Returns true if no cause is left, so that reading continues.
    pub fn unpause(&mut self, cause: Pause, now: Instant) -> bool {
        let last = self.pauses.clear(cause);
        if last && !self.gated_until_commit {
            self.keep_alive.resume(now);
        }
        // The time for the rest of a record or frame begins again, because it was not read.
        if last && let Some((since, _)) = self.rare.as_mut().and_then(|rare| rare.rest_awaited.as_mut()) {
            *since = now;
        }
        if last && let Some(reauthentication) = self.reauthentication() {
            reauthentication.resume(now);
        }
        last
    }

    /// Notes that the outbox waits for a commit. The Keep Alive does not run meanwhile. A client
    /// that waits for an answer, such as CONNACK, need not send anything.
    pub fn gate_until_commit(&mut self, now: Instant) {
        self.gated_until_commit = true;
        self.keep_alive.pause(now);
    }

    /// Notes that the commit is done. The Keep Alive continues unless the connection is paused.
    pub fn release_committed(&mut self, now: Instant) {
        self.gated_until_commit = false;
        if !self.pauses.any() {
            self.keep_alive.resume(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Session;
    use crate::shard::clients::session_entry::SessionEntry;

    fn established(now: Instant) -> Connection {
        let arrival = Arrival::default();
        let mut connection = Connection::accepted(now, arrival, Duration::from_secs(10), 0);
        connection.enter(Phase::Untraced);
        connection.keep_alive = KeepAlive::awaiting_connect(Duration::from_secs(1_000), now);
        connection
    }

    #[test]
    fn a_reauthentication_has_no_deadline_while_the_client_is_not_read() {
        let at = |secs: u64| Instant::from_millis(secs * 1_000);
        let mut connection = established(at(0));
        connection.begin_reauthentication(Authentication::begin(at(0), Duration::from_secs(10)));
        assert_eq!(connection.read_deadline(Instant::ZERO), at(10));
        for (cause, from, until) in [(Pause::Rate, 2, 5), (Pause::Outbox, 6, 9)] {
            connection.pause(cause, at(from));
            connection.pause(Pause::Peer, at(from + 1));
            assert!(connection.read_deadline(Instant::ZERO) > at(100), "{cause:?}");
            assert!(!connection.unpause(cause, at(from + 2)) && connection.unpause(Pause::Peer, at(until)));
        }
        assert_eq!(connection.read_deadline(Instant::ZERO), at(16), "six seconds did not count");
    }

    #[test]
    fn a_client_that_is_paused_for_its_rate_is_looked_at_each_second() {
        let at = |secs: u64| Instant::from_millis(secs * 1_000);
        let mut connection = established(at(0));
        assert!(!connection.is_look_due(at(0)), "nothing is metered");
        connection.rare_mut().metered = Some(Box::new(MeteredTraffic::new(at(0))));
        assert!(!connection.is_look_due(at(0)), "the client is not paused");
        connection.rare_mut().metered.as_mut().unwrap().pause(at(0), at(600));
        connection.pause(Pause::Rate, at(0));
        for second in 1..5 {
            assert_eq!(connection.read_deadline(Instant::ZERO), at(second));
            assert!(connection.is_look_due(at(second)));
            connection.looked(at(second));
            assert!(!connection.is_look_due(at(second)));
        }
        assert_eq!(connection.rate_pause_ends(), at(600));
    }

    /// The allocator has classes of 160, 192, 224, 256 and 320 bytes. One byte more than a class
    /// costs each idle connection the next class.
    #[test]
    fn an_idle_connection_and_its_session_fit_192_bytes_each() {
        assert_eq!(size_of::<Wire>(), 104);
        assert!(size_of::<Connection>() <= 192, "{}", size_of::<Connection>());
        assert_eq!(size_of::<Session>(), 152);
        assert!(size_of::<SessionEntry>() <= 192, "{}", size_of::<SessionEntry>());
    }
}
