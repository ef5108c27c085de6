//! A PUBLISH from a client: may it in, what is it called, where does it go, what is its publisher
//! told.

use crate::mqtt::message::Parts;
use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::{PacketId, Publish, QoS, ReasonCode};
use crate::mqtt::topic::levels;
use crate::persistence::records::{SessionKey, stored_bytes};
use crate::persistence::rows::Body;
use crate::routing::retained;
use crate::routing::subscription_tree::{SessionSlot, ShardSet};
use crate::session::drops::DropReason;
use crate::session::inbound::{AckToken, Due};
use crate::session::topic_alias::IncomingAliases;
use crate::session::{Admitted, Session, Violation, publish_refusal};
use crate::shard::Shard;
use crate::shard::admission::{Change, Want};
use crate::shard::connection::{Connection, Pause};
use crate::shard::durability::gates::{Early, Waits, early};
use crate::shard::exchange::outbound::Gate;
use crate::shard::fan_out::{MatchedReceivers, PublicationOrigin};
use crate::shard::features::delayed::is_delayed;
use crate::shard::features::redelivery_request::RequestedTimes;
use crate::shard::receive::Flow;
use crate::shard::route::{Publication, Routed};
use crate::shard::slots::{ConnectionId, SessionId};
use crate::time::Instant;
use std::rc::Rc;
use std::time::Duration;

/// Topics that are the broker's own: what a client publishes there is acknowledged or refused,
/// dropped and counted.
#[inline]
pub(super) fn is_reserved(topic: &str) -> bool {
    topic.starts_with('$') && is_own(topic)
}

#[cold]
fn is_own(topic: &str) -> bool {
    ["$SYS", "$dead", "$homing", "$delayed", "$share"]
        .iter()
        .any(|own| topic.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

/// When a message whose expiry interval is `secs` runs out.
pub(super) fn expires(now: Instant, secs: Option<u32>) -> Instant {
    secs.map_or(Instant::NEVER, |secs| now + Duration::from_secs(secs.into()))
}

fn own<'a>(topic: &'a str, payload: &'a [u8], retain: bool) -> Parts<'a> {
    let (qos, expires) = (QoS::AtMostOnce, Instant::NEVER);
    Parts { qos, retain, expires, topic, forwarded: &[], payload }
}

/// What became of the part of a PUBLISH that is to be retained.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetainedUpdate {
    /// The store will have it, or its end, and its publisher therefore waits.
    pub waits: bool,
    /// False: there was no room for it.
    pub kept: bool,
}

/// A client's PUBLISH that is being routed.
#[derive(Debug)]
pub(super) struct Published {
    pub connection: ConnectionId,
    /// Its acknowledgement.
    token: Option<(SessionId, AckToken)>,
    /// The identifier that is taken over with it.
    incoming: Option<(SessionKey, PacketId)>,
    /// Whether its acknowledgement waits for the store, whoever receives it.
    waits: bool,
    qos: QoS,
    /// Whether it made dead letters in a turn before.
    pub dead_letters: bool,
}

/// Returns the bytes of the message that a PUBLISH to `topic` makes: topic, payload and forwarded
/// properties. The topic is an argument, because an alias may stand for it in the packet.
fn message_bytes(publish: &Publish<'_>, topic: &str) -> usize {
    topic.len() + publish.payload.len() + publish.properties.forwarded.len()
}

impl Shard {
    /// Takes a PUBLISH of an established connection.
    pub(super) fn take_publish(&mut self, now: Instant, id: ConnectionId, publish: &Publish<'_>) -> Flow {
        if publish.properties.topic_alias.is_some()
            && let Err(violation) = self.resolve_topic_alias(id, publish)
        {
            self.fail(now, id, violation);
            return Flow::Closed;
        }
        let Shard { connections, sessions, settings, scratch, .. } = self;
        let Some(connection) = connections.get_mut(id) else { return Flow::Closed };
        // `decode_connect` gives no PUBLISH, so there is one.
        let Some(session) = connection.session else { return Flow::Closed };
        let Some(session_entry) = sessions.get_mut(session) else { return Flow::Closed };
        connection.wire.outbox.lend(&mut scratch.pool);
        let before = connection.wire.outbox.len();
        let admitted = session_entry.session.admit(publish, &mut connection.wire, &settings.session);
        if admitted != Admitted::ToRoute {
            return self.answered(now, id, admitted, before);
        }
        self.received += 1;
        if !publish.topic.is_empty() {
            return self.publish_named(now, id, session, publish, publish.topic);
        }
        let topic = std::mem::take(&mut self.scratch.topic);
        let flow = self.publish_named(now, id, session, publish, &topic);
        self.scratch.topic = topic;
        flow
    }

    /// Ends a PUBLISH that is not routed, because it came before or breaks a rule. `before` is the
    /// length of the outbox before it.
    #[cold]
    fn answered(&mut self, now: Instant, id: ConnectionId, admitted: Admitted, before: usize) -> Flow {
        let Some(connection) = self.connections.get_mut(id) else { return Flow::Closed };
        let appended = connection.wire.outbox.len().saturating_sub(before);
        if appended > 0 {
            self.unflushed += appended;
            self.turn.charge_bytes(appended);
            connection.mark_dirty(id, &mut self.effects.dirty);
        }
        if let Admitted::Fail(violation) = admitted {
            self.fail(now, id, violation);
            return Flow::Closed;
        }
        Flow::Continue
    }

    /// Resolves or sets the Topic Alias, of a PUBLISH that will not be routed too: a repeated one
    /// may be the first on its connection to set it. The shard's `topic` is filled where the packet
    /// has none.
    pub(super) fn resolve_topic_alias(
        &mut self,
        id: ConnectionId,
        publish: &Publish<'_>,
    ) -> Result<(), Violation> {
        let Some(alias) = publish.properties.topic_alias else { return Ok(()) };
        let own = self.connections.get(id).and_then(|c| c.rare()).and_then(|rare| rare.aliases.as_deref());
        if IncomingAliases::grow(own, alias, publish.topic) {
            self.admits(Change::Alias).map_err(Want::violation)?;
        }
        let maximum = self.settings.session.connect.topic_alias_maximum;
        let Some(connection) = self.connections.get_mut(id) else { return Ok(()) };
        let aliases =
            connection.rare_mut().aliases.get_or_insert_with(|| Box::new(IncomingAliases::new(maximum)));
        if let Some(name) = aliases.resolve(alias, publish.topic)? {
            self.scratch.topic.clear();
            self.scratch.topic.push_str(name);
        }
        Ok(())
    }

    fn publish_named(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session: SessionId,
        publish: &Publish<'_>,
        topic: &str,
    ) -> Flow {
        if is_delayed(topic) {
            return self.publish_later(now, id, session, publish, topic);
        }
        if let Some(refusal) = self.refusal(publish, topic) {
            return self.refuse_or_grant(now, id, session, publish, topic, refusal);
        }
        let parts = Parts {
            qos: publish.qos,
            retain: publish.retain,
            expires: expires(now, publish.properties.message_expiry),
            topic,
            forwarded: &publish.properties.forwarded,
            payload: publish.payload,
        };
        let publisher = self.dead_letters.keep_publisher().then(|| self.publisher_name(session));
        let mut publication = Publication::new(parts, Some(SessionSlot(session.slot)), self.here);
        publication.publisher_name = publisher.as_deref().unwrap_or_default();
        let flow = self.publish_admitted(now, id, session, publish, &mut publication);
        if let Some(name) = publisher {
            self.scratch.publisher = name;
        }
        flow
    }

    /// Retains it, routes it, and answers its publisher.
    fn publish_admitted(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session: SessionId,
        publish: &Publish<'_>,
        publication: &mut Publication<'_>,
    ) -> Flow {
        let incoming = self.take_over_incoming(session, publish);
        let mut waits = incoming.is_some();
        publication.atomic = waits;
        let mut told = None;
        if publish.retain {
            let retaining = self.retain(now, publication);
            waits |= retaining.waits;
            let tells = !retaining.kept && self.connections.get(id).is_some_and(|c| c.version().is_v5());
            told = tells.then_some(ReasonCode::QUOTA_EXCEEDED);
            // An error in PUBREC says that nobody has the message: it may come again under another
            // identifier, and must not reach anybody twice. At QoS 1 it may, and whoever is
            // subscribed has it now.
            if let Some(reason) = told.filter(|_| publish.qos == QoS::ExactlyOnce) {
                return self.refuse_publish(now, id, session, publish, reason, None);
            }
        }
        let token = self.next_token(session, publish);
        publication.gate = token.map(|(session, token)| Gate::Here { session, token });
        let mut matches = self.router.take_matches();
        let matched = self.match_at_once(publication.parts.topic, &mut matches);
        let of = Published { connection: id, token, incoming, waits, qos: publish.qos, dead_letters: false };
        if matched != MatchedReceivers::All {
            self.fan_out(publication, matched, matches, PublicationOrigin::Client(of));
            self.publish_on(now, id, session, publish, told);
            return Flow::Continue;
        }
        let mut routed = self.route_matched(now, publication, &mut matches);
        self.router.give_back_matches(matches);
        // Nearly always nothing of it was recorded, and nothing ends.
        if waits || publication.body.is_some() || publication.transaction.is_some() || self.has_dead_letters()
        {
            routed.gates += self.end_publish(&of, publication, &routed);
        }
        if !routed.full.is_empty() {
            self.wait_for_peers(now, id, routed.full);
        }
        // Its own message may have ended the publisher's connection.
        let parted = self.connections.get(id).is_none_or(|c| c.session != Some(session));
        if parted {
            return Flow::Closed;
        }
        self.answer_publisher(now, id, session, publish, routed, told);
        Flow::Continue
    }

    /// Ends the transaction of a routed PUBLISH. Returns how many gates more its acknowledgement
    /// waits for.
    fn end_publish(&mut self, of: &Published, publication: &mut Publication<'_>, routed: &Routed) -> u32 {
        self.end_transaction(publication, routed.outcome, of.incoming);
        // Refused by all, and nobody is asked any more: nothing is taken over, so its identifier is
        // not either. It ends in the batch that it began in.
        let refused = routed.gates == 0 && routed.outcome.reason().is_error();
        // A refused message may be a dead letter now, which goes out with this batch.
        let dead_letters = of.incoming.is_none() && (of.dead_letters || self.has_dead_letters());
        // What is retained of it stays so, though nobody took it.
        let retained = of.waits && of.incoming.is_none();
        if !dead_letters && !retained && (refused || !(of.waits || publication.body.is_some())) {
            return 0;
        }
        let early = !of.waits && !dead_letters && early(of.qos) == Early::Yes;
        self.gate_publisher(of.token, publication.body.as_ref().filter(|_| early))
    }

    /// The PUBLISH goes on in later turns: its acknowledgement waits for that as for a gate, and
    /// its connection is not read.
    fn publish_on(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session: SessionId,
        publish: &Publish<'_>,
        told: Option<ReasonCode>,
    ) {
        if let Some(packet_id) = publish.packet_id {
            self.settle(now, id, session, |receiver| {
                receiver.wait(packet_id, publish.qos, Outcome::Unmatched, 1, told);
                None
            });
        }
        if let Some(connection) = self.connections.get_mut(id) {
            connection.pause(Pause::Work, now);
        }
    }

    /// Such a PUBLISH is through; `known`: the gates that are expected already.
    pub(super) fn published(
        &mut self,
        now: Instant,
        of: &Published,
        publication: &mut Publication<'_>,
        routed: Routed,
        known: u32,
    ) {
        if (publication.body.is_some() || of.dead_letters || of.waits)
            && let Some(write_buffer) = self.write_buffer()
        {
            // What it waits for may be in batches before: then this one has nothing yet that would
            // have it sealed.
            write_buffer.begin();
        }
        let gates = routed.gates + self.end_publish(of, publication, &routed);
        self.expect(of, gates - known);
        if !routed.full.is_empty() {
            self.wait_for_peers(now, of.connection, routed.full);
        }
        if let Some((session, token)) = of.token {
            self.gate_answered(now, session, token, routed.outcome);
        }
        self.unpause(now, of.connection, Pause::Work);
    }

    /// The acknowledgement waits for so many gates more.
    pub(super) fn expect(&mut self, of: &Published, gates: u32) {
        if let Some((session, token)) = of.token
            && let Some(session_entry) = self.sessions.get_mut(session)
        {
            session_entry.session.receiver.expect(token, gates);
        }
    }

    /// Which of the publisher's acknowledgements this one's will be, if it gets one.
    fn next_token(&self, session: SessionId, publish: &Publish<'_>) -> Option<(SessionId, AckToken)> {
        publish.packet_id?;
        Some((session, self.sessions.get(session)?.session.receiver.next_token()))
    }

    /// The acknowledgement waits for the store; `early`: or until all who are owed this have
    /// finished with it. Answers for how many gates more it waits.
    fn gate_publisher(&mut self, token: Option<(SessionId, AckToken)>, early: Option<&Rc<Body>>) -> u32 {
        let (Some((session, token)), Some(stored)) = (token, &mut self.stored) else { return 0 };
        let (gate, outcome) = (Gate::Here { session, token }, Outcome::Unmatched);
        stored.gate(Waits::Publisher { gate, outcome }, early);
        1
    }

    /// Acknowledges a PUBLISH, now or when its gates have answered. `told`: what it is told in
    /// place of what became of it.
    fn answer_publisher(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session: SessionId,
        publish: &Publish<'_>,
        routed: Routed,
        told: Option<ReasonCode>,
    ) {
        let Some(packet_id) = publish.packet_id else { return };
        let due = self.settle(now, id, session, |receiver| match (routed, told) {
            (Routed { gates: 0, .. }, Some(reason)) => receiver.refuse(packet_id, publish.qos, reason),
            (Routed { gates: 0, outcome, .. }, None) => receiver.routed(packet_id, publish.qos, outcome),
            (Routed { gates, outcome, .. }, told) => {
                receiver.wait(packet_id, publish.qos, outcome, gates, told);
                None
            }
        });
        self.acknowledge(id, due);
    }

    /// A QoS 2 PUBLISH from a stored session: its identifier is recorded with all that it leads to.
    /// Answers which.
    fn take_over_incoming(
        &self,
        session: SessionId,
        publish: &Publish<'_>,
    ) -> Option<(SessionKey, PacketId)> {
        let packet_id = publish.packet_id.filter(|_| publish.qos == QoS::ExactlyOnce)?;
        let row = self.sessions.get(session)?.session.row()?;
        row.incoming(packet_id);
        Some((row.key, packet_id))
    }

    /// The client id of a publisher, where messages keep it; in a string that is lent, and comes
    /// back.
    pub(super) fn publisher_name(&mut self, session: SessionId) -> String {
        let mut name = std::mem::take(&mut self.scratch.publisher);
        name.clear();
        if self.dead_letters.keep_publisher()
            && let Some(session_entry) = self.sessions.get(session)
        {
            name.push_str(&session_entry.session.client_id);
        }
        name
    }

    /// Tells the receiving half what became of a PUBLISH; pauses a client with too many unanswered.
    fn settle(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session: SessionId,
        tell: impl FnOnce(&mut crate::session::inbound::Receiver) -> Option<Due>,
    ) -> Option<Due> {
        let receiver = &mut self.sessions.get_mut(session)?.session.receiver;
        let due = tell(receiver);
        // 5.0 is told by Receive Maximum; 3.x, which has none, is not read.
        if due.is_none()
            && receiver.unanswered() >= usize::from(self.settings.session.receive_maximum)
            && let Some(connection) = self.connections.get_mut(id)
            && !connection.version().is_v5()
        {
            connection.pause(Pause::Unanswered, now);
        }
        due
    }

    /// Writes an acknowledgement that is due.
    fn acknowledge(&mut self, id: ConnectionId, due: Option<Due>) {
        let Shard { connections, scratch, effects, unflushed, .. } = self;
        let (Some(due), Some(connection)) = (due, connections.get_mut(id)) else { return };
        connection.wire.outbox.lend(&mut scratch.pool);
        Session::answer(due, &mut connection.wire);
        *unflushed += 4;
        connection.mark_dirty(id, &mut effects.dirty);
    }

    /// Answers a PUBLISH that is not routed, or that asks for something.
    #[cold]
    fn refuse_or_grant(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session: SessionId,
        publish: &Publish<'_>,
        topic: &str,
        (reason, cause): (ReasonCode, DropReason),
    ) -> Flow {
        let (reason, cause) = match self.ask_by_publish(now, id, session, topic, publish.payload) {
            RequestedTimes::NotRequested => match self.admits_identifier(publish.qos) {
                Ok(()) => (reason, Some(cause)),
                Err(want) => (ReasonCode::QUOTA_EXCEEDED, Some(want.cause())),
            },
            RequestedTimes::InvalidRequest => (ReasonCode::PAYLOAD_FORMAT_INVALID, None),
            RequestedTimes::Granted => (ReasonCode::SUCCESS, None),
            RequestedTimes::Refused(want) => (ReasonCode::QUOTA_EXCEEDED, Some(want.cause())),
        };
        self.refuse_publish(now, id, session, publish, reason, cause)
    }

    /// Why a PUBLISH is not routed, if so: what a 5.0 client is told, and the cause that is
    /// counted.
    fn refusal(&self, publish: &Publish<'_>, topic: &str) -> Option<(ReasonCode, DropReason)> {
        if let Some(cause) = self.topic_refusal(topic) {
            let deep = cause == DropReason::TopicTooDeep;
            let reason = if deep { ReasonCode::TOPIC_NAME_INVALID } else { ReasonCode::NOT_AUTHORIZED };
            return Some((reason, cause));
        }
        if !self.is_short() {
            return None;
        }
        // A publish that erases a retained message makes room.
        let frees = if publish.retain && publish.payload.is_empty() { self.frees(topic) } else { 0 };
        let bytes = message_bytes(publish, topic);
        let want = self.admits(Change::Publish { qos: publish.qos, bytes, frees }).err()?;
        Some((ReasonCode::QUOTA_EXCEEDED, want.cause()))
    }

    /// Whether there is room for the identifier of a PUBLISH that is nobody's: 3.x is told that it
    /// is taken.
    fn admits_identifier(&self, qos: QoS) -> Result<(), Want> {
        if qos == QoS::ExactlyOnce { self.admits(Change::Identifier) } else { Ok(()) }
    }

    /// Why a client may not publish to a topic, if so.
    pub(super) fn topic_refusal(&self, topic: &str) -> Option<DropReason> {
        if is_reserved(topic) {
            return Some(DropReason::ReservedTopic);
        }
        // Each level but the first takes a byte at least, so a short topic need not be counted
        // through.
        let most = self.settings.session.topic_levels;
        (topic.len() >= most && levels(topic) > most).then_some(DropReason::TopicTooDeep)
    }

    /// A PUBLISH to `$delayed/...`: acknowledged when it is kept.
    fn publish_later(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session: SessionId,
        publish: &Publish<'_>,
        topic: &str,
    ) -> Flow {
        // It is kept whatever its QoS, and frees nothing.
        let bytes = message_bytes(publish, topic);
        let kept = match self.admits(Change::Delayed { bytes }) {
            Err(want) => Err((ReasonCode::QUOTA_EXCEEDED, want.cause())),
            Ok(()) => self.delay(now, publish, topic),
        };
        if let Err((reason, cause)) = kept {
            return self.refuse_publish(now, id, session, publish, reason, Some(cause));
        }
        self.take_over_incoming(session, publish);
        let gates = self.gate_publisher(self.next_token(session, publish), None);
        let routed = Routed { outcome: Outcome::Taken, gates, full: ShardSet::EMPTY };
        self.answer_publisher(now, id, session, publish, routed, None);
        Flow::Continue
    }

    /// Answers a PUBLISH that is not routed, for the `cause` that is counted, or because it is a
    /// request of the client.
    fn refuse_publish(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session: SessionId,
        publish: &Publish<'_>,
        reason: ReasonCode,
        cause: Option<DropReason>,
    ) -> Flow {
        if let Some(cause) = cause {
            self.counters.drops.count(cause);
        }
        let Some(packet_id) = publish.packet_id else { return Flow::Continue };
        let Some(version) = self.connections.get(id).map(Connection::version) else { return Flow::Closed };
        if let Some(violation) = publish_refusal::ends_connection(version, reason, cause) {
            if let Some(session_entry) = self.sessions.get_mut(session) {
                session_entry.session.receiver.forget(packet_id);
            }
            self.fail(now, id, violation);
            return Flow::Closed;
        }
        let due = self
            .settle(now, id, session, |receiver| receiver.decline(version, packet_id, publish.qos, reason));
        self.acknowledge(id, due);
        Flow::Continue
    }

    /// Sets, replaces or erases the retained message of a topic.
    ///
    /// A message that there is no room for still takes the place of the one before, which is
    /// erased: no value is better than one that is known to be wrong.
    // 3.1.1 [MQTT-3.3.1-5], [MQTT-3.3.1-7], [MQTT-3.3.1-10], [MQTT-3.3.1-11];
    // 5.0 [MQTT-3.3.1-5], [MQTT-3.3.1-6], [MQTT-3.3.1-7]
    pub(super) fn retain(&mut self, now: Instant, publication: &mut Publication<'_>) -> RetainedUpdate {
        let topic = publication.parts.topic;
        let stored = self.stored.is_some() && retained::is_kept(topic);
        let refused = if publication.parts.payload.is_empty() {
            self.shared.retained().remove(topic);
            None
        } else {
            let message = publication.message(&mut self.scratch.bytes).clone();
            let mut retained = self.shared.retained();
            let bytes = message.size();
            let want = if stored && self.store_is_short() {
                self.admits(Change::Retain { bytes, replaces: retained.size_of(topic) }).err()
            } else {
                None
            };
            match want {
                Some(want) => {
                    retained.remove(topic);
                    Some(want.cause())
                }
                None => retained.set(message, now).err().map(|_| DropReason::RetainedFull),
            }
        };
        if let Some(cause) = refused {
            self.counters.drops.count(cause);
        }
        if stored && let Some(write_buffer) = self.write_buffer() {
            // The change itself is in an order that all shards share; this shard's batch follows
            // it.
            write_buffer.begin();
            if refused.is_none() {
                write_buffer.weigh(stored_bytes(topic.len() + publication.parts.payload.len()));
            }
            self.effects.retained = true;
        }
        RetainedUpdate { waits: stored, kept: refused.is_none() }
    }

    /// Publishes a message of the broker's own, retained.
    pub fn publish_own(&mut self, now: Instant, topic: &str, payload: &[u8]) {
        let mut publication = Publication::new(own(topic, payload, true), None, self.here);
        self.retain(now, &mut publication);
        self.route_own(now, &mut publication, None);
    }

    /// Publishes a message of the broker's own to whoever listens now. QoS 0: who leaves it
    /// unacknowledged must not cause another.
    pub fn announce(&mut self, now: Instant, topic: &str, payload: &[u8]) {
        let mut publication = Publication::new(own(topic, payload, false), None, self.here);
        self.route_own(now, &mut publication, None);
    }

    /// A publisher waits until each of the peers that its message found full has room.
    fn wait_for_peers(&mut self, now: Instant, id: ConnectionId, full: ShardSet) {
        if let Some(connection) = self.connections.get_mut(id)
            && !connection.pauses.has(Pause::Peer)
        {
            connection.pause(Pause::Peer, now);
            self.exchange.wait_for(id, full);
        }
    }
}
