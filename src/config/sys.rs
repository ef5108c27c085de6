//! `[sys]`: the broker's own topics.

use super::schema::{Key, Rule, days};
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sys {
    /// How often the `$SYS/broker/...` topics are published; zero is never, and no `last_disconnects` either.
    #[serde(with = "super::duration")]
    pub interval: Duration,
    /// Clients at most of which it is kept why they were last disconnected; 0 keeps none.
    pub last_disconnects: u32,
    /// Whether `$SYS/broker/events/...` is published.
    pub events: bool,
    /// Events within one second in the whole broker; what is beyond is left out and counted.
    pub events_per_second: u32,
    /// Events of each kind about one client within one minute; what is beyond is left out and counted.
    pub events_per_client: u32,
}

impl Default for Sys {
    fn default() -> Sys {
        Sys {
            interval: Duration::from_secs(10),
            last_disconnects: 1_000,
            events: false,
            events_per_second: 100,
            events_per_client: 10,
        }
    }
}

pub(super) const KEYS: &[Key] = &[
    Key::new("sys.interval", Rule::DurationOrOff(0, days(1))),
    Key::new("sys.last_disconnects", Rule::Integer(0, 1_000_000)),
    Key::new("sys.events", Rule::Boolean),
    Key::new("sys.events_per_second", Rule::Integer(1, 10_000)),
    Key::new("sys.events_per_client", Rule::Integer(1, 10_000)),
];
