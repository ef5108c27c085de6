//! One rule of the operator: conditions on client, user and topic, and redelivery settings.

use crate::access::glob::Pattern;
use crate::session::drops::DropReasons;
use crate::session::outbound::retry::{OnAckTimeout, OnExhausted};
use crate::session::redelivery_policy::{RedeliveryPolicy, SetBy};
use std::time::Duration;

/// Maximum number of rules: a set of rules is the bits of one number.
pub const MOST: usize = 64;

/// One rule: conditions and settings. A condition of `None` matches everything. A setting of `None`
/// is left to the rules and settings below it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RedeliveryRule {
    /// Matches the Client Identifier.
    pub client_id: Option<Pattern>,
    /// Matches the User Name. Never matches a client without one.
    pub user_name: Option<Pattern>,
    /// Matches the Topic Name: a Topic Filter.
    pub topic: Option<String>,
    /// True if a client's own request beats the `interval` and `ack_timeout` of a rule with a
    /// `topic`. A client's request always beats a rule without a topic.
    pub client_may_override: bool,
    /// Sets [`crate::session::outbound::retry::RetryPolicy::interval`].
    pub interval: Option<Duration>,
    /// Sets the factor between two intervals.
    pub backoff: Option<f64>,
    /// Sets the shortest time that a client may request. Only in rules for the whole session.
    pub min_requested: Option<Duration>,
    /// Sets the longest interval.
    pub max_backoff: Option<Duration>,
    /// Sets the random share of an interval, 0 to 1.
    pub jitter: Option<f64>,
    /// Sets the number of resends; 0 for no limit.
    pub attempts: Option<u16>,
    /// Sets the reaction to a packet without resends left.
    pub on_exhausted: Option<OnExhausted>,
    /// Sets the resends to one connection in one tick. Only in rules for the whole session.
    pub resends_per_tick: Option<usize>,
    /// Sets the ack timeout; zero is off.
    pub ack_timeout: Option<Duration>,
    /// Sets the longest ack timeout.
    pub max_ack_timeout: Option<Duration>,
    /// Sets the reaction to an ack timeout.
    pub on_ack_timeout: Option<OnAckTimeout>,
    /// Sets if a negative acknowledgement makes a dead letter.
    pub negative_ack: Option<bool>,
    /// Sets the drop reasons that make dead letters.
    pub dead_letters: Option<DropReasons>,
}

impl RedeliveryRule {
    /// True if the rule may hold for messages of this client: its conditions on client and user
    /// match.
    pub(super) fn concerns(&self, client_id: &str, user_name: Option<&str>) -> bool {
        self.client_id.as_ref().is_none_or(|p| p.matches(client_id))
            && self.user_name.as_ref().is_none_or(|p| user_name.is_some_and(|name| p.matches(name)))
    }

    /// Returns `defaults` with, for each setting, the value of the first rule that has one.
    pub(super) fn combine<'a>(
        defaults: &RedeliveryPolicy,
        rules: impl DoubleEndedIterator<Item = &'a RedeliveryRule>,
    ) -> RedeliveryPolicy {
        let mut redelivery = defaults.clone();
        // Rules are applied from the last to the first, so the first one wins.
        rules.rev().for_each(|rule| rule.put(&mut redelivery));
        redelivery
    }

    fn put(&self, redelivery: &mut RedeliveryPolicy) {
        fn set<T: Clone>(place: &mut T, value: &Option<T>) {
            if let Some(value) = value {
                place.clone_from(value);
            }
        }
        let by = match (&self.topic, self.client_may_override) {
            (None, _) => SetBy::Session,
            (Some(_), false) => SetBy::Topic,
            (Some(_), true) => SetBy::TopicUnlessAsked,
        };
        let RedeliveryPolicy { retry, ack, negative_ack, dead_letters, interval_by, ack_timeout_by } =
            redelivery;
        set(interval_by, &self.interval.map(|_| by));
        set(ack_timeout_by, &self.ack_timeout.map(|_| by));
        set(&mut retry.interval, &self.interval);
        set(&mut retry.backoff, &self.backoff);
        set(&mut retry.min_interval, &self.min_requested);
        set(&mut retry.max_interval, &self.max_backoff);
        set(&mut retry.jitter, &self.jitter);
        set(&mut retry.attempts, &self.attempts);
        set(&mut retry.on_exhausted, &self.on_exhausted);
        set(&mut retry.resends_per_tick, &self.resends_per_tick);
        set(&mut ack.timeout, &self.ack_timeout);
        set(&mut ack.max_timeout, &self.max_ack_timeout);
        set(&mut ack.on_timeout, &self.on_ack_timeout);
        set(negative_ack, &self.negative_ack);
        set(dead_letters, &self.dead_letters);
    }
}
