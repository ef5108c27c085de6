//! What one message's redelivery follows, and what becomes of it in the end: the operator's settings, after the rules that
//! concern its session and its topic.
//!
//! A session's terms are settled at CONNECT and shared by all sessions that the same rules concern. Where none of these
//! names a topic, as is the rule, they hold for every message, and asking costs one branch.

use super::loss::{LossCause, LossCauses};
use super::retry::{AckPolicy, OnExhausted, RetryPolicy};
use super::rules::Rule;
use super::wire::Wire;
use crate::mqtt::message::Message;
use crate::mqtt::topic;
use crate::time::Instant;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// What holds for one message.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    /// 3.1 and 3.1.1.
    pub retry: RetryPolicy,
    /// 5.0.
    pub ack: AckPolicy,
    /// Whether a 5.0 acknowledgement with a reason code of 0x80 or above makes a dead letter.
    pub negative_ack: bool,
    /// Causes that make dead letters, beside what `negative_ack` and [`OnExhausted::DeadLetter`] make.
    pub dead_letters: LossCauses,
    /// Who set `retry.interval` and `ack.timeout`.
    pub interval_by: SetBy,
    pub ack_timeout_by: SetBy,
}

/// Whether a client's own wish beats a setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetBy {
    /// The defaults or a rule for the whole session: the wish beats it.
    #[default]
    Session,
    /// A rule for a topic: it beats the wish.
    Topic,
    /// A rule for a topic that a wish beats.
    TopicUnlessAsked,
}

impl Terms {
    /// Without dead letters, before any rule.
    pub fn new(retry: RetryPolicy, ack: AckPolicy) -> Terms {
        Terms {
            retry,
            ack,
            negative_ack: false,
            dead_letters: LossCauses::default(),
            interval_by: SetBy::Session,
            ack_timeout_by: SetBy::Session,
        }
    }

    /// When a packet that was sent for the `round`-th time again is to be sent once more on this connection, or in 5.0 to
    /// be found overdue.
    // 5.0 [MQTT-4.4.0-1]; 3.1 and 3.1.1 leave it open.
    pub fn due(&self, now: Instant, round: u16, wire: &Wire) -> Instant {
        self.due_after(self.patience(wire), now, round, wire)
    }

    #[inline]
    fn due_after(&self, patience: Duration, now: Instant, round: u16, wire: &Wire) -> Instant {
        if patience.is_zero() {
            Instant::NEVER
        } else if wire.version.is_v5() {
            now + patience
        } else {
            now + self.retry.delay(patience, round, wire.seed)
        }
    }

    fn patience(&self, wire: &Wire) -> Duration {
        let by = if wire.version.is_v5() { self.ack_timeout_by } else { self.interval_by };
        match by {
            SetBy::Session => wire.patience,
            SetBy::TopicUnlessAsked if wire.asked => wire.patience,
            _ if wire.version.is_v5() => self.ack.after_cuts(self.ack.timeout, wire.cuts.into()),
            _ => self.retry.interval,
        }
    }

    /// Whether a message that was sent so often, over all its connections, is given up rather than sent once more.
    pub fn gives_up(&self, transmissions: u16) -> bool {
        self.retry.on_exhausted == OnExhausted::DeadLetter
            && self.retry.attempts > 0
            && transmissions > self.retry.attempts
    }

    /// Whether a message lost for this cause becomes a dead letter.
    pub fn wants_letter(&self, cause: LossCause) -> bool {
        match cause {
            LossCause::NegativelyAcknowledged => self.negative_ack,
            LossCause::Exhausted => true,
            cause => self.dead_letters.has(cause),
        }
    }
}

/// Which rules for a topic a message meets: a bit for each, in the order of the session's list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Matched(u64);

/// What holds for the messages of one session.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionTerms {
    /// For the session as a whole, and for topics that no rule names.
    pub own: Terms,
    /// What its rules stand over. Meaningful only with `rules`.
    defaults: Terms,
    /// Its rules in file order, [`super::rules::MOST`] at most; empty where none names a topic.
    rules: Box<[Arc<Rule>]>,
}

impl SessionTerms {
    pub fn new(defaults: &Terms, rules: Vec<Arc<Rule>>) -> SessionTerms {
        let own = Rule::settle(defaults, rules.iter().filter(|r| r.topic.is_none()).map(AsRef::as_ref));
        let rules = if rules.iter().any(|r| r.topic.is_some()) { rules } else { Vec::new() };
        SessionTerms { own, defaults: defaults.clone(), rules: rules.into() }
    }

    /// Whether some message may have other terms than the session.
    pub fn differ_by_topic(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Whether a message that waits may become a dead letter: then it is not left to the store alone.
    pub fn keep_what_waits(&self) -> bool {
        let of_rule = |r: &Arc<Rule>| r.dead_letters.is_some_and(|causes| !causes.is_empty());
        !self.own.dead_letters.is_empty() || self.rules.iter().any(of_rule)
    }

    /// When a message that goes out now for the first time on its connection is due: of every message, so the topic is not
    /// looked at unless it matters.
    #[inline]
    pub fn first_due(&self, now: Instant, message: &Message, wire: &Wire) -> Instant {
        if self.rules.is_empty() {
            // Nobody but the session set it.
            self.own.due_after(wire.patience, now, 0, wire)
        } else {
            self.of(message.topic()).due(now, 0, wire)
        }
    }

    /// What holds for a message of this topic.
    pub fn of(&self, topic: &str) -> Cow<'_, Terms> {
        if self.rules.is_empty() { Cow::Borrowed(&self.own) } else { self.under(self.matched(topic)) }
    }

    /// Which of its rules name this topic: as many comparisons as there are such rules.
    pub fn matched(&self, topic: &str) -> Matched {
        let mut bits = 0;
        for (at, rule) in self.rules.iter().enumerate() {
            let names = rule.topic.as_ref().is_some_and(|filter| topic::matches(filter, topic));
            bits |= u64::from(names) << at;
        }
        Matched(bits)
    }

    /// What holds where these rules for a topic do.
    pub fn under(&self, Matched(bits): Matched) -> Cow<'_, Terms> {
        if bits == 0 {
            return Cow::Borrowed(&self.own);
        }
        let holds = |(at, rule): &(usize, &Arc<Rule>)| rule.topic.is_none() || bits >> at & 1 == 1;
        let rules = self.rules.iter().enumerate().filter(holds).map(|(_, rule)| rule.as_ref());
        Cow::Owned(Rule::settle(&self.defaults, rules))
    }
}
