//! Promises of a broker in a cluster: without a lease they wait for a commit that began after them.

use crate::client::{V5, client, encoded, packet, publication, send, subscribe, take_packets, unsubscribe};
use crate::driver::{self, LinkId, MemoryDriver};
use homing::mqtt::packet::{Acknowledgement, Packet, PacketId, Publish, QoS};
use homing::shard::Input;
use homing::time::Instant;
use std::time::Duration;

const PINGREQ: [u8; 2] = [0xC0, 0];

/// A shard with a store, without a lease.
fn without_lease() -> MemoryDriver {
    let mut driver = MemoryDriver::new(&driver::settings(), 1);
    driver.keep_in_store();
    driver.shared.lease.set_until(Instant::ZERO);
    driver
}

fn id(id: u16) -> PacketId {
    PacketId::new(id).expect("not 0")
}

fn published(qos: QoS) -> Vec<u8> {
    encoded(&Packet::Publish(Publish { qos, packet_id: Some(id(7)), ..publication("nobody", b"x") }), V5)
}

/// Returns the names of the packets that came since the last call.
fn came(driver: &mut MemoryDriver, link: LinkId) -> Vec<&'static str> {
    let mut names = Vec::new();
    take_packets(driver, link, V5, |packet| names.push(packet.name()));
    names
}

#[test]
fn without_a_lease_each_promise_waits_for_a_commit() {
    let mut driver = without_lease();
    driver.delays_commits = true;
    let link = client(&mut driver, "c", 10);
    let pubrel = encoded(&Packet::Pubrel(Acknowledgement::success(id(7))), V5);
    let requests: [(Vec<u8>, &str); 5] = [
        (unsubscribe("t"), "UNSUBACK"),
        (published(QoS::AtLeastOnce), "PUBACK"),
        (published(QoS::ExactlyOnce), "PUBREC"),
        (pubrel, "PUBCOMP"),
        (published(QoS::AtLeastOnce), "PUBACK"),
    ];
    let committed = |driver: &mut MemoryDriver| {
        assert_eq!(came(driver, link), [""; 0], "nothing of it is committed");
        driver.commit();
        came(driver, link)
    };
    assert_eq!(committed(&mut driver), ["CONNACK"]);
    driver.delays_commits = true;
    subscribe(&mut driver, link, &["t"], QoS::AtLeastOnce);
    assert_eq!(committed(&mut driver), ["SUBACK"]);
    for (bytes, answer) in requests {
        driver.delays_commits = true;
        driver.send(link, &bytes);
        assert_eq!(committed(&mut driver), [answer]);
    }
}

#[test]
fn what_is_before_a_promise_leaves_and_what_is_behind_it_waits() {
    let mut driver = without_lease();
    let link = client(&mut driver, "c", 10);
    assert_eq!(came(&mut driver, link), ["CONNACK"]);
    driver.delays_commits = true;
    driver.send(link, &[&PINGREQ[..], &published(QoS::AtLeastOnce), &PINGREQ].concat());
    assert_eq!(came(&mut driver, link), ["PINGRESP"]);
    driver.commit();
    assert_eq!(came(&mut driver, link), ["PUBACK", "PINGRESP"]);
}

#[test]
fn a_promise_that_was_looked_at_is_not_held_again() {
    let mut driver = without_lease();
    driver.shared.lease.set_until(Instant::NEVER);
    let link = client(&mut driver, "c", 10);
    assert_eq!(came(&mut driver, link), ["CONNACK"]);
    driver.make_room(link, 0);
    driver.send(link, &published(QoS::AtLeastOnce));
    assert!(driver.shared.lease.take_used());
    driver.shared.lease.set_until(Instant::ZERO);
    driver.delays_commits = true;
    // A second promise, which is held, behind the first.
    send(&mut driver, link, &Packet::Pubrel(Acknowledgement::success(id(9))));
    driver.make_room(link, usize::MAX);
    assert_eq!(came(&mut driver, link), ["PUBACK"]);
    driver.commit();
    assert_eq!(came(&mut driver, link), ["PUBCOMP"]);
}

#[test]
fn a_broker_without_a_cluster_holds_nothing() {
    let mut driver = MemoryDriver::new(&driver::settings(), 1);
    driver.keep_in_store();
    let link = client(&mut driver, "c", 10);
    driver.delays_commits = true;
    driver.send(link, &[published(QoS::AtLeastOnce), packet(0xC0, b"")].concat());
    assert_eq!(came(&mut driver, link), ["CONNACK", "PUBACK", "PINGRESP"]);
    assert!(!driver.shared.lease.take_used());
}

#[test]
fn a_client_that_is_shut_out_is_gone_though_a_promise_to_it_is_held() {
    let mut driver = without_lease();
    let link = client(&mut driver, "c", 10);
    assert_eq!(came(&mut driver, link), ["CONNACK"]);
    driver.delays_commits = true;
    driver.send(link, &published(QoS::AtLeastOnce));
    driver.shards[0].input(driver.now, Input::ShutOut);
    driver.settle();
    assert!(driver.is_open(link), "DISCONNECT waits behind the promise");
    driver.advance(Duration::from_secs(5));
    assert!(!driver.is_open(link));
    assert_eq!(came(&mut driver, link), [""; 0]);
}
