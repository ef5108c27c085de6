//! SUBSCRIBE and SUBACK: chapters 3.8 and 3.9.

use super::cases;
use crate::harness::Target;
use crate::support::client::subscribe_packet;
use crate::support::wire::{self, Put};
use crate::support::{Kind, Message, Packet, V311, Version};

cases! {
    v311 {
        filter_that_is_not_utf_8_is_closed: ["MQTT-3.8.3-1"],
        reserved_bits_of_the_requested_qos_are_malformed: ["MQTT-3.8.3-4"],
        every_subscribe_is_answered_under_its_identifier: ["MQTT-3.8.4-1", "MQTT-3.8.4-2"],
        subscribing_again_does_not_interrupt_the_flow: ["MQTT-3.8.4-3"],
        refused_filter_is_answered_by_0x80: ["MQTT-3.9.3-2", "MQTT-3.8.4-5"],
    }
    v311_and_v31 {
        subscribe_without_a_filter_is_a_violation: ["MQTT-3.8.3-3"],
        same_filter_again_replaces_the_subscription: ["MQTT-3.8.4-3"],
        many_filters_are_granted_in_their_order: ["MQTT-3.8.4-4", "MQTT-3.8.4-5", "MQTT-3.9.3-1"],
        delivery_is_at_the_lower_of_published_and_granted_qos: ["MQTT-3.8.4-6"],
    }
}

fn filter_that_is_not_utf_8_is_closed(broker: &Target) {
    let mut client = broker.client(V311, "c");
    assert_eq!(client.subscribe(&[(&broker.topic("Ĉ𝄞"), 0)]), [0]);
    for filter in [&b"\xFF"[..], b"t/\xC3\x28", b"\xED\xBF\xBF", b"\xF4\x90\x80\x80"] {
        let mut body = vec![0, 1];
        // The first filter is well-formed, and must not be granted either.
        body.put_binary(b"t");
        body.push(0);
        body.put_binary(filter);
        body.push(0);
        broker.assert_closes(V311, &wire::packet(0x82, &body));
    }
}

fn subscribe_without_a_filter_is_a_violation(broker: &Target, version: Version) {
    broker.assert_closes(version, &[0x82, 2, 0, 1]);
}

fn reserved_bits_of_the_requested_qos_are_malformed(broker: &Target) {
    let filter = broker.topic("t");
    let mut client = broker.client(V311, "c");
    assert_eq!(client.subscribe(&[(&filter, 0), (&filter, 1), (&filter, 2)]), [0, 1, 2]);
    for qos in [3, 4, 5, 6, 8, 0x10, 0x20, 0x40, 0x80, 0x82, 0xFF] {
        broker.assert_closes(V311, &subscribe_packet(V311, 1, &[], &[(&filter, qos)]));
    }
    broker.assert_closes(V311, &subscribe_packet(V311, 1, &[], &[(&filter, 1), (&filter, 3)]));
}

fn every_subscribe_is_answered_under_its_identifier(broker: &Target) {
    let filter = broker.topic("t");
    let mut client = broker.client(V311, "c");
    let requests: Vec<u16> = vec![1, 2, 700, 65_535, 3];
    let bytes = requests.iter().flat_map(|id| subscribe_packet(V311, *id, &[], &[(&filter, 1)]));
    client.send(&bytes.collect::<Vec<u8>>());
    let mut answered = Vec::new();
    for _ in &requests {
        let Packet::Granted(suback) = client.expect_packet(Kind::Suback) else { unreachable!() };
        assert_eq!(suback.codes, [1]);
        answered.push(suback.id);
    }
    answered.sort_by_key(|id| requests.iter().position(|request| request == id));
    assert_eq!(answered, requests);
    client.settle();
}

fn same_filter_again_replaces_the_subscription(broker: &Target, version: Version) {
    let topic = broker.topic("t");
    let mut publisher = broker.client(version, "p");
    publisher.deliver(&Message::new(&topic, "kept").qos(2).retained());
    let mut client = broker.client(version, "c");
    for qos in [2, 0, 1, 1] {
        assert_eq!(client.subscribe(&[(&topic, qos)]), [qos]);
        let kept = client.expect_publish();
        assert_eq!((kept.text(), kept.retain, kept.qos), ("kept", true, qos));
        client.complete(&kept);
        // One subscription, of the new QoS.
        publisher.deliver(&Message::new(&topic, "live").qos(2));
        let live = client.expect_publish();
        assert_eq!((live.text(), live.retain, live.qos), ("live", false, qos));
        client.complete(&live);
        client.settle();
    }
}

fn subscribing_again_does_not_interrupt_the_flow(broker: &Target) {
    let topic = broker.topic("t");
    let mut publisher = broker.client(V311, "p");
    let mut client = broker.client(V311, "c");
    client.subscribe(&[(&topic, 1)]);
    for n in 0..60_u8 {
        let publish =
            |k: u8| Message::new(&topic, [n, k]).qos(1).encode(V311, u16::from(n) * 4 + u16::from(k) + 1);
        publisher.send(&[publish(0), publish(1)].concat());
        client.send(&subscribe_packet(V311, 1000 + u16::from(n), &[], &[(&topic, n % 2)]));
        publisher.send(&[publish(2), publish(3)].concat());
    }
    (0..240).for_each(|_| drop(publisher.expect_packet(Kind::Puback)));
    let (mut seen, mut answered) = (Vec::new(), 0);
    while seen.len() < 240 || answered < 60 {
        match client.receive() {
            Packet::Publish(publish) => {
                seen.push((publish.payload[0], publish.payload[1]));
                client.complete(&publish);
            }
            Packet::Granted(_) => answered += 1,
            other => panic!("{other:?}"),
        }
    }
    client.settle();
    // Order is promised within a QoS only, and this changes it.
    seen.sort_unstable();
    let sent: Vec<_> = (0..60).flat_map(|n| (0..4).map(move |k| (n, k))).collect();
    assert_eq!(seen, sent);
}

fn many_filters_are_granted_in_their_order(broker: &Target, version: Version) {
    let requested = [2, 0, 1, 1, 0, 2, 2];
    let topics: Vec<String> = (0..7).map(|n| broker.topic(&format!("t{n}"))).collect();
    let filters: Vec<(&str, u8)> = topics.iter().map(String::as_str).zip(requested).collect();
    let mut client = broker.client(version, "c");
    assert_eq!(client.subscribe(&filters), requested);
    // One SUBACK for all, and each filter is a subscription of its own.
    client.settle();
    let mut publisher = broker.client(version, "p");
    for (topic, qos) in filters {
        publisher.deliver(&Message::new(topic, "x").qos(2));
        let publish = client.expect_publish();
        assert_eq!((publish.topic.as_str(), publish.qos), (topic, qos));
        client.complete(&publish);
    }
    client.settle();
}

fn delivery_is_at_the_lower_of_published_and_granted_qos(broker: &Target, version: Version) {
    let topic = broker.topic("t");
    let mut publisher = broker.client(version, "p");
    for granted in [0, 1, 2] {
        let mut client = broker.client(version, "c");
        assert_eq!(client.subscribe(&[(&topic, granted)]), [granted]);
        for published in [0, 1, 2] {
            publisher.deliver(&Message::new(&topic, "x").qos(published));
            let publish = client.expect_publish();
            assert_eq!(publish.qos, published.min(granted), "{published} to {granted}");
            client.complete(&publish);
        }
        client.disconnect();
    }
}

/// The reader of the test client refuses all other codes in a SUBACK.
fn refused_filter_is_answered_by_0x80(broker: &Target) {
    let broker = broker.configured(|config| config.limits.subscriptions_per_client = 2);
    let mut client = broker.client(V311, "c");
    assert_eq!(client.subscribe(&[("a", 1)]), [1]);
    assert_eq!(client.subscribe(&[("a", 2), ("b", 0), ("c", 1), ("b", 1), ("d", 2)]), [2, 0, 0x80, 1, 0x80]);
    // The refused ones are no subscriptions.
    for topic in ["c", "d", "b"] {
        client.deliver(&Message::new(topic, "x").qos(1));
    }
    assert_eq!(client.expect_publish().topic, "b");
}
