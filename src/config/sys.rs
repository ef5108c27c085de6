//! `[sys]`: the broker's own topics.

use super::schema::{Key, Rule, days};
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sys {
    /// How often the `$SYS/broker/...` topics are published; zero is never.
    #[serde(with = "super::duration")]
    pub interval: Duration,
}

impl Default for Sys {
    fn default() -> Sys {
        Sys { interval: Duration::from_secs(10) }
    }
}

pub(super) const KEYS: &[Key] = &[Key::new("sys.interval", Rule::DurationOrOff(0, days(1)))];
