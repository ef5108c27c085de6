//! 5.0 properties: which may stand where and how often, their types and values, both ways.
//!
//! The table `RULES` is the standard's table of properties; `Scanner` applies it to bytes from a peer.

use super::error::{DecodeError, EncodeError};
use super::primitive::{self, Reader, VARIABLE_BYTE_INTEGER_MAX};
use crate::mqtt::packet::{Properties, Property};
use std::fmt;

/// A place that has properties: a packet, or the will within CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PropertySet {
    Connect,
    Will,
    Connack,
    Publish,
    Puback,
    Pubrec,
    Pubrel,
    Pubcomp,
    Subscribe,
    Suback,
    Unsubscribe,
    Unsuback,
    Disconnect,
    Auth,
}

impl PropertySet {
    pub const ALL: [PropertySet; 14] = [
        PropertySet::Connect,
        PropertySet::Will,
        PropertySet::Connack,
        PropertySet::Publish,
        PropertySet::Puback,
        PropertySet::Pubrec,
        PropertySet::Pubrel,
        PropertySet::Pubcomp,
        PropertySet::Subscribe,
        PropertySet::Suback,
        PropertySet::Unsubscribe,
        PropertySet::Unsuback,
        PropertySet::Disconnect,
        PropertySet::Auth,
    ];

    const fn bit(self) -> u16 {
        1 << self as u8
    }
}

impl fmt::Display for PropertySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PropertySet::Connect => "CONNECT",
            PropertySet::Will => "Will Properties",
            PropertySet::Connack => "CONNACK",
            PropertySet::Publish => "PUBLISH",
            PropertySet::Puback => "PUBACK",
            PropertySet::Pubrec => "PUBREC",
            PropertySet::Pubrel => "PUBREL",
            PropertySet::Pubcomp => "PUBCOMP",
            PropertySet::Subscribe => "SUBSCRIBE",
            PropertySet::Suback => "SUBACK",
            PropertySet::Unsubscribe => "UNSUBSCRIBE",
            PropertySet::Unsuback => "UNSUBACK",
            PropertySet::Disconnect => "DISCONNECT",
            PropertySet::Auth => "AUTH",
        })
    }
}

/// Where a property may stand. Sets are bits of [`PropertySet::bit`].
#[derive(Clone, Copy)]
struct Rule {
    identifier: u8,
    name: &'static str,
    allowed: u16,
    repeatable: u16,
}

const CONNECT: u16 = PropertySet::Connect.bit();
const WILL: u16 = PropertySet::Will.bit();
const CONNACK: u16 = PropertySet::Connack.bit();
const PUBLISH: u16 = PropertySet::Publish.bit();
const SUBSCRIBE: u16 = PropertySet::Subscribe.bit();
const DISCONNECT: u16 = PropertySet::Disconnect.bit();
const AUTH: u16 = PropertySet::Auth.bit();
const ACKNOWLEDGEMENTS: u16 = PropertySet::Puback.bit()
    | PropertySet::Pubrec.bit()
    | PropertySet::Pubrel.bit()
    | PropertySet::Pubcomp.bit();
const REASON_STRING: u16 =
    CONNACK | ACKNOWLEDGEMENTS | PropertySet::Suback.bit() | PropertySet::Unsuback.bit() | DISCONNECT | AUTH;
const ALL: u16 = (1 << PropertySet::ALL.len()) - 1;

const fn once(identifier: u8, name: &'static str, allowed: u16) -> Rule {
    Rule { identifier, name, allowed, repeatable: 0 }
}

const RULES: [Rule; 27] = [
    once(0x01, "Payload Format Indicator", PUBLISH | WILL),
    once(0x02, "Message Expiry Interval", PUBLISH | WILL),
    once(0x03, "Content Type", PUBLISH | WILL),
    once(0x08, "Response Topic", PUBLISH | WILL),
    once(0x09, "Correlation Data", PUBLISH | WILL),
    Rule {
        identifier: 0x0B,
        name: "Subscription Identifier",
        allowed: PUBLISH | SUBSCRIBE,
        repeatable: PUBLISH,
    },
    once(0x11, "Session Expiry Interval", CONNECT | CONNACK | DISCONNECT),
    once(0x12, "Assigned Client Identifier", CONNACK),
    once(0x13, "Server Keep Alive", CONNACK),
    once(0x15, "Authentication Method", CONNECT | CONNACK | AUTH),
    once(0x16, "Authentication Data", CONNECT | CONNACK | AUTH),
    once(0x17, "Request Problem Information", CONNECT),
    once(0x18, "Will Delay Interval", WILL),
    once(0x19, "Request Response Information", CONNECT),
    once(0x1A, "Response Information", CONNACK),
    once(0x1C, "Server Reference", CONNACK | DISCONNECT),
    once(0x1F, "Reason String", REASON_STRING),
    once(0x21, "Receive Maximum", CONNECT | CONNACK),
    once(0x22, "Topic Alias Maximum", CONNECT | CONNACK),
    once(0x23, "Topic Alias", PUBLISH),
    once(0x24, "Maximum QoS", CONNACK),
    once(0x25, "Retain Available", CONNACK),
    Rule { identifier: 0x26, name: "User Property", allowed: ALL, repeatable: ALL },
    once(0x27, "Maximum Packet Size", CONNECT | CONNACK),
    once(0x28, "Wildcard Subscription Available", CONNACK),
    once(0x29, "Subscription Identifier Available", CONNACK),
    once(0x2A, "Shared Subscription Available", CONNACK),
];

/// Identifiers are below this; so a set of them fits a `u64`.
const IDENTIFIERS: usize = 0x2B;

const BY_IDENTIFIER: [Option<Rule>; IDENTIFIERS] = {
    let mut rules = [None; IDENTIFIERS];
    let mut index = 0;
    while index < RULES.len() {
        rules[RULES[index].identifier as usize] = Some(RULES[index]);
        index += 1;
    }
    rules
};

#[inline]
fn rule(identifier: u32) -> Option<&'static Rule> {
    static TABLE: [Option<Rule>; IDENTIFIERS] = BY_IDENTIFIER;
    TABLE.get(identifier as usize)?.as_ref()
}

/// Reads a peer's properties one by one and checks each: known, in its place, not repeated, value legal.
pub(super) struct Scanner<'a> {
    reader: Reader<'a>,
    set: PropertySet,
    /// Bit n: identifier n has been seen.
    seen: u64,
}

impl<'a> Scanner<'a> {
    pub fn new(block: &'a [u8], set: PropertySet) -> Scanner<'a> {
        Scanner { reader: Reader::new(block), set, seen: 0 }
    }

    pub fn next(&mut self) -> Result<Option<Property<'a>>, DecodeError> {
        if self.reader.is_empty() {
            return Ok(None);
        }
        // A variable byte integer by the standard, though all that are defined fit one byte.
        let identifier = self.reader.variable_byte_integer("property identifier")?;
        let set = self.set;
        let rule = rule(identifier).ok_or(DecodeError::UnknownProperty { identifier, set })?;
        if rule.allowed & set.bit() == 0 {
            return Err(DecodeError::PropertyNotAllowed { property: rule.name, set });
        }
        if self.seen & (1 << identifier) != 0 && rule.repeatable & set.bit() == 0 {
            return Err(DecodeError::RepeatedProperty { property: rule.name, set });
        }
        self.seen |= 1 << identifier;
        value(&mut self.reader, rule).map(Some)
    }

    /// Bytes not yet read.
    fn remaining(&self) -> usize {
        self.reader.rest().len()
    }
}

/// Checks a whole block whose properties are wanted only as they are.
pub(super) fn checked(block: &[u8], set: PropertySet) -> Result<Properties<'_>, DecodeError> {
    let mut scanner = Scanner::new(block, set);
    while scanner.next()?.is_some() {}
    Ok(Properties(block))
}

/// The properties in order. Over [`Properties`] that the codec made none is malformed; over others it ends at the first that is.
pub fn iter(properties: Properties<'_>) -> impl Iterator<Item = Property<'_>> {
    let mut reader = Reader::new(properties.0);
    std::iter::from_fn(move || {
        let identifier = reader.byte("property identifier").ok()?;
        value(&mut reader, rule(identifier.into())?).ok()
    })
}

/// Reads the value of the property of `rule`; its type and what it may be.
#[inline]
fn value<'a>(reader: &mut Reader<'a>, rule: &Rule) -> Result<Property<'a>, DecodeError> {
    let name = rule.name;
    Ok(match rule.identifier {
        0x01 => Property::PayloadFormatIndicator(boolean(reader, name)?),
        0x02 => Property::MessageExpiryInterval(reader.four_bytes(name)?),
        // 5.0 [MQTT-3.3.2-19]
        0x03 => Property::ContentType(reader.string(name)?),
        0x08 => Property::ResponseTopic(response_topic(reader, name)?),
        0x09 => Property::CorrelationData(reader.binary(name)?),
        0x0B => Property::SubscriptionIdentifier(non_zero(reader.variable_byte_integer(name)?, name)?),
        0x11 => Property::SessionExpiryInterval(reader.four_bytes(name)?),
        0x12 => Property::AssignedClientIdentifier(reader.string(name)?),
        0x13 => Property::ServerKeepAlive(reader.two_bytes(name)?),
        0x15 => Property::AuthenticationMethod(reader.string(name)?),
        0x16 => Property::AuthenticationData(reader.binary(name)?),
        0x17 => Property::RequestProblemInformation(boolean(reader, name)?),
        0x18 => Property::WillDelayInterval(reader.four_bytes(name)?),
        0x19 => Property::RequestResponseInformation(boolean(reader, name)?),
        0x1A => Property::ResponseInformation(reader.string(name)?),
        0x1C => Property::ServerReference(reader.string(name)?),
        0x1F => Property::ReasonString(reader.string(name)?),
        0x21 => Property::ReceiveMaximum(non_zero(reader.two_bytes(name)?, name)?),
        0x22 => Property::TopicAliasMaximum(reader.two_bytes(name)?),
        0x23 => Property::TopicAlias(topic_alias(reader, name)?),
        0x24 => Property::MaximumQoS(boolean(reader, name)?),
        0x25 => Property::RetainAvailable(boolean(reader, name)?),
        // 5.0 [MQTT-1.5.7-1]
        0x26 => Property::UserProperty(reader.string(name)?, reader.string(name)?),
        0x27 => Property::MaximumPacketSize(non_zero(reader.four_bytes(name)?, name)?),
        0x28 => Property::WildcardSubscriptionAvailable(boolean(reader, name)?),
        0x29 => Property::SubscriptionIdentifierAvailable(boolean(reader, name)?),
        // The last of the table: a rule exists for no other identifier.
        _ => Property::SharedSubscriptionAvailable(boolean(reader, name)?),
    })
}

fn boolean(reader: &mut Reader<'_>, property: &'static str) -> Result<u8, DecodeError> {
    match reader.byte(property)? {
        value @ 0..=1 => Ok(value),
        value => Err(DecodeError::PropertyNotBoolean { property, value }),
    }
}

fn non_zero<T: PartialEq + Default>(value: T, property: &'static str) -> Result<T, DecodeError> {
    if value == T::default() { Err(DecodeError::PropertyZero { property }) } else { Ok(value) }
}

fn topic_alias(reader: &mut Reader<'_>, property: &'static str) -> Result<u16, DecodeError> {
    match reader.two_bytes(property)? {
        // 5.0 [MQTT-3.3.2-8]
        0 => Err(DecodeError::TopicAliasZero),
        alias => Ok(alias),
    }
}

fn response_topic<'a>(reader: &mut Reader<'a>, property: &'static str) -> Result<&'a str, DecodeError> {
    // 5.0 [MQTT-3.3.2-13], [MQTT-3.3.2-14]
    let topic = reader.string(property)?;
    if primitive::is_topic_name(topic) { Ok(topic) } else { Err(DecodeError::ResponseTopic) }
}

/// Gathers the properties of a PUBLISH or a will that travel unchanged: the slice of the block as long as they stand
/// side by side, a copy once another stood between them.
pub(super) struct Forwarded<'a> {
    block: &'a [u8],
    /// End of what the scanner has read.
    read: usize,
    run: std::ops::Range<usize>,
    /// Empty unless there is more than one run.
    copy: Vec<u8>,
}

impl<'a> Forwarded<'a> {
    pub fn new(block: &'a [u8]) -> Forwarded<'a> {
        Forwarded { block, read: 0, run: 0..0, copy: Vec::new() }
    }

    /// The property the scanner has just read is not forwarded.
    pub fn skip(&mut self, scanner: &Scanner<'a>) {
        self.read = self.block.len() - scanner.remaining();
    }

    /// The property the scanner has just read is forwarded.
    pub fn keep(&mut self, scanner: &Scanner<'a>) {
        let start = self.read;
        self.skip(scanner);
        if self.run.is_empty() {
            self.run = start..self.read;
        } else if self.copy.is_empty() && self.run.end == start {
            self.run.end = self.read;
        } else {
            if self.copy.is_empty() {
                self.copy.extend_from_slice(self.run());
            }
            self.copy.extend_from_slice(self.block.get(start..self.read).unwrap_or(&[]));
        }
    }

    fn run(&self) -> &'a [u8] {
        self.block.get(self.run.clone()).unwrap_or(&[])
    }

    pub fn finish(self) -> std::borrow::Cow<'a, [u8]> {
        if self.copy.is_empty() { self.run().into() } else { self.copy.into() }
    }
}

/// Appends a property: its identifier and its value.
pub fn put(out: &mut Vec<u8>, property: Property<'_>) -> Result<(), EncodeError> {
    let identifier = identifier(property);
    let name = rule(identifier.into()).map_or("property", |rule| rule.name);
    out.push(identifier);
    match property {
        Property::PayloadFormatIndicator(value)
        | Property::RequestProblemInformation(value)
        | Property::RequestResponseInformation(value)
        | Property::MaximumQoS(value)
        | Property::RetainAvailable(value)
        | Property::WildcardSubscriptionAvailable(value)
        | Property::SubscriptionIdentifierAvailable(value)
        | Property::SharedSubscriptionAvailable(value) => out.push(value),
        Property::ServerKeepAlive(value)
        | Property::ReceiveMaximum(value)
        | Property::TopicAliasMaximum(value)
        | Property::TopicAlias(value) => out.extend_from_slice(&value.to_be_bytes()),
        Property::MessageExpiryInterval(value)
        | Property::SessionExpiryInterval(value)
        | Property::WillDelayInterval(value)
        | Property::MaximumPacketSize(value) => out.extend_from_slice(&value.to_be_bytes()),
        Property::SubscriptionIdentifier(value) => {
            if !(1..=VARIABLE_BYTE_INTEGER_MAX).contains(&value) {
                return Err(EncodeError::VariableByteInteger { field: name, value });
            }
            primitive::put_variable_byte_integer(out, value);
        }
        Property::ContentType(text)
        | Property::ResponseTopic(text)
        | Property::AssignedClientIdentifier(text)
        | Property::AuthenticationMethod(text)
        | Property::ResponseInformation(text)
        | Property::ServerReference(text)
        | Property::ReasonString(text) => primitive::put_string(out, text, name)?,
        Property::CorrelationData(bytes) | Property::AuthenticationData(bytes) => {
            primitive::put_binary(out, bytes, name)?;
        }
        Property::UserProperty(key, value) => {
            primitive::put_string(out, key, name)?;
            primitive::put_string(out, value, name)?;
        }
    }
    Ok(())
}

/// Appends a property that may be absent.
pub(super) fn put_some<'a, T>(
    out: &mut Vec<u8>,
    value: Option<T>,
    property: impl FnOnce(T) -> Property<'a>,
) -> Result<(), EncodeError> {
    value.map_or(Ok(()), |value| put(out, property(value)))
}

pub(super) fn put_user_properties(out: &mut Vec<u8>, pairs: &[(&str, &str)]) -> Result<(), EncodeError> {
    pairs.iter().try_for_each(|&(key, value)| put(out, Property::UserProperty(key, value)))
}

/// Appends a property set, its length in front.
pub(super) fn put_block(
    out: &mut Vec<u8>,
    put_properties: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    // 5.0 [MQTT-2.2.2-1]: without properties the length is written all the same
    primitive::put_prefixed(out, put_properties, |length| EncodeError::PropertiesTooLong { length })
}

/// Appends properties that are encoded already, their length in front.
pub(super) fn put_encoded(out: &mut Vec<u8>, properties: Properties<'_>) -> Result<(), EncodeError> {
    put_block(out, |out| {
        out.extend_from_slice(properties.0);
        Ok(())
    })
}

const fn identifier(property: Property<'_>) -> u8 {
    match property {
        Property::PayloadFormatIndicator(_) => 0x01,
        Property::MessageExpiryInterval(_) => 0x02,
        Property::ContentType(_) => 0x03,
        Property::ResponseTopic(_) => 0x08,
        Property::CorrelationData(_) => 0x09,
        Property::SubscriptionIdentifier(_) => 0x0B,
        Property::SessionExpiryInterval(_) => 0x11,
        Property::AssignedClientIdentifier(_) => 0x12,
        Property::ServerKeepAlive(_) => 0x13,
        Property::AuthenticationMethod(_) => 0x15,
        Property::AuthenticationData(_) => 0x16,
        Property::RequestProblemInformation(_) => 0x17,
        Property::WillDelayInterval(_) => 0x18,
        Property::RequestResponseInformation(_) => 0x19,
        Property::ResponseInformation(_) => 0x1A,
        Property::ServerReference(_) => 0x1C,
        Property::ReasonString(_) => 0x1F,
        Property::ReceiveMaximum(_) => 0x21,
        Property::TopicAliasMaximum(_) => 0x22,
        Property::TopicAlias(_) => 0x23,
        Property::MaximumQoS(_) => 0x24,
        Property::RetainAvailable(_) => 0x25,
        Property::UserProperty(..) => 0x26,
        Property::MaximumPacketSize(_) => 0x27,
        Property::WildcardSubscriptionAvailable(_) => 0x28,
        Property::SubscriptionIdentifierAvailable(_) => 0x29,
        Property::SharedSubscriptionAvailable(_) => 0x2A,
    }
}
