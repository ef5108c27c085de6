//! The session of an accepted CONNECT: the take-over of a connection, the return to a session or a
//! new one, CONNACK, and what was in flight.

use crate::access::grant::SessionRules;
use crate::access::identity::Identity;
use crate::events::client_counts::SessionEnd;
use crate::events::client_events::{DisconnectCause, Occurrence};
use crate::login::acl_files::RuleSource;
use crate::login::pending_exchange::EnhancedProof;
use crate::mqtt::codec::PacketType;
use crate::mqtt::packet::{Connack, ReasonCode};
use crate::routing::shared_group::Presence;
use crate::session::Session;
use crate::session::authentication::EnhancedMethod;
use crate::session::connect::{self, ConnectRefusal, Negotiated};
use crate::session::inbound::AnnouncedLimits;
use crate::session::outbound::retry::Outlives;
use crate::session::packet_counts::RedeliveryCounts;
use crate::session::will::{Ending, take_at_return};
use crate::shard::Shard;
use crate::shard::clients::connect::ConnectRequest;
use crate::shard::clients::connection::Leaves;
use crate::shard::clients::rates;
use crate::shard::clients::session_entry::SessionEntry;
use crate::shard::clients::will_publication::DueWill;
use crate::shard::core::Core;
use crate::shard::features::redelivery_request::take_connect_requests;
use crate::shard::rules::access_change::QueueCheck;
use crate::shard::rules::mounted;
use crate::slots::{ConnectionId, SessionId};
use crate::time::Instant;
use std::sync::Arc;

/// The parts of CONNACK that are not negotiated.
pub(super) struct ConnackTerms<'a> {
    /// The client identifier that the broker chose; `None` if the client chose one.
    pub(super) assigned: Option<&'a str>,
    /// Session Present.
    pub(super) present: bool,
    /// The result of an exchange of AUTH packets.
    pub(super) proof: Option<EnhancedProof>,
}

impl ConnectRequest<'_> {
    /// Gives the session its user and rules, and the connection the end of its credentials. The
    /// queue of a resumed session is checked by the new rules before it is sent.
    pub(super) fn grant(
        &self,
        session_id: SessionId,
        resumed: Option<SessionId>,
        (user, rules, ends): (Option<Arc<Identity>>, Option<SessionRules>, Instant),
        shard: &mut Shard,
    ) {
        let Core { sessions, access, connections, .. } = &mut shard.core;
        if let Some(rules) = &rules {
            access.note_own_rules(rules);
        }
        if let Some(session_entry) = sessions.get_mut(session_id) {
            session_entry.set_user(user);
            session_entry.set_own_rules(rules);
            if let Some(connection) = connections.get(self.connection) {
                session_entry.set_rule_source(RuleSource::of_newcomer(&connection.listener));
            }
            if resumed.is_none() && access.are_on() {
                session_entry.begin_access(access);
            }
        }
        if let Some(connection) = connections.get_mut(self.connection) {
            connection.set_end(ends);
        }
        if resumed.is_some() {
            QueueCheck { now: self.now, session: session_id }.begin(Some(self.connection), shard);
        }
    }

    /// Takes over a session: closes its old connection, if there is one. The newest connection of a
    /// client identifier stays, whatever the older one has in flight. Returns the session if it is
    /// resumed. Returns `None` if it ended, because the client asked for a new one or because it
    /// ended with its old connection.
    pub(super) fn take_over(&self, session: SessionId, shard: &mut Shard) -> Option<SessionId> {
        let ConnectRequest { now, connection: id, connect, .. } = *self;
        let is_of_another = mounted::is_of_another(id, session, &mut shard.core);
        let session_entry = shard.core.sessions.get(session)?;
        let old_session = match session_entry.connection {
            Some(_) => session_entry.session.outlives(),
            None => Outlives::Yes,
        };
        let ending = match is_of_another {
            true => Ending::TakenOverAfresh,
            false => connect::end_of_old(connect, old_session),
        };
        if let Some(old) = session_entry.connection {
            shard.core.write_disconnect(old, ReasonCode::SESSION_TAKEN_OVER, None);
            shard.core.note_disconnected(now, old, DisconnectCause::TakenOver);
            shard.detach_session(now, old, ending);
            shard.core.begin_closing(now, old, Leaves::Broker);
        }
        if ending == Ending::TakenOverAfresh {
            // Counts the new session before the old one is given back. Otherwise another shard
            // could take the place in between, and the client that was admitted would exceed
            // `limits.sessions`.
            shard.core.shared.totals.sessions.add(1);
            shard.end_session(now, session, SessionEnd::CleanStart);
            return None;
        }
        let session_entry = shard.core.sessions.get_mut(session)?;
        // When the client comes back, a delayed will is discarded. A will that is due already is
        // published, even if the expiry actor has not reported it yet.
        let due = session_entry.will_due();
        let will = take_at_return(&mut session_entry.session.will, now, due);
        session_entry.set_will_due(Instant::NEVER);
        session_entry.ends = Instant::NEVER;
        shard.core.figures.counts.sessions_resumed += 1;
        DueWill::publish_for(now, session, will, shard);
        Some(session)
    }

    /// Adds an empty session without a connection. [`Self::establish`] sets its terms.
    pub(super) fn begin_session(&self, client_id: &str, core: &mut Core) -> SessionId {
        core.figures.counts.sessions_created += 1;
        let session = Session::new(client_id, 0, Arc::clone(core.sessions.rules().nobody()));
        let mut entry = SessionEntry::new(session, Instant::NEVER, Instant::NEVER);
        core.turn.spend_globs(entry.find_objectives(&core.counters.objectives));
        core.sessions.insert(entry)
    }

    /// Joins connection and session, writes CONNACK, and sends the messages that were in flight or
    /// queued.
    ///
    /// The order matters. The session is recorded first, so that the outbox can hold CONNACK until
    /// that record is committed. If the store is full, CONNACK waits only for the last complete
    /// record of the session. CONNACK is put into the outbox before the resends, because it must be
    /// the first packet that the client gets. Packets behind CONNACK wait with it.
    pub(super) fn establish(
        &self,
        session_id: SessionId,
        negotiated: &Negotiated,
        terms: &ConnackTerms<'_>,
        shard: &mut Shard,
    ) {
        let ConnectRequest { now, connection: id, connect, .. } = *self;
        let ConnackTerms { assigned, present, ref proof } = *terms;
        let client_id = assigned.unwrap_or(connect.client_id);
        let user = shard.core.sessions.get(session_id).and_then(|entry| entry.user().cloned());
        let name = shard.core.access.name_in_redelivery_rules(user.as_deref());
        let redelivery = shard.core.sessions.redelivery_of(client_id, name);
        let mount_point = mounted::mount_point_of(id, &shard.core);
        if let Some(session_entry) = shard.core.sessions.get_mut(session_id) {
            session_entry.set_mount_point(mount_point);
            session_entry.session.sender.set_redelivery(redelivery);
        }
        let granted = take_connect_requests(session_id, connect, &mut shard.core);
        let receive_maximum = receive_maximum(id, &shard.core);
        let mut connack = negotiated.connack(connect, receive_maximum, assigned);
        connack.session_present = present;
        tell_proof(&mut connack, proof.as_ref());
        connack.properties.user_properties.extend(granted.iter().map(|(name, text)| (*name, text.as_str())));
        shard.bans.count_connect(now, session_id, &mut shard.core);
        let host = shard.core.connections.get(id).and_then(|connection| connection.rare()?.host);
        self.join(session_id, negotiated, proof.as_ref().map(|proof| proof.method), &mut shard.core);
        if shard.core.settings.rates.is_some() {
            rates::begin(now, id, host, &mut shard.core);
        }
        shard.core.record_session(session_id);
        if shard.core.sessions.is_stored(session_id) {
            shard.core.gate_connack(id, session_id);
        }
        // 3.1.1 [MQTT-3.2.0-1]; 5.0 [MQTT-3.2.0-1]: the server sends CONNACK before any other
        // packet.
        shard.core.write(id, |wire, counters| {
            let fits = wire.put_connack(connack);
            debug_assert!(fits, "checked before the take-over");
            counters.packets_sent.add(PacketType::Connack, u64::from(fits));
        });
        let (publishes, releases) = self.resume(&mut shard.core);
        shard.core.connections.count_established();
        shard.core.connections.register_read_idle(id, &mut shard.core.effects);
        shard.after_session_change(now, session_id);
        shard.routes.set_presence(session_id, Presence::Online, &mut shard.core);
        let connected = Occurrence::Connected {
            clean_start: connect.clean_start,
            session_present: present,
            keep_alive_secs: negotiated.keep_alive_secs,
        };
        shard.core.note_of(session_id, connected, None);
        shard.core.note_return(now, session_id, publishes, releases);
    }

    /// Checks that the client can take its CONNACK. A client that cannot must not end the older
    /// connection of its session, whose will would be published.
    ///
    /// # Errors
    /// The refusal.
    // 5.0 [MQTT-3.1.2-7]
    pub(super) fn check_connack(
        &self,
        negotiated: &Negotiated,
        assigned: Option<&str>,
        proof: Option<&EnhancedProof>,
        core: &mut Core,
    ) -> Result<(), ConnectRefusal> {
        let ConnectRequest { connection: id, connect, .. } = *self;
        // Any other client takes a CONNACK of any length.
        if negotiated.limits.maximum_packet_size.is_none() {
            return Ok(());
        }
        let mut connack = negotiated.connack(connect, receive_maximum(id, core), assigned);
        tell_proof(&mut connack, proof);
        // The connection has ended, which never happens here.
        let Some(connection) = core.connections.get_mut(id) else { return Ok(()) };
        connection.wire.check_connack(connack)
    }

    /// Joins connection and session. From here on each has the identifier of the other.
    fn join(
        &self,
        session_id: SessionId,
        negotiated: &Negotiated,
        method: Option<EnhancedMethod>,
        core: &mut Core,
    ) {
        let ConnectRequest { now, connection: id, connect, .. } = *self;
        let receive_maximum = receive_maximum(id, core);
        let Core { connections, sessions, .. } = &mut *core;
        // Both are there: CONNECT has just been accepted, and its session found or begun.
        let (Some(connection), Some(session_entry)) = (connections.get_mut(id), sessions.get_mut(session_id))
        else {
            return;
        };
        connection.accept_connect(now, connect);
        connection.method = method;
        connection.packet_size = negotiated.bounds.packet_size;
        connection.refuses_retain = negotiated.version.is_v5() && !negotiated.bounds.retain_available;
        connection.end_connect();
        connection.session = Some(session_id);
        connection.keep_alive.start(negotiated.keep_alive_secs, now);
        let wire = &mut connection.wire;
        session_entry.connection = Some(id);
        session_entry.session.receiver.begin_connection(AnnouncedLimits {
            receive_maximum,
            topic_alias_maximum: negotiated.bounds.topic_alias_maximum,
        });
        negotiated.begin_connection(&mut session_entry.session, connect, wire);
    }

    /// Sends the PUBREL packets again, then the PUBLISH packets that were in flight, then as much
    /// of the queue as window and outbox take. Returns the numbers of PUBLISH and PUBREL packets
    /// that were sent again.
    fn resume(&self, core: &mut Core) -> (u64, u64) {
        let ConnectRequest { now, connection: id, .. } = *self;
        // The caller has joined the connection and the session.
        let Some(mut client) = core.client(id) else { return (0, 0) };
        let RedeliveryCounts { returned_publishes, returned_releases, .. } = client.counters.redelivered;
        let before = client.begin_write();
        client.entry.session.sender.resume(now, &mut client.connection.wire, client.counters);
        client.end_write(before);
        client.pump(now);
        let redelivered = &client.counters.redelivered;
        let sent_again = (
            redelivered.returned_publishes - returned_publishes,
            redelivered.returned_releases - returned_releases,
        );
        core.spend_senders();
        sent_again
    }
}

/// Adds the result of an exchange of AUTH packets to CONNACK.
// 5.0 [MQTT-4.12.0-5]; without a method [MQTT-4.12.0-6]
fn tell_proof<'a>(connack: &mut Connack<'a>, proof: Option<&'a EnhancedProof>) {
    if let Some(EnhancedProof { method, data }) = proof {
        connack.properties.authentication_method = Some(method.name());
        connack.properties.authentication_data = (!data.is_empty()).then_some(data);
    }
}

/// Returns the most unfinished messages that a client may send.
fn receive_maximum(id: ConnectionId, core: &Core) -> u16 {
    let of_listener = core.connections.get(id).and_then(|connection| connection.listener.receive_maximum);
    of_listener.unwrap_or(core.settings.session.receive_maximum)
}
