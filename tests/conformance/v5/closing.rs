//! DISCONNECT (3.14), enhanced authentication where it is not offered (4.12), and errors (4.13).

use super::cases;
use super::stage::{
    EITHER, MALFORMED, PROTOCOL_ERROR, Stage, assert_reason, last_words, packet, property_set, string,
};
use crate::support::client::Event;
use crate::support::{Kind, Packet, Property, RawClient, V5, now};

cases! {
    no_disconnect_before_connack: ["MQTT-3.14.0-1"],
    disconnect_of_the_broker_has_no_session_expiry: ["MQTT-3.14.2-2"],
    nothing_is_sent_after_disconnect: ["MQTT-3.14.4-1"],
    connection_is_closed_after_disconnect: ["MQTT-3.14.4-2"],
    unknown_authentication_method_is_closed: ["MQTT-4.12.0-1"],
    rejected_exchange_is_closed: ["MQTT-4.12.0-4"],
    auth_without_a_method_in_connect_is_a_protocol_error: ["MQTT-4.12.0-7"],
    failed_re_authentication_is_closed: ["MQTT-4.12.1-2"],
    malformed_packets_and_protocol_errors_close_the_connection: ["MQTT-4.13.1-1"],
    reason_of_0x80_or_above_means_closing: ["MQTT-4.13.2-1"],
    tcp_is_served: ["MQTT-4.2.0-1"],
    connect_properties_out_of_range_are_refused: [],
    packets_for_servers_only_to_send_are_refused: [],
}

fn no_disconnect_before_connack(stage: &Stage) {
    stage.client("control").disconnect();
    let mut refused = vec![
        vec![0xC0, 0],
        vec![0xE0, 0],
        vec![0x36, 0],
        vec![0xFF; 16],
        stage.passing("c").flags(1).encode(),
        stage.passing("c").with(Property::AuthenticationMethod("none-such".to_owned())).encode(),
        stage.passing("c").with(Property::ReceiveMaximum(0)).encode(),
    ];
    refused.push([&[0x10][..], &[0xFF; 4], &[1]].concat());
    for bytes in refused {
        let said = last_words(stage, &bytes);
        // Nothing, or a CONNACK and nothing behind it.
        match said[..] {
            [] => {}
            [0x20, length, 0, 0x80..=0xFF, ..] => assert_eq!(said.len(), 2 + usize::from(length)),
            _ => panic!("{said:02X?} to {bytes:02X?}"),
        }
    }
}

/// Everything that makes the broker disconnect a client that is served.
fn disconnected(stage: &Stage) -> Vec<(RawClient, u8)> {
    let mut closed = Vec::new();
    for (bytes, code) in [
        (vec![0x36, 0], MALFORMED),
        (vec![0xE1, 0], MALFORMED),
        (vec![0xF0, 0], PROTOCOL_ERROR),
        (stage.passing("second").encode(), PROTOCOL_ERROR),
        (stage.message("t", "").with(Property::TopicAlias(0)).encode(V5, 0), 0x94),
    ] {
        let mut client = stage.client(&format!("c{}", closed.len()));
        client.send(&bytes);
        closed.push((client, code));
    }
    let old = stage.client("old");
    stage.client("old").settle();
    closed.push((old, 0x8E));
    closed
}

/// The reader of these tests asserts that the property is not there.
fn disconnect_of_the_broker_has_no_session_expiry(stage: &Stage) {
    for (mut client, code) in disconnected(stage) {
        let Packet::Disconnect(disconnect) = client.receive() else { panic!("no DISCONNECT") };
        assert_eq!(disconnect.code, code);
        assert!(disconnect.properties.iter().all(|property| property.id() != 0x11));
    }
}

fn nothing_is_sent_after_disconnect(stage: &Stage) {
    let mut publisher = stage.client("p");
    for (mut client, code) in disconnected(stage) {
        // Requests that would be answered otherwise.
        client.ping();
        client.publish_as(&stage.message("t", "").qos(1), 1);
        publisher.settle();
        assert_eq!(client.expect_closed(), Some(code));
    }
    // With deliveries under way.
    let mut client = stage.subscriber("s", "t", 0);
    client.send(&[0xF0, 0]);
    for _ in 0..20 {
        publisher.deliver(&stage.message("t", "x").qos(1));
    }
    let said = client.read_to_end();
    let at = said.iter().position(|packet| packet.kind() == Kind::Disconnect);
    assert_eq!(at, Some(said.len() - 1), "{said:?}");
}

fn connection_is_closed_after_disconnect(stage: &Stage) {
    for (mut client, code) in disconnected(stage) {
        let Packet::Disconnect(disconnect) = client.receive() else { panic!("no DISCONNECT") };
        assert_eq!(disconnect.code, code);
        assert!(matches!(client.next(now() + stage.ack_wait()), Event::Closed));
    }
}

fn auth(code: u8, method: &str) -> Vec<u8> {
    packet(0xF0, &[&[code], &property_set(&[&[0x15][..], &string(method)].concat())])
}

fn unknown_authentication_method_is_closed(stage: &Stage) {
    stage.client("control").disconnect();
    for method in ["none-such", "", "SCRAM-SHA-1"] {
        let connect = stage.passing("c").with(Property::AuthenticationMethod(method.to_owned()));
        stage.assert_refused(&connect.encode(), &[0x8C, 0x87], method);
    }
}

/// Without a password file no exchange is taken up, so it is rejected with its first packet.
fn rejected_exchange_is_closed(stage: &Stage) {
    stage.client("control").disconnect();
    let method = Property::AuthenticationMethod("SCRAM-SHA-256".to_owned());
    let connect = stage.passing("c").with(method).with(Property::AuthenticationData(b"n,,n=u,r=x".to_vec()));
    let bytes = [connect.encode(), auth(0x18, "SCRAM-SHA-256")].concat();
    stage.assert_refused(&bytes, &[0x8C, 0x87], "with data");
}

fn auth_without_a_method_in_connect_is_a_protocol_error(stage: &Stage) {
    for code in [0x00, 0x18, 0x19] {
        stage.assert_disconnected(&auth(code, "x"), &[PROTOCOL_ERROR], &format!("AUTH 0x{code:02X}"));
    }
    stage.assert_disconnected(&[0xF0, 0], &[PROTOCOL_ERROR], "AUTH in short");
}

/// Where there is nothing to renew it fails at once.
fn failed_re_authentication_is_closed(stage: &Stage) {
    stage.assert_disconnected(&auth(0x19, "x"), &[PROTOCOL_ERROR, 0x87, 0x8C], "re-authentication");
}

fn malformed_packets_and_protocol_errors_close_the_connection(stage: &Stage) {
    let mut bystander = stage.subscriber("bystander", "t", 1);
    let malformed: [&[u8]; 12] = [
        &[0x00, 0],
        &[0x20, 3, 0, 0, 0],
        &[0x30, 1, 0],
        &[0x32, 4, 0, 1, b't', 0],
        &[0x40, 1, 0],
        &[0x40, 0],
        &[0x62, 0],
        &[0x82, 2, 0, 1],
        &[0x90, 4, 0, 1, 0, 0],
        &[0xA2, 3, 0, 1, 9],
        &[0xD0, 0],
        &[0xE0, 3, 0, 9, 0],
    ];
    for bytes in malformed {
        stage.assert_disconnected(bytes, EITHER, &format!("{bytes:02X?}"));
    }
    stage.assert_disconnected(&[0x30, 0xFF, 0xFF, 0xFF, 0xFF, 0x01], EITHER, "a length of five bytes");
    stage.assert_nothing_came(&mut bystander, "t");
}

fn reason_of_0x80_or_above_means_closing(stage: &Stage) {
    for (mut client, code) in disconnected(stage) {
        assert!(code >= 0x80);
        assert_eq!(client.expect_closed(), Some(code));
    }
    let method = Property::AuthenticationMethod("none-such".to_owned());
    let mut client = stage.open();
    client.send(&stage.passing("c").with(method).encode());
    assert!(client.expect_connack().code >= 0x80);
    assert!(matches!(client.next(now() + stage.ack_wait()), Event::Closed));
    // A client's own: it is the broker that closes, if the client waits for it.
    for code in [0x80, 0x81, 0x82, 0x93, 0x98] {
        let mut client = stage.client("d");
        client.send(&[0xE0, 1, code]);
        assert_eq!(client.expect_closed(), None);
    }
}

fn tcp_is_served(stage: &Stage) {
    // Ordered and free of loss, however it is cut up.
    let mut client = stage.open();
    let subscribe = crate::support::client::subscribe_packet(V5, 1, &[], &[(&stage.topic("t"), 0)]);
    let bytes =
        [stage.passing("c").encode(), subscribe, stage.message("t", "bytewise").encode(V5, 0)].concat();
    for byte in bytes {
        client.send(&[byte]);
    }
    assert_eq!(client.expect_connack().code, 0);
    // The delivery may come before the SUBACK.
    client.wait_for(Kind::Suback);
    assert_eq!(client.expect_publish().text(), "bytewise");
    let large = vec![0xA5; 700_000];
    client.deliver(&stage.message("t", &large).qos(1));
    assert_eq!(client.expect_publish().payload, large);
}

fn connect_properties_out_of_range_are_refused(stage: &Stage) {
    stage.client("control").disconnect();
    for property in [
        Property::ReceiveMaximum(0),
        Property::MaximumPacketSize(0),
        Property::RequestProblem(2),
        Property::RequestResponse(2),
        Property::AuthenticationData(b"without a method".to_vec()),
    ] {
        let why = format!("{property:?}");
        stage.assert_refused(&stage.passing("c").with(property).encode(), EITHER, &why);
    }
}

fn packets_for_servers_only_to_send_are_refused(stage: &Stage) {
    for bytes in [&[0x20, 3, 0, 0, 0][..], &[0x90, 4, 0, 1, 0, 0], &[0xB0, 4, 0, 1, 0, 0], &[0xD0, 0]] {
        stage.assert_disconnected(bytes, EITHER, &format!("{bytes:02X?}"));
    }
    let mut client = stage.client("c");
    client.send(&[0x00, 0]);
    assert_reason(&mut client, EITHER, "packet type 0");
}
