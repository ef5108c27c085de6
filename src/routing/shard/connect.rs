//! CONNECT: refusal, take-over, the session it finds or begins, CONNACK.

use super::admission::{Change, Entrant, Held};
use super::connection::{Connection, Leaves, Phase};
use super::effects::{Event, Why};
use super::receive::Flow;
use super::{ConnectionId, Resident, SessionId, Shard};
use crate::expiry::lazy::Registered;
use crate::mqtt::charge::Charge;
use crate::mqtt::codec::DecodeError;
use crate::mqtt::keyed::Keyed;
use crate::mqtt::packet::{
    Connack, ConnackProperties, Connect, ConnectReturnCode, Packet, ProtocolVersion, ReasonCode,
};
use crate::mqtt::session::Session;
use crate::mqtt::session::will::{Ending, Will};
use crate::routing::shared::Presence;
use crate::routing::subscription_tree::ShardId;
use crate::time::Instant;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

/// The shard where sessions of this client live, of `shards`.
pub fn home_of(client_id: &str, shards: u8) -> ShardId {
    if shards <= 1 {
        return ShardId(0);
    }
    // The same in every run; who makes ids that live in one shard gains no more than that shard's clients lose.
    let hash = foldhash::quality::FixedState::with_seed(0x484F_4D49_4E47).hash_one(client_id);
    ShardId((hash % u64::from(shards)) as u8)
}

/// For tables of this process.
pub(super) fn hash(client_id: &str) -> u64 {
    Keyed.hash_one(client_id)
}

/// Why a CONNECT is not accepted.
struct Refusal {
    reason: ReasonCode,
    what: &'static str,
}

impl Shard {
    pub(super) fn connect(&mut self, now: Instant, id: ConnectionId, connect: &Connect<'_>) -> Flow {
        let assigned = connect.client_id.is_empty().then(|| self.assign_client_id());
        let client_id = assigned.as_deref().unwrap_or(connect.client_id);
        let home = home_of(client_id, self.shards);
        if home != self.here {
            return Flow::Home(home);
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
            self.fence(id);
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
            if home_of(&id, self.shards) == self.here && self.client_slot(&id).is_none() {
                return id;
            }
        }
    }

    fn client_slot(&self, client_id: &str) -> Option<u32> {
        let sessions = &self.sessions;
        let same = |slot: &u32| sessions.at(*slot).is_some_and(|(_, r)| &*r.session.client_id == client_id);
        self.clients.find(hash(client_id), same).copied()
    }

    /// The session of a client; one whose time is up is ended first, though its verdict has not come yet.
    // 5.0 [MQTT-4.1.0-2]
    fn find_client(&mut self, now: Instant, client_id: &str) -> Option<SessionId> {
        let slot = self.client_slot(client_id)?;
        let (id, resident) = self.sessions.at(slot)?;
        if resident.ends <= now {
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
    ) -> Result<(), Refusal> {
        let refuse = |reason, what| Err(Refusal { reason, what });
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
        let held = existing.and_then(|session| self.sessions.get(session)).map(|resident| Held {
            stored: resident.session.account().is_some(),
            will: resident.session.will.as_ref().map_or(0, |will| will.size()),
        });
        let entrant = Entrant {
            client_id: client_id.len(),
            will: connect.will.as_ref().map_or(0, |w| w.topic.len() + w.payload.len() + w.forwarded.len()),
            stored: self.stored.is_some() && self.granted_expiry(connect) > 0,
            held,
        };
        // 5.0 [MQTT-3.1.4-2]; 3.x says it as "server unavailable".
        if let Err(want) = self.admits(Change::Connect(entrant)) {
            return refuse(ReasonCode::QUOTA_EXCEEDED, want.text());
        }
        // Last: a place that is taken is used.
        if existing.is_none() && !self.common.totals.sessions.take(1, self.settings.sessions) {
            return refuse(ReasonCode::QUOTA_EXCEEDED, "limits.sessions is reached");
        }
        Ok(())
    }

    /// Parts a session from the connection it has, and ends it where it is to begin afresh. Answers the session to
    /// resume, if any.
    // 5.0 [MQTT-3.1.4-3], [MQTT-3.1.2-4], [MQTT-3.1.2-5]; 3.1.1 [MQTT-3.1.4-2], [MQTT-3.1.2-4], [MQTT-3.1.2-6]
    fn take_over(&mut self, now: Instant, id: SessionId, clean_start: bool) -> Option<SessionId> {
        let resident = self.sessions.get(id)?;
        // The old connection ends first, and with it a session that does not outlive it.
        let ends = resident.connection.is_some() && resident.session.ends_with_connection();
        let afresh = clean_start || ends;
        let ending = if afresh { Ending::TakenOverAfresh } else { Ending::TakenOverResumed };
        if let Some(old) = resident.connection {
            self.say_disconnect(old, ReasonCode::SESSION_TAKEN_OVER, None);
            let record = self.note_disconnected(now, old, Why::TakenOver);
            self.part(now, old, ending);
            self.keep_last_disconnect(now, record);
            self.begin_closing(now, old, Leaves::Broker);
        }
        if afresh {
            // The place of the session that begins, before that of this one is free: nobody else gets it in between.
            self.common.totals.sessions.add(1);
            self.end_session(now, id);
            return None;
        }
        let resident = self.sessions.get_mut(id)?;
        // 5.0 [MQTT-3.1.3-9]: a client that is back before its will delay ran out has no will to go out; one that is back
        // after it, before the verdict came, has.
        let is_due = resident.will_due <= now;
        let will = resident.session.will.take().filter(|_| is_due);
        resident.will_due = Instant::NEVER;
        resident.ends = Instant::NEVER;
        self.publish_will(now, id, will);
        Some(id)
    }

    fn begin_session(&mut self, client_id: &str) -> SessionId {
        self.insert_session(Resident {
            session: Session::new(client_id, 0, Arc::clone(self.rules.nobody())),
            connection: None,
            ends: Instant::NEVER,
            will_due: Instant::NEVER,
            held: None,
            registered: Registered::default(),
        })
    }

    /// Takes in a session whose client has none here.
    pub(super) fn insert_session(&mut self, resident: Resident) -> SessionId {
        let hashed = hash(&resident.session.client_id);
        let id = self.sessions.insert(resident);
        let sessions = &self.sessions;
        let rehash = |slot: &u32| sessions.at(*slot).map_or(0, |(_, r)| hash(&r.session.client_id));
        self.clients.insert_unique(hashed, id.slot, rehash);
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
        let terms = self.rules.resolve(client_id, connect.user_name);
        if let Some(resident) = self.sessions.get_mut(session_id) {
            resident.session.sender.set_terms(terms);
        }
        let granted = self.learn_wishes(session_id, connect);
        connack.properties.user_properties.extend(granted.iter().map(|(name, text)| (*name, text.as_str())));
        let Shard { connections, sessions, pool, .. } = self;
        let Some(connection) = connections.get_mut(id) else { return };
        let Some(resident) = sessions.get_mut(session_id) else { return };
        connection.phase = Phase::Established;
        connection.session = Some(session_id);
        connection.keep_alive.start(keep_alive, now);
        let wire = &mut connection.wire;
        wire.outbox.lend(pool);
        resident.connection = Some(id);
        resident.session.expiry = expiry;
        resident.session.version = connect.version;
        resident.session.will = connect.will.as_ref().map(|will| {
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
        resident.session.begin_patience(wire);
        self.record_session(session_id);
        if self.is_stored(session_id) {
            self.fence_session(id, session_id);
        }
        let Shard { connections, sessions, settings, tally, .. } = self;
        let Some(Connection { wire, .. }) = connections.get_mut(id) else { return };
        let Some(resident) = sessions.get_mut(session_id) else { return };
        let policy = &settings.session.send;
        // A client whose Maximum Packet Size cannot take its CONNACK is left without one.
        let mut packet = Packet::Connack(Box::new(connack));
        let mut fits = wire.put(&packet).is_ok();
        if let Packet::Connack(connack) = &mut packet
            && !fits
            && !granted.is_empty()
        {
            // 5.0 [MQTT-3.2.2-20]
            connack.properties.user_properties.clear();
            fits = wire.put(&packet).is_ok();
        }
        let before = tally.redelivered;
        let mut releases = 0;
        if fits {
            resident.session.sender.resume(now, wire, tally);
            releases = tally.redelivered - before;
            resident.session.sender.pump(now, wire, policy, tally);
        }
        let publishes = tally.redelivered - before - releases;
        self.connected += 1;
        self.settle_losses(session_id);
        self.admit_held(now, session_id);
        self.touch(id);
        self.register_read_idle(id);
        self.register_retransmit(now, id);
        self.fetch(session_id);
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
    fn refuse(&mut self, now: Instant, id: ConnectionId, client_id: &str, refusal: &Refusal) {
        let Shard { connections, pool, .. } = self;
        if let Some(Connection { wire, .. }) = connections.get_mut(id) {
            let answer = wire.version.is_v5() || ConnectReturnCode::from_reason(refusal.reason).is_some();
            if answer {
                wire.outbox.lend(pool);
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
        self.tally.refused_connects += u64::from(refusal.reason == ReasonCode::QUOTA_EXCEEDED);
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
