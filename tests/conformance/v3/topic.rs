//! Topic names and topic filters: chapter 4.7.

use super::cases;
use crate::harness::Target;
use crate::support::client::subscribe_packet;
use crate::support::wire::{self, Put};
use crate::support::{Message, Packet, V31, V311, Version};

cases! {
    v311 {
        number_sign_matches_the_rest_of_the_levels: ["MQTT-4.7.1-2"],
        misplaced_number_sign_is_no_filter: ["MQTT-4.7.1-2"],
        plus_matches_one_level_at_any_place: ["MQTT-4.7.1-3"],
        misplaced_plus_is_no_filter: ["MQTT-4.7.1-3"],
        leading_wildcards_match_no_dollar_topics: ["MQTT-4.7.2-1"],
        empty_topic_or_filter_is_invalid: ["MQTT-4.7.3-1"],
        u_0000_in_topic_or_filter_is_invalid: ["MQTT-4.7.3-2"],
        topics_are_matched_as_they_are: ["MQTT-4.7.3-4"],
    }
    v31 {
        wildcards_match_levels,
    }
}

/// Asserts which topics match the filter. Both begin at the root of a broker of this test's own.
fn matches(broker: &Target, version: Version, filter: &str, topics: &[(&str, bool)]) {
    let mut subscriber = broker.client(version, "s");
    assert_eq!(subscriber.subscribe(&[(filter, 0), ("the marker", 0)]), [0, 0]);
    let mut publisher = broker.client(version, "p");
    for (topic, matches) in topics {
        publisher.deliver(&Message::new(topic, "x").qos(1));
        publisher.deliver(&Message::new("the marker", "marker").qos(1));
        if *matches {
            let publish = subscriber.expect_publish();
            assert_eq!((publish.topic.as_str(), publish.text()), (*topic, "x"), "{filter}");
        }
        // Once for each of its filters that match, or once in all.
        assert_eq!(subscriber.expect_publish().text(), "marker", "{filter} and {topic}");
        subscriber.drain();
    }
}

/// Neither granted nor in the way of anyone: refused by 0x80, or by the end of the connection.
fn is_no_filter(broker: &Target, filter: &str) {
    let mut client = broker.client(V311, "c");
    client.settle();
    client.send(&subscribe_packet(V311, 1, &[], &[(filter, 0)]));
    match client.expect_suback_or_end() {
        Packet::Granted(suback) => assert_eq!(suback.codes, [0x80], "{filter}"),
        Packet::Disconnect(_) => {}
        other => panic!("{filter}: {other:?}"),
    }
}

fn number_sign_matches_the_rest_of_the_levels(broker: &Target) {
    let broker = broker.alone();
    matches(
        &broker,
        V311,
        "a/#",
        &[("a", true), ("a/", true), ("a/b", true), ("a/b/c/d", true), ("ab", false)],
    );
    matches(&broker, V311, "a/b/#", &[("a/b", true), ("a/b/c", true), ("a", false), ("a/c", false)]);
    matches(&broker, V311, "/#", &[("/", true), ("/a", true), ("a", false), ("a/b", false)]);
    matches(&broker, V311, "#", &[("a", true), ("/", true), ("/a/b", true)]);
}

fn misplaced_number_sign_is_no_filter(broker: &Target) {
    broker.serves(V311);
    for filter in ["a#", "#a", "##", "a/b#", "a/#/c", "#/", "#/a", "a/##", "+#", "#+"] {
        is_no_filter(broker, filter);
    }
}

fn plus_matches_one_level_at_any_place(broker: &Target) {
    let broker = broker.alone();
    matches(
        &broker,
        V311,
        "a/+",
        &[("a/b", true), ("a/", true), ("a", false), ("a/b/c", false), ("/a", false)],
    );
    matches(&broker, V311, "+", &[("a", true), ("/a", false), ("a/b", false), ("/", false)]);
    matches(&broker, V311, "/+", &[("/a", true), ("/", true), ("a", false), ("/a/b", false)]);
    matches(&broker, V311, "+/+", &[("/a", true), ("a/b", true), ("/", true), ("a", false)]);
    matches(&broker, V311, "a/+/c", &[("a/b/c", true), ("a//c", true), ("a/c", false), ("a/b/b/c", false)]);
    matches(&broker, V311, "+/b/#", &[("a/b", true), ("/b/c", true), ("b", false), ("a/c/b", false)]);
}

fn misplaced_plus_is_no_filter(broker: &Target) {
    broker.serves(V311);
    for filter in ["a+", "+a", "++", "a/b+", "a/+b/c", "a/++", "+a/#"] {
        is_no_filter(broker, filter);
    }
}

fn wildcards_match_levels(broker: &Target) {
    let broker = broker.alone();
    matches(&broker, V31, "a/#", &[("a", true), ("a/b", true), ("a/b/c", true), ("b", false)]);
    matches(&broker, V31, "a/+/c", &[("a/b/c", true), ("a/c", false), ("a/b", false)]);
}

/// `$SYS` alone is the broker's own; other topics that begin with `$` are anyone's.
fn leading_wildcards_match_no_dollar_topics(broker: &Target) {
    let broker = broker.alone();
    for filter in ["#", "+", "+/#", "+/a", "+/+"] {
        matches(&broker, V311, filter, &[("$other", false), ("$other/a", false)]);
        // It does match others.
        let topic = if filter == "+" { "other" } else { "other/a" };
        let mut client = broker.client(V311, "c");
        client.subscribe(&[(filter, 0)]);
        client.deliver(&Message::new(topic, "x").qos(1));
        assert_eq!(client.expect_publish().topic, topic);
        client.disconnect();
    }
    matches(&broker, V311, "$other/#", &[("$other", true), ("$other/a", true), ("other/a", false)]);
    matches(&broker, V311, "$other/+", &[("$other/a", true), ("$other", false)]);
    matches(&broker, V311, "a/+", &[("a/$b", true)]);
    // The broker's own, retained before anyone asks.
    let broker =
        broker.configured(|config| config.sys.publish_interval = std::time::Duration::from_millis(100));
    let mut watcher = broker.client(V311, "watcher");
    watcher.subscribe(&[("$SYS/#", 0)]);
    assert!(watcher.expect_publish().topic.starts_with("$SYS/"));
    let mut client = broker.client(V311, "c");
    client.subscribe(&[("#", 0), ("+/#", 0), ("+/broker/#", 0)]);
    client.settle();
}

fn empty_topic_or_filter_is_invalid(broker: &Target) {
    let broker = broker.alone();
    // One character is enough, and a lone slash is two empty levels.
    matches(&broker, V311, "/", &[("/", true), ("a", false), ("//", false)]);
    matches(&broker, V311, "a", &[("a", true)]);
    let mut watcher = broker.client(V311, "w");
    watcher.subscribe(&[("#", 0)]);
    for qos in [0, 1, 2] {
        broker.assert_closes(V311, &Message::new("", "x").qos(qos).encode(V311, 1));
    }
    watcher.settle();
    broker.assert_closes(V311, &subscribe_packet(V311, 1, &[], &[("a", 0), ("", 0)]));
    broker.assert_closes(V311, &wire::packet(0xA2, &[0, 1, 0, 1, b'a', 0, 0]));
}

fn u_0000_in_topic_or_filter_is_invalid(broker: &Target) {
    broker.serves(V311);
    for text in ["\0", "a\0", "a/\0/b", "\0a"] {
        for qos in [0, 1, 2] {
            broker.assert_closes(V311, &Message::new(text, "x").qos(qos).encode(V311, 1));
        }
        broker.assert_closes(V311, &subscribe_packet(V311, 1, &[], &[(text, 0)]));
        let mut body = vec![0, 1];
        body.put_binary(text.as_bytes());
        broker.assert_closes(V311, &wire::packet(0xA2, &body));
    }
}

fn topics_are_matched_as_they_are(broker: &Target) {
    // Case, composed and decomposed, compatibility forms, spaces, trailing and doubled slashes,
    // sharp s.
    let names = [
        "a",
        "A",
        "\u{E9}",
        "e\u{301}",
        "\u{FB01}",
        "fi",
        " a",
        "a ",
        "a/",
        "/a",
        "a//b",
        "a/b",
        "\u{DF}",
        "ss",
        "\u{1F600}",
        "%61",
        "a\u{200B}",
    ];
    let topics = names.map(|name| broker.topic(name));
    let mut publisher = broker.client(V311, "p");
    for own in &topics {
        let mut client = broker.client(V311, "c");
        client.subscribe(&[(own, 0)]);
        for topic in &topics {
            publisher.deliver(&Message::new(topic, topic).qos(1));
        }
        let seen: Vec<_> =
            client.drain().into_iter().map(|publish| (publish.topic, publish.payload)).collect();
        assert_eq!(seen, [(own.clone(), own.clone().into_bytes())]);
        client.disconnect();
    }
}
