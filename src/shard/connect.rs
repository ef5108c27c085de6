//! CONNECT: refusal, take-over, the session it finds or begins, CONNACK.

use crate::mqtt::charge::Charge;
use crate::mqtt::codec::DecodeError;
use crate::mqtt::keyed::Keyed;
use crate::mqtt::packet::{
    Connack, ConnackProperties, Connect, ConnectReturnCode, Packet, ProtocolVersion, ReasonCode, WillMessage,
};
use crate::mqtt::will::Will;
use crate::routing::shared_group::Presence;
use crate::routing::subscription_tree::ShardId;
use crate::session::Session;
use crate::session::will::Ending;
use crate::shard::Shard;
use crate::shard::admission::{Change, Entrant, HeldMemory};
use crate::shard::connection::{Connection, Leaves, Phase};
use crate::shard::effects::{Event, Why};
use crate::shard::receive::Flow;
use crate::shard::session_entry::SessionEntry;
use crate::shard::slots::{ConnectionId, SessionId};
use crate::time::Instant;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

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

/// Why a CONNECT is not accepted.
struct ConnectRefusal {
    reason: ReasonCode,
    what: &'static str,
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
        self.learn_limits(id, connect);
        let existing = self.find_client(now, client_id);
        if let Err(refusal) = self.admit(connect, client_id, existing) {
            self.refuse(now, id, client_id, &refusal);
            return Flow::Closed;
        }
        let is_ending = self.stored.as_ref().is_some_and(|s| s.is_ending(hash(client_id)));
        let was_stored = is_ending || existing.is_some_and(|session| self.is_stored(session));
        let resumed = existing.and_then(|session| self.take_over(now, session, connect.clean_start));
        let session_id = resumed.unwrap_or_else(|| self.begin_session(client_id));
        if was_stored && resumed.is_none() {
            self.hold_until_commit(id);
        }
        self.establish(now, id, session_id, connect, assigned.as_deref(), resumed.is_some());
        Flow::Continue
    }

    /// What the client said of itself holds for the answer to its CONNECT already.
    fn learn_limits(&mut self, id: ConnectionId, connect: &Connect<'_>) {
        let most = self.settings.session.send.in_flight;
        let Some(Connection { wire, .. }) = self.connections.get_mut(id) else { return };
        let properties = &connect.properties;
        let window = properties.receive_maximum.unwrap_or(u16::MAX).min(most);
        wire.version = connect.version;
        wire.problem_information = properties.request_problem_information.unwrap_or(true);
        let aliases = properties.topic_alias_maximum.unwrap_or(0);
        wire.set_limits(window, properties.maximum_packet_size, aliases);
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
        client_id: &str,
        existing: Option<SessionId>,
    ) -> Result<(), ConnectRefusal> {
        let refuse = |reason, what| Err(ConnectRefusal { reason, what });
        if connect.client_id.is_empty() {
            // 3.1.1 [MQTT-3.1.3-7], [MQTT-3.1.3-8]; 3.1 has no empty client ids at all.
            let clean = connect.clean_start && connect.version == ProtocolVersion::V3_1_1;
            if !clean && !connect.version.is_v5() {
                return refuse(
                    ReasonCode::CLIENT_IDENTIFIER_NOT_VALID,
                    "an empty client id needs Clean Session 1 and MQTT 3.1.1 or later",
                );
            }
        }
        if connect.properties.authentication_method.is_some() {
            // 5.0 [MQTT-4.12.0-1]
            return refuse(ReasonCode::BAD_AUTHENTICATION_METHOD, "enhanced authentication is not offered");
        }
        let held = existing.and_then(|session| self.sessions.get(session)).map(|session_entry| HeldMemory {
            kept: session_entry.session.expiry > 0,
            stored: session_entry.session.row().is_some(),
            will: session_entry.session.will.as_ref().map_or(0, |will| will.size()),
        });
        let kept = self.granted_expiry(connect) > 0;
        let entrant = Entrant {
            client_id: client_id.len(),
            will: connect.will.as_ref().map_or(0, WillMessage::size),
            kept,
            stored: self.stored.is_some() && kept,
            held,
        };
        // 5.0 [MQTT-3.1.4-2]; 3.x says it as "server unavailable".
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
    // 5.0 [MQTT-3.1.4-3], [MQTT-3.1.2-4], [MQTT-3.1.2-5]; 3.1.1 [MQTT-3.1.4-2], [MQTT-3.1.2-4],
    // [MQTT-3.1.2-6]
    fn take_over(&mut self, now: Instant, id: SessionId, clean_start: bool) -> Option<SessionId> {
        let session_entry = self.sessions.get(id)?;
        // The old connection ends first, and with it a session that does not outlive it.
        let ends = session_entry.connection.is_some() && session_entry.session.ends_with_connection();
        let afresh = clean_start || ends;
        let ending = if afresh { Ending::TakenOverAfresh } else { Ending::TakenOverResumed };
        if let Some(old) = session_entry.connection {
            self.say_disconnect(old, ReasonCode::SESSION_TAKEN_OVER, None);
            let record = self.note_disconnected(now, old, Why::TakenOver);
            self.part(now, old, ending);
            self.keep_last_disconnect(now, record);
            self.begin_closing(now, old, Leaves::Broker);
        }
        if afresh {
            // The place of the session that begins, before that of this one is free: nobody else
            // gets it in between.
            self.shared.totals.sessions.add(1);
            self.end_session(now, id);
            return None;
        }
        let session_entry = self.sessions.get_mut(id)?;
        // 5.0 [MQTT-3.1.3-9]: a client that is back before its will delay ran out has no will to go
        // out; one that is back after it, before the expired deadline came, has.
        let is_due = session_entry.will_due <= now;
        let will = session_entry.session.will.take().filter(|_| is_due);
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
        connect: &Connect<'_>,
        assigned: Option<&str>,
        present: bool,
    ) {
        let keep_alive = self.granted_keep_alive(connect);
        let expiry = self.granted_expiry(connect);
        let mut connack = self.connack(connect, assigned, present, keep_alive, expiry);
        let client_id = assigned.unwrap_or(connect.client_id);
        let redelivery = self.rules.resolve(client_id, connect.user_name);
        if let Some(session_entry) = self.sessions.get_mut(session_id) {
            session_entry.session.sender.set_terms(redelivery);
        }
        let granted = self.take_connect_requests(session_id, connect);
        connack.properties.user_properties.extend(granted.iter().map(|(name, text)| (*name, text.as_str())));
        self.join(now, id, session_id, connect, (keep_alive, expiry));
        self.record_session(session_id);
        if self.is_stored(session_id) {
            self.fence_session(id, session_id);
        }
        let fits = self.put_connack(id, connack);
        let (publishes, releases) = if fits { self.resume(now, id, session_id) } else { (0, 0) };
        self.connected += 1;
        self.register_read_idle(id);
        self.after_session_change(now, session_id);
        self.set_presence(session_id, Presence::Online);
        if publishes + releases > 0 {
            self.report_return(now, id, publishes, releases);
        }
        self.note(Event::Connected {
            connection: id,
            client_id: client_id.into(),
            version: connect.version,
            clean_start: connect.clean_start,
            session_present: present,
            keep_alive_secs: keep_alive,
        });
        if !fits {
            let what = "the client's Maximum Packet Size is too small for a CONNACK";
            self.cut(now, id, None, Why::Violation(ReasonCode::PACKET_TOO_LARGE, what.into()));
        }
    }

    /// Joins connection and session: from here on each names the other. `keep_alive` and `expiry`
    /// are the granted seconds.
    fn join(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session_id: SessionId,
        connect: &Connect<'_>,
        (keep_alive, expiry): (u16, u32),
    ) {
        let Shard { connections, sessions, scratch, .. } = self;
        let Some(connection) = connections.get_mut(id) else { return };
        let Some(session_entry) = sessions.get_mut(session_id) else { return };
        connection.phase = Phase::Established;
        connection.session = Some(session_id);
        connection.keep_alive.start(keep_alive, now);
        let wire = &mut connection.wire;
        wire.outbox.lend(&mut scratch.pool);
        session_entry.connection = Some(id);
        session_entry.session.expiry = expiry;
        session_entry.session.version = connect.version;
        session_entry.session.will = connect.will.as_ref().map(|will| {
            Will {
                topic: will.topic.into(),
                qos: will.qos,
                retain: will.retain,
                payload: will.payload.into(),
                forwarded: will.forwarded.as_ref().into(),
                delay: Duration::from_secs(will.delay.into()),
                message_expiry: will.message_expiry,
                charge: Charge::NONE,
            }
            .shared()
        });
        session_entry.session.begin_ack_wait(wire);
    }

    /// Writes CONNACK, without its User Properties if the client's Maximum Packet Size does not
    /// allow them. Returns false if the client cannot take a CONNACK at all; then it gets none.
    // 5.0 [MQTT-3.2.2-20]
    fn put_connack(&mut self, id: ConnectionId, connack: Connack<'_>) -> bool {
        let Some(Connection { wire, .. }) = self.connections.get_mut(id) else { return false };
        let mut packet = Packet::Connack(Box::new(connack));
        if wire.put(&packet).is_ok() {
            return true;
        }
        match &mut packet {
            Packet::Connack(connack) if !connack.properties.user_properties.is_empty() => {
                connack.properties.user_properties.clear();
            }
            _ => return false,
        }
        wire.put(&packet).is_ok()
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

    /// Seconds of Keep Alive that hold.
    // 5.0 [MQTT-3.1.2-21], [MQTT-3.2.2-22]
    fn granted_keep_alive(&self, connect: &Connect<'_>) -> u16 {
        let maximum = self.settings.keep_alive_maximum;
        match connect.keep_alive {
            asked if maximum == 0 => asked,
            0 if connect.version.is_v5() || !self.settings.allow_never => maximum,
            // 3.x cannot be told of another value, so a client that names one keeps it.
            asked if connect.version.is_v5() => asked.min(maximum),
            asked => asked,
        }
    }

    /// Seconds of Session Expiry Interval that hold.
    fn granted_expiry(&self, connect: &Connect<'_>) -> u32 {
        let most = self.settings.session_expiry;
        if connect.version.is_v5() {
            return connect.properties.session_expiry.unwrap_or(0).min(most);
        }
        if connect.clean_start { 0 } else { most }
    }

    fn connack<'a>(
        &self,
        connect: &Connect<'a>,
        assigned: Option<&'a str>,
        present: bool,
        keep_alive: u16,
        expiry: u32,
    ) -> Connack<'a> {
        let mut properties = ConnackProperties::default();
        if connect.version.is_v5() {
            let settings = &self.settings;
            let receive_maximum = settings.session.receive_maximum;
            properties.assigned_client_id = assigned;
            properties.receive_maximum = (receive_maximum < u16::MAX).then_some(receive_maximum);
            properties.maximum_packet_size = Some(settings.packet_size);
            properties.topic_alias_maximum =
                (settings.topic_alias_maximum > 0).then_some(settings.topic_alias_maximum);
            properties.server_keep_alive = (keep_alive != connect.keep_alive).then_some(keep_alive);
            let asked = connect.properties.session_expiry.unwrap_or(0);
            properties.session_expiry = (expiry != asked).then_some(expiry);
        }
        Connack { session_present: present, reason: ReasonCode::SUCCESS, properties }
    }

    /// Answers a CONNECT that is not accepted, and closes.
    // 3.1.1 [MQTT-3.2.2-4], [MQTT-3.2.2-5]; 5.0 [MQTT-3.2.2-6], [MQTT-3.2.2-7]
    fn refuse(&mut self, now: Instant, id: ConnectionId, client_id: &str, refusal: &ConnectRefusal) {
        let Shard { connections, scratch, .. } = self;
        if let Some(Connection { wire, .. }) = connections.get_mut(id) {
            let answer = wire.version.is_v5() || ConnectReturnCode::from_reason(refusal.reason).is_some();
            if answer {
                wire.outbox.lend(&mut scratch.pool);
                let connack = |reason_string| {
                    let properties = ConnackProperties { reason_string, ..Default::default() };
                    let reason = refusal.reason;
                    Packet::Connack(Box::new(Connack { session_present: false, reason, properties }))
                };
                // 5.0 [MQTT-3.2.2-19]; a client that cannot take even the bare packet gets none.
                let text = wire.version.is_v5().then_some(refusal.what);
                let _ = wire.put(&connack(text)).or_else(|_| wire.put(&connack(None)));
            }
        }
        self.begin_closing(now, id, Leaves::Broker);
        self.counters.refused_connects += u64::from(refusal.reason == ReasonCode::QUOTA_EXCEEDED);
        self.note(Event::Refused {
            connection: id,
            client_id: Some(client_id.into()),
            reason: refusal.reason,
            what: refusal.what.into(),
        });
    }

    /// What came is no CONNECT.
    // 3.1.1 [MQTT-3.1.4-1], [MQTT-3.1.2-2]; 5.0 [MQTT-3.1.4-1]
    pub(super) fn refuse_undecodable(&mut self, now: Instant, id: ConnectionId, error: &DecodeError) {
        if let Some(connack) = error.connack()
            && let Some(connection) = self.connections.get_mut(id)
        {
            connection.wire.outbox.buffer().extend_from_slice(connack);
        }
        self.begin_closing(now, id, Leaves::Broker);
        self.note(Event::Refused {
            connection: id,
            client_id: None,
            reason: error.reason_code(),
            what: error.to_string().into(),
        });
    }
}
