//! 3.1: CONNECT, accepted and refused.

use super::cases;
use super::stage::{
    EITHER, MALFORMED, PROTOCOL_ERROR, Stage, assert_reason, connect_packet, find, last_words, packet, string,
};
use super::utf8::NOT_UTF8;
use crate::support::client::subscribe_packet;
use crate::support::{Connect, Kind, Property, RawClient, V5, Will};
use std::io::Read;

cases! {
    connection_that_opens_with_another_packet_is_closed: ["MQTT-3.1.0-1"],
    second_connect_is_a_protocol_error: ["MQTT-3.1.0-2"],
    protocol_name_other_than_mqtt_is_closed: ["MQTT-3.1.2-1"],
    protocol_version_that_is_not_supported_is_closed: ["MQTT-3.1.2-2"],
    reserved_connect_flag_is_malformed: ["MQTT-3.1.2-3"],
    user_name_without_its_flag_is_refused: ["MQTT-3.1.2-16"],
    user_name_flag_without_user_name_is_refused: ["MQTT-3.1.2-17"],
    password_without_its_flag_is_refused: ["MQTT-3.1.2-18"],
    password_flag_without_password_is_refused: ["MQTT-3.1.2-19"],
    payload_is_read_in_its_order: ["MQTT-3.1.3-1"],
    client_id_field_is_obligatory: ["MQTT-3.1.3-3"],
    client_id_that_is_not_utf8_is_refused: ["MQTT-3.1.3-4"],
    user_name_that_is_not_utf8_is_refused: ["MQTT-3.1.3-12"],
    client_ids_of_23_letters_and_digits_are_accepted: ["MQTT-3.1.3-5"],
    empty_client_ids_become_unique_ones: ["MQTT-3.1.3-6"],
    assigned_client_id_is_as_good_as_a_given_one: ["MQTT-3.1.3-7"],
    assigned_client_id_is_nobody_elses: ["MQTT-3.2.2-16"],
    refused_client_id_is_closed: ["MQTT-3.1.3-8"],
    connect_with_a_format_error_is_closed: ["MQTT-3.1.4-1"],
    connect_that_fails_a_further_check_is_closed: ["MQTT-3.1.4-2"],
    second_connection_of_a_client_id_evicts_the_first: ["MQTT-3.1.4-3"],
    clean_start_is_applied: ["MQTT-3.1.4-4"],
    valid_connect_is_answered_by_success: ["MQTT-3.1.4-5"],
    what_follows_a_refused_connect_is_ignored: ["MQTT-3.1.4-6"],
    connack_comes_before_anything_else: ["MQTT-3.2.0-1"],
    no_second_connack: ["MQTT-3.2.0-2"],
    connack_flags_are_reserved_but_one: ["MQTT-3.2.2-1"],
}

/// A CONNECT refused for its form, or for what it says.
const REFUSED: &[u8] = &[0x81, 0x82, 0x85, 0x90];

fn connection_that_opens_with_another_packet_is_closed(stage: &Stage) {
    stage.client("control").disconnect();
    let publish = stage.message("t", "x").qos(1).encode(V5, 1);
    let subscribe = subscribe_packet(V5, 1, &[], &[(&stage.topic("t"), 0)]);
    let others = [vec![0xC0, 0], vec![0xE0, 0], vec![0x20, 3, 0, 0, 0], vec![0xF0, 0], vec![0x62, 2, 0, 1]];
    for bytes in others.into_iter().chain([publish, subscribe]) {
        let mut client = stage.open();
        client.send(&bytes);
        client.send(&stage.passing("c").encode());
        assert_eq!(client.read_to_end(), [], "{bytes:02X?}");
    }
}

fn second_connect_is_a_protocol_error(stage: &Stage) {
    stage.assert_disconnected(&stage.passing("violator").encode(), &[PROTOCOL_ERROR], "the same once more");
    stage.assert_disconnected(&stage.passing("other").encode(), &[PROTOCOL_ERROR], "of another client id");
}

/// Nothing, CONNACK 0x84, or the 3.1.1 way of saying so.
fn assert_unsupported(stage: &Stage, connect: &Connect) {
    let said = last_words(stage, &connect.encode());
    let fine = matches!(said.as_slice(), [] | [0x20, _, 0, 0x84, ..] | [0x20, 2, 0, 1]);
    assert!(fine, "{connect:?}: {said:02X?}");
}

fn protocol_name_other_than_mqtt_is_closed(stage: &Stage) {
    stage.client("c").disconnect();
    for name in ["", "mqtt", "MQTX", "MQT", "MQTTT", "MQTT ", "MQIsdp"] {
        assert_unsupported(stage, &Connect { protocol_name: name.into(), ..stage.passing("c") });
    }
}

fn protocol_version_that_is_not_supported_is_closed(stage: &Stage) {
    stage.client("c").disconnect();
    for level in [0, 1, 2, 6, 127, 128, 133, 255] {
        assert_unsupported(stage, &Connect { level, ..stage.passing("c") });
    }
}

fn reserved_connect_flag_is_malformed(stage: &Stage) {
    stage.client("c").disconnect();
    stage.assert_refused(&stage.passing("c").flags(1).encode(), &[MALFORMED], "bit 0");
}

fn user_name_without_its_flag_is_refused(stage: &Stage) {
    let (id, name) = (string(stage.id("c")), string("name"));
    stage.served(&stage.passing("c").user_name("name")).disconnect();
    stage.assert_refused(&connect_packet(0x02, &[], &[&id, &name]), EITHER, "user name without flag");
}

fn user_name_flag_without_user_name_is_refused(stage: &Stage) {
    let id = string(stage.id("c"));
    stage.served(&stage.passing("c").user_name("")).disconnect();
    stage.assert_refused(&connect_packet(0x82, &[], &[&id]), EITHER, "flag without user name");
}

fn password_without_its_flag_is_refused(stage: &Stage) {
    let (id, name, password) = (string(stage.id("c")), string("name"), string("secret"));
    stage.served(&stage.passing("c").user_name("name").password(b"secret")).disconnect();
    let connect = connect_packet(0x82, &[], &[&id, &name, &password]);
    stage.assert_refused(&connect, EITHER, "password without flag");
}

fn password_flag_without_password_is_refused(stage: &Stage) {
    let (id, name) = (string(stage.id("c")), string("name"));
    stage.served(&stage.passing("c").password(b"alone")).disconnect();
    stage.assert_refused(&connect_packet(0xC2, &[], &[&id, &name]), EITHER, "flag without password");
    stage.assert_refused(&connect_packet(0x42, &[], &[&id]), EITHER, "flag without either");
}

/// Each field has a value that would be refused in another's place, and shows by what the broker
/// does with it.
fn payload_is_read_in_its_order(stage: &Stage) {
    let mut observer = stage.subscriber("o", "will", 2);
    let will = Will { payload: b"\xFF\0".to_vec(), ..stage.will("will", "") };
    let will = will.qos(2).with(Property::user("will", "property"));
    let connect = stage.lasting("c").will(will).user_name("user").password(b"\0\xFF\xC3\x28");
    stage.connect(&connect).vanish();
    let publish = observer.expect_publish();
    assert_eq!((publish.qos, publish.payload.as_slice()), (2, &b"\xFF\0"[..]));
    assert_eq!(publish.user_properties(), [("will", "property")]);
    assert!(stage.connect(&stage.lasting("c")).session_present());
}

fn client_id_field_is_obligatory(stage: &Stage) {
    stage.client("c").disconnect();
    stage.assert_refused(&connect_packet(0x02, &[], &[]), EITHER, "no payload");
    stage.assert_refused(&connect_packet(0x02, &[], &[&[0]]), EITHER, "half a length");
    stage.assert_refused(&connect_packet(0x02, &[], &[&[0, 5], b"shor"]), EITHER, "cut short");
}

fn client_id_that_is_not_utf8_is_refused(stage: &Stage) {
    stage.served(&stage.passing("\u{E9}\u{10FFFD}")).disconnect();
    for bad in NOT_UTF8 {
        let connect = Connect { client_id: bad.to_vec(), ..stage.passing("") };
        stage.assert_refused(&connect.encode(), &[MALFORMED, 0x85], "client id");
    }
}

fn user_name_that_is_not_utf8_is_refused(stage: &Stage) {
    stage.served(&stage.passing("c").user_name("\u{E9}\u{10FFFD}")).disconnect();
    for bad in NOT_UTF8 {
        let connect = Connect { user_name: Some(bad.to_vec()), ..stage.passing("c") };
        stage.assert_refused(&connect.encode(), &[MALFORMED, 0x86], "user name");
    }
}

/// Ids of this form can meet another test's only by being drawn: each carries this test's own name
/// where it fits.
fn client_ids_of_23_letters_and_digits_are_accepted(stage: &Stage) {
    let alone = stage.alone();
    let stage = &Stage::of(&alone);
    for id in ["0", "a", "Z", "0123456789abcdefghijklm", "nopqrstuvwxyzABCDEFGHIJ", "KLMNOPQRSTUVWXYZ0123456"]
    {
        stage.served(&Connect::new(V5, id)).disconnect();
    }
}

fn assigned(client: &RawClient) -> Option<String> {
    let id = |p: &Property| if let Property::AssignedClientId(id) = p { Some(id.clone()) } else { None };
    find(&client.connack().properties, id)
}

fn empty_client_ids_become_unique_ones(stage: &Stage) {
    // Two of one id would evict each other.
    let mut clients: Vec<RawClient> = (0..8).map(|_| stage.served(&Connect::new(V5, ""))).collect();
    clients.iter_mut().for_each(|client| client.settle());
    let mut ids: Vec<String> = clients.iter().filter_map(assigned).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 8, "{ids:?}");
}

fn assigned_client_id_is_as_good_as_a_given_one(stage: &Stage) {
    let mut client = stage.connect(&Connect::persistent(V5, ""));
    let id = assigned(&client).expect("an assigned client id");
    client.subscribe(&[(&stage.topic("t"), 1)]);
    client.disconnect();
    stage.deliver(&stage.message("t", "meanwhile").qos(1));
    let mut client = stage.connect(&Connect::persistent(V5, &id));
    assert!(client.session_present());
    assert_eq!(client.expect_publish().text(), "meanwhile");
}

fn assigned_client_id_is_nobody_elses(stage: &Stage) {
    let mut first = stage.served(&Connect::new(V5, ""));
    let id = assigned(&first).expect("an assigned client id");
    assert!(!id.is_empty());
    // Also not that of a session whose client is away, and no id where one was given.
    let away = stage.connect(&Connect::persistent(V5, ""));
    let waits = assigned(&away).expect("an assigned client id");
    away.disconnect();
    for _ in 0..20 {
        let other = assigned(&stage.connect(&Connect::new(V5, ""))).expect("an assigned client id");
        assert!(other != id && other != waits);
    }
    assert_eq!(assigned(&stage.client("c")), None);
    first.settle();
    assert!(stage.connect(&Connect::persistent(V5, &waits)).session_present());
}

/// A broker may choose which identifiers it refuses. Bytes that are no string are always refused.
fn refused_client_id_is_closed(stage: &Stage) {
    stage.client("c").disconnect();
    for bad in [&b"a\0b"[..], b"\xFF"] {
        let connect = Connect { client_id: bad.to_vec(), ..stage.passing("") };
        stage.assert_refused(&connect.encode(), &[MALFORMED, 0x85], "client id");
    }
}

fn connect_with_a_format_error_is_closed(stage: &Stage) {
    stage.client("c").disconnect();
    let id = string(stage.id("c"));
    let refuse = |bytes: &[u8], why: &str| stage.assert_refused(bytes, REFUSED, why);
    refuse(&packet(0x10, &[]), "empty");
    refuse(&connect_packet(0x02, &[], &[&id, b"left over"]), "bytes left over");
    refuse(&connect_packet(0x02, &[0x7F, 0], &[&id]), "a property that does not exist");
    refuse(&connect_packet(0x02, &[0x21, 0], &[&id]), "a property cut short");
    let lawful = stage.passing("c").will(stage.will("will", "")).user_name("u").password(b"p").encode();
    for length in 0..lawful.len() - 2 {
        refuse(&packet(0x10, &[&lawful[2..2 + length]]), &format!("truncated to {length}"));
    }
    stage.client("c").settle();
}

fn connect_that_fails_a_further_check_is_closed(stage: &Stage) {
    // The one check of this broker beyond the form: authentication methods, of which it has none.
    stage.client("c").disconnect();
    let connect = stage.passing("c").with(Property::AuthenticationMethod("none-such".to_owned()));
    stage.assert_refused(&connect.encode(), &[0x8C, 0x87], "an unknown method");
}

fn second_connection_of_a_client_id_evicts_the_first(stage: &Stage) {
    let mut old = stage.client("c");
    let mut new = stage.client("c");
    assert_reason(&mut old, &[0x8E], "taken over");
    new.settle();
    // Clean Start and the way of the old one's session make no difference.
    let mut newest = stage.served(&stage.lasting("c"));
    assert_reason(&mut new, &[0x8E], "taken over");
    newest.settle();
}

fn clean_start_is_applied(stage: &Stage) {
    let client = stage.connect(&stage.lasting("c"));
    client.disconnect();
    let client = stage.connect(&stage.lasting("c"));
    assert!(client.session_present());
    client.disconnect();
    let mut client = stage.connect(&stage.lasting("c").clean(true));
    assert!(!client.session_present());
    client.settle();
}

fn valid_connect_is_answered_by_success(stage: &Stage) {
    let mut client = stage.open();
    client.send(&stage.passing("c").encode());
    assert_eq!(client.expect_connack().code, 0);
    client.settle();
    let properties = vec![
        Property::SessionExpiry(1),
        Property::ReceiveMaximum(65_535),
        Property::MaximumPacketSize(u32::MAX),
        Property::TopicAliasMaximum(65_535),
        Property::RequestResponse(1),
        Property::RequestProblem(1),
        Property::user("", ""),
        Property::user("", ""),
    ];
    let full = Connect { properties, ..stage.passing("d") };
    let will = stage.will("will", "").retained().with(Property::WillDelay(u32::MAX));
    let full = full.will(will).user_name("user").password(b"").keep_alive(0);
    stage.served(&full).disconnect();
}

fn what_follows_a_refused_connect_is_ignored(stage: &Stage) {
    let mut observer = stage.subscriber("o", "t", 1);
    stage.assert_nothing_came(&mut observer, "t");
    let publish = stage.message("t", "behind").encode(V5, 0);
    let bad = Connect { client_id: b"\xFF".to_vec(), ..stage.passing("") }.encode();
    stage.assert_refused(&[bad, publish.clone()].concat(), REFUSED, "malformed CONNECT");
    let method = stage.passing("c").with(Property::AuthenticationMethod("none-such".to_owned())).encode();
    stage.assert_refused(&[method, publish].concat(), &[0x8C, 0x87], "refused CONNECT");
    stage.assert_nothing_came(&mut observer, "t");
}

/// With a session that has packets waiting, and one write of CONNECT and much behind it.
fn connack_comes_before_anything_else(stage: &Stage) {
    let mut client = stage.connect(&stage.lasting("c"));
    client.subscribe(&[(&stage.topic("t"), 2)]);
    stage.deliver(&stage.message("t", "in flight").qos(1));
    client.expect_publish();
    client.disconnect();
    stage.deliver(&stage.message("t", "queued").qos(2));
    let publish = stage.message("t", "own").encode(V5, 0);
    let mut client = stage.open();
    client.send(&[stage.lasting("c").encode(), publish, vec![0xC0, 0]].concat());
    client.expect_connack();
    let texts: Vec<String> = client.expect_publishes(2).iter().map(|p| p.text().to_owned()).collect();
    assert_eq!(texts, ["in flight", "queued"]);
}

fn no_second_connack(stage: &Stage) {
    let mut client = stage.client("c");
    for _ in 0..3 {
        client.settle();
    }
    client.send(&stage.passing("c").encode());
    // One DISCONNECT and nothing else, so no CONNACK.
    assert_reason(&mut client, &[PROTOCOL_ERROR], "second CONNECT");
}

/// The reader of these tests takes nothing but 0 and 1 for the flags.
fn connack_flags_are_reserved_but_one(stage: &Stage) {
    let said = |connect: &Connect| {
        let (mut client, mut flags) = (stage.open(), [0; 3]);
        client.send(&connect.encode());
        client.stream().set_read_timeout(Some(stage.ack_wait())).expect("a read timeout");
        client.stream().read_exact(&mut flags).expect("a CONNACK");
        client.send(&[0xE0, 0]);
        flags
    };
    assert_eq!(said(&stage.lasting("c"))[2], 0);
    stage.connect(&stage.lasting("c")).disconnect();
    assert_eq!(said(&stage.lasting("c"))[2], 1);
    let mut client = stage.connect(&stage.lasting("c"));
    client.send(&subscribe_packet(V5, 1, &[], &[(&stage.topic("t"), 0)]));
    client.expect_packet(Kind::Suback);
}
