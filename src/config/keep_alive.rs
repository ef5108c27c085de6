//! `[keep_alive]`: bounds on what clients ask for.

use super::schema::{Key, Rule};
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KeepAlive {
    /// The longest keep alive granted, whole seconds; zero is no maximum. 5.0 clients that ask for more, or for
    /// none, are told so by Server Keep Alive.
    #[serde(with = "super::duration")]
    pub maximum: Duration,
    /// Whether a 3.x client, which cannot be told of another value, may ask for none (Keep Alive 0). If not, such a
    /// client is held to `maximum`, which must then be set.
    pub allow_never: bool,
}

impl Default for KeepAlive {
    fn default() -> KeepAlive {
        KeepAlive { maximum: Duration::ZERO, allow_never: true }
    }
}

pub(super) const KEYS: &[Key] = &[
    // Server Keep Alive is a two-byte number of seconds (5.0 section 3.2.2.3.14).
    Key::new("keep_alive.maximum", Rule::WholeSeconds(0, 65_535)),
    Key::new("keep_alive.allow_never", Rule::Boolean),
];
