//! `[redelivery]`: what happens about a QoS 1 or 2 message that stays unacknowledged on a live connection. 3.1 and 3.1.1
//! are sent it again; 5.0 never is (5.0 [MQTT-4.4.0-1]), so there it is told of, or the connection is cut.
//!
//! Redelivery at reconnect is the standard's and has no switch.

use super::redelivery_rule::RedeliveryRule;
use super::schema::{Key, Rule, days};
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Redelivery {
    /// From the moment the peer's kernel has the packet to its first resend; zero turns live redelivery off.
    #[serde(with = "super::duration")]
    pub interval: Duration,
    /// What the spacing is multiplied by after each resend.
    pub backoff: f64,
    /// The shortest `interval` or `ack_timeout` that a client is granted, unless the longest is shorter still.
    #[serde(with = "super::duration")]
    pub min_interval: Duration,
    /// The longest spacing; not below `interval`.
    #[serde(with = "super::duration")]
    pub max_interval: Duration,
    /// The share of the spacing that chance may add; it never takes away.
    pub jitter: f64,
    /// Resends of one packet before `on_exhausted`; 0 is no limit.
    pub attempts: u16,
    /// What happens when the attempts are used up.
    pub on_exhausted: OnExhausted,
    /// Resends to one connection within one expiry interval, so that a full window does not go out at once.
    pub resends_per_tick: u32,
    /// 5.0: how long the client's kernel may have a packet that is not acknowledged; zero is for ever.
    #[serde(with = "super::duration")]
    pub ack_timeout: Duration,
    /// What each cut for the same message doubles `ack_timeout` to at most, for that session; not below it.
    #[serde(with = "super::duration")]
    pub max_ack_timeout: Duration,
    /// 5.0: what happens then.
    pub on_ack_timeout: OnAckTimeout,
    /// 5.0: whether a message that its receiver acknowledges with a reason code of 0x80 or above becomes a dead letter.
    pub negative_ack: bool,
    /// Why a message given up becomes a dead letter, by the names of the causes in `$SYS`; those that another
    /// key stands for are left out.
    pub dead_letters: Vec<String>,
    /// Exceptions by client, user and topic. The first in their order counts, for each setting.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RedeliveryRule>,
}

/// Causes that are of one receiver's making, and not by another key's leave.
pub(super) const DEAD_LETTER_CAUSES: &[&str] =
    &["queue_refused", "queue_overflow", "expired", "too_large", "outbox_full", "session_ended"];

/// What happens to a 5.0 connection whose client does not acknowledge in time. The message is never given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnAckTimeout {
    /// DISCONNECT 0x97 where the session outlives the connection, so that the client comes back and is redelivered to;
    /// elsewhere as [`OnAckTimeout::Alarm`].
    #[default]
    Auto,
    /// A log line and a count, once every `ack_timeout`.
    Alarm,
    /// DISCONNECT 0x97, even where the session and with it the message ends.
    Disconnect,
}

/// What happens when a packet's attempts are used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExhausted {
    /// Close the connection where the session outlives it, so that the client comes back and is redelivered to;
    /// elsewhere go on as [`OnExhausted::Keep`] does.
    #[default]
    Disconnect,
    /// Go on resending at `max_interval`.
    Keep,
    /// Give the message up and publish it as a dead letter; its resends are counted over all connections.
    DeadLetter,
}

impl Redelivery {
    /// Whether unacknowledged messages are resent on live 3.x connections at all.
    pub fn is_live(&self) -> bool {
        !self.interval.is_zero()
    }
}

impl Default for Redelivery {
    fn default() -> Redelivery {
        Redelivery {
            interval: Duration::from_secs(20),
            backoff: 2.0,
            min_interval: Duration::from_secs(1),
            max_interval: Duration::from_secs(300),
            jitter: 0.2,
            attempts: 5,
            on_exhausted: OnExhausted::Disconnect,
            resends_per_tick: 100,
            ack_timeout: Duration::from_secs(60),
            max_ack_timeout: Duration::from_secs(3600),
            on_ack_timeout: OnAckTimeout::Auto,
            negative_ack: false,
            dead_letters: Vec::new(),
            rules: Vec::new(),
        }
    }
}

pub(super) const KEYS: &[Key] = &[
    Key::new("redelivery.interval", Rule::DurationOrOff(0, days(1))),
    Key::new("redelivery.backoff", Rule::Number(1.0, 10.0)),
    Key::new("redelivery.min_interval", Rule::Duration(1, days(1))),
    Key::new("redelivery.max_interval", Rule::Duration(0, days(7))),
    Key::new("redelivery.jitter", Rule::Number(0.0, 1.0)),
    Key::new("redelivery.attempts", Rule::Integer(0, 65_535)),
    Key::new("redelivery.on_exhausted", Rule::OneOf(ON_EXHAUSTED)),
    Key::new("redelivery.resends_per_tick", Rule::Integer(1, 65_535)),
    Key::new("redelivery.ack_timeout", Rule::DurationOrOff(0, days(1))),
    Key::new("redelivery.max_ack_timeout", Rule::Duration(0, days(7))),
    Key::new("redelivery.on_ack_timeout", Rule::OneOf(ON_ACK_TIMEOUT)),
    Key::new("redelivery.negative_ack", Rule::Boolean),
    Key::new("redelivery.dead_letters", Rule::SomeOf(DEAD_LETTER_CAUSES)),
    Key::new("redelivery.rules", Rule::RedeliveryRules),
];

pub(super) const ON_EXHAUSTED: &[&str] = &["disconnect", "keep", "dead_letter"];
pub(super) const ON_ACK_TIMEOUT: &[&str] = &["auto", "alarm", "disconnect"];
