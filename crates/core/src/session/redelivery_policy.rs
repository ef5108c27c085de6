//! The redelivery settings of one message, and when its packet is due again (`due`). `retry` of
//! `outbound` has the backoff, its cap and the jitter.

use crate::session::drops::{DropReason, DropReasons};
use crate::session::outbound::retry::{AckPolicy, OnExhausted, RetryPolicy};
use crate::session::wire::Wire;
use crate::time::Instant;
use std::time::Duration;

/// The settings of one message.
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

    /// Returns the settings of a sink, before any rule. Its service may be away for long, which is no
    /// reason to disconnect the session or to drop messages. What the service refuses becomes a
    /// dead letter.
    pub fn for_sinks(&self) -> RedeliveryPolicy {
        let ack = AckPolicy { timeout: Duration::ZERO, ..self.ack.clone() };
        let retry = RetryPolicy { on_exhausted: OnExhausted::Keep, ..self.retry.clone() };
        RedeliveryPolicy { ack, retry, negative_ack: true, ..self.clone() }
    }

    /// Returns the settings of a bridge, before any rule. What the other broker refuses becomes a dead
    /// letter, because nobody else keeps it.
    pub fn for_bridges(&self) -> RedeliveryPolicy {
        RedeliveryPolicy { negative_ack: true, ..self.clone() }
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
            self.retry.delay(ack_wait, round, wire.seed.into())
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
            DropReason::Exhausted | DropReason::Parked => true,
            cause => self.dead_letters.has(cause),
        }
    }
}

/// Returns the end of a wait; [`Instant::NEVER`] for a wait of zero.
#[inline]
pub(super) fn due_after(now: Instant, wait: Duration) -> Instant {
    if wait.is_zero() { Instant::NEVER } else { now + wait }
}

#[cfg(test)]
impl RedeliveryPolicy {
    /// Returns settings for a test: redelivery is off, and no drop makes a dead letter.
    pub(crate) fn sample() -> RedeliveryPolicy {
        use crate::session::outbound::retry::OnAckTimeout;
        let retry = RetryPolicy {
            interval: Duration::ZERO,
            backoff: 1.0,
            min_interval: Duration::ZERO,
            max_interval: Duration::ZERO,
            jitter: 0.0,
            attempts: 0,
            on_exhausted: OnExhausted::Keep,
            resends_per_tick: 1,
        };
        let (timeout, max_timeout) = (Duration::ZERO, Duration::ZERO);
        RedeliveryPolicy::new(retry, AckPolicy { timeout, max_timeout, on_timeout: OnAckTimeout::Auto })
    }
}
