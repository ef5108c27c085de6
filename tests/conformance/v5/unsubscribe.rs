//! UNSUBSCRIBE and UNSUBACK: 3.10 and 3.11.

use super::cases;
use super::stage::{EITHER, Stage, unsubscribe_packet};
use crate::support::{Kind, Packet, Property};

cases! {
    unsubscribe_without_a_filter_is_a_protocol_error: ["MQTT-3.10.3-2"],
    only_the_very_filter_is_deleted: ["MQTT-3.10.4-1"],
    nothing_is_queued_after_unsubscribe: ["MQTT-3.10.4-2"],
    deliveries_begun_are_finished: ["MQTT-3.10.4-3"],
    every_unsubscribe_is_answered: ["MQTT-3.10.4-4"],
    unsuback_has_the_identifier_though_nothing_was_deleted: ["MQTT-3.10.4-5"],
    many_filters_are_like_many_requests_with_one_answer: ["MQTT-3.10.4-6"],
    unsuback_codes_follow_the_filters: ["MQTT-3.11.3-1"],
    unsuback_codes_are_from_its_table: ["MQTT-3.11.3-2"],
    invalid_filter_in_unsubscribe_is_answered_or_disconnected: [],
}

fn unsubscribe_without_a_filter_is_a_protocol_error(stage: &Stage) {
    let mut client = stage.subscriber("c", "t", 0);
    assert_eq!(client.unsubscribe(&[&stage.topic("t")]), [0]);
    stage.assert_disconnected(&unsubscribe_packet(1, &[], &[]), EITHER, "no filter");
}

fn only_the_very_filter_is_deleted(stage: &Stage) {
    let mut client = stage.subscriber("c", "a/+", 0);
    for other in ["a/b", "#", "a/#", "+/+", "a", "A/+", "a/+/", "/a/+"] {
        assert_eq!(client.unsubscribe(&[&stage.topic(other)]), [0x11], "{other}");
    }
    stage.deliver(&stage.message("a/b", "x").qos(1));
    assert_eq!(client.expect_publish().text(), "x");
    assert_eq!(client.unsubscribe(&[&stage.topic("a/+")]), [0]);
    stage.deliver(&stage.message("a/b", "x").qos(1));
    client.settle();
}

fn nothing_is_queued_after_unsubscribe(stage: &Stage) {
    for qos in [0, 1, 2] {
        let mut client = stage.connect(&stage.lasting("c"));
        client.subscribe(&[(&stage.topic("t"), qos)]);
        stage.deliver(&stage.message("t", "before").qos(qos.max(1)));
        let publish = client.expect_publish();
        client.complete(&publish);
        assert_eq!(client.unsubscribe(&[&stage.topic("t")]), [0]);
        stage.deliver(&stage.message("t", "after").qos(2));
        client.settle();
        client.disconnect();
        stage.connect(&stage.lasting("c")).settle();
    }
}

fn deliveries_begun_are_finished(stage: &Stage) {
    let mut client = stage.connect(&stage.lasting("c"));
    client.subscribe(&[(&stage.topic("t"), 2)]);
    for qos in [1, 2, 2] {
        stage.deliver(&stage.message("t", "x").qos(qos));
    }
    let sent = client.expect_publishes(3);
    assert_eq!(client.unsubscribe(&[&stage.topic("t")]), [0]);
    client.complete(&sent[1]);
    client.vanish();
    let mut client = stage.connect(&stage.lasting("c"));
    for first in [&sent[0], &sent[2]] {
        let publish = client.expect_publish();
        assert_eq!((publish.id, publish.dup, publish.qos), (first.id, true, first.qos));
        client.complete(&publish);
    }
    client.settle();
}

fn every_unsubscribe_is_answered(stage: &Stage) {
    let mut client = stage.client("c");
    let filter = stage.topic("t");
    client.send(
        &(1..=20).flat_map(|id| unsubscribe_packet(id, &[], &[filter.as_bytes()])).collect::<Vec<u8>>(),
    );
    for _ in 1..=20 {
        client.expect_packet(Kind::Unsuback);
    }
    client.settle();
}

fn unsuback_has_the_identifier_though_nothing_was_deleted(stage: &Stage) {
    let mut client = stage.client("c");
    for id in [65_535, 1, 256, 255] {
        client.send(&unsubscribe_packet(id, &[], &[b"never/subscribed"]));
        let Packet::Granted(unsuback) = client.expect_packet(Kind::Unsuback) else { unreachable!() };
        assert_eq!((unsuback.id, unsuback.codes), (id, vec![0x11]));
    }
}

fn many_filters_are_like_many_requests_with_one_answer(stage: &Stage) {
    let filters = ["a", "b", "c"].map(|name| stage.topic(name));
    let mut client = stage.client("c");
    client.subscribe(&[(&filters[0], 0), (&filters[1], 0), (&filters[2], 0)]);
    // One of them twice: gone by then.
    assert_eq!(client.unsubscribe(&[&filters[0], &filters[2], &filters[0]]), [0, 0, 0x11]);
    for name in ["a", "b", "c"] {
        stage.deliver(&stage.message(name, name).qos(1));
    }
    assert_eq!(client.expect_publish().text(), "b");
    client.settle();
}

fn unsuback_codes_follow_the_filters(stage: &Stage) {
    let filters = ["a", "b", "c"].map(|name| stage.topic(name));
    let mut client = stage.client("c");
    client.subscribe(&[(&filters[0], 0), (&filters[2], 0)]);
    let codes = client.unsubscribe(&[&filters[1], &filters[2], "never/subscribed", &filters[0]]);
    assert_eq!(codes, [0x11, 0, 0x11, 0]);
}

/// The reader of these tests refuses others.
fn unsuback_codes_are_from_its_table(stage: &Stage) {
    let lawful = super::table::codes_of("UNSUBACK");
    let mut client = stage.client("c");
    for filter in [stage.topic("t").as_str(), "$share/g/t", "$SYS/#", "#", "+"] {
        client.subscribe(&[(filter, 0x20)]);
        for _ in 0..2 {
            let codes = client.unsubscribe(&[filter]);
            assert!(matches!(codes[..], [code] if lawful.contains(&code)), "{filter}: {codes:02X?}");
        }
        client.drain();
    }
}

/// A filter that no SUBSCRIBE could have had: refused by its code, by the end of the connection, or
/// simply not there.
fn invalid_filter_in_unsubscribe_is_answered_or_disconnected(stage: &Stage) {
    let lawful = super::table::codes_of("UNSUBACK");
    for filter in ["a#", "+a", "$share/g", "$share//t"] {
        let mut client = stage.client("c");
        client.send(&unsubscribe_packet(1, &[], &[filter.as_bytes()]));
        match client.receive() {
            Packet::Granted(unsuback) => {
                assert!(
                    matches!(unsuback.codes[..], [code] if code != 0 && lawful.contains(&code)),
                    "{unsuback:?}"
                );
            }
            Packet::Disconnect(disconnect) => assert!(matches!(disconnect.code, 0x81 | 0x82 | 0x8F)),
            other => panic!("{other:?}"),
        }
    }
    let mut client = stage.served(&stage.passing("d").with(Property::RequestProblem(1)));
    client.settle();
}
