//! When a publisher is answered, and what becomes of shared messages that no member of their group
//! takes at once.

use crate::client::{V5, connect, encoded, named_at, publication, subscribe, take_packets};
use crate::driver::{self, LinkId, MemoryDriver};
use homing::mqtt::packet::{
    Acknowledgement, Connect, ConnectProperties, Disconnect, Packet, PacketId, ProtocolVersion, Publish, QoS,
    ReasonCode,
};
use homing::session::outbound::queue::QueuePolicy;
use homing::shard::ShardSettings;
use std::time::Duration;

const V3: ProtocolVersion = ProtocolVersion::V3_1_1;

/// The packets that a client received.
#[derive(Debug, Default, PartialEq, Eq)]
struct Had {
    /// PUBACKs and PUBRECs.
    answers: Vec<(u16, ReasonCode)>,
    /// Payloads, with their identifiers.
    messages: Vec<(u8, PacketId)>,
}

struct Client {
    link: LinkId,
    version: ProtocolVersion,
}

impl Client {
    /// At 5.0 it takes one message at a time. `expiry`: seconds; at 3.1.1 0 is a clean session.
    fn connect(driver: &mut MemoryDriver, name: &str, version: ProtocolVersion, expiry: u32) -> Client {
        let client = Client { link: driver.open(), version };
        let mut properties = ConnectProperties::default();
        if version.is_v5() {
            (properties.session_expiry, properties.receive_maximum) = (Some(expiry), Some(1));
        }
        let clean_start = version.is_v5() || expiry == 0;
        let connect = Connect { version, clean_start, properties, ..connect(name) };
        client.send(driver, &Packet::Connect(Box::new(connect)));
        client
    }

    fn member(driver: &mut MemoryDriver, name: &str, expiry: u32, filter: &str) -> Client {
        let client = Client::connect(driver, name, V5, expiry);
        subscribe(driver, client.link, &[filter], QoS::ExactlyOnce);
        client
    }

    fn send(&self, driver: &mut MemoryDriver, packet: &Packet<'_>) {
        driver.send(self.link, &encoded(packet, self.version));
    }

    fn publish(&self, driver: &mut MemoryDriver, number: u8, qos: QoS) {
        self.publish_with(driver, number, qos, false);
    }

    fn publish_with(&self, driver: &mut MemoryDriver, number: u8, qos: QoS, dup: bool) {
        let payload = [number; 100];
        let packet_id = Some(id(u16::from(number)));
        let publish = Publish { dup, qos, packet_id, ..publication("t", &payload) };
        self.send(driver, &Packet::Publish(publish));
    }

    fn acknowledge(&self, driver: &mut MemoryDriver, packet_id: PacketId, reason: ReasonCode) {
        let ack = Acknowledgement { reason, ..Acknowledgement::success(packet_id) };
        self.send(driver, &Packet::Puback(ack));
    }

    /// DISCONNECT, which ends its session.
    fn leave(&self, driver: &mut MemoryDriver) {
        let mut disconnect = Disconnect::new(ReasonCode::NORMAL_DISCONNECTION);
        disconnect.session_expiry = Some(0);
        self.send(driver, &Packet::Disconnect(disconnect));
    }

    /// Returns the packets that came since the last call.
    fn had(&self, driver: &mut MemoryDriver) -> Had {
        let mut had = Had::default();
        take_packets(driver, self.link, self.version, |packet| match packet {
            Packet::Puback(a) | Packet::Pubrec(a) => had.answers.push((a.packet_id.get(), a.reason)),
            Packet::Publish(Publish { packet_id: Some(id), payload, .. }) => {
                had.messages.push((payload[0], id));
            }
            _ => {}
        });
        had
    }

    fn answers(&self, driver: &mut MemoryDriver) -> Vec<(u16, ReasonCode)> {
        self.had(driver).answers
    }

    /// Takes and acknowledges all that comes: payloads.
    fn take_all(&self, driver: &mut MemoryDriver) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let messages = self.had(driver).messages;
            if messages.is_empty() {
                return all;
            }
            for (number, packet_id) in messages {
                all.push(number);
                self.acknowledge(driver, packet_id, ReasonCode::SUCCESS);
            }
        }
    }
}

fn id(n: u16) -> PacketId {
    PacketId::new(n).expect("not 0")
}

const TAKEN: ReasonCode = ReasonCode::SUCCESS;
const SHARE: &str = "$share/group/t";

/// With a queue of so many messages.
fn narrow(messages: usize, policy: QueuePolicy) -> ShardSettings {
    let mut settings = driver::settings();
    settings.session.send.queue.messages = messages;
    settings.session.send.queue.policy = policy;
    settings
}

#[test]
fn a_message_that_goes_on_to_another_member_is_acknowledged_with_the_commit() {
    for shards in [1, 2] {
        let mut driver = MemoryDriver::new(&driver::settings(), shards);
        driver.keep_in_store();
        let publisher = Client::connect(&mut driver, &named_at("publisher", 0, shards), V5, 0);
        let first = Client::member(&mut driver, &named_at("first", shards - 1, shards), 3600, SHARE);
        let second = Client::member(&mut driver, &named_at("second", shards - 1, shards), 3600, SHARE);
        driver.close(second.link);
        driver.delays_commits = true;
        publisher.publish(&mut driver, 1, QoS::AtLeastOnce);
        assert_eq!(first.had(&mut driver).messages.len(), 1);
        first.leave(&mut driver);
        assert_eq!(publisher.answers(&mut driver), [], "with {shards} shards");
        driver.commit();
        assert_eq!(publisher.answers(&mut driver), [(1, TAKEN)], "with {shards} shards");
    }
}

#[test]
fn a_message_that_its_receiver_acknowledges_is_acknowledged_before_the_commit() {
    for shards in [1, 2] {
        let mut driver = MemoryDriver::new(&driver::settings(), shards);
        driver.keep_in_store();
        let publisher = Client::connect(&mut driver, &named_at("publisher", 0, shards), V5, 0);
        let receiver = Client::member(&mut driver, &named_at("receiver", shards - 1, shards), 3600, SHARE);
        driver.delays_commits = true;
        publisher.publish(&mut driver, 1, QoS::AtLeastOnce);
        assert_eq!(publisher.answers(&mut driver), []);
        assert_eq!(receiver.take_all(&mut driver), [1]);
        assert_eq!(publisher.answers(&mut driver), [(1, TAKEN)], "with {shards} shards");
    }
}

#[test]
fn a_message_of_a_plain_subscription_is_acknowledged_before_the_commit() {
    for shards in [1, 2] {
        let mut driver = MemoryDriver::new(&driver::settings(), shards);
        driver.keep_in_store();
        let publisher = Client::connect(&mut driver, &named_at("publisher", 0, shards), V5, 0);
        let receiver = Client::connect(&mut driver, &named_at("receiver", shards - 1, shards), V5, 3600);
        subscribe(&mut driver, receiver.link, &["t"], QoS::AtLeastOnce);
        driver.delays_commits = true;
        publisher.publish(&mut driver, 1, QoS::AtLeastOnce);
        assert_eq!(publisher.answers(&mut driver), []);
        assert_eq!(receiver.take_all(&mut driver), [1]);
        assert_eq!(publisher.answers(&mut driver), [(1, TAKEN)], "with {shards} shards");
    }
}

// docs/architecture.md, "Transactions over several shards", rule 4
#[test]
fn a_queued_message_of_a_transaction_leaves_only_after_its_commit() {
    for shards in [1, 2] {
        let mut driver = MemoryDriver::new(&driver::settings(), shards);
        driver.keep_in_store();
        let publisher = Client::connect(&mut driver, &named_at("publisher", 0, shards), V5, 3600);
        let receiver = Client::connect(&mut driver, &named_at("receiver", shards - 1, shards), V5, 3600);
        subscribe(&mut driver, receiver.link, &["t"], QoS::AtLeastOnce);
        publisher.publish(&mut driver, 1, QoS::AtLeastOnce);
        let (_, packet_id) = receiver.had(&mut driver).messages[0];
        driver.delays_commits = true;
        publisher.publish(&mut driver, 2, QoS::ExactlyOnce);
        receiver.acknowledge(&mut driver, packet_id, ReasonCode::SUCCESS);
        assert_eq!(receiver.had(&mut driver).messages, [], "with {shards} shards");
        driver.commit();
        driver.settle();
        assert_eq!(receiver.take_all(&mut driver), [2], "with {shards} shards");
    }
}

#[test]
fn a_message_that_becomes_a_dead_letter_is_acknowledged_with_the_commit() {
    for shards in [1, 2] {
        let mut settings = driver::settings();
        settings.session.send.redelivery.negative_ack = true;
        let mut driver = MemoryDriver::new(&settings, shards);
        driver.keep_in_store();
        let publisher = Client::connect(&mut driver, &named_at("publisher", 0, shards), V5, 0);
        let receiver = Client::member(&mut driver, &named_at("receiver", shards - 1, shards), 3600, "t");
        let watcher = Client::member(&mut driver, &named_at("watcher", shards - 1, shards), 3600, "$dead/#");
        driver.close(watcher.link);
        driver.delays_commits = true;
        publisher.publish(&mut driver, 1, QoS::AtLeastOnce);
        let (_, packet_id) = receiver.had(&mut driver).messages[0];
        receiver.acknowledge(&mut driver, packet_id, ReasonCode::QUOTA_EXCEEDED);
        assert_eq!(publisher.answers(&mut driver), [], "with {shards} shards");
        driver.commit();
        assert_eq!(publisher.answers(&mut driver), [(1, TAKEN)], "with {shards} shards");
    }
}

#[test]
fn a_message_that_is_refused_is_answered_when_its_dead_letter_is_committed() {
    for shards in [1, 2] {
        let mut settings = narrow(1, QueuePolicy::Refuse);
        settings.session.send.redelivery.dead_letters =
            [homing::session::drops::DropReason::QueueRefused].into_iter().collect();
        let mut driver = MemoryDriver::new(&settings, shards);
        driver.keep_in_store();
        let publisher = Client::connect(&mut driver, &named_at("publisher", 0, shards), V5, 0);
        Client::member(&mut driver, &named_at("receiver", shards - 1, shards), 3600, "t");
        let watcher = Client::member(&mut driver, &named_at("watcher", 0, shards), 3600, "$dead/#");
        driver.close(watcher.link);
        publisher.publish(&mut driver, 1, QoS::AtLeastOnce);
        publisher.publish(&mut driver, 2, QoS::AtLeastOnce);
        assert_eq!(publisher.answers(&mut driver).len(), 2);
        driver.delays_commits = true;
        publisher.publish(&mut driver, 3, QoS::AtLeastOnce);
        assert_eq!(publisher.answers(&mut driver), [], "with {shards} shards");
        driver.commit();
        assert_eq!(publisher.answers(&mut driver), [(3, ReasonCode::QUOTA_EXCEEDED)], "with {shards} shards");
    }
}

/// Two members with one message in flight and one in the queue each, in as many shards as there
/// are; the publisher, which has published so many more; and their number.
fn full_group(
    settings: &ShardSettings,
    shards: u8,
    version: ProtocolVersion,
    more: u8,
) -> (MemoryDriver, Client, [Client; 2]) {
    let mut driver = MemoryDriver::new(settings, shards);
    let publisher = Client::connect(&mut driver, &named_at("publisher", 0, shards), version, 0);
    let members = [0, shards - 1];
    let members = [0, 1].map(|n| {
        Client::member(&mut driver, &named_at(["first", "second"][n], members[n], shards), 0, SHARE)
    });
    for number in 1..=4 + more {
        publisher.publish(&mut driver, number, QoS::AtLeastOnce);
    }
    (driver, publisher, members)
}

#[test]
fn a_shared_message_that_every_member_refuses_is_held_until_one_has_room() {
    for shards in [1, 2] {
        for version in [V3, V5] {
            let (mut driver, publisher, members) =
                full_group(&narrow(1, QueuePolicy::Hold), shards, version, 1);
            assert_eq!(publisher.answers(&mut driver).len(), 4, "{shards} {version:?}");
            let mut taken: Vec<u8> = members.iter().flat_map(|m| m.take_all(&mut driver)).collect();
            taken.sort_unstable();
            assert_eq!(taken, [1, 2, 3, 4, 5], "{shards} {version:?}");
            assert_eq!(publisher.answers(&mut driver), [(5, TAKEN)], "{shards} {version:?}");
        }
    }
}

#[test]
fn a_shared_message_that_is_held_too_long_is_refused_or_closes_a_3_x_publisher() {
    for shards in [1, 2] {
        let settings = narrow(1, QueuePolicy::Hold);
        let (mut driver, publisher, _) = full_group(&settings, shards, V5, 2);
        assert_eq!(publisher.answers(&mut driver).len(), 4);
        driver.advance(settings.hold_timeout + Duration::from_secs(1));
        let refused = ReasonCode::QUOTA_EXCEEDED;
        assert_eq!(publisher.answers(&mut driver), [(5, refused), (6, refused)], "with {shards} shards");
        let (mut driver, publisher, _) = full_group(&settings, shards, V3, 1);
        assert_eq!(publisher.answers(&mut driver).len(), 4);
        driver.advance(settings.hold_timeout + Duration::from_secs(1));
        assert!(publisher.answers(&mut driver).is_empty() && !driver.is_open(publisher.link));
    }
}

#[test]
fn what_a_member_held_that_leaves_goes_to_another_and_nothing_is_dropped() {
    for shards in [1, 2] {
        for leaves in [0, 1] {
            let (mut driver, publisher, members) = full_group(&narrow(1, QueuePolicy::Hold), shards, V5, 2);
            assert_eq!(publisher.answers(&mut driver).len(), 4);
            members[leaves].leave(&mut driver);
            let mut taken = members[1 - leaves].take_all(&mut driver);
            taken.sort_unstable();
            assert_eq!(taken, [1, 2, 3, 4, 5, 6], "{shards} shards, {leaves} leaves");
            assert_eq!(
                publisher.answers(&mut driver),
                [(5, TAKEN), (6, TAKEN)],
                "{shards} shards, {leaves} leaves"
            );
        }
    }
}

#[test]
fn what_a_member_that_leaves_was_owed_waits_for_room_in_messages_and_in_bytes() {
    let mut bytes = driver::settings();
    // One message and a half.
    bytes.session.send.queue.bytes = 350;
    for settings in [narrow(1, QueuePolicy::Refuse), narrow(1, QueuePolicy::DropOldest), bytes] {
        for shards in [1, 2] {
            for leaves in [0, 1] {
                let (mut driver, publisher, members) = full_group(&settings, shards, V5, 0);
                assert_eq!(publisher.answers(&mut driver).len(), 4);
                members[leaves].leave(&mut driver);
                let mut taken = members[1 - leaves].take_all(&mut driver);
                taken.sort_unstable();
                let drops: Vec<_> =
                    driver.shards.iter().map(|s| (s.usage(), s.snapshot().counters.drops)).collect();
                let queue = &settings.session.send.queue;
                assert_eq!(taken, [1, 2, 3, 4], "{shards} shards, {leaves} leaves, {queue:?}: {drops:?}");
                members[1 - leaves].leave(&mut driver);
                publisher.leave(&mut driver);
                driver.advance(Duration::from_secs(3));
                let waits: usize = driver.shards.iter().map(|s| s.usage().orphaned_queues).sum();
                assert_eq!(waits, 0, "{shards} shards, {leaves} leaves");
            }
        }
    }
}

#[test]
fn what_waits_for_room_is_dropped_with_the_last_member() {
    for shards in [1, 2] {
        let (mut driver, publisher, members) = full_group(&narrow(1, QueuePolicy::Refuse), shards, V5, 0);
        assert_eq!(publisher.answers(&mut driver).len(), 4);
        members.iter().for_each(|member| member.leave(&mut driver));
        let waits: usize = driver.shards.iter().map(|s| s.usage().orphaned_queues).sum();
        let drops = driver.shards.iter().map(|s| s.snapshot().counters.drops.total()).sum::<u64>();
        assert_eq!((waits, drops), (0, 4), "with {shards} shards");
    }
}

// Seed 12183 of the simulation.
#[test]
fn what_a_member_leaves_while_others_are_read_back_is_given_away_too() {
    let mut driver = MemoryDriver::new(&narrow(1, QueuePolicy::Refuse), 1);
    driver.keep_in_store();
    let publisher = Client::connect(&mut driver, "publisher", V5, 0);
    // Two whose sessions are stored, and one whose is not.
    let [stored, stays, clean] = [("stored", 3600), ("stays", 3600), ("clean", 0)]
        .map(|(name, expiry)| Client::member(&mut driver, name, expiry, SHARE));
    for number in 1..=6 {
        publisher.publish(&mut driver, number, QoS::AtLeastOnce);
    }
    let take_one = |driver: &mut MemoryDriver, member: &Client| {
        let (number, packet_id) = member.had(driver).messages[0];
        member.acknowledge(driver, packet_id, TAKEN);
        number
    };
    // The message in flight waits for room in the store alone,
    let mut taken = vec![take_one(&mut driver, &stored)];
    stored.leave(&mut driver);
    assert_eq!(driver.read_pages(), 0);
    // is asked for when there is some,
    taken.push(take_one(&mut driver, &stays));
    // and meanwhile another leaves one in memory for which there is none.
    clean.leave(&mut driver);
    assert_eq!(driver.read_pages(), 1);
    for _ in 0..6 {
        taken.extend(stays.take_all(&mut driver));
        driver.read_pages();
    }
    taken.sort_unstable();
    assert_eq!(taken, [1, 2, 3, 4, 5, 6]);
    assert_eq!(driver.shards[0].usage().orphaned_queues, 0);
}

// 5.0 [MQTT-4.3.3-8]
#[test]
fn v5_three_copies_of_a_qos_2_publish_get_three_pubrecs() {
    for version in [V3, V5] {
        for (shards, stored) in [(1, true), (3, false), (3, true)] {
            let mut driver = MemoryDriver::new(&driver::settings(), shards);
            if stored {
                driver.keep_in_store();
            }
            let publisher = Client::connect(&mut driver, &named_at("publisher", 0, shards), version, 3600);
            let receiver = Client::member(&mut driver, &named_at("receiver", shards - 1, shards), 3600, "t");
            (driver.delays_peer_batches, driver.delays_commits) = (true, true);
            for dup in [false, true, true] {
                publisher.publish_with(&mut driver, 1, QoS::ExactlyOnce, dup);
            }
            assert_eq!(publisher.answers(&mut driver), []);
            driver.delays_peer_batches = false;
            driver.commit();
            driver.commit();
            assert_eq!(publisher.answers(&mut driver), [(1, TAKEN); 3], "{version:?} {shards} {stored}");
            assert_eq!(receiver.had(&mut driver).messages.len(), 1);
        }
    }
}
