//! Any bytes as a script of what three clients do to a broker, beside one that keeps every rule;
//! and what must hold.
//!
//! Two bytes of settings, then steps: a byte that says who and what, with its operands behind it.
//!
//! | high bits | what |
//! |---|---|
//! | 0 | send as many bytes as the next byte says |
//! | 1 | break the connection and open another |
//! | 2 | time passes |
//! | 3 | the socket takes so many more bytes |
//! | 4 | peer batches between shards are delayed, or let go |
//! | 5 | the memory budget is used up, or is not |
//! | 6, 7 | send one packet of a table |

use crate::cases::{Expected, FIRST_PACKETS, LATER_PACKETS, WireCase};
use crate::driver::{self, LinkId, MemoryDriver};
use homing::mqtt::codec::{AckKind, Decoded, decode, put_acknowledgement};
use homing::mqtt::packet::{Packet, PacketId, ProtocolVersion, QoS, ReasonCode};
use homing::session::drops::DropReason;
use homing::session::outbound::queue::QueuePolicy;
use homing::session::outbound::retry::OnExhausted;
use homing::session::redelivery_rule::RedeliveryRule;
use homing::shard::ShardSettings;
use std::collections::BTreeSet;
use std::time::Duration;

const CLIENTS: usize = 3;

/// Steps of one script at most.
const STEPS: usize = 400;

/// Runs a script; panics where something does not hold.
pub fn run(script: &[u8]) {
    let [first, second, steps @ ..] = script else { return };
    let (settings, shards) = settings(*first, *second);
    let mut stage = Stage::new(MemoryDriver::new(&settings, shards));
    let mut steps = steps.iter().copied();
    for _ in 0..STEPS {
        let Some(step) = steps.next() else { break };
        stage.step(step, &mut steps);
        stage.observer.keeps_the_rules(&mut stage.driver);
        stage.check_written();
    }
    if first & 8 != 0 {
        stage.driver.stop();
    }
    stage.everything_ends();
}

fn settings(first: u8, second: u8) -> (ShardSettings, u8) {
    let mut settings = driver::settings();
    settings.session.send.queue.policy =
        [QueuePolicy::Refuse, QueuePolicy::DropOldest, QueuePolicy::Disconnect, QueuePolicy::Hold]
            [usize::from(first >> 1 & 3)];
    let narrow = |bit: u8| second & 1 << bit != 0;
    if narrow(0) {
        settings.session.send.queue.messages = 3;
    }
    if narrow(1) {
        settings.session.send.outbox = 200;
    }
    if narrow(2) {
        settings.session.send.in_flight = 2;
    }
    if narrow(3) {
        settings.session.receive_maximum = 2;
    }
    if narrow(4) {
        settings.session.connect.packet_size = 200;
    }
    if narrow(5) {
        settings.sessions = 2;
        settings.session.subscriptions.filters = 2;
    }
    if narrow(6) {
        settings.session.send.queue.bytes = 300;
        settings.session.connect.keep_alive_maximum = 30;
    }
    if narrow(7) {
        settings.session.send.redelivery.retry.attempts = 1;
        settings.session.send.redelivery.retry.resends_per_tick = 1;
        // Every dropped message is published as a dead letter, and some messages have a time of
        // their own.
        let redelivery = &mut settings.session.send.redelivery;
        redelivery.retry.on_exhausted = OnExhausted::DeadLetter;
        redelivery.negative_ack = true;
        redelivery.dead_letters = DropReason::ALL.into_iter().collect();
        let (topic, interval) = (Some("+/#".into()), Some(Duration::from_secs(1)));
        settings.session.send.rules = vec![RedeliveryRule { topic, interval, ..RedeliveryRule::default() }];
    }
    (settings, 1 + (first & 1))
}

/// The broker, the three and the one.
struct Stage {
    driver: MemoryDriver,
    clients: [LinkId; CLIENTS],
    observer: Observer,
    /// Bytes checked of what each connection was written, and whether its CONNACK was among them.
    checked: Vec<(usize, bool)>,
}

impl Stage {
    fn new(mut driver: MemoryDriver) -> Stage {
        let observer = Observer::new(&mut driver);
        let clients = std::array::from_fn(|_| driver.open());
        Stage { driver, clients, observer, checked: Vec::new() }
    }

    fn step(&mut self, step: u8, operands: &mut impl Iterator<Item = u8>) {
        let client = usize::from(step & 3) % CLIENTS;
        let link = self.clients[client];
        match step >> 5 {
            0 => {
                let count = operands.next().unwrap_or(0);
                let bytes: Vec<u8> = operands.take(count.into()).collect();
                self.driver.send(link, &bytes);
            }
            1 => {
                self.driver.close(link);
                self.clients[client] = self.driver.open();
            }
            2 => {
                let seconds = [0, 1, 5, 25, 60, 400, 1_000, 4_000][usize::from(step >> 2 & 7)];
                self.driver.advance(Duration::from_secs(seconds) + Duration::from_millis(100));
            }
            3 => {
                let room = usize::from(operands.next().unwrap_or(0));
                self.driver.make_room(link, if room == 255 { usize::MAX } else { room });
            }
            4 => {
                self.driver.delays_peer_batches = step & 4 != 0;
                self.driver.settle();
            }
            5 => {
                let shared = &self.driver.shared;
                shared.budget.limit(if step & 4 != 0 { 0 } else { u64::MAX });
                shared.partial.limit(if step & 8 != 0 { 0 } else { u64::MAX }, 0);
            }
            _ => {
                let at = usize::from(operands.next().unwrap_or(0));
                let cases: &[WireCase] = if step & 4 != 0 { FIRST_PACKETS } else { LATER_PACKETS };
                let mut whole = cases.iter().filter(|c| !matches!(c.expected, Expected::Incomplete(_)));
                if let Some(case) = whole.nth(at % cases.len()) {
                    self.driver.send(link, case.bytes);
                }
            }
        }
    }

    /// Asserts that the broker wrote whole packets of this version that a server may send, CONNACK
    /// first and once.
    // 3.1.1 and 5.0 [MQTT-3.2.0-1]; 5.0 [MQTT-3.2.0-2]
    fn check_written(&mut self) {
        self.checked.resize(self.driver.links.len(), (0, false));
        for (link, (checked, connack)) in self.driver.links.iter().zip(&mut self.checked) {
            loop {
                let rest = &link.received[*checked..];
                // A CONNACK that refuses a 3.x client has no properties.
                let refused =
                    if rest.get(1) == Some(&2) { ProtocolVersion::V3_1_1 } else { ProtocolVersion::V5 };
                let version = link.version.unwrap_or(refused);
                match decode(rest, version, u32::MAX) {
                    Ok(Decoded::Incomplete { .. }) => break,
                    Ok(Decoded::Packet { packet, length }) => {
                        let is_connack = matches!(packet, Packet::Connack(_));
                        assert_eq!(is_connack, !*connack, "{packet:?}, CONNACK before: {connack}");
                        assert!(is_a_servers(&packet, version), "{packet:?}");
                        *connack = true;
                        *checked += length;
                    }
                    Err(error) => panic!("{error}: the broker wrote {rest:02X?} to {version:?}"),
                }
            }
        }
    }

    /// All leave, time passes, and nothing is left.
    fn everything_ends(mut self) {
        self.driver.delays_peer_batches = false;
        self.driver.shared.budget.limit(u64::MAX);
        self.driver.settle();
        for link in 0..self.driver.links.len() {
            self.driver.close(link);
        }
        // The longest session, a will that begins another's, and what waits for room.
        self.driver.advance(Duration::from_secs(3_601));
        for shard in &self.driver.shards {
            let snapshot = shard.snapshot();
            assert_eq!((snapshot.connected, snapshot.sessions), (0, 0));
            assert_eq!((snapshot.subscriptions, snapshot.partial_bytes), (0, 0));
            assert!(shard.connection_ids().is_empty());
        }
    }
}

fn is_a_servers(packet: &Packet<'_>, version: ProtocolVersion) -> bool {
    match packet {
        Packet::Connect(_) | Packet::Subscribe(_) | Packet::Unsubscribe(_) | Packet::Pingreq => false,
        Packet::Disconnect(_) => version.is_v5(),
        // No enhanced authentication is offered.
        Packet::Auth(_) => false,
        _ => true,
    }
}

/// A 5.0 client that subscribes to everything, answers what it must, and is never disturbed but by
/// the broker.
struct Observer {
    link: LinkId,
    read: usize,
    /// QoS 2 between PUBLISH and PUBREL.
    unreleased: BTreeSet<PacketId>,
}

impl Observer {
    fn new(driver: &mut MemoryDriver) -> Observer {
        let link = driver.open();
        // Receive Maximum 5, Maximum Packet Size 1,000, Topic Alias Maximum 2, client id "obs".
        driver.send(link, b"\x10\x1B\0\x04MQTT\x05\x02\0\0\x0B\x21\0\x05\x27\0\0\x03\xE8\x22\0\x02\0\x03obs");
        // "#" with QoS 2 and Subscription Identifier 1; "$share/g/#" with QoS 1.
        driver.send(link, b"\x82\x17\0\x01\x02\x0B\x01\0\x01#\x02\0\x0A$share/g/#\x01");
        assert_eq!(driver.links[link].version, Some(ProtocolVersion::V5), "the observer is connected");
        assert!(driver.is_open(link));
        Observer { link, read: 0, unreleased: BTreeSet::new() }
    }

    fn keeps_the_rules(&mut self, driver: &mut MemoryDriver) {
        while driver.is_open(self.link) {
            let mut answer = Vec::new();
            let link = &driver.links[self.link];
            while let Ok(Decoded::Packet { packet, length }) =
                decode(&link.received[self.read..], ProtocolVersion::V5, u32::MAX)
            {
                assert!(length <= 1_000, "5.0 [MQTT-3.1.2-24]: {length} bytes");
                self.read += length;
                self.answer(&packet, &mut answer);
            }
            if answer.is_empty() {
                return;
            }
            driver.send(self.link, &answer);
        }
    }

    fn answer(&mut self, packet: &Packet<'_>, out: &mut Vec<u8>) {
        let mut ack = |kind, id| put_acknowledgement(out, kind, id, ReasonCode::SUCCESS, ProtocolVersion::V5);
        match packet {
            Packet::Publish(publish) => {
                // 5.0 [MQTT-4.4.0-1]: it has not come back, so nothing comes again.
                assert!(!publish.dup, "{publish:?}");
                match (publish.qos, publish.packet_id) {
                    (QoS::AtLeastOnce, Some(id)) => ack(AckKind::Puback, id),
                    (QoS::ExactlyOnce, Some(id)) => {
                        assert!(self.unreleased.insert(id), "{id:?} is in use");
                        assert!(self.unreleased.len() <= 5, "5.0 [MQTT-3.3.4-9]: {:?}", self.unreleased);
                        ack(AckKind::Pubrec, id);
                    }
                    _ => {}
                }
            }
            Packet::Pubrel(release) => {
                assert!(self.unreleased.remove(&release.packet_id), "{release:?} was not received");
                ack(AckKind::Pubcomp, release.packet_id);
            }
            _ => {}
        }
    }
}
