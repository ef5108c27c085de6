//! The members of shared subscriptions that have a Network Connection, and the order of their
//! changes.
//!
//! Presence is kept by session and not by group. So a client with many shared subscriptions that
//! connects or leaves costs each shard one change, and one item in a peer batch. A group applies
//! the changes when a member is chosen from it.

use crate::routing::member::{MemberAddress, Presence};
use crate::routing::split_table::SplitTable;
use foldhash::fast::RandomState;
use std::collections::BTreeMap;
use std::hash::BuildHasher;

/// The sessions of all shards that are members of at least one group.
#[derive(Debug, Default)]
pub struct Presences {
    sessions: SplitTable<Known>,
    hasher: RandomState,
    /// The last change of each session, by number. Each session has one, so this is no longer than
    /// `sessions`.
    changes: BTreeMap<u64, MemberAddress>,
    /// The number of the last change of any session.
    latest: u64,
}

/// The presence of one session.
#[derive(Debug)]
struct Known {
    address: MemberAddress,
    presence: Presence,
    /// The number of the session's last change.
    changed: u64,
    /// Groups that the session is in. The entry is removed with the last of them.
    groups: u32,
}

impl Presences {
    /// Records that a session joined one more group.
    pub fn join(&mut self, address: MemberAddress, presence: Presence) {
        if let Some(known) = self.known_mut(address) {
            known.groups += 1;
            self.set(address, presence);
            return;
        }
        self.latest += 1;
        self.changes.insert(self.latest, address);
        let known = Known { address, presence, changed: self.latest, groups: 1 };
        let hasher = &self.hasher;
        self.sessions.insert_unique(hasher.hash_one(address), known, |known| hasher.hash_one(known.address));
    }

    /// Records that a session left one of its groups.
    pub fn leave(&mut self, address: MemberAddress) {
        let Some(known) = self.known_mut(address) else { return };
        known.groups -= 1;
        if known.groups > 0 {
            return;
        }
        let changed = known.changed;
        self.changes.remove(&changed);
        let hasher = &self.hasher;
        let hash = |known: &Known| hasher.hash_one(known.address);
        self.sessions.remove(hasher.hash_one(address), |known| known.address == address, hash);
    }

    /// Notes that the session got or lost its Network Connection. Returns true if it is in any
    /// group.
    pub fn set(&mut self, address: MemberAddress, presence: Presence) -> bool {
        let number = self.latest + 1;
        let Some(known) = self.known_mut(address) else { return false };
        if known.presence != presence {
            let before = std::mem::replace(&mut known.changed, number);
            known.presence = presence;
            self.latest = number;
            self.changes.remove(&before);
            self.changes.insert(number, address);
        }
        true
    }

    /// Returns the presence of a session. A session in no group counts as offline.
    pub fn of(&self, address: MemberAddress) -> Presence {
        let known = self.sessions.find(self.hasher.hash_one(address), |known| known.address == address);
        known.map_or(Presence::Offline, |known| known.presence)
    }

    fn known_mut(&mut self, address: MemberAddress) -> Option<&mut Known> {
        self.sessions.find_mut(self.hasher.hash_one(address), |known| known.address == address)
    }

    /// Returns the number of the last change.
    pub fn latest(&self) -> u64 {
        self.latest
    }

    /// Returns the sessions that changed after change `number`, each with the number of its last
    /// change. The order is that of the numbers.
    pub fn changed_after(&self, number: u64) -> impl Iterator<Item = (u64, MemberAddress)> {
        self.changes.range(number.saturating_add(1)..).map(|(number, address)| (*number, *address))
    }

    /// Returns the number of sessions that are in at least one group.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Returns true if no session is in any group.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Returns the approximate number of bytes on the heap.
    pub fn memory(&self) -> usize {
        self.sessions.memory() + self.changes.len() * size_of::<(u64, MemberAddress)>()
    }
}
