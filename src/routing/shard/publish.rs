//! A PUBLISH from a client: may it in, what is it called, where does it go, what is its publisher told.

use super::commit::{Early, Waits, early};
use super::connection::Pause;
use super::delayed::is_delayed;
use super::exchange::Gate;
use super::receive::Flow;
use super::route::{Publication, Routed};
use super::wish::Asked;
use super::{ConnectionId, SessionId, Shard};
use crate::journal::ledger::Body;
use crate::journal::record::SessionKey;
use crate::mqtt::message::Parts;
use crate::mqtt::packet::{PacketId, Publish, QoS, ReasonCode};
use crate::mqtt::session::loss::LossCause;
use crate::mqtt::session::receiver::{AckToken, Due, Outcome};
use crate::mqtt::session::topic_alias::IncomingAliases;
use crate::mqtt::session::{Session, Violation};
use crate::mqtt::topic::levels;
use crate::routing::retained;
use crate::routing::subscription_tree::SessionSlot;
use crate::time::Instant;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Topics that are the broker's own: what a client publishes there is acknowledged or refused, dropped and counted.
pub(super) fn is_reserved(topic: &str) -> bool {
    topic.starts_with('$')
        && ["$SYS", "$dead", "$homing", "$delayed", "$share"]
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

impl Shard {
    pub(super) fn publish(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session: SessionId,
        publish: Publish<'_>,
    ) -> Flow {
        self.received += 1;
        let topic = std::mem::take(&mut self.topic);
        let name = if publish.topic.is_empty() { &topic } else { publish.topic };
        let flow = self.publish_named(now, id, session, &publish, name);
        self.topic = topic;
        flow
    }

    /// Resolves or sets the Topic Alias, of a PUBLISH that will not be routed too: a repeated one may be the first on its
    /// connection to set it. The shard's `topic` is filled where the packet has none.
    // 5.0 [MQTT-3.3.2-8], [MQTT-3.3.2-9]
    pub(super) fn name(&mut self, id: ConnectionId, publish: &Publish<'_>) -> Result<(), Violation> {
        let Some(alias) = publish.properties.topic_alias else { return Ok(()) };
        let beyond = Violation {
            reason: ReasonCode::TOPIC_ALIAS_INVALID,
            what: "a Topic Alias above Topic Alias Maximum",
        };
        let unset = Violation {
            reason: ReasonCode::PROTOCOL_ERROR,
            what: "a Topic Alias that was never set on this connection",
        };
        let maximum = self.settings.topic_alias_maximum;
        let Some(connection) = self.connections.get_mut(id) else { return Err(unset) };
        let aliases = connection.aliases.get_or_insert_with(|| Box::new(IncomingAliases::new(maximum)));
        if !publish.topic.is_empty() {
            return aliases.set(alias, publish.topic).map_err(|_| beyond);
        }
        let name = aliases.topic(alias).map_err(|_| beyond)?.ok_or(unset)?;
        self.topic.clear();
        self.topic.push_str(name);
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
        if let Some((reason, cause)) = self.refusal(publish, topic) {
            let (reason, cause) = match self.ask_by_publish(id, session, topic, publish.payload) {
                Asked::NoWish => (reason, Some(cause)),
                Asked::Unreadable => (ReasonCode::PAYLOAD_FORMAT_INVALID, None),
                Asked::Granted => (ReasonCode::SUCCESS, None),
            };
            return self.refuse_publish(now, id, session, publish, reason, cause);
        }
        let parts = Parts {
            qos: publish.qos,
            retain: publish.retain,
            expires: expires(now, publish.properties.message_expiry),
            topic,
            forwarded: &publish.properties.forwarded,
            payload: publish.payload,
        };
        let publisher = self.publisher_name(session);
        let mut publication = Publication::new(parts, Some(SessionSlot(session.slot)), self.here);
        publication.publisher_name = &publisher;
        let incoming = self.take_over_incoming(session, publish);
        let mut waits = incoming.is_some();
        publication.whole = waits;
        if publish.retain {
            waits |= self.retain(now, &mut publication);
        }
        let token = self.next_token(session, publish);
        let mut routed = self.route(now, &mut publication, token);
        self.end_move(&publication, routed.outcome, incoming);
        // Refused by all, and nobody is asked any more: nothing is taken over, so its identifier is not either. It ends in the
        // batch that it began in.
        let refused = routed.gates == 0 && routed.outcome.reason().is_error();
        if !refused && (waits || publication.body.is_some()) {
            let early = publication.body.as_ref().filter(|_| !waits && early(publish.qos) == Early::Yes);
            routed.gates += self.gate_publisher(token, early);
        }
        self.publisher = publisher;
        if routed.peer_full {
            self.wait_for_peer(now, id);
        }
        // Its own message may have ended the publisher's connection.
        let parted = self.connections.get(id).is_none_or(|c| c.session != Some(session));
        if parted {
            return Flow::Closed;
        }
        self.answer_publisher(now, id, session, publish, routed);
        Flow::Continue
    }

    /// Which of the publisher's acknowledgements this one's will be, if it gets one.
    fn next_token(&self, session: SessionId, publish: &Publish<'_>) -> Option<(SessionId, AckToken)> {
        publish.packet_id?;
        Some((session, self.sessions.get(session)?.session.receiver.next_token()))
    }

    /// The acknowledgement waits for the store; `early`: or until all who are owed this have finished with it. Answers for
    /// how many gates more it waits.
    fn gate_publisher(&mut self, token: Option<(SessionId, AckToken)>, early: Option<&Rc<Body>>) -> u32 {
        let (Some((session, token)), Some(stored)) = (token, &mut self.stored) else { return 0 };
        let (gate, outcome) = (Gate::Here { session, token }, Outcome::Unmatched);
        stored.gate(Waits::Publisher { gate, outcome }, early);
        1
    }

    /// Acknowledges a PUBLISH, now or when its gates have answered.
    fn answer_publisher(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session: SessionId,
        publish: &Publish<'_>,
        routed: Routed,
    ) {
        let Some(packet_id) = publish.packet_id else { return };
        let due = self.settle(now, id, session, |receiver| match routed {
            Routed { gates: 0, outcome, .. } => receiver.routed(packet_id, publish.qos, outcome),
            Routed { gates, outcome, .. } => {
                receiver.wait(packet_id, publish.qos, outcome, gates);
                None
            }
        });
        self.acknowledge(id, due);
    }

    /// A QoS 2 PUBLISH from a stored session: its identifier is recorded with all that it leads to. Answers which.
    fn take_over_incoming(
        &self,
        session: SessionId,
        publish: &Publish<'_>,
    ) -> Option<(SessionKey, PacketId)> {
        let packet_id = publish.packet_id.filter(|_| publish.qos == QoS::ExactlyOnce)?;
        let account = self.sessions.get(session)?.session.account()?;
        account.incoming(packet_id);
        Some((account.key, packet_id))
    }

    /// The client id of a publisher, where messages keep it; in a string that is lent, and comes back.
    pub(super) fn publisher_name(&mut self, session: SessionId) -> String {
        let mut name = std::mem::take(&mut self.publisher);
        name.clear();
        if self.keeps_publisher
            && let Some(resident) = self.sessions.get(session)
        {
            name.push_str(&resident.session.client_id);
        }
        name
    }

    /// Tells the receiving half what became of a PUBLISH; pauses a client with too many unanswered.
    fn settle(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session: SessionId,
        tell: impl FnOnce(&mut crate::mqtt::session::receiver::Receiver) -> Option<Due>,
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
        let Shard { connections, pool, effects, unflushed, .. } = self;
        let (Some(due), Some(connection)) = (due, connections.get_mut(id)) else { return };
        connection.wire.outbox.lend(pool);
        Session::answer(due, &mut connection.wire);
        *unflushed += 4;
        connection.mark_dirty(id, &mut effects.dirty);
    }

    /// Why a PUBLISH is not routed, if so: what a 5.0 client is told, and the cause that is counted.
    fn refusal(&self, publish: &Publish<'_>, topic: &str) -> Option<(ReasonCode, LossCause)> {
        if let Some(cause) = self.topic_refusal(topic) {
            let deep = cause == LossCause::TopicTooDeep;
            let reason = if deep { ReasonCode::TOPIC_NAME_INVALID } else { ReasonCode::NOT_AUTHORIZED };
            return Some((reason, cause));
        }
        // A publish that erases a retained message frees memory.
        let erases = publish.retain && publish.payload.is_empty();
        if erases {
            return None;
        }
        let cause = self.want_of_room()?;
        // What nobody has to keep needs no store.
        let passes = cause == LossCause::StoreFull && publish.qos == QoS::AtMostOnce;
        (!passes).then_some((ReasonCode::QUOTA_EXCEEDED, cause))
    }

    fn want_of_room(&self) -> Option<LossCause> {
        if self.is_over_budget() {
            return Some(LossCause::MemoryBudget);
        }
        self.is_store_full().then_some(LossCause::StoreFull)
    }

    /// Why a client may not publish to a topic, if so.
    pub(super) fn topic_refusal(&self, topic: &str) -> Option<LossCause> {
        if is_reserved(topic) {
            return Some(LossCause::ReservedTopic);
        }
        // Each level but the first takes a byte at least, so a short topic need not be counted through.
        let most = self.settings.topic_levels;
        (topic.len() >= most && levels(topic) > most).then_some(LossCause::TopicTooDeep)
    }

    fn is_store_full(&self) -> bool {
        self.common.store_full.load(Ordering::Relaxed)
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
        let kept = match self.want_of_room() {
            Some(cause) => Err((ReasonCode::QUOTA_EXCEEDED, cause)),
            None => self.delay(now, publish, topic),
        };
        if let Err((reason, cause)) = kept {
            return self.refuse_publish(now, id, session, publish, reason, Some(cause));
        }
        self.take_over_incoming(session, publish);
        let gates = self.gate_publisher(self.next_token(session, publish), None);
        let routed = Routed { outcome: Outcome::Taken, gates, peer_full: false };
        self.answer_publisher(now, id, session, publish, routed);
        Flow::Continue
    }

    /// Answers a PUBLISH that is not routed, for the `cause` that is counted or as a wish of the client's: 5.0 is told; 3.x has no code, so it gets its acknowledgement where the
    /// message is nobody's (3.1.1 [MQTT-3.3.5-2]), and is closed where the message would be lost.
    fn refuse_publish(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session: SessionId,
        publish: &Publish<'_>,
        reason: ReasonCode,
        cause: Option<LossCause>,
    ) -> Flow {
        if let Some(cause) = cause {
            self.tally.losses.count(cause);
        }
        let Some(packet_id) = publish.packet_id else { return Flow::Continue };
        let v5 = self.connections.get(id).is_some_and(|c| c.version().is_v5());
        if let Some(LossCause::MemoryBudget | LossCause::StoreFull | LossCause::DelayedFull) = cause
            && !v5
        {
            if let Some(resident) = self.sessions.get_mut(session) {
                resident.session.receiver.forget(packet_id);
            }
            let what = match cause {
                Some(LossCause::StoreFull) => "the store has no room",
                Some(LossCause::DelayedFull) => {
                    "limits.delayed_messages, delayed_bytes or delayed_horizon is reached"
                }
                _ => "the broker's memory budget is used up",
            };
            self.fail(now, id, Violation { reason, what });
            return Flow::Closed;
        }
        let due = self.settle(now, id, session, |receiver| {
            if v5 && reason.is_error() {
                receiver.refuse(packet_id, publish.qos, reason)
            } else {
                receiver.routed(packet_id, publish.qos, Outcome::Taken)
            }
        });
        self.acknowledge(id, due);
        Flow::Continue
    }

    /// Sets, replaces or erases the retained message of a topic.
    // 3.1.1 [MQTT-3.3.1-5], [MQTT-3.3.1-7], [MQTT-3.3.1-10], [MQTT-3.3.1-11];
    // 5.0 [MQTT-3.3.1-5], [MQTT-3.3.1-6], [MQTT-3.3.1-7]
    /// Answers whether the store will have it, and its publisher therefore waits.
    pub(super) fn retain(&mut self, now: Instant, publication: &mut Publication<'_>) -> bool {
        let topic = publication.parts.topic;
        if publication.parts.payload.is_empty() {
            self.common.retained().remove(topic);
        } else {
            let message = publication.message(&mut self.scratch).clone();
            if self.common.retained().set(message, now).is_err() {
                self.tally.losses.count(LossCause::RetainedFull);
            }
        }
        let Some(ledger) = self.ledger().filter(|_| retained::is_kept(topic)) else { return false };
        // The change itself is in an order that all shards share; this shard's batch follows it.
        ledger.begin();
        self.effects.retained = true;
        true
    }

    /// Publishes a message of the broker's own, retained.
    pub fn publish_own(&mut self, now: Instant, topic: &str, payload: &[u8]) {
        let mut publication = Publication::new(own(topic, payload, true), None, self.here);
        self.retain(now, &mut publication);
        self.route(now, &mut publication, None);
    }

    /// Publishes a message of the broker's own to whoever listens now. QoS 0: who leaves it unacknowledged must not cause
    /// another.
    pub fn announce(&mut self, now: Instant, topic: &str, payload: &[u8]) {
        let mut publication = Publication::new(own(topic, payload, false), None, self.here);
        self.route(now, &mut publication, None);
    }

    /// A publisher waits until its peers have room.
    fn wait_for_peer(&mut self, now: Instant, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id)
            && !connection.pauses.has(Pause::Peer)
        {
            connection.pause(Pause::Peer, now);
            self.waiting_for_peer.push(id);
        }
    }
}
