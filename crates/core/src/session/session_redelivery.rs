//! The redelivery settings of one session, and of its messages by topic.
//!
//! The settings of a session are resolved at CONNECT. Sessions with the same rules share them.
//! Usually no rule names a topic; then the settings hold for every message, and the look-up costs
//! one branch.

use crate::mqtt::message::Message;
use crate::mqtt::topic;
use crate::session::redelivery_policy::{RedeliveryPolicy, due_after};
use crate::session::redelivery_rule::RedeliveryRule;
use crate::session::wire::Wire;
use crate::time::Instant;
use std::borrow::Cow;
use std::sync::Arc;

/// The rules for topics that a message matched: one bit each, in the order of the session's rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyRules(u64);

/// The redelivery settings of one session.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionRedelivery {
    /// Settings for the session as a whole, and for topics that no rule names.
    pub own: RedeliveryPolicy,
    /// The settings under the rules. Meaningful only if `rules` is not empty.
    defaults: RedeliveryPolicy,
    /// The session's rules in file order, at most [`crate::session::redelivery_rule::MOST`]. Empty
    /// if none of them names a topic.
    rules: Box<[Arc<RedeliveryRule>]>,
}

impl SessionRedelivery {
    /// Resolves the settings of a session that these rules concern, in file order.
    pub fn new(defaults: &RedeliveryPolicy, rules: Vec<Arc<RedeliveryRule>>) -> SessionRedelivery {
        let own =
            RedeliveryRule::combine(defaults, rules.iter().filter(|r| r.topic.is_none()).map(AsRef::as_ref));
        let rules = if rules.iter().any(|r| r.topic.is_some()) { rules } else { Vec::new() };
        SessionRedelivery { own, defaults: defaults.clone(), rules: rules.into() }
    }

    /// True if the settings of some message may differ from those of the session.
    pub fn differ_by_topic(&self) -> bool {
        !self.rules.is_empty()
    }

    /// True if a queued message may become a dead letter. Such a message must stay in memory and
    /// not in the store alone.
    pub fn keep_what_waits(&self) -> bool {
        let of_rule = |r: &Arc<RedeliveryRule>| r.dead_letters.is_some_and(|causes| !causes.is_empty());
        !self.own.dead_letters.is_empty() || self.rules.iter().any(of_rule)
    }

    /// Returns when a message is due that is sent now for the first time on its connection.
    ///
    /// Called for every message. The topic is compared only if some rule names one. The wait with
    /// its jitter is computed once for each connection.
    #[inline]
    pub fn first_due(&self, now: Instant, message: &Message, wire: &Wire) -> Instant {
        if self.rules.is_empty() {
            // No rule for a topic exists, so the session's own settings hold.
            wire.first_wait().map_or_else(|| self.own.due(now, 0, wire), |wait| due_after(now, wait))
        } else {
            self.of(message.topic()).due(now, 0, wire)
        }
    }

    /// Returns the settings for a message of this topic.
    pub fn of(&self, topic: &str) -> Cow<'_, RedeliveryPolicy> {
        if self.rules.is_empty() { Cow::Borrowed(&self.own) } else { self.under(self.matched(topic)) }
    }

    /// Returns the rules that name this topic. Costs one comparison for each rule with a topic.
    pub fn matched(&self, topic: &str) -> PolicyRules {
        let mut bits = 0;
        for (at, rule) in self.rules.iter().enumerate() {
            let names = rule.topic.as_ref().is_some_and(|filter| topic::matches(filter, topic));
            bits |= u64::from(names) << at;
        }
        PolicyRules(bits)
    }

    /// Returns the settings for a message that matched these rules.
    pub fn under(&self, PolicyRules(bits): PolicyRules) -> Cow<'_, RedeliveryPolicy> {
        if bits == 0 {
            return Cow::Borrowed(&self.own);
        }
        let applies =
            |(at, rule): &(usize, &Arc<RedeliveryRule>)| rule.topic.is_none() || bits >> at & 1 == 1;
        let rules = self.rules.iter().enumerate().filter(applies).map(|(_, rule)| rule.as_ref());
        Cow::Owned(RedeliveryRule::combine(&self.defaults, rules))
    }
}
