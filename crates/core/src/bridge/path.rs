//! The brokers that a message has passed: protection against loops over more than two brokers.
//!
//! Each broker has a name. A message that passes a bridge by MQTT 5.0 gets the names of both brokers,
//! each as a User Property `homing-path`. The bridge tells its own name in CONNECT, under the same
//! property, and a Homing tells its name in CONNACK. So a bridge sends no message to a broker that
//! the message has passed, and takes none that has passed its own. A broker that tells no name is
//! left out, so a ring of such brokers and one Homing sees a message twice at most.

use crate::mqtt::codec::{AckKind, property};
use crate::mqtt::packet::{Connack, PacketId, Properties, Property};
use std::collections::HashSet;

/// The name of the User Property.
pub const PROPERTY: &str = "homing-path";

/// The most brokers that a message has passed when it leaves by a bridge or comes by one.
const MOST: usize = 8;

/// The longest name of another broker in bytes.
const NAME: usize = 64;

/// A broker in the path of messages.
#[derive(Clone, Debug)]
pub struct BrokerPath {
    name: Box<str>,
    /// The User Property with the name, encoded.
    encoded: Vec<u8>,
}

impl BrokerPath {
    /// Returns the broker with this name. Returns `None` if no property can have
    /// the name, because it has more than 65,535 bytes or U+0000.
    pub fn of(name: &str) -> Option<BrokerPath> {
        let mut encoded = Vec::new();
        property::put(&mut encoded, Property::UserProperty(PROPERTY, name)).ok()?;
        Some(BrokerPath { name: name.into(), encoded })
    }

    /// Returns the other broker, if its CONNACK has a name of at most 64 bytes.
    pub fn of_connack(connack: &Connack<'_>) -> Option<BrokerPath> {
        let properties = &connack.properties.user_properties;
        let (_, name) = properties.iter().find(|(key, name)| *key == PROPERTY && name.len() <= NAME)?;
        BrokerPath::of(name)
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns true if a message with these properties has passed this broker.
    fn has_passed(&self, properties: Properties<'_>) -> bool {
        names(properties).any(|name| *name == *self.name)
    }
}

/// The bytes by which a message with both names grows at most.
pub fn growth(own: &BrokerPath, there: Option<&BrokerPath>) -> usize {
    own.encoded.len() + there.map_or(0, |there| there.encoded.len())
}

/// The way of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The message passes.
    Open,
    /// The message has passed the broker that it would come to.
    Back,
    /// The message has passed too many brokers.
    TooLong,
}

/// The protection of one connection against loops. The default protects against nothing.
#[derive(Debug, Default)]
pub(super) struct Loops {
    own: Option<BrokerPath>,
    there: Option<BrokerPath>,
    /// The identifiers of messages that came back, until their exchange ends.
    back: HashSet<PacketId>,
}

impl Loops {
    /// Returns the protection of a connection between these two brokers.
    pub(super) fn new(own: BrokerPath, there: Option<BrokerPath>) -> Loops {
        Loops { own: Some(own), there, ..Loops::default() }
    }

    /// Returns the way of a message that would leave.
    pub(super) fn way_out(&self, properties: Properties<'_>) -> Way {
        self.way(properties, self.there.as_ref())
    }

    /// Returns the way of a message that would come in.
    pub(super) fn way_in(&self, properties: Properties<'_>) -> Way {
        self.way(properties, self.own.as_ref())
    }

    fn way(&self, properties: Properties<'_>, to: Option<&BrokerPath>) -> Way {
        if self.own.is_none() || properties.is_empty() {
            return Way::Open;
        }
        if to.is_some_and(|to| to.has_passed(properties)) {
            return Way::Back;
        }
        if names(properties).count() >= MOST { Way::TooLong } else { Way::Open }
    }

    /// Returns the properties of a message that leaves, in their pieces.
    pub(super) fn leaving<'a>(&'a self, properties: Properties<'a>) -> [&'a [u8]; 3] {
        extend([self.own.as_ref(), None], properties)
    }

    /// Returns the properties of a message that comes in, in their pieces.
    pub(super) fn entering<'a>(&'a self, properties: Properties<'a>) -> [&'a [u8]; 3] {
        let there = self.there.as_ref().filter(|_| self.own.is_some());
        extend([there, self.own.as_ref()], properties)
    }

    /// Notes a message that came back. The shard refuses it in its place among the others.
    pub(super) fn note(&mut self, packet_id: Option<PacketId>) {
        self.back.extend(packet_id);
    }

    /// Returns true if the message of an acknowledgement of the shard had come back: then the other
    /// broker gets a positive one, because it has done nothing wrong, and would keep the message as
    /// a dead letter.
    pub(super) fn ends_well(&mut self, kind: AckKind, packet_id: PacketId) -> bool {
        match kind {
            AckKind::Pubrec => self.back.contains(&packet_id),
            AckKind::Puback | AckKind::Pubcomp => self.back.remove(&packet_id),
            AckKind::Pubrel => false,
        }
    }
}

/// Returns the properties, and behind them the names of these brokers, each once.
fn extend<'a>(brokers: [Option<&'a BrokerPath>; 2], properties: Properties<'a>) -> [&'a [u8]; 3] {
    let is_new = |broker: &&BrokerPath| properties.is_empty() || !broker.has_passed(properties);
    let [first, second] =
        brokers.map(|broker| broker.filter(is_new).map_or(&[][..], |broker| &broker.encoded));
    [properties.as_bytes(), first, second]
}

/// Returns the names of the brokers that a message has passed.
fn names<'a>(properties: Properties<'a>) -> impl Iterator<Item = &'a str> {
    property::iter(properties).filter_map(|property| match property {
        Property::UserProperty(PROPERTY, name) => Some(name),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broker(name: &str) -> BrokerPath {
        BrokerPath::of(name).expect("a short name")
    }

    fn path(bytes: &[u8]) -> String {
        names(Properties(bytes)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_message_gets_the_names_of_both_brokers_once_and_does_not_come_back() {
        // Content Type `t`, and a User Property of another name.
        let bytes = b"\x03\0\x01t\x26\0\x01a\0\x02b8";
        let from_a = Loops::new(broker("a"), Some(broker("b")));
        let left = from_a.leaving(Properties(bytes)).concat();
        assert_eq!((path(&left), left.starts_with(bytes)), ("a".to_owned(), true));
        // `b` pulls from `c`, to which `a` has sent the message.
        let at_b = Loops::new(broker("b"), Some(broker("c")));
        assert_eq!(at_b.way_in(Properties(&left)), Way::Open);
        let entered = at_b.entering(Properties(&left)).concat();
        assert_eq!(path(&entered), "a c b");
        assert_eq!(path(&at_b.leaving(Properties(&entered)).concat()), "a c b");
        assert_eq!(from_a.way_out(Properties(&entered)), Way::Back, "to b");
        assert_eq!(from_a.way_in(Properties(&entered)), Way::Back, "to a");
        assert_eq!(Loops::default().way_in(Properties(&entered)), Way::Open);
    }

    #[test]
    fn a_message_passes_eight_brokers() {
        let mut bytes = Vec::new();
        for passed in 0..9 {
            let loops = Loops::new(broker(&format!("b{passed}")), None);
            let expected = if passed < 8 { Way::Open } else { Way::TooLong };
            assert_eq!(loops.way_out(Properties(&bytes)), expected);
            bytes = loops.leaving(Properties(&bytes)).concat();
        }
    }
}
