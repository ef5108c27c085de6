//! Bounds of a connection in both directions: Receive Maximum, Maximum Packet Size, Topic Aliases.

use crate::support::launch::{default_broker, on_one_and_three_threads, start_broker, versions};
use crate::support::wire::Put;
use crate::support::{Connect, Kind, Message, Packet, Property, V5, Version, Will};
use homing::clock;
use homing::config::{ByteSize, QueuePolicy};
use std::time::Duration;

// 5.0 [MQTT-3.3.4-7]
#[test]
fn v5_finished_exchanges_give_their_place_back() {
    let broker = start_broker(|config| config.limits.receive_maximum = 2);
    let mut client = broker.client(V5, "c");
    for _ in 0..20 {
        client.deliver(&Message::new("t", "").qos(1));
        client.deliver(&Message::new("t", "").qos(2));
    }
    // A PUBLISH repeated under an identifier in flight takes no second place.
    let id = client.publish(&Message::new("t", "").qos(2));
    client.expect_ack(Kind::Pubrec, id);
    for _ in 0..3 {
        client.publish_as(&Message::new("t", "").qos(2).duplicate(), id);
        client.expect_ack(Kind::Pubrec, id);
    }
    client.settle();
}

/// Publishes wait for their acknowledgement while a queue is full; 3.x has no Receive Maximum, so
/// the connection is not read.
fn publishes_beyond_the_receive_maximum_wait_and_a_ping_passes_them(version: Version) {
    let broker = start_broker(|config| {
        config.limits.receive_maximum = 3;
        config.limits.in_flight = 1;
        config.limits.queue_messages = 1;
        config.limits.queue_policy = QueuePolicy::Hold;
    });
    let mut subscriber = broker.client(version, "s");
    subscriber.subscribe(&[("t", 1)]);
    let mut client = broker.client(version, "c");
    // One in flight, one queued, three unanswered, the rest waits.
    for id in 1..=8 {
        client.publish_as(&Message::new("t", id.to_string()).qos(1), id);
    }
    client.expect_ack(Kind::Puback, 1);
    client.expect_ack(Kind::Puback, 2);
    client.ping();
    assert!(matches!(client.receive(), Packet::Pingresp));
    for id in 1..=8 {
        let publish = subscriber.expect_publish();
        assert_eq!(publish.text(), id.to_string());
        subscriber.complete(&publish);
    }
    let answered: Vec<u16> = (3..=8)
        .map(|_| client.receive())
        .map(|packet| match packet {
            Packet::Ack(ack) if ack.kind == Kind::Puback => ack.id,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(answered, [3, 4, 5, 6, 7, 8]);
}
versions!(publishes_beyond_the_receive_maximum_wait_and_a_ping_passes_them: v31, v311);

fn deliveries_stay_within_the_in_flight_limit(version: Version) {
    let broker = start_broker(|config| config.limits.in_flight = 3);
    let mut subscriber = broker.client(version, "s");
    subscriber.subscribe(&[("t", 1)]);
    let mut publisher = broker.client(version, "p");
    for n in 0..8 {
        publisher.deliver(&Message::new("t", n.to_string()).qos(1));
    }
    let first = subscriber.drain();
    assert_eq!(first.len(), 3);
    first.iter().for_each(|publish| subscriber.complete(publish));
    assert_eq!(subscriber.expect_publish().text(), "3");
}
versions!(deliveries_stay_within_the_in_flight_limit: v31, v311, v5);

fn packet_beyond_the_maximum_is_disconnected(version: Version) {
    let broker = start_broker(|config| config.limits.packet_size = "1 KiB".parse().expect("a size"));
    let mut client = broker.client(version, "c");
    let overhead = Message::new("t", "").qos(1).encode(version, 1).len() + 1;
    client.deliver(&Message::new("t", vec![b'x'; 1024 - overhead]).qos(1));
    client.publish(&Message::new("t", vec![b'x'; 1025 - overhead]).qos(1));
    client.expect_disconnected(0x95);
}
// 5.0 [MQTT-3.2.2-15]
versions!(packet_beyond_the_maximum_is_disconnected: v31, v311, v5);

// 5.0 [MQTT-3.1.2-24], [MQTT-3.1.2-25]
#[test]
fn v5_delivery_too_large_for_the_client_is_dropped_without_a_stall() {
    on_one_and_three_threads(|broker| {
        let connect =
            Connect::new(V5, "s").with(Property::MaximumPacketSize(64)).with(Property::ReceiveMaximum(1));
        let mut small = broker.connect(&connect);
        let mut large = broker.client(V5, "l");
        let mut publisher = broker.client(V5, "p");
        for client in [&mut small, &mut large] {
            client.subscribe(&[("t", 2)]);
        }
        for qos in [0, 1, 2, 1, 2] {
            publisher.deliver(&Message::new("t", [b'x'; 65]).qos(qos));
            publisher.deliver(&Message::new("t", "fits").qos(qos));
        }
        for _ in 0..5 {
            let publish = large.expect_publish();
            assert_eq!(publish.payload.len(), 65);
            large.complete(&publish);
            let publish = large.expect_publish();
            large.complete(&publish);
            let publish = small.expect_publish();
            assert_eq!(publish.text(), "fits");
            small.complete(&publish);
        }
        small.settle();
    });
}

// 5.0 [MQTT-3.1.2-24]
#[test]
fn v5_user_properties_count_towards_the_maximum() {
    let broker = default_broker();
    let mut small = broker.connect(&Connect::new(V5, "s").with(Property::MaximumPacketSize(64)));
    small.subscribe(&[("t", 1)]);
    let mut publisher = broker.client(V5, "p");
    publisher.deliver(&Message::new("t", "").qos(1).with(Property::user("name", &"x".repeat(60))));
    publisher.deliver(&Message::new("t", "fits").qos(1));
    assert_eq!(small.expect_publish().text(), "fits");
}

// 5.0 [MQTT-3.1.2-26], [MQTT-3.1.2-27], [MQTT-3.3.2-11]
#[test]
fn v5_outgoing_aliases_stay_within_the_clients_maximum() {
    on_one_and_three_threads(|broker| {
        for maximum in [0, 1, 3] {
            let connect = Connect::new(V5, "s").with(Property::TopicAliasMaximum(maximum));
            let mut subscriber = broker.connect(&connect);
            subscriber.subscribe(&[("t/#", 1)]);
            let mut publisher = broker.client(V5, "p");
            let mut known = std::collections::HashMap::new();
            for n in 0..30 {
                let topic = format!("t/{}", n % 6);
                publisher.deliver(&Message::new(&topic, "x").qos(n % 2));
                let publish = subscriber.expect_publish();
                subscriber.complete(&publish);
                let alias =
                    |p: &Property| if let Property::TopicAlias(alias) = p { Some(*alias) } else { None };
                let meant = match publish.properties.iter().find_map(alias) {
                    None => publish.topic,
                    Some(alias) => {
                        assert!(alias <= maximum, "alias {alias} of {maximum}");
                        if !publish.topic.is_empty() {
                            known.insert(alias, publish.topic);
                        }
                        known.get(&alias).expect("an alias set before").clone()
                    }
                };
                assert_eq!(meant, topic);
            }
        }
    });
}

fn a_client_that_never_acknowledges_harms_nobody_else(version: Version) {
    let broker = start_broker(|config| {
        config.limits.in_flight = 10;
        config.limits.queue_messages = 20;
        config.runtime.threads = 2;
    });
    let mut silent = broker.client(version, "silent");
    let mut other = broker.client(version, "other");
    silent.subscribe(&[("t", 1)]);
    other.subscribe(&[("t", 1)]);
    let mut publisher = broker.client(version, "p");
    for n in 0..100 {
        // Somebody takes each of them, so that no publisher is refused anything.
        assert_eq!(publisher.deliver(&Message::new("t", n.to_string()).qos(1)), 0);
        let publish = other.expect_publish();
        assert_eq!(publish.text(), n.to_string());
        other.complete(&publish);
    }
    assert_eq!(silent.drain().len(), 10);
    silent.settle();
}
versions!(a_client_that_never_acknowledges_harms_nobody_else: v31, v311, v5);

// 5.0 [MQTT-3.2.2-15]
#[test]
fn v5_length_prefix_beyond_the_maximum_is_disconnected_before_the_body_comes() {
    let broker = default_broker();
    let mut client = broker.client(V5, "c");
    let mut prefix = vec![0x30];
    prefix.put_varint(268_435_455);
    client.send(&prefix);
    client.expect_disconnected(0x95);
    let mut stranger = broker.open(V5);
    let mut prefix = vec![0x10];
    prefix.put_varint(268_435_455);
    stranger.send(&prefix);
    match stranger.read_to_end().as_slice() {
        [] => {}
        [Packet::Connack(connack)] => assert_eq!(connack.code, 0x95),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_publisher_that_leaves_while_it_is_paused_for_its_rate_is_noticed_at_once() {
    let broker = start_broker(|config| config.limits.bytes_per_second = ByteSize(1_024));
    let mut subscriber = broker.client(V5, "s");
    subscriber.subscribe(&[("#", 0)]);
    let connect = |id: &str| Connect::new(V5, id).will(Will::new(format!("left/{id}"), "gone"));
    let mut client = broker.connect(&connect("c"));
    let began = clock::now();
    // Nearly a minute of debt.
    client.publish(&Message::new("t", vec![7; 50_000]));
    assert_eq!(subscriber.expect_publish().topic, "t");
    client.vanish();
    assert_eq!(subscriber.expect_publish().topic, "left/c");
    assert!(clock::now().since(began) < Duration::from_secs(20));
    // Bytes that came before the end are handled first.
    let mut client = broker.connect(&connect("d"));
    client.publish(&Message::new("t", vec![7; 3_000]));
    client.publish(&Message::new("last", "one"));
    client.vanish();
    let topics: Vec<String> = (0..3).map(|_| subscriber.expect_publish().topic).collect();
    assert_eq!(topics, ["t", "last", "left/d"]);
}

#[test]
fn a_publisher_above_its_rate_is_slowed_and_loses_nothing() {
    const RATE: u32 = 200;
    const SENT: u32 = 400;
    let broker = start_broker(|config| {
        config.limits.messages_per_second = RATE;
        config.keep_alive.allow_never = true;
    });
    let mut subscriber = broker.client(V5, "s");
    subscriber.subscribe(&[("t", 0)]);
    let mut client = broker.connect(&Connect::new(V5, "c").keep_alive(1));
    let began = clock::now();
    for id in 0..SENT {
        client.publish(&Message::new("t", id.to_string()));
    }
    for id in 0..SENT {
        assert_eq!(subscriber.expect_publish().text(), id.to_string());
    }
    // The messages of one and a quarter ticks may come at once.
    let took = clock::now().since(began).as_secs_f64() + 0.25 * 1.25;
    assert!(took >= f64::from(SENT) / f64::from(RATE) * 0.95, "{took} s");
    client.settle();
}

// 5.0 [MQTT-3.1.2-7], [MQTT-3.1.2-24]
#[test]
fn v5_connect_whose_connack_does_not_fit_takes_nobody_over() {
    on_one_and_three_threads(|broker| {
        let mut observer = broker.client(V5, "observer");
        observer.subscribe(&[("will", 1)]);
        for id in ["c0", "c1", "c2", "c3"] {
            let mut old = broker.connect(&Connect::new(V5, id).will(Will::new("will", "gone").qos(1)));
            for size in [2, 5, 6, 7] {
                let mut new = broker.open(V5);
                new.send(&Connect::new(V5, id).with(Property::MaximumPacketSize(size)).encode());
                let said = new.read_to_end();
                let code = |packet: &Packet| match packet {
                    Packet::Connack(connack) => connack.code,
                    other => panic!("{other:?}"),
                };
                let codes: Vec<u8> = said.iter().map(code).collect();
                // The bare refusal takes 5 bytes.
                assert_eq!(codes, if size < 5 { vec![] } else { vec![0x95] }, "{size}");
            }
            old.settle();
            old.disconnect();
        }
        observer.settle();
    });
}
