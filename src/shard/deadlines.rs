//! Deadlines: what the expiry actor is told, and what follows when a deadline has expired.
//!
//! An expired deadline is only a hint to look. The true deadline stands here, so a stale one is
//! harmless. A deadline that moved is registered again when its expired deadline comes.

use crate::expiry::deadline::{DeadlineKind, Registration};
use crate::expiry::lazy::Registered;
use crate::mqtt::packet::ReasonCode;
use crate::session::drops::DropReason;
use crate::session::outbound::retransmission::Retransmission;
use crate::session::outbound::stall::SocketView;
use crate::shard::Shard;
use crate::shard::connection::Phase;
use crate::shard::observe::client_events::{DisconnectCause, ExhaustedAction, Occurrence, RedeliveryTime};
use crate::shard::slots::Id;
use crate::shard::slots::{ConnectionId, SessionId};
use crate::shard::turn::Job;
use crate::time::Instant;
use std::time::Duration;

/// Slots of a shard's own deadlines, of the kind [`DeadlineKind::Housekeeping`]: its regular work,
/// and the earliest message that was delayed.
pub const OWN_CHORE: u32 = 0;
pub const OWN_DELAYED: u32 = 1;

/// What the driver tells a connection's actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadlineAction {
    /// Unacknowledged packets are due: look how far the peer's kernel has come, then
    /// [`Shard::acknowledgement_due`].
    Retransmit(ConnectionId),
    /// It was silent, or took no bytes, for too long: read what came while [`Shard::is_silent`],
    /// then [`Shard::disconnect_if_due`].
    Disconnect(ConnectionId),
}

impl Shard {
    /// The expiry actor says that a deadline has come.
    pub fn expired_deadline(
        &mut self,
        now: Instant,
        kind: DeadlineKind,
        slot: u32,
        generation: u32,
    ) -> Option<DeadlineAction> {
        if kind == DeadlineKind::Session {
            let id = Id::new(slot, generation);
            if self.turn.is_over() || self.fans.holds_own() || !self.due.is_empty() {
                self.look_later(id);
            } else {
                self.session_deadline_expired(now, id);
            }
            return None;
        }
        let id = Id::new(slot, generation);
        let (timeout, awake) = (self.settings.write_timeout, self.awake_since);
        let connection = self.connections.get_mut(id)?;
        let due = match kind {
            DeadlineKind::ReadIdle => {
                connection.read_idle.fired();
                connection.read_deadline(awake)
            }
            DeadlineKind::WriteIdle => {
                connection.write_idle.fired();
                connection.write_deadline(timeout, awake)
            }
            _ => {
                connection.retransmit.fired();
                let ack_wait =
                    if awake == Instant::ZERO { Duration::ZERO } else { connection.wire.ack_wait() };
                self.earliest_due(id).max(awake + ack_wait)
            }
        };
        if due > now {
            self.register(kind, id, due);
            return None;
        }
        Some(match kind {
            DeadlineKind::Retransmit => DeadlineAction::Retransmit(id),
            _ => DeadlineAction::Disconnect(id),
        })
    }

    /// Acknowledgements are due on a connection: 3.x is sent again what its kernel has, 5.0 is told
    /// of or cut. `view` is what the socket says of the bytes written to it.
    pub fn acknowledgement_due(&mut self, now: Instant, id: ConnectionId, view: SocketView) {
        match self.connections.get(id) {
            Some(connection) if connection.version().is_v5() => self.ack_timeout(now, id, view),
            Some(_) => self.retransmit(now, id, view),
            None => {}
        }
    }

    fn ack_timeout(&mut self, now: Instant, id: ConnectionId, view: SocketView) {
        let Shard { connections, sessions, counters, .. } = self;
        let Some(connection) = connections.get(id) else { return };
        let Some(session_id) = connection.session else { return };
        let Some(session_entry) = sessions.get_mut(session_id) else { return };
        let session = &mut session_entry.session;
        let outlives = session.outlives();
        let (wire, drops) = (&connection.wire, &mut counters.drops);
        let found = session.sender.overdue(now, view, outlives, wire, drops);
        if let Some(stall) = found.disconnect {
            session.record_disconnect_for(stall.number);
            counters.stalled += 1;
            counters.disconnected += 1;
            self.report_drops(session_id);
            return self.cut(now, id, Some(ReasonCode::QUOTA_EXCEEDED), DisconnectCause::AckTimeout(stall));
        }
        for stall in [found.application, found.network].into_iter().flatten() {
            self.counters.stalled += 1;
            self.note_of(session_id, Occurrence::Stalled(stall), Some(stall));
        }
        // Nothing was sent and the identifiers stay in use, so there is no more to do than this.
        self.report_drops(session_id);
        self.register_retransmit(now, id);
    }

    fn retransmit(&mut self, now: Instant, id: ConnectionId, view: SocketView) {
        let Shard { connections, sessions, settings, counters, scratch, .. } = self;
        let Some(connection) = connections.get_mut(id) else { return };
        let Some(session_id) = connection.session else { return };
        let Some(session_entry) = sessions.get_mut(session_id) else { return };
        connection.wire.outbox.lend(&mut scratch.pool);
        let outlives = session_entry.session.outlives();
        let sender = &mut session_entry.session.sender;
        let (wire, policy) = (&mut connection.wire, &settings.session.send);
        let done = sender.retransmit(now, view, outlives, wire, policy, &mut counters.drops);
        if done.drop_reports > 0 && done.exhausted.is_none() {
            sender.pump(now, wire, policy, counters);
        }
        let again = u64::from(done.publishes) + u64::from(done.releases);
        counters.redelivered += again;
        counters.sent += u64::from(done.publishes);
        counters.stalled += u64::from(again > 0 || done.network.is_some() || done.exhausted.is_some());
        counters.disconnected += u64::from(done.exhausted.is_some());
        self.note_retransmission(session_id, &done);
        match done.exhausted {
            Some(stall) => {
                // The connection ends, so nothing more is sent on it. The next page is read when
                // the client returns.
                self.report_drops(session_id);
                self.cut(now, id, None, DisconnectCause::Exhausted(stall));
            }
            None => self.after_session_change(now, session_id),
        }
    }

    fn note_retransmission(&mut self, id: SessionId, done: &Retransmission) {
        let Retransmission { publishes, releases, resent, kept, network, .. } = *done;
        if publishes + releases > 0 {
            let (publishes, releases) = (publishes.into(), releases.into());
            let when = RedeliveryTime::Live;
            self.note_of(id, Occurrence::Redelivered { publishes, releases, when }, resent);
        } else if let Some(stall) = network {
            self.note_of(id, Occurrence::Stalled(stall), network);
        }
        if kept.is_some() {
            self.note_of(id, Occurrence::Exhausted(ExhaustedAction::Keep), kept);
        }
    }

    /// Whether it is to be cut for its silence, and for nothing else.
    pub fn is_silent(&self, now: Instant, id: ConnectionId) -> bool {
        let timeout = self.settings.write_timeout;
        let awake = self.awake_since;
        let connection = self.connections.get(id);
        connection.is_some_and(|c| c.write_deadline(timeout, awake) > now && c.read_deadline(awake) <= now)
    }

    /// Cuts a connection whose read or write deadline has passed by now. The caller has read what
    /// came of a silent one.
    pub fn disconnect_if_due(&mut self, now: Instant, id: ConnectionId) -> OverdueConnection {
        let timeout = self.settings.write_timeout;
        let Some(connection) = self.connections.get(id) else { return OverdueConnection::Abandon };
        let written = connection.write_deadline(timeout, self.awake_since);
        if written <= now {
            let why = DisconnectCause::WriteTimeout { waiting_bytes: connection.wire.outbox.len() };
            self.cut(now, id, None, why);
            return OverdueConnection::Abandon;
        }
        let heard = connection.read_deadline(self.awake_since);
        if heard <= now {
            let silent = now.since(connection.keep_alive.last_heard());
            if connection.phase == Phase::AwaitingConnect {
                self.cut(now, id, None, DisconnectCause::NoConnect);
            } else if connection.keep_alive.deadline(self.awake_since) > now {
                let partial_bytes = connection.partial_len();
                self.cut(
                    now,
                    id,
                    Some(ReasonCode::UNSPECIFIED_ERROR),
                    DisconnectCause::PacketTimeout { partial_bytes },
                );
            } else {
                self.cut(
                    now,
                    id,
                    Some(ReasonCode::KEEP_ALIVE_TIMEOUT),
                    DisconnectCause::KeepAlive { silent },
                );
            }
            return OverdueConnection::Cut;
        }
        self.register_read_idle(id);
        self.register_write_idle(id);
        OverdueConnection::NotYet
    }

    pub(super) fn register_read_idle(&mut self, id: ConnectionId) {
        let deadline = self.connections.get(id).map_or(Instant::NEVER, |c| c.read_deadline(self.awake_since));
        self.register(DeadlineKind::ReadIdle, id, deadline);
    }

    pub(super) fn register_write_idle(&mut self, id: ConnectionId) {
        let (timeout, awake) = (self.settings.write_timeout, self.awake_since);
        let deadline = self.connections.get(id).map_or(Instant::NEVER, |c| c.write_deadline(timeout, awake));
        self.register(DeadlineKind::WriteIdle, id, deadline);
    }

    fn earliest_due(&self, id: ConnectionId) -> Instant {
        let session = self.connections.get(id).and_then(|c| c.session).and_then(|s| self.sessions.get(s));
        session.map_or(Instant::NEVER, |r| r.session.sender.earliest_due())
    }

    /// While a registration stands, only a packet that was just sent can be due earlier than
    /// what it was made for: with backoff, the older ones may be due much later.
    pub(super) fn register_retransmit(&mut self, now: Instant, id: ConnectionId) {
        let Some(connection) = self.connections.get(id) else { return };
        let Some(session) = connection.session.and_then(|s| self.sessions.get(s)) else { return };
        let sender = &session.session.sender;
        if connection.expects_acknowledgement(sender, self.settings.expiry_interval) {
            return;
        }
        let by_topic = sender.redelivery().differ_by_topic();
        if connection.wire.ack_wait().is_zero() && !by_topic {
            return;
        }
        // With redelivery by topic, what was sent before the last may be due before it too: then
        // the window is searched.
        let known = connection.retransmit.is_registered() && !by_topic;
        let deadline = if known { sender.newest_due() } else { sender.earliest_due() };
        // What a tick held back is due already: it waits for the next, or the tick would spread
        // nothing.
        self.register(DeadlineKind::Retransmit, id, deadline.max(now));
    }

    fn register(&mut self, kind: DeadlineKind, id: ConnectionId, deadline: Instant) {
        let interval = self.settings.expiry_interval;
        let Some(connection) = self.connections.get_mut(id) else { return };
        let registered: &mut Registered = match kind {
            DeadlineKind::ReadIdle => &mut connection.read_idle,
            DeadlineKind::WriteIdle => &mut connection.write_idle,
            _ => &mut connection.retransmit,
        };
        if registered.needs(deadline, interval) {
            let (slot, generation) = (id.slot, id.generation);
            self.effects.registrations.push(Registration { kind, slot, generation, deadline });
        }
    }

    /// Session expiry, will delay or the end of a hold, whichever is first.
    pub(super) fn register_session(&mut self, id: SessionId) {
        let interval = self.settings.expiry_interval;
        let Some(session_entry) = self.sessions.get_mut(id) else { return };
        let deadline = session_entry.deadline();
        if session_entry.registered.needs(deadline, interval) {
            let (slot, generation) = (id.slot, id.generation);
            let kind = DeadlineKind::Session;
            self.effects.registrations.push(Registration { kind, slot, generation, deadline });
        }
    }

    /// A deadline of this session has come, and is seen to in a later turn. Until then the session
    /// stands as it was, in the store too.
    pub(super) fn look_later(&mut self, id: SessionId) {
        if self.due.is_empty() {
            self.later(Job::Due);
        }
        self.due.push_back(id);
    }

    /// As many of these as this turn has steps for; the job that is left. What takes several turns
    /// is waited for: only one publication does at a time.
    pub(super) fn go_on_with_due(&mut self, now: Instant) -> Option<Job> {
        while !self.due.is_empty() {
            if self.turn.is_over() || self.fans.holds_own() {
                return Some(Job::Due);
            }
            self.turn.charge(1);
            if let Some(id) = self.due.pop_front() {
                self.session_deadline_expired(now, id);
            }
        }
        None
    }

    fn session_deadline_expired(&mut self, now: Instant, id: SessionId) {
        let Some(session_entry) = self.sessions.get_mut(id) else { return };
        session_entry.registered.fired();
        if session_entry.will_due <= now {
            session_entry.will_due = Instant::NEVER;
            let will = session_entry.session.will.take();
            self.publish_will(now, id, will);
            self.record_session(id);
        }
        self.give_up_held(now, id);
        if self.sessions.get(id).is_some_and(|r| r.ends <= now) {
            self.end_session(now, id);
            return;
        }
        self.register_session(id);
    }

    /// The machine was suspended until now. What waits for a peer begins anew: keep alive, write
    /// timeout, acknowledgements; peers could not speak, and what they sent has yet to be read.
    /// What counts the time that passed goes on: session expiry, will delay, message expiry,
    /// delayed messages.
    pub fn woke(&mut self, now: Instant) {
        self.awake_since = now;
    }

    /// Reading goes on: its deadline runs again.
    pub(super) fn resumed(&mut self, id: ConnectionId) {
        self.register_read_idle(id);
        self.effects.resume.push(id);
    }
}

/// What became of a connection that was to be disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverdueConnection {
    /// Something came in the meantime, or the deadline had moved.
    NotYet,
    /// It is told, flushed and closed.
    Cut,
    /// It takes no bytes: close the socket at once.
    Abandon,
}

impl Shard {
    /// The shard's regular work: expired retained messages go, a bounded number each time.
    /// Registers the next.
    pub fn housekeeping(&mut self, now: Instant, next: Instant) {
        self.look_ahead(now);
        self.ask_for_orphaned_queues(now);
        const EXPIRED_AT_ONCE: usize = 1_000;
        if self.here.0 == 0 {
            let gone = self.shared.retained().expire(now, EXPIRED_AT_ONCE);
            self.effects.retained |= gone > 0;
            self.counters.drops.add(DropReason::Expired, gone);
        }
        self.report_dropped(now);
        self.effects.registrations.push(Registration {
            kind: DeadlineKind::Housekeeping,
            slot: OWN_CHORE,
            generation: 0,
            deadline: next,
        });
    }
}
