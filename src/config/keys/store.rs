//! The keys of `[store]`, and the data directory that follows from them.

use super::paths::{first_directory, path_of};
use crate::config::bounds::{ONE_BILLION, ONE_KIB, ONE_TIB};
use crate::config::choices::DurabilityLevel;
use crate::config::rule::{ValueType, millis, seconds};
use crate::config::size::ByteSize;
use crate::config::table::section;
use crate::named_enum::Named;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The default data directory, relative to the working directory.
const DEFAULT_DIRECTORY: &str = "homing-data";

section! {
    /// The store: sessions and messages that survive a restart. Only the `homing` command opens a
    /// store by these keys. A broker that is started in code uses the store that it is handed, or
    /// none.
    [store] Store {
        /// The data directory. A missing directory is created. One broker at a time may use it.
        /// `--data-dir DIR` sets this key, too.
        path: String = String::new(),
            ValueType::Path.or(
                "auto",
                "the first of systemd's STATE_DIRECTORY if there is one, else homing-data in the working directory"
            ),
            scope: Node,
            why: "It fits a service of systemd as well as a first try.",
            elsewhere: "mosquitto `persistence_location`, EMQX `node.data_dir`, FlashMQ `storage_dir`, NATS `store_dir`";
        /// The promise of an acknowledgement, for a session that outlives its connection. "commit":
        /// the message is on the disk. "interval": the message is on the disk within
        /// `sync_interval`, and survives the end of the process at once. "os": the message survives
        /// the end of the process, but not always a power loss. "none", or `--ephemeral`:
        /// everything is in memory, and ends with the process. Sessions that end with their
        /// connection, and messages for them alone, are never written: their speed is that of
        /// "none".
        durability: DurabilityLevel = DurabilityLevel::Commit,
            ValueType::OneOf(DurabilityLevel::NAMES).only(),
            why: "A broker should be durable without a flag.",
            elsewhere: "mosquitto `persistence`";
        /// With `durability = "interval"` alone: the time until an acknowledged message is forced
        /// to the disk, at most.
        sync_interval: Duration = Duration::from_secs(1),
            ValueType::Duration(millis(10), seconds(3600)).only(),
            reload: Live,
            why: "A loss of power costs one second at most.",
            elsewhere: "mosquitto `autosave_interval`, NATS `sync_interval`";
        /// The largest size of the log and the database together. Twelve files of the log count,
        /// used or not: each has a 64th of the limit at the start, rounded up to whole MiB, from 1
        /// to 8 MiB. The write-ahead log of the database comes on top, usually 16 MiB. The store
        /// counts as full from 20 MiB below the limit on, until acknowledgements have made room.
        /// Then QoS 1 and 2 messages are refused (5.0: 0x97; 3.x: the connection is closed). So are
        /// new sessions that outlive their connections, and new subscriptions of such sessions
        /// (5.0: 0x97; 3.x: 0x03 and 0x80). A retained message at QoS 0 still reaches subscribers.
        /// The message is retained if it is no larger than its predecessor; otherwise neither is
        /// retained. A full disk has the same effect. A reload with a limit below the present size
        /// deletes nothing: the store is full.
        size_limit: ByteSize = ByteSize(0),
            ValueType::Size(64 << 20, 256 << 40).or("unlimited", "what the disk holds"),
            reload: Live,
            elsewhere: "NATS `max_file_store`";
        /// Messages that wait in the queue of one session in the store, in place of
        /// `limits.queue_messages`. Only the head of a long queue is in memory. Each other message
        /// takes some 20 to 110 B there, which count against `limits.memory`.
        queue_messages: u32 = 100_000,
            ValueType::Integer(1, ONE_BILLION).only(),
            reload: Live,
            why: "It is a message a minute for ten weeks.";
        /// Bytes that wait in such a queue, in place of `limits.queue_bytes`.
        queue_bytes: ByteSize = ByteSize::mib(256),
            ValueType::Size(ONE_KIB, ONE_TIB).only(),
            reload: Live;
        /// A folder for a copy of the store that is seconds old. The broker copies each change into
        /// it once the change is on its own disk, in a folder of its own there. The folder must
        /// exist, on another disk: the broker never makes it, so a disk that is not mounted is
        /// noticed. Up to 1 GiB of the log is kept for a folder that is full, slow or gone; no
        /// message waits for it. `homing store replay` makes a data directory of the copy. The
        /// folder needs room for three whole databases and 8 GiB more. While a whole database is
        /// copied, the data directory has a second one.
        ship_to: String = String::new(),
            ValueType::Path.or("off", "no copy"),
            scope: Node,
            elsewhere: "Litestream `replicas`";
        /// The longest time between two looks for changes to copy. From 1 MiB of changes on there
        /// are up to four in this time. `homing store replay --follow` looks four times.
        ship_interval: Duration = Duration::from_secs(1),
            ValueType::Duration(millis(100), seconds(30)).only(),
            why: "The loss of a machine costs one second at most, and an idle disk sleeps.";
    }
}

impl Store {
    /// Returns the data directory, or `None` if everything is kept in memory. `state_directory` is
    /// systemd's variable `STATE_DIRECTORY`: a list with colons between, of which the first is
    /// ours.
    pub fn directory(&self, state_directory: Option<&OsStr>) -> Option<PathBuf> {
        if self.durability == DurabilityLevel::None {
            return None;
        }
        let default = || first_directory(state_directory).unwrap_or(Path::new(DEFAULT_DIRECTORY)).to_owned();
        Some(path_of(&self.path).unwrap_or_else(default))
    }

    /// Returns `size_limit` in bytes; `None` for no limit but the disk.
    pub fn largest_size(&self) -> Option<u64> {
        Some(self.size_limit.bytes()).filter(|bytes| *bytes > 0)
    }

    /// Returns how often the store has to be synced besides its commits, or `None` if commits alone
    /// decide. Only synced changes are copied to `ship_to`.
    pub fn synced_every(&self) -> Option<Duration> {
        match self.durability {
            DurabilityLevel::Interval => Some(self.sync_interval),
            DurabilityLevel::Os => self.copied_to().map(|_| self.ship_interval),
            DurabilityLevel::Commit | DurabilityLevel::None => None,
        }
    }

    /// Returns the folder for a copy of the store; `None` without one, and without a store.
    pub fn copied_to(&self) -> Option<PathBuf> {
        path_of(&self.ship_to).filter(|_| self.durability != DurabilityLevel::None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_directory_is_the_configured_one_or_systemds_or_beside_the_process() {
        let directory = |path: &str, state: Option<&str>| {
            let store = Store { path: path.into(), ..Store::default() };
            store.directory(state.map(OsStr::new)).unwrap()
        };
        assert_eq!(directory("d", Some("/var/lib/homing")), PathBuf::from("d"));
        assert_eq!(directory("", Some("/var/lib/homing:/var/lib/other")), PathBuf::from("/var/lib/homing"));
        assert_eq!(directory("", Some("")), PathBuf::from(DEFAULT_DIRECTORY));
        assert_eq!(directory("", None), PathBuf::from(DEFAULT_DIRECTORY));
        let none = Store { durability: DurabilityLevel::None, path: "d".into(), ..Store::default() };
        assert_eq!(none.directory(None), None);
    }

    #[test]
    fn only_interval_syncs_between_commits() {
        let of = |durability| Store { durability, ..Store::default() }.synced_every();
        assert_eq!(of(DurabilityLevel::Interval), Some(Duration::from_secs(1)));
        assert!(
            [DurabilityLevel::None, DurabilityLevel::Os, DurabilityLevel::Commit]
                .into_iter()
                .all(|d| of(d).is_none())
        );
        let copied = |durability| Store { durability, ship_to: "/copy".into(), ..Store::default() };
        assert_eq!(copied(DurabilityLevel::Os).synced_every(), Some(Duration::from_secs(1)));
        assert_eq!(copied(DurabilityLevel::Commit).synced_every(), None);
        assert_eq!(copied(DurabilityLevel::None).copied_to(), None);
    }
}
