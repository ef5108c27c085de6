//! The packets of an established connection between the shard and the other broker.

use super::BridgeState;
use super::answers::{
    REFUSED, accept_here, acknowledgement_of, answer_here, put_refused, refuse_here, turn_back,
};
use super::deadlines::{Deadlines, Due, Patience};
use super::freeing::Freeing;
use super::hello::TermsThere;
use super::identifiers::Identifiers;
use super::notification::Notification;
pub use super::outcome::{LinkCounts, LinkEnd, LinkNews, SaidThere};
use super::path::{BrokerPath, Loops, Way};
use super::rules::TopicRules;
use super::subscribe::Subscribing;
pub use super::subscribe::{FRESH_SESSION, put_filters_here};
use crate::mqtt::codec::{
    AckKind, DecodeError, Decoded, LARGEST_PACKET, PacketType, PublishFront, RelayedPublish, decode_next,
    encode, encode_acknowledgement, front, publish_front, put_acknowledgement, short_acknowledgement,
};
use crate::mqtt::packet::{
    Acknowledgement, Disconnect, Packet, PacketId, ProtocolVersion, Publish, QoS, ReasonCode,
};
use crate::time::Instant;
use std::sync::Arc;
use std::time::Duration;

/// The bytes of an acknowledgement in its short form.
const SHORT: usize = 4;

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
    /// False if the shard takes no retained messages. A PUBLISH with RETAIN then passes without it:
    /// the shard would end the connection, and the message would come again for ever.
    pub takes_retained_here: bool,
}

/// One established connection: what passes, and what both sides have not answered.
#[derive(Debug)]
pub struct Link {
    rules: Arc<TopicRules>,
    terms: LinkTerms,
    deadlines: Deadlines,
    subscribing: Subscribing,
    state: BridgeState,
    /// The identifiers that the other broker has to complete.
    unacknowledged: Identifiers,
    /// The identifiers of QoS 2 messages that were sent with QoS 1.
    lowered: Identifiers,
    counts: LinkCounts,
    news: Vec<LinkNews>,
    loops: Loops,
    notification: Notification,
    /// The QoS 2 identifiers that are freed at the other broker, before any message leaves; `None`
    /// where it remembers none of an earlier session here.
    freeing: Option<Freeing>,
    /// Bytes of a refused message that are to come and are left out.
    skips: usize,
    /// Bytes at the front of those for the other broker, up to the last packet that it has to answer.
    unwritten: usize,
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
        let mut news = Vec::new();
        let mut link = Link {
            deadlines: Deadlines::new(now, terms.patience),
            subscribing: Subscribing::new(&rules, &terms.there, stale, &mut news),
            rules,
            terms,
            state: BridgeState::Subscribing,
            unacknowledged: Identifiers::default(),
            lowered: Identifiers::default(),
            counts: LinkCounts::default(),
            news,
            loops: Loops::default(),
            notification: Notification::default(),
            freeing: None,
            skips: 0,
            unwritten: 0,
        };
        link.subscribe_there(now, out)?;
        Ok(link)
    }

    /// Ends the connection when no message has passed for this time.
    pub fn end_when_idle(&mut self, idle: Duration) {
        self.deadlines.set_idle(idle);
    }

    /// Frees each Packet Identifier at the other broker, and then ends with [`LinkEnd::Freed`]: for the
    /// first connection of a session here, if the other broker has kept its session. No message
    /// leaves before.
    pub fn free_identifiers(&mut self, now: Instant, out: &mut Output) {
        let freeing = self.freeing.insert(Freeing::default());
        freeing.put_next(self.terms.version, &mut out.there);
        self.deadlines.expects_acknowledgement(now);
        self.unwritten = out.there.len();
    }

    /// Notes that bytes of a packet came that is not whole yet.
    pub fn moved(&mut self, now: Instant) {
        self.deadlines.moved(now);
    }

    /// Notes that the stream to the other broker took this many bytes.
    pub fn wrote(&mut self, now: Instant, bytes: usize) {
        if self.unwritten > 0 {
            self.unwritten = self.unwritten.saturating_sub(bytes);
            self.deadlines.moved(now);
        }
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
        !self.subscribing.awaits_there()
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
            Due::Ping => {
                encode(&Packet::Pingreq, self.terms.version, &mut out.there)?;
                self.unwritten = out.there.len();
                Ok(())
            }
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
            let skipped = self.skips.min(bytes.len() - used);
            if skipped > 0 {
                (self.skips, used) = (self.skips - skipped, used + skipped);
                self.deadlines.moved(now);
            }
            let rest = bytes.get(used..).unwrap_or_default();
            if let Some((kind, id)) = short_acknowledgement(rest) {
                self.deadlines.heard(now);
                self.acknowledged_there(now, kind, &Acknowledgement::success(id), out)?;
                used += SHORT;
                continue;
            }
            let (version, largest) = (self.terms.version, self.terms.packet_size_here);
            match decode_next(rest, version, largest, "") {
                Ok(Decoded::Incomplete { .. }) => return Ok(used),
                Ok(Decoded::Packet { packet, length }) => {
                    self.deadlines.heard(now);
                    self.came_from_there(now, &packet, out)?;
                    used += length;
                }
                // By 3.x the bridge cannot say how much it takes.
                Err(error @ DecodeError::PacketTooLarge { .. }) if !version.is_v5() => {
                    if front(rest, version, LARGEST_PACKET)
                        .is_none_or(|(kind, _)| kind != PacketType::Publish)
                    {
                        return Err(LinkEnd::Malformed(error));
                    }
                    let front = publish_front(rest, version).map_err(LinkEnd::Malformed)?;
                    let Some(front) = front else { return Ok(used) };
                    self.skips = front.length;
                    self.leave_out(now, &front, out);
                }
                Err(error) => return Err(LinkEnd::Malformed(error)),
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
            match decode_next(rest, ProtocolVersion::V5, LARGEST_PACKET, "").map_err(LinkEnd::FaultHere)? {
                Decoded::Incomplete { .. } => break,
                Decoded::Packet { packet, .. } if self.holds_back(&packet) => break,
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

    /// Returns true if a packet of the shard has to wait for the other broker.
    #[inline]
    fn holds_back(&self, packet: &Packet<'_>) -> bool {
        let is_exchange = matches!(packet, Packet::Publish(_) | Packet::Pubrel(_));
        self.subscribing.holds_back(packet) || self.freeing.is_some() && is_exchange
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
        if let Some((kind, ack)) = acknowledgement_of(packet) {
            return self.acknowledged_there(now, kind, ack, out);
        }
        match packet {
            Packet::Publish(publish) => self.let_in(now, publish, out),
            Packet::Suback(suback) => self.subscribed_there(now, &suback.reasons, out),
            Packet::Unsuback(_) | Packet::Pingresp => Ok(()),
            Packet::Disconnect(disconnect) if self.terms.version.is_v5() => {
                let said = SaidThere::of(disconnect.reason_string, disconnect.server_reference);
                Err(LinkEnd::DisconnectThere(disconnect.reason, said))
            }
            other => Err(LinkEnd::Unexpected(other.name())),
        }
    }

    /// Passes an acknowledgement of the other broker to the shard.
    #[inline]
    fn acknowledged_there(
        &mut self,
        now: Instant,
        mut kind: AckKind,
        ack: &Acknowledgement<'_>,
        out: &mut Output,
    ) -> Result<(), LinkEnd> {
        self.deadlines.passed(now);
        if kind == AckKind::Pubcomp && self.freeing.is_some() {
            return self.freed(now, out);
        }
        match kind {
            AckKind::Puback => {
                self.completed(now, ack.packet_id);
                if self.lowered.remove(ack.packet_id) {
                    // The shard has sent this message with QoS 2.
                    kind = AckKind::Pubrec;
                }
            }
            AckKind::Pubrec if ack.reason.is_error() => self.completed(now, ack.packet_id),
            AckKind::Pubrec => self.deadlines.acknowledged(now, true),
            AckKind::Pubcomp => self.completed(now, ack.packet_id),
            AckKind::Pubrel => {}
        }
        Ok(encode_acknowledgement(kind, ack, ProtocolVersion::V5, &mut out.here)?)
    }

    /// Notes that the other broker has freed an identifier.
    fn freed(&mut self, now: Instant, out: &mut Output) -> Result<(), LinkEnd> {
        self.deadlines.acknowledged(now, true);
        let Some(freeing) = &mut self.freeing else { return Ok(()) };
        if !freeing.is_answered() {
            return Ok(());
        }
        if !freeing.put_next(self.terms.version, &mut out.there) {
            return Err(LinkEnd::Freed);
        }
        self.unwritten = out.there.len();
        Ok(())
    }

    fn came_from_here(&mut self, now: Instant, packet: &Packet<'_>, out: &mut Output) -> Result<(), LinkEnd> {
        if let Some((kind, ack)) = acknowledgement_of(packet) {
            return self.acknowledged_here(now, kind, ack, out);
        }
        match packet {
            Packet::Publish(publish) => self.let_out(now, publish, out),
            Packet::Connack(connack) if connack.reason != ReasonCode::SUCCESS => {
                return Err(LinkEnd::RefusedHere(connack.reason));
            }
            Packet::Connack(_) => {
                let highest = self.terms.there.maximum_qos;
                self.subscribing.put_here(&self.rules, highest, &mut out.here)?;
                self.look_if_established();
            }
            Packet::Suback(suback) => {
                self.subscribing.answered_here(&self.rules, &suback.reasons, &mut self.news);
                self.look_if_established();
            }
            Packet::Disconnect(disconnect) => return Err(LinkEnd::DisconnectHere(disconnect.reason)),
            _ => {}
        }
        Ok(())
    }

    /// Passes an acknowledgement of the shard to the other broker.
    fn acknowledged_here(
        &mut self,
        now: Instant,
        kind: AckKind,
        ack: &Acknowledgement<'_>,
        out: &mut Output,
    ) -> Result<(), LinkEnd> {
        self.deadlines.passed(now);
        if kind == AckKind::Pubrel && self.terms.there.maximum_qos < QoS::ExactlyOnce {
            // The other broker knows no QoS 2, so the rest of the exchange is here.
            answer_here(AckKind::Pubcomp, ack.packet_id, ReasonCode::SUCCESS, out);
            return Ok(());
        }
        let version = self.terms.version;
        if self.loops.ends_well(kind, ack.packet_id) {
            put_acknowledgement(&mut out.there, kind, ack.packet_id, ReasonCode::SUCCESS, version);
        } else {
            encode_acknowledgement(kind, ack, version, &mut out.there)?;
        }
        if kind == AckKind::Pubrel {
            self.expect(now, ack.packet_id, out);
        }
        Ok(())
    }

    /// Passes a message of the shard to the other broker.
    #[inline]
    fn let_out(&mut self, now: Instant, publish: &Publish<'_>, out: &mut Output) {
        self.deadlines.passed(now);
        let TermsThere { maximum_qos, takes_retained, packet_size, .. } = self.terms.there;
        let version = self.terms.version;
        let qos = publish.qos.min(maximum_qos);
        let topic = self.rules.name_there(publish.topic);
        let passed = publish.properties.forwarded();
        let way = self.loops.way_out(passed);
        if way != Way::Open {
            self.counts.looped += 1;
            return turn_back(publish, way, out);
        }
        let relayed = RelayedPublish {
            // The other broker has lost what it had of this message, so the message is a new one.
            // 5.0 [MQTT-3.2.2-4], 4.1
            dup: publish.dup && qos != QoS::AtMostOnce && self.terms.there.session_present,
            qos,
            retain: publish.retain && takes_retained,
            topic: topic.unwrap_or_default(),
            packet_id: publish.packet_id.filter(|_| qos != QoS::AtMostOnce),
            message_expiry: publish.properties.message_expiry,
            properties: self.loops.leaving(passed),
            payload: publish.payload,
        };
        let largest = packet_size.unwrap_or(LARGEST_PACKET);
        if topic.is_none() || relayed.packet_len(version) > largest as usize {
            self.counts.dropped += 1;
            return refuse_here(publish, out);
        }
        relayed.put(version, &mut out.there);
        self.sent(now, publish, qos, out);
    }

    /// Notes that a message was sent with this QoS.
    #[inline]
    fn sent(&mut self, now: Instant, publish: &Publish<'_>, qos: QoS, out: &mut Output) {
        self.counts.sent += 1;
        let Some(id) = publish.packet_id else { return };
        self.counts.lowered += u64::from(qos < publish.qos);
        if qos == QoS::AtMostOnce {
            return accept_here(publish.qos, id, ReasonCode::SUCCESS, out);
        }
        if qos < publish.qos {
            self.lowered.insert(id);
        }
        self.expect(now, id, out);
    }

    /// Passes a message of the other broker to the shard. The shard refuses one that no rule lets
    /// in, and the refusal goes back as any other acknowledgement.
    fn let_in(&mut self, now: Instant, publish: &Publish<'_>, out: &mut Output) -> Result<(), LinkEnd> {
        self.deadlines.passed(now);
        if publish.properties.topic_alias.is_some() {
            return Err(LinkEnd::TopicAlias);
        }
        let topic = self.rules.name_here(publish.topic);
        let passed = publish.properties.forwarded();
        let is_back = topic.is_some() && self.loops.way_in(passed) != Way::Open;
        if is_back {
            self.loops.note(publish.packet_id);
        }
        let relayed = RelayedPublish {
            dup: publish.dup,
            qos: publish.qos,
            retain: publish.retain && self.terms.takes_retained_here,
            topic: topic.unwrap_or(REFUSED),
            packet_id: publish.packet_id,
            message_expiry: publish.properties.message_expiry,
            properties: self.loops.entering(passed),
            payload: publish.payload,
        };
        let version = ProtocolVersion::V5;
        let is_large = relayed.packet_len(version) > self.terms.packet_size_here as usize;
        if topic.is_some() && !is_large && !is_back {
            relayed.put(version, &mut out.here);
            self.counts.received += 1;
            return Ok(());
        }
        match topic {
            None => self.counts.refused += 1,
            Some(_) if is_back => self.counts.looped += 1,
            Some(_) => self.counts.too_large += 1,
        }
        put_refused(publish.dup, publish.qos, publish.packet_id, out);
        Ok(())
    }

    /// Passes on that a message came which is larger than the shard takes, of which the front has come.
    fn leave_out(&mut self, now: Instant, front: &PublishFront, out: &mut Output) {
        self.deadlines.heard(now);
        self.deadlines.passed(now);
        self.counts.too_large += 1;
        put_refused(front.dup, front.qos, front.packet_id, out);
    }

    /// Notes that the other broker has to complete an exchange, whose packet is at the end of `out`.
    fn expect(&mut self, now: Instant, id: PacketId, out: &Output) {
        self.unacknowledged.insert(id);
        self.deadlines.expects_acknowledgement(now);
        self.unwritten = out.there.len();
    }

    fn completed(&mut self, now: Instant, id: PacketId) {
        self.counts.acknowledged += u64::from(self.unacknowledged.remove(id));
        self.deadlines.acknowledged(now, !self.unacknowledged.is_empty());
    }

    /// Writes the next SUBSCRIBE to the other broker, if filters are left.
    fn subscribe_there(&mut self, now: Instant, out: &mut Output) -> Result<(), LinkEnd> {
        if self.subscribing.awaits_there() {
            self.deadlines.subscribes(now);
        } else {
            self.deadlines.subscribed();
        }
        self.subscribing.put_there(self.terms.there.maximum_qos, self.terms.version, &mut out.there)?;
        self.unwritten = out.there.len();
        Ok(())
    }

    fn subscribed_there(
        &mut self,
        now: Instant,
        reasons: &[ReasonCode],
        out: &mut Output,
    ) -> Result<(), LinkEnd> {
        self.subscribing.answered_there(reasons, &mut self.news)?;
        self.subscribe_there(now, out)?;
        self.look_if_established();
        Ok(())
    }

    fn look_if_established(&mut self) {
        if self.subscribing.is_complete() && self.state == BridgeState::Subscribing {
            self.state = BridgeState::Established;
            self.news.push(LinkNews::Established);
        }
    }
}
