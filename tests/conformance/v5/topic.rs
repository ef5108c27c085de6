//! Topic Names and Topic Filters: 4.7.

use super::cases;
use super::stage::{EITHER, Stage};
use crate::support::client::subscribe_packet;
use crate::support::{Message, Packet, V5};

cases! {
    wildcards_are_never_part_of_a_topic_name: ["MQTT-4.7.0-1"],
    multi_level_wildcard_stands_alone_and_last: ["MQTT-4.7.1-1"],
    single_level_wildcard_fills_a_level: ["MQTT-4.7.1-2"],
    wildcard_at_the_front_matches_no_topic_of_the_broker: ["MQTT-4.7.2-1"],
    names_and_filters_have_a_character: ["MQTT-4.7.3-1"],
    no_u_0000_in_names_and_filters: ["MQTT-4.7.3-2"],
    topics_are_matched_as_they_are: ["MQTT-4.7.3-4"],
}

/// An invalid filter: refused by its code, or as an error of the connection.
fn assert_filter_is_refused(stage: &Stage, filter: &str) {
    let mut client = stage.client("f");
    client.send(&subscribe_packet(V5, 1, &[], &[(filter, 0)]));
    match client.receive() {
        Packet::Granted(suback) => {
            assert!(matches!(suback.codes[..], [0x80 | 0x83 | 0x8F]), "{filter:?}: {suback:?}");
            client.settle();
        }
        Packet::Disconnect(disconnect) => {
            assert!(matches!(disconnect.code, 0x81 | 0x82 | 0x8F), "{filter:?}: {disconnect:?}");
            assert_eq!(client.expect_closed(), None);
        }
        other => panic!("{filter:?}: {other:?}"),
    }
}

/// Returns the topics that reach a subscriber of this filter.
fn matched(stage: &Stage, filter: &str, topics: &[&str]) -> Vec<String> {
    let mut subscriber = stage.client("subscriber");
    assert_eq!(subscriber.subscribe(&[(&stage.topic(filter), 0)]), [0]);
    let mut publisher = stage.client("p");
    for topic in topics {
        publisher.deliver(&stage.message(topic, topic).qos(1));
    }
    let matched = subscriber.drain().iter().map(|publish| publish.text().to_owned()).collect();
    subscriber.disconnect();
    matched
}

fn wildcards_are_never_part_of_a_topic_name(stage: &Stage) {
    assert_eq!(matched(stage, "+/b", &["a/b"]), ["a/b"]);
    for topic in ["+", "#", "a/+", "+/a", "a/#", "a#", "a+b", "/#"] {
        for qos in [0, 1, 2] {
            let publish = stage.message(topic, "x").qos(qos).encode(V5, 1);
            stage.assert_disconnected(&publish, &[0x81, 0x82, 0x90], topic);
        }
        let connect = stage.passing("w").will(stage.will(topic, "x"));
        stage.assert_refused(&connect.encode(), &[0x81, 0x82, 0x90], topic);
    }
}

fn multi_level_wildcard_stands_alone_and_last(stage: &Stage) {
    let topics = ["a", "a/b", "a/b/c", "ab", "b/a", "a/"];
    assert_eq!(matched(stage, "a/#", &topics), ["a", "a/b", "a/b/c", "a/"]);
    assert_eq!(matched(stage, "#", &topics), topics);
    for filter in ["a#", "a/b#", "#/a", "a/#/b", "##", "a/##", "#a", "+#", "/#/", "$share/g/a#"] {
        assert_filter_is_refused(stage, filter);
    }
}

fn single_level_wildcard_fills_a_level(stage: &Stage) {
    let topics = ["a", "a/b", "a/b/c", "b/b", "/b", "a/", "/"];
    assert_eq!(matched(stage, "+", &topics), ["a"]);
    assert_eq!(matched(stage, "a/+", &topics), ["a/b", "a/"]);
    assert_eq!(matched(stage, "+/b", &topics), ["a/b", "b/b", "/b"]);
    assert_eq!(matched(stage, "+/+", &topics), ["a/b", "b/b", "/b", "a/", "/"]);
    assert_eq!(matched(stage, "a/+/#", &topics), ["a/b", "a/b/c", "a/"]);
    for filter in ["a+", "+a", "a/b+", "+b/a", "a/+b/c", "++", "a/++", "$share/g/a+"] {
        assert_filter_is_refused(stage, filter);
    }
}

fn wildcard_at_the_front_matches_no_topic_of_the_broker(stage: &Stage) {
    // $SYS is published of its own accord, and often: those who ask for it see it.
    let broker =
        stage.configured(|config| config.sys.publish_interval = std::time::Duration::from_millis(100));
    let stage = &Stage::of(&broker);
    let mut wild = stage.client("wild");
    wild.subscribe(&[("#", 0), ("+/#", 0), ("+/broker/#", 0), ("+/+/+", 0), ("+/+/+/+", 0)]);
    let mut exact = stage.client("exact");
    exact.subscribe(&[("$SYS/#", 0)]);
    assert!(exact.expect_publishes(30).iter().all(|publish| publish.topic.starts_with("$SYS/")));
    stage.deliver(&stage.message("t", "marker").qos(1));
    assert!(wild.drain().iter().all(|publish| publish.text() == "marker"));
}

fn names_and_filters_have_a_character(stage: &Stage) {
    assert_eq!(matched(stage, "/", &["/"]), ["/"]);
    let mut client = stage.client("c");
    assert_eq!(client.subscribe(&[("/", 0), (" ", 0)]), [0, 0]);
    stage.assert_disconnected(&Message::new("", "x").encode(V5, 0), &[0x81, 0x82, 0x90], "empty name");
    stage.assert_disconnected(&subscribe_packet(V5, 1, &[], &[("a", 0), ("", 0)]), EITHER, "empty filter");
    let unsubscribe = super::stage::unsubscribe_packet(1, &[], &[b"a", b""]);
    stage.assert_disconnected(&unsubscribe, EITHER, "empty filter to remove");
    assert_filter_is_refused(stage, "$share/g/");
    client.settle();
}

fn no_u_0000_in_names_and_filters(stage: &Stage) {
    assert_eq!(matched(stage, "a\u{A1}", &["a\u{A1}", "a"]), ["a\u{A1}"]);
    for name in ["\0", "a\0", "a/\0/b"] {
        stage.assert_disconnected(&stage.message(name, "x").encode(V5, 0), EITHER, "name");
        stage.assert_disconnected(&subscribe_packet(V5, 1, &[], &[(name, 0)]), EITHER, "filter");
        let unsubscribe = super::stage::unsubscribe_packet(1, &[], &[name.as_bytes()]);
        stage.assert_disconnected(&unsubscribe, EITHER, "filter to remove");
    }
}

fn topics_are_matched_as_they_are(stage: &Stage) {
    // Composed and decomposed, upper and lower case, spaces, slashes, width.
    let topics =
        ["\u{E9}", "e\u{301}", "A", "a", "a ", " a", "a/", "/a", "a//b", "a/b", "\u{FF41}", "\u{DF}", "ss"];
    for topic in topics {
        assert_eq!(matched(stage, topic, &topics), [topic]);
    }
}
