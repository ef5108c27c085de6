//! `[store]`: what survives a restart, and where it is kept.
//!
//! Only the `homing` command opens a store by these; a broker that is started in code keeps what the store it is handed keeps,
//! and without one, nothing.

use super::schema::{Key, Rule, millis, seconds};
use super::size::ByteSize;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

/// Where a store is kept that nobody chose a place for; relative to the working directory.
const DEFAULT_DIRECTORY: &str = "homing-data";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// The data directory; empty: systemd's `STATE_DIRECTORY`, or else `homing-data` in the working directory.
    pub path: String,
    /// What an acknowledgement promises about a crash.
    pub durability: Durability,
    /// With `interval`, what is acknowledged is on the disk after this at most.
    #[serde(with = "super::duration")]
    pub interval: Duration,
    /// Bytes of the database at most; 0: what the disk holds. 16 MiB below it, QoS 1 and 2 messages are refused.
    pub size_limit: ByteSize,
    /// Messages that wait in the queue of one session that is in the store.
    pub queue_messages: u32,
    /// Bytes that wait in such a queue.
    pub queue_bytes: ByteSize,
}

/// What an acknowledgement promises about a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Nothing: sessions, queues and retained messages live in memory.
    None,
    /// It has been given to the system: it survives the process, not the machine.
    Os,
    /// As `os`, and it is forced to the disk at least every `store.interval`.
    Interval,
    /// It is on the disk.
    #[default]
    Commit,
}

impl Default for Store {
    fn default() -> Store {
        Store {
            path: String::new(),
            durability: Durability::default(),
            interval: Duration::from_secs(1),
            size_limit: ByteSize(0),
            queue_messages: 100_000,
            queue_bytes: ByteSize::mib(256),
        }
    }
}

impl Store {
    /// The data directory, given systemd's `STATE_DIRECTORY`: a list, colons between, of which the first is ours. None: all
    /// is kept in memory.
    pub fn directory(&self, state_directory: Option<&OsStr>) -> Option<PathBuf> {
        if self.durability == Durability::None {
            return None;
        }
        if !self.path.is_empty() {
            return Some(PathBuf::from(&self.path));
        }
        let listed = state_directory.and_then(OsStr::to_str).and_then(|list| list.split(':').next());
        Some(PathBuf::from(listed.filter(|first| !first.is_empty()).unwrap_or(DEFAULT_DIRECTORY)))
    }

    /// How often the store has to be synced besides its commits.
    pub fn sync_interval(&self) -> Option<Duration> {
        (self.durability == Durability::Interval).then_some(self.interval)
    }
}

pub(super) const KEYS: &[Key] = &[
    Key::new("store.path", Rule::Directory),
    Key::new("store.durability", Rule::OneOf(&["none", "os", "interval", "commit"])),
    Key::new("store.interval", Rule::Duration(millis(10), seconds(3600))),
    Key::new("store.size_limit", Rule::SizeOrNone(ByteSize::mib(64).0, 256 << 40)),
    Key::new("store.queue_messages", Rule::Integer(1, 1_000_000_000)),
    Key::new("store.queue_bytes", Rule::Size(1024, 1 << 40)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_directory_is_what_was_said_or_systemds_or_beside_us() {
        let directory = |path: &str, state: Option<&str>| {
            let store = Store { path: path.into(), ..Store::default() };
            store.directory(state.map(OsStr::new)).unwrap()
        };
        assert_eq!(directory("d", Some("/var/lib/homing")), PathBuf::from("d"));
        assert_eq!(directory("", Some("/var/lib/homing:/var/lib/other")), PathBuf::from("/var/lib/homing"));
        assert_eq!(directory("", Some("")), PathBuf::from(DEFAULT_DIRECTORY));
        assert_eq!(directory("", None), PathBuf::from(DEFAULT_DIRECTORY));
        let none = Store { durability: Durability::None, path: "d".into(), ..Store::default() };
        assert_eq!(none.directory(None), None);
    }

    #[test]
    fn only_interval_syncs_between_commits() {
        let of = |durability| Store { durability, ..Store::default() }.sync_interval();
        assert_eq!(of(Durability::Interval), Some(Duration::from_secs(1)));
        assert!([Durability::None, Durability::Os, Durability::Commit].into_iter().all(|d| of(d).is_none()));
    }
}
