//! Properties that travel with a message, and those that may not come from a client.

use crate::support::launch::{default_broker, on_one_and_three_arbiters};
use crate::support::{Connect, Message, Property, V5, V311};

fn all_that_travel() -> Vec<Property> {
    vec![
        Property::PayloadFormat(1),
        Property::ContentType("text/plain; caf\u{E9}".to_owned()),
        Property::ResponseTopic("reply/to".to_owned()),
        Property::CorrelationData(vec![0, 0xFF, 0, 1]),
        Property::user("k", "1"),
        Property::user("a", "2"),
        Property::user("k", "1"),
        Property::user("", ""),
    ]
}

fn sorted(properties: &[Property]) -> Vec<Property> {
    let mut sorted = properties.to_vec();
    // User properties keep their order among themselves: the sort is stable.
    sorted.sort_by_key(Property::id);
    sorted
}

#[test]
fn mqtt5_3_3_2_4_3_3_2_15_3_3_2_16_3_3_2_17_3_3_2_18_3_3_2_20_properties_travel_unchanged_and_in_order() {
    on_one_and_three_arbiters(|broker| {
        let mut publisher = broker.client(V5, "p");
        let mut subscribers = ["s0", "s1", "s2", "s3"].map(|id| broker.client(V5, id));
        for subscriber in &mut subscribers {
            subscriber.subscribe(&[("t", 2)]);
        }
        for qos in [0, 1, 2] {
            let message = Message { properties: all_that_travel(), ..Message::new("t", "text").qos(qos) };
            publisher.deliver(&message);
            for subscriber in &mut subscribers {
                let publish = subscriber.expect_publish();
                assert_eq!(sorted(&publish.properties), sorted(&message.properties));
                subscriber.complete(&publish);
            }
        }
    });
}

#[test]
fn mqtt5_properties_are_kept_with_queued_and_retained_messages() {
    on_one_and_three_arbiters(|broker| {
        let mut sleeper = broker.persistent(V5, "sleeper");
        sleeper.subscribe(&[("t", 1)]);
        sleeper.disconnect();
        let mut publisher = broker.client(V5, "p");
        let message =
            Message { properties: all_that_travel(), ..Message::new("t", "text").qos(1).retained() };
        publisher.deliver(&message);
        let mut sleeper = broker.persistent(V5, "sleeper");
        assert_eq!(sorted(&sleeper.expect_publish().properties), sorted(&message.properties));
        let mut late = broker.client(V5, "late");
        late.subscribe(&[("t", 1)]);
        assert_eq!(sorted(&late.expect_publish().properties), sorted(&message.properties));
    });
}

#[test]
fn properties_are_left_out_for_older_versions() {
    let broker = default_broker();
    let mut older = broker.client(V311, "s");
    older.subscribe(&[("t", 0)]);
    let mut publisher = broker.client(V5, "p");
    publisher.deliver(&Message { properties: all_that_travel(), ..Message::new("t", "text").qos(1) });
    assert_eq!(older.expect_publish().text(), "text");
}

#[test]
fn mqtt5_3_3_4_6_3_3_2_13_3_3_2_14_3_3_2_19_unlawful_publish_properties_are_cut() {
    let broker = default_broker();
    let refused = [
        (vec![Property::SubscriptionId(1)], &[0x81, 0x82][..]),
        (vec![Property::ResponseTopic("a/+".to_owned())], &[0x81, 0x82, 0x90]),
        (vec![Property::ResponseTopic("#".to_owned())], &[0x81, 0x82, 0x90]),
        (vec![Property::ResponseTopic("a\0".to_owned())], &[0x81]),
        (vec![Property::ContentType("a\0".to_owned())], &[0x81]),
        (vec![Property::user("a\0", "")], &[0x81]),
        (vec![Property::user("", "a\0")], &[0x81]),
        (vec![Property::PayloadFormat(2)], &[0x81, 0x82, 0x99]),
        (vec![Property::PayloadFormat(0), Property::PayloadFormat(0)], &[0x81, 0x82]),
        (vec![Property::TopicAlias(1), Property::TopicAlias(1)], &[0x81, 0x82]),
        (vec![Property::SessionExpiry(1)], &[0x81, 0x82]),
        (vec![Property::ReasonString("no".to_owned())], &[0x81, 0x82]),
    ];
    for (properties, codes) in refused {
        let mut client = broker.client(V5, "c");
        let why = format!("{properties:?}");
        println!("{why}");
        client.publish(&Message { properties, ..Message::new("t", "").qos(1) });
        let told = client.expect_closed();
        assert!(told.is_some_and(|code| codes.contains(&code)), "{why}: told {told:02X?}");
    }
}

#[test]
fn mqtt5_3_1_2_29_no_explanations_for_a_client_that_wants_none() {
    let broker = default_broker();
    let mut client = broker.connect(&Connect::new(V5, "c").with(Property::RequestProblem(0)));
    // The properties of acknowledgements are read by the raw client; these have reason to explain themselves.
    client.send(&[0x62, 2, 0x12, 0x34]);
    let crate::support::Packet::Ack(pubcomp) = client.receive() else { panic!("PUBCOMP comes first") };
    assert_eq!(pubcomp.properties, []);
    let id = client.fresh_id();
    client.send(&crate::support::client::subscribe_packet(V5, id, &[], &[("a/#/b", 0)]));
    match client.receive() {
        crate::support::Packet::Granted(suback) => assert_eq!(suback.properties, []),
        crate::support::Packet::Disconnect(_) => {}
        other => panic!("{other:?}"),
    }
}
