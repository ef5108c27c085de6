//! Table tests: each property in each packet, and each reason code in each packet that a client may
//! send.

use super::cases;
use super::stage::{
    EITHER, Stage, answer_to, connect_packet, packet, property_set, string, unsubscribe_packet,
};
use crate::support::client::Event;
use crate::support::{Kind, Packet, Property, RawClient, V5, now};

cases! {
    property_in_a_packet_it_may_not_be_in_is_refused: [],
    property_in_a_packet_it_may_be_in_is_accepted: [],
    property_that_may_not_repeat_is_refused_twice: [],
    puback_codes_are_from_its_table: ["MQTT-3.4.2-1"],
    pubrec_codes_are_from_its_table: ["MQTT-3.5.2-1"],
    pubrel_codes_are_from_its_table: ["MQTT-3.6.2-1"],
    pubcomp_codes_are_from_its_table: ["MQTT-3.7.2-1"],
    disconnect_codes_are_from_its_table: ["MQTT-3.14.2-1"],
}

const PROPERTIES: &str = include_str!("../properties.csv");
const REASON_CODES: &str = include_str!("../reason-codes.csv");

/// The codes that the table has for a packet.
pub fn codes_of(packet: &str) -> Vec<u8> {
    let rows = REASON_CODES.lines().skip(1).filter_map(|row| {
        let mut cells = row.split(',');
        let (code, _name, packets) = (cells.next()?, cells.next()?, cells.next()?);
        packets.split("; ").any(|name| name == packet).then(|| hexadecimal(code))
    });
    rows.collect()
}

fn hexadecimal(cell: &str) -> u8 {
    u8::from_str_radix(cell.trim_start_matches("0x"), 16).expect("a code in hexadecimal")
}

/// A row of the table of properties.
struct Row {
    name: &'static str,
    /// Identifier and a value that is lawful wherever the property is.
    bytes: Vec<u8>,
    packets: Vec<&'static str>,
    may_repeat: bool,
}

fn rows() -> Vec<Row> {
    let row = |line: &'static str| {
        let cells: Vec<&str> = line.splitn(6, ',').collect();
        let &[id, name, kind, packets, may_repeat, _notes] = &cells[..] else { panic!("six cells: {line}") };
        let value = match kind {
            "Byte" | "Variable Byte Integer" => vec![1],
            "Two Byte Integer" => vec![0, 1],
            "Four Byte Integer" => vec![0, 0, 0x10, 0],
            "UTF-8 Encoded String" | "Binary Data" => string("x"),
            "UTF-8 String Pair" => [string("x"), string("y")].concat(),
            other => panic!("{other}"),
        };
        let bytes = [vec![hexadecimal(id)], value].concat();
        Row { name, bytes, packets: packets.split("; ").collect(), may_repeat: may_repeat == "yes" }
    };
    PROPERTIES.lines().skip(1).map(row).collect()
}

/// The packets from a client that have properties.
const FROM_CLIENTS: [&str; 11] = [
    "CONNECT",
    "Will Properties",
    "PUBLISH",
    "PUBACK",
    "PUBREC",
    "PUBREL",
    "PUBCOMP",
    "SUBSCRIBE",
    "UNSUBSCRIBE",
    "DISCONNECT",
    "AUTH",
];

/// The table has it without a direction, but only servers send it.
fn only_from_servers(packet: &str, property: &str) -> bool {
    (packet, property) == ("PUBLISH", "Subscription Identifier")
}

/// The standard speaks of a server that sends it, and has no word for a client that does.
fn either_will_do(packet: &str, property: &str) -> bool {
    (packet, property) == ("DISCONNECT", "Server Reference")
}

/// One packet with these properties and nothing else to complain of.
fn with_properties(stage: &Stage, name: &str, set: &[u8]) -> Vec<u8> {
    let acknowledgement = |first| packet(first, &[&[0, 9, 0], &property_set(set)]);
    match name {
        "CONNECT" => connect_packet(0x02, set, &[&string(stage.id("table"))]),
        "Will Properties" => {
            let will = [property_set(set), string(stage.topic("will")), string("x")].concat();
            connect_packet(0x06, &[], &[&string(stage.id("table")), &will])
        }
        "PUBLISH" => packet(0x32, &[&string(stage.topic("t")), &[0, 9], &property_set(set), b"x"]),
        "PUBACK" => acknowledgement(0x40),
        "PUBREC" => acknowledgement(0x50),
        "PUBREL" => acknowledgement(0x62),
        "PUBCOMP" => acknowledgement(0x70),
        "SUBSCRIBE" => packet(0x82, &[&[0, 9], &property_set(set), &string(stage.topic("s")), &[0]]),
        "UNSUBSCRIBE" => unsubscribe_packet(9, set, &[b"u"]),
        "DISCONNECT" => packet(0xE0, &[&[0], &property_set(set)]),
        "AUTH" => packet(0xF0, &[&[0x18], &property_set(set)]),
        other => panic!("{other}"),
    }
}

/// The broker's reaction to a packet.
#[derive(Debug, PartialEq)]
enum Fate {
    Accepted,
    Refused,
}

/// Sends a packet, in place of a CONNECT or after one, and a PINGREQ behind it.
fn fate(stage: &Stage, name: &str, set: &[u8]) -> Fate {
    let bytes = with_properties(stage, name, set);
    let mut client = if matches!(name, "CONNECT" | "Will Properties") {
        stage.open()
    } else {
        // Of 1 s at least, so that DISCONNECT may name another.
        stage.served(&stage.passing("table").with(Property::SessionExpiry(1)))
    };
    client.send(&[bytes, vec![0xC0, 0]].concat());
    fate_of(stage, &mut client, name == "DISCONNECT")
}

/// Until PINGRESP or the end; the end is a refusal unless the client asked for it.
fn fate_of(stage: &Stage, client: &mut RawClient, asked_for_the_end: bool) -> Fate {
    loop {
        match client.next(now() + stage.ack_wait()) {
            Event::Packet(Packet::Pingresp) => return Fate::Accepted,
            Event::Packet(Packet::Connack(connack)) if connack.code >= 0x80 => {
                assert!(matches!(connack.code, 0x81 | 0x82 | 0x8C | 0x87), "{connack:?}");
                client.expect_closed();
                return Fate::Refused;
            }
            Event::Packet(Packet::Disconnect(disconnect)) => {
                assert!(EITHER.contains(&disconnect.code), "{disconnect:?}");
                client.expect_closed();
                return Fate::Refused;
            }
            Event::Packet(_) => {}
            // A refused CONNECT needs no answer.
            Event::Closed if asked_for_the_end => return Fate::Accepted,
            Event::Closed => return Fate::Refused,
            Event::Silence => panic!("neither answered nor closed"),
        }
    }
}

/// Enhanced authentication is not offered: its properties are refused whatever they are in.
fn concerns_authentication(packet: &str, property: &str) -> bool {
    packet == "AUTH" || property.starts_with("Authentication ")
}

/// Each property with each packet from a client, for which `lawful` says whether the table has it
/// there.
fn each_pair(pair: impl Fn(&str, &Row, bool)) {
    for row in rows() {
        for packet in FROM_CLIENTS {
            let lawful = row.packets.contains(&packet) && !only_from_servers(packet, row.name);
            pair(packet, &row, lawful);
        }
    }
}

fn property_in_a_packet_it_may_not_be_in_is_refused(stage: &Stage) {
    stage.client("control").disconnect();
    each_pair(|packet, row, lawful| {
        if !lawful {
            assert_eq!(fate(stage, packet, &row.bytes), Fate::Refused, "{} in {packet}", row.name);
        }
    });
    for packet in FROM_CLIENTS {
        for unknown in [0x00, 0x04, 0x14, 0x2B, 0x7F] {
            assert_eq!(fate(stage, packet, &[unknown, 1]), Fate::Refused, "0x{unknown:02X} in {packet}");
        }
    }
}

fn property_in_a_packet_it_may_be_in_is_accepted(stage: &Stage) {
    stage.client("control").disconnect();
    each_pair(|packet, row, lawful| {
        let lawful = lawful && !either_will_do(packet, row.name);
        if lawful && !concerns_authentication(packet, row.name) {
            assert_eq!(fate(stage, packet, &row.bytes), Fate::Accepted, "{} in {packet}", row.name);
        }
    });
}

fn property_that_may_not_repeat_is_refused_twice(stage: &Stage) {
    stage.client("control").disconnect();
    each_pair(|packet, row, lawful| {
        if lawful && !concerns_authentication(packet, row.name) {
            let expected = if row.may_repeat { Fate::Accepted } else { Fate::Refused };
            let twice = row.bytes.repeat(2);
            assert_eq!(fate(stage, packet, &twice), expected, "{} twice in {packet}", row.name);
        }
    });
    let method = [&[0x15][..], &string("x")].concat().repeat(2);
    assert_eq!(fate(stage, "CONNECT", &method), Fate::Refused, "Authentication Method twice");
}

/// An acknowledgement with each of the 256 codes, for an exchange that is open and waits for it.
fn assert_acknowledgement_codes(stage: &Stage, kind: Kind, name: &str) {
    let lawful = codes_of(name);
    assert!(!lawful.is_empty(), "{name}");
    for code in 0..=255 {
        let mut client = stage.subscriber("codes", "t", if kind == Kind::Puback { 1 } else { 2 });
        let id = match kind {
            Kind::Pubrel => {
                client.publish_as(&stage.message("other", "").qos(2), 9);
                client.expect_ack(Kind::Pubrec, 9).id
            }
            _ => {
                client.deliver(&stage.message("t", "x").qos(2));
                client.expect_publish().id
            }
        };
        if kind == Kind::Pubcomp {
            client.ack(Kind::Pubrec, id);
            client.expect_ack(Kind::Pubrel, id);
        }
        client.ack_with(kind, id, code);
        client.ping();
        let expected = if lawful.contains(&code) { Fate::Accepted } else { Fate::Refused };
        assert_eq!(fate_of(stage, &mut client, false), expected, "{name} with 0x{code:02X}");
    }
}

fn puback_codes_are_from_its_table(stage: &Stage) {
    assert_sent_codes(stage, 1);
    assert_acknowledgement_codes(stage, Kind::Puback, "PUBACK");
}

fn pubrec_codes_are_from_its_table(stage: &Stage) {
    assert_sent_codes(stage, 2);
    assert_acknowledgement_codes(stage, Kind::Pubrec, "PUBREC");
}

fn pubrel_codes_are_from_its_table(stage: &Stage) {
    let mut client = stage.client("c");
    client.ack(Kind::Pubrec, 77);
    let code = client.expect_ack(Kind::Pubrel, 77).code;
    assert!(codes_of("PUBREL").contains(&code), "0x{code:02X}");
    assert_acknowledgement_codes(stage, Kind::Pubrel, "PUBREL");
}

fn pubcomp_codes_are_from_its_table(stage: &Stage) {
    let mut client = stage.client("c");
    client.ack(Kind::Pubrel, 77);
    let code = client.expect_ack(Kind::Pubcomp, 77).code;
    assert!(codes_of("PUBCOMP").contains(&code), "0x{code:02X}");
    assert_acknowledgement_codes(stage, Kind::Pubcomp, "PUBCOMP");
}

/// Asserts the codes for publications that the broker takes, that nobody wants, and that it
/// refuses.
fn assert_sent_codes(stage: &Stage, qos: u8) {
    let lawful = codes_of(if qos == 1 { "PUBACK" } else { "PUBREC" });
    let mut client = stage.subscriber("c", "t", 0);
    for (topic, refused) in
        [(stage.topic("t"), false), (stage.topic("nobody"), false), ("$SYS/x".to_owned(), true)]
    {
        let id = client.publish(&crate::support::Message::new(&topic, "x").qos(qos));
        let Packet::Ack(ack) = client.wait_for(answer_to(qos)) else { unreachable!() };
        assert!(lawful.contains(&ack.code) && (ack.code >= 0x80) == refused, "{topic}: {ack:?}");
        client.ack(Kind::Pubrel, id);
        client.wait_for(Kind::Pubcomp);
    }
}

fn disconnect_codes_are_from_its_table(stage: &Stage) {
    let lawful = codes_of("DISCONNECT");
    // The broker's own.
    for (bytes, code) in [(&[0xE1, 0][..], 0x81), (&[0xF0, 0], 0x82), (&[0x36, 0], 0x81)] {
        assert!(lawful.contains(&code));
        stage.assert_disconnected(bytes, &[code], &format!("{bytes:02X?}"));
    }
    // A client's, which end the connection in any case: refused if the broker has a word to say to
    // it.
    for code in 0..=255 {
        let mut client = stage.client("codes");
        client.send(&[0xE0, 1, code]);
        let expected = if lawful.contains(&code) { Fate::Accepted } else { Fate::Refused };
        assert_eq!(fate_of(stage, &mut client, true), expected, "DISCONNECT with 0x{code:02X}");
    }
}

/// The tests of all chapters lean on a reader that refuses codes out of place: it takes those of
/// the table and no others.
#[test]
fn the_reader_knows_the_table_of_reason_codes() {
    let taken = |first: u8, body: &dyn Fn(u8) -> Vec<u8>| -> Vec<u8> {
        let reads = |code: &u8| {
            let body = body(*code);
            std::panic::catch_unwind(|| Packet::read(V5, first, &body, now())).is_ok()
        };
        (0..=255).filter(reads).collect()
    };
    let acknowledgement = |code: u8| vec![0, 1, code];
    for (first, name) in [(0x40, "PUBACK"), (0x50, "PUBREC"), (0x62, "PUBREL"), (0x70, "PUBCOMP")] {
        assert_eq!(taken(first, &acknowledgement), sorted(codes_of(name)), "{name}");
    }
    for (first, name) in [(0x90, "SUBACK"), (0xB0, "UNSUBACK")] {
        assert_eq!(taken(first, &|code| vec![0, 1, 0, code]), sorted(codes_of(name)), "{name}");
    }
    assert_eq!(taken(0x20, &|code| vec![0, code, 0]), sorted(codes_of("CONNACK")));
    // From a server neither the client's 0x04, nor 0x8C, which the table of DISCONNECT itself has
    // not.
    let mut disconnect = sorted(codes_of("DISCONNECT"));
    disconnect.retain(|code| !matches!(code, 0x04 | 0x8C));
    assert_eq!(taken(0xE0, &|code| vec![code]), disconnect);
}

fn sorted(mut codes: Vec<u8>) -> Vec<u8> {
    codes.sort_unstable();
    codes
}
