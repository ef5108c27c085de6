//! The mount point of a listener: a prefix that the topics of its clients have inside the broker.
//!
//! A client never sees the prefix. The prefix is added to incoming Topic Names and Topic Filters,
//! and removed from outgoing Topic Names. So the clients of a listener reach only the topics below
//! its mount point.
//!
//! ```text
//! the client says      inside the broker, behind the mount point "tenant/"
//! a/b                  tenant/a/b
//! #                    tenant/#
//! $share/g/a/+         $share/g/tenant/a/+
//! $SYS/#               tenant/$SYS/#, which nothing is published to
//! ```
//!
//! One topic is the same on both sides: that of the granted redelivery time, which each client has
//! of its own. The shard decides about PUBLISH packets to topics that begin with `$`.

use crate::mqtt::topic::{TopicFilter, is_topic_name, without_share};
use crate::session::granted_topic::GRANTED_TOPIC;
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// The longest mount point in bytes.
const LONGEST: usize = 256;

/// The longest Topic Name in bytes: its length is a 16-bit number in a packet.
const LONGEST_TOPIC: usize = 65_535;

/// The mount point of a listener. The text is a Topic Name that ends with a slash and does not
/// begin with a `$`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountPoint(Box<str>);

/// The text is no mount point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidMountPoint;

/// The topic is longer than a Topic Name may be, with the mount point before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicTooLong;

impl FromStr for MountPoint {
    type Err = InvalidMountPoint;

    fn from_str(text: &str) -> Result<MountPoint, InvalidMountPoint> {
        let is_valid = text.len() <= LONGEST
            && is_topic_name(text)
            && text.ends_with('/')
            && !text.starts_with('$')
            && !text.contains(char::is_control);
        if is_valid { Ok(MountPoint(text.into())) } else { Err(InvalidMountPoint) }
    }
}

impl fmt::Display for MountPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl MountPoint {
    /// Writes into `full` the Topic Name that `topic` has inside the broker. `before` is written
    /// before the mount point, and is empty except for a delayed message.
    ///
    /// # Errors
    /// [`TopicTooLong`]; `full` has no meaning then.
    pub fn put_topic(&self, before: &str, topic: &str, full: &mut String) -> Result<(), TopicTooLong> {
        if self.0.len() + topic.len() > LONGEST_TOPIC {
            return Err(TopicTooLong);
        }
        full.clear();
        for part in [before, &self.0, topic] {
            full.push_str(part);
        }
        Ok(())
    }

    /// Returns the Topic Filter that `filter` is inside the broker. A text that is no Topic Filter
    /// is not changed, so that it is refused as without a mount point.
    pub fn filter<'a>(&self, filter: &'a str) -> Cow<'a, str> {
        if filter == GRANTED_TOPIC {
            return Cow::Borrowed(filter);
        }
        match TopicFilter::parse(filter, usize::MAX) {
            Err(_) => Cow::Borrowed(filter),
            Ok(parsed) => {
                let (share, own) = filter.split_at(filter.len() - parsed.filter.len());
                Cow::Owned([share, &self.0, own].concat())
            }
        }
    }

    /// Returns the Topic Name by which a client knows a topic of the broker. Returns `None` for a
    /// topic that is not below the mount point, and for a topic whose name would begin with `$`.
    /// Only clients elsewhere can publish such a topic, and it would look like a topic of the
    /// broker.
    #[inline]
    pub fn own_name<'a>(&self, full: &'a str) -> Option<&'a str> {
        match full.strip_prefix(&*self.0) {
            Some(own) => Some(own).filter(|own| !own.is_empty() && !own.starts_with('$')),
            None => Some(full).filter(|full| *full == GRANTED_TOPIC),
        }
    }

    /// Returns true if a subscription of the broker can be that of a client behind this mount
    /// point.
    pub fn has_filter(&self, full: &str) -> bool {
        let full = without_share(full);
        full == GRANTED_TOPIC || full.strip_prefix(&*self.0).is_some_and(|own| !own.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::topic::matches;

    fn mount(text: &str) -> MountPoint {
        text.parse().expect("a mount point")
    }

    fn full(topic: &str) -> Result<String, TopicTooLong> {
        let mut full = "what was there".to_owned();
        mount("tenant/").put_topic("", topic, &mut full).map(|()| full)
    }

    #[test]
    fn a_mount_point_is_a_topic_name_that_ends_with_a_slash() {
        for text in ["tenant/", "a/b/", "/", "/a/", "a//", "t e/"] {
            assert_eq!(text.parse::<MountPoint>().map(|mount| mount.to_string()), Ok(text.to_owned()));
        }
        let long = format!("{}/", "a".repeat(LONGEST));
        for text in ["", "tenant", "a/+/", "#/", "$SYS/", "$share/g/", "a\n/", "a\0/", &long] {
            assert_eq!(text.parse::<MountPoint>(), Err(InvalidMountPoint), "{text:?}");
        }
    }

    #[test]
    fn a_topic_has_the_prefix_inside_the_broker_alone() {
        let mount = mount("tenant/");
        for topic in ["a", "a/b", "/", "/a", "tenant/a", " "] {
            let full = full(topic).expect("short");
            assert_eq!(full, format!("tenant/{topic}"));
            assert_eq!(mount.own_name(&full), Some(topic));
        }
        let mut delayed = String::new();
        assert_eq!(mount.put_topic("$delayed/5/", "a", &mut delayed), Ok(()));
        assert_eq!(delayed, "$delayed/5/tenant/a");
    }

    #[test]
    fn topics_that_are_not_below_the_mount_point_have_no_name_for_its_clients() {
        let mount = mount("tenant/");
        for topic in ["tenant", "tenant/", "tenant2/a", "other/tenant/a", "a", "$SYS/broker/uptime"] {
            assert_eq!(mount.own_name(topic), None, "{topic}");
        }
        assert_eq!(mount.own_name(GRANTED_TOPIC), Some(GRANTED_TOPIC));
    }

    #[test]
    fn nobody_elsewhere_can_publish_what_looks_like_a_topic_of_the_broker() {
        for topic in ["tenant/$SYS/broker/uptime", "tenant/$homing/session/granted", "tenant/$"] {
            assert_eq!(mount("tenant/").own_name(topic), None, "{topic}");
        }
        assert_eq!(mount("tenant/").own_name("tenant/a/$SYS"), Some("a/$SYS"));
    }

    #[test]
    fn a_topic_may_be_as_long_as_a_packet_can_say() {
        let longest = "a".repeat(LONGEST_TOPIC - "tenant/".len());
        assert_eq!(full(&longest).map(|full| full.len()), Ok(LONGEST_TOPIC));
        assert_eq!(full(&format!("{longest}a")), Err(TopicTooLong));
    }

    #[test]
    fn a_filter_has_the_prefix_behind_its_share_name() {
        let mount = mount("tenant/");
        for (filter, full) in [
            ("a/b", "tenant/a/b"),
            ("#", "tenant/#"),
            ("+/#", "tenant/+/#"),
            ("+", "tenant/+"),
            ("/", "tenant//"),
            ("$SYS/#", "tenant/$SYS/#"),
            ("$dead/#", "tenant/$dead/#"),
            ("$homing/clients/#", "tenant/$homing/clients/#"),
            ("$share/g/a", "$share/g/tenant/a"),
            ("$share/g/#", "$share/g/tenant/#"),
            ("$share/g//", "$share/g/tenant//"),
            ("$share/g/$share/h/a", "$share/g/tenant/$share/h/a"),
            ("$shared/a", "tenant/$shared/a"),
            (GRANTED_TOPIC, GRANTED_TOPIC),
        ] {
            assert_eq!(mount.filter(filter), full);
            assert!(mount.has_filter(full), "{full}");
            assert!(TopicFilter::parse(full, usize::MAX).is_ok(), "{full}");
        }
    }

    /// Returns all texts of one to three of these levels.
    fn texts(levels: &[&str]) -> Vec<String> {
        let longer = |texts: &[String]| -> Vec<String> {
            texts.iter().flat_map(|text| levels.iter().map(move |level| format!("{text}/{level}"))).collect()
        };
        let one: Vec<String> = levels.iter().map(|&level| level.to_owned()).collect();
        let two = longer(&one);
        let three = longer(&two);
        [one, two, three].concat()
    }

    #[test]
    fn a_filter_matches_inside_the_broker_what_it_matches_for_the_client() {
        let mount = mount("tenant/");
        let topics: Vec<_> = texts(&["", "a", "tenant"]).into_iter().filter(|t| is_topic_name(t)).collect();
        let filters = texts(&["", "a", "tenant", "+", "#"]);
        let filters = filters.iter().filter(|filter| TopicFilter::parse(filter, 9).is_ok());
        let mut compared = 0;
        for (filter, topic) in filters.flat_map(|filter| topics.iter().map(move |topic| (filter, topic))) {
            let inside = mount.filter(filter);
            let is_matched = matches(&inside, &full(topic).expect("short"));
            assert_eq!(is_matched, matches(filter, topic), "{filter} {topic}");
            // A topic elsewhere is not matched, or has no name for the client.
            assert!(!matches(&inside, topic) || topic.starts_with("tenant"), "{filter} {topic}");
            compared += 1;
        }
        assert!(compared > 2_000, "{compared}");
    }

    #[test]
    fn what_is_no_filter_stays_as_it_is() {
        for filter in ["", "#/a", "a#", "a/+b", "$share/g", "$share/g/", "$share//a", "$share/g+/a"] {
            assert_eq!(mount("tenant/").filter(filter), filter);
        }
    }

    #[test]
    fn filters_of_others_are_known() {
        let mount = mount("tenant/");
        for filter in ["#", "+/a", "other/a", "tenant", "tenant/", "$share/g/other/a", "$share/g/#", "$SYS/#"]
        {
            assert!(!mount.has_filter(filter), "{filter}");
        }
    }
}
