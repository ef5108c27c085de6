//! The members of shared subscriptions that have a Network Connection, and the order of their
//! changes.
//!
//! Presence is kept by session and not by group. So a client with many shared subscriptions that
//! connects or leaves costs each shard one change, and one item in a peer batch. A group applies
//! the changes when a member is chosen from it.

use crate::routing::shared_group::{MemberAddress, Presence};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::collections::BTreeMap;

/// Capacity up to which a hash table is not shrunk.
const SMALL_TABLE: usize = 64;

/// The sessions of all shards that are members of at least one group.
#[derive(Debug, Default)]
pub struct Presences {
    sessions: HashMap<MemberAddress, Known, RandomState>,
    /// The last change of each session, by number. Each session has one, so this is no longer than
    /// `sessions`.
    changes: BTreeMap<u64, MemberAddress>,
    /// The number of the last change of any session.
    latest: u64,
}

/// The presence of one session.
#[derive(Debug)]
struct Known {
    presence: Presence,
    /// The number of the session's last change.
    changed: u64,
    /// Groups that the session is in. The entry is removed with the last of them.
    groups: u32,
}

impl Presences {
    /// Records that a session joined one more group.
    pub fn join(&mut self, address: MemberAddress, presence: Presence) {
        let Presences { sessions, changes, latest } = self;
        let known = sessions.entry(address).or_insert_with(|| {
            *latest += 1;
            changes.insert(*latest, address);
            Known { presence, changed: *latest, groups: 0 }
        });
        known.groups += 1;
        self.set(address, presence);
    }

    /// Records that a session left one of its groups.
    pub fn leave(&mut self, address: MemberAddress) {
        let Some(known) = self.sessions.get_mut(&address) else { return };
        known.groups -= 1;
        if known.groups > 0 {
            return;
        }
        self.changes.remove(&known.changed);
        self.sessions.remove(&address);
        if self.sessions.capacity() > SMALL_TABLE && self.sessions.len() * 4 <= self.sessions.capacity() {
            self.sessions.shrink_to(self.sessions.len() * 2);
        }
    }

    /// Notes that the session got or lost its Network Connection. Returns true if it is in any
    /// group.
    pub fn set(&mut self, address: MemberAddress, presence: Presence) -> bool {
        let Some(known) = self.sessions.get_mut(&address) else { return false };
        if known.presence != presence {
            self.latest += 1;
            self.changes.remove(&known.changed);
            self.changes.insert(self.latest, address);
            (known.presence, known.changed) = (presence, self.latest);
        }
        true
    }

    /// Returns the presence of a session. A session in no group counts as offline.
    pub fn of(&self, address: MemberAddress) -> Presence {
        self.sessions.get(&address).map_or(Presence::Offline, |known| known.presence)
    }

    /// Returns the number of the last change.
    pub fn latest(&self) -> u64 {
        self.latest
    }

    /// Returns the sessions that changed after change `number`, each with the number of its last
    /// change. They come in the order of these numbers.
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
        self.sessions.allocation_size() + self.changes.len() * size_of::<(u64, MemberAddress)>()
    }
}
