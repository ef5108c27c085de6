//! A PUBLISH from a client: may it in, what is it called, where does it go, what is its publisher told.

use super::connection::Pause;
use super::receive::Flow;
use super::route::{Publication, Routed};
use super::wish::Asked;
use super::{ConnectionId, SessionId, Shard};
use crate::mqtt::message::Parts;
use crate::mqtt::packet::{Publish, QoS, ReasonCode};
use crate::mqtt::session::loss::LossCause;
use crate::mqtt::session::receiver::{Due, Outcome};
use crate::mqtt::session::topic_alias::IncomingAliases;
use crate::mqtt::session::{Session, Violation};
use crate::mqtt::topic::levels;
use crate::routing::subscription_tree::SessionSlot;
use crate::time::Instant;
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
        if publish.retain {
            self.retain(now, &mut publication);
        }
        let token = match publish.packet_id {
            Some(_) => self.sessions.get(session).map(|r| (session, r.session.receiver.next_token())),
            None => None,
        };
        let routed = self.route(now, &mut publication, token);
        self.publisher = publisher;
        if routed.peer_full {
            self.wait_for_peer(now, id);
        }
        // Its own message may have ended the publisher's connection.
        let parted = self.connections.get(id).is_none_or(|c| c.session != Some(session));
        if parted {
            return Flow::Closed;
        }
        if let Some(packet_id) = publish.packet_id {
            let due = self.settle(now, id, session, |receiver| match routed {
                Routed { gates: 0, outcome, .. } => receiver.routed(packet_id, publish.qos, outcome),
                Routed { gates, outcome, .. } => {
                    receiver.wait(packet_id, publish.qos, outcome, gates);
                    None
                }
            });
            self.acknowledge(id, due);
        }
        Flow::Continue
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
        if self.is_over_budget() && !erases {
            return Some((ReasonCode::QUOTA_EXCEEDED, LossCause::MemoryBudget));
        }
        None
    }

    /// Why a client may not publish to a topic, if so.
    pub(super) fn topic_refusal(&self, topic: &str) -> Option<LossCause> {
        if is_reserved(topic) {
            return Some(LossCause::ReservedTopic);
        }
        (levels(topic) > self.settings.topic_levels).then_some(LossCause::TopicTooDeep)
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
        if !v5 && cause == Some(LossCause::MemoryBudget) {
            if let Some(resident) = self.sessions.get_mut(session) {
                resident.session.receiver.release(packet_id);
            }
            self.fail(now, id, Violation { reason, what: "the broker's memory budget is used up" });
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
    pub(super) fn retain(&mut self, now: Instant, publication: &mut Publication<'_>) {
        let topic = publication.parts.topic;
        if publication.parts.payload.is_empty() {
            self.common.retained().remove(topic);
            return;
        }
        let message = publication.message(&mut self.scratch).clone();
        if self.common.retained().set(message, now).is_err() {
            self.tally.losses.count(LossCause::RetainedFull);
        }
    }

    /// Publishes a message of the broker's own, retained.
    pub fn publish_own(&mut self, now: Instant, topic: &str, payload: &[u8]) {
        let parts = Parts {
            qos: QoS::AtMostOnce,
            retain: true,
            expires: Instant::NEVER,
            topic,
            forwarded: &[],
            payload,
        };
        let mut publication = Publication::new(parts, None, self.here);
        self.retain(now, &mut publication);
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
