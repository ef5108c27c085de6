//! Clients of a cell: they connect to any node that serves, publish, subscribe, acknowledge, and
//! break their connections.

use crate::broker::Brokers;
use crate::promises::{MessageNumber, Published, Subscribed};
use crate::world::{NODES, World};
use homing::mqtt::codec::{self, AckKind, Decoded};
use homing::mqtt::packet::{
    Connect, ConnectProperties, Packet, PacketId, Properties, ProtocolVersion, Publish, PublishProperties,
    QoS, ReasonCode, Subscribe, SubscribeFilter, SubscriptionOptions, Unsubscribe,
};
use std::collections::{BTreeSet, VecDeque};

/// Messages that a publisher has on their way at most.
const ON_THEIR_WAY: usize = 3;
/// After this time without an answer a client may try another node.
const PATIENCE_MS: u64 = 3_000;
/// The Session Expiry Interval in seconds: far shorter than the wall clocks of nodes are apart, and
/// longer than a play.
const EXPIRY: u32 = 60 * 60;
const TOPICS: [&str; 2] = ["t/0", "t/1"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Publisher,
    Subscriber,
    /// A subscriber whose session ends with its connection.
    Passer,
}

pub struct Client {
    pub name: String,
    cell: usize,
    role: Role,
    socket: Option<usize>,
    /// True from CONNACK on.
    is_connected: bool,
    /// True if a CONNACK said so, and the session outlives its connection.
    has_session: bool,
    heard: u64,
    unread: Vec<u8>,
    packet_id: u16,
    /// What a publisher has on its way, in order.
    sent: VecDeque<Sent>,
    /// The topic of a subscriber's subscription, and whether SUBACK came.
    subscribed: Option<(usize, bool)>,
    /// True while UNSUBACK is awaited.
    is_leaving: bool,
    /// The identifiers of QoS 2 messages that it had and are not released.
    had: BTreeSet<u16>,
}

/// A message on its way to the broker.
struct Sent {
    id: u16,
    number: MessageNumber,
    qos: QoS,
    topic: usize,
    /// True once PUBREC came.
    is_received: bool,
}

impl Client {
    /// The clients of a cell.
    pub fn of_cell(cell: usize) -> Vec<Client> {
        let roles = [
            Role::Publisher,
            Role::Publisher,
            Role::Subscriber,
            Role::Subscriber,
            Role::Subscriber,
            Role::Passer,
        ];
        let client = |(number, role)| Client {
            name: format!("client {number} of cell {cell}"),
            cell,
            role,
            socket: None,
            is_connected: false,
            has_session: false,
            heard: 0,
            unread: Vec::new(),
            packet_id: 0,
            sent: VecDeque::new(),
            subscribed: None,
            is_leaving: false,
            had: BTreeSet::new(),
        };
        roles.into_iter().enumerate().map(client).collect()
    }

    pub fn check_settled(&self) {
        assert!(self.is_connected, "{} is not connected after the calm", self.name);
        let waits = self.sent.front().map(|sent| sent.number);
        assert_eq!(waits, None, "{} waits for an acknowledgement after the calm", self.name);
    }

    fn next_id(&mut self) -> PacketId {
        self.packet_id = self.packet_id % 1_000 + 1;
        PacketId::new(self.packet_id).expect("not 0")
    }
}

fn encoded(packet: &Packet<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    codec::encode(packet, ProtocolVersion::V5, &mut bytes).expect("a lawful packet");
    bytes
}

fn acknowledgement(kind: AckKind, id: PacketId) -> Vec<u8> {
    let mut bytes = Vec::new();
    codec::put_acknowledgement(&mut bytes, kind, id, ReasonCode::SUCCESS, ProtocolVersion::V5);
    bytes
}

fn connect(name: &str, role: Role) -> Vec<u8> {
    let expiry = if role == Role::Passer { 0 } else { EXPIRY };
    let properties =
        ConnectProperties { session_expiry: Some(expiry), receive_maximum: Some(4), ..Default::default() };
    encoded(&Packet::Connect(Box::new(Connect {
        version: ProtocolVersion::V5,
        clean_start: role == Role::Passer,
        keep_alive: 0,
        properties,
        client_id: name,
        will: None,
        user_name: None,
        password: None,
    })))
}

fn publish(sent: &Sent, dup: bool) -> Vec<u8> {
    encoded(&Packet::Publish(Publish {
        dup,
        qos: sent.qos,
        retain: false,
        topic: TOPICS[sent.topic],
        packet_id: PacketId::new(sent.id),
        properties: PublishProperties::default(),
        payload: &sent.number.to_le_bytes(),
    }))
}

impl World<Brokers> {
    fn client(&mut self, client: usize) -> &mut Client {
        &mut self.occupant.clients[client]
    }

    fn sends(&mut self, client: usize, bytes: Vec<u8>) {
        if let Some(socket) = self.client(client).socket {
            self.send_up(socket, bytes);
        }
    }

    /// A client does what it does next.
    pub fn step(&mut self, client: usize) {
        let pause = self.rng.between(30, 500);
        self.schedule(self.now + pause, crate::broker::BrokerEvent::Step { client });
        let (now, is_calm) = (self.now, self.occupant.is_calm);
        let Client { socket, is_connected, role, cell, heard, sent, .. } = &self.occupant.clients[client];
        let (role, cell, awaits) = (*role, *cell, !is_connected || !sent.is_empty());
        let Some(socket) = *socket else { return self.come(client, role, cell) };
        let is_patient = !awaits || now < heard + PATIENCE_MS;
        let breaks =
            if is_calm { !is_patient } else { !is_patient && self.rng.percent(20) || self.rng.percent(3) };
        if breaks {
            return self.break_connection(client, socket);
        }
        if !self.client(client).is_connected || is_calm {
            return;
        }
        match role {
            Role::Publisher => self.publish_next(client, cell),
            Role::Subscriber | Role::Passer => self.subscribe_or_leave(client),
        }
    }

    /// Connects to a node that serves. A client that has lost its connection does not know which one
    /// owns the cell.
    fn come(&mut self, client: usize, role: Role, cell: usize) {
        let serving: Vec<usize> = (0..NODES).filter(|node| self.serves(*node, cell)).collect();
        if serving.is_empty() {
            return;
        }
        let node = self.rng.pick(&serving);
        let socket = self.open(client, node, cell);
        let now = self.now;
        let of = self.client(client);
        (of.socket, of.is_connected, of.heard) = (Some(socket), false, now);
        of.unread.clear();
        let bytes = connect(&of.name, role);
        self.sends(client, bytes);
    }

    fn break_connection(&mut self, client: usize, socket: usize) {
        self.send_up(socket, Vec::new());
        self.lost_connection(client);
    }

    fn lost_connection(&mut self, client: usize) {
        let of = self.client(client);
        (of.socket, of.is_connected) = (None, false);
        if of.role == Role::Passer {
            (of.subscribed, of.is_leaving) = (None, false);
        }
    }

    pub fn client_is_closed(&mut self, socket: usize) {
        let client = self.occupant.sockets[socket].client;
        if self.client(client).socket == Some(socket) {
            self.lost_connection(client);
        }
    }

    fn publish_next(&mut self, publisher: usize, cell: usize) {
        if self.client(publisher).sent.len() >= ON_THEIR_WAY {
            return;
        }
        let (qos, topic) = (self.rng.pick(&[QoS::AtLeastOnce, QoS::ExactlyOnce]), self.rng.below(2) as usize);
        let number = self.occupant.promises.messages.len() as MessageNumber + 1;
        let is_exactly_once = qos == QoS::ExactlyOnce;
        let first_sent = self.now;
        let message = Published {
            publisher,
            cell,
            topic,
            is_exactly_once,
            first_sent,
            acknowledged: None,
            is_excepted: false,
        };
        self.occupant.promises.messages.insert(number, message);
        let of = self.client(publisher);
        let id = of.next_id().get();
        if of.sent.is_empty() {
            of.heard = first_sent;
        }
        let sent = Sent { id, number, qos, topic, is_received: false };
        let bytes = publish(&sent, false);
        of.sent.push_back(sent);
        self.sends(publisher, bytes);
    }

    fn subscribe_or_leave(&mut self, client: usize) {
        let (topic, qos) = (self.rng.below(2) as usize, self.rng.pick(&[QoS::AtLeastOnce, QoS::ExactlyOnce]));
        let passes = self.client(client).role == Role::Passer;
        let (leaves, now) = (self.rng.percent(if passes { 50 } else { 5 }), self.now);
        let of = self.client(client);
        let packet_id = of.next_id();
        let properties = Properties::EMPTY;
        let bytes = match of.subscribed {
            None => {
                of.subscribed = Some((topic, false));
                let options = SubscriptionOptions { qos, ..Default::default() };
                let filters = vec![SubscribeFilter { filter: TOPICS[topic], options }];
                encoded(&Packet::Subscribe(Subscribe {
                    packet_id,
                    subscription_id: None,
                    properties,
                    filters,
                }))
            }
            Some((topic, true)) if leaves && !of.is_leaving => {
                of.is_leaving = true;
                let filters = vec![TOPICS[topic]];
                let left = self.occupant.promises.subscriptions.iter_mut();
                left.filter(|one| one.client == client).for_each(|one| one.until = one.until.min(now));
                encoded(&Packet::Unsubscribe(Unsubscribe { packet_id, filters, properties }))
            }
            Some(_) => return,
        };
        self.sends(client, bytes);
    }

    /// A node whose clock had stood still acknowledges a message.
    pub fn except(&mut self, socket: usize, id: u16) {
        let client = self.occupant.sockets[socket].client;
        let number = self.client(client).sent.iter().find(|sent| sent.id == id).map(|sent| sent.number);
        if let Some(message) = number.and_then(|number| self.occupant.promises.messages.get_mut(&number)) {
            message.is_excepted = true;
        }
    }

    pub fn client_reads(&mut self, socket: usize, bytes: &[u8]) {
        let (client, now) = (self.occupant.sockets[socket].client, self.now);
        let of = self.client(client);
        if of.socket != Some(socket) {
            return;
        }
        of.heard = now;
        of.unread.extend_from_slice(bytes);
        let (unread, mut at) = (std::mem::take(&mut of.unread), 0);
        while let Ok(Decoded::Packet { packet, length }) =
            codec::decode(&unread[at..], ProtocolVersion::V5, u32::MAX)
        {
            at += length;
            self.client_takes(client, packet);
        }
        self.client(client).unread = unread[at..].to_vec();
    }

    fn client_takes(&mut self, client: usize, packet: Packet<'_>) {
        match packet {
            Packet::Connack(connack) => self.entered(client, connack.session_present),
            Packet::Suback(suback) => {
                assert!(suback.reasons.iter().all(|reason| !reason.is_error()), "{suback:?}");
                self.has_suback(client);
            }
            Packet::Unsuback(_) => {
                let of = self.client(client);
                (of.subscribed, of.is_leaving) = (None, false);
            }
            Packet::Publish(publish) => self.has_message(client, &publish),
            Packet::Pubrel(pubrel) => {
                self.client(client).had.remove(&pubrel.packet_id.get());
                self.sends(client, acknowledgement(AckKind::Pubcomp, pubrel.packet_id));
            }
            Packet::Puback(ack) => {
                assert!(!ack.reason.is_error(), "{ack:?}");
                self.has_acknowledgement(client, ack.packet_id);
                self.client(client).sent.retain(|sent| sent.id != ack.packet_id.get());
            }
            Packet::Pubrec(ack) => {
                assert!(!ack.reason.is_error(), "{ack:?}");
                self.has_acknowledgement(client, ack.packet_id);
                let sent = &mut self.client(client).sent;
                sent.iter_mut()
                    .filter(|sent| sent.id == ack.packet_id.get())
                    .for_each(|sent| sent.is_received = true);
                self.sends(client, acknowledgement(AckKind::Pubrel, ack.packet_id));
            }
            Packet::Pubcomp(ack) => {
                self.client(client).sent.retain(|sent| sent.id != ack.packet_id.get());
            }
            Packet::Disconnect(_) => {}
            other => panic!("{other:?}"),
        }
    }

    /// CONNACK: what is on its way is sent again, and what was not answered is asked for again.
    fn entered(&mut self, client: usize, session_present: bool) {
        let of = self.client(client);
        assert!(session_present || !of.has_session, "the session of {} is lost", of.name);
        of.is_connected = true;
        of.has_session |= of.role != Role::Passer;
        let again: Vec<Vec<u8>> = of
            .sent
            .iter()
            .map(|sent| match (sent.is_received, PacketId::new(sent.id)) {
                (true, Some(id)) => acknowledgement(AckKind::Pubrel, id),
                _ => publish(sent, true),
            })
            .collect();
        if of.is_leaving {
            // It does not know if it left.
            of.is_leaving = false;
        } else if let Some((_, false)) = of.subscribed {
            of.subscribed = None;
        }
        again.into_iter().for_each(|bytes| self.sends(client, bytes));
    }

    fn has_suback(&mut self, client: usize) {
        let from = self.now;
        let of = self.client(client);
        let Some((topic, is_sure)) = &mut of.subscribed else { return };
        *is_sure = true;
        let (topic, cell, is_durable) = (*topic, of.cell, of.role == Role::Subscriber);
        if is_durable {
            let subscribed = Subscribed { client, cell, topic, from, until: u64::MAX };
            self.occupant.promises.subscriptions.push(subscribed);
        }
    }

    fn has_acknowledgement(&mut self, client: usize, id: PacketId) {
        let now = self.now;
        let number = self.client(client).sent.iter().find(|sent| sent.id == id.get()).map(|sent| sent.number);
        let Some(message) = number.and_then(|number| self.occupant.promises.messages.get_mut(&number)) else {
            return;
        };
        if message.acknowledged.is_none() {
            message.acknowledged = Some(now);
            self.occupant.promises.totals.acknowledged += 1;
        }
    }

    fn has_message(&mut self, client: usize, publish: &Publish<'_>) {
        let number = MessageNumber::from_le_bytes(publish.payload.try_into().expect("a number"));
        let is_durable = self.client(client).role == Role::Subscriber;
        let Some(id) = publish.packet_id else { panic!("no subscription is at QoS 0") };
        let is_exactly_once = publish.qos == QoS::ExactlyOnce;
        let is_new = !is_exactly_once || self.client(client).had.insert(id.get());
        if is_new && is_durable {
            self.occupant.promises.delivered(client, number, is_exactly_once);
        }
        let kind = if is_exactly_once { AckKind::Pubrec } else { AckKind::Puback };
        // Now and then it loses the acknowledgement with its connection.
        if self.occupant.is_calm || !self.rng.percent(3) {
            self.sends(client, acknowledgement(kind, id));
        } else if let Some(socket) = self.client(client).socket {
            self.break_connection(client, socket);
        }
    }
}
