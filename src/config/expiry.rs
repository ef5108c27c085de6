//! `[expiry]`: the one timer of the broker.

use super::schema::{Key, Rule, millis};
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Expiry {
    /// The width of a bucket: no deadline fires early, none later than one interval.
    #[serde(with = "super::duration")]
    pub interval: Duration,
}

impl Default for Expiry {
    fn default() -> Expiry {
        Expiry { interval: Duration::from_millis(250) }
    }
}

pub(super) const KEYS: &[Key] = &[Key::new("expiry.interval", Rule::Duration(millis(10), millis(10_000)))];
