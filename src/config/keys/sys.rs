//! The keys of `[sys]`.

use crate::config::rule::{ValueType, days, millis};
use crate::config::table::section;
use std::time::Duration;

section! {
    /// The broker's own topics.
    [sys] Sys {
        /// The interval at which the `$SYS/broker/...` topics are published. A reload that turns
        /// them off leaves the last values.
        publish_interval: Duration = Duration::from_secs(10),
            ValueType::Duration(millis(1), days(1)).or("off", "never; no last disconnects are kept, either"),
            reload: Live,
            why: "It is the default of mosquitto, too.",
            elsewhere: "mosquitto `sys_interval`, EMQX `sys_topics.sys_msg_interval`";
        /// Maximum number of last-disconnect records: why a client was last disconnected, as a
        /// retained message (JSON, about 400 bytes) on `$homing/clients/<client
        /// id>/last-disconnect`. Beyond it the oldest go. A plain DISCONNECT of the client's own is
        /// not recorded. "/", "+", "#" and "%" in a client id are written %2F, %2B, %23 and %25.
        last_disconnects: u32 = 1_000,
            ValueType::Integer(1, 1_000_000).or("off", "none are kept"),
            reload: Live,
            why: "They take about 400 KB.";
        /// True if events are published: what becomes of an unacknowledged message, at once, as
        /// JSON on `$homing/events/<kind>/<client id>`. The kinds are stalled, redelivered,
        /// exhausted, disconnected, publish_refused, will_refused and subscription_refused; the
        /// client id is written as above. Events are QoS 0 and never retained.
        events: bool = false,
            ValueType::Boolean.only(),
            reload: Live,
            why: "In most brokers nobody subscribes to events.";
        /// Events within one second in the whole broker. Further events are suppressed and counted
        /// on `$SYS/broker/events/suppressed`. The key also bounds the number of clients with a
        /// count, to about 120 times as many.
        events_per_second: u32 = 100,
            ValueType::Integer(1, 10_000).only(),
            reload: Live;
        /// Events of each kind about each client in a minute. Further events are suppressed; the
        /// next one says how many.
        events_per_client: u32 = 10,
            ValueType::Integer(1, 10_000).only(),
            reload: Live,
            why: "It is above what one client causes at the default intervals.";
    }
}

impl Sys {
    /// Returns the interval at which a shard publishes the topics; `None` if the topics are off,
    /// and for all shards but the first.
    pub fn interval_of(&self, shard: usize) -> Option<Duration> {
        (shard == 0 && !self.publish_interval.is_zero()).then_some(self.publish_interval)
    }
}
