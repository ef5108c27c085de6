//! From the operator's configuration to what the pure rooms are told.

use crate::config::{self, Config};
use crate::mqtt::session::SessionPolicy;
use crate::mqtt::session::queue::{QueueLimits, QueuePolicy};
use crate::mqtt::session::retry::{AckPolicy, OnAckTimeout, OnExhausted, RetryPolicy};
use crate::mqtt::session::sender::SendPolicy;
use crate::routing::shard::Settings;
use crate::routing::shard::delayed::DelayedLimits;
use std::time::Duration;

/// What each of `shards` shards works by. Limits over all clients are divided among them, rounded up.
pub fn settings(config: &Config, shards: usize) -> Settings {
    let limits = &config.limits;
    Settings {
        session: SessionPolicy { send: send_policy(config), receive_maximum: limits.receive_maximum },
        packet_size: u32::try_from(limits.packet_size.bytes()).unwrap_or(u32::MAX),
        connect_timeout: config.listeners.connect_timeout,
        write_timeout: config.listeners.write_timeout,
        sessions: (limits.sessions as usize).div_ceil(shards.max(1)),
        session_expiry: seconds(limits.session_expiry),
        topic_levels: usize::from(limits.topic_levels),
        subscriptions_per_client: limits.subscriptions_per_client as usize,
        topic_alias_maximum: limits.topic_alias_maximum,
        keep_alive_maximum: u16::try_from(config.keep_alive.maximum.as_secs()).unwrap_or(u16::MAX),
        allow_never: config.keep_alive.allow_never,
        hold_timeout: limits.hold_timeout,
        expiry_interval: config.expiry.interval,
        delayed: DelayedLimits {
            messages: (limits.delayed_messages as usize).div_ceil(shards.max(1)),
            bytes: limits.delayed_bytes.as_usize().div_ceil(shards.max(1)),
            horizon: seconds(limits.delayed_horizon),
        },
        last_disconnects: if config.sys.interval.is_zero() {
            0
        } else {
            (config.sys.last_disconnects as usize).div_ceil(shards.max(1))
        },
        reports: config.sys.events,
    }
}

fn send_policy(config: &Config) -> SendPolicy {
    let (limits, redelivery) = (&config.limits, &config.redelivery);
    SendPolicy {
        queue: QueueLimits {
            messages: limits.queue_messages as usize,
            bytes: limits.queue_bytes.as_usize(),
            policy: match limits.queue_policy {
                config::QueuePolicy::Refuse => QueuePolicy::Refuse,
                config::QueuePolicy::DropOldest => QueuePolicy::DropOldest,
                config::QueuePolicy::Disconnect => QueuePolicy::Disconnect,
                config::QueuePolicy::Hold => QueuePolicy::Hold,
            },
        },
        retry: RetryPolicy {
            interval: redelivery.interval,
            backoff: redelivery.backoff,
            min_interval: redelivery.min_interval,
            max_interval: redelivery.max_interval,
            jitter: redelivery.jitter,
            attempts: u16::try_from(redelivery.attempts).unwrap_or(u16::MAX),
            on_exhausted: match redelivery.on_exhausted {
                config::OnExhausted::Disconnect => OnExhausted::Disconnect,
                config::OnExhausted::Keep => OnExhausted::Keep,
            },
            resends_per_tick: redelivery.resends_per_tick as usize,
        },
        ack: AckPolicy {
            timeout: redelivery.ack_timeout,
            max_timeout: redelivery.max_ack_timeout,
            on_timeout: match redelivery.on_ack_timeout {
                config::OnAckTimeout::Auto => OnAckTimeout::Auto,
                config::OnAckTimeout::Alarm => OnAckTimeout::Alarm,
                config::OnAckTimeout::Disconnect => OnAckTimeout::Disconnect,
            },
        },
        outbox: limits.outbox.as_usize(),
        in_flight: limits.in_flight,
    }
}

fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}
