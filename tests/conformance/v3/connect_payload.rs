//! Flags and fields of CONNECT: chapters 3.1.2 (credentials) and 3.1.3.

use super::cases;
use crate::harness::Target;
use crate::support::wire::{self, Put};
use crate::support::{Connect, Message, V31, V311, Version, Will};

cases! {
    v311 {
        user_name_without_its_flag_is_closed: ["MQTT-3.1.2-18"],
        user_name_flag_without_user_name_is_closed: ["MQTT-3.1.2-19"],
        password_without_its_flag_is_closed: ["MQTT-3.1.2-20"],
        password_flag_without_password_is_closed: ["MQTT-3.1.2-21"],
        password_flag_without_user_name_flag_is_closed: ["MQTT-3.1.2-22"],
        fields_are_read_in_their_order: ["MQTT-3.1.3-1"],
        connect_without_client_id_field_is_closed: ["MQTT-3.1.3-3"],
        client_id_that_is_not_utf_8_is_closed: ["MQTT-3.1.3-4"],
        empty_client_id_is_served_as_a_client_of_its_own: ["MQTT-3.1.3-6"],
        empty_client_id_without_clean_session_is_rejected: ["MQTT-3.1.3-7", "MQTT-3.1.3-8"],
        refused_client_id_is_refused_with_its_code: ["MQTT-3.1.3-9"],
        will_topic_that_is_not_utf_8_is_closed: ["MQTT-3.1.3-10"],
        user_name_that_is_not_utf_8_is_closed: ["MQTT-3.1.3-11"],
    }
    v311_and_v31 {
        client_ids_of_1_to_23_letters_and_digits_are_accepted: ["MQTT-3.1.3-5"],
    }
    v31 {
        flags_without_their_fields_are_accepted,
        empty_client_id_is_rejected,
        client_id_of_more_than_23_characters_is_taken_as_in_3_1_1,
    }
}

/// Bytes that are no UTF-8: a lone continuation, a truncated sequence, an overlong form, a
/// surrogate, too great a number.
const NOT_UTF_8: [&[u8]; 6] =
    [b"\xFF", b"a\x80", b"a\xC3", b"\xC0\xAF", b"\xED\xA0\x80\xED\xB0\x80", b"\xF4\x90\x80\x80"];

/// A CONNECT of any flags and fields.
fn connect(version: Version, flags: u8, fields: &[&[u8]]) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_binary(version.protocol_name().as_bytes());
    body.extend_from_slice(&[version.level(), flags, 0, 60]);
    fields.iter().for_each(|field| body.put_binary(field));
    wire::packet(0x10, &body)
}

/// The one is served, the other closed without an answer.
fn told_apart(broker: &Target, (lawful, lawful_fields): (u8, &[&[u8]]), (flags, fields): (u8, &[&[u8]])) {
    let mut client = broker.open(V311);
    client.send(&connect(V311, lawful, lawful_fields));
    assert_eq!(client.expect_connack().code, 0);
    client.settle();
    client.disconnect();
    broker.closes_unanswered(V311, &connect(V311, flags, fields));
}

fn user_name_without_its_flag_is_closed(broker: &Target) {
    let id = broker.id("c");
    told_apart(broker, (0x82, &[id.as_bytes(), b"user"]), (0x02, &[id.as_bytes(), b"user"]));
}

fn user_name_flag_without_user_name_is_closed(broker: &Target) {
    let id = broker.id("c");
    told_apart(broker, (0x82, &[id.as_bytes(), b"user"]), (0x82, &[id.as_bytes()]));
}

fn password_without_its_flag_is_closed(broker: &Target) {
    let id = broker.id("c");
    let fields: &[&[u8]] = &[id.as_bytes(), b"user", b"secret"];
    told_apart(broker, (0xC2, fields), (0x82, fields));
}

fn password_flag_without_password_is_closed(broker: &Target) {
    let id = broker.id("c");
    told_apart(broker, (0xC2, &[id.as_bytes(), b"user", b"secret"]), (0xC2, &[id.as_bytes(), b"user"]));
}

fn password_flag_without_user_name_flag_is_closed(broker: &Target) {
    let id = broker.id("c");
    told_apart(broker, (0xC2, &[id.as_bytes(), b"user", b"secret"]), (0x42, &[id.as_bytes(), b"secret"]));
}

/// In 3.1 the Remaining Length overrules the user name and password flags.
fn flags_without_their_fields_are_accepted(broker: &Target) {
    let id = broker.id("c");
    for (flags, fields) in [(0x82, &[id.as_bytes()] as &[&[u8]]), (0xC2, &[id.as_bytes(), b"user"])] {
        let mut client = broker.open(V31);
        client.send(&connect(V31, flags, fields));
        assert_eq!(client.expect_connack().code, 0);
        client.settle();
    }
}

fn fields_are_read_in_their_order(broker: &Target) {
    let (id, topic) = (broker.id("c"), broker.topic("will"));
    let mut watcher = broker.client(V311, "w");
    watcher.subscribe(&[(&topic, 0)]);
    // A user name may not, and a password may, be other than UTF-8: this tells the last two apart.
    let fields: [&[u8]; 5] = [id.as_bytes(), topic.as_bytes(), b"message", b"user", b"\xFF\0"];
    let mut client = broker.open(V311);
    client.send(&connect(V311, 0xC6, &fields));
    assert_eq!(client.expect_connack().code, 0);
    client.vanish();
    let will = watcher.expect_publish();
    assert_eq!((will.topic.as_str(), will.text()), (topic.as_str(), "message"));
    let [id, topic, message, user, password] = fields;
    broker.closes_unanswered(V311, &connect(V311, 0xC6, &[id, topic, message, password, user]));
}

fn connect_without_client_id_field_is_closed(broker: &Target) {
    let id = broker.id("c");
    told_apart(broker, (0x02, &[id.as_bytes()]), (0x02, &[]));
}

fn client_id_that_is_not_utf_8_is_closed(broker: &Target) {
    broker.connect(&Connect::new(V311, &broker.id("Ĉ𝄞"))).settle();
    for client_id in NOT_UTF_8 {
        let connect = Connect { client_id: client_id.to_vec(), ..Connect::new(V311, "") };
        broker.closes_unanswered(V311, &connect.encode());
    }
}

fn client_ids_of_1_to_23_letters_and_digits_are_accepted(broker: &Target, version: Version) {
    // Short names are nobody's own.
    let broker = broker.alone();
    let characters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let lengths = (1..=23).map(|length| &characters[62 - length..]);
    let all = [&characters[..23], &characters[23..46], &characters[46..]];
    for id in lengths.chain(all) {
        let mut client = broker.connect(&Connect::new(version, id));
        client.settle();
        client.disconnect();
    }
}

fn empty_client_id_is_served_as_a_client_of_its_own(broker: &Target) {
    let topic = broker.topic("t");
    let mut clients: Vec<_> = (0..4).map(|_| broker.connect(&Connect::new(V311, ""))).collect();
    for client in &mut clients {
        assert!(!client.session_present());
        assert_eq!(client.subscribe(&[(&topic, 1)]), [1]);
    }
    // None has evicted another, and each has a subscription of its own.
    clients[0].deliver(&Message::new(&topic, "x").qos(1));
    for client in &mut clients {
        let publish = client.expect_publish();
        client.complete(&publish);
        client.settle();
    }
}

fn empty_client_id_without_clean_session_is_rejected(broker: &Target) {
    broker.connect(&Connect::new(V311, "")).settle();
    let mut client = broker.open(V311);
    client.send(&Connect::new(V311, "").clean(false).encode());
    assert_eq!(client.expect_connack().code, 2);
    client.expect_closed();
}

/// The only client id that this broker refuses a client of 3.1.1.
fn refused_client_id_is_refused_with_its_code(broker: &Target) {
    broker.persistent(V311, "c").settle();
    let mut client = broker.open(V311);
    client.send(&[Connect::new(V311, "").clean(false).encode(), vec![0xC0, 0]].concat());
    assert_eq!(client.expect_connack().code, 2);
    client.expect_closed();
}

fn empty_client_id_is_rejected(broker: &Target) {
    broker.serves(V31);
    for clean in [true, false] {
        let mut client = broker.open(V31);
        client.send(&Connect::new(V31, "").clean(clean).encode());
        assert_eq!(client.expect_connack().code, 2);
        client.expect_closed();
    }
}

fn will_topic_that_is_not_utf_8_is_closed(broker: &Target) {
    let connect = |topic: &[u8]| Connect::new(V311, &broker.id("c")).will(Will::new(topic, "gone"));
    let mut client = broker.connect(&connect(broker.topic("Ĉ𝄞").as_bytes()));
    client.settle();
    client.disconnect();
    for topic in NOT_UTF_8 {
        broker.closes_unanswered(V311, &connect(topic).encode());
    }
}

fn user_name_that_is_not_utf_8_is_closed(broker: &Target) {
    broker.connect(&Connect::new(V311, &broker.id("c")).user_name("Ĉ𝄞")).settle();
    for name in NOT_UTF_8 {
        let connect = Connect { user_name: Some(name.to_vec()), ..Connect::new(V311, &broker.id("d")) };
        broker.closes_unanswered(V311, &connect.encode());
    }
}

/// 3.1 sets the bound, 3.1.1 lets a server take more; the broker takes more in both, as its peers
/// do.
fn client_id_of_more_than_23_characters_is_taken_as_in_3_1_1(broker: &Target) {
    let broker = broker.alone();
    broker.connect(&Connect::new(V31, &"c".repeat(23))).settle();
    broker.connect(&Connect::new(V31, &"c".repeat(24))).settle();
}
