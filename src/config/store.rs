//! `[store]`: what survives a restart. In this version nothing does; the section is the place where that changes.

use super::schema::{Key, Rule};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// What an acknowledgement promises about a crash.
    pub durability: Durability,
}

/// What an acknowledgement promises about a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Nothing: sessions, queues and retained messages live in memory.
    #[default]
    None,
    /// It has been given to the system: it survives the process, not the machine.
    Os,
    /// As `os`, and it is forced to the disk at least every `store.interval`.
    Interval,
    /// It is on the disk.
    Commit,
}

pub(super) const KEYS: &[Key] = &[Key::new("store.durability", Rule::OneOf(&["none"]))];
