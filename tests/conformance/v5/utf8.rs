//! 1.5: strings, string pairs and variable byte integers.

use super::cases;
use super::stage::{
    MALFORMED, Stage, connect_packet, packet, property_set, publish_packet, string, unsubscribe_packet,
};
use crate::support::client::subscribe_packet;
use crate::support::{Connect, Kind, Message, V5};

cases! {
    string_that_is_not_utf8_is_malformed: ["MQTT-1.5.4-1"],
    string_with_u_0000_is_malformed: ["MQTT-1.5.4-2"],
    byte_order_mark_stays_in_the_string: ["MQTT-1.5.4-3"],
    lengths_are_written_in_their_shortest_form: ["MQTT-1.5.5-1"],
    both_strings_of_a_pair_are_checked: ["MQTT-1.5.7-1"],
    topic_name_comes_first_and_is_utf8: ["MQTT-3.3.2-1"],
    filter_of_subscribe_that_is_not_utf8_is_malformed: ["MQTT-3.8.3-1"],
    filter_of_unsubscribe_that_is_not_utf8_is_malformed: ["MQTT-3.10.3-1"],
}

/// Overlong, truncated, stray and surrogate encodings.
pub const NOT_UTF8: [&[u8]; 5] = [b"\xC3\x28", b"\xE2\x82", b"\x80", b"\xC0\xAF", b"\xED\xA0\x80"];

/// Every packet from a client that has strings, each with `bad` in one of them.
fn assert_refused_everywhere(stage: &Stage, bad: &[u8]) {
    let filter = [&string(bad)[..], &[0]].concat();
    stage.assert_disconnected(&packet(0x30, &[&string(bad), &[0]]), &[MALFORMED], "topic name");
    stage.assert_disconnected(&packet(0x82, &[&[0, 1, 0], &filter]), &[MALFORMED], "topic filter");
    stage.assert_disconnected(&unsubscribe_packet(1, &[], &[bad]), &[MALFORMED], "filter to remove");
    let content_type = [&[0x03][..], &string(bad)].concat();
    stage.assert_disconnected(&publish_packet("t", &content_type), &[MALFORMED], "content type");
    let reason = [&[0x1F][..], &string(bad)].concat();
    stage.assert_disconnected(&packet(0xE0, &[&[0], &property_set(&reason)]), &[MALFORMED], "reason string");
    stage.assert_refused(&connect_packet(2, &[], &[&string(bad)]), &[MALFORMED, 0x85], "client id");
}

fn string_that_is_not_utf8_is_malformed(stage: &Stage) {
    let text = "\u{E9}/\u{10FFFD}/\u{D7FF}\u{E000}";
    let mut client = stage.subscriber("c", "#", 0);
    client.deliver(&stage.message(text, "x").qos(1));
    assert_eq!(client.expect_publish().topic, stage.topic(text));
    for bad in NOT_UTF8 {
        assert_refused_everywhere(stage, bad);
    }
    client.settle();
}

fn string_with_u_0000_is_malformed(stage: &Stage) {
    let mut client = stage.subscriber("c", "#", 0);
    client.deliver(&stage.message("\u{A1}", "x").qos(1));
    assert_eq!(client.expect_publish().topic, stage.topic("\u{A1}"));
    for bad in [&b"\0"[..], b"a\0b", b"a\0"] {
        assert_refused_everywhere(stage, bad);
    }
    client.settle();
}

fn byte_order_mark_stays_in_the_string(stage: &Stage) {
    let marked = "\u{FEFF}t\u{FEFF}";
    let mut client = stage.subscriber("c", marked, 0);
    let mut plain = stage.subscriber("d", "t", 0);
    client.deliver(&stage.message(marked, "marked").qos(1));
    client.deliver(&stage.message("t", "plain").qos(1));
    assert_eq!(client.expect_publish().topic, stage.topic(marked));
    client.settle();
    assert_eq!(plain.expect_publish().text(), "plain");
    plain.settle();
    // At the very front of a string, where a decoder would look for one.
    let id = format!("\u{FEFF}{}", stage.id("e"));
    stage.connect(&Connect::persistent(V5, &id)).disconnect();
    assert!(!stage.connect(&stage.lasting("e")).session_present());
    assert!(stage.connect(&Connect::persistent(V5, &id)).session_present());
}

/// The reader of these tests refuses longer forms; so it is shown packets and property sets on both
/// sides of each border.
fn lengths_are_written_in_their_shortest_form(stage: &Stage) {
    let mut client = stage.subscriber("c", "t", 0);
    let overhead = stage.message("t", "").encode(V5, 0).len() - 2;
    for size in [0, 127 - overhead, 128 - overhead, 16_383 - overhead, 16_384 - overhead] {
        client.deliver(&stage.message("t", vec![b'x'; size]).qos(1));
        assert_eq!(client.expect_publish().payload.len(), size);
    }
    for size in [121, 122, 123, 124, 16_377, 16_378, 16_379, 16_380] {
        let value = "x".repeat(size);
        client.deliver(&stage.message("t", "").qos(1).with(crate::support::Property::user("", &value)));
        assert_eq!(client.expect_publish().user_properties(), [("", value.as_str())]);
    }
    let bytes = [0xC0, 0x80, 0x80, 0x80, 0x80, 0x00];
    stage.assert_disconnected(&bytes, &[MALFORMED], "a length of five bytes");
    stage.assert_disconnected(&[0xC0, 0x80, 0x00], &[MALFORMED], "two bytes for 0");
    let long_form = packet(0x30, &[&string("t"), &[0x80, 0x00]]);
    stage.assert_disconnected(&long_form, &[MALFORMED], "two bytes for an empty property set");
}

fn both_strings_of_a_pair_are_checked(stage: &Stage) {
    let mut client = stage.subscriber("c", "t", 0);
    client.deliver(&stage.message("t", "").qos(1).with(crate::support::Property::user("", "")));
    assert_eq!(client.expect_publish().user_properties(), [("", "")]);
    for bad in NOT_UTF8.into_iter().chain([&b"a\0"[..]]) {
        for (name, value) in [(bad, &b"v"[..]), (b"n", bad)] {
            let pair = [&[0x26][..], &string(name), &string(value)].concat();
            let why = format!("{name:02X?} = {value:02X?}");
            stage.assert_disconnected(&publish_packet(&stage.topic("t"), &pair), &[MALFORMED], &why);
            let subscribe = [&[0, 1][..], &property_set(&pair), &string("t"), &[0]].concat();
            stage.assert_disconnected(&packet(0x82, &[&subscribe]), &[MALFORMED], &why);
            stage.assert_refused(&connect_packet(2, &pair, &[&string("c")]), &[MALFORMED], &why);
        }
    }
    client.settle();
}

fn topic_name_comes_first_and_is_utf8(stage: &Stage) {
    let mut client = stage.subscriber("c", "#", 1);
    client.deliver(&stage.message("\u{20AC}", "x").qos(1));
    let publish = client.expect_publish();
    assert_eq!((publish.topic, publish.payload), (stage.topic("\u{20AC}"), b"x".to_vec()));
    for bad in NOT_UTF8 {
        let topic = [stage.topic("").as_bytes(), bad].concat();
        stage.assert_disconnected(&Message::new(topic, "x").encode(V5, 0), &[MALFORMED], "not UTF-8");
    }
    stage.assert_disconnected(&packet(0x30, &[]), &[MALFORMED], "no topic name");
    stage.assert_disconnected(&packet(0x30, &[&[0, 9], b"short"]), &[MALFORMED], "topic name cut short");
    stage.assert_nothing_came(&mut client, "marker");
}

fn filter_of_subscribe_that_is_not_utf8_is_malformed(stage: &Stage) {
    let mut client = stage.client("c");
    assert_eq!(client.subscribe(&[(&stage.topic("\u{E9}"), 1)]), [1]);
    for bad in NOT_UTF8 {
        let filters = [&string(stage.topic("ok"))[..], &[0], &string(bad), &[0]].concat();
        stage.assert_disconnected(&packet(0x82, &[&[0, 1, 0], &filters]), &[MALFORMED], "not UTF-8");
    }
    client.send(&subscribe_packet(V5, 9, &[], &[("t", 0)]));
    client.expect_packet(Kind::Suback);
}

fn filter_of_unsubscribe_that_is_not_utf8_is_malformed(stage: &Stage) {
    let mut client = stage.subscriber("c", "\u{E9}", 1);
    assert_eq!(client.unsubscribe(&[&stage.topic("\u{E9}")]), [0]);
    for bad in NOT_UTF8 {
        stage.assert_disconnected(&unsubscribe_packet(1, &[], &[b"t", bad]), &[MALFORMED], "not UTF-8");
    }
    client.settle();
}
