//! A client of its own making: lawful in what it sends, unreliable in everything else.
//!
//! `publishing` and `subscribing` have what it sends, `receive` what it does with what comes, and
//! what it holds the broker to.

use crate::oracle::Message;
use crate::plan::{LONG, Manners, Sessions};
use crate::topics::{Topic, WILLS};
use crate::trace::trace;
use crate::world::{Event, Phase, World};
use homing::mqtt::codec::{self, AckKind};
use homing::mqtt::packet::{
    Acknowledgement, Connect, ConnectProperties, Disconnect, Packet, PacketId, Publish, QoS, ReasonCode,
    WillMessage,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A connection without CONNACK for so long is given up.
const PATIENCE_MS: u64 = 4_000;

/// What a CONNECT says of the session.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Seconds that hold.
    pub expiry: u32,
    pub keep_alive: u16,
    /// What its DISCONNECT says instead.
    pub last_expiry: Option<u32>,
    /// Message and delay in seconds.
    pub will: Option<(usize, u32)>,
}

pub struct Client {
    pub manners: Manners,
    pub(crate) connection: Option<Connection>,
    /// The oracle's number of the session it was last joined to.
    pub(crate) session: Option<usize>,
    pub(crate) unfinished: Vec<Outgoing>,
    next_id: u16,
    /// Subscription Identifiers used.
    pub(crate) identifiers: u32,
    /// Until when it does not read.
    pub stalled_until: u64,
    /// Until when it does not come back.
    away_until: u64,
    said_goodbye: Option<u64>,
    left: bool,
}

pub(crate) struct Connection {
    pub socket: usize,
    pub established: bool,
    pub opened: u64,
    last_sent: u64,
    /// Bytes of a packet that is not whole.
    pub partial: Vec<u8>,
    /// Bytes of whole packets read.
    pub read: u64,
    pub present: bool,
    /// When CONNACK came.
    pub since: u64,
    /// A PUBLISH came that was never sent before.
    pub new_begun: bool,
    pub receive_maximum: u16,
    /// Topics that the broker has set aliases for, and those that this client has.
    pub aliases: BTreeMap<u16, Topic>,
    pub own_aliases: BTreeMap<u16, Topic>,
    pub own_alias_maximum: u16,
    /// SUBSCRIBEs and UNSUBSCRIBEs that wait for their answers, in order.
    pub asked: VecDeque<Asked>,
    /// Acknowledgements kept back.
    pub unanswered: BTreeSet<(u8, u16)>,
    /// PUBRECs sent and PUBRELs received, by identifier.
    pub pubrecs: BTreeMap<u16, u32>,
    pub pubrels: BTreeMap<u16, u32>,
}

/// A SUBSCRIBE or UNSUBSCRIBE without its answer.
pub(crate) struct Asked {
    pub id: u16,
    /// Of the session's subscriptions those that the answer begins, then those that it ends.
    pub begins: Vec<usize>,
    pub ends: Vec<usize>,
    /// Of an UNSUBSCRIBE: whether there was such a subscription, where that is known.
    pub unsubscribes: Option<Option<bool>>,
}

/// A publish that is not finished.
pub(crate) struct Outgoing {
    pub id: u16,
    pub message: usize,
    pub qos: QoS,
    pub released: bool,
    pub padding: usize,
    /// When it was sent first.
    pub sent: u64,
}

impl Client {
    pub fn new(manners: Manners) -> Client {
        Client {
            manners,
            connection: None,
            session: None,
            unfinished: Vec::new(),
            next_id: 0,
            identifiers: 0,
            stalled_until: 0,
            away_until: 0,
            said_goodbye: None,
            left: false,
        }
    }

    pub fn socket(&self) -> Option<usize> {
        self.connection.as_ref().map(|c| c.socket)
    }

    pub fn lose_connection(&mut self) {
        self.connection = None;
        self.stalled_until = 0;
    }

    pub fn has_left(&self) -> bool {
        self.left && self.connection.is_none()
    }

    pub(crate) fn id(&mut self) -> u16 {
        loop {
            self.next_id = self.next_id.wrapping_add(1).max(1);
            if self.unfinished.iter().all(|o| o.id != self.next_id) {
                return self.next_id;
            }
        }
    }

    /// Everything it published is acknowledged, and it is connected.
    pub fn check_settled(&self) -> Result<(), String> {
        let name = &self.manners.name;
        if !self.connection.as_ref().is_some_and(|c| c.established) {
            return Err(format!("{name} does not get connected when all is quiet"));
        }
        match self.unfinished.first() {
            Some(o) => Err(format!(
                "{name} waits for the acknowledgement of {} ({:?}, message {}, released: {}) when all is quiet",
                o.id, o.qos, o.message, o.released
            )),
            None => Ok(()),
        }
    }
}

pub(crate) fn packet_id(id: u16) -> PacketId {
    PacketId::new(id).expect("clients count from 1")
}

impl World {
    /// DISCONNECT that ends the session.
    pub(crate) fn end_session(&mut self, client: usize, socket: usize) {
        let mut disconnect = Disconnect::new(ReasonCode::NORMAL_DISCONNECTION);
        disconnect.session_expiry = Some(0);
        self.sockets[socket].offer.last_expiry = Some(0);
        self.send(client, &Packet::Disconnect(disconnect));
        self.close_up(socket);
        self.clients[client].lose_connection();
    }

    pub(crate) fn send(&mut self, client: usize, packet: &Packet<'_>) {
        let version = self.clients[client].manners.version;
        let Some(connection) = self.clients[client].connection.as_mut() else { return };
        connection.last_sent = self.now;
        let socket = connection.socket;
        trace!(self, "client {client} on {socket} sends {}", brief(packet));
        let mut bytes = Vec::new();
        codec::encode(packet, version, &mut bytes).expect("a lawful packet");
        self.send_up(socket, &bytes);
    }

    pub fn phase_begins(&mut self, client: usize) {
        if self.phase == Phase::Settling {
            self.clients[client].stalled_until = 0;
            if let Some(socket) = self.clients[client].socket() {
                self.wake_client(socket);
            }
            self.pay_all(client);
        }
    }

    /// Sends every acknowledgement that was kept back.
    fn pay_all(&mut self, client: usize) {
        let Some(connection) = self.clients[client].connection.as_mut() else { return };
        for (kind, id) in std::mem::take(&mut connection.unanswered) {
            self.acknowledge(client, ack_kind(kind), id);
        }
    }

    pub fn acknowledge_late(&mut self, client: usize, socket: usize, kind: AckKind, id: u16) {
        let Some(connection) = self.clients[client].connection.as_mut() else { return };
        if connection.socket == socket && connection.unanswered.remove(&(kind as u8, id)) {
            self.acknowledge(client, kind, id);
        }
    }

    pub(crate) fn acknowledge(&mut self, client: usize, kind: AckKind, id: u16) {
        let c = &mut self.clients[client];
        let (Some(connection), Some(session)) = (c.connection.as_mut(), c.session) else { return };
        let socket = connection.socket;
        if kind == AckKind::Pubrec {
            *connection.pubrecs.entry(id).or_default() += 1;
        }
        if let Some(incoming) = self.oracle.sessions[session].incoming.get_mut(&id) {
            self.oracle.done.insert(incoming.message);
            incoming.answered |= kind != AckKind::Pubcomp;
            incoming.recorded |= kind == AckKind::Pubrec;
            incoming.finished |= kind != AckKind::Pubrec;
        }
        let ack = Acknowledgement::success(packet_id(id));
        let packet = match kind {
            AckKind::Puback => Packet::Puback(ack),
            AckKind::Pubrec => Packet::Pubrec(ack),
            _ => Packet::Pubcomp(ack),
        };
        self.send(client, &packet);
        if kind != AckKind::Pubcomp
            && let Some(incoming) = self.oracle.sessions[session].incoming.get_mut(&id)
            && incoming.socket == socket
        {
            incoming.answer_end.get_or_insert(self.sockets[socket].sent());
        }
    }

    pub fn step(&mut self, client: usize) {
        match self.phase {
            Phase::Chaos => self.misbehave(client),
            Phase::Settling => self.behave(client),
            Phase::Leaving => self.leave_for_good(client),
            Phase::Over => return,
        }
        self.ping(client);
        // Pings alone need no haste.
        let pace = if self.phase == Phase::Chaos { self.plan.step_ms } else { 600 };
        let at = self.now + self.rng.between(1, pace);
        self.schedule(at, Event::Step { client });
    }

    fn ping(&mut self, client: usize) {
        let keep_alive = u64::from(self.clients[client].manners.keep_alive) * 1_000;
        if let Some(c) = &self.clients[client].connection
            && c.established
            && keep_alive > 0
            && self.now > c.last_sent + keep_alive * 7 / 10
        {
            self.send(client, &Packet::Pingreq);
        }
    }

    /// Whether it may go on; connects, or waits.
    fn is_established(&mut self, client: usize) -> bool {
        match &self.clients[client].connection {
            Some(c) if c.established => return true,
            Some(c) if self.now < c.opened + PATIENCE_MS => return false,
            Some(c) => {
                let socket = c.socket;
                self.vanish(socket);
            }
            None => {}
        }
        self.connect(client);
        false
    }

    fn misbehave(&mut self, client: usize) {
        self.impersonate(client);
        let c = &self.clients[client];
        if c.connection.is_none() && (self.now < c.away_until || self.rng.percent(60)) {
            return;
        }
        if self.rng.percent(self.plan.cruelty)
            && let Some(socket) = self.clients[client].socket()
        {
            return self.hurt(client, socket);
        }
        if !self.is_established(client) {
            return;
        }
        if self.rng.percent(self.clients[client].manners.publishes) {
            for _ in 0..self.rng.between(1, 3) {
                self.publish(client);
            }
        } else if self.rng.percent(50) {
            self.change_subscriptions(client);
        }
    }

    fn hurt(&mut self, client: usize, socket: usize) {
        let established = self.clients[client].connection.as_ref().is_some_and(|c| c.established);
        match self.rng.below(7) {
            0 => self.reset(socket),
            1 => self.vanish(socket),
            2 => self.close_up(socket),
            3 if established => {
                self.say_goodbye(client, socket);
                self.close_up(socket);
            }
            // It takes its own connection over.
            4 | 5 => {
                if self.rng.percent(50) {
                    self.vanish(socket);
                }
                trace!(self, "client {client} takes over its connection {socket}");
                return self.connect(client);
            }
            _ => {
                let until = self.now + self.rng.between(500, 6_000);
                // A read that was put off for longer stays put off.
                let stalled = &mut self.clients[client].stalled_until;
                *stalled = until.max(*stalled);
                trace!(self, "client {client} reads nothing until {}", self.clients[client].stalled_until);
                return;
            }
        }
        trace!(self, "client {client} loses its connection {socket}");
        if self.rng.percent(self.clients[client].manners.strays) {
            let most = self.clients[client].manners.stays_away_ms;
            self.clients[client].away_until = self.now + self.rng.between(800, most);
        }
        self.clients[client].lose_connection();
    }

    /// DISCONNECT, which in 5.0 may change how long the session lasts, and ask for the will.
    fn say_goodbye(&mut self, client: usize, socket: usize) {
        let mut disconnect = Disconnect::new(ReasonCode::NORMAL_DISCONNECTION);
        if self.clients[client].manners.version.is_v5() {
            if self.rng.percent(40) {
                disconnect.reason = ReasonCode::DISCONNECT_WITH_WILL_MESSAGE;
            }
            if self.sockets[socket].offer.expiry > 0 && self.rng.percent(30) {
                let expiry = self.rng.pick(&[0, 1, 2, LONG]);
                disconnect.session_expiry = Some(expiry);
                self.sockets[socket].offer.last_expiry =
                    Some(expiry.min(self.plan.settings.session.connect.session_expiry));
            }
        }
        self.send(client, &Packet::Disconnect(disconnect));
    }

    fn behave(&mut self, client: usize) {
        if self.is_established(client) {
            self.pay_all(client);
        }
    }

    fn leave_for_good(&mut self, client: usize) {
        let c = &mut self.clients[client];
        if c.connection.is_none() && c.said_goodbye.is_some_and(|when| self.now < when + PATIENCE_MS) {
            // Its packets may have come too late: the connection was closed, and the session goes
            // on.
            c.left = !self.oracle.has_session(client);
            return;
        }
        if c.left || !self.is_established(client) {
            return;
        }
        let socket = self.clients[client].socket().unwrap_or_default();
        let v5 = self.clients[client].manners.version.is_v5();
        if self.sockets[socket].offer.expiry > 0 && !v5 {
            // A session of 3.1.1 that was kept ends with the next clean one.
            return self.connect(client);
        }
        let mut disconnect = Disconnect::new(ReasonCode::NORMAL_DISCONNECTION);
        if v5 {
            disconnect.session_expiry = Some(0);
            self.sockets[socket].offer.last_expiry = Some(0);
        }
        self.send(client, &Packet::Disconnect(disconnect));
        self.close_up(socket);
        self.clients[client].lose_connection();
        self.clients[client].said_goodbye = Some(self.now);
    }

    fn connect(&mut self, client: usize) {
        let manners = self.clients[client].manners.clone();
        let clean = match manners.sessions {
            Sessions::Clean => true,
            Sessions::Kept => false,
            Sessions::Mixed => self.phase == Phase::Chaos && self.rng.percent(50),
        };
        let clean = clean || self.phase == Phase::Leaving;
        let v5 = manners.version.is_v5();
        let expiry = match (v5, clean) {
            // 5.0 knows clean sessions that are then kept.
            (true, true) if self.phase == Phase::Chaos && self.rng.percent(20) => manners.expiry,
            (_, true) => 0,
            (true, false) => manners.expiry,
            (false, false) => self.plan.settings.session.connect.session_expiry,
        };
        let will = self.draw_will(client);
        let granted = expiry.min(self.plan.settings.session.connect.session_expiry);
        let offer = Offer { expiry: granted, keep_alive: manners.keep_alive, last_expiry: None, will };
        let socket = self.open(client, offer);
        self.clients[client].stalled_until = 0;
        self.clients[client].connection = Some(Connection {
            socket,
            established: false,
            opened: self.now,
            last_sent: self.now,
            partial: Vec::new(),
            read: 0,
            present: false,
            since: self.now,
            new_begun: false,
            receive_maximum: u16::MAX,
            aliases: BTreeMap::new(),
            own_aliases: BTreeMap::new(),
            own_alias_maximum: 0,
            asked: VecDeque::new(),
            unanswered: BTreeSet::new(),
            pubrecs: BTreeMap::new(),
            pubrels: BTreeMap::new(),
        });
        let mut properties = ConnectProperties::default();
        if v5 {
            properties.session_expiry = Some(expiry);
            properties.receive_maximum = manners.receive_maximum;
            properties.topic_alias_maximum = manners.alias_maximum;
        }
        let (mut user_name, mut password) = self.credentials(client, socket);
        if let Some((method, data)) = self.method(client) {
            (properties.authentication_method, properties.authentication_data) = (Some(method), Some(data));
            (user_name, password) = (None, None);
        }
        let payload = will.map(|(message, _)| (message as u32).to_be_bytes());
        let will = will.zip(payload.as_ref()).map(|((message, delay), payload)| {
            let m = &self.oracle.messages[message];
            WillMessage {
                qos: m.qos,
                retain: m.retain,
                topic: m.topic.name(),
                payload,
                delay,
                message_expiry: m.expiry,
                forwarded: Default::default(),
            }
        });
        let connect = Connect {
            version: manners.version,
            clean_start: clean,
            keep_alive: manners.keep_alive,
            properties,
            client_id: &manners.name,
            will,
            user_name: user_name.as_deref(),
            password,
        };
        trace!(self, "client {client} connects by socket {socket}: clean {clean}, expiry {expiry} s");
        self.send(client, &Packet::Connect(Box::new(connect)));
    }

    /// The will of a connection to come: its message, which goes out if it does, and its delay in
    /// seconds.
    fn draw_will(&mut self, client: usize) -> Option<(usize, u32)> {
        if self.phase != Phase::Chaos || !self.rng.percent(self.clients[client].manners.wills) {
            return None;
        }
        let v5 = self.clients[client].manners.version.is_v5();
        let delay = if v5 { self.rng.pick(&[0, 0, 1, 2, 5]) } else { 0 };
        let expiry = if v5 { self.rng.pick(&[None, None, Some(2)]) } else { None };
        let message = Message {
            publisher: client,
            topic: self.rng.pick(&WILLS),
            qos: self.rng.pick(&[QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce]),
            retain: self.rng.percent(30),
            empty: false,
            is_will: true,
            expiry,
            delay: None,
            first_sent: u64::MAX,
            first_event: None,
            sends: 0,
            acknowledged: None,
            refused: false,
        };
        // A CONNECT with another will is refused.
        let is_allowed = self.oracle.may_always_be_sent(&message);
        is_allowed.then(|| (self.oracle.enter(message), delay))
    }

    /// CONNACK came: what was not finished goes again, or is forgotten with the session.
    // 3.1.1 and 5.0 [MQTT-4.4.0-1]
    pub(crate) fn established(&mut self, client: usize) {
        let c = &mut self.clients[client];
        let Some(connection) = c.connection.as_mut() else { return };
        connection.established = true;
        connection.since = self.now;
        let joined = self.oracle.joined.get(&connection.socket).copied();
        let afresh = joined != c.session;
        c.session = joined;
        if afresh {
            // A QoS 2 message must not be sent as a new one: it may have been received.
            c.unfinished.retain(|o| o.qos == QoS::AtLeastOnce);
            for at in 0..c.unfinished.len() {
                c.unfinished[at].id = 0;
            }
            for at in 0..c.unfinished.len() {
                c.unfinished[at].id = c.id();
            }
        }
        for at in 0..self.clients[client].unfinished.len() {
            let Outgoing { id, released, .. } = self.clients[client].unfinished[at];
            if released {
                self.send(client, &Packet::Pubrel(Acknowledgement::success(packet_id(id))));
            } else {
                self.send_publish(client, at, !afresh);
            }
        }
        if afresh {
            self.change_subscriptions(client);
        }
    }
}

fn ack_kind(kind: u8) -> AckKind {
    [AckKind::Puback, AckKind::Pubrec, AckKind::Pubrel, AckKind::Pubcomp]
        .into_iter()
        .find(|k| *k as u8 == kind)
        .expect("made from one")
}

/// A packet in a trace.
pub(crate) fn brief(packet: &Packet<'_>) -> String {
    match packet {
        Packet::Publish(p) => {
            let id = p.packet_id.map_or(0, PacketId::get);
            let Publish { dup, qos, retain, topic, properties, payload, .. } = p;
            let message = payload.first_chunk().map(|m| u32::from_be_bytes(*m));
            let (alias, ids) = (properties.topic_alias, &properties.subscription_ids);
            format!(
                "PUBLISH dup {dup} {qos:?} retain {retain} id {id} {topic} {alias:?} {ids:?}: {message:?}"
            )
        }
        Packet::Puback(a) | Packet::Pubrec(a) | Packet::Pubrel(a) | Packet::Pubcomp(a) => {
            format!("{} {} {:?}", packet.name(), a.packet_id, a.reason)
        }
        Packet::Subscribe(s) => {
            let filters: Vec<_> = s.filters.iter().map(|f| (f.filter, f.options)).collect();
            format!("SUBSCRIBE {} {:?} {filters:?}", s.packet_id, s.subscription_id)
        }
        Packet::Unsubscribe(u) => format!("UNSUBSCRIBE {} {:?}", u.packet_id, u.filters),
        Packet::Connack(c) => format!("CONNACK present {} {:?}", c.session_present, c.reason),
        Packet::Disconnect(d) => format!("DISCONNECT {:?} {:?}", d.reason, d.reason_string),
        other => other.name().into(),
    }
}
