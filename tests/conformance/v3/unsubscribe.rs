//! UNSUBSCRIBE and UNSUBACK: chapter 3.10.

use super::cases;
use crate::harness::Target;
use crate::support::wire::{self, Put};
use crate::support::{Kind, Message, Packet, V311, Version};

cases! {
    v311 {
        filter_that_is_not_utf_8_is_closed: ["MQTT-3.10.3-1"],
        only_the_filter_of_the_same_characters_is_deleted: ["MQTT-3.10.4-1"],
        deliveries_already_begun_are_finished: ["MQTT-3.10.4-3"],
        many_filters_are_deleted_with_one_answer: ["MQTT-3.10.4-6"],
    }
    v311_and_v31 {
        unsubscribe_without_a_filter_is_a_violation: ["MQTT-3.10.3-2"],
        nothing_more_is_delivered: ["MQTT-3.10.4-2"],
        unsuback_comes_for_any_filter_under_the_identifier: ["MQTT-3.10.4-4", "MQTT-3.10.4-5"],
    }
}

fn unsubscribe_packet(id: u16, filters: &[&[u8]]) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    filters.iter().for_each(|filter| body.put_binary(filter));
    wire::packet(0xA2, &body)
}

fn filter_that_is_not_utf_8_is_closed(broker: &Target) {
    let mut client = broker.client(V311, "c");
    client.unsubscribe(&[&broker.topic("Ĉ𝄞"), &broker.topic("t")]);
    for filter in [&b"\xFF"[..], b"t/\xC3\x28", b"\xED\xBF\xBF"] {
        broker.assert_closes(V311, &unsubscribe_packet(1, &[b"t", filter]));
    }
    // Filters end to end: the second one lacks its last byte.
    let mut cut_short = unsubscribe_packet(1, &[b"t", b"u"]);
    (cut_short[1], _) = (cut_short[1] - 1, cut_short.pop());
    broker.assert_closes(V311, &cut_short);
}

fn unsubscribe_without_a_filter_is_a_violation(broker: &Target, version: Version) {
    broker.assert_closes(version, &[0xA2, 2, 0, 1]);
}

fn only_the_filter_of_the_same_characters_is_deleted(broker: &Target) {
    let topic = broker.topic("a/b");
    let filters = ["a/b", "a/+", "+/b", "a/#", "#"].map(|name| broker.topic(name));
    for kept in &filters {
        let mut client = broker.client(V311, "c");
        client.subscribe(&[(kept, 1)]);
        for other in filters.iter().filter(|other| *other != kept) {
            client.unsubscribe(&[other]);
        }
        client.unsubscribe(&[&topic.to_uppercase(), &broker.topic("a"), &broker.topic("a/b/")]);
        client.deliver(&Message::new(&topic, "x").qos(1));
        let publish = client.expect_publish();
        client.complete(&publish);
        client.unsubscribe(&[kept]);
        client.deliver(&Message::new(&topic, "x").qos(1));
        client.settle();
    }
}

fn nothing_more_is_delivered(broker: &Target, version: Version) {
    let (topic, other) = (broker.topic("t"), broker.topic("u"));
    let mut publisher = broker.client(version, "p");
    let mut client = broker.client(version, "c");
    client.subscribe(&[(&topic, 2), (&other, 2)]);
    publisher.deliver(&Message::new(&topic, "x").qos(1));
    let publish = client.expect_publish();
    client.complete(&publish);
    client.unsubscribe(&[&topic]);
    for qos in [0, 1, 2] {
        publisher.deliver(&Message::new(&topic, "x").qos(qos).retained());
    }
    publisher.deliver(&Message::new(&other, "marker").qos(1));
    assert_eq!(client.expect_publish().text(), "marker");
    client.settle();
}

fn deliveries_already_begun_are_finished(broker: &Target) {
    let topic = broker.topic("t");
    let mut publisher = broker.client(V311, "p");
    let mut client = broker.persistent(V311, "c");
    client.subscribe(&[(&topic, 2)]);
    for (qos, text) in [(1, "one"), (2, "two"), (2, "three")] {
        publisher.deliver(&Message::new(&topic, text).qos(qos));
    }
    let begun = client.expect_publishes(3);
    client.ack(Kind::Pubrec, begun[1].id);
    client.expect_ack(Kind::Pubrel, begun[1].id);
    client.unsubscribe(&[&topic]);
    // One on this connection, the others on the next.
    client.ack(Kind::Pubcomp, begun[1].id);
    client.settle();
    client.vanish();
    let mut client = broker.persistent(V311, "c");
    for first in [&begun[0], &begun[2]] {
        let again = client.expect_publish();
        assert_eq!((again.id, again.dup, again.text()), (first.id, true, first.text()));
        client.complete(&again);
    }
    client.settle();
}

fn unsuback_comes_for_any_filter_under_the_identifier(broker: &Target, version: Version) {
    let topic = broker.topic("t");
    let mut client = broker.client(version, "c");
    client.subscribe(&[(&topic, 1)]);
    let filters = [topic.clone(), topic.clone(), broker.topic("never"), broker.topic("+/#")];
    for (filter, id) in filters.iter().zip([900, 1, 65_535, 256]) {
        client.send(&unsubscribe_packet(id, &[filter.as_bytes()]));
        let Packet::Granted(unsuback) = client.expect_packet(Kind::Unsuback) else { unreachable!() };
        // Nothing but the identifier: codes came with 5.0.
        assert_eq!((unsuback.id, unsuback.codes.len()), (id, 0));
    }
    client.settle();
}

fn many_filters_are_deleted_with_one_answer(broker: &Target) {
    let topics: Vec<String> = (0..5).map(|n| broker.topic(&format!("t{n}"))).collect();
    let mut client = broker.client(V311, "c");
    for topic in &topics {
        client.subscribe(&[(topic, 1)]);
    }
    let deleted = [&topics[3], &topics[0], &broker.topic("never"), &topics[4]];
    client.send(&unsubscribe_packet(70, &deleted.map(|filter| filter.as_bytes())));
    let Packet::Granted(unsuback) = client.expect_packet(Kind::Unsuback) else { unreachable!() };
    assert_eq!(unsuback.id, 70);
    client.settle();
    let mut publisher = broker.client(V311, "p");
    for topic in &topics {
        publisher.deliver(&Message::new(topic, "x").qos(1));
    }
    let left: Vec<String> = client.drain().into_iter().map(|publish| publish.topic).collect();
    assert_eq!(left, topics[1..3]);
}
