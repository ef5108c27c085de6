//! The topics that pass a bridge, and their names at the other side.

use crate::mqtt::packet::{QoS, RetainHandling, SubscriptionOptions};
use crate::mqtt::topic::matches;
use crate::named_enum::named_enum;

named_enum! {
    /// The way of messages, as seen from this broker.
    #[derive(Default)]
    pub enum Direction {
        /// To the other broker.
        #[default]
        Out = "out",
        /// From the other broker.
        In = "in",
        /// Both ways.
        Both = "both",
    }
}

named_enum! {
    /// The treatment of messages that are retained when the bridge subscribes.
    #[derive(Default)]
    pub enum RetainedAtStart {
        /// They pass when the subscription is new.
        #[default]
        New = "new",
        /// They pass with each connection.
        Always = "always",
        /// They do not pass.
        Never = "never",
    }
}

/// A rule that lets messages pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicRule {
    /// The way of the messages.
    pub direction: Direction,
    /// The Topic Filter of the messages, without the prefix of either side.
    pub filter: String,
    /// The highest QoS with which a message passes.
    pub qos: QoS,
    /// The beginning of the topics here.
    pub local_prefix: String,
    /// The beginning of the topics there.
    pub remote_prefix: String,
    /// The treatment of retained messages.
    pub retain: RetainedAtStart,
}

impl TopicRule {
    /// Returns the Topic Filter of the messages here.
    pub fn local_filter(&self) -> String {
        format!("{}{}", self.local_prefix, self.filter)
    }

    /// Returns the Topic Filter of the messages there.
    pub fn remote_filter(&self) -> String {
        format!("{}{}", self.remote_prefix, self.filter)
    }

    fn options(&self) -> SubscriptionOptions {
        SubscriptionOptions {
            qos: self.qos,
            // A broker does not send a bridge what came from it. So nothing goes back and forth between two.
            no_local: true,
            retain_as_published: true,
            retain_handling: match self.retain {
                RetainedAtStart::New => RetainHandling::SendIfNew,
                RetainedAtStart::Always => RetainHandling::SendAtSubscribe,
                RetainedAtStart::Never => RetainHandling::DoNotSend,
            },
        }
    }
}

/// A side of a rule: the filter of its topics with their prefix.
#[derive(Debug)]
struct Named {
    filter: String,
    prefix: usize,
    /// The bytes before the first wildcard.
    plain: usize,
}

impl Named {
    fn new(filter: String, prefix: usize) -> Named {
        Named { plain: filter.find(['+', '#']).unwrap_or(filter.len()), filter, prefix }
    }

    /// Returns a topic without its prefix, if the filter matches it.
    fn rest<'a>(&self, topic: &'a str) -> Option<&'a str> {
        // `a/#` matches the topic `a` too, which has no prefix `a/` to replace.
        let rest = topic.get(self.prefix..)?;
        self.matches(topic).then_some(rest)
    }

    /// True if the filter matches a topic. Most filters end with their only wildcard, `#`, and most
    /// topics begin as their filter: they cost one comparison.
    fn matches(&self, topic: &str) -> bool {
        let (plain, wild) = self.filter.split_at_checked(self.plain).unwrap_or((&self.filter, ""));
        match topic.strip_prefix(plain) {
            Some(end) if wild.is_empty() => end.is_empty(),
            Some(_) if wild == "#" && !plain.is_empty() => true,
            Some(_) => matches(&self.filter, topic),
            // `a/#` matches the topic `a` too.
            None => wild == "#" && plain.strip_suffix('/') == Some(topic),
        }
    }
}

/// A rule that is ready for use.
#[derive(Debug)]
struct Ready {
    rule: TopicRule,
    here: Named,
    there: Named,
}

/// The rules of one bridge. The first rule that matches a message names it.
#[derive(Debug)]
pub struct TopicRules(Vec<Ready>);

impl TopicRules {
    /// Returns the rules in their order.
    pub fn new(rules: impl IntoIterator<Item = TopicRule>) -> TopicRules {
        let ready = |rule: TopicRule| Ready {
            here: Named::new(rule.local_filter(), rule.local_prefix.len()),
            there: Named::new(rule.remote_filter(), rule.remote_prefix.len()),
            rule,
        };
        TopicRules(rules.into_iter().map(ready).collect())
    }

    /// Returns the filters of the messages that leave, each once, with the options of their
    /// subscription here.
    pub fn subscriptions_here(&self) -> Vec<(&str, SubscriptionOptions)> {
        let out = self.0.iter().filter(|ready| ready.rule.direction != Direction::In);
        once(out.map(|ready| (ready.here.filter.as_str(), ready.rule.options())))
    }

    /// Returns the filters of the messages that come, each once, with the options of their
    /// subscription there.
    pub fn subscriptions_there(&self) -> Vec<(&str, SubscriptionOptions)> {
        let into = self.0.iter().filter(|ready| ready.rule.direction != Direction::Out);
        once(into.map(|ready| (ready.there.filter.as_str(), ready.rule.options())))
    }

    /// Returns the topic of a message there, as its new beginning and its rest; `None` if no rule
    /// lets it leave.
    pub fn name_there<'a>(&'a self, topic: &'a str) -> Option<[&'a str; 2]> {
        let mut out = self.0.iter().filter(|ready| ready.rule.direction != Direction::In);
        out.find_map(|ready| Some([ready.rule.remote_prefix.as_str(), ready.here.rest(topic)?]))
            .filter(is_topic)
    }

    /// Returns the topic of a message here, as its new beginning and its rest; `None` if no rule
    /// lets it in.
    pub fn name_here<'a>(&'a self, topic: &'a str) -> Option<[&'a str; 2]> {
        let mut into = self.0.iter().filter(|ready| ready.rule.direction != Direction::Out);
        into.find_map(|ready| Some([ready.rule.local_prefix.as_str(), ready.there.rest(topic)?]))
            .filter(is_topic)
    }

    /// Returns the most bytes by which a topic grows on its way out.
    pub fn growth_out(&self) -> usize {
        self.growth(|rule| rule.remote_prefix.len().saturating_sub(rule.local_prefix.len()))
    }

    /// Returns the most bytes by which a topic grows on its way in.
    pub fn growth_in(&self) -> usize {
        self.growth(|rule| rule.local_prefix.len().saturating_sub(rule.remote_prefix.len()))
    }

    /// Returns the highest QoS of the messages that leave.
    pub fn highest_qos_out(&self) -> QoS {
        let all = self.subscriptions_here();
        all.iter().map(|(_, options)| options.qos).max().unwrap_or_default()
    }

    fn growth(&self, of: impl Fn(&TopicRule) -> usize) -> usize {
        self.0.iter().map(|ready| of(&ready.rule)).max().unwrap_or(0)
    }
}

/// Leaves out filters that came before: a second SUBSCRIBE would replace the options of the first
/// rule.
fn once<'a>(
    all: impl Iterator<Item = (&'a str, SubscriptionOptions)>,
) -> Vec<(&'a str, SubscriptionOptions)> {
    let mut kept: Vec<(&str, SubscriptionOptions)> = Vec::new();
    for (filter, options) in all {
        if !kept.iter().any(|(other, _)| *other == filter) {
            kept.push((filter, options));
        }
    }
    kept
}

/// Returns true if both parts are a topic that the protocol allows.
fn is_topic([beginning, rest]: &[&str; 2]) -> bool {
    (1..=usize::from(u16::MAX)).contains(&(beginning.len() + rest.len()))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn rule(direction: Direction, local: &str, filter: &str, remote: &str) -> TopicRule {
        TopicRule {
            direction,
            filter: filter.to_owned(),
            qos: QoS::ExactlyOnce,
            local_prefix: local.to_owned(),
            remote_prefix: remote.to_owned(),
            retain: RetainedAtStart::New,
        }
    }

    #[test]
    fn a_topic_gets_the_prefix_of_the_other_side_and_keeps_its_rest() {
        let rules = TopicRules::new([
            rule(Direction::Out, "", "sensors/#", "plant-7/"),
            rule(Direction::In, "cloud/", "orders/+", "plant-7/"),
            rule(Direction::Both, "", "alarms", ""),
        ]);
        let there = |topic: &str| rules.name_there(topic).map(|name| name.concat());
        let here = |topic: &str| rules.name_here(topic).map(|name| name.concat());
        assert_eq!(there("sensors/1").as_deref(), Some("plant-7/sensors/1"));
        assert_eq!(there("cloud/orders/1"), None);
        assert_eq!(here("plant-7/orders/1").as_deref(), Some("cloud/orders/1"));
        assert_eq!(here("plant-7/orders/1/2"), None);
        assert_eq!(here("plant-7/sensors/1"), None);
        assert_eq!((there("alarms"), here("alarms")), (Some("alarms".into()), Some("alarms".into())));
        assert_eq!((rules.growth_out(), rules.growth_in()), (8, 0));
    }

    #[test]
    fn topics_of_the_broker_pass_only_if_a_rule_names_them() {
        let rules =
            TopicRules::new([rule(Direction::Out, "", "#", "a/"), rule(Direction::Out, "", "$SYS/#", "b/")]);
        let there = |topic: &str| rules.name_there(topic).map(|name| name.concat());
        assert_eq!(there("$SYS/uptime").as_deref(), Some("b/$SYS/uptime"));
        assert_eq!(there("$dead/a"), None);
    }

    #[test]
    fn a_name_that_is_too_long_or_empty_passes_in_no_direction() {
        let rules = TopicRules::new([rule(Direction::Both, "a/", "#", &"r".repeat(60_000))]);
        let long = format!("a/{}", "t".repeat(6_000));
        assert_eq!(rules.name_there(&long), None);
        // The parent of `a/#` has no prefix.
        assert_eq!(rules.name_there("a"), None);
        let rules = TopicRules::new([rule(Direction::Out, "a/", "#", "")]);
        assert_eq!(rules.name_there("a/"), None);
    }

    #[test]
    fn a_rule_matches_the_topics_of_its_filter_and_no_others() {
        let topics = ["a", "a/", "a/b", "a/b/c", "ab", "b", "/", "/a", "$a", "$a/b", "a/$b"];
        for filter in ["#", "+", "+/b", "a", "a/", "a/#", "a/+", "a/+/c", "a/b/#", "/#", "/+", "$a/#", "ab/#"]
        {
            let rules = TopicRules::new([rule(Direction::Out, "", filter, "")]);
            for topic in topics {
                assert_eq!(rules.name_there(topic).is_some(), matches(filter, topic), "{filter} {topic}");
            }
        }
    }

    #[test]
    fn a_filter_of_two_rules_is_subscribed_once_with_the_options_of_the_first() {
        let second = TopicRule { qos: QoS::AtMostOnce, ..rule(Direction::Both, "", "a", "x/") };
        let rules = TopicRules::new([rule(Direction::Out, "", "a", ""), second]);
        let here = rules.subscriptions_here();
        assert_eq!(here.len(), 1);
        assert_eq!(here[0].1.qos, QoS::ExactlyOnce);
        assert_eq!(rules.subscriptions_there()[0].0, "x/a");
    }
}
