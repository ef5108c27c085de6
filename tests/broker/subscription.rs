//! SUBSCRIBE and UNSUBSCRIBE: filters, options, identifiers, overlaps.

use crate::support::client::subscribe_packet;
use crate::support::launch::{TestBroker, default_broker, on_one_and_three_arbiters, start_broker, versions};
use crate::support::wire;
use crate::support::{Kind, Message, Packet, Property, RawClient, V5, V31, V311, Version};

const NO_LOCAL: u8 = 0x04;

/// Which of the topics reach a subscriber of `filter`.
fn matched<'a>(broker: &TestBroker, version: Version, filter: &str, topics: &[&'a str]) -> Vec<&'a str> {
    let mut subscriber = broker.client(version, "s");
    assert_eq!(subscriber.subscribe(&[(filter, 1)]), [1], "{filter}");
    let mut publisher = broker.client(version, "p");
    for topic in topics {
        publisher.deliver(&Message::new(topic, topic).qos(1));
    }
    let publishes = subscriber.drain();
    assert!(publishes.iter().all(|publish| publish.topic == publish.text()));
    topics.iter().copied().filter(|topic| publishes.iter().any(|publish| publish.topic == **topic)).collect()
}

fn wildcards_match_as_the_standard_has_it(version: Version) {
    on_one_and_three_arbiters(|broker| {
        let topics = ["a", "a/b", "a/b/c", "/a", "a/", "/", "b", "a//c", "$a", "$a/b", "$SYS2/x"];
        let matched = |filter| matched(broker, version, filter, &topics);
        assert_eq!(matched("#"), ["a", "a/b", "a/b/c", "/a", "a/", "/", "b", "a//c"]);
        assert_eq!(matched("+"), ["a", "b"]);
        assert_eq!(matched("a/#"), ["a", "a/b", "a/b/c", "a/", "a//c"]);
        assert_eq!(matched("a/+"), ["a/b", "a/"]);
        assert_eq!(matched("+/+"), ["a/b", "/a", "a/", "/"]);
        assert_eq!(matched("/+"), ["/a", "/"]);
        assert_eq!(matched("a/+/c"), ["a/b/c", "a//c"]);
        assert_eq!(matched("+/b/#"), ["a/b", "a/b/c"]);
        assert_eq!(matched("+/#"), ["a", "a/b", "a/b/c", "/a", "a/", "/", "b", "a//c"]);
        assert_eq!(matched("$a/#"), ["$a", "$a/b"]);
        assert_eq!(matched("$a/+"), ["$a/b"]);
        assert_eq!(matched("A"), [""; 0]);
    });
}
versions!(wildcards_match_as_the_standard_has_it {
    mqtt31_wildcards_match: V31,
    mqtt311_4_7_1_2_4_7_1_3_4_7_2_1_wildcards_match_whole_levels_and_no_dollar_topics: V311,
    mqtt5_4_7_1_1_4_7_1_2_4_7_2_1_wildcards_match_whole_levels_and_no_dollar_topics: V5,
});

fn invalid_filters_are_refused(version: Version) {
    let broker = default_broker();
    for filter in ["a#", "#/a", "a/#/b", "a+", "+a", "a/+b/c", "##", "++", "a/##"] {
        println!("{filter:?}");
        let mut client = broker.client(version, "c");
        let id = client.fresh_id();
        client.send(&subscribe_packet(version, id, &[], &[(filter, 0)]));
        // Close, or a failure for this filter: never a grant.
        match client.expect_suback_or_end() {
            Packet::Granted(suback) => {
                assert!(suback.codes == [0x8F] || suback.codes == [0x80], "{suback:?}")
            }
            Packet::Disconnect(disconnect) => assert!(matches!(disconnect.code, 0x81 | 0x82 | 0x8F)),
            other => panic!("{other:?}"),
        }
    }
}
versions!(invalid_filters_are_refused {
    mqtt311_4_7_1_2_4_7_1_3_4_7_3_1_invalid_filters_are_refused: V311,
    mqtt5_4_7_1_1_4_7_1_2_4_7_3_1_invalid_filters_are_refused: V5,
});

fn malformed_requests_are_cut(version: Version) {
    let broker = default_broker();
    let cut = |bytes: &[u8], why: &str| {
        println!("{why}");
        let mut client = broker.client(version, "c");
        client.send(bytes);
        let told = client.expect_closed();
        let as_expected = told.map_or(version != V5, |code| matches!(code, 0x81 | 0x82 | 0x8F));
        assert!(as_expected, "{version:?}, {why}: told {told:02X?}");
    };
    let properties: &[u8] = if version == V5 { &[0] } else { &[] };
    let body = |fields: &[&[u8]]| [&[0, 1][..], properties, &fields.concat()].concat();
    let subscribe = |fields: &[&[u8]]| wire::packet(0x82, &body(fields));
    let unsubscribe = |fields: &[&[u8]]| wire::packet(0xA2, &body(fields));
    cut(&subscribe(&[]), "SUBSCRIBE without a filter");
    cut(&unsubscribe(&[]), "UNSUBSCRIBE without a filter");
    cut(&subscribe(&[b"\0\x01t"]), "filter without options");
    cut(&subscribe(&[b"\0\x01t\x03"]), "QoS 3");
    cut(&subscribe(&[b"\0\x01t\x40"]), "reserved option bit 6");
    cut(&subscribe(&[b"\0\x01t\x80"]), "reserved option bit 7");
    cut(&subscribe(&[b"\0\x02\xC3\x28\x00"]), "filter not UTF-8");
    cut(&subscribe(&[b"\0\x02a\0\x00"]), "U+0000 in a filter");
    cut(&unsubscribe(&[b"\0\x02\xC3\x28"]), "filter not UTF-8");
    cut(&unsubscribe(&[b"\0\x05t"]), "filter beyond the end");
    cut(&wire::packet(0x80, &body(&[b"\0\x01t\0"])), "SUBSCRIBE flags 0000");
    cut(&wire::packet(0xA0, &body(&[b"\0\x01t"])), "UNSUBSCRIBE flags 0000");
    cut(&wire::packet(0x83, &body(&[b"\0\x01t\0"])), "SUBSCRIBE flags 0011");
    cut(&subscribe_packet(version, 0, &[], &[("t", 0)]), "identifier 0");
    if version == V5 {
        cut(&subscribe(&[b"\0\x01t\x30"]), "Retain Handling 3");
        cut(&subscribe(&[b"\0\x0a$share/g/t\x04"]), "No Local on a shared subscription");
        cut(
            &subscribe_packet(V5, 1, &[Property::SubscriptionId(0)], &[("t", 0)]),
            "Subscription Identifier 0",
        );
        let twice = [Property::SubscriptionId(1), Property::SubscriptionId(2)];
        cut(&subscribe_packet(V5, 1, &twice, &[("t", 0)]), "two Subscription Identifiers");
    } else {
        cut(&subscribe(&[b"\0\x01t\x04"]), "reserved bit of the requested QoS");
    }
}
versions!(malformed_requests_are_cut {
    mqtt311_3_8_1_1_3_8_3_1_3_8_3_3_3_8_3_4_3_10_1_1_3_10_3_1_3_10_3_2_2_3_1_1_malformed_requests_are_cut:
        V311,
    mqtt5_3_8_1_1_3_8_3_1_3_8_3_2_3_8_3_4_3_8_3_5_3_10_1_1_3_10_3_1_3_10_3_2_malformed_requests_are_cut: V5,
});

fn codes_follow_the_filters(version: Version) {
    on_one_and_three_arbiters(|broker| {
        let mut client = broker.client(version, "c");
        assert_eq!(client.subscribe(&[("a", 2), ("b", 0), ("c", 1), ("a", 1)]), [2, 0, 1, 1]);
        // The last request for `a` replaced the first.
        client.deliver(&Message::new("a", "").qos(2));
        let publish = client.expect_publish();
        assert_eq!(publish.qos, 1);
        client.complete(&publish);
        let codes = client.unsubscribe(&["a", "none", "b", "a"]);
        assert_eq!(codes, if version == V5 { vec![0, 0x11, 0, 0x11] } else { vec![] });
        for topic in ["a", "b"] {
            client.deliver(&Message::new(topic, "").qos(1));
        }
        client.settle();
    });
}
versions!(codes_follow_the_filters {
    mqtt31_codes_follow_the_filters: V31,
    mqtt311_3_8_4_1_3_8_4_2_3_8_4_4_3_8_4_5_3_9_3_1_3_10_4_4_3_10_4_5_3_10_4_6_codes_follow_the_filters: V311,
    mqtt5_3_8_4_1_3_8_4_2_3_8_4_5_3_8_4_6_3_8_4_7_3_9_3_1_3_10_4_4_3_10_4_5_3_11_3_1_codes_follow_the_filters: V5,
});

fn subscribing_again_replaces(version: Version) {
    on_one_and_three_arbiters(|broker| {
        let mut client = broker.client(version, "c");
        let mut publisher = broker.client(version, "p");
        for qos in [0, 2, 1] {
            client.subscribe(&[("t/+", qos)]);
            publisher.deliver(&Message::new("t/x", "").qos(2));
            let publish = client.expect_publish();
            assert_eq!(publish.qos, qos);
            client.complete(&publish);
            client.settle();
        }
    });
}
versions!(subscribing_again_replaces {
    mqtt311_3_8_4_3_subscribing_again_replaces: V311,
    mqtt5_3_8_4_3_subscribing_again_replaces: V5,
});

fn unsubscribe_takes_the_exact_filter_only(version: Version) {
    on_one_and_three_arbiters(|broker| {
        let mut client = broker.client(version, "c");
        client.subscribe(&[("a/+", 1), ("b", 1)]);
        client.unsubscribe(&["a/b", "#", "+", "B"]);
        let mut publisher = broker.client(version, "p");
        for topic in ["a/b", "b"] {
            publisher.deliver(&Message::new(topic, "").qos(1));
            let publish = client.expect_publish();
            client.complete(&publish);
        }
        client.unsubscribe(&["a/+"]);
        publisher.deliver(&Message::new("a/b", "").qos(1));
        publisher.deliver(&Message::new("b", "").qos(1));
        assert_eq!(client.expect_publish().topic, "b");
    });
}
versions!(unsubscribe_takes_the_exact_filter_only {
    mqtt31_unsubscribe_takes_the_exact_filter_only: V31,
    mqtt311_3_10_4_1_3_10_4_2_unsubscribe_takes_the_exact_filter_only: V311,
    mqtt5_3_10_4_1_3_10_4_2_unsubscribe_takes_the_exact_filter_only: V5,
});

fn unsubscribe_lets_deliveries_finish(version: Version) {
    let broker = default_broker();
    let mut client = broker.persistent(version, "c");
    client.subscribe(&[("t", 2)]);
    let mut publisher = broker.client(version, "p");
    publisher.deliver(&Message::new("t", "one").qos(1));
    publisher.deliver(&Message::new("t", "two").qos(2));
    let begun = client.expect_publishes(2);
    client.unsubscribe(&["t"]);
    client.ack(Kind::Pubrec, begun[1].id);
    client.expect_ack(Kind::Pubrel, begun[1].id);
    client.vanish();
    // The one is sent again, the other's PUBREL too.
    let mut client = broker.persistent(version, "c");
    let (mut publishes, mut pubrels) = (0, 0);
    for _ in 0..2 {
        match client.receive() {
            Packet::Publish(publish) => {
                assert_eq!((publish.id, publish.dup), (begun[0].id, true));
                client.complete(&publish);
                publishes += 1;
            }
            Packet::Ack(ack) => {
                assert_eq!((ack.kind, ack.id), (Kind::Pubrel, begun[1].id));
                client.ack(Kind::Pubcomp, ack.id);
                pubrels += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((publishes, pubrels), (1, 1));
    client.settle();
}
versions!(unsubscribe_lets_deliveries_finish {
    mqtt311_3_10_4_3_unsubscribe_lets_deliveries_finish: V311,
    mqtt5_3_10_4_3_unsubscribe_lets_deliveries_finish: V5,
});

fn overlapping_subscriptions_deliver_at_the_highest_qos(version: Version) {
    on_one_and_three_arbiters(|broker| {
        for id in ["c0", "c1", "c2"] {
            let mut client = broker.client(version, id);
            client.subscribe(&[("o/#", 0), ("o/+", 2), ("o/x", 1)]);
            broker.client(version, "p").deliver(&Message::new("o/x", "").qos(2));
            let copies = client.drain();
            assert_eq!(copies.iter().map(|publish| publish.qos).max(), Some(2));
            // One merged copy, or one for each subscription.
            assert!(matches!(copies.len(), 1 | 3), "{copies:?}");
            client.disconnect();
        }
    });
}
versions!(overlapping_subscriptions_deliver_at_the_highest_qos {
    mqtt31_overlapping_subscriptions_deliver_at_the_highest_qos: V31,
    mqtt311_3_3_5_1_overlapping_subscriptions_deliver_at_the_highest_qos: V311,
    mqtt5_3_3_4_2_overlapping_subscriptions_deliver_at_the_highest_qos: V5,
});

#[test]
fn mqtt5_3_3_4_3_3_3_4_4_3_3_4_5_deliveries_name_the_subscriptions_that_match() {
    on_one_and_three_arbiters(|broker| {
        for id in ["c0", "c1", "c2", "c3"] {
            let mut client = broker.client(V5, id);
            let identifiers = [("i/#", 1), ("i/+", 268_435_455), ("+/x", 200), ("other", 4)];
            for (filter, identifier) in identifiers {
                client.subscribe_with(&[Property::SubscriptionId(identifier)], &[(filter, 0)]);
            }
            client.subscribe(&[("i/x", 0)]);
            broker.client(V5, "p").deliver(&Message::new("i/x", "").qos(1));
            let copies = client.drain();
            let mut named: Vec<u32> = copies.iter().flat_map(|publish| publish.subscription_ids()).collect();
            named.sort_unstable();
            assert_eq!(named, [1, 200, 268_435_455], "{copies:?}");
            client.disconnect();
        }
    });
}

#[test]
fn mqtt5_3_8_4_3_subscribing_again_replaces_the_identifier() {
    let broker = default_broker();
    let mut client = broker.client(V5, "c");
    let mut named = |properties: &[Property]| {
        client.subscribe_with(properties, &[("t", 0)]);
        client.deliver(&Message::new("t", "").qos(1));
        client.expect_publish().subscription_ids()
    };
    assert_eq!(named(&[Property::SubscriptionId(5)]), [5]);
    assert_eq!(named(&[Property::SubscriptionId(6)]), [6]);
    assert_eq!(named(&[]), [0; 0]);
}

#[test]
fn mqtt5_subscription_identifiers_are_part_of_the_session() {
    let broker = default_broker();
    let mut client = broker.persistent(V5, "c");
    client.subscribe_with(&[Property::SubscriptionId(9)], &[("t", 1)]);
    client.disconnect();
    broker.client(V5, "p").deliver(&Message::new("t", "").qos(1));
    assert_eq!(broker.persistent(V5, "c").expect_publish().subscription_ids(), [9]);
}

#[test]
fn mqtt5_3_8_3_3_no_local_keeps_ones_own_messages_away() {
    on_one_and_three_arbiters(|broker| {
        for id in ["c0", "c1", "c2"] {
            let mut client = broker.client(V5, id);
            client.subscribe(&[("n", 1 | NO_LOCAL)]);
            for qos in [1, 2] {
                client.deliver(&Message::new("n", "own").qos(qos));
            }
            broker.client(V5, "p").deliver(&Message::new("n", "of another").qos(1));
            assert_eq!(client.expect_publish().text(), "of another");
            client.subscribe(&[("n", 0)]);
            client.deliver(&Message::new("n", "own").qos(1));
            assert_eq!(client.expect_publish().text(), "own");
            client.disconnect();
        }
    });
}

fn subscriptions_beyond_the_limit_are_refused(version: Version) {
    let broker = start_broker(|config| config.limits.subscriptions_per_client = 3);
    let mut client = broker.client(version, "c");
    let refused = if version == V5 { 0x97 } else { 0x80 };
    assert_eq!(client.subscribe(&[("a", 0), ("b", 1), ("c", 2), ("d", 0)]), [0, 1, 2, refused]);
    // Replacing needs no room, and leaving makes some.
    assert_eq!(client.subscribe(&[("a", 1)]), [1]);
    client.unsubscribe(&["b"]);
    assert_eq!(client.subscribe(&[("d", 0), ("e", 0)]), [0, refused]);
    for topic in ["b", "e"] {
        client.deliver(&Message::new(topic, "").qos(1));
    }
    client.deliver(&Message::new("d", "").qos(1));
    assert_eq!(client.expect_publish().topic, "d");
}
versions!(subscriptions_beyond_the_limit_are_refused {
    mqtt311_3_9_3_2_subscriptions_beyond_the_limit_are_refused: V311,
    mqtt5_3_9_3_2_subscriptions_beyond_the_limit_are_refused: V5,
});

fn suback_means_routed(version: Version) {
    on_one_and_three_arbiters(|broker| {
        let mut publishers: Vec<RawClient> =
            (0..4).map(|n| broker.client(version, &format!("p{n}"))).collect();
        let mut subscriber = broker.client(version, "s");
        for round in 0..20 {
            let topic = format!("round/{round}");
            subscriber.subscribe(&[(&topic, 0)]);
            // Whichever arbiter a publisher lives on knows the subscription by now.
            for publisher in &mut publishers {
                publisher.publish(&Message::new(&topic, ""));
            }
            subscriber.expect_publishes(4);
            subscriber.unsubscribe(&[&topic]);
            for publisher in &mut publishers {
                publisher.deliver(&Message::new(&topic, "").qos(1));
            }
            subscriber.settle();
        }
    });
}
versions!(suback_means_routed {
    mqtt311_3_8_4_1_3_10_4_2_once_answered_every_arbiter_routes_by_the_change: V311,
    mqtt5_3_8_4_1_3_10_4_2_once_answered_every_arbiter_routes_by_the_change: V5,
});
