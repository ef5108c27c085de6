//! Retained messages that are published while a SUBSCRIBE is handled: each comes once.

use crate::client::{self, encoded, named_at, publication, send, take_packets};
use crate::driver::{self, LinkId, MemoryDriver};
use homing::mqtt::packet::{Packet, PacketId, Properties, ProtocolVersion, Publish, QoS};
use homing::mqtt::packet::{Subscribe, SubscribeFilter, SubscriptionOptions};
use homing::routing::retained::RetainedLimits;
use homing::routing::subscription_tree::ShardId;

/// The shard of the publisher and the shard of the subscriber, of [`SHARDS`].
const PUBLISHER: u8 = 0;
const SUBSCRIBER: u8 = 1;
const SHARDS: u8 = 3;

const ALL: [QoS; 3] = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];

/// A copy that a client got: its payload and its RETAIN flag.
type Copy = (String, bool);

fn live(payload: &str) -> Copy {
    (payload.to_owned(), false)
}

fn retained(payload: &str) -> Copy {
    (payload.to_owned(), true)
}

/// A client whose session lives in this shard.
fn client_in(driver: &mut MemoryDriver, shard: u8, role: &str) -> LinkId {
    client::client(driver, &named_at(role, shard, driver.shards.len() as u8), 100)
}

fn subscribe(filters: &[&str], options: SubscriptionOptions) -> Vec<u8> {
    let packet = Subscribe {
        packet_id: PacketId::new(1).expect("not 0"),
        subscription_id: None,
        properties: Properties::EMPTY,
        filters: filters.iter().map(|filter| SubscribeFilter { filter, options }).collect(),
    };
    encoded(&Packet::Subscribe(packet), ProtocolVersion::V5)
}

fn at(qos: QoS) -> SubscriptionOptions {
    SubscriptionOptions { qos, ..Default::default() }
}

/// The bytes of a PUBLISH with Retain 1. Each payload has a Packet Identifier of its own.
fn publish_retained(topic: &str, payload: &str, qos: QoS) -> Vec<u8> {
    let packet_id = PacketId::new(1 + payload.len() as u16).filter(|_| qos != QoS::AtMostOnce);
    let publish = Publish { retain: true, qos, packet_id, ..publication(topic, payload.as_bytes()) };
    encoded(&Packet::Publish(publish), ProtocolVersion::V5)
}

/// Returns what came since the last call, in its order.
fn copies(driver: &mut MemoryDriver, link: LinkId) -> Vec<Copy> {
    let mut copies = Vec::new();
    take_packets(driver, link, ProtocolVersion::V5, |packet| {
        if let Packet::Publish(Publish { payload, retain, .. }) = packet {
            copies.push((String::from_utf8_lossy(payload).into_owned(), retain));
        }
    });
    copies
}

/// The clients of a test.
struct Clients {
    driver: MemoryDriver,
    publisher: LinkId,
    subscriber: LinkId,
}

impl Clients {
    fn connect() -> Clients {
        let mut driver = MemoryDriver::new(&driver::settings(), SHARDS);
        let publisher = client_in(&mut driver, PUBLISHER, "publisher");
        let subscriber = client_in(&mut driver, SUBSCRIBER, "subscriber");
        Clients { driver, publisher, subscriber }
    }

    /// Whatever the peers send to this shard stays on its way, until it is free again.
    fn keep_busy(&mut self, shard: u8) {
        self.driver.busy = Some(ShardId(shard));
    }

    fn set_free(&mut self) {
        self.driver.busy = None;
        self.driver.settle();
    }

    fn publish(&mut self, topic: &str, payload: &str, qos: QoS) {
        let bytes = publish_retained(topic, payload, qos);
        self.driver.send(self.publisher, &bytes);
    }

    fn subscribe(&mut self, filters: &[&str], options: SubscriptionOptions) {
        self.driver.send(self.subscriber, &subscribe(filters, options));
    }

    fn copies(&mut self) -> Vec<Copy> {
        copies(&mut self.driver, self.subscriber)
    }
}

#[test]
fn a_message_that_a_peer_retains_after_the_barrier_comes_live_alone() {
    for qos in ALL {
        let mut clients = Clients::connect();
        clients.keep_busy(SUBSCRIBER);
        clients.subscribe(&["a/#"], at(qos));
        // The peer knows the subscription. Its message and its answer are on their way.
        clients.publish("a/b", "new", qos);
        clients.set_free();
        assert_eq!(clients.copies(), [live("new")], "at {qos:?}");
    }
}

#[test]
fn a_message_that_was_on_its_way_to_the_shard_when_a_client_subscribed_comes_live_alone() {
    for qos in ALL {
        let mut clients = Clients::connect();
        // Because of this client the publisher's shard sends the message here in any case.
        let other = client_in(&mut clients.driver, SUBSCRIBER, "other");
        clients.driver.send(other, &subscribe(&["a/+"], at(qos)));
        clients.keep_busy(SUBSCRIBER);
        clients.publish("a/b", "new", qos);
        clients.subscribe(&["#"], at(qos));
        clients.set_free();
        assert_eq!(clients.copies(), [live("new")], "at {qos:?}");
        assert_eq!(copies(&mut clients.driver, other), [live("new")]);
    }
}

#[test]
fn a_message_is_on_its_way_to_the_peers_before_its_publisher_is_answered() {
    let mut clients = Clients::connect();
    clients.subscribe(&["a/#"], at(QoS::AtMostOnce));
    clients.keep_busy(SUBSCRIBER);
    let mut bytes = publish_retained("a/b", "new", QoS::AtMostOnce);
    bytes.extend(encoded(&Packet::Pingreq, ProtocolVersion::V5));
    let before = clients.driver.links[clients.publisher].received.len();
    clients.driver.send(clients.publisher, &bytes);
    let publisher = &clients.driver.links[clients.publisher];
    assert_eq!((publisher.received.len() - before, publisher.peers_told), (2, 1), "PINGRESP behind a batch");
}

#[test]
fn a_message_that_replaces_another_one_after_the_barrier_comes_live_alone() {
    for qos in ALL {
        let mut clients = Clients::connect();
        clients.publish("a/b", "before", qos);
        clients.publish("a/c", "stays", qos);
        clients.keep_busy(SUBSCRIBER);
        clients.subscribe(&["a/#"], at(qos));
        clients.publish("a/b", "new", qos);
        clients.set_free();
        let mut copies = clients.copies();
        copies.sort_unstable();
        assert_eq!(copies, [live("new"), retained("stays")], "at {qos:?}");
    }
}

#[test]
fn a_message_that_was_retained_before_the_barrier_is_read() {
    for qos in ALL {
        let mut clients = Clients::connect();
        // The peer does not know the subscription yet, so it sends the message nowhere.
        clients.keep_busy(PUBLISHER);
        clients.subscribe(&["a/#"], at(qos));
        clients.publish("a/b", "new", qos);
        clients.set_free();
        assert_eq!(clients.copies(), [retained("new")], "at {qos:?}");
    }
}

/// The client had the message by another subscription, so the new one brings it again.
#[test]
fn a_message_that_came_before_the_subscribe_is_read_for_it() {
    for qos in ALL {
        let mut clients = Clients::connect();
        clients.subscribe(&["a/b"], at(qos));
        clients.publish("a/b", "new", qos);
        assert_eq!(clients.copies(), [live("new")]);
        clients.subscribe(&["a/+"], at(qos));
        assert_eq!(clients.copies(), [retained("new")], "at {qos:?}");
    }
}

#[test]
fn one_subscription_of_two_that_is_new_brings_no_second_copy() {
    for qos in ALL {
        let mut clients = Clients::connect();
        clients.subscribe(&["a/b"], at(qos));
        clients.keep_busy(SUBSCRIBER);
        clients.publish("a/b", "on its way", qos);
        clients.subscribe(&["a/+", "a/b"], at(qos));
        clients.publish("a/c", "after the barrier", qos);
        clients.set_free();
        assert_eq!(clients.copies(), [live("on its way"), live("after the barrier")], "at {qos:?}");
    }
}

#[test]
fn a_deletion_after_the_barrier_comes_live_and_nothing_is_read() {
    let mut clients = Clients::connect();
    clients.publish("a/b", "old", QoS::AtLeastOnce);
    clients.keep_busy(SUBSCRIBER);
    clients.subscribe(&["a/b"], at(QoS::AtLeastOnce));
    clients.publish("a/b", "", QoS::AtLeastOnce);
    clients.set_free();
    assert_eq!(clients.copies(), [live("")]);
}

#[test]
fn a_retained_will_after_the_barrier_comes_live_alone() {
    for qos in ALL {
        let mut clients = Clients::connect();
        let name = named_at("mortal", PUBLISHER, SHARDS);
        let will = homing::mqtt::packet::WillMessage { retain: true, qos, ..client::will("a/b", b"will", 0) };
        let connect = homing::mqtt::packet::Connect { will: Some(will), ..client::connect(&name) };
        let mortal = client::enter(&mut clients.driver, connect);
        clients.keep_busy(SUBSCRIBER);
        clients.subscribe(&["a/#"], at(qos));
        clients.driver.close(mortal);
        clients.set_free();
        assert_eq!(clients.copies(), [live("will")], "at {qos:?}");
    }
}

/// The search takes several turns, so clients of the same shard publish meanwhile.
#[test]
fn a_message_that_is_retained_while_others_are_read_comes_live_alone() {
    const OLD: usize = 1_000;
    for (shards, qos) in [(1, QoS::AtMostOnce), (1, QoS::AtLeastOnce), (2, QoS::ExactlyOnce)] {
        let settings = homing::shard::ShardSettings { steps_per_turn: 512, ..driver::settings() };
        let mut driver = MemoryDriver::new(&settings, shards);
        driver.shared.retained().limit(RetainedLimits::UNLIMITED);
        let publisher = client_in(&mut driver, 0, "publisher");
        let subscriber = client_in(&mut driver, 0, "subscriber");
        for n in 1_000..1_000 + OLD {
            driver.send(publisher, &publish_retained(&format!("a/{n}"), "old", QoS::AtMostOnce));
        }
        driver.send_unsettled(subscriber, &subscribe(&["a/#"], at(qos)));
        let mut got = Vec::new();
        for _ in 0..50 {
            driver.turn();
            driver.deliver_peer_batches();
            got.extend(copies(&mut driver, subscriber));
            if !got.is_empty() {
                break;
            }
        }
        assert!(!got.is_empty() && got.len() < OLD, "the search goes on: {}", got.len());
        driver.send_unsettled(publisher, &publish_retained("a/1999", "new", QoS::AtMostOnce));
        driver.settle();
        got.extend(copies(&mut driver, subscriber));
        let (new, old): (Vec<_>, Vec<_>) = got.iter().partition(|(payload, _)| payload == "new");
        assert_eq!(new, [&live("new")], "in {shards} shards");
        assert_eq!(old, vec![&retained("old"); OLD - 1], "the search had not come to the last topic");
    }
}

/// What is retained for a session is its own, even if it has No Local: it was set before.
#[test]
fn a_message_of_the_subscriber_itself_is_read_only_if_it_was_there_before() {
    let mut clients = Clients::connect();
    let own = publish_retained("a/b", "own", QoS::AtMostOnce);
    clients.driver.send(clients.subscriber, &own);
    let options = SubscriptionOptions { no_local: true, ..at(QoS::AtMostOnce) };
    clients.subscribe(&["a/b"], options);
    assert_eq!(clients.copies(), [retained("own")]);
    clients.driver.send(clients.subscriber, &own);
    assert_eq!(clients.copies(), []);
}

#[test]
fn the_marks_of_messages_are_dropped_when_nobody_reads() {
    let mut clients = Clients::connect();
    let other = client_in(&mut clients.driver, SUBSCRIBER, "other");
    clients.driver.send(other, &subscribe(&["#"], at(QoS::AtMostOnce)));
    clients.keep_busy(SUBSCRIBER);
    clients.publish("a/b", "new", QoS::AtMostOnce);
    clients.subscribe(&["#"], at(QoS::AtMostOnce));
    // The client leaves while the peers have not answered.
    clients.driver.close(clients.subscriber);
    clients.set_free();
    for shard in &clients.driver.shards {
        assert!(shard.recount().is_ok_and(|charged| charged > 0), "{:?}", shard.recount());
    }
    send(&mut clients.driver, other, &Packet::Pingreq);
    assert_eq!(copies(&mut clients.driver, other), [live("new")]);
}
