//! The packets of an established connection between the shard and the other broker.

use super::BridgeState;
use super::deadlines::{Deadlines, Due, Patience};
use super::hello::TermsThere;
use super::identifiers::Identifiers;
use super::notification::Notification;
pub use super::outcome::{LinkCounts, LinkEnd, LinkNews, SaidThere};
use super::path::{BrokerPath, Loops, Way};
use super::rules::TopicRules;
pub use super::subscribe::{FRESH_SESSION, put_filters_here};
use super::subscribe::{SUBSCRIBE_ID, put_subscribe};
use crate::mqtt::codec::{Decoded, LARGEST_PACKET, PublishHead, decode, encode};
use crate::mqtt::packet::{
    Acknowledgement, Disconnect, Packet, PacketId, Properties, ProtocolVersion, Publish, QoS, ReasonCode,
};
use crate::mqtt::topic::has_wildcard;
use crate::time::Instant;
use std::sync::Arc;
use std::time::Duration;

/// A topic that the shard refuses: it is reserved for the broker. A message that no rule lets in is
/// passed on under this name, without its payload, so that its acknowledgement keeps its place
/// among the others. 5.0 [MQTT-4.6.0-2], [MQTT-4.6.0-3]
const REFUSED: &str = "$SYS/bridge/refused";

/// The bytes for the two sides.
#[derive(Debug, Default)]
pub struct Output {
    /// For the shard.
    pub here: Vec<u8>,
    /// For the other broker.
    pub there: Vec<u8>,
}

/// The terms of one connection.
#[derive(Clone, Copy, Debug)]
pub struct LinkTerms {
    /// The version that is spoken with the other broker.
    pub version: ProtocolVersion,
    /// The terms of the other broker.
    pub there: TermsThere,
    /// The times that the other broker is given.
    pub patience: Patience,
    /// The largest packet that the shard takes.
    pub packet_size_here: u32,
}

/// One established connection: what passes, and what both sides have not answered.
#[derive(Debug)]
pub struct Link {
    rules: Arc<TopicRules>,
    terms: LinkTerms,
    deadlines: Deadlines,
    /// Filters that the session here has from earlier rules.
    stale: Vec<String>,
    state: BridgeState,
    awaits_suback_here: bool,
    /// The filters of SUBSCRIBE to the other broker.
    asked_there: Vec<String>,
    /// The identifiers that the other broker has to complete.
    unacknowledged: Identifiers,
    /// The identifiers of QoS 2 messages that were sent with QoS 1.
    lowered: Identifiers,
    counts: LinkCounts,
    news: Vec<LinkNews>,
    loops: Loops,
    notification: Notification,
    /// Room for a renamed topic.
    room: String,
}

impl Link {
    /// Returns the link of a connection that the other broker has accepted, and writes SUBSCRIBE to
    /// it. The caller has written CONNECT to the shard. `stale` has the filters of the session here
    /// that the rules do not have.
    ///
    /// # Errors
    /// A filter cannot be written.
    pub fn begin(
        now: Instant,
        rules: Arc<TopicRules>,
        terms: LinkTerms,
        stale: Vec<String>,
        out: &mut Output,
    ) -> Result<Link, LinkEnd> {
        let mut link = Link {
            deadlines: Deadlines::new(now, terms.patience),
            rules,
            terms,
            stale,
            state: BridgeState::Subscribing,
            awaits_suback_here: true,
            asked_there: Vec::new(),
            unacknowledged: Identifiers::default(),
            lowered: Identifiers::default(),
            counts: LinkCounts::default(),
            news: Vec::new(),
            loops: Loops::default(),
            notification: Notification::default(),
            room: String::new(),
        };
        link.subscribe_there(out)?;
        Ok(link)
    }

    /// Ends the connection when no message has passed for this time.
    pub fn end_when_idle(&mut self, idle: Duration) {
        self.deadlines.set_idle(idle);
    }

    /// Writes the path of messages, and drops those that come back. By 5.0 alone: 3.x has no
    /// properties.
    pub fn keep_path(&mut self, own: BrokerPath, there: Option<BrokerPath>) {
        if self.terms.version.is_v5() {
            self.loops = Loops::new(own, there);
        }
    }

    /// Tells the state of the bridge on this topic there. CONNECT has a will on the same topic.
    pub fn notify_on(&mut self, topic: &str) {
        self.notification = Notification::new(topic, self.terms.version, self.terms.there.takes_retained);
    }

    /// Tells the other broker that the bridge is connected, if it has a topic for it.
    pub fn announce(&mut self, out: &mut Output) {
        self.notification.announce(&mut out.there);
    }

    /// Returns the state.
    pub fn state(&self) -> BridgeState {
        self.state
    }

    /// Returns true if the other broker has answered SUBSCRIBE, or was not sent one.
    pub fn is_subscribed_there(&self) -> bool {
        self.asked_there.is_empty()
    }

    /// Returns the messages so far.
    pub fn counts(&self) -> LinkCounts {
        self.counts
    }

    /// Returns the number of messages that the other broker has not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.unacknowledged.len()
    }

    /// Returns what happened since the last call.
    pub fn take_news(&mut self) -> Vec<LinkNews> {
        std::mem::take(&mut self.news)
    }

    /// Returns the next time at which [`Self::expired`] has to be called.
    pub fn deadline(&self) -> Instant {
        self.deadlines.next()
    }

    /// Handles a deadline.
    ///
    /// # Errors
    /// The other broker did not answer in time.
    pub fn expired(&mut self, now: Instant, out: &mut Output) -> Result<(), LinkEnd> {
        match self.deadlines.due(now) {
            Due::Nothing => Ok(()),
            Due::Ping => Ok(encode(&Packet::Pingreq, self.terms.version, &mut out.there)?),
            Due::Unanswered => Err(LinkEnd::Unanswered),
            Due::Unacknowledged => Err(LinkEnd::Unacknowledged),
            Due::Idle => Err(LinkEnd::Idle),
        }
    }

    /// Handles the whole packets at the front of what came from the other broker. Returns their
    /// bytes.
    ///
    /// # Errors
    /// The connection has to end. What was handled before is in `out`.
    pub fn take_from_there(
        &mut self,
        now: Instant,
        bytes: &[u8],
        out: &mut Output,
    ) -> Result<usize, LinkEnd> {
        let mut used = 0;
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            let largest = self.terms.packet_size_here;
            match decode(rest, self.terms.version, largest).map_err(LinkEnd::Malformed)? {
                Decoded::Incomplete { .. } => return Ok(used),
                Decoded::Packet { packet, length } => {
                    self.deadlines.heard(now);
                    self.came_from_there(now, &packet, out)?;
                    used += length;
                }
            }
        }
    }

    /// Handles the whole packets at the front of what came from the shard. Returns their bytes. A
    /// packet that is left waits for the other broker.
    ///
    /// # Errors
    /// As [`Self::take_from_there`].
    pub fn take_from_here(&mut self, now: Instant, bytes: &[u8], out: &mut Output) -> Result<usize, LinkEnd> {
        let (mut used, before) = (0, out.there.len());
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            match decode(rest, ProtocolVersion::V5, LARGEST_PACKET).map_err(LinkEnd::FaultHere)? {
                Decoded::Incomplete { .. } => break,
                Decoded::Packet { packet, .. } if self.waits_for_suback(&packet) => break,
                Decoded::Packet { packet, length } => {
                    self.came_from_here(now, &packet, out)?;
                    used += length;
                }
            }
        }
        if out.there.len() > before {
            self.deadlines.sent(now);
        }
        Ok(used)
    }

    /// Writes the end of both connections.
    pub fn end(&mut self, end: Option<&LinkEnd>, out: &mut Output) {
        let reason = end.map_or(ReasonCode::NORMAL_DISCONNECTION, LinkEnd::reason_there);
        let normal = Packet::Disconnect(Disconnect::new(ReasonCode::NORMAL_DISCONNECTION));
        self.notification.revoke(&mut out.there);
        // A DISCONNECT without properties is always encoded.
        let _ = encode(&Packet::Disconnect(Disconnect::new(reason)), self.terms.version, &mut out.there);
        let _ = encode(&normal, ProtocolVersion::V5, &mut out.here);
    }

    fn came_from_there(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        out: &mut Output,
    ) -> Result<(), LinkEnd> {
        if is_of_message(packet) {
            self.deadlines.passed(now);
        }
        match packet {
            Packet::Publish(publish) => return self.let_in(publish, out),
            Packet::Puback(ack) => {
                self.completed(now, ack.packet_id);
                if self.lowered.remove(ack.packet_id) {
                    // The shard has sent this message with QoS 2.
                    return put_here(&Packet::Pubrec(*ack), out);
                }
            }
            Packet::Pubrec(ack) if ack.reason.is_error() => self.completed(now, ack.packet_id),
            Packet::Pubrec(_) => self.deadlines.acknowledged(now, true),
            Packet::Pubcomp(ack) => self.completed(now, ack.packet_id),
            Packet::Pubrel(_) => {}
            Packet::Suback(suback) => return self.subscribed_there(&suback.reasons),
            Packet::Unsuback(_) | Packet::Pingresp => return Ok(()),
            Packet::Disconnect(disconnect) if self.terms.version.is_v5() => {
                let said = SaidThere::of(disconnect.reason_string, disconnect.server_reference);
                return Err(LinkEnd::DisconnectThere(disconnect.reason, said));
            }
            other => return Err(LinkEnd::Unexpected(other.name())),
        }
        put_here(packet, out)
    }

    fn came_from_here(&mut self, now: Instant, packet: &Packet<'_>, out: &mut Output) -> Result<(), LinkEnd> {
        if is_of_message(packet) {
            self.deadlines.passed(now);
        }
        match packet {
            Packet::Publish(publish) => self.let_out(now, publish, out),
            Packet::Pubrel(ack) if self.terms.there.maximum_qos < QoS::ExactlyOnce => {
                // The other broker knows no QoS 2, so the rest of the exchange is here.
                put_here(&Packet::Pubcomp(Acknowledgement::success(ack.packet_id)), out)
            }
            Packet::Pubrel(ack) => {
                self.expect(now, ack.packet_id);
                self.put_there(packet, out)
            }
            Packet::Puback(_) | Packet::Pubrec(_) | Packet::Pubcomp(_) => match self.loops.success_of(packet)
            {
                Some(success) => self.put_there(&success, out),
                None => self.put_there(packet, out),
            },
            Packet::Connack(connack) if connack.reason != ReasonCode::SUCCESS => {
                Err(LinkEnd::RefusedHere(connack.reason))
            }
            Packet::Connack(_) => self.subscribe_here(out),
            Packet::Suback(suback) => {
                self.subscribed_here(&suback.reasons);
                Ok(())
            }
            Packet::Disconnect(disconnect) => Err(LinkEnd::DisconnectHere(disconnect.reason)),
            _ => Ok(()),
        }
    }

    /// Returns true if a packet has the identifier of the SUBSCRIBE that is not answered.
    fn waits_for_suback(&self, packet: &Packet<'_>) -> bool {
        let id = match packet {
            Packet::Publish(publish) => publish.packet_id,
            Packet::Pubrel(ack) => Some(ack.packet_id),
            _ => None,
        };
        !self.asked_there.is_empty() && id.is_some_and(|id| id.get() == SUBSCRIBE_ID)
    }

    /// Passes a message of the shard to the other broker.
    fn let_out(&mut self, now: Instant, publish: &Publish<'_>, out: &mut Output) -> Result<(), LinkEnd> {
        let TermsThere { maximum_qos, takes_retained, packet_size, .. } = self.terms.there;
        let version = self.terms.version;
        let qos = publish.qos.min(maximum_qos);
        let topic = self.rules.name_there(publish.topic, &mut self.room);
        let passed = publish.properties.forwarded();
        let way = self.loops.way_out(passed);
        if way != Way::Open {
            self.counts.looped += 1;
            return match publish.packet_id {
                Some(id) if way == Way::Back => accept_here(publish.qos, id, ReasonCode::SUCCESS, out),
                _ => refuse_here(publish, out),
            };
        }
        let head = PublishHead {
            // The other broker has lost what it had of this message, so the message is a new one.
            // 5.0 [MQTT-3.2.2-4], 4.1
            dup: publish.dup && qos != QoS::AtMostOnce && self.terms.there.session_present,
            qos,
            retain: publish.retain && takes_retained,
            topic: topic.unwrap_or_default(),
            packet_id: publish.packet_id.filter(|_| qos != QoS::AtMostOnce),
            topic_alias: None,
            message_expiry: publish.properties.message_expiry,
            subscription_ids: &[],
            forwarded: self.loops.leaving(passed),
        };
        let largest = packet_size.unwrap_or(LARGEST_PACKET);
        if topic.is_none() || head.exceeds(version, publish.payload.len(), largest) {
            self.counts.dropped += 1;
            return refuse_here(publish, out);
        }
        head.put(version, publish.payload.len(), &mut out.there);
        out.there.extend_from_slice(publish.payload);
        self.counts.sent += 1;
        let Some(id) = publish.packet_id else { return Ok(()) };
        self.counts.lowered += u64::from(qos < publish.qos);
        if qos == QoS::AtMostOnce {
            return accept_here(publish.qos, id, ReasonCode::SUCCESS, out);
        }
        if qos < publish.qos {
            self.lowered.insert(id);
        }
        self.expect(now, id);
        Ok(())
    }

    /// Passes a message of the other broker to the shard. The shard refuses one that no rule lets
    /// in, and the refusal goes back as any other acknowledgement.
    fn let_in(&mut self, publish: &Publish<'_>, out: &mut Output) -> Result<(), LinkEnd> {
        if publish.properties.topic_alias.is_some() {
            return Err(LinkEnd::TopicAlias);
        }
        let topic = self.rules.name_here(publish.topic, &mut self.room);
        let passed = publish.properties.forwarded();
        let is_back = topic.is_some() && self.loops.way_in(passed) != Way::Open;
        if is_back {
            self.loops.note(publish.packet_id);
        }
        let head = PublishHead {
            dup: publish.dup,
            qos: publish.qos,
            retain: publish.retain,
            topic: topic.unwrap_or(REFUSED),
            packet_id: publish.packet_id,
            topic_alias: None,
            message_expiry: publish.properties.message_expiry,
            subscription_ids: &[],
            forwarded: self.loops.entering(passed),
        };
        let is_large = head.exceeds(ProtocolVersion::V5, publish.payload.len(), self.terms.packet_size_here);
        if topic.is_some() && !is_large && !is_back {
            head.put(ProtocolVersion::V5, publish.payload.len(), &mut out.here);
            out.here.extend_from_slice(publish.payload);
            self.counts.received += 1;
            return Ok(());
        }
        match topic {
            None => self.counts.refused += 1,
            Some(_) if is_back => self.counts.looped += 1,
            Some(_) => self.counts.too_large += 1,
        }
        if publish.qos != QoS::AtMostOnce {
            PublishHead { retain: false, topic: REFUSED, message_expiry: None, forwarded: &[], ..head }.put(
                ProtocolVersion::V5,
                0,
                &mut out.here,
            );
        }
        Ok(())
    }

    /// Notes that the other broker has to complete an exchange.
    fn expect(&mut self, now: Instant, id: PacketId) {
        self.unacknowledged.insert(id);
        self.deadlines.expects_acknowledgement(now);
    }

    fn completed(&mut self, now: Instant, id: PacketId) {
        self.counts.acknowledged += u64::from(self.unacknowledged.remove(id));
        self.deadlines.acknowledged(now, !self.unacknowledged.is_empty());
    }

    fn put_there(&self, packet: &Packet<'_>, out: &mut Output) -> Result<(), LinkEnd> {
        Ok(encode(packet, self.terms.version, &mut out.there)?)
    }

    /// Subscribes at the other broker. Filters with wildcards that it does not take are reported.
    fn subscribe_there(&mut self, out: &mut Output) -> Result<(), LinkEnd> {
        let TermsThere { takes_wildcards, maximum_qos, .. } = self.terms.there;
        let rules = Arc::clone(&self.rules);
        let (asked, refused): (Vec<_>, Vec<_>) = rules
            .subscriptions_there()
            .into_iter()
            .partition(|(filter, _)| takes_wildcards || !has_wildcard(filter));
        self.news.extend(refused.into_iter().map(|(filter, _)| {
            LinkNews::FilterRefusedThere(filter.to_owned(), ReasonCode::WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED)
        }));
        self.asked_there = asked.iter().map(|(filter, _)| (*filter).to_owned()).collect();
        if asked.is_empty() {
            self.deadlines.subscribed();
            return Ok(());
        }
        put_subscribe(&asked, maximum_qos, self.terms.version, None, &mut out.there)
    }

    fn subscribed_there(&mut self, reasons: &[ReasonCode]) -> Result<(), LinkEnd> {
        let asked = std::mem::take(&mut self.asked_there);
        self.deadlines.subscribed();
        if asked.len() != reasons.len() {
            return Err(LinkEnd::Suback { asked: asked.len(), found: reasons.len() });
        }
        let refused = asked.into_iter().zip(reasons).filter(|(_, reason)| reason.is_error());
        self.news.extend(refused.map(|(filter, reason)| LinkNews::FilterRefusedThere(filter, *reason)));
        self.look_if_established();
        Ok(())
    }

    /// Gives the session here the filters of the rules, and takes the others away.
    fn subscribe_here(&mut self, out: &mut Output) -> Result<(), LinkEnd> {
        let filters = self.rules.subscriptions_here();
        self.awaits_suback_here = !filters.is_empty();
        put_filters_here(&filters, &self.stale, self.terms.there.maximum_qos, None, &mut out.here)?;
        self.look_if_established();
        Ok(())
    }

    fn subscribed_here(&mut self, reasons: &[ReasonCode]) {
        let filters = self.rules.subscriptions_here();
        let refused = filters.into_iter().zip(reasons).filter(|(_, reason)| reason.is_error());
        let refused =
            refused.map(|((filter, _), reason)| LinkNews::FilterRefusedHere(filter.to_owned(), *reason));
        self.news.extend(refused);
        self.awaits_suback_here = false;
        self.look_if_established();
    }

    fn look_if_established(&mut self) {
        let is_established = !self.awaits_suback_here && self.asked_there.is_empty();
        if is_established && self.state == BridgeState::Subscribing {
            self.state = BridgeState::Established;
            self.news.push(LinkNews::Established);
        }
    }
}

/// Returns true for a message and its acknowledgements.
fn is_of_message(packet: &Packet<'_>) -> bool {
    use Packet::{Puback, Pubcomp, Publish, Pubrec, Pubrel};
    matches!(packet, Publish(_) | Puback(_) | Pubrec(_) | Pubrel(_) | Pubcomp(_))
}

fn put_here(packet: &Packet<'_>, out: &mut Output) -> Result<(), LinkEnd> {
    Ok(encode(packet, ProtocolVersion::V5, &mut out.here)?)
}

/// Tells the shard that a message cannot pass. The negative acknowledgement is counted, and makes a
/// dead letter where `redelivery.negative_ack` says so.
fn refuse_here(publish: &Publish<'_>, out: &mut Output) -> Result<(), LinkEnd> {
    match publish.packet_id {
        Some(id) => accept_here(publish.qos, id, ReasonCode::TOPIC_NAME_INVALID, out),
        None => Ok(()),
    }
}

/// Acknowledges a message of the shard in place of the other broker.
fn accept_here(qos: QoS, packet_id: PacketId, reason: ReasonCode, out: &mut Output) -> Result<(), LinkEnd> {
    let ack = Acknowledgement { packet_id, reason, properties: Properties::EMPTY };
    put_here(&if qos == QoS::ExactlyOnce { Packet::Pubrec(ack) } else { Packet::Puback(ack) }, out)
}
