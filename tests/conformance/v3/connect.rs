//! CONNECT as the opening of a connection, and the CONNACK to it: chapters 3.1.0, 3.1.2 (name and
//! level), 3.1.4, 3.2.

use super::cases;
use crate::harness::Target;
use crate::support::client::subscribe_packet;
use crate::support::{Connect, Kind, Message, Packet, V5, V31, V311, Version};

cases! {
    v311 {
        connection_that_opens_with_another_packet_is_closed: ["MQTT-3.1.0-1"],
        wrong_protocol_name_is_not_served: ["MQTT-3.1.2-1"],
        unsupported_level_is_refused_with_its_code: ["MQTT-3.1.2-2"],
        reserved_connect_flag_is_closed: ["MQTT-3.1.2-3"],
        malformed_connect_is_closed_without_connack: ["MQTT-3.1.4-1"],
        valid_connect_is_answered_by_return_code_0: ["MQTT-3.1.4-4"],
        what_follows_a_refused_connect_is_ignored: ["MQTT-3.1.4-5"],
        connack_comes_first: ["MQTT-3.2.0-1"],
        refusing_connack_shows_no_session_and_is_the_last: ["MQTT-3.2.2-4", "MQTT-3.2.2-5"],
    }
    v311_and_v31 {
        second_connect_is_closed: ["MQTT-3.1.0-2"],
        second_connection_evicts_the_older: ["MQTT-3.1.4-2"],
    }
    v31 {
        protocol_name_is_not_that_of_3_1_1,
        connack_shows_no_session_present,
    }
}

fn connection_that_opens_with_another_packet_is_closed(broker: &Target) {
    broker.serves(V311);
    let publish = Message::new(broker.topic("t"), "x").qos(1).encode(V311, 1);
    let subscribe = subscribe_packet(V311, 1, &[], &[("t", 0)]);
    let (unsubscribe, puback) = (vec![0xA2, 5, 0, 1, 0, 1, b't'], vec![0x40, 2, 0, 1]);
    for bytes in [publish, subscribe, unsubscribe, puback, vec![0xC0, 0], vec![0xE0, 0], vec![0x20, 2, 0, 0]]
    {
        broker.closes_unanswered(V311, &bytes);
    }
}

fn second_connect_is_closed(broker: &Target, version: Version) {
    let mut client = broker.client(version, "c");
    client.settle();
    client.send(&Connect::new(version, &broker.id("c")).encode());
    client.expect_closed();
}

fn wrong_protocol_name_is_not_served(broker: &Target) {
    broker.serves(V311);
    for name in ["", "mqtt", "MQT", "MQTTX", "MQIsdp", "HTTP"] {
        let mut connect = Connect::new(V311, &broker.id("c"));
        connect.protocol_name = name.as_bytes().to_vec();
        let mut client = broker.open(V311);
        // Behind it what would be answered to a client of 3.1.1.
        client.send(&[connect.encode(), vec![0xC0, 0]].concat());
        // Its level may be judged before its name.
        match client.read_to_end().as_slice() {
            [] => {}
            [Packet::Connack(connack)] => assert_eq!(connack.code, 1, "{name:?}"),
            other => panic!("{name:?}: {other:?}"),
        }
    }
}

fn protocol_name_is_not_that_of_3_1_1(broker: &Target) {
    broker.serves(V31);
    let mut connect = Connect::new(V31, &broker.id("c"));
    connect.protocol_name = b"MQTT".to_vec();
    let mut client = broker.open(V31);
    client.send(&[connect.encode(), vec![0xC0, 0]].concat());
    match client.read_to_end().as_slice() {
        [] => {}
        [Packet::Connack(connack)] => assert_eq!(connack.code, 1),
        other => panic!("{other:?}"),
    }
}

fn unsupported_level_is_refused_with_its_code(broker: &Target) {
    broker.serves(V311);
    for level in [0, 1, 2, 0x84] {
        let mut connect = Connect::new(V311, &broker.id("c"));
        connect.level = level;
        let mut client = broker.open(V311);
        client.send(&connect.encode());
        assert_eq!(client.expect_connack().code, 1, "level {level}");
        client.expect_closed();
    }
    // A later version is refused in the form of 5.0, the latest that there is.
    for level in [6, 7, 255] {
        let mut client = broker.open(V5);
        client.send(&Connect { level, ..Connect::new(V311, &broker.id("c")) }.encode());
        assert_eq!(client.expect_connack().code, 0x84, "level {level}");
        client.expect_closed();
    }
}

fn reserved_connect_flag_is_closed(broker: &Target) {
    let connect = Connect::new(V311, &broker.id("c"));
    broker.connect(&connect).settle();
    broker.closes_unanswered(V311, &connect.flags(0x01).encode());
}

fn malformed_connect_is_closed_without_connack(broker: &Target) {
    let lawful = Connect::new(V311, &broker.id("c")).encode();
    let mut client = broker.open(V311);
    client.send(&lawful);
    assert_eq!(client.expect_connack().code, 0);
    client.disconnect();
    let mut too_long = lawful.clone();
    (too_long[1], _) = (too_long[1] + 1, too_long.push(b'x'));
    let mut id_cut_short = lawful.clone();
    (id_cut_short[1], _) = (id_cut_short[1] - 1, id_cut_short.pop());
    // The body ends with the protocol level.
    let header_cut_short = [&[0x10, 7], &lawful[2..9]].concat();
    for (bytes, why) in [(too_long, "left over"), (id_cut_short, "id"), (header_cut_short, "header")] {
        println!("{why}");
        broker.closes_unanswered(V311, &bytes);
    }
}

fn second_connection_evicts_the_older(broker: &Target, version: Version) {
    for connect in [Connect::new, Connect::persistent] {
        let connect = connect(version, &broker.id("c"));
        let mut first = broker.connect(&connect);
        first.settle();
        let mut second = broker.connect(&connect);
        first.expect_closed();
        second.settle();
        second.disconnect();
    }
}

fn valid_connect_is_answered_by_return_code_0(broker: &Target) {
    let id = broker.id("c");
    for connect in [
        Connect::new(V311, &id),
        Connect::new(V311, &id).keep_alive(0),
        Connect::new(V311, &id).keep_alive(65_535),
        Connect::new(V311, &id).user_name(""),
        Connect::new(V311, &id).user_name("user").password(b""),
        Connect::persistent(V311, &id),
    ] {
        let mut client = broker.open(V311);
        client.send(&connect.encode());
        assert_eq!(client.expect_connack().code, 0, "{connect:?}");
        client.settle();
        client.disconnect();
    }
}

fn what_follows_a_refused_connect_is_ignored(broker: &Target) {
    let topic = broker.topic("t");
    let mut watcher = broker.client(V311, "w");
    watcher.subscribe(&[(&topic, 1)]);
    let behind = |connect: Connect, payload| {
        let publish = Message::new(&topic, payload).qos(1).retained().encode(V311, 1);
        [connect.encode(), publish, vec![0xC0, 0]].concat()
    };
    // A packet behind an accepted CONNECT is handled.
    let mut accepted = broker.open(V311);
    accepted.send(&behind(Connect::new(V311, &broker.id("c")), "accepted"));
    assert_eq!(accepted.expect_connack().code, 0);
    accepted.wait_for(Kind::Puback);
    accepted.wait_for(Kind::Pingresp);
    let publish = watcher.expect_publish();
    assert_eq!(publish.text(), "accepted");
    watcher.complete(&publish);

    let mut refused = broker.open(V311);
    refused.send(&behind(Connect::new(V311, "").clean(false), "refused"));
    assert_eq!(refused.expect_connack().code, 2);
    refused.expect_closed();
    accepted.deliver(&Message::new(&topic, "marker").qos(1));
    assert_eq!(watcher.expect_publish().text(), "marker");
    let mut late = broker.client(V311, "late");
    late.subscribe(&[(&topic, 1)]);
    assert_eq!(late.expect_publish().text(), "accepted");
}

fn connack_comes_first(broker: &Target) {
    let topic = broker.topic("t");
    let mut subscriber = broker.persistent(V311, "s");
    subscriber.subscribe(&[(&topic, 2)]);
    subscriber.disconnect();
    let mut publisher = broker.client(V311, "p");
    for qos in [1, 2, 1, 2] {
        publisher.deliver(&Message::new(&topic, "waiting").qos(qos));
    }
    // Messages wait, and another request is in the stream already.
    let mut subscriber = broker.open(V311);
    subscriber.send(&[Connect::persistent(V311, &broker.id("s")).encode(), vec![0xC0, 0]].concat());
    assert_eq!(subscriber.receive().kind(), Kind::Connack);
    subscriber.wait_for(Kind::Pingresp);
    assert_eq!(subscriber.expect_publishes(4).len(), 4);
}

fn refusing_connack_shows_no_session_and_is_the_last(broker: &Target) {
    let id = broker.id("c");
    // There is a session on file for the id of the refused level.
    let mut client = broker.connect(&Connect::persistent(V311, &id));
    client.settle();
    client.disconnect();
    let refused = [
        (Connect { level: 2, ..Connect::persistent(V311, &id) }, 1),
        (Connect::new(V311, "").clean(false), 2),
    ];
    for (connect, code) in refused {
        let mut client = broker.open(V311);
        client.send(&connect.encode());
        let connack = client.expect_connack();
        assert_eq!((connack.code, connack.session_present), (code, false));
        client.expect_closed();
    }
    assert!(broker.connect(&Connect::persistent(V311, &id)).session_present());
}

/// The byte is reserved in 3.1, whatever is on file.
fn connack_shows_no_session_present(broker: &Target) {
    let topic = broker.topic("t");
    let mut client = broker.persistent(V31, "c");
    client.subscribe(&[(&topic, 1)]);
    client.disconnect();
    broker.client(V311, "p").deliver(&Message::new(&topic, "waited").qos(1));
    let mut client = broker.persistent(V31, "c");
    assert!(!client.session_present());
    // There is one all the same.
    assert_eq!(client.expect_publish().text(), "waited");
}
