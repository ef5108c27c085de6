//! Situations that seeds of the simulation found once and that they rarely meet today: each is
//! played here directly.
//!
//! `tests/simulation/mutations` runs these tests as well, so each of these mutations is noticed
//! whatever the seeds meet.

use crate::client::{V5, client, connect, publication, send, subscribe, take_packets, will};
use crate::driver::{self, LinkId, MemoryDriver};
use homing::mqtt::packet::{
    Acknowledgement, Connect, ConnectProperties, Packet, PacketId, Publish, PublishProperties, QoS,
    ReasonCode,
};
use homing::session::outbound::queue::QueuePolicy;
use std::time::Duration;

/// A client whose session outlives its connection. It has a will for `t` if there is a delay, in
/// seconds.
fn returning(driver: &mut MemoryDriver, name: &str, room: usize, delay: Option<u32>) -> LinkId {
    let link = driver.open();
    driver.make_room(link, room);
    let properties = ConnectProperties { session_expiry: Some(3_600), ..Default::default() };
    let will = delay.map(|delay| will("t", b"w", delay));
    let connect = Connect { clean_start: false, properties, will, ..connect(name) };
    send(driver, link, &Packet::Connect(Box::new(connect)));
    link
}

/// Publishes one byte, so many times over, to `t` at QoS 1. `expiry`: in seconds.
fn publish(driver: &mut MemoryDriver, link: LinkId, byte: u8, times: usize, expiry: Option<u32>) {
    let properties = PublishProperties { message_expiry: expiry, ..Default::default() };
    let payload = vec![byte; times];
    let publish = Publish {
        qos: QoS::AtLeastOnce,
        packet_id: PacketId::new(u16::from(byte)),
        properties,
        ..publication("t", &payload)
    };
    send(driver, link, &Packet::Publish(publish));
}

/// The first bytes of the messages that came since the last call, and the PUBACKs. Messages are
/// acknowledged.
fn take(driver: &mut MemoryDriver, link: LinkId) -> (Vec<u8>, Vec<ReasonCode>) {
    let (mut messages, mut pubacks) = (Vec::new(), Vec::new());
    loop {
        let mut ids = Vec::new();
        take_packets(driver, link, V5, |packet| match packet {
            Packet::Publish(Publish { packet_id: Some(id), payload, .. }) => {
                messages.push(payload[0]);
                ids.push(id);
            }
            Packet::Puback(ack) => pubacks.push(ack.reason),
            _ => {}
        });
        if ids.is_empty() {
            return (messages, pubacks);
        }
        for id in ids {
            send(driver, link, &Packet::Puback(Acknowledgement::success(id)));
        }
    }
}

// Seed 131; the mutation `late_will_is_dropped`.
#[test]
fn a_will_is_published_whose_client_returns_after_the_delay_and_before_the_expired_deadline() {
    let mut driver = MemoryDriver::new(&driver::settings(), 1);
    let receiver = client(&mut driver, "receiver", 10);
    subscribe(&mut driver, receiver, &["t"], QoS::AtLeastOnce);
    for (seconds, expected) in [(4, &b""[..]), (6, b"w")] {
        let link = returning(&mut driver, "client", usize::MAX, Some(5));
        driver.close(link);
        // No expired deadline is reported.
        driver.now = driver.now + Duration::from_secs(seconds);
        let back = returning(&mut driver, "client", usize::MAX, None);
        assert_eq!(take(&mut driver, receiver).0, expected, "after {seconds} of 5 s");
        driver.close(back);
    }
}

// The mutation `new_before_carried_over`.
#[test]
fn a_new_message_waits_for_what_is_still_to_be_sent_again() {
    let mut settings = driver::settings();
    settings.session.send.outbox = 1_000;
    let mut driver = MemoryDriver::new(&settings, 1);
    let publisher = client(&mut driver, "publisher", 10);
    let link = returning(&mut driver, "receiver", usize::MAX, None);
    subscribe(&mut driver, link, &["t"], QoS::AtLeastOnce);
    (1..=3).for_each(|n| publish(&mut driver, publisher, n, 600, None));
    driver.close(link);
    // Two messages fill the outbox, and the socket takes less than half of it: there is room, and
    // no message follows yet.
    let back = returning(&mut driver, "receiver", 0, None);
    driver.make_room(back, 500);
    publish(&mut driver, publisher, 4, 600, None);
    driver.make_room(back, usize::MAX);
    assert_eq!(take(&mut driver, back).0, [1, 2, 3, 4]);
}

// Seed 21410; the mutation `held_message_is_overtaken`.
#[test]
fn a_message_of_the_receiver_does_not_pass_one_that_is_held_into_room_that_an_expired_one_left() {
    let mut settings = driver::settings();
    settings.session.send.queue.messages = 1;
    settings.session.send.queue.policy = QueuePolicy::Hold;
    let mut driver = MemoryDriver::new(&settings, 1);
    let publisher = client(&mut driver, "publisher", 10);
    let receiver = client(&mut driver, "receiver", 1);
    subscribe(&mut driver, receiver, &["t"], QoS::AtLeastOnce);
    driver.links[receiver].received.clear();
    // One in flight, one in the queue, one held.
    publish(&mut driver, publisher, 1, 1, None);
    publish(&mut driver, publisher, 2, 1, Some(1));
    publish(&mut driver, publisher, 3, 1, None);
    assert_eq!(take(&mut driver, publisher).1.len(), 2, "the third waits for room");
    driver.now = driver.now + Duration::from_secs(2);
    publish(&mut driver, receiver, 4, 1, None);
    let (messages, pubacks) = take(&mut driver, receiver);
    assert_eq!((&messages[..], &pubacks[..]), (&[1, 3][..], &[ReasonCode::QUOTA_EXCEEDED][..]));
}
