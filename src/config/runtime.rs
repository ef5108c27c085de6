//! `[runtime]`: the threads the broker runs on.

use super::schema::{Key, Rule};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Runtime {
    /// Arbiters (threads) that carry connections and sessions; 0 is one for each core this process may use.
    pub arbiters: usize,
}

impl Runtime {
    /// The number of arbiters to start: the configured one or, for 0, the cores this process may use.
    pub fn arbiter_count(&self) -> usize {
        match self.arbiters {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n,
        }
    }
}

pub(super) const KEYS: &[Key] = &[Key::new("runtime.arbiters", Rule::Integer(0, 64))];
