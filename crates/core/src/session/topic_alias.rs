//! Topic Aliases (5.0) in both directions. Aliases end with their connection [MQTT-3.3.2-7].

use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::mqtt::keyed::Keyed;
use crate::mqtt::packet::ReasonCode;
use crate::session::violation::Violation;
use hashbrown::HashMap;
use std::num::NonZeroU16;

/// Aliases that the client has set.
#[derive(Debug)]
pub struct IncomingAliases {
    topics: Vec<Option<Box<str>>>,
    maximum: u16,
    /// Bytes of all topics.
    bytes: usize,
    charge: Charge,
}

impl IncomingAliases {
    /// Creates an empty table. `maximum` is the Topic Alias Maximum of CONNACK. Memory grows with
    /// the highest alias in use.
    pub fn new(maximum: u16) -> IncomingAliases {
        IncomingAliases { topics: Vec::new(), maximum, bytes: 0, charge: Charge::NONE }
    }

    /// Applies the alias of a PUBLISH. If the packet has a Topic Name, the alias refers to this
    /// name from now on, and the result is `None`. Otherwise returns the Topic Name of the alias.
    ///
    /// # Errors
    /// [`Violation`] if the alias exceeds the maximum, or has no Topic Name.
    // 5.0 [MQTT-3.3.2-8], [MQTT-3.3.2-9]
    pub fn resolve(&mut self, alias: NonZeroU16, topic: &str) -> Result<Option<&str>, Violation> {
        const UNSET: Violation = Violation {
            reason: ReasonCode::PROTOCOL_ERROR,
            what: "a Topic Alias that was never set on this connection",
        };
        if topic.is_empty() {
            return self.topic(alias)?.ok_or(UNSET).map(Some);
        }
        self.set(alias, topic)?;
        Ok(None)
    }

    /// True if [`Self::resolve`] will need more memory: for an alias that is new, or whose topic
    /// becomes longer.
    ///
    /// # Errors
    /// [`Violation`] if the alias exceeds the maximum.
    pub fn grow(&self, alias: NonZeroU16, topic: &str) -> Result<bool, Violation> {
        Ok(topic.len() > self.topic(alias)?.map_or(0, str::len))
    }

    /// Sets the topic of an alias.
    // 5.0 [MQTT-3.3.2-12]
    fn set(&mut self, alias: NonZeroU16, topic: &str) -> Result<(), Violation> {
        self.check(alias)?;
        let at = usize::from(alias.get()) - 1;
        if self.topics.len() <= at {
            self.topics.resize_with(at + 1, || None);
        }
        if let Some(slot) = self.topics.get_mut(at)
            && slot.as_deref() != Some(topic)
        {
            let replaced = slot.replace(topic.into()).map_or(0, |old| old.len());
            self.bytes = self.bytes + topic.len() - replaced;
            self.charge.set(self.bytes + self.topics.capacity() * size_of::<Option<Box<str>>>());
        }
        Ok(())
    }

    /// Errors: the alias exceeds the maximum.
    // 5.0 [MQTT-3.2.2-17], [MQTT-3.2.2-18], [MQTT-3.3.2-9]
    fn check(&self, alias: NonZeroU16) -> Result<(), Violation> {
        let what = "a Topic Alias above Topic Alias Maximum";
        let is_within = alias.get() <= self.maximum;
        is_within.then_some(()).ok_or(Violation { reason: ReasonCode::TOPIC_ALIAS_INVALID, what })
    }

    /// Returns the topic of an alias; `Ok(None)` if the alias is within the maximum but was never
    /// set.
    fn topic(&self, alias: NonZeroU16) -> Result<Option<&str>, Violation> {
        self.check(alias)?;
        Ok(self.topics.get(usize::from(alias.get()) - 1).and_then(|t| t.as_deref()))
    }
}

/// Aliases that the broker sets for a client: the first topics that the client is sent, up to its
/// maximum.
#[derive(Debug)]
pub struct OutgoingAliases {
    topics: HashMap<Box<str>, NonZeroU16, Keyed>,
    maximum: u16,
    charge: Charge,
}

/// Bytes of an alias beside its topic: its place in a table that is half full.
const ALIAS: usize = 64;

/// The way in which a PUBLISH names its topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// By the Topic Name alone.
    Topic,
    /// By the Topic Name, to which the alias refers from now on.
    TopicSettingAlias(NonZeroU16),
    /// By the alias alone.
    Alias(NonZeroU16),
}

/// Aliases for one client at most. A client may allow 65,535; this bounds the cost.
const MOST_OUTGOING: u16 = 64;

/// Bytes that an alias adds to a PUBLISH: its identifier and its number. A topic of so many bytes, or
/// fewer, gets no alias. So a PUBLISH by an alias alone is never longer than one by its topic, even
/// if the alias makes the length of the properties take one byte more.
const ALIAS_PROPERTY: usize = 3;

/// Bytes of aliased topics for one client at most, because one topic may have 65,535 bytes.
const MOST_OUTGOING_BYTES: usize = 16 * 1024;

impl Recount for IncomingAliases {
    fn recount(&self) -> Recounted {
        let topics = self.topics.iter().flatten().map(|topic| topic.len()).sum::<usize>();
        let in_use = topics + self.topics.capacity() * size_of::<Option<Box<str>>>();
        Recounted { in_use, charged: self.charge.bytes() }
    }
}

impl Recount for OutgoingAliases {
    fn recount(&self) -> Recounted {
        let in_use = self.topics.keys().map(|topic| topic.len() + ALIAS).sum();
        Recounted { in_use, charged: self.charge.bytes() }
    }
}

impl OutgoingAliases {
    /// Creates an empty table for a client with this Topic Alias Maximum.
    // 5.0 [MQTT-3.1.2-26], [MQTT-3.1.2-27], [MQTT-3.3.2-11]
    pub fn new(maximum: u16) -> OutgoingAliases {
        OutgoingAliases {
            topics: HashMap::default(),
            maximum: maximum.min(MOST_OUTGOING),
            charge: Charge::NONE,
        }
    }

    /// Returns how the next PUBLISH names this topic. Call [`Self::is_set`] once a packet that sets
    /// an alias is written.
    pub fn name(&self, topic: &str) -> Naming {
        if let Some(alias) = self.topics.get(topic) {
            return Naming::Alias(*alias);
        }
        match NonZeroU16::new(self.topics.len() as u16 + 1) {
            Some(alias) if alias.get() <= self.maximum && self.fits(topic) => {
                Naming::TopicSettingAlias(alias)
            }
            _ => Naming::Topic,
        }
    }

    fn fits(&self, topic: &str) -> bool {
        topic.len() > ALIAS_PROPERTY && self.charge.bytes() + topic.len() + ALIAS <= MOST_OUTGOING_BYTES
    }

    /// Records that a packet which sets the alias is written.
    pub fn is_set(&mut self, topic: &str, alias: NonZeroU16) {
        self.topics.insert(topic.into(), alias);
        self.charge.add(topic.len() + ALIAS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alias(n: u16) -> NonZeroU16 {
        NonZeroU16::new(n).unwrap_or(NonZeroU16::MIN)
    }

    // 5.0 [MQTT-3.3.2-12]
    #[test]
    fn every_alias_up_to_the_maximum_is_taken_and_none_beyond() {
        let mut a = IncomingAliases::new(2);
        assert_eq!(a.set(alias(2), "x"), Ok(()));
        assert_eq!(a.topic(alias(2)), Ok(Some("x")));
        assert_eq!(a.topic(alias(1)), Ok(None));
        assert!(a.set(alias(3), "x").is_err() && a.topic(alias(3)).is_err());
        assert_eq!(a.set(alias(2), "y"), Ok(()));
        assert_eq!(a.topic(alias(2)), Ok(Some("y")));
    }

    // 5.0 [MQTT-3.3.2-8]
    #[test]
    fn an_alias_stands_for_its_last_topic_and_for_none_before_it_is_set() {
        let mut a = IncomingAliases::new(2);
        let reason = |v: Violation| v.reason;
        assert_eq!(a.resolve(alias(1), "").map_err(reason), Err(ReasonCode::PROTOCOL_ERROR));
        assert_eq!(a.resolve(alias(3), "").map_err(reason), Err(ReasonCode::TOPIC_ALIAS_INVALID));
        assert_eq!(a.resolve(alias(3), "x").map_err(reason), Err(ReasonCode::TOPIC_ALIAS_INVALID));
        for topic in ["x", "yy"] {
            assert_eq!(a.resolve(alias(1), topic), Ok(None));
            assert_eq!(a.resolve(alias(1), ""), Ok(Some(topic)));
        }
    }

    #[test]
    fn an_alias_needs_memory_when_it_is_new_or_its_topic_becomes_longer() {
        let mut a = IncomingAliases::new(2);
        assert_eq!((a.grow(alias(1), "x"), a.grow(alias(1), "")), (Ok(true), Ok(false)));
        assert_eq!(a.resolve(alias(1), "xx"), Ok(None));
        for (number, topic, grows) in [(1, "x", false), (1, "yy", false), (1, "xxx", true), (2, "x", true)] {
            assert_eq!(a.grow(alias(number), topic), Ok(grows), "{number} {topic}");
        }
        assert!(a.grow(alias(3), "x").is_err(), "above the maximum");
    }

    #[test]
    fn long_topics_that_a_client_is_sent_take_a_bounded_part_of_the_memory() {
        let mut a = OutgoingAliases::new(u16::MAX);
        for n in 0..100 {
            let topic = format!("{n}/{}", "x".repeat(60_000));
            if let Naming::TopicSettingAlias(alias) = a.name(&topic) {
                a.is_set(&topic, alias);
            }
        }
        assert!(a.recount().in_use <= MOST_OUTGOING_BYTES);
        assert!(matches!(a.name("short"), Naming::TopicSettingAlias(_)));
    }

    // 5.0 [MQTT-3.1.2-26]
    #[test]
    fn no_alias_is_sent_beyond_what_the_client_allows() {
        let mut a = OutgoingAliases::new(1);
        assert_eq!(a.name("long"), Naming::TopicSettingAlias(alias(1)));
        a.is_set("long", alias(1));
        assert_eq!(a.name("long"), Naming::Alias(alias(1)));
        assert_eq!(a.name("other"), Naming::Topic);
        assert_eq!(OutgoingAliases::new(0).name("long"), Naming::Topic);
    }

    #[test]
    fn a_topic_that_is_no_longer_than_its_alias_gets_none() {
        let a = OutgoingAliases::new(1);
        for topic in ["t", "tt", "ttt"] {
            assert_eq!(a.name(topic), Naming::Topic);
        }
        assert_eq!(a.name("tttt"), Naming::TopicSettingAlias(alias(1)));
    }
}
