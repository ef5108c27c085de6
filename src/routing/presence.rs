//! Shared subscriptions: which members' sessions have a Network Connection, and in what order that changed.
//!
//! Presence is kept by session and not by group, so a client with many shared subscriptions that connects or leaves costs
//! every shard one change, and one item in a parcel. A group takes in what changed when a member is chosen from it.

use super::shared::{MemberAddress, Presence};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::collections::BTreeMap;

/// Hash tables no larger than this are not worth shrinking.
const SMALL_TABLE: usize = 64;

/// The sessions that are in some group, of all shards.
#[derive(Debug, Default)]
pub struct Presences {
    sessions: HashMap<MemberAddress, Known, RandomState>,
    /// The last change of each session, by its number. At most one for each session, so it is bounded as they are.
    changes: BTreeMap<u64, MemberAddress>,
    /// The number of the last change of any session.
    latest: u64,
}

/// What is known of one session.
#[derive(Debug)]
struct Known {
    presence: Presence,
    /// Its last change.
    changed: u64,
    /// How many groups it is in; it is forgotten with the last.
    groups: u32,
}

impl Presences {
    /// The session joined a group that it was not in.
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

    /// The session left a group that it was in.
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

    /// The session connected or left; returns whether it is in any group.
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

    /// Returns the presence of a session; one that is in no group is away.
    pub fn of(&self, address: MemberAddress) -> Presence {
        self.sessions.get(&address).map_or(Presence::Offline, |known| known.presence)
    }

    /// Returns the number of the last change.
    pub fn latest(&self) -> u64 {
        self.latest
    }

    /// Returns the sessions that changed after the change of this number, in the order of their last changes, each with its
    /// number.
    pub fn changed_after(&self, number: u64) -> impl Iterator<Item = (u64, MemberAddress)> {
        self.changes.range(number.saturating_add(1)..).map(|(number, address)| (*number, *address))
    }

    /// Returns the number of sessions that are in some group.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Bytes on the heap, about.
    pub fn memory(&self) -> usize {
        self.sessions.allocation_size() + self.changes.len() * size_of::<(u64, MemberAddress)>()
    }
}
