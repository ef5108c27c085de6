//! Clients that acknowledge each message at once, over links of any rate. No message comes to them
//! twice and none of them is disconnected, whatever their connections are paused for.
//!
//! The model of a link: bytes that the broker's socket took travel at the link's rate, and count as
//! not sent until they are there. What the client answers is in the broker's kernel one step later,
//! and stays there until the broker reads it.

use crate::client::{connect, encoded, named_at, publication, subscribe, take_packets};
use crate::driver::{self, LinkId, MemoryDriver};
use homing::access::meter::{MeteredRate, TrafficRates};
use homing::login::arrival::Arrival;
use homing::login::listener_terms::ListenerTerms;
use homing::mqtt::codec::{self, Decoded};
use homing::mqtt::packet::{
    Acknowledgement, Connect, ConnectProperties, Packet, PacketId, Properties, ProtocolVersion, Publish, QoS,
    Subscribe, SubscribeFilter, SubscriptionOptions,
};
use homing::session::outbound::queue::QueuePolicy;
use homing::session::outbound::retry::OnAckTimeout;
use homing::shard::ShardSettings;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

const V3: ProtocolVersion = ProtocolVersion::V3_1_1;
const V5: ProtocolVersion = ProtocolVersion::V5;
/// The kernel's send buffer at the broker.
const SEND_BUFFER: usize = 256 << 10;
/// Unanswered PUBLISH packets of a client at most.
const RECEIVE_MAXIMUM: u16 = 60;

/// The cause for which the connection of the client is paused again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pauses {
    /// None but a full outbox.
    Outbox,
    /// A disk whose commits take seconds: the client's PUBLISH packets are not answered.
    Disk,
    /// A peer that answers nothing for seconds.
    Peer,
    /// The rate of the client.
    Rate,
}

/// One client behind one link.
#[derive(Clone, Copy, Debug)]
struct Case {
    version: ProtocolVersion,
    /// Bytes a second.
    rate: usize,
    /// Payload of each QoS 1 message in bytes.
    payload: usize,
    /// True if QoS 0 comes at twice the rate of the link.
    flooded: bool,
    pauses: Pauses,
    secs: u64,
}

/// A client that reads what comes and answers at once.
struct Client {
    link: LinkId,
    version: ProtocolVersion,
    /// Bytes between the broker's socket and the client's program.
    way: Vec<u8>,
    /// Number of bytes of `way` that have come.
    here: usize,
    /// The numbers of the QoS 1 messages that came.
    numbers: Vec<u32>,
    /// QoS 0 messages that came.
    at_most_once: u32,
    /// Answers that are sent in the next step.
    answers: Vec<u8>,
    /// PUBLISH packets of its own that are not answered.
    unanswered: u16,
    next_id: u16,
    /// The latest time in ms of each PINGRESP that is expected.
    pongs: VecDeque<u64>,
}

impl Client {
    /// Takes in what came by now, and makes the answers.
    fn read(&mut self, case: &Case) {
        let mut at = 0;
        while let Ok(Decoded::Packet { packet, length }) =
            codec::decode(&self.way[at..self.here], self.version, u32::MAX)
        {
            at += length;
            match packet {
                Packet::Publish(Publish { packet_id: Some(id), payload, dup, .. }) => {
                    let number = u32::from_be_bytes(payload[..4].try_into().expect("a number"));
                    let due = self.numbers.last().map_or(0, |last| last + 1);
                    assert!(!dup && number == due, "{number} comes where {due} is due: {case:?}");
                    self.numbers.push(number);
                    let ack = Packet::Puback(Acknowledgement::success(id));
                    self.answers.extend(encoded(&ack, self.version));
                }
                Packet::Publish(_) => self.at_most_once += 1,
                Packet::Puback(_) => self.unanswered -= 1,
                Packet::Pingresp => _ = self.pongs.pop_front(),
                Packet::Disconnect(disconnect) => panic!("{disconnect:?} {case:?}"),
                Packet::Connack(_) | Packet::Suback(_) => {}
                other => panic!("{other:?} {case:?}"),
            }
        }
        self.way.drain(..at);
        self.here -= at;
    }
}

fn settings(case: &Case) -> ShardSettings {
    let mut settings = driver::settings();
    let send = &mut settings.session.send;
    send.queue.bytes = 64 << 20;
    send.queue.policy = QueuePolicy::Refuse;
    send.in_flight = 1_000;
    let retry = &mut send.redelivery.retry;
    (retry.interval, retry.max_interval) = (Duration::from_secs(2), Duration::from_secs(2));
    let ack = &mut send.redelivery.ack;
    (ack.timeout, ack.max_timeout) = (Duration::from_secs(2), Duration::from_secs(2));
    ack.on_timeout = OnAckTimeout::Disconnect;
    settings.session.receive_maximum = RECEIVE_MAXIMUM;
    settings.write_timeout = Duration::from_secs(100);
    if case.pauses == Pauses::Rate {
        let messages = MeteredRate::new(1, Duration::from_millis(300));
        settings.rates = Some(TrafficRates { messages, bytes: None });
    }
    settings
}

struct World {
    case: Case,
    driver: MemoryDriver,
    client: Client,
    publisher: LinkId,
    /// The number of the next QoS 1 message.
    next: u32,
    /// PUBLISH packets of the publisher that are not answered.
    unanswered: u16,
    /// QoS 1 bytes that may be published by now.
    credit: usize,
    step: u64,
}

impl World {
    fn new(case: Case) -> World {
        let shards = if case.pauses == Pauses::Peer { 2 } else { 1 };
        let mut driver = MemoryDriver::new(&settings(&case), shards);
        if case.pauses == Pauses::Disk {
            driver.keep_in_store();
        }
        let enter = |driver: &mut MemoryDriver, name: &str, version, keep_alive| {
            let properties =
                ConnectProperties { session_expiry: (version == V5).then_some(3_600), ..Default::default() };
            let connect = Connect { version, clean_start: false, keep_alive, properties, ..connect(name) };
            let link = driver.open();
            driver.send(link, &encoded(&Packet::Connect(Box::new(connect)), version));
            link
        };
        let link = enter(&mut driver, &named_at("client", 0, shards), case.version, 15);
        let options = SubscriptionOptions { qos: QoS::AtLeastOnce, ..Default::default() };
        let subscription = Subscribe {
            packet_id: PacketId::new(1).expect("not 0"),
            subscription_id: None,
            properties: Properties::EMPTY,
            filters: [SubscribeFilter { filter: "down/#", options }].into_iter().collect(),
        };
        driver.send(link, &encoded(&Packet::Subscribe(subscription), case.version));
        // The publisher comes by a listener without rates.
        let listener = Arc::new(ListenerTerms { message_rate: Some(None), ..ListenerTerms::default() });
        let publisher = driver.open_from(Arrival { listener, ..Arrival::local() });
        let name = named_at("publisher", 0, shards);
        let publishes = connect(&name);
        driver.send(publisher, &encoded(&Packet::Connect(Box::new(publishes)), V5));
        // The client's own messages go to another session, which the store or a peer has.
        let other = enter(&mut driver, &named_at("other", shards - 1, shards), V5, 0);
        subscribe(&mut driver, other, &["up"], QoS::AtLeastOnce);
        if case.pauses == Pauses::Disk {
            driver.close(other);
        }
        driver.links[link].received.clear();
        let (way, numbers, answers) = (Vec::new(), Vec::new(), Vec::new());
        let client = Client {
            link,
            version: case.version,
            way,
            here: 0,
            numbers,
            at_most_once: 0,
            answers,
            unanswered: 0,
            next_id: 1,
            pongs: VecDeque::new(),
        };
        World { case, driver, client, publisher, next: 0, unanswered: 0, credit: case.payload * 12, step: 0 }
    }

    /// Milliseconds of one step: a twentieth of the send buffer at most.
    fn step_ms(&self) -> u64 {
        (SEND_BUFFER as u64 * 50 / self.case.rate as u64).clamp(10, 250)
    }

    /// Another client publishes what is due in this step.
    fn publish(&mut self, bytes: usize) {
        // Few small messages are enough.
        self.credit += (bytes / 2).min(self.case.payload.max(1_000) / 10);
        while self.credit >= self.case.payload && self.unanswered < RECEIVE_MAXIMUM {
            self.unanswered += 1;
            self.credit -= self.case.payload;
            let mut payload = vec![7; self.case.payload];
            payload[..4].copy_from_slice(&self.next.to_be_bytes());
            self.next += 1;
            let parts = publication("down/owed", &payload);
            let packet_id = PacketId::new(u16::try_from(self.next % 60_000 + 1).expect("small"));
            let publish = Publish { qos: QoS::AtLeastOnce, packet_id, ..parts };
            self.driver.send(self.publisher, &encoded(&Packet::Publish(publish), V5));
        }
        if self.case.flooded {
            let payload = vec![0; bytes / 2];
            let publish = encoded(&Packet::Publish(publication("down/flood", &payload)), V5);
            self.driver.send(self.publisher, &publish.repeat(4));
        }
        self.take_acks();
    }

    fn take_acks(&mut self) {
        let World { driver, unanswered, .. } = self;
        take_packets(driver, self.publisher, V5, |packet| {
            *unanswered -= u16::from(matches!(packet, Packet::Puback(_)));
        });
    }

    /// The client publishes, so that its connection is paused.
    fn client_publishes(&mut self, at_ms: u64) {
        let step_ms = self.step_ms();
        let Client { link, version, ref mut answers, ref mut unanswered, ref mut next_id, .. } = self.client;
        match self.case.pauses {
            Pauses::Outbox => {}
            Pauses::Disk => {
                let most = RECEIVE_MAXIMUM + if version == V5 { 0 } else { 10 };
                while *unanswered < most {
                    let parts = publication("up", &[1; 100]);
                    let packet_id = PacketId::new(*next_id);
                    let publish = Publish { qos: QoS::AtLeastOnce, packet_id, ..parts };
                    answers.extend(encoded(&Packet::Publish(publish), version));
                    *unanswered += 1;
                    *next_id = *next_id % 60_000 + 1;
                }
                self.driver.delays_commits = true;
                if at_ms % 7_000 < step_ms {
                    self.driver.commit();
                }
                self.driver.read_pages();
            }
            Pauses::Peer => {
                let is_over = at_ms % 100_000 >= 20_000;
                if at_ms % 100_000 < step_ms {
                    self.driver.delays_peer_batches = true;
                    answers.extend(b"\x30\x05\0\x02upx".repeat(if version == V3 { 8_300 } else { 0 }));
                    answers.extend(b"\x30\x06\0\x02up\0x".repeat(if version == V5 { 8_300 } else { 0 }));
                } else if self.driver.delays_peer_batches && is_over {
                    self.driver.delays_peer_batches = false;
                    self.driver.settle();
                    self.driver.links.iter_mut().skip(2).for_each(|other| other.received.clear());
                }
            }
            Pauses::Rate => {
                if at_ms % 30_000 < step_ms {
                    let publish = encoded(&Packet::Publish(publication("up", &[1; 100])), version);
                    answers.extend(publish.repeat(25));
                }
            }
        }
        let link = &self.driver.links[link];
        assert_eq!(link.disconnected, None, "{at_ms} ms {:?}", self.case);
    }

    /// The client pings every ten seconds, and has the answer in time.
    fn ping(&mut self, at_ms: u64) {
        let overdue = self.client.pongs.front().is_some_and(|until| *until < at_ms);
        assert!(!overdue, "no PINGRESP at {at_ms} ms: {:?}", self.case);
        if at_ms % 10_000 < self.step_ms() {
            let id = self.driver.id(self.client.link);
            let outbox = self.driver.shards[0].outbox(id).map_or(0, |outbox| outbox.len());
            let outbox = outbox + self.driver.links[self.client.link].received.len();
            let before = outbox + self.client.way.len() + 2 * self.case.payload;
            let needed = before as u64 * 1_000 / self.case.rate as u64;
            self.client.pongs.push_back(at_ms + 2_000 + needed + 3 * self.step_ms());
            self.client.answers.extend(b"\xC0\0");
        }
    }

    fn step(&mut self, publishes: bool) {
        let (ms, link) = (self.step_ms(), self.client.link);
        let at_ms = self.step * ms;
        self.step += 1;
        let bytes = self.case.rate * ms as usize / 1_000;
        if publishes {
            self.publish(bytes);
            self.client_publishes(at_ms);
        }
        self.ping(at_ms);
        self.driver.send(link, &std::mem::take(&mut self.client.answers));
        let client = &mut self.client;
        client.way.append(&mut self.driver.links[link].received);
        client.here = (client.here + bytes).min(client.way.len());
        client.read(&self.case);
        let unsent = client.way.len() - client.here;
        self.driver.links[link].on_the_way = Some(unsent);
        self.driver.make_room(link, SEND_BUFFER.saturating_sub(unsent));
        self.driver.advance(Duration::from_millis(ms));
    }

    fn play(mut self) {
        let steps = self.case.secs * 1_000 / self.step_ms();
        (0..steps).for_each(|_| self.step(true));
        let came = self.client.numbers.len();
        let sent = self.next as usize;
        let queued = self.driver.shards[0].snapshot().counters.drops.total();
        assert!(came > 0, "nothing comes: {:?}", self.case);
        if self.case.flooded {
            assert!(queued > 0 && self.client.at_most_once > 0, "{queued} {:?}", self.case);
        }
        // Half of the link is for QoS 1, which comes at half its rate at most.
        let buffers = (SEND_BUFFER + (1 << 20)) / self.case.payload + 13;
        assert!(came + buffers >= sent, "{came} of {sent}: {:?}", self.case);
        self.driver.delays_peer_batches = false;
        self.driver.commit();
        for _ in 0..steps.max(10_000) {
            if self.client.numbers.len() == sent && self.client.pongs.is_empty() {
                break;
            }
            self.driver.read_pages();
            self.step(false);
        }
        assert_eq!(self.client.numbers.len(), sent, "{:?}", self.case);
        assert_eq!(self.driver.links[self.client.link].disconnected, None, "{:?}", self.case);
    }
}

/// An hour of driven time for each cause of a pause.
fn play_all(pauses: Pauses) {
    let links = [(20_000, 300), (150_000, 100), (400_000, 45), (10_000_000, 5)];
    for (rate, secs) in links {
        for payload in [200, 100_000] {
            for version in [V3, V5] {
                for flooded in [false, true] {
                    World::new(Case { version, rate, payload, flooded, pauses, secs }).play();
                }
            }
        }
    }
}

#[test]
fn who_acknowledges_at_once_gets_nothing_twice_on_any_link() {
    play_all(Pauses::Outbox);
}

#[test]
fn who_acknowledges_at_once_gets_nothing_twice_behind_a_slow_disk() {
    play_all(Pauses::Disk);
}

#[test]
fn who_acknowledges_at_once_gets_nothing_twice_behind_a_slow_peer() {
    play_all(Pauses::Peer);
}

#[test]
fn who_acknowledges_at_once_gets_nothing_twice_above_its_rate() {
    play_all(Pauses::Rate);
}
