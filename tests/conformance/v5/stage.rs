//! One test's corner of a broker that all share: client identifiers and topics that nobody else
//! uses, and the few assertions that most tests end in.

use crate::harness::Target;
use crate::support::wire::{self, Put};
use crate::support::{Connect, Kind, Message, Packet, Property, RawClient, V5, V311, Will};
use homing::config::Config;
use std::io::{ErrorKind, Read};
use std::time::Duration;

pub const MALFORMED: u8 = 0x81;
pub const PROTOCOL_ERROR: u8 = 0x82;
/// Where the standard names no code: a Malformed Packet is a Protocol Error to some.
pub const EITHER: &[u8] = &[MALFORMED, PROTOCOL_ERROR];

/// A [`Target`] that is spoken to in 5.0.
pub struct Stage<'a>(&'a Target);

impl<'a> Stage<'a> {
    pub fn of(target: &'a Target) -> Stage<'a> {
        Stage(target)
    }

    pub fn target(&self) -> &Target {
        self.0
    }

    /// A broker for this test alone, with other settings.
    pub fn configured(&self, configure: impl FnOnce(&mut Config)) -> Target {
        self.0.configured(configure)
    }

    /// A broker for this test alone, with the defaults.
    pub fn alone(&self) -> Target {
        self.0.alone()
    }

    pub fn ack_wait(&self) -> Duration {
        self.0.ack_wait()
    }

    /// A client identifier of this test; letters and digits alone.
    pub fn id(&self, name: &str) -> String {
        self.0.id(name)
    }

    /// A topic name or topic filter of this test.
    pub fn topic(&self, name: &str) -> String {
        self.0.topic(name)
    }

    /// A CONNECT whose session ends with its connection.
    pub fn passing(&self, name: &str) -> Connect {
        Connect::new(V5, &self.id(name))
    }

    /// A CONNECT that takes up its session, which outlives the connection.
    pub fn lasting(&self, name: &str) -> Connect {
        Connect::persistent(V5, &self.id(name))
    }

    /// A connection on which nothing has been said.
    pub fn open(&self) -> RawClient {
        self.0.open(V5)
    }

    /// Accepted.
    pub fn connect(&self, connect: &Connect) -> RawClient {
        self.0.connect(connect)
    }

    /// Accepted and served: what a test with a "must not" begins with.
    pub fn client(&self, name: &str) -> RawClient {
        self.served(&self.passing(name))
    }

    pub fn served(&self, connect: &Connect) -> RawClient {
        let mut client = self.connect(connect);
        client.settle();
        client
    }

    /// Served, and subscribed to a filter of this test at a QoS, or with any other options.
    pub fn subscriber(&self, name: &str, filter: &str, options: u8) -> RawClient {
        let mut client = self.client(name);
        assert_eq!(client.subscribe(&[(&self.topic(filter), options)]), [options & 3]);
        client
    }

    /// A message on a topic of this test.
    pub fn message(&self, topic: &str, payload: impl AsRef<[u8]>) -> Message {
        Message::new(self.topic(topic), payload)
    }

    pub fn will(&self, topic: &str, payload: &str) -> Will {
        Will::new(self.topic(topic), payload).qos(1)
    }

    /// Publishes from a connection of its own, to the end of the handshake.
    pub fn deliver(&self, message: &Message) -> u8 {
        let mut publisher = self.client("publisher");
        let code = publisher.deliver(message);
        publisher.disconnect();
        code
    }

    /// A client of 3.1.1, with a session that outlives its connection.
    pub fn older(&self, name: &str) -> RawClient {
        self.0.persistent(V311, name)
    }

    /// Returns the texts that a new subscriber finds retained on a topic of this test.
    pub fn retained(&self, topic: &str) -> Vec<String> {
        let mut reader = self.client("reader");
        reader.subscribe(&[(&self.topic(topic), 0)]);
        let texts = reader.drain().iter().map(|publish| publish.text().to_owned()).collect();
        reader.disconnect();
        texts
    }

    /// Publishes a marker and takes it: nothing else may have come to the subscriber before it.
    pub fn assert_nothing_came(&self, subscriber: &mut RawClient, topic: &str) {
        self.deliver(&self.message(topic, "marker").qos(1));
        let publish = subscriber.expect_publish();
        assert_eq!(publish.text(), "marker", "{publish:?}");
        subscriber.complete(&publish);
    }

    /// These bytes in place of a CONNECT are refused: closed, after a CONNACK with one of `codes`
    /// or after nothing.
    pub fn assert_refused(&self, bytes: &[u8], codes: &[u8], why: &str) {
        let mut client = self.open();
        client.send(bytes);
        match client.read_to_end().as_slice() {
            [] => {}
            [Packet::Connack(connack)] => {
                assert!(codes.contains(&connack.code), "{why}: {connack:?}");
                assert!(!connack.session_present, "{why}: {connack:?}");
            }
            other => panic!("{why}: {other:?}"),
        }
    }

    /// Asserts that these bytes of a connected client are answered by a DISCONNECT with one of
    /// `codes`.
    pub fn assert_disconnected(&self, bytes: &[u8], codes: &[u8], why: &str) {
        let mut client = self.client("violator");
        client.send(bytes);
        assert_reason(&mut client, codes, why);
    }
}

/// The connection ends with a DISCONNECT that names one of `codes`. The standard demands the close
/// and advises the reason (4.13); this broker always sends it.
pub fn assert_reason(client: &mut RawClient, codes: &[u8], why: &str) {
    let reason = client.expect_closed();
    assert!(
        reason.is_some_and(|code| codes.contains(&code)),
        "{why}: {reason:02X?} is not one of {codes:02X?}"
    );
}

/// Everything said until the close, in whatever format a broker chooses for a client it does not
/// know.
pub fn last_words(stage: &Stage, bytes: &[u8]) -> Vec<u8> {
    let (mut client, mut said) = (stage.open(), Vec::new());
    client.send(bytes);
    client.stream().set_read_timeout(Some(stage.ack_wait())).expect("a read timeout");
    match client.stream().read_to_end(&mut said) {
        Err(e) if e.kind() != ErrorKind::ConnectionReset => panic!("not closed: {e}; {said:02X?}"),
        _ => said,
    }
}

/// Two bytes of length and the bytes.
pub fn string(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_binary(bytes.as_ref());
    out
}

/// A property set of raw bytes with its length in front.
pub fn property_set(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_varint(u32::try_from(raw.len()).expect("a short set"));
    out.extend_from_slice(raw);
    out
}

/// A packet from its first byte and the parts of its body.
pub fn packet(first: u8, parts: &[&[u8]]) -> Vec<u8> {
    wire::packet(first, &parts.concat())
}

/// A CONNECT from its flags, its raw properties and the parts of its payload.
pub fn connect_packet(flags: u8, properties: &[u8], payload: &[&[u8]]) -> Vec<u8> {
    let head = [string("MQTT"), vec![5, flags, 0, 60], property_set(properties)].concat();
    packet(0x10, &[&head, &payload.concat()])
}

/// A PUBLISH at QoS 0 with raw properties.
pub fn publish_packet(topic: &str, properties: &[u8]) -> Vec<u8> {
    packet(0x30, &[&string(topic), &property_set(properties)])
}

/// An UNSUBSCRIBE from its raw properties and filters.
pub fn unsubscribe_packet(id: u16, properties: &[u8], filters: &[&[u8]]) -> Vec<u8> {
    let filters: Vec<Vec<u8>> = filters.iter().map(string).collect();
    packet(0xA2, &[&id.to_be_bytes(), &property_set(properties), &filters.concat()])
}

/// The value of one property.
pub fn find<T>(properties: &[Property], value: impl Fn(&Property) -> Option<T>) -> Option<T> {
    properties.iter().find_map(value)
}

/// The acknowledgement that answers a PUBLISH of this QoS.
pub fn answer_to(qos: u8) -> Kind {
    if qos == 1 { Kind::Puback } else { Kind::Pubrec }
}
