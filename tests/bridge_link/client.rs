//! A publisher and a subscriber here. Both have sessions that are never lost.

use crate::oracle::{Number, Side};
use crate::plan::{HERE, MESSAGES, THERE};
use crate::world::{Event, Owner, World};
use homing::mqtt::codec::{self, Decoded};
use homing::mqtt::packet::{
    Acknowledgement, Connect, ConnectProperties, Packet, PacketId, Properties, ProtocolVersion, Publish,
    PublishProperties, QoS, ReasonCode, Subscribe, SubscribeFilter, SubscriptionOptions,
};
use std::collections::{BTreeSet, VecDeque};

/// Messages that the publisher has on their way at most.
const ON_THEIR_WAY: usize = 6;

/// The payload of a large message has so many bytes, that of another one 8.
pub const LARGE: usize = 300;

/// A message that is not complete.
struct Sent {
    id: PacketId,
    number: Number,
    topic: usize,
    qos: QoS,
    payload: Vec<u8>,
    is_received: bool,
}

#[derive(Default)]
pub struct Publisher {
    socket: Option<usize>,
    is_connected: bool,
    unread: Vec<u8>,
    sent: VecDeque<Sent>,
    published: u64,
    last_id: u16,
}

#[derive(Default)]
pub struct Subscriber {
    socket: Option<usize>,
    unread: Vec<u8>,
    /// The identifiers of QoS 2 messages that it had and are not released.
    had: BTreeSet<PacketId>,
}

pub fn encoded(packet: &Packet<'_>, version: ProtocolVersion) -> Vec<u8> {
    let mut bytes = Vec::new();
    codec::encode(packet, version, &mut bytes).expect("a lawful packet");
    bytes
}

/// Takes the whole packets from the front of what came.
pub fn take_packets(unread: &mut Vec<u8>, version: ProtocolVersion, mut each: impl FnMut(&Packet<'_>)) {
    let mut used = 0;
    while let Decoded::Packet { packet, length } =
        codec::decode(&unread[used..], version, u32::MAX).expect("lawful packets")
    {
        each(&packet);
        used += length;
    }
    unread.drain(..used);
}

/// Returns the payload of a message: its number, and bytes behind it if it is large.
pub fn payload(number: Number, is_large: bool) -> Vec<u8> {
    let mut payload = number.to_le_bytes().to_vec();
    payload.resize(if is_large { LARGE } else { 8 }, b'.');
    payload
}

pub fn number_of(publish: &Publish<'_>) -> Number {
    Number::from_le_bytes(publish.payload[..8].try_into().expect("a number"))
}

fn connect(client_id: &str) -> Vec<u8> {
    let properties = ConnectProperties { session_expiry: Some(86_400), ..ConnectProperties::default() };
    let connect = Connect {
        version: ProtocolVersion::V5,
        clean_start: false,
        keep_alive: 0,
        properties,
        client_id,
        will: None,
        user_name: None,
        password: None,
    };
    encoded(&Packet::Connect(Box::new(connect)), ProtocolVersion::V5)
}

fn answer(packet: Packet<'_>) -> Vec<u8> {
    encoded(&packet, ProtocolVersion::V5)
}

impl Sent {
    fn publish(&self, dup: bool) -> Vec<u8> {
        answer(Packet::Publish(Publish {
            dup,
            qos: self.qos,
            retain: false,
            topic: HERE[self.topic].name,
            packet_id: Some(self.id),
            properties: PublishProperties::default(),
            payload: &self.payload,
        }))
    }
}

impl Publisher {
    pub fn is_settled(&self) -> bool {
        self.is_connected && self.sent.is_empty() && self.published == MESSAGES
    }
}

impl Subscriber {
    pub fn is_closed(&mut self, socket: usize) {
        self.socket = self.socket.filter(|own| *own != socket);
    }
}

impl World {
    /// Both clients come back, and the publisher publishes.
    pub fn step_here(&mut self) {
        let pause = self.rng.between(10, 900);
        self.at(self.now + pause, Event::Step(Side::Here));
        if !self.is_up_here() {
            return;
        }
        let process = self.near.process;
        let is_gone = |socket: Option<usize>, world: &World| {
            socket.is_none_or(|socket| world.sockets[socket].process != process)
        };
        if is_gone(self.subscriber.socket, self) {
            let socket = self.open(Owner::Subscriber, "subscriber");
            (self.subscriber.socket, self.subscriber.unread) = (Some(socket), Vec::new());
            self.send_up(socket, &connect("subscriber"));
        }
        if is_gone(self.publisher.socket, self) {
            let socket = self.open(Owner::Publisher, "publisher");
            let Publisher { is_connected, unread, .. } = &mut self.publisher;
            (*is_connected, *unread) = (false, Vec::new());
            self.publisher.socket = Some(socket);
            return self.send_up(socket, &connect("publisher"));
        }
        let burst = self.rng.between(1, 3);
        for _ in 0..burst {
            self.publish_here();
        }
    }

    fn publish_here(&mut self) {
        let Publisher { socket: Some(socket), is_connected: true, ref sent, published, .. } = self.publisher
        else {
            return;
        };
        if sent.len() >= ON_THEIR_WAY || published == MESSAGES {
            return;
        }
        let topic = self.rng.below(HERE.len() as u64) as usize;
        let qos = self.rng.pick(&[QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce, QoS::ExactlyOnce]);
        let is_large = self.rng.percent(10);
        let is_excepted = is_large && self.plan.far_packet_size.is_some() || HERE[topic].other.is_none();
        let passes = self.plan.qos_out(qos);
        self.oracle.totals.lowered += u64::from(passes < qos.min(self.plan.qos));
        let number = self.oracle.published(Side::Here, topic, (qos, passes), is_excepted);
        let publisher = &mut self.publisher;
        publisher.published += 1;
        publisher.last_id = publisher.last_id % 1_000 + 1;
        let id = PacketId::new(publisher.last_id).expect("not 0");
        let sent = Sent { id, number, topic, qos, payload: payload(number, is_large), is_received: false };
        if qos == QoS::AtMostOnce {
            let publish = Publish {
                dup: false,
                qos,
                retain: false,
                topic: HERE[topic].name,
                packet_id: None,
                properties: PublishProperties::default(),
                payload: &sent.payload,
            };
            return self.send_up(socket, &answer(Packet::Publish(publish)));
        }
        let bytes = sent.publish(false);
        self.publisher.sent.push_back(sent);
        self.send_up(socket, &bytes);
    }

    pub fn publisher_is_closed(&mut self, socket: usize) {
        assert_ne!(self.publisher.socket, Some(socket), "the broker disconnects its publisher");
    }

    pub fn publisher_reads(&mut self, socket: usize, bytes: &[u8]) {
        if self.publisher.socket != Some(socket) {
            return;
        }
        self.publisher.unread.extend_from_slice(bytes);
        let mut unread = std::mem::take(&mut self.publisher.unread);
        take_packets(&mut unread, ProtocolVersion::V5, |packet| match packet {
            Packet::Connack(connack) => {
                assert_eq!(connack.reason, ReasonCode::SUCCESS);
                self.publisher.is_connected = true;
                let again = self.publisher.sent.iter().map(|sent| match sent.is_received {
                    true => answer(Packet::Pubrel(Acknowledgement::success(sent.id))),
                    false => sent.publish(true),
                });
                let again: Vec<Vec<u8>> = again.collect();
                again.into_iter().for_each(|bytes| self.send_up(socket, &bytes));
            }
            Packet::Puback(ack) => self.here_completes(ack, true),
            Packet::Pubrec(ack) => {
                self.here_completes(ack, false);
                self.send_up(socket, &answer(Packet::Pubrel(Acknowledgement::success(ack.packet_id))));
            }
            Packet::Pubcomp(ack) => self.publisher.sent.retain(|sent| sent.id != ack.packet_id),
            other => panic!("the publisher gets {other:?}"),
        });
        self.publisher.unread = unread;
    }

    fn here_completes(&mut self, ack: &Acknowledgement<'_>, is_whole: bool) {
        assert!(!ack.reason.is_error(), "the publisher is refused: {ack:?}");
        let Some(sent) = self.publisher.sent.iter_mut().find(|sent| sent.id == ack.packet_id) else { return };
        sent.is_received = true;
        let number = sent.number;
        if is_whole {
            self.publisher.sent.retain(|sent| sent.id != ack.packet_id);
        }
        self.oracle.acknowledged(number);
    }

    pub fn subscriber_reads(&mut self, socket: usize, bytes: &[u8]) {
        if self.subscriber.socket != Some(socket) {
            return;
        }
        self.subscriber.unread.extend_from_slice(bytes);
        let mut unread = std::mem::take(&mut self.subscriber.unread);
        take_packets(&mut unread, ProtocolVersion::V5, |packet| match packet {
            Packet::Connack(_) => {
                let options = SubscriptionOptions { qos: QoS::ExactlyOnce, ..SubscriptionOptions::default() };
                let filters = vec![SubscribeFilter { filter: "#", options }];
                let packet_id = PacketId::new(1).expect("not 0");
                let properties = Properties::EMPTY;
                let subscribe = Subscribe { packet_id, subscription_id: None, properties, filters };
                self.send_up(socket, &answer(Packet::Subscribe(subscribe)));
            }
            Packet::Suback(_) => self.far.may_publish = true,
            Packet::Publish(publish) => self.subscriber_has(socket, publish),
            Packet::Pubrel(ack) => {
                self.subscriber.had.remove(&ack.packet_id);
                self.send_up(socket, &answer(Packet::Pubcomp(Acknowledgement::success(ack.packet_id))));
            }
            other => panic!("the subscriber gets {other:?}"),
        });
        self.subscriber.unread = unread;
    }

    fn subscriber_has(&mut self, socket: usize, publish: &Publish<'_>) {
        let number = number_of(publish);
        let is_new = publish.qos != QoS::ExactlyOnce
            || publish.packet_id.is_some_and(|id| self.subscriber.had.insert(id));
        let message = self.oracle.message(number);
        if is_new && message.from == Side::There {
            let topic = THERE[message.topic];
            self.oracle.arrives(self.now, Side::Here, number, publish.topic, topic.other);
        }
        let Some(id) = publish.packet_id else { return };
        let ack = Acknowledgement::success(id);
        let ack = if publish.qos == QoS::ExactlyOnce { Packet::Pubrec(ack) } else { Packet::Puback(ack) };
        self.send_up(socket, &answer(ack));
    }
}
