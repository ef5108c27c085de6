//! The properties of 5.0: their places, types and values, for decoding and encoding.
//!
//! `RULES` is the standard's table of properties. `Scanner` applies the table to bytes from a peer.

use super::error::{DecodeError, EncodeError};
use super::primitive::{self, ByteReader, VARIABLE_BYTE_INTEGER_MAX};
pub use super::property_set::PropertySet;
use crate::mqtt::packet::{Properties, Property};
use crate::mqtt::topic::is_topic_name;

/// The places of one property. Sets have bits of [`PropertySet::bit`].
#[derive(Clone, Copy)]
struct PropertyRule {
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

const fn once(identifier: u8, name: &'static str, allowed: u16) -> PropertyRule {
    PropertyRule { identifier, name, allowed, repeatable: 0 }
}

const RULES: [PropertyRule; 27] = [
    once(0x01, "Payload Format Indicator", PUBLISH | WILL),
    once(0x02, "Message Expiry Interval", PUBLISH | WILL),
    once(0x03, "Content Type", PUBLISH | WILL),
    once(0x08, "Response Topic", PUBLISH | WILL),
    once(0x09, "Correlation Data", PUBLISH | WILL),
    PropertyRule {
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
    PropertyRule { identifier: 0x26, name: "User Property", allowed: ALL, repeatable: ALL },
    once(0x27, "Maximum Packet Size", CONNECT | CONNACK),
    once(0x28, "Wildcard Subscription Available", CONNACK),
    once(0x29, "Subscription Identifier Available", CONNACK),
    once(0x2A, "Shared Subscription Available", CONNACK),
];

/// All identifiers are below this number, so a set of them fits a `u64`.
const IDENTIFIERS: usize = 0x2B;

const BY_IDENTIFIER: [Option<PropertyRule>; IDENTIFIERS] = {
    let mut rules = [None; IDENTIFIERS];
    let mut index = 0;
    while index < RULES.len() {
        rules[RULES[index].identifier as usize] = Some(RULES[index]);
        index += 1;
    }
    rules
};

#[inline]
fn rule(identifier: u32) -> Option<&'static PropertyRule> {
    static TABLE: [Option<PropertyRule>; IDENTIFIERS] = BY_IDENTIFIER;
    TABLE.get(identifier as usize)?.as_ref()
}

/// Largest number of properties in one place of a packet. 2 MiB of the smallest ones, which are
/// 400,000 to 1,000,000, take 6 to 12 ms to decode. So many take 2 ms at most, within one turn.
const MOST_PROPERTIES: u32 = 65_535;

/// Reads the properties of a peer one by one. Checks that each is known, allowed in its place, not
/// repeated and has a legal value, and that there are not too many.
pub(super) struct Scanner<'a> {
    reader: ByteReader<'a>,
    set: PropertySet,
    /// Bit n is set if identifier n was read.
    seen: u64,
    /// Number of properties that may follow.
    left: u32,
}

impl<'a> Scanner<'a> {
    /// Starts at the front of `block`, the properties of `set` without the length in front.
    pub(super) fn new(block: &'a [u8], set: PropertySet) -> Scanner<'a> {
        Scanner { reader: ByteReader::new(block), set, seen: 0, left: MOST_PROPERTIES }
    }

    /// Returns the next property; `None` at the end.
    ///
    /// # Errors
    /// Returns an error for a property that breaks a rule of the standard.
    pub(super) fn next(&mut self) -> Result<Option<Property<'a>>, DecodeError> {
        if self.reader.is_empty() {
            return Ok(None);
        }
        // The standard makes the identifier a variable byte integer, though all defined ones fit
        // one byte.
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
        self.left = self
            .left
            .checked_sub(1)
            .ok_or(DecodeError::TooManyProperties { set, maximum: MOST_PROPERTIES })?;
        value(&mut self.reader, rule).map(Some)
    }

    /// Returns the number of bytes that were not read yet.
    fn remaining(&self) -> usize {
        self.reader.rest().len()
    }
}

/// Checks a block of properties without looking at their values, and returns the block.
pub(super) fn checked(block: &[u8], set: PropertySet) -> Result<Properties<'_>, DecodeError> {
    let mut scanner = Scanner::new(block, set);
    while scanner.next()?.is_some() {}
    Ok(Properties(block))
}

/// Returns the properties in their order.
///
/// In [`Properties`] from the codec every property is well formed. In others the iteration ends at
/// the first malformed one.
pub fn iter(properties: Properties<'_>) -> impl Iterator<Item = Property<'_>> {
    let mut reader = ByteReader::new(properties.0);
    std::iter::from_fn(move || {
        let identifier = reader.byte("property identifier").ok()?;
        value(&mut reader, rule(identifier.into())?).ok()
    })
}

/// Reads the value of the property of `rule`, and checks its type and range.
#[inline]
fn value<'a>(reader: &mut ByteReader<'a>, rule: &PropertyRule) -> Result<Property<'a>, DecodeError> {
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
        // 0x2A. A test checks that every other rule has an arm of its own.
        _ => Property::SharedSubscriptionAvailable(boolean(reader, name)?),
    })
}

fn boolean(reader: &mut ByteReader<'_>, property: &'static str) -> Result<u8, DecodeError> {
    match reader.byte(property)? {
        value @ 0..=1 => Ok(value),
        value => Err(DecodeError::PropertyNotBoolean { property, value }),
    }
}

fn non_zero<T: PartialEq + Default>(value: T, property: &'static str) -> Result<T, DecodeError> {
    if value == T::default() { Err(DecodeError::PropertyZero { property }) } else { Ok(value) }
}

fn topic_alias(reader: &mut ByteReader<'_>, property: &'static str) -> Result<u16, DecodeError> {
    match reader.two_bytes(property)? {
        // 5.0 [MQTT-3.3.2-8]
        0 => Err(DecodeError::TopicAliasZero),
        alias => Ok(alias),
    }
}

fn response_topic<'a>(reader: &mut ByteReader<'a>, property: &'static str) -> Result<&'a str, DecodeError> {
    // 5.0 [MQTT-3.3.2-13], [MQTT-3.3.2-14]
    let topic = reader.string(property)?;
    if is_topic_name(topic) { Ok(topic) } else { Err(DecodeError::ResponseTopic) }
}

/// Collects the properties of a PUBLISH or a will that are forwarded unchanged.
///
/// The result is a slice of the block while these properties are adjacent, and a copy otherwise.
pub(super) struct Forwarded<'a> {
    block: &'a [u8],
    /// The end of the last property that the scanner read.
    read: usize,
    run: std::ops::Range<usize>,
    /// Empty while there is only one run of properties.
    copy: Vec<u8>,
}

impl<'a> Forwarded<'a> {
    /// Starts with nothing collected from `block`.
    pub(super) fn new(block: &'a [u8]) -> Forwarded<'a> {
        Forwarded { block, read: 0, run: 0..0, copy: Vec::new() }
    }

    /// Skips the property that the scanner has just read.
    pub(super) fn skip(&mut self, scanner: &Scanner<'a>) {
        self.read = self.block.len() - scanner.remaining();
    }

    /// Collects the property that the scanner has just read.
    pub(super) fn keep(&mut self, scanner: &Scanner<'a>) {
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

    /// Returns the encoded properties that were collected.
    pub(super) fn finish(self) -> std::borrow::Cow<'a, [u8]> {
        if self.copy.is_empty() { self.run().into() } else { self.copy.into() }
    }
}

/// Appends a property: its identifier and its value.
///
/// # Errors
/// Returns an error if a string or binary value has more than 65,535 bytes, or if a Subscription
/// Identifier is out of range. Then `out` has a part of the property.
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

/// Appends a property set with its length in front.
pub(super) fn put_block(
    out: &mut Vec<u8>,
    put_properties: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    // 5.0 [MQTT-2.2.2-1]: a set without properties has a length too
    primitive::put_prefixed(out, put_properties, |length| EncodeError::PropertiesTooLong { length })
}

/// Appends properties that are already encoded, with their length in front.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_of_every_rule_is_read_as_its_own_property() {
        for rule in &RULES {
            // Legal for every type: a small number, a string of one character, or 1.
            let examples: [&[u8]; 5] = [&[1], &[0, 1], &[0, 0, 0, 1], b"\0\x01a", b"\0\x01a\0\x01b"];
            let reads = |example: &&[u8]| {
                let mut reader = ByteReader::new(example);
                let property = value(&mut reader, rule).ok()?;
                reader.is_empty().then(|| identifier(property))
            };
            let found: Vec<u8> = examples.iter().filter_map(reads).collect();
            assert!(
                !found.is_empty() && found.iter().all(|i| *i == rule.identifier),
                "{}: {found:?}",
                rule.name
            );
        }
    }
}
