//! Receive Maximum in both directions: 3.3.4 and 4.9.

use super::cases;
use super::stage::{Stage, assert_reason, find};
use crate::support::{Kind, Property, RawClient};

cases! {
    client_beyond_the_brokers_receive_maximum_is_disconnected: ["MQTT-3.3.4-7"],
    deliveries_never_exceed_the_clients_receive_maximum: ["MQTT-3.3.4-9"],
    exhausted_quota_holds_back_publish_only: ["MQTT-3.3.4-10", "MQTT-4.9.0-3"],
    quota_begins_between_1_and_the_receive_maximum: ["MQTT-4.9.0-1"],
    every_acknowledgement_gives_one_unit_back: ["MQTT-4.9.0-2"],
    repeated_publish_takes_no_second_place: [],
}

/// A subscriber with this Receive Maximum.
fn narrow(stage: &Stage, maximum: u16) -> RawClient {
    let mut client = stage.connect(&stage.passing("s").with(Property::ReceiveMaximum(maximum)));
    client.subscribe(&[(&stage.topic("t"), 2)]);
    client
}

/// Publishes so many, at QoS 1 and 2 in turn.
fn flood(stage: &Stage, count: usize) {
    let mut publisher = stage.client("p");
    for n in 0..count {
        publisher.deliver(&stage.message("t", n.to_string()).qos(1 + (n % 2) as u8));
    }
}

fn client_beyond_the_brokers_receive_maximum_is_disconnected(stage: &Stage) {
    let mut client = stage.client("c");
    let value = |p: &Property| if let Property::ReceiveMaximum(n) = p { Some(*n) } else { None };
    let maximum = find(&client.connack().properties, value).expect("a bound");
    // QoS 2 without PUBREL stays unfinished for as long as the test wants.
    for id in 1..=maximum {
        client.publish_as(&stage.message("t", "").qos(2), id);
        client.expect_ack(Kind::Pubrec, id);
    }
    client.settle();
    // Finished, and its place given to another.
    client.ack(Kind::Pubrel, 1);
    client.expect_ack(Kind::Pubcomp, 1);
    client.publish_as(&stage.message("t", "").qos(2), maximum + 1);
    client.expect_ack(Kind::Pubrec, maximum + 1);
    client.publish_as(&stage.message("t", "").qos(2), maximum + 2);
    assert_reason(&mut client, &[0x93], "one too many");
}

fn deliveries_never_exceed_the_clients_receive_maximum(stage: &Stage) {
    for maximum in [1, 2, 5] {
        let mut client = narrow(stage, maximum);
        flood(stage, 12);
        let mut in_flight = client.drain();
        let mut taken = 0;
        assert_eq!(in_flight.len(), usize::from(maximum));
        while let Some(publish) = in_flight.pop() {
            client.complete(&publish);
            taken += 1;
            in_flight.extend(client.drain());
            assert!(in_flight.len() <= usize::from(maximum), "{in_flight:?}");
        }
        assert_eq!(taken, 12);
        client.disconnect();
    }
}

/// All that a broker sends besides while deliveries wait.
fn exhausted_quota_holds_back_publish_only(stage: &Stage) {
    let mut client = narrow(stage, 1);
    flood(stage, 3);
    let held = client.expect_publish();
    client.settle();
    assert_eq!(client.subscribe(&[(&stage.topic("zero"), 0)]), [0]);
    assert!(client.deliver(&stage.message("other", "").qos(1)) < 0x80);
    assert!(client.deliver(&stage.message("other", "").qos(2)) < 0x80);
    client.publish(&stage.message("zero", "no quota needed"));
    assert_eq!(client.expect_publish().topic, stage.topic("zero"));
    assert_eq!(client.unsubscribe(&[&stage.topic("zero")]), [0]);
    client.ack(Kind::Puback, held.id);
    let second = client.expect_publish();
    client.ack(Kind::Pubrec, second.id);
    client.expect_ack(Kind::Pubrel, second.id);
    client.settle();
    client.ack(Kind::Pubcomp, second.id);
    assert_eq!(client.expect_publish().text(), "2");
}

fn quota_begins_between_1_and_the_receive_maximum(stage: &Stage) {
    for maximum in [1, 3] {
        let mut client = narrow(stage, maximum);
        flood(stage, 6);
        let first = client.drain().len();
        assert!((1..=usize::from(maximum)).contains(&first), "{first} of {maximum}");
        client.disconnect();
    }
    // Absent means 65,535: what comes then is the broker's own choice, but not nothing.
    let mut client = stage.subscriber("s", "t", 2);
    flood(stage, 6);
    assert!(!client.drain().is_empty());
}

fn every_acknowledgement_gives_one_unit_back(stage: &Stage) {
    let mut client = narrow(stage, 2);
    flood(stage, 8);
    let mut in_flight = client.drain();
    assert_eq!(in_flight.len(), 2);
    for n in 2..8 {
        let publish = in_flight.remove(0);
        // Refusals count like the rest.
        match (publish.qos, n % 4) {
            (1, 2) => client.ack_with(Kind::Puback, publish.id, 0x80),
            (2, 3) => client.ack_with(Kind::Pubrec, publish.id, 0x80),
            _ => client.complete(&publish),
        }
        let next = client.drain();
        assert_eq!(next.len(), 1, "one for one");
        assert_eq!(next[0].text(), n.to_string());
        in_flight.extend(next);
    }
}

fn repeated_publish_takes_no_second_place(stage: &Stage) {
    let broker = stage.configured(|config| config.limits.receive_maximum = 2);
    let stage = &Stage::of(&broker);
    let mut client = stage.client("c");
    for _ in 0..4 {
        client.publish_as(&stage.message("t", "").qos(2), 1);
        client.expect_ack(Kind::Pubrec, 1);
    }
    client.publish_as(&stage.message("t", "").qos(2), 2);
    client.expect_ack(Kind::Pubrec, 2);
    client.settle();
    client.publish_as(&stage.message("t", "").qos(2), 3);
    assert_reason(&mut client, &[0x93], "a third");
}
