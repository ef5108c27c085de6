//! What the expiry actor is told, and what its verdicts lead to.
//!
//! A verdict is only a hint to look: the true deadline stands here, so a stale one is harmless, and a deadline that
//! moved is registered again when its verdict comes.

use super::effects::{Event, Why};
use super::report::{Occurrence, Redelivery, Then};
use super::{ConnectionId, SessionId, Shard};
use crate::expiry::deadline::{DeadlineKind, Registration};
use crate::expiry::lazy::Registered;
use crate::mqtt::packet::ReasonCode;
use crate::mqtt::session::loss::LossCause;
use crate::mqtt::session::retry::Outlives;
use crate::mqtt::session::sender::Retransmission;
use crate::mqtt::session::stall::SocketView;
use crate::routing::shard::connection::Phase;
use crate::routing::shard::slots::Id;
use crate::time::Instant;
use std::time::Duration;

/// Slots of a shard's own deadlines, of the kind [`DeadlineKind::Chore`]: its regular work, and the earliest message that was
/// delayed.
pub const OWN_CHORE: u32 = 0;
pub const OWN_DELAYED: u32 = 1;

/// What the shell tells a connection's actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Summons {
    /// Unacknowledged packets are due: look how far the peer's kernel has come, then
    /// [`Shard::acknowledgement_due`].
    Retransmit(ConnectionId),
    /// It was silent, or took no bytes, for too long: read what came while [`Shard::is_silent`], then [`Shard::disconnect_if_due`].
    Disconnect(ConnectionId),
}

impl Shard {
    /// The expiry actor says that a deadline has come.
    pub fn verdict(
        &mut self,
        now: Instant,
        kind: DeadlineKind,
        slot: u32,
        generation: u32,
    ) -> Option<Summons> {
        if kind == DeadlineKind::Session {
            self.session_verdict(now, Id::new(slot, generation));
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
                let patience = if awake == Instant::ZERO { Duration::ZERO } else { connection.wire.patience };
                self.earliest_due(id).max(awake + patience)
            }
        };
        if due > now {
            self.register(kind, id, due);
            return None;
        }
        Some(match kind {
            DeadlineKind::Retransmit => Summons::Retransmit(id),
            _ => Summons::Disconnect(id),
        })
    }

    /// Acknowledgements are due on a connection: 3.x is sent again what its kernel has, 5.0 is told of or cut. `view` is
    /// what the socket says of the bytes written to it.
    pub fn acknowledgement_due(&mut self, now: Instant, id: ConnectionId, view: SocketView) {
        match self.connections.get(id) {
            Some(connection) if connection.version().is_v5() => self.ack_timeout(now, id, view),
            Some(_) => self.retransmit(now, id, view),
            None => {}
        }
    }

    // 5.0 [MQTT-4.4.0-1]
    fn ack_timeout(&mut self, now: Instant, id: ConnectionId, view: SocketView) {
        let Shard { connections, sessions, tally, effects, .. } = self;
        let Some(connection) = connections.get(id) else { return };
        let Some(session_id) = connection.session else { return };
        let Some(resident) = sessions.get_mut(session_id) else { return };
        let session = &mut resident.session;
        let outlives = if session.ends_with_connection() { Outlives::No } else { Outlives::Yes };
        let (wire, losses) = (&connection.wire, &mut tally.losses);
        let found = session.sender.overdue(now, view, outlives, wire, losses);
        if let Some(stall) = found.cut {
            session.cut_for(stall.number);
            tally.stalled += 1;
            tally.cut += 1;
            self.settle_losses(session_id);
            return self.cut(now, id, Some(ReasonCode::QUOTA_EXCEEDED), Why::AckTimeout(stall));
        }
        for stall in [found.application, found.network].into_iter().flatten() {
            tally.stalled += 1;
            effects.events.push(Event::Stalled { client_id: session.client_id.clone(), stall });
        }
        for stall in [found.application, found.network].into_iter().flatten() {
            self.report(id, Occurrence::Stalled, Some(stall));
        }
        self.settle_losses(session_id);
        self.register_retransmit(now, id);
    }

    fn retransmit(&mut self, now: Instant, id: ConnectionId, view: SocketView) {
        let Shard { connections, sessions, settings, tally, pool, .. } = self;
        let Some(connection) = connections.get_mut(id) else { return };
        let Some(session_id) = connection.session else { return };
        let Some(resident) = sessions.get_mut(session_id) else { return };
        connection.wire.outbox.lend(pool);
        let outlives = !resident.session.ends_with_connection();
        let sender = &mut resident.session.sender;
        let (wire, policy) = (&mut connection.wire, &settings.session.send);
        let done = sender.retransmit(now, view, outlives, wire, policy, &mut tally.losses);
        if done.given_up > 0 && done.exhausted.is_none() {
            sender.pump(now, wire, policy, tally);
        }
        let again = u64::from(done.publishes) + u64::from(done.releases);
        tally.redelivered += again;
        tally.sent += u64::from(done.publishes);
        let client_id = || resident.session.client_id.clone();
        let event = if again > 0 {
            let (publishes, releases) = (done.publishes, done.releases);
            Some(Event::Redelivered { client_id: client_id(), publishes, releases })
        } else {
            done.network.map(|stall| Event::Stalled { client_id: client_id(), stall })
        };
        tally.stalled += u64::from(event.is_some() || done.exhausted.is_some());
        tally.cut += u64::from(done.exhausted.is_some());
        self.effects.events.extend(event);
        self.report_retransmission(id, &done);
        self.settle_losses(session_id);
        if done.given_up > 0 {
            self.fetch(session_id);
        }
        self.touch(id);
        match done.exhausted {
            Some(stall) => self.cut(now, id, None, Why::Exhausted(stall)),
            None => self.register_retransmit(now, id),
        }
    }

    fn report_retransmission(&mut self, id: ConnectionId, done: &Retransmission) {
        let Retransmission { publishes, releases, resent, kept, network, .. } = *done;
        if let Some(stall) = resent {
            let (publishes, releases) = (publishes.into(), releases.into());
            let when = Redelivery::Live;
            self.report(id, Occurrence::Redelivered { publishes, releases, when }, Some(stall));
        } else if network.is_some() {
            self.report(id, Occurrence::Stalled, network);
        }
        if kept.is_some() {
            self.report(id, Occurrence::Exhausted(Then::Keep), kept);
        }
    }

    /// Whether it is to be cut for its silence, and for nothing else.
    pub fn is_silent(&self, now: Instant, id: ConnectionId) -> bool {
        let timeout = self.settings.write_timeout;
        let awake = self.awake_since;
        let connection = self.connections.get(id);
        connection.is_some_and(|c| c.write_deadline(timeout, awake) > now && c.read_deadline(awake) <= now)
    }

    /// Cuts a connection whose read or write deadline has passed by now. The caller has read what came of a silent one.
    // 3.1.1 [MQTT-3.1.2-24], 5.0 [MQTT-3.1.2-22]
    pub fn disconnect_if_due(&mut self, now: Instant, id: ConnectionId) -> Overdue {
        let timeout = self.settings.write_timeout;
        let Some(connection) = self.connections.get(id) else { return Overdue::Abandon };
        let written = connection.write_deadline(timeout, self.awake_since);
        if written <= now {
            let why = Why::WriteTimeout { waiting_bytes: connection.wire.outbox.len() };
            self.cut(now, id, None, why);
            return Overdue::Abandon;
        }
        let heard = connection.read_deadline(self.awake_since);
        if heard <= now {
            let silent = now.since(connection.keep_alive.last_heard());
            if connection.phase == Phase::AwaitingConnect {
                self.cut(now, id, None, Why::NoConnect);
            } else if connection.keep_alive.deadline(self.awake_since) > now {
                let partial_bytes = connection.partial.len();
                self.cut(now, id, Some(ReasonCode::UNSPECIFIED_ERROR), Why::PacketTimeout { partial_bytes });
            } else {
                self.cut(now, id, Some(ReasonCode::KEEP_ALIVE_TIMEOUT), Why::KeepAlive { silent });
            }
            return Overdue::Cut;
        }
        self.register_read_idle(id);
        self.register_write_idle(id);
        Overdue::NotYet
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

    /// Cheap where nothing changes. While a registration stands, only a packet that was just sent can be due earlier than
    /// what it was made for: with backoff, the older ones may be due much later.
    pub(super) fn register_retransmit(&mut self, now: Instant, id: ConnectionId) {
        let Some(connection) = self.connections.get(id) else { return };
        let Some(session) = connection.session.and_then(|s| self.sessions.get(s)) else { return };
        let sender = &session.session.sender;
        let by_topic = sender.terms().differ_by_topic();
        if connection.wire.patience.is_zero() && !by_topic {
            return;
        }
        // With terms by topic, what was sent before the last may be due before it too: then the window is searched.
        let known = connection.retransmit.is_registered() && !by_topic;
        let deadline = if known { sender.newest_due() } else { sender.earliest_due() };
        // What a tick held back is due already: it waits for the next, or the tick would spread nothing.
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
        let Some(resident) = self.sessions.get_mut(id) else { return };
        let deadline = resident.ends.min(resident.will_due).min(resident.held_until());
        if resident.registered.needs(deadline, interval) {
            let (slot, generation) = (id.slot, id.generation);
            let kind = DeadlineKind::Session;
            self.effects.registrations.push(Registration { kind, slot, generation, deadline });
        }
    }

    fn session_verdict(&mut self, now: Instant, id: SessionId) {
        let Some(resident) = self.sessions.get_mut(id) else { return };
        resident.registered.fired();
        if resident.will_due <= now {
            resident.will_due = Instant::NEVER;
            let will = resident.session.will.take();
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

    /// The machine was suspended until now. What waits for a peer begins anew: keep alive, write timeout, acknowledgements;
    /// peers could not speak, and what they sent has yet to be read. What counts the time that passed goes on: session expiry,
    /// will delay, message expiry, delayed messages.
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
pub enum Overdue {
    /// Something came in the meantime, or the deadline had moved.
    NotYet,
    /// It is told, flushed and closed.
    Cut,
    /// It takes no bytes: close the socket at once.
    Abandon,
}

impl Shard {
    /// The shard's regular work: expired retained messages go, a bounded number each time. Registers the next.
    pub fn chore(&mut self, now: Instant, next: Instant) {
        self.look_ahead(now);
        self.ask_for_estates(now);
        const EXPIRED_AT_ONCE: usize = 1_000;
        if self.here.0 == 0 {
            let gone = self.common.retained().expire(now, EXPIRED_AT_ONCE);
            self.effects.retained |= gone > 0;
            self.tally.losses.add(LossCause::Expired, gone);
        }
        self.tell_given_up(now);
        self.effects.registrations.push(Registration {
            kind: DeadlineKind::Chore,
            slot: OWN_CHORE,
            generation: 0,
            deadline: next,
        });
    }
}
