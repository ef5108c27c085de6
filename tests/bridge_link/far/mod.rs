//! A model of another broker with one client, the bridge. It does what the standard lets a broker
//! do, and holds the bridge to what the standard says of clients.

mod exchange;

use crate::client::{encoded, payload};
use crate::oracle::{Number, Side};
use crate::plan::{MESSAGES, Plan, THERE};
use crate::world::{Event, World};
use homing::mqtt::codec::{Decoded, decode, decode_connect};
use homing::mqtt::packet::{
    Acknowledgement, Connack, ConnackProperties, Connect, Packet, PacketId, Properties, ProtocolVersion,
    Publish, PublishProperties, QoS, ReasonCode, Suback, Subscribe,
};
use homing::mqtt::topic::matches;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The bit of a bridge in the protocol level of CONNECT.
const BRIDGE_BIT: u8 = 0x80;

/// The offset of the protocol level in a CONNECT with one byte of length.
const LEVEL: usize = 8;

/// A message for the bridge.
struct Flight {
    id: PacketId,
    number: Number,
    topic: usize,
    qos: QoS,
    is_large: bool,
    is_released: bool,
}

/// A message that waits for its identifier.
struct Queued {
    number: Number,
    topic: usize,
    qos: QoS,
    is_large: bool,
}

#[derive(Default)]
struct Session {
    filters: BTreeMap<String, QoS>,
    /// QoS 2 messages of the bridge that are not released.
    received: BTreeMap<PacketId, Option<Number>>,
    queue: VecDeque<Queued>,
    flight: VecDeque<Flight>,
    last_id: u16,
    /// The bridge has said something behind CONNECT, so it has read CONNACK.
    is_known: bool,
}

struct Connection {
    line: usize,
    session_present: bool,
    no_local: bool,
    /// The most unacknowledged messages that the bridge takes.
    quota: usize,
    /// The messages of this connection that the bridge has sent and not completed.
    open: BTreeSet<PacketId>,
    /// Messages that were sent on this connection and not completed.
    sent: BTreeSet<PacketId>,
    /// Identifiers that may be acknowledged once more, because their PUBLISH was sent twice.
    twice: BTreeSet<PacketId>,
}

pub struct Far {
    version: ProtocolVersion,
    session: Option<Session>,
    connection: Option<Connection>,
    /// Bytes of connections that are not read, by line.
    unread: BTreeMap<usize, Vec<u8>>,
    down_until: u64,
    hangs_until: u64,
    /// True once there is somebody who takes the messages.
    pub may_publish: bool,
    published: u64,
}

impl Far {
    pub fn new(plan: &Plan) -> Far {
        let old = || {
            let ids = (1..4).filter_map(PacketId::new);
            Session { received: ids.map(|id| (id, None)).collect(), is_known: true, ..Session::default() }
        };
        Far {
            version: plan.version,
            session: plan.has_old_session.then(old),
            connection: None,
            unread: BTreeMap::new(),
            down_until: 0,
            hangs_until: 0,
            may_publish: false,
            published: 0,
        }
    }

    pub fn listens(&self, now: u64) -> bool {
        now >= self.down_until
    }

    /// Returns the connection of the bridge.
    pub fn link(&self) -> Option<usize> {
        self.connection.as_ref().map(|connection| connection.line)
    }

    pub fn check_settled(&self) {
        assert_eq!(self.published, MESSAGES, "the other broker has not published all");
        let session = self.session.as_ref().expect("a session");
        let (queued, in_flight) = (session.queue.len(), session.flight.len());
        assert_eq!((queued, in_flight), (0, 0), "the other broker has messages after the calm");
        let unreleased: Vec<Number> = session.received.values().copied().flatten().collect();
        assert!(unreleased.is_empty(), "not released: {unreleased:?}");
    }

    /// The connection of the bridge is over.
    pub fn connection_ends(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.unread.remove(&connection.line);
            // No client can know of a session that began with a CONNACK that was lost, and what
            // follows when the next CONNACK has Session Present 1. So this broker forgets it.
            if self.session.as_ref().is_some_and(|session| !session.is_known) {
                self.session = None;
            }
        }
    }
}

impl World {
    pub fn far_crashes(&mut self) {
        let down = self.rng.between(10, 6_000);
        self.far.down_until = self.now + down;
        self.far.hangs_until = 0;
        self.oracle.totals.crashes_there += 1;
        let forgets = self.rng.percent(self.plan.forgets);
        self.trace(|| format!("the other broker crashes for {down} ms, and forgets: {forgets}"));
        for line in 0..self.lines.len() {
            if std::mem::take(&mut self.lines[line].up_is_open) {
                // What it has written arrives, or not.
                if self.rng.percent(50) {
                    self.lines[line].down_is_open = false;
                }
                self.send_from_far(line, 0, &[]);
            }
        }
        self.far.unread.clear();
        self.far.connection_ends();
        if forgets {
            self.far_forgets();
        }
    }

    /// The session is gone, with what it had for the bridge.
    fn far_forgets(&mut self) {
        let Some(session) = self.far.session.take() else { return };
        self.oracle.totals.sessions_lost += 1;
        self.oracle.lost_session(self.now);
        let queued = session.queue.iter().map(|queued| queued.number);
        for number in session.flight.iter().map(|flight| flight.number).chain(queued) {
            let message = self.oracle.message(number);
            // What the bridge has acknowledged has to arrive all the same.
            message.is_excepted |= !message.is_acknowledged;
        }
    }

    /// The other broker stands still. Bytes wait in its sockets.
    pub fn far_hangs(&mut self) {
        let until = self.now + self.rng.between(100, 15_000);
        self.trace(|| format!("the other broker hangs until {until}"));
        self.far.hangs_until = until;
        self.at(until, Event::FarListens);
    }

    pub fn far_listens(&mut self) {
        let lines: Vec<usize> = self.far.unread.keys().copied().collect();
        lines.into_iter().for_each(|line| self.far_reads(line, &[]));
        self.far_sends();
    }

    fn far_hangs_now(&self) -> bool {
        self.now < self.far.hangs_until
    }

    /// Bytes of the bridge arrive.
    pub fn far_reads(&mut self, line: usize, bytes: &[u8]) {
        if !self.lines[line].up_is_open || !self.far.listens(self.now) {
            return;
        }
        self.far.unread.entry(line).or_default().extend_from_slice(bytes);
        if self.far_hangs_now() {
            return;
        }
        let mut waits = self.far.unread.remove(&line).unwrap_or_default();
        self.lines[line].unread = 0;
        let mut used = 0;
        while self.lines[line].up_is_open {
            let Some(length) = self.far_takes_one(line, &mut waits[used..]) else { break };
            used += length;
        }
        waits.drain(..used);
        if self.lines[line].up_is_over {
            self.lines[line].up_is_open = false;
            if self.far.link() == Some(line) {
                self.far.connection_ends();
            }
        } else if self.lines[line].up_is_open {
            self.far.unread.insert(line, waits);
        }
        self.far_sends();
        self.pump();
    }

    /// Takes a packet. Returns its length.
    fn far_takes_one(&mut self, line: usize, bytes: &mut [u8]) -> Option<usize> {
        if self.far.link() == Some(line) {
            let Decoded::Packet { packet, length } =
                decode(bytes, self.far.version, u32::MAX).expect("the bridge sends lawful packets")
            else {
                return None;
            };
            self.far_takes(line, &packet);
            return Some(length);
        }
        let has_bit = bytes.get(LEVEL).is_some_and(|level| level & BRIDGE_BIT != 0);
        assert!(!has_bit || !self.far.version.is_v5(), "5.0 has no bridge bit");
        if let Some(level) = bytes.get_mut(LEVEL).filter(|_| has_bit) {
            *level &= !BRIDGE_BIT;
        }
        match decode_connect(bytes, u32::MAX).expect("the bridge sends a lawful CONNECT") {
            Decoded::Packet { packet: Packet::Connect(connect), length } => {
                self.far_accepts(line, &connect, has_bit);
                Some(length)
            }
            Decoded::Packet { packet, .. } => panic!("{packet:?} before CONNECT"),
            Decoded::Incomplete { .. } => {
                if let Some(level) = bytes.get_mut(LEVEL).filter(|_| has_bit) {
                    *level |= BRIDGE_BIT;
                }
                None
            }
        }
    }

    fn far_accepts(&mut self, line: usize, connect: &Connect<'_>, has_bit: bool) {
        assert_eq!(connect.version, self.far.version);
        // A second connection of the client ends the first.
        if let Some(first) = self.far.link() {
            self.lines[first].up_is_open = false;
            self.far.connection_ends();
            self.send_from_far(first, 0, &[]);
        }
        let version = self.far.version;
        if !self.is_calm && self.rng.percent(5) {
            let reason =
                if version.is_v5() { ReasonCode::SERVER_BUSY } else { ReasonCode::SERVER_UNAVAILABLE };
            let properties = ConnackProperties::default();
            self.far_says(
                line,
                Packet::Connack(Box::new(Connack { session_present: false, reason, properties })),
            );
            self.lines[line].up_is_open = false;
            return self.send_from_far(line, 0, &[]);
        }
        assert!(!connect.clean_start, "what the other broker keeps for the bridge would be lost");
        let session_present = self.far.session.is_some();
        self.far.session.get_or_insert_default();
        let quota = if version.is_v5() { connect.properties.receive_maximum.unwrap_or(u16::MAX) } else { 20 };
        self.far.connection = Some(Connection {
            line,
            session_present,
            no_local: has_bit,
            quota: quota.into(),
            open: BTreeSet::new(),
            sent: BTreeSet::new(),
            twice: BTreeSet::new(),
        });
        let properties = ConnackProperties {
            receive_maximum: Some(self.plan.far_receive_maximum).filter(|most| *most < u16::MAX),
            maximum_packet_size: self.plan.far_packet_size,
            maximum_qos: (self.plan.far_maximum_qos < QoS::ExactlyOnce)
                .then(|| self.plan.far_maximum_qos.bits()),
            ..ConnackProperties::default()
        };
        let properties = if version.is_v5() { properties } else { ConnackProperties::default() };
        let reason = ReasonCode::SUCCESS;
        self.far_says(line, Packet::Connack(Box::new(Connack { session_present, reason, properties })));
        self.far_sends_again();
    }

    /// What was not completed on the connection before is sent again, in its order.
    fn far_sends_again(&mut self) {
        let (Some(session), Some(connection)) = (&mut self.far.session, &mut self.far.connection) else {
            return;
        };
        let mut packets = Vec::new();
        for flight in &session.flight {
            connection.sent.insert(flight.id);
            packets.push(match flight.is_released {
                true => encoded(&Packet::Pubrel(Acknowledgement::success(flight.id)), self.far.version),
                false => flight.publish(true, self.far.version),
            });
        }
        self.oracle.totals.redelivered += packets.len() as u64;
        let line = connection.line;
        packets.into_iter().for_each(|bytes| self.send_from_far(line, 0, &bytes));
    }

    fn far_says(&mut self, line: usize, packet: Packet<'_>) {
        self.trace(|| format!("there: {packet:?}"));
        let bytes = encoded(&packet, self.far.version);
        let after = if self.rng.percent(10) { self.rng.below(200) } else { 0 };
        self.send_from_far(line, after, &bytes);
    }

    fn far_takes(&mut self, line: usize, packet: &Packet<'_>) {
        self.trace(|| format!("  to there: {packet:?}"));
        if let Some(session) = &mut self.far.session {
            session.is_known = true;
        }
        match packet {
            Packet::Publish(publish) => self.far_has(line, publish),
            Packet::Pubrel(ack) => self.far_releases(line, ack.packet_id),
            Packet::Puback(ack) => self.far_is_acknowledged(ack, QoS::AtLeastOnce),
            Packet::Pubrec(ack) => self.far_is_received(line, ack),
            Packet::Pubcomp(ack) => self.far_is_acknowledged(ack, QoS::ExactlyOnce),
            Packet::Subscribe(subscribe) => self.far_subscribes(line, subscribe),
            Packet::Pingreq => self.far_says(line, Packet::Pingresp),
            Packet::Disconnect(disconnect) => {
                assert_eq!(disconnect.reason, ReasonCode::NORMAL_DISCONNECTION, "the model keeps the rules");
                self.lines[line].up_is_open = false;
                self.far.connection_ends();
                self.send_from_far(line, 0, &[]);
            }
            other => panic!("the bridge sends {other:?}"),
        }
    }

    fn far_subscribes(&mut self, line: usize, subscribe: &Subscribe<'_>) {
        let (Some(session), Some(connection)) = (&mut self.far.session, &mut self.far.connection) else {
            return;
        };
        assert!(!connection.open.contains(&subscribe.packet_id), "SUBSCRIBE has the identifier of a PUBLISH");
        let is_v5 = self.far.version.is_v5();
        let mut reasons = Vec::new();
        for asked in &subscribe.filters {
            let qos = asked.options.qos;
            assert!(qos <= self.plan.far_maximum_qos, "SUBSCRIBE is above Maximum QoS");
            assert!(asked.options.no_local || connection.no_local, "what the bridge sends comes back");
            if !self.is_calm && self.rng.percent(5) {
                let refused = if is_v5 { ReasonCode::NOT_AUTHORIZED } else { ReasonCode::UNSPECIFIED_ERROR };
                reasons.push(refused);
                continue;
            }
            session.filters.insert(asked.filter.to_owned(), qos);
            reasons.push(
                [ReasonCode::SUCCESS, ReasonCode::GRANTED_QOS_1, ReasonCode::GRANTED_QOS_2]
                    [usize::from(qos.bits())],
            );
        }
        if !self.is_calm && self.rng.percent(3) {
            return;
        }
        let (packet_id, properties) = (subscribe.packet_id, Properties::EMPTY);
        let suback = encoded(&Packet::Suback(Suback { packet_id, properties, reasons }), self.far.version);
        let after = self.rng.below(1_500);
        self.send_from_far(line, after, &suback);
    }

    /// A publisher there does what it does next.
    pub fn step_there(&mut self) {
        let pause = self.rng.between(10, 900);
        self.at(self.now + pause, Event::Step(Side::There));
        if !self.far.listens(self.now) || self.far_hangs_now() || !self.far.may_publish {
            return;
        }
        let burst = self.rng.between(1, 3);
        for _ in 0..burst {
            if self.far.published < MESSAGES {
                self.far.published += 1;
                self.publish_there();
            }
        }
        self.far_sends();
    }

    fn publish_there(&mut self) {
        let topic = self.rng.below(THERE.len() as u64) as usize;
        let is_large = self.rng.percent(10);
        let asked = self.rng.pick(&[QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce, QoS::ExactlyOnce]);
        let Some(session) = &mut self.far.session else { return };
        let qos = if THERE[topic].other.is_none() {
            // What the bridge has not subscribed to is sent all the same.
            asked
        } else {
            let granted = session.filters.iter().find(|(filter, _)| matches(filter, THERE[topic].name));
            let Some((_, granted)) = granted else { return };
            asked.min(*granted)
        };
        if qos == QoS::AtMostOnce && self.far.connection.is_none() {
            return;
        }
        let number = self.oracle.published(Side::There, topic, (qos, qos), false);
        session.queue.push_back(Queued { number, topic, qos, is_large });
    }

    /// Sends what waits, as far as the bridge takes it.
    fn far_sends(&mut self) {
        if self.far_hangs_now() {
            return;
        }
        let version = self.far.version;
        let mut packets = Vec::new();
        let (Some(session), Some(connection)) = (&mut self.far.session, &mut self.far.connection) else {
            return;
        };
        while let Some(next) = session.queue.front() {
            if next.qos != QoS::AtMostOnce && connection.sent.len() >= connection.quota {
                break;
            }
            let Some(Queued { number, topic, qos, is_large }) = session.queue.pop_front() else { break };
            session.last_id = session.last_id % u16::MAX + 1;
            let id = PacketId::new(session.last_id).expect("not 0");
            let flight = Flight { id, number, topic, qos, is_large, is_released: false };
            packets.push(flight.publish(false, version));
            if qos != QoS::AtMostOnce {
                connection.sent.insert(id);
                session.flight.push_back(flight);
            }
        }
        let line = connection.line;
        packets.into_iter().for_each(|bytes| self.send_from_far(line, 0, &bytes));
    }

    /// A broker of 3.1.1 may send again on a live connection what is not acknowledged.
    pub fn far_retransmits(&mut self) {
        self.at(self.now + 700, Event::FarRetransmits);
        if self.far.version.is_v5() || self.far_hangs_now() || !self.rng.percent(20) {
            return;
        }
        let version = self.far.version;
        let (Some(session), Some(connection)) = (&mut self.far.session, &mut self.far.connection) else {
            return;
        };
        let mut packets = Vec::new();
        for flight in session.flight.iter().filter(|flight| connection.sent.contains(&flight.id)) {
            connection.twice.insert(flight.id);
            packets.push(match flight.is_released {
                true => encoded(&Packet::Pubrel(Acknowledgement::success(flight.id)), version),
                false => flight.publish(true, version),
            });
        }
        let line = connection.line;
        packets.into_iter().for_each(|bytes| self.send_from_far(line, 0, &bytes));
    }
}

impl Flight {
    fn publish(&self, dup: bool, version: ProtocolVersion) -> Vec<u8> {
        let publish = Publish {
            dup,
            qos: self.qos,
            retain: false,
            topic: THERE[self.topic].name,
            packet_id: (self.qos != QoS::AtMostOnce).then_some(self.id),
            properties: PublishProperties::default(),
            payload: &payload(self.number, self.is_large),
        };
        encoded(&Packet::Publish(publish), version)
    }
}
