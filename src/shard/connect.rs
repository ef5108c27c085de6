//! CONNECT: refusal, take-over, the session it finds or begins, CONNACK.

use crate::mqtt::codec::DecodeError;
use crate::mqtt::keyed::Keyed;
use crate::mqtt::packet::{Connect, ReasonCode, WillMessage};
use crate::routing::shared_group::Presence;
use crate::routing::subscription_tree::ShardId;
use crate::session::Session;
use crate::session::connect::{self, ConnectRefusal, Negotiated};
use crate::session::outbound::retry::Outlives;
use crate::session::will::Ending;
use crate::shard::Shard;
use crate::shard::admission::{Change, Entrant, HeldMemory};
use crate::shard::connection::{Connection, Leaves, Phase};
use crate::shard::observe::client_events::{DisconnectCause, Occurrence};
use crate::shard::receive::Flow;
use crate::shard::session_entry::SessionEntry;
use crate::shard::slots::{ConnectionId, SessionId};
use crate::time::Instant;
use std::hash::BuildHasher;
use std::sync::Arc;

/// The shard where sessions of this client live, of `shards`.
pub fn shard_of(client_id: &str, shards: u8) -> ShardId {
    if shards <= 1 {
        return ShardId(0);
    }
    // The same in every run; who makes ids that live in one shard gains no more than that shard's
    // clients lose.
    let hash = foldhash::quality::FixedState::with_seed(0x484F_4D49_4E47).hash_one(client_id);
    ShardId((hash % u64::from(shards)) as u8)
}

/// For tables of this process.
pub(super) fn hash(client_id: &str) -> u64 {
    Keyed.hash_one(client_id)
}

impl Shard {
    pub(super) fn connect(&mut self, now: Instant, id: ConnectionId, connect: &Connect<'_>) -> Flow {
        let assigned = connect.client_id.is_empty().then(|| self.assign_client_id());
        let client_id = assigned.as_deref().unwrap_or(connect.client_id);
        let home = shard_of(client_id, self.exchange.shards());
        if home != self.here {
            return Flow::Home(home);
        }
        if let Some(slot) = self.client_slot(client_id)
            && let Some((existing, _)) = self.sessions.at(slot)
            && self.fans_out_for(existing)
        {
            // Its session is taken over when what it published is with everybody: its will comes
            // behind that.
            self.read_behind_fan(now, id);
            return Flow::Wait;
        }
        let negotiated = connect::negotiate(connect, &self.settings.session);
        if let Some(Connection { wire, .. }) = self.connections.get_mut(id) {
            wire.set_limits(&negotiated.limits);
        }
        let existing = self.find_client(now, client_id);
        if let Err(refusal) = self.admit(connect, &negotiated, client_id, existing) {
            self.refuse(now, id, client_id, &refusal);
            return Flow::Closed;
        }
        let is_ending = self.stored.as_ref().is_some_and(|s| s.is_ending(hash(client_id)));
        let was_stored = is_ending || existing.is_some_and(|session| self.is_stored(session));
        let resumed = existing.and_then(|session| self.take_over(now, session, connect));
        let session_id = resumed.unwrap_or_else(|| self.begin_session(client_id));
        if was_stored && resumed.is_none() {
            self.hold_until_commit(id);
        }
        self.establish(now, id, session_id, (connect, &negotiated), assigned.as_deref(), resumed.is_some());
        Flow::Continue
    }

    /// A client id that no session has, of a session that lives here.
    // 3.1.1 [MQTT-3.1.3-6]; 5.0 [MQTT-3.1.3-6], [MQTT-3.2.2-16]
    fn assign_client_id(&mut self) -> String {
        loop {
            let id = format!("homing-{:016x}", self.random());
            if shard_of(&id, self.exchange.shards()) == self.here && self.client_slot(&id).is_none() {
                return id;
            }
        }
    }

    fn client_slot(&self, client_id: &str) -> Option<u32> {
        self.clients.find(client_id, &self.sessions)
    }

    /// The session of a client; one whose time is up is ended first, though its expired deadline
    /// has not come yet.
    // 5.0 [MQTT-4.1.0-2]
    fn find_client(&mut self, now: Instant, client_id: &str) -> Option<SessionId> {
        let slot = self.client_slot(client_id)?;
        let (id, session_entry) = self.sessions.at(slot)?;
        if session_entry.ends <= now {
            self.end_session(now, id);
            return None;
        }
        Some(id)
    }

    /// Whether a client gets in. Where it has no session, a place for one is taken.
    fn admit(
        &self,
        connect: &Connect<'_>,
        negotiated: &Negotiated,
        client_id: &str,
        existing: Option<SessionId>,
    ) -> Result<(), ConnectRefusal> {
        connect::check(connect)?;
        let refuse = |reason, what| Err(ConnectRefusal { reason, what });
        let held = existing.and_then(|session| self.sessions.get(session)).map(|session_entry| HeldMemory {
            kept: session_entry.session.expiry > 0,
            stored: session_entry.session.row().is_some(),
            will: session_entry.session.will.as_ref().map_or(0, |will| will.size()),
        });
        let kept = negotiated.session_expiry > 0;
        let entrant = Entrant {
            client_id: client_id.len(),
            will: connect.will.as_ref().map_or(0, WillMessage::size),
            kept,
            stored: self.stored.is_some() && kept,
            held,
        };
        if let Err(want) = self.admits(Change::Connect(entrant)) {
            return refuse(ReasonCode::QUOTA_EXCEEDED, want.text());
        }
        // Last: a place that is taken is used.
        if existing.is_none() && !self.shared.totals.sessions.take(1, self.settings.sessions) {
            return refuse(ReasonCode::QUOTA_EXCEEDED, "limits.sessions is reached");
        }
        Ok(())
    }

    /// Parts a session from the connection it has, and ends it where it is to begin afresh. Answers
    /// the session to resume, if any.
    fn take_over(&mut self, now: Instant, id: SessionId, connect: &Connect<'_>) -> Option<SessionId> {
        let session_entry = self.sessions.get(id)?;
        let old_session = match session_entry.connection {
            Some(_) => session_entry.session.outlives(),
            None => Outlives::Yes,
        };
        let ending = connect::take_over(connect, old_session);
        if let Some(old) = session_entry.connection {
            self.say_disconnect(old, ReasonCode::SESSION_TAKEN_OVER, None);
            self.note_disconnected(now, old, DisconnectCause::TakenOver);
            self.part(now, old, ending);
            self.begin_closing(now, old, Leaves::Broker);
        }
        if ending == Ending::TakenOverAfresh {
            // The place of the session that begins, before that of this one is free: nobody else
            // gets it in between.
            self.shared.totals.sessions.add(1);
            self.end_session(now, id);
            return None;
        }
        let session_entry = self.sessions.get_mut(id)?;
        let will = session_entry.session.take_will_at_return(now, session_entry.will_due);
        session_entry.will_due = Instant::NEVER;
        session_entry.ends = Instant::NEVER;
        self.publish_will(now, id, will);
        Some(id)
    }

    fn begin_session(&mut self, client_id: &str) -> SessionId {
        let session = Session::new(client_id, 0, Arc::clone(self.rules.nobody()));
        self.insert_session(SessionEntry::new(session, Instant::NEVER, Instant::NEVER))
    }

    /// Takes in a session whose client has none here.
    pub(super) fn insert_session(&mut self, session_entry: SessionEntry) -> SessionId {
        let Shard { sessions, clients, .. } = self;
        let id = sessions.insert(session_entry);
        if let Some(session_entry) = sessions.get(id) {
            clients.insert(&session_entry.session.client_id, id);
        }
        id
    }

    /// Joins connection and session, answers CONNACK, and sends what waited.
    fn establish(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session_id: SessionId,
        (connect, negotiated): (&Connect<'_>, &Negotiated),
        assigned: Option<&str>,
        present: bool,
    ) {
        let client_id = assigned.unwrap_or(connect.client_id);
        let redelivery = self.rules.resolve(client_id, connect.user_name);
        if let Some(session_entry) = self.sessions.get_mut(session_id) {
            session_entry.session.sender.set_terms(redelivery);
        }
        let granted = self.take_connect_requests(session_id, connect);
        let mut connack = negotiated.connack(connect, &self.settings.session, assigned, present);
        connack.properties.user_properties.extend(granted.iter().map(|(name, text)| (*name, text.as_str())));
        self.join(now, id, session_id, connect, negotiated);
        self.record_session(session_id);
        if self.is_stored(session_id) {
            self.fence_session(id, session_id);
        }
        let fits = self.connections.get_mut(id).is_some_and(|c| c.wire.put_connack(connack));
        let (publishes, releases) = if fits { self.resume(now, id, session_id) } else { (0, 0) };
        self.connected += 1;
        self.register_read_idle(id);
        self.after_session_change(now, session_id);
        self.set_presence(session_id, Presence::Online);
        let connected = Occurrence::Connected {
            clean_start: connect.clean_start,
            session_present: present,
            keep_alive_secs: negotiated.keep_alive_secs,
        };
        self.note_of(session_id, connected, None);
        self.note_return(now, session_id, publishes, releases);
        if !fits {
            let what = "the client's Maximum Packet Size is too small for a CONNACK";
            self.cut(now, id, None, DisconnectCause::Violation(ReasonCode::PACKET_TOO_LARGE, what.into()));
        }
    }

    /// Joins connection and session: from here on each names the other.
    fn join(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session_id: SessionId,
        connect: &Connect<'_>,
        negotiated: &Negotiated,
    ) {
        let Shard { connections, sessions, scratch, .. } = self;
        let Some(connection) = connections.get_mut(id) else { return };
        let Some(session_entry) = sessions.get_mut(session_id) else { return };
        connection.phase = Phase::Established;
        connection.session = Some(session_id);
        connection.keep_alive.start(negotiated.keep_alive_secs, now);
        let wire = &mut connection.wire;
        wire.outbox.lend(&mut scratch.pool);
        session_entry.connection = Some(id);
        session_entry.session.connect(negotiated, connect, wire);
    }

    /// Sends again what was in flight before this connection, then what the window and the outbox
    /// take of the queue. Returns how many PUBLISH and PUBREL packets went out again.
    fn resume(&mut self, now: Instant, id: ConnectionId, session_id: SessionId) -> (u64, u64) {
        let Shard { connections, sessions, settings, counters, .. } = self;
        let Some(Connection { wire, .. }) = connections.get_mut(id) else { return (0, 0) };
        let Some(session_entry) = sessions.get_mut(session_id) else { return (0, 0) };
        let before = counters.redelivered;
        session_entry.session.sender.resume(now, wire, counters);
        let releases = counters.redelivered - before;
        session_entry.session.sender.pump(now, wire, &settings.session.send, counters);
        (counters.redelivered - before - releases, releases)
    }

    /// Answers a CONNECT that is not accepted, and closes.
    fn refuse(&mut self, now: Instant, id: ConnectionId, client_id: &str, refusal: &ConnectRefusal) {
        let Shard { connections, scratch, .. } = self;
        if let Some(Connection { wire, .. }) = connections.get_mut(id) {
            wire.outbox.lend(&mut scratch.pool);
            wire.put_refusal(refusal);
        }
        self.begin_closing(now, id, Leaves::Broker);
        self.counters.refused_connects += u64::from(refusal.reason == ReasonCode::QUOTA_EXCEEDED);
        self.note_refused(id, Some(client_id), refusal.reason, refusal.what);
    }

    /// What came is no CONNECT.
    pub(super) fn refuse_undecodable(&mut self, now: Instant, id: ConnectionId, error: &DecodeError) {
        if let Some(connack) = error.connack()
            && let Some(connection) = self.connections.get_mut(id)
        {
            connection.wire.outbox.buffer().extend_from_slice(connack);
        }
        self.begin_closing(now, id, Leaves::Broker);
        self.note_refused(id, None, error.reason_code(), &error.to_string());
    }
}
