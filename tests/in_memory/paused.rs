//! What passes behind a pause, and what waits; and the shares of an outbox that is too small for all.

use crate::client::{V5, connect};
use crate::client::{client, connect_3_1_1, encoded, enter, publication, subscribe, take_packets, will};
use crate::driver::{self, LinkId, MemoryDriver};
use homing::access::meter::{MeteredRate, TrafficRates};
use homing::mqtt::packet::{Acknowledgement, Connect, Packet, PacketId, Publish, QoS};
use homing::session::drops::DropReason;
use std::time::Duration;

const PUBLISH: &[u8] = b"\x30\x04\0\x01tx";

/// A shard whose clients may send one PUBLISH a second, and a subscriber.
fn limited() -> (MemoryDriver, LinkId) {
    let mut settings = driver::settings();
    let messages = MeteredRate::new(1, Duration::from_millis(300));
    settings.rates = Some(TrafficRates { messages, bytes: None });
    let mut driver = MemoryDriver::new(&settings, 1);
    let subscriber = client(&mut driver, "subscriber", 1_000);
    subscribe(&mut driver, subscriber, &["t", "will"], QoS::AtMostOnce);
    driver.links[subscriber].received.clear();
    (driver, subscriber)
}

/// Returns the topics that came to a link since the last call.
fn topics(driver: &mut MemoryDriver, link: LinkId) -> Vec<String> {
    let mut topics = Vec::new();
    take_packets(driver, link, V5, |packet| {
        if let Packet::Publish(publish) = packet {
            topics.push(publish.topic.to_owned());
        }
    });
    topics
}

#[test]
fn a_ping_passes_a_publish_that_waits_and_disconnect_does_not() {
    let (mut driver, subscriber) = limited();
    let publish = encoded(&Packet::Publish(publication("t", b"x")), V5);
    let will = Some(will("will", b"x", 0));
    let link = enter(&mut driver, Connect { will, ..connect("publisher") });
    driver.links[link].received.clear();
    driver.send(link, &[&publish.repeat(10)[..], b"\xC0\0\xE0\0"].concat());
    assert_eq!(driver.links[link].received, b"\xD0\0");
    driver.advance(Duration::from_secs(3));
    assert!(driver.is_open(link), "PUBLISH packets wait before its DISCONNECT");
    driver.advance(Duration::from_secs(20));
    assert!(!driver.is_open(link));
    assert_eq!(topics(&mut driver, subscriber), ["t"; 10], "all of them, and no will");
}

#[test]
fn pubrel_does_not_pass_a_repetition_of_its_publish() {
    let (mut driver, subscriber) = limited();
    let link = driver.open();
    driver.send(link, &connect_3_1_1("publisher"));
    let exactly_once = b"\x34\x06\0\x01t\0\x05x";
    driver.send(link, exactly_once);
    driver.links[link].received.clear();
    let repeated = b"\x3C\x06\0\x01t\0\x05x";
    driver.send(link, &[&PUBLISH.repeat(5)[..], repeated, b"\x62\x02\0\x05"].concat());
    driver.advance(Duration::from_secs(1));
    assert_eq!(driver.links[link].received, b"", "PUBREL waits behind the repetition");
    driver.advance(Duration::from_secs(20));
    assert_eq!(driver.links[link].received, b"\x50\x02\0\x05\x70\x02\0\x05");
    assert_eq!(topics(&mut driver, subscriber).len(), 6, "the repetition is no new message");
}

#[test]
fn at_most_once_above_the_rate_of_a_link_leaves_half_of_the_outbox_to_what_is_owed() {
    const OWED: usize = 20;
    let mut settings = driver::settings();
    settings.session.send.outbox = 16 << 10;
    let mut driver = MemoryDriver::new(&settings, 1);
    let link = client(&mut driver, "slow", 1_000);
    subscribe(&mut driver, link, &["#"], QoS::AtLeastOnce);
    let publisher = client(&mut driver, "publisher", 1_000);
    driver.make_room(link, 0);
    driver.links[link].received.clear();
    let flood = encoded(&Packet::Publish(publication("flood", &[7; 1_000])), V5).repeat(20);
    driver.send(publisher, &flood);
    for id in 1..=OWED as u16 {
        let parts = publication("owed", &[7; 1_000]);
        let publish = Publish { qos: QoS::AtLeastOnce, packet_id: PacketId::new(id), ..parts };
        driver.send(publisher, &encoded(&Packet::Publish(publish), V5));
    }
    let (mut ids, mut floods) = (Vec::new(), 0);
    for _ in 0..100 {
        driver.send(publisher, &flood[..flood.len() / 10]);
        driver.make_room(link, 1_100);
        driver.send(publisher, &flood[..flood.len() / 10]);
        // What is not whole stays for the next look.
        let received = driver.links[link].received.clone();
        let before = ids.len();
        take_packets(&mut driver, link, V5, |packet| match packet {
            Packet::Publish(Publish { packet_id: Some(id), .. }) => ids.push(id),
            _ => floods += 1,
        });
        let whole = whole_packets(&received);
        driver.links[link].received.extend_from_slice(&received[whole..]);
        for id in ids[before..].iter().copied() {
            driver.send(link, &encoded(&Packet::Puback(Acknowledgement::success(id)), V5));
        }
    }
    let expected: Vec<_> = (1..=OWED as u16).filter_map(PacketId::new).collect();
    assert_eq!(ids, expected, "what is owed comes, in its order");
    assert!(floods > 50, "{floods} messages at QoS 0 came");
    let drops = driver.shards[0].snapshot().counters.drops;
    assert!(drops.of(DropReason::OutboxFull) > 200);
}

/// The second message waits for the acknowledgement of the first, and not for room.
#[test]
fn while_a_message_waits_at_most_once_takes_half_of_the_outbox() {
    const OUTBOX: usize = 16 << 10;
    for (owed, most) in [(1, OUTBOX), (2, OUTBOX / 2)] {
        let mut settings = driver::settings();
        settings.session.send.outbox = OUTBOX;
        let mut driver = MemoryDriver::new(&settings, 1);
        let link = client(&mut driver, "slow", 1);
        subscribe(&mut driver, link, &["#"], QoS::AtLeastOnce);
        let publisher = client(&mut driver, "publisher", 1_000);
        driver.make_room(link, 0);
        driver.links[link].received.clear();
        for id in 1..=owed {
            let publish = Publish {
                qos: QoS::AtLeastOnce,
                packet_id: PacketId::new(id),
                ..publication("owed", &[7; 1_000])
            };
            driver.send(publisher, &encoded(&Packet::Publish(publish), V5));
        }
        let flood = encoded(&Packet::Publish(publication("flood", &[7; 1_000])), V5);
        driver.send(publisher, &flood.repeat(50));
        driver.make_room(link, usize::MAX);
        let sent = driver.links[link].received.len();
        // The last message may begin below the bound.
        assert!(
            (most - flood.len()..most + flood.len()).contains(&sent),
            "{owed} owed: {sent} bytes of {most}"
        );
    }
}

/// Returns the bytes of the whole packets at the front.
fn whole_packets(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some((_, len)) = homing::mqtt::codec::front(&bytes[at..], V5, u32::MAX)
        && at + len <= bytes.len()
    {
        at += len;
    }
    at
}
