//! The redelivery settings of one message, after the rules for its session and topic.
//!
//! The settings of a session are resolved at CONNECT. Sessions with the same rules share them.
//! Usually no rule names a topic; then the settings hold for every message, and the look-up costs
//! one branch.

use crate::mqtt::message::Message;
use crate::mqtt::topic;
use crate::session::drops::{DropReason, DropReasons};
use crate::session::outbound::retry::{AckPolicy, OnExhausted, RetryPolicy};
use crate::session::redelivery_rules::Rule;
use crate::session::wire::Wire;
use crate::time::Instant;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// The settings that hold for one message.
#[derive(Clone, Debug, PartialEq)]
pub struct RedeliveryPolicy {
    /// Settings for 3.1 and 3.1.1 connections.
    pub retry: RetryPolicy,
    /// Settings for 5.0 connections.
    pub ack: AckPolicy,
    /// True if a 5.0 acknowledgement with a reason code of 0x80 or above makes a dead letter.
    pub negative_ack: bool,
    /// Drop reasons that make dead letters, beside `negative_ack` and [`OnExhausted::DeadLetter`].
    pub dead_letters: DropReasons,
    /// The kind of rule that set `retry.interval`.
    pub interval_by: SetBy,
    /// The kind of rule that set `ack.timeout`.
    pub ack_timeout_by: SetBy,
}

/// The precedence between a setting and the client's own request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetBy {
    /// The defaults or a rule for the whole session: the client's request wins.
    #[default]
    Session,
    /// A rule for a topic: the rule wins.
    Topic,
    /// A rule for a topic with `client_may_override`: the client's request wins.
    TopicUnlessAsked,
}

impl RedeliveryPolicy {
    /// Creates settings without dead letters, before any rule.
    pub fn new(retry: RetryPolicy, ack: AckPolicy) -> RedeliveryPolicy {
        RedeliveryPolicy {
            retry,
            ack,
            negative_ack: false,
            dead_letters: DropReasons::default(),
            interval_by: SetBy::Session,
            ack_timeout_by: SetBy::Session,
        }
    }

    /// Returns when a packet that was resent `round` times is due again on this connection. In 5.0
    /// the packet is then overdue and not resent. [`Instant::NEVER`] if redelivery is off.
    // 5.0 [MQTT-4.4.0-1]; 3.1 and 3.1.1 leave it open.
    pub fn due(&self, now: Instant, round: u16, wire: &Wire) -> Instant {
        due_after(now, self.wait(self.ack_wait(wire), round, wire))
    }

    /// Returns how long a connection waits for an acknowledgement before it acts for the first
    /// time, if no rule for a topic applies. Zero means that the connection does not act.
    pub fn first_wait(&self, wire: &Wire) -> Duration {
        self.wait(wire.ack_wait(), 0, wire)
    }

    fn wait(&self, ack_wait: Duration, round: u16, wire: &Wire) -> Duration {
        if ack_wait.is_zero() || wire.version.is_v5() {
            ack_wait
        } else {
            self.retry.delay(ack_wait, round, wire.seed)
        }
    }

    fn ack_wait(&self, wire: &Wire) -> Duration {
        let by = if wire.version.is_v5() { self.ack_timeout_by } else { self.interval_by };
        match by {
            SetBy::Session => wire.ack_wait(),
            SetBy::TopicUnlessAsked if wire.requested => wire.ack_wait(),
            _ if wire.version.is_v5() => {
                self.ack.after_disconnects(self.ack.timeout, wire.disconnects.into())
            }
            _ => self.retry.interval,
        }
    }

    /// True if a message with this many transmissions, over all connections, is dropped instead of
    /// resent.
    pub fn gives_up(&self, transmissions: u16) -> bool {
        self.retry.on_exhausted == OnExhausted::DeadLetter
            && self.retry.attempts > 0
            && transmissions > self.retry.attempts
    }

    /// True if a message dropped for this reason becomes a dead letter.
    pub fn wants_dead_letter(&self, cause: DropReason) -> bool {
        match cause {
            DropReason::NegativelyAcknowledged => self.negative_ack,
            DropReason::Exhausted => true,
            cause => self.dead_letters.has(cause),
        }
    }
}

/// Returns the end of a wait; [`Instant::NEVER`] for a wait of zero.
#[inline]
fn due_after(now: Instant, wait: Duration) -> Instant {
    if wait.is_zero() { Instant::NEVER } else { now + wait }
}

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
    /// The session's rules in file order, at most [`crate::session::redelivery_rules::MOST`]. Empty
    /// if none of them names a topic.
    rules: Box<[Arc<Rule>]>,
}

impl SessionRedelivery {
    /// Resolves the settings of a session that these rules concern, in file order.
    pub fn new(defaults: &RedeliveryPolicy, rules: Vec<Arc<Rule>>) -> SessionRedelivery {
        let own = Rule::settle(defaults, rules.iter().filter(|r| r.topic.is_none()).map(AsRef::as_ref));
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
        let of_rule = |r: &Arc<Rule>| r.dead_letters.is_some_and(|causes| !causes.is_empty());
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
        let holds = |(at, rule): &(usize, &Arc<Rule>)| rule.topic.is_none() || bits >> at & 1 == 1;
        let rules = self.rules.iter().enumerate().filter(holds).map(|(_, rule)| rule.as_ref());
        Cow::Owned(Rule::settle(&self.defaults, rules))
    }
}
