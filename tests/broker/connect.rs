//! CONNECT accepted and refused, and what is pipelined behind it.

use crate::support::client::subscribe_packet;
use crate::support::launch::{TestBroker, default_broker, on_one_and_three_arbiters, start_broker, versions};
use crate::support::wire::{self, Put};
use crate::support::{Connect, Kind, Message, PATIENCE, Packet, Property, V5, V31, V311, Version, Will};
use std::io::Read;

/// Everything the broker says to these bytes until it closes, as bytes.
fn answer(broker: &TestBroker, bytes: &[u8]) -> Vec<u8> {
    let mut client = broker.open(V311);
    client.send(bytes);
    let mut answer = Vec::new();
    client.stream().set_read_timeout(Some(PATIENCE)).expect("a read timeout");
    match client.stream().read_to_end(&mut answer) {
        Ok(_) => {}
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(e) => panic!("the broker did not close: {e}; it said {answer:02X?}"),
    }
    answer
}

/// Refused as malformed: 3.x by closing alone [MQTT-3.1.4-1], 5.0 with a CONNACK of 0x80 or above if at all.
fn assert_refused(broker: &TestBroker, connect: &Connect, why: &str) {
    assert_refused_bytes(broker, connect.version, &connect.encode(), why);
}

fn assert_refused_bytes(broker: &TestBroker, version: Version, bytes: &[u8], why: &str) {
    let answer = answer(broker, bytes);
    match (version, answer.as_slice()) {
        (_, []) => {}
        (V5, [0x20, _, 0, 0x80..=0xFF, ..]) => {}
        _ => panic!("{version:?}, {why}: {answer:02X?}"),
    }
}

fn valid_connect_is_accepted(version: Version) {
    on_one_and_three_arbiters(|broker| {
        for id in ["a", "0123456789abcdefghijklm", "ABCDEFGHIJKLMNOPQRSTUVW", "nopqrstuvwxyzXYZ"] {
            let mut client = broker.client(version, id);
            assert!(!client.session_present());
            client.settle();
        }
    });
}
versions!(valid_connect_is_accepted {
    mqtt31_valid_connect_is_accepted: V31,
    mqtt311_3_1_3_5_3_1_4_4_valid_connect_is_accepted: V311,
    mqtt5_3_1_3_5_3_1_4_5_valid_connect_is_accepted: V5,
});

fn credentials_are_accepted(version: Version) {
    let broker = default_broker();
    let mut client = broker.connect(&Connect::new(version, "c").user_name("user").password(b"\0\xFF"));
    client.settle();
}
versions!(credentials_are_accepted {
    mqtt31_user_name_and_password_are_read: V31,
    mqtt311_3_1_3_1_user_name_and_password_are_read: V311,
    mqtt5_3_1_3_1_user_name_and_password_are_read: V5,
});

#[test]
fn mqtt5_3_1_2_19_password_without_user_name_is_accepted() {
    default_broker().connect(&Connect::new(V5, "c").password(b"secret")).settle();
}

#[test]
fn mqtt311_3_1_2_22_password_without_user_name_is_refused() {
    assert_refused(&default_broker(), &Connect::new(V311, "c").password(b"secret"), "password alone");
}

#[test]
fn mqtt311_3_1_2_1_mqtt5_3_1_2_1_wrong_protocol_name_is_not_served() {
    let broker = default_broker();
    for version in [V31, V311, V5] {
        for name in ["", "mqtt", "MQTTX", "MQIsdpX", "HTTP", "MQTT\0"] {
            let mut connect = Connect::new(version, "c");
            connect.protocol_name = name.as_bytes().to_vec();
            let answer = answer(&broker, &connect.encode());
            let refused = matches!(answer.as_slice(), [] | [0x20, 2, 0, 1] | [0x20, _, 0, 0x84, ..]);
            assert!(refused, "{version:?} {name:?}: {answer:02X?}");
        }
    }
}

#[test]
fn mqtt311_3_1_2_2_mqtt5_3_1_2_2_unsupported_level_is_refused() {
    let broker = default_broker();
    for (name, level) in
        [("MQTT", 0), ("MQTT", 2), ("MQTT", 3), ("MQTT", 6), ("MQTT", 255), ("MQIsdp", 4), ("MQIsdp", 5)]
    {
        let mut connect = Connect::new(V311, "c");
        (connect.protocol_name, connect.level) = (name.as_bytes().to_vec(), level);
        let answer = answer(&broker, &connect.encode());
        let refused = matches!(answer.as_slice(), [0x20, 2, 0, 1] | [0x20, _, 0, 0x84, ..]);
        assert!(refused, "{name} {level}: {answer:02X?}");
    }
}

fn malformed_connect_is_refused(version: Version) {
    let broker = default_broker();
    let connect = || Connect::new(version, "c");
    let will = || Will::new("w", "gone");
    let text = |bytes: &[u8]| bytes.to_vec();
    let refuse = |connect: Connect, why| assert_refused(&broker, &connect, why);

    // 3.1 reserves the first bit and says nothing of it being set; the others it lets a server disregard.
    if version != V31 {
        refuse(connect().flags(0x01), "reserved flag");
        refuse(connect().flags(0x08), "will QoS without will");
        refuse(connect().flags(0x20), "will retain without will");
    }
    refuse(connect().will(will().qos(3)), "will QoS 3");
    refuse(connect().flags(0x04), "will flag without will fields");
    refuse(connect().will(Will::new("w/#", "gone")), "wildcard in will topic");
    refuse(connect().will(Will::new("", "gone")), "empty will topic");
    refuse(connect().will(Will::new(b"\xC3\x28", "gone")), "will topic not UTF-8");
    refuse(connect().will(Will::new(b"a\0b", "gone")), "U+0000 in will topic");
    refuse(Connect { user_name: Some(text(b"\xED\xA0\x80")), ..connect() }, "surrogate in user name");
    refuse(Connect { user_name: Some(text(b"a\0")), ..connect() }, "U+0000 in user name");
    refuse(Connect { client_id: text(b"\xFF"), ..connect() }, "client id not UTF-8");
    refuse(Connect { client_id: text(b"a\0b"), ..connect() }, "U+0000 in client id");
}
versions!(malformed_connect_is_refused {
    mqtt31_malformed_connect_is_closed: V31,
    mqtt311_3_1_4_1_3_1_2_3_3_1_2_9_3_1_2_13_3_1_2_14_3_1_2_15_malformed_connect_is_closed_without_connack:
        V311,
    mqtt5_3_1_4_1_3_1_2_3_3_1_2_9_3_1_2_11_3_1_2_12_3_1_2_13_malformed_connect_is_refused: V5,
});

fn connect_with_fields_missing_or_left_over_is_refused(version: Version) {
    let broker = default_broker();
    let connect = |flags: u8, fields: &[&[u8]]| {
        let mut body = Vec::new();
        body.put_binary(version.protocol_name().as_bytes());
        body.extend_from_slice(&[version.level(), flags, 0, 60]);
        if version == V5 {
            body.push(0);
        }
        fields.iter().for_each(|field| body.put_binary(field));
        wire::packet(0x10, &body)
    };
    let refuse = |bytes: Vec<u8>, why| assert_refused_bytes(&broker, version, &bytes, why);
    refuse(connect(0x02, &[]), "no client id");
    refuse(connect(0x82, &[b"c"]), "user name flag without user name");
    refuse(connect(0xC2, &[b"c", b"user"]), "password flag without password");
    refuse(connect(0x02, &[b"c", b"user"]), "user name without its flag");
    refuse(connect(0x82, &[b"c", b"user", b"secret"]), "password without its flag");
    refuse(connect(0x02 | 0x08, &[b"c"]), "will QoS bits");
}
versions!(connect_with_fields_missing_or_left_over_is_refused {
    mqtt311_3_1_3_3_3_1_2_11_3_1_2_18_3_1_2_19_3_1_2_20_3_1_2_21_fields_and_flags_must_agree: V311,
    mqtt5_3_1_3_3_3_1_2_16_3_1_2_17_3_1_2_18_3_1_2_19_fields_and_flags_must_agree: V5,
});

#[test]
fn mqtt5_3_1_4_1_connect_properties_out_of_place_or_range_are_refused() {
    let broker = default_broker();
    let refused = [
        vec![Property::ReceiveMaximum(0)],
        vec![Property::MaximumPacketSize(0)],
        vec![Property::RequestProblem(2)],
        vec![Property::RequestResponse(2)],
        vec![Property::AuthenticationData(vec![1])],
        vec![Property::ReceiveMaximum(5), Property::ReceiveMaximum(5)],
        vec![Property::SessionExpiry(5), Property::SessionExpiry(5)],
        vec![Property::TopicAlias(1)],
        vec![Property::MessageExpiry(1)],
        vec![Property::WillDelay(1)],
        vec![Property::AssignedClientId("c".to_owned())],
    ];
    for properties in refused {
        let why = format!("{properties:?}");
        assert_refused(&broker, &Connect { properties, ..Connect::new(V5, "c") }, &why);
    }
    let accepted = [
        vec![
            Property::ReceiveMaximum(1),
            Property::MaximumPacketSize(1000),
            Property::TopicAliasMaximum(65_535),
        ],
        vec![Property::RequestProblem(0), Property::RequestResponse(1), Property::SessionExpiry(0)],
        vec![Property::user("a", "b"), Property::user("a", "b")],
    ];
    for properties in accepted {
        broker.connect(&Connect { properties, ..Connect::new(V5, "c") }).settle();
    }
}

#[test]
fn mqtt5_4_12_0_1_unknown_authentication_method_is_refused() {
    let broker = default_broker();
    let connect = Connect::new(V5, "c").with(Property::AuthenticationMethod("none-such".to_owned()));
    let answer = answer(&broker, &connect.encode());
    assert!(matches!(answer.as_slice(), [] | [0x20, _, 0, 0x8C | 0x87, ..]), "{answer:02X?}");
}

#[test]
fn mqtt5_4_12_0_7_auth_without_a_method_is_a_protocol_error() {
    let broker = default_broker();
    let mut client = broker.client(V5, "c");
    client.send(&wire::packet(0xF0, &[0x18, 0]));
    client.expect_cut(0x82);
}

fn first_packet_must_be_connect(version: Version) {
    let broker = default_broker();
    let publish = Message::new("t", "x").qos(1).encode(version, 1);
    let subscribe = subscribe_packet(version, 1, &[], &[("#", 0)]);
    for bytes in [publish, subscribe, vec![0xC0, 0], vec![0xE0, 0], vec![0x20, 2, 0, 0], vec![0xF0, 0]] {
        // 5.0 [MQTT-3.14.0-1]: nor may a DISCONNECT come before a CONNACK.
        let said = answer(&broker, &bytes);
        assert!(said.is_empty(), "{version:?}: {said:02X?} to {bytes:02X?}");
    }
}
versions!(first_packet_must_be_connect {
    mqtt311_3_1_0_1_connection_that_opens_otherwise_is_closed: V311,
    mqtt5_3_1_0_1_3_14_0_1_connection_that_opens_otherwise_is_closed_silently: V5,
});

fn second_connect_is_a_violation(version: Version) {
    let broker = default_broker();
    let mut client = broker.client(version, "c");
    client.settle();
    client.send(&Connect::new(version, "c").encode());
    client.expect_cut(0x82);
}
versions!(second_connect_is_a_violation {
    mqtt31_second_connect_is_closed: V31,
    mqtt311_3_1_0_2_second_connect_is_closed: V311,
    mqtt5_3_1_0_2_3_2_0_2_second_connect_is_a_protocol_error: V5,
});

#[test]
fn mqtt31_empty_client_id_is_rejected() {
    let broker = default_broker();
    for clean in [true, false] {
        let mut client = broker.open(V31);
        client.send(&Connect::new(V31, "").clean(clean).encode());
        assert_eq!(client.expect_connack().code, 2);
        client.expect_closed();
    }
}

#[test]
fn mqtt311_3_1_3_8_3_2_2_4_3_2_2_5_empty_client_id_without_clean_session_is_rejected() {
    let broker = default_broker();
    let mut client = broker.open(V311);
    client.send(&Connect::new(V311, "").clean(false).encode());
    assert_eq!(client.expect_connack().code, 2);
    client.expect_closed();
}

#[test]
fn mqtt311_3_1_3_6_empty_client_ids_do_not_meet() {
    on_one_and_three_arbiters(|broker| {
        let mut clients: Vec<_> = (0..5).map(|_| broker.client(V311, "")).collect();
        clients.iter_mut().for_each(|client| client.settle());
    });
}

#[test]
fn mqtt5_3_1_3_6_3_1_3_7_3_2_2_16_empty_client_id_is_assigned_a_unique_one() {
    on_one_and_three_arbiters(|broker| {
        let mut ids = Vec::new();
        let mut clients: Vec<_> = (0..5).map(|_| broker.client(V5, "")).collect();
        for client in &mut clients {
            let id =
                |p: &Property| if let Property::AssignedClientId(id) = p { Some(id.clone()) } else { None };
            ids.extend(client.connack().properties.iter().find_map(id));
            client.settle();
        }
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 5, "{ids:?}");
    });
}

#[test]
fn mqtt5_3_1_3_7_session_of_an_assigned_client_id_is_found_by_it() {
    on_one_and_three_arbiters(|broker| {
        let client = broker.persistent(V5, "");
        let id = |p: &Property| if let Property::AssignedClientId(id) = p { Some(id.clone()) } else { None };
        let id = client.connack().properties.iter().find_map(id).expect("an assigned id");
        client.disconnect();
        assert!(broker.persistent(V5, &id).session_present());
    });
}

#[test]
fn mqtt5_3_2_2_given_client_id_is_not_assigned_another() {
    let broker = default_broker();
    let client = broker.client(V5, "c");
    let assigned = |p: &Property| matches!(p, Property::AssignedClientId(_));
    assert!(!client.connack().properties.iter().any(assigned));
    // 5.0 [MQTT-3.1.2-28], [MQTT-4.12.0-6], [MQTT-3.2.2-22]
    let unasked = |p: &Property| {
        matches!(
            p,
            Property::ResponseInformation(_)
                | Property::AuthenticationMethod(_)
                | Property::ServerKeepAlive(_)
        )
    };
    assert!(!client.connack().properties.iter().any(unasked), "{:?}", client.connack());
}

#[test]
fn connack_of_5_0_announces_the_limits_that_hold() {
    let broker = start_broker(|config| {
        config.limits.receive_maximum = 7;
        config.limits.topic_alias_maximum = 3;
        config.limits.packet_size = "2 KiB".parse().expect("a size");
        config.limits.session_expiry = std::time::Duration::from_secs(50);
    });
    let client = broker.connect(&Connect::new(V5, "c").with(Property::SessionExpiry(51)));
    for property in [
        Property::ReceiveMaximum(7),
        Property::TopicAliasMaximum(3),
        Property::MaximumPacketSize(2048),
        Property::SessionExpiry(50),
    ] {
        assert!(client.connack().properties.contains(&property), "{property:?}: {:?}", client.connack());
    }
    let within = broker.connect(&Connect::new(V5, "d").with(Property::SessionExpiry(50)));
    // Absent means: as the client asked.
    let other = |p: &Property| matches!(p, Property::SessionExpiry(s) if *s != 50);
    assert!(!within.connack().properties.iter().any(other), "{:?}", within.connack());
}

fn packets_behind_connect_are_handled_in_order(version: Version) {
    on_one_and_three_arbiters(|broker| {
        // Ids enough that some of them live on another arbiter than the one that accepts.
        for id in ["p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7"] {
            let mut bytes = Connect::new(version, id).encode();
            bytes.extend(subscribe_packet(version, 10, &[], &[("pipelined", 1)]));
            bytes.extend(Message::new("pipelined", "x").qos(1).encode(version, 11));
            bytes.extend([0xC0, 0]);
            let mut client = broker.open(version);
            client.send(&bytes);
            assert_eq!(client.expect_connack().code, 0);
            // The answers owe each other no order (a SUBACK may wait for other arbiters); that the publish came
            // after the subscription shows in its delivery.
            let mut kinds = [(); 4].map(|()| client.receive().kind());
            kinds.sort_by_key(|kind| *kind as u8);
            assert_eq!(kinds, [Kind::Publish, Kind::Puback, Kind::Suback, Kind::Pingresp]);
        }
    });
}
versions!(packets_behind_connect_are_handled_in_order {
    mqtt31_packets_pipelined_behind_connect_are_handled_in_order: V31,
    mqtt311_3_2_0_1_packets_pipelined_behind_connect_are_handled_in_order: V311,
    mqtt5_3_2_0_1_packets_pipelined_behind_connect_are_handled_in_order: V5,
});

fn packets_behind_a_refused_connect_are_ignored(version: Version) {
    let broker = default_broker();
    let mut observer = broker.client(V311, "observer");
    observer.subscribe(&[("#", 0)]);
    let mut bytes = Connect::new(version, "c").will(Will::new("will/+", "")).encode();
    bytes.extend(Message::new("behind", "x").encode(version, 0));
    assert_refused_bytes(&broker, version, &bytes, "pipelined PUBLISH");
    observer.deliver(&Message::new("marker", "").qos(1));
    assert_eq!(observer.expect_publish().topic, "marker");
}
versions!(packets_behind_a_refused_connect_are_ignored {
    mqtt311_3_1_4_5_packets_behind_a_refused_connect_are_ignored: V311,
    mqtt5_3_1_4_6_packets_behind_a_refused_connect_are_ignored: V5,
});

fn a_stream_may_be_cut_anywhere(version: Version) {
    on_one_and_three_arbiters(|broker| {
        let mut client = broker.open(version);
        let mut bytes = Connect::new(version, "bytewise").encode();
        bytes.extend(subscribe_packet(version, 1, &[], &[("t", 0)]));
        bytes.extend(Message::new("t", "payload").encode(version, 0));
        for byte in bytes {
            client.send(&[byte]);
        }
        assert_eq!(client.expect_connack().code, 0);
        client.wait_for(Kind::Suback);
        assert_eq!(client.expect_publish().text(), "payload");
    });
}
versions!(a_stream_may_be_cut_anywhere {
    mqtt311_packets_arriving_byte_by_byte_are_understood: V311,
    mqtt5_packets_arriving_byte_by_byte_are_understood: V5,
});

fn byte_order_mark_is_part_of_a_string(version: Version) {
    let broker = default_broker();
    let mut plain = broker.client(version, "bom");
    let mut marked = broker.client(version, "\u{FEFF}bom");
    assert_eq!(marked.subscribe(&[("\u{FEFF}t", 0)]).len(), 1);
    plain.deliver(&Message::new("t", "unmarked").qos(1));
    plain.deliver(&Message::new("\u{FEFF}t", "marked").qos(1));
    let publish = marked.expect_publish();
    assert_eq!((publish.topic.as_str(), publish.text()), ("\u{FEFF}t", "marked"));
    plain.settle();
}
versions!(byte_order_mark_is_part_of_a_string {
    mqtt311_1_5_3_3_byte_order_mark_is_part_of_a_string: V311,
    mqtt5_1_5_4_3_byte_order_mark_is_part_of_a_string: V5,
});

fn connections_beyond_the_limit_are_refused(version: Version) {
    let broker = start_broker(|config| config.limits.connections = 2);
    let mut first = broker.client(version, "a");
    let second = broker.client(version, "b");
    let mut third = broker.open(version);
    third.send(&Connect::new(version, "c").encode());
    let told = third.read_to_end();
    let refused = match told.as_slice() {
        [] => true,
        [Packet::Connack(connack)] => connack.code != 0,
        _ => false,
    };
    assert!(refused, "{told:?}");
    first.settle();
    second.disconnect();
    broker.client(version, "d").settle();
}
versions!(connections_beyond_the_limit_are_refused {
    mqtt311_connections_beyond_the_limit_are_refused_and_a_freed_place_is_given_again: V311,
    mqtt5_connections_beyond_the_limit_are_refused_and_a_freed_place_is_given_again: V5,
});
