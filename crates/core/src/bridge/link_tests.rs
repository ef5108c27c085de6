//! The link between packets that a shard and another broker could send.

use super::deadlines::Patience;
use super::hello::TermsThere;
use super::link::{Link, LinkEnd, LinkNews, LinkTerms, Output};
use super::path::BrokerPath;
use super::rules::tests::rule;
use super::rules::{Direction, TopicRules};
use super::{BridgeState, hello};
use crate::mqtt::codec::{Decoded, decode, encode, property};
use crate::mqtt::packet::{
    Acknowledgement, Connack, ConnackProperties, Disconnect, Packet, PacketId, Properties, Property,
    ProtocolVersion, Publish, PublishProperties, QoS, ReasonCode, Suback,
};
use crate::time::Instant;
use ProtocolVersion::{V3_1_1, V5};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

const THERE: TermsThere = TermsThere {
    session_present: true,
    receive_maximum: 100,
    packet_size: None,
    maximum_qos: QoS::ExactlyOnce,
    takes_retained: true,
    takes_wildcards: true,
    keep_alive: None,
};

/// A link with `sensors/#` on its way out to `plant/sensors/#`, and `orders` in from `plant/orders`.
struct Fixture {
    link: Link,
    version: ProtocolVersion,
    out: Output,
}

impl Fixture {
    fn new(version: ProtocolVersion, there: TermsThere) -> Fixture {
        let rules = TopicRules::new([
            rule(Direction::Out, "", "sensors/#", "plant/"),
            rule(Direction::In, "", "orders", "plant/"),
        ]);
        let patience = Patience {
            keep_alive: Duration::from_secs(60),
            answer: Duration::from_secs(10),
            acknowledgement: Duration::from_secs(30),
        };
        let terms =
            LinkTerms { version, there, patience, packet_size_here: 1_000, takes_retained_here: true };
        let mut out = Output::default();
        let link = Link::begin(Instant::ZERO, Arc::new(rules), terms, vec!["old".into()], &mut out);
        Fixture { link: link.expect("short filters"), version, out }
    }

    /// Returns a link whose two SUBSCRIBE packets are answered, and what it said so far is gone.
    fn established(version: ProtocolVersion, there: TermsThere) -> Fixture {
        let mut fixture = Fixture::new(version, there);
        let connack = Connack {
            session_present: false,
            reason: ReasonCode::SUCCESS,
            properties: ConnackProperties::default(),
        };
        fixture.here(&Packet::Connack(Box::new(connack))).expect("accepted");
        fixture.here(&suback(&[ReasonCode::GRANTED_QOS_2])).expect("granted");
        fixture.there(&suback(&[ReasonCode::GRANTED_QOS_2])).expect("granted");
        assert_eq!(fixture.link.state(), BridgeState::Established);
        fixture.link.take_news();
        fixture.out = Output::default();
        fixture
    }

    fn here(&mut self, packet: &Packet<'_>) -> Result<usize, LinkEnd> {
        let mut bytes = Vec::new();
        encode(packet, V5, &mut bytes).expect("a lawful packet");
        self.link.take_from_here(Instant::ZERO, &bytes, &mut self.out)
    }

    fn there(&mut self, packet: &Packet<'_>) -> Result<usize, LinkEnd> {
        let mut bytes = Vec::new();
        encode(packet, self.version, &mut bytes).expect("a lawful packet");
        self.link.take_from_there(Instant::ZERO, &bytes, &mut self.out)
    }

    /// Returns the packets to the shard and to the other broker, each in a short form.
    fn said(&mut self) -> (Vec<String>, Vec<String>) {
        let Output { here, there } = std::mem::take(&mut self.out);
        (packets(&here, V5), packets(&there, self.version))
    }
}

fn packets(mut bytes: &[u8], version: ProtocolVersion) -> Vec<String> {
    let mut packets = Vec::new();
    while let Ok(Decoded::Packet { packet, length }) = decode(bytes, version, u32::MAX) {
        packets.push(match &packet {
            Packet::Publish(p) => format!(
                "PUBLISH {} q{}{}{} {}",
                p.topic,
                p.qos.bits(),
                if p.dup { " dup" } else { "" },
                if p.retain { " retain" } else { "" },
                p.packet_id.map_or(0, PacketId::get),
            ),
            Packet::Puback(ack) | Packet::Pubrec(ack) | Packet::Pubrel(ack) | Packet::Pubcomp(ack) => {
                format!("{} {} {:02X}", packet.name(), ack.packet_id, ack.reason.byte())
            }
            other => other.name().to_owned(),
        });
        bytes = &bytes[length..];
    }
    packets
}

fn id(id: u16) -> PacketId {
    PacketId::new(id).expect("not 0")
}

fn suback(reasons: &[ReasonCode]) -> Packet<'static> {
    Packet::Suback(Suback {
        packet_id: id(u16::MAX),
        properties: Properties::EMPTY,
        reasons: reasons.to_vec(),
    })
}

fn publish<'a>(topic: &'a str, qos: QoS, payload: &'a [u8]) -> Publish<'a> {
    let packet_id = (qos != QoS::AtMostOnce).then(|| id(7));
    let properties = PublishProperties::default();
    Publish { dup: true, qos, retain: true, topic, packet_id, properties, payload }
}

fn ack(reason: ReasonCode) -> Acknowledgement<'static> {
    Acknowledgement { reason, ..Acknowledgement::success(id(7)) }
}

#[test]
fn both_sides_are_subscribed_and_old_filters_go() {
    let mut fixture = Fixture::new(V5, THERE);
    assert_eq!(fixture.said(), (vec![], vec!["SUBSCRIBE".to_owned()]));
    let connack = hello_connack();
    fixture.here(&connack).expect("accepted");
    assert_eq!(fixture.said().0, ["UNSUBSCRIBE", "SUBSCRIBE"]);
    fixture.there(&suback(&[ReasonCode::NOT_AUTHORIZED])).expect("one reason for one filter");
    assert_eq!(fixture.link.state(), BridgeState::Subscribing);
    fixture.here(&suback(&[ReasonCode::GRANTED_QOS_1])).expect("granted");
    let refused = LinkNews::FilterRefusedThere("plant/orders".into(), ReasonCode::NOT_AUTHORIZED);
    assert_eq!(fixture.link.take_news(), [refused, LinkNews::Established]);
}

#[test]
fn more_filters_than_a_broker_takes_at_once_are_asked_for_in_turn() {
    let rules = (0..17).map(|at| rule(Direction::In, "", &format!("in/{at}"), ""));
    let patience = Patience {
        keep_alive: Duration::ZERO,
        answer: Duration::from_secs(10),
        acknowledgement: Duration::from_secs(30),
    };
    let terms =
        LinkTerms { version: V5, there: THERE, patience, packet_size_here: 1_000, takes_retained_here: true };
    let (mut out, at) = (Output::default(), |seconds| Instant::ZERO + Duration::from_secs(seconds));
    let rules = Arc::new(TopicRules::new(rules));
    let mut link = Link::begin(at(0), rules, terms, vec![], &mut out).expect("short filters");
    let mut take = |seconds, packet: &Packet<'_>, out: &mut Output| {
        let mut bytes = Vec::new();
        encode(packet, V5, &mut bytes).expect("a lawful packet");
        link.take_from_there(at(seconds), &bytes, out).map(|_| (link.state(), link.deadline()))
    };
    for (turn, filters) in [8, 8, 1].into_iter().enumerate() {
        let Ok(Decoded::Packet { packet: Packet::Subscribe(asked), length }) = decode(&out.there, V5, 1_000)
        else {
            panic!("no SUBSCRIBE in turn {turn}")
        };
        assert_eq!((asked.filters.len(), length), (filters, out.there.len()));
        assert_eq!(asked.filters[0].filter, format!("in/{}", 8 * turn));
        out = Output::default();
        let reasons = vec![ReasonCode::GRANTED_QOS_2; filters];
        // The shard has nothing to answer, but has not accepted the session yet.
        let deadline = if turn < 2 { at(9 + 9 * turn as u64 + 10) } else { Instant::NEVER };
        let found = take(9 + 9 * turn as u64, &suback(&reasons), &mut out);
        assert_eq!(found, Ok((BridgeState::Subscribing, deadline)));
    }
    assert!(out.there.is_empty());
    let beyond = take(40, &suback(&[ReasonCode::GRANTED_QOS_2]), &mut out);
    assert_eq!(beyond, Err(LinkEnd::Suback { asked: 0, found: 1 }));
}

fn hello_connack() -> Packet<'static> {
    Packet::Connack(Box::new(Connack {
        session_present: true,
        reason: ReasonCode::SUCCESS,
        properties: ConnackProperties::default(),
    }))
}

#[test]
fn messages_and_acknowledgements_pass_with_their_identifier_in_both_directions() {
    for version in [V3_1_1, V5] {
        let mut fixture = Fixture::established(version, THERE);
        fixture.here(&Packet::Publish(publish("sensors/1", QoS::ExactlyOnce, b"x"))).expect("passes");
        fixture.there(&Packet::Pubrec(ack(ReasonCode::SUCCESS))).expect("passes");
        fixture.here(&Packet::Pubrel(ack(ReasonCode::SUCCESS))).expect("passes");
        assert_eq!(fixture.link.unacknowledged(), 1);
        fixture.there(&Packet::Pubcomp(ack(ReasonCode::SUCCESS))).expect("passes");
        assert_eq!(fixture.link.unacknowledged(), 0);
        let out = ["PUBLISH plant/sensors/1 q2 dup retain 7", "PUBREL 7 00"].map(String::from).to_vec();
        let back = ["PUBREC 7 00", "PUBCOMP 7 00"].map(String::from).to_vec();
        assert_eq!(fixture.said(), (back, out));
        fixture.there(&Packet::Publish(publish("plant/orders", QoS::AtLeastOnce, b"x"))).expect("passes");
        fixture.here(&Packet::Puback(ack(ReasonCode::NO_MATCHING_SUBSCRIBERS))).expect("passes");
        let reason = if version == V5 { "PUBACK 7 10" } else { "PUBACK 7 00" };
        assert_eq!(fixture.said(), (vec!["PUBLISH orders q1 dup retain 7".into()], vec![reason.into()]));
        assert_eq!((fixture.link.counts().sent, fixture.link.counts().received), (1, 1));
    }
}

#[test]
fn a_message_that_the_other_broker_forgot_is_sent_as_a_new_one() {
    let mut fixture = Fixture::established(V5, TermsThere { session_present: false, ..THERE });
    fixture.here(&Packet::Publish(publish("sensors/1", QoS::ExactlyOnce, b"x"))).expect("passes");
    assert_eq!(fixture.said().1, ["PUBLISH plant/sensors/1 q2 retain 7"]);
}

#[test]
fn a_message_that_no_rule_lets_in_is_refused_by_the_shard_in_its_place() {
    let mut fixture = Fixture::established(V5, THERE);
    fixture.there(&Packet::Publish(publish("plant/other", QoS::AtLeastOnce, b"x"))).expect("goes on");
    fixture.there(&Packet::Publish(publish("plant/other", QoS::AtMostOnce, b"x"))).expect_err("dup at QoS 0");
    let at_most_once = Publish { dup: false, ..publish("orders", QoS::AtMostOnce, b"x") };
    fixture.there(&Packet::Publish(at_most_once)).expect("goes on");
    let large = [b'x'; 990];
    fixture
        .there(&Packet::Publish(publish("plant/orders", QoS::AtLeastOnce, &large)))
        .expect_err("too large");
    assert_eq!(fixture.said(), (vec!["PUBLISH $SYS/bridge/refused q1 dup 7".into()], vec![]));
    assert_eq!(fixture.link.counts().refused, 2);
}

#[test]
fn a_message_that_grows_beyond_the_limit_of_this_broker_is_refused_and_not_sent_for_ever() {
    let rules = TopicRules::new([rule(Direction::In, "here/", "orders", "")]);
    let mut fixture = Fixture::established(V5, THERE);
    let terms = LinkTerms {
        version: V5,
        there: THERE,
        patience: Patience {
            keep_alive: Duration::ZERO,
            answer: Duration::ZERO,
            acknowledgement: Duration::ZERO,
        },
        packet_size_here: 1_000,
        takes_retained_here: true,
    };
    fixture.link =
        Link::begin(Instant::ZERO, Arc::new(rules), terms, vec![], &mut Output::default()).expect("short");
    let large = [b'x'; 984];
    fixture.there(&Packet::Publish(publish("orders", QoS::AtLeastOnce, &large))).expect("goes on");
    assert_eq!(fixture.said().0, ["PUBLISH $SYS/bridge/refused q1 dup 7"]);
    assert_eq!(fixture.link.counts().too_large, 1);
}

#[test]
fn a_3_1_1_message_that_is_too_large_is_left_out_and_the_next_one_passes() {
    let mut bytes = Vec::new();
    let (large, orders) = (vec![b'x'; 2_000], "plant/orders");
    for (packet_id, payload) in [(7, &large[..]), (8, b"y")] {
        let message =
            Publish { packet_id: Some(id(packet_id)), ..publish(orders, QoS::AtLeastOnce, payload) };
        encode(&Packet::Publish(message), V3_1_1, &mut bytes).expect("a lawful packet");
    }
    let expected = ["PUBLISH $SYS/bridge/refused q1 dup 7", "PUBLISH orders q1 dup retain 8"];
    for read in [bytes.len(), 1, 700] {
        let mut fixture = Fixture::established(V3_1_1, THERE);
        let mut kept = Vec::new();
        for bytes in bytes.chunks(read) {
            kept.extend_from_slice(bytes);
            let used = fixture.link.take_from_there(Instant::ZERO, &kept, &mut fixture.out);
            kept.drain(..used.expect("goes on"));
            assert!(kept.len() < 100, "the large one is not kept: {}", kept.len());
        }
        assert_eq!(fixture.said().0, expected, "{read} bytes at once");
        assert_eq!(fixture.link.counts().too_large, 1);
    }
    // A 5.0 broker was told how much the bridge takes.
    let mut fixture = Fixture::established(V5, THERE);
    let large = Packet::Publish(publish(orders, QoS::AtLeastOnce, &[b'x'; 2_000]));
    assert!(matches!(fixture.there(&large), Err(LinkEnd::Malformed(_))));
}

#[test]
fn a_retained_message_passes_without_retain_where_this_broker_takes_none() {
    let rules = Arc::new(TopicRules::new([rule(Direction::In, "", "orders", "")]));
    let patience =
        Patience { keep_alive: Duration::ZERO, answer: Duration::ZERO, acknowledgement: Duration::ZERO };
    let (there, packet_size_here) = (THERE, 1_000);
    let terms = LinkTerms { version: V5, there, patience, packet_size_here, takes_retained_here: false };
    let mut fixture = Fixture::established(V5, THERE);
    fixture.link =
        Link::begin(Instant::ZERO, rules, terms, vec![], &mut Output::default()).expect("short filters");
    let message = Publish { retain: true, ..publish("orders", QoS::AtLeastOnce, b"x") };
    fixture.there(&Packet::Publish(message)).expect("passes");
    assert_eq!(fixture.said().0, ["PUBLISH orders q1 dup 7"]);
}

#[test]
fn bytes_that_move_keep_a_slow_connection_and_silence_ends_it() {
    let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
    let mut fixture = Fixture::established(V5, THERE);
    fixture.here(&Packet::Publish(publish("sensors/1", QoS::AtLeastOnce, &[b'x'; 500]))).expect("passes");
    let length = fixture.out.there.len();
    fixture.link.wrote(at(20), 200);
    fixture.link.wrote(at(40), length - 200);
    assert_eq!(fixture.link.expired(at(53), &mut fixture.out), Ok(()));
    // What is written behind it says nothing about its acknowledgement.
    fixture.link.wrote(at(60), 100);
    assert_eq!(fixture.link.expired(at(70), &mut fixture.out), Err(LinkEnd::Unacknowledged));
}

#[test]
fn a_broker_that_remembers_an_earlier_session_is_freed_of_its_identifiers_before_a_message_leaves() {
    for version in [V3_1_1, V5] {
        let mut fixture = Fixture::established(version, THERE);
        fixture.link.free_identifiers(Instant::ZERO, &mut fixture.out);
        let message = Packet::Publish(publish("sensors/1", QoS::ExactlyOnce, b"x"));
        assert_eq!(fixture.here(&message), Ok(0), "it waits");
        // Messages of the other broker pass meanwhile.
        fixture.there(&Packet::Publish(publish("plant/orders", QoS::AtLeastOnce, b"x"))).expect("passes");
        assert_eq!(fixture.said().0, ["PUBLISH orders q1 dup retain 7"]);
        let end = (1..=u16::MAX).find_map(|number| {
            let mut answer = ack(ReasonCode::SUCCESS);
            answer.packet_id = id(number);
            fixture.there(&Packet::Pubcomp(answer)).err().map(|end| (number, end))
        });
        assert_eq!(end, Some((u16::MAX, LinkEnd::Freed)));
        assert!(fixture.out.here.is_empty(), "the shard has asked for none of them");
    }
}

#[test]
fn a_message_that_cannot_leave_is_acknowledged_negatively_here() {
    let mut fixture = Fixture::established(V5, TermsThere { packet_size: Some(40), ..THERE });
    fixture.here(&Packet::Publish(publish("old/1", QoS::AtLeastOnce, b"x"))).expect("goes on");
    fixture.here(&Packet::Publish(publish("sensors/1", QoS::ExactlyOnce, &[b'x'; 40]))).expect("goes on");
    assert_eq!(fixture.said(), (vec!["PUBACK 7 90".into(), "PUBREC 7 90".into()], vec![]));
    assert_eq!((fixture.link.counts().dropped, fixture.link.unacknowledged()), (2, 0));
}

#[test]
fn a_lower_maximum_qos_ends_the_exchange_here() {
    let mut fixture = Fixture::established(V5, TermsThere { maximum_qos: QoS::AtLeastOnce, ..THERE });
    fixture.here(&Packet::Publish(publish("sensors/1", QoS::ExactlyOnce, b"x"))).expect("passes");
    fixture.there(&Packet::Puback(ack(ReasonCode::SUCCESS))).expect("passes");
    fixture.here(&Packet::Pubrel(ack(ReasonCode::SUCCESS))).expect("passes");
    let here = ["PUBREC 7 00", "PUBCOMP 7 00"].map(String::from).to_vec();
    assert_eq!(fixture.said(), (here, vec!["PUBLISH plant/sensors/1 q1 dup retain 7".into()]));
    let terms = TermsThere { maximum_qos: QoS::AtMostOnce, takes_retained: false, ..THERE };
    let mut fixture = Fixture::established(V5, terms);
    fixture.here(&Packet::Publish(publish("sensors/1", QoS::AtLeastOnce, b"x"))).expect("passes");
    assert_eq!(fixture.said(), (vec!["PUBACK 7 00".into()], vec!["PUBLISH plant/sensors/1 q0 0".into()]));
}

#[test]
fn a_broker_that_breaks_the_protocol_ends_the_connection_with_the_reason() {
    let mut fixture = Fixture::new(V5, THERE);
    let two = fixture.there(&suback(&[ReasonCode::SUCCESS, ReasonCode::SUCCESS]));
    assert_eq!(two, Err(LinkEnd::Suback { asked: 1, found: 2 }));
    let mut fixture = Fixture::established(V5, THERE);
    let end = fixture.there(&Packet::Pingreq).expect_err("a broker sends none");
    assert_eq!(
        (end.clone(), end.reason_there()),
        (LinkEnd::Unexpected("PINGREQ"), ReasonCode::PROTOCOL_ERROR)
    );
    let mut aliased = publish("", QoS::AtLeastOnce, b"x");
    aliased.properties.topic_alias = NonZeroU16::new(1);
    assert_eq!(fixture.there(&Packet::Publish(aliased)), Err(LinkEnd::TopicAlias));
    let end = fixture.link.take_from_there(Instant::ZERO, b"\x00\x00", &mut fixture.out);
    assert!(matches!(end, Err(LinkEnd::Malformed(_))), "{end:?}");
    let two_gib = b"\x30\xFF\xFF\xFF\x7F";
    let end = fixture.link.take_from_there(Instant::ZERO, two_gib, &mut fixture.out).expect_err("too large");
    assert_eq!(end.reason_there(), ReasonCode::PACKET_TOO_LARGE);
    fixture.link.end(Some(&end), &mut fixture.out);
    assert_eq!(fixture.said(), (vec!["DISCONNECT".into()], vec!["DISCONNECT".into()]));
}

#[test]
fn an_identifier_of_a_pending_subscribe_waits() {
    let mut fixture = Fixture::new(V5, THERE);
    fixture.here(&hello_connack()).expect("accepted");
    let message = Publish { packet_id: Some(id(u16::MAX)), ..publish("sensors/1", QoS::AtLeastOnce, b"x") };
    assert_eq!(fixture.here(&Packet::Publish(message.clone())), Ok(0));
    fixture.there(&suback(&[ReasonCode::SUCCESS])).expect("granted");
    assert!(fixture.here(&Packet::Publish(message)).expect("passes") > 0);
}

#[test]
fn filters_with_wildcards_are_not_sent_to_a_broker_that_takes_none() {
    let rules = TopicRules::new([rule(Direction::In, "", "orders/#", "")]);
    let terms = LinkTerms {
        version: V5,
        there: TermsThere { takes_wildcards: false, ..THERE },
        patience: Patience {
            keep_alive: hello::TermsThere::keep_alive(&THERE, 0),
            answer: Duration::ZERO,
            acknowledgement: Duration::ZERO,
        },
        packet_size_here: 1_000,
        takes_retained_here: true,
    };
    let mut out = Output::default();
    let mut link = Link::begin(Instant::ZERO, Arc::new(rules), terms, vec![], &mut out).expect("short");
    assert!(out.there.is_empty() && matches!(link.take_news()[..], [LinkNews::FilterRefusedThere(..)]));
    assert!(link.deadline().is_never());
}

/// Returns the brokers that the first PUBLISH of these bytes has passed.
fn path_of(bytes: &[u8], version: ProtocolVersion) -> Vec<String> {
    let Ok(Decoded::Packet { packet: Packet::Publish(publish), .. }) = decode(bytes, version, u32::MAX)
    else {
        panic!("{bytes:?}")
    };
    let names = property::iter(publish.properties.forwarded()).filter_map(|property| match property {
        Property::UserProperty("homing-path", name) => Some(name.to_owned()),
        _ => None,
    });
    names.collect()
}

#[test]
fn a_message_has_the_names_of_the_brokers_that_it_has_passed_and_is_dropped_when_it_comes_back() {
    let names = || (BrokerPath::of("near").expect("short"), BrokerPath::of("far"));
    for version in [V3_1_1, V5] {
        let mut fixture = Fixture::established(version, THERE);
        let (near, far) = names();
        fixture.link.keep_path(near, far);
        fixture.here(&Packet::Publish(publish("sensors/1", QoS::AtLeastOnce, b"x"))).expect("passes");
        let expected: &[&str] = if version == V5 { &["near"] } else { &[] };
        assert_eq!(path_of(&fixture.out.there, version), expected);
        fixture.there(&Packet::Publish(publish("plant/orders", QoS::AtLeastOnce, b"x"))).expect("passes");
        let expected: &[&str] = if version == V5 { &["far", "near"] } else { &[] };
        assert_eq!(path_of(&fixture.out.here, V5), expected);
    }
    let (near, far) = names();
    let mut fixture = Fixture::established(V5, THERE);
    fixture.link.keep_path(near, far);
    let with = |name: &str, mut message: Publish<'static>| {
        let mut bytes = Vec::new();
        property::put(&mut bytes, Property::UserProperty("homing-path", name)).expect("short");
        message.properties.forwarded = bytes.into();
        Packet::Publish(message)
    };
    // The other broker has it already, so it counts as acknowledged.
    fixture.here(&with("far", publish("sensors/1", QoS::AtLeastOnce, b"x"))).expect("dropped");
    assert_eq!(fixture.said(), (vec!["PUBACK 7 00".into()], vec![]));
    // This broker had it, so the refusal of the shard is none for the other broker.
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        fixture.there(&with("near", publish("plant/orders", qos, b"x"))).expect("dropped");
        assert_eq!(fixture.said().0, [format!("PUBLISH $SYS/bridge/refused q{} dup 7", qos.bits())]);
    }
    fixture.here(&Packet::Pubrec(ack(ReasonCode::TOPIC_NAME_INVALID))).expect("passes");
    fixture.here(&Packet::Pubcomp(ack(ReasonCode::PACKET_IDENTIFIER_NOT_FOUND))).expect("passes");
    assert_eq!(fixture.said().1, ["PUBREC 7 00", "PUBCOMP 7 00"]);
    fixture.here(&Packet::Puback(ack(ReasonCode::TOPIC_NAME_INVALID))).expect("passes");
    assert_eq!(fixture.said().1, ["PUBACK 7 90"], "the identifier denotes another message now");
    assert_eq!((fixture.link.counts().looped, fixture.link.counts().refused), (3, 0));
}

#[test]
fn notifications_are_retained_where_that_is_possible_and_end_before_the_connection() {
    for (takes_retained, expected) in [(true, "PUBLISH state q0 retain 0"), (false, "PUBLISH state q0 0")] {
        let mut fixture = Fixture::established(V5, TermsThere { takes_retained, ..THERE });
        fixture.link.end(None, &mut fixture.out);
        assert_eq!(fixture.said().1, ["DISCONNECT"], "nobody was told that it is connected");
        fixture.link.notify_on("state");
        fixture.link.announce(&mut fixture.out);
        assert_eq!(fixture.said().1, [expected]);
        fixture.link.end(None, &mut fixture.out);
        assert_eq!(fixture.said().1, [expected, "DISCONNECT"]);
    }
}

#[test]
fn the_other_broker_gets_no_topic_alias_and_its_other_server_is_named() {
    let mut fixture = Fixture::established(V5, THERE);
    fixture.here(&Packet::Publish(publish("sensors/1", QoS::AtLeastOnce, b"x"))).expect("passes");
    fixture.here(&Packet::Publish(publish("sensors/1", QoS::AtLeastOnce, b"x"))).expect("passes");
    assert_eq!(fixture.said().1, ["PUBLISH plant/sensors/1 q1 dup retain 7"; 2]);
    let server_reference = Some("other:1883");
    let moved = Disconnect { server_reference, ..Disconnect::new(ReasonCode::SERVER_MOVED) };
    let end = fixture.there(&Packet::Disconnect(moved)).expect_err("the end");
    assert!(end.to_string().ends_with("Server moved (another server: other:1883)"), "{end}");
}
