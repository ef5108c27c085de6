//! SUBSCRIBE and SUBACK: 3.8 and 3.9; which subscriptions a delivery names (3.3.4).

use super::cases;
use super::stage::{EITHER, MALFORMED, PROTOCOL_ERROR, Stage, packet, string};
use crate::support::client::subscribe_packet;
use crate::support::{Kind, Packet, Property, Publish, V5};

cases! {
    subscribe_without_a_filter_is_a_protocol_error: ["MQTT-3.8.3-2"],
    no_local_keeps_a_clients_own_messages_away: ["MQTT-3.8.3-3"],
    no_local_on_a_shared_subscription_is_a_protocol_error: ["MQTT-3.8.3-4"],
    reserved_option_bits_are_malformed: ["MQTT-3.8.3-5"],
    every_subscribe_is_answered: ["MQTT-3.8.4-1"],
    suback_has_the_identifier_of_its_subscribe: ["MQTT-3.8.4-2"],
    same_filter_again_replaces_the_subscription: ["MQTT-3.8.4-3"],
    replacement_resends_retained_messages_and_loses_nothing: ["MQTT-3.8.4-4"],
    many_filters_are_like_many_requests_with_one_answer: ["MQTT-3.8.4-5"],
    suback_has_a_code_for_each_filter: ["MQTT-3.8.4-6"],
    suback_code_is_the_qos_granted_or_a_failure: ["MQTT-3.8.4-7"],
    delivery_is_at_the_lower_qos: ["MQTT-3.8.4-8"],
    suback_codes_follow_the_filters: ["MQTT-3.9.3-1"],
    suback_codes_are_from_its_table: ["MQTT-3.9.3-2"],
    overlapping_filters_deliver_at_the_highest_qos: ["MQTT-3.3.4-2"],
    deliveries_name_the_identifiers_that_there_are: ["MQTT-3.3.4-3"],
    one_copy_lists_every_identifier: ["MQTT-3.3.4-4"],
    copies_name_their_own_identifier_alone: ["MQTT-3.3.4-5"],
    subscription_identifier_0_is_a_protocol_error: [],
    retain_handling_3_is_a_protocol_error: [],
    requested_qos_3_is_a_protocol_error: [],
    filter_without_options_is_malformed: [],
}

const NO_LOCAL: u8 = 0x04;

fn subscribe_without_a_filter_is_a_protocol_error(stage: &Stage) {
    stage.subscriber("c", "t", 0).settle();
    stage.assert_disconnected(&subscribe_packet(V5, 1, &[], &[]), EITHER, "no filter");
    let properties = subscribe_packet(V5, 1, &[Property::SubscriptionId(1)], &[]);
    stage.assert_disconnected(&properties, EITHER, "properties alone");
}

fn no_local_keeps_a_clients_own_messages_away(stage: &Stage) {
    let mut client = stage.subscriber("c", "t", NO_LOCAL | 1);
    let mut ordinary = stage.subscriber("o", "t", 1);
    client.deliver(&stage.message("t", "own").qos(1));
    ordinary.deliver(&stage.message("t", "other's").qos(1));
    assert_eq!(client.expect_publish().text(), "other's");
    client.settle();
    let texts: Vec<String> = ordinary.expect_publishes(2).iter().map(|p| p.text().to_owned()).collect();
    assert_eq!(texts, ["own", "other's"]);
    // It goes by the client id, so an earlier connection's message is one's own too.
    let mut first = stage.connect(&stage.lasting("d"));
    first.subscribe(&[(&stage.topic("t"), NO_LOCAL | 1)]);
    first.deliver(&stage.message("t", "earlier").qos(1));
    first.disconnect();
    stage.connect(&stage.lasting("d")).settle();
}

fn no_local_on_a_shared_subscription_is_a_protocol_error(stage: &Stage) {
    let shared = format!("$share/g/{}", stage.topic("t"));
    let mut client = stage.client("c");
    assert_eq!(client.subscribe(&[(&shared, 1)]), [1]);
    let subscribe = subscribe_packet(V5, 1, &[], &[(&shared, NO_LOCAL | 1)]);
    stage.assert_disconnected(&subscribe, &[PROTOCOL_ERROR], "no local");
    client.settle();
}

fn reserved_option_bits_are_malformed(stage: &Stage) {
    // All the others at once are lawful.
    assert_eq!(stage.client("c").subscribe(&[(&stage.topic("t"), 0x2E)]), [2]);
    for bits in [0x40, 0x80, 0xC0] {
        let subscribe = subscribe_packet(V5, 1, &[], &[("a", 0), (&stage.topic("t"), bits)]);
        stage.assert_disconnected(&subscribe, &[MALFORMED], &format!("0x{bits:02X}"));
    }
}

fn every_subscribe_is_answered(stage: &Stage) {
    let mut client = stage.client("c");
    let filters: Vec<String> = ["a", "+/b", "#", "a"].iter().map(|filter| stage.topic(filter)).collect();
    let all = (1..=20).flat_map(|id| subscribe_packet(V5, id, &[], &[(&filters[usize::from(id) % 4], 0)]));
    client.send(&all.collect::<Vec<u8>>());
    for _ in 1..=20 {
        client.expect_packet(Kind::Suback);
    }
    client.settle();
}

fn suback_has_the_identifier_of_its_subscribe(stage: &Stage) {
    let mut client = stage.client("c");
    for id in [65_535, 1, 256, 255] {
        client.send(&subscribe_packet(V5, id, &[], &[(&stage.topic("t"), 0), ("a#", 0)]));
        let Packet::Granted(suback) = client.expect_packet(Kind::Suback) else { unreachable!() };
        assert_eq!(suback.id, id);
    }
}

fn same_filter_again_replaces_the_subscription(stage: &Stage) {
    let mut client = stage.client("c");
    let topic = stage.topic("t");
    client.subscribe_with(&[Property::SubscriptionId(1)], &[(&topic, 2)]);
    client.subscribe_with(&[Property::SubscriptionId(2)], &[(&topic, 0x08 | 1)]);
    stage.deliver(&stage.message("t", "x").qos(2).retained());
    let publish = client.expect_publish();
    assert_eq!((publish.qos, publish.retain, publish.subscription_ids()), (1, true, vec![2]));
    client.complete(&publish);
    client.settle();
    // The identifier may go too.
    client.subscribe(&[(&topic, 0x20)]);
    stage.deliver(&stage.message("t", "y").qos(2));
    let publish = client.expect_publish();
    assert_eq!((publish.qos, publish.subscription_ids()), (0, vec![]));
    client.settle();
}

fn replacement_resends_retained_messages_and_loses_nothing(stage: &Stage) {
    stage.deliver(&stage.message("t", "retained").qos(1).retained());
    let mut client = stage.subscriber("c", "t", 0);
    assert_eq!(client.expect_publish().text(), "retained");
    let mut publisher = stage.client("p");
    // In one write while the subscription is replaced again and again.
    publisher.send(
        &(1..=80).flat_map(|n| stage.message("t", n.to_string()).qos(1).encode(V5, n)).collect::<Vec<u8>>(),
    );
    for _ in 0..20 {
        client.subscribe(&[(&stage.topic("t"), 0)]);
    }
    for _ in 1..=80 {
        publisher.wait_for(Kind::Puback);
    }
    let texts: Vec<String> = client.drain().iter().map(|publish| publish.text().to_owned()).collect();
    let live: Vec<&String> = texts.iter().filter(|text| *text != "retained").collect();
    assert_eq!(live, (1..=80).map(|n| n.to_string()).collect::<Vec<_>>().iter().collect::<Vec<_>>());
    assert_eq!(texts.len() - live.len(), 20);
}

fn many_filters_are_like_many_requests_with_one_answer(stage: &Stage) {
    for name in ["a", "b", "c"] {
        stage.deliver(&stage.message(name, name).qos(1).retained());
    }
    let filters = ["a", "b", "c"].map(|name| stage.topic(name));
    let mut client = stage.client("c");
    let codes = client.subscribe(&[(&filters[0], 2), ("b#", 1), (&filters[1], 1), (&filters[2], 0)]);
    assert!(matches!(codes[..], [2, 0x80..=0xFF, 1, 0]), "{codes:02X?}");
    let mut texts: Vec<String> = client.drain().iter().map(|publish| publish.text().to_owned()).collect();
    texts.sort();
    assert_eq!(texts, ["a", "b", "c"]);
    // The same filter twice: the second replaces the first.
    let mut client = stage.client("d");
    assert_eq!(client.subscribe(&[(&filters[0], 0x22), (&filters[0], 0x20)]), [2, 0]);
    stage.deliver(&stage.message("a", "live").qos(2));
    assert_eq!(client.expect_publish().qos, 0);
    client.settle();
}

fn suback_has_a_code_for_each_filter(stage: &Stage) {
    let mut client = stage.client("c");
    for count in [1, 2, 50] {
        let filters: Vec<String> = (0..count).map(|n| stage.topic(&n.to_string())).collect();
        let filters: Vec<(&str, u8)> = filters.iter().map(|filter| (filter.as_str(), 1)).collect();
        assert_eq!(client.subscribe(&filters), vec![1; count]);
    }
}

fn suback_code_is_the_qos_granted_or_a_failure(stage: &Stage) {
    let mut client = stage.client("c");
    for qos in [0, 1, 2] {
        assert_eq!(client.subscribe(&[(&stage.topic("t"), qos)]), [qos]);
        stage.deliver(&stage.message("t", "x").qos(2));
        let publish = client.expect_publish();
        assert_eq!(publish.qos, qos);
        client.complete(&publish);
    }
    let codes = client.subscribe(&[("a#", 1)]);
    assert!(matches!(codes[..], [0x80..=0xFF]), "{codes:02X?}");
}

fn delivery_is_at_the_lower_qos(stage: &Stage) {
    for granted in [0, 1, 2] {
        let mut client = stage.subscriber("c", "t", granted);
        for published in [0, 1, 2] {
            stage.deliver(&stage.message("t", "x").qos(published));
            let publish = client.expect_publish();
            assert_eq!(publish.qos, granted.min(published));
            client.complete(&publish);
        }
        client.disconnect();
    }
}

fn suback_codes_follow_the_filters(stage: &Stage) {
    let [a, b, c] = ["a", "b", "c"].map(|name| stage.topic(name));
    let mut client = stage.client("c");
    let codes = client.subscribe(&[(&c, 1), ("#/x", 0), (&a, 2), (&b, 0), ("+x", 2), (&b, 1)]);
    assert!(matches!(codes[..], [1, 0x80..=0xFF, 2, 0, 0x80..=0xFF, 1]), "{codes:02X?}");
}

/// The reader of these tests refuses others.
fn suback_codes_are_from_its_table(stage: &Stage) {
    let lawful = super::table::codes_of("SUBACK");
    let mut client = stage.client("c");
    let filters =
        ["a#", "#/", "a+", "$share/g", "$share//t", "$share/+/t", "$share/g/", "$SYS/#", "#", "+/+"];
    for filter in filters {
        for qos in [0, 1, 2] {
            let codes = client.subscribe(&[(filter, 0x20 | qos)]);
            assert!(matches!(codes[..], [code] if lawful.contains(&code)), "{filter}: {codes:02X?}");
            client.unsubscribe(&[filter]);
            client.drain();
        }
    }
}

/// Returns the copies of one message that come to a client with these overlapping subscriptions.
fn overlapping(stage: &Stage, subscriptions: &[(&str, u8, Option<u32>)]) -> Vec<Publish> {
    let mut client = stage.client("c");
    for (filter, qos, id) in subscriptions {
        let properties: Vec<Property> = id.map(Property::SubscriptionId).into_iter().collect();
        client.subscribe_with(&properties, &[(&stage.topic(filter), *qos)]);
    }
    stage.deliver(&stage.message("a/b", "x").qos(2));
    let mut publishes = Vec::new();
    loop {
        let more = client.drain();
        if more.is_empty() {
            return publishes;
        }
        more.iter().for_each(|publish| client.complete(publish));
        publishes.extend(more);
    }
}

fn overlapping_filters_deliver_at_the_highest_qos(stage: &Stage) {
    for filters in [[("a/b", 0), ("a/+", 2), ("#", 1)], [("a/b", 2), ("a/+", 0), ("#", 0)]] {
        let publishes = overlapping(stage, &filters.map(|(filter, qos)| (filter, qos, None)));
        assert_eq!(publishes.iter().map(|publish| publish.qos).max(), Some(2), "{publishes:?}");
    }
}

fn deliveries_name_the_identifiers_that_there_are(stage: &Stage) {
    let publishes = overlapping(stage, &[("a/b", 0, Some(1)), ("a/+", 1, None), ("#", 0, Some(268_435_455))]);
    let mut ids: Vec<u32> = publishes.iter().flat_map(Publish::subscription_ids).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 268_435_455]);
    let publishes =
        overlapping(stage, &[("a/b", 0, None), ("a/#", 0, None), ("+/b", 0, None), ("#", 0, None)]);
    assert!(!publishes.is_empty() && publishes.iter().all(|publish| publish.subscription_ids().is_empty()));
}

fn one_copy_lists_every_identifier(stage: &Stage) {
    let publishes = overlapping(stage, &[("a/b", 0, Some(5)), ("a/+", 1, Some(200)), ("#", 0, Some(70_000))]);
    // This broker sends one copy.
    let [publish] = &publishes[..] else { panic!("{publishes:?}") };
    let mut ids = publish.subscription_ids();
    ids.sort_unstable();
    assert_eq!(ids, [5, 200, 70_000]);
}

/// A copy for each is not this broker's way but with a shared subscription, which is never merged.
fn copies_name_their_own_identifier_alone(stage: &Stage) {
    let mut client = stage.client("c");
    let topic = stage.topic("t");
    client.subscribe_with(&[Property::SubscriptionId(1)], &[(&topic, 0)]);
    client.subscribe_with(&[Property::SubscriptionId(2)], &[(&format!("$share/g/{topic}"), 0)]);
    stage.deliver(&stage.message("t", "x").qos(1));
    let mut ids: Vec<Vec<u32>> = client.expect_publishes(2).iter().map(Publish::subscription_ids).collect();
    ids.sort();
    assert_eq!(ids, [vec![1], vec![2]]);
}

fn subscription_identifier_0_is_a_protocol_error(stage: &Stage) {
    let with = |id: u32| subscribe_packet(V5, 1, &[Property::SubscriptionId(id)], &[("t", 0)]);
    let mut client = stage.client("c");
    for id in [1, 127, 128, 268_435_455] {
        client.send(&with(id));
        client.expect_packet(Kind::Suback);
    }
    stage.assert_disconnected(&with(0), &[PROTOCOL_ERROR], "0");
    let five_bytes = [&[0, 1, 6, 0x0B, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F][..], &string("t"), &[0]].concat();
    stage.assert_disconnected(&packet(0x82, &[&five_bytes]), &[MALFORMED], "five bytes");
}

fn retain_handling_3_is_a_protocol_error(stage: &Stage) {
    let topic = stage.topic("t");
    assert_eq!(stage.client("c").subscribe(&[(&topic, 0x20)]), [0]);
    stage.assert_disconnected(&subscribe_packet(V5, 1, &[], &[(&topic, 0x30)]), EITHER, "3");
}

fn requested_qos_3_is_a_protocol_error(stage: &Stage) {
    let topic = stage.topic("t");
    assert_eq!(stage.client("c").subscribe(&[(&topic, 2)]), [2]);
    stage.assert_disconnected(&subscribe_packet(V5, 1, &[], &[(&topic, 3)]), EITHER, "3");
}

fn filter_without_options_is_malformed(stage: &Stage) {
    stage.subscriber("c", "t", 0).settle();
    stage.assert_disconnected(&packet(0x82, &[&[0, 1, 0], &string("t")]), &[MALFORMED], "no options");
    stage.assert_disconnected(&packet(0x82, &[&[0, 1, 0]]), EITHER, "no filter");
    stage.assert_disconnected(&packet(0x82, &[&[0]]), &[MALFORMED], "half an identifier");
}
