//! Retained messages: one per topic.
//!
//! The messages stand in a hash table keyed by their own topic, so that replacing one (what publishers do
//! all day) is one look-up under the lock that shards share. The topics stand in an ordered set besides,
//! with `/` written as U+0000, which no topic has: byte order is then the order of the topic tree, a topic
//! directly before all below it. A filter walks the set by seeking: where a topic does not match, it says
//! what the next one that could match begins with. So a look-up costs what it matches, plus one seek for
//! each level value that a `+` meets in vain. Only messages with a Message Expiry Interval are in the third
//! set, ordered by deadline.
//!
//! Not here: Retain Handling, QoS, and what an empty payload means (the caller calls [`Retained::remove`]).

mod filter_walk;

#[cfg(test)]
mod tests;

use crate::journal::record::RetainedRecord;
use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::mqtt::topic;
use crate::routing::message::Message;
use crate::time::Instant;
use filter_walk::{FilterWalk, Step};
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::mem;
use std::ops::Bound;
use thiserror::Error;

/// Expired messages that a refused `set` evicts at most before it refuses: the lock is held meanwhile.
const EVICTED_FOR_ROOM: usize = 32;

/// Bytes of a retained message beside itself and its topic in the ordered set: its places in the table and in both sets, which
/// are half full, and what the allocator rounds up.
const TOPIC: usize = 80;

/// How much may be retained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetainedLimits {
    pub messages: usize,
    /// Sum of [`Message::size`].
    pub bytes: usize,
}

impl RetainedLimits {
    pub const UNLIMITED: RetainedLimits = RetainedLimits { messages: usize::MAX, bytes: usize::MAX };
}

/// The message was not retained: a limit is reached. What was retained for its topic is not any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no room for another retained message")]
pub struct Full;

/// The retained messages.
#[derive(Debug)]
pub struct Retained {
    limits: RetainedLimits,
    messages: HashTable<Message>,
    hasher: RandomState,
    topics: BTreeSet<Box<[u8]>>,
    deadlines: BTreeSet<Deadline>,
    bytes: usize,
    /// What the table and the two sets take beside the messages.
    charge: Charge,
    /// What changed since the store was told, in the order it did; `None` where there is no store.
    changes: Option<Vec<RetainedRecord>>,
    /// The store may have messages that are not here.
    left_out: bool,
}

/// Whether the store keeps what is retained for a topic: not what the broker says of itself.
pub fn is_kept(topic: &str) -> bool {
    !topic.starts_with("$SYS/")
}

impl Retained {
    pub fn new(limits: RetainedLimits) -> Retained {
        Retained {
            limits,
            messages: HashTable::new(),
            hasher: RandomState::default(),
            topics: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            bytes: 0,
            charge: Charge::NONE,
            changes: None,
            left_out: false,
        }
    }

    /// Records what changes from here on. `left_out`: the store has messages that had no room here. They stay there for a start
    /// with more room, so what is published to their topics replaces or erases them there too.
    pub fn record_changes(&mut self, left_out: bool) {
        self.changes.get_or_insert_default();
        self.left_out = left_out;
    }

    /// What changed since the last call.
    pub fn take_changes(&mut self) -> Vec<RetainedRecord> {
        self.changes.as_mut().map(mem::take).unwrap_or_default()
    }

    /// Retains the message for its topic in place of the one before, which is returned.
    ///
    /// # Errors
    /// [`Full`]: neither is retained.
    pub fn set(&mut self, message: Message, now: Instant) -> Result<Option<Message>, Full> {
        if !self.has_room(&message) {
            // What has expired goes before anything is refused.
            self.expire(now, EVICTED_FOR_ROOM);
            if !self.has_room(&message) {
                // Stale now, and nobody could tell.
                self.remove(message.topic());
                return Err(Full);
            }
        }
        let deadline = Deadline::of(&message);
        if let Some(changes) = self.changes.as_mut().filter(|_| is_kept(message.topic())) {
            changes.push(RetainedRecord::Set(message.clone()));
        }
        self.bytes += message.size();
        let replaced = self.put(message);
        if let Some(old) = &replaced {
            self.forget(old);
        }
        // After the old one's, which may be equal.
        self.deadlines.extend(deadline);
        Ok(replaced)
    }

    pub fn remove(&mut self, topic: &str) -> Option<Message> {
        let hash = self.hasher.hash_one(topic);
        let Ok(found) = self.messages.find_entry(hash, |m| m.topic() == topic) else {
            if self.left_out {
                self.record_removed(topic);
            }
            return None;
        };
        let (removed, _) = found.remove();
        self.topics.remove(&*ordered(topic));
        self.charge.sub(topic.len() + TOPIC);
        self.forget(&removed);
        self.record_removed(topic);
        if self.messages.len() * 4 <= self.messages.capacity() {
            let hasher = &self.hasher;
            self.messages.shrink_to(self.messages.len() * 2, |m| hasher.hash_one(m.topic()));
        }
        Some(removed)
    }

    /// Bytes that are retained for exactly this topic, expired or not; 0 for nothing.
    pub fn size_of(&self, topic: &str) -> usize {
        self.held(topic).map_or(0, Message::size)
    }

    fn record_removed(&mut self, topic: &str) {
        if let Some(changes) = self.changes.as_mut().filter(|_| is_kept(topic)) {
            changes.push(RetainedRecord::Removed(topic.into()));
        }
    }

    /// The message of exactly this topic, unless it has expired.
    pub fn find(&self, topic: &str, now: Instant) -> Option<&Message> {
        self.held(topic).filter(|m| !is_expired(m, now))
    }

    /// Appends every message whose topic the filter (without share prefix) matches, in the order of the
    /// topic tree.
    pub fn matching(&self, filter: &str, now: Instant, out: &mut Vec<Message>) {
        self.matching_from(&mut Cursor::default(), filter, now, &mut { usize::MAX }, out);
    }

    /// As [`matching`](Self::matching), in parts: looks at `budget` topics at most, whether they match or
    /// not, and takes them off it, so that a lock is held for that long. Goes on at the cursor; what changed between the parts is
    /// seen if it is ahead.
    pub fn matching_from(
        &self,
        cursor: &mut Cursor,
        filter: &str,
        now: Instant,
        budget: &mut usize,
        out: &mut Vec<Message>,
    ) -> Progress {
        if !topic::has_wildcard(filter) {
            out.extend(self.find(filter, now).cloned());
            return Progress::Done;
        }
        let walk = FilterWalk::new(filter);
        let at = &mut cursor.at;
        if at.is_empty() {
            walk.start(at);
        }
        let mut scratch = Vec::new();
        loop {
            let mut seek = false;
            for topic in self.topics.range::<[u8], _>((Bound::Included(&**at), Bound::Unbounded)) {
                if *budget == 0 {
                    at.clear();
                    at.extend_from_slice(topic);
                    return Progress::More;
                }
                *budget -= 1;
                match walk.step(topic, at) {
                    Step::Matches => out.extend(self.find_ordered(topic, now, &mut scratch).cloned()),
                    Step::Seek => {
                        seek = true;
                        break;
                    }
                    Step::Done => return Progress::Done,
                }
            }
            if !seek {
                return Progress::Done;
            }
        }
    }

    /// Removes messages that have expired, `budget` at most, the earliest first; how many. Fewer than
    /// `budget` means that none is left.
    pub fn expire(&mut self, now: Instant, budget: usize) -> usize {
        let mut removed = 0;
        while removed < budget {
            let Some(Deadline(message)) = self.deadlines.first().filter(|d| is_expired(&d.0, now)) else {
                break;
            };
            let message = message.clone();
            self.remove(message.topic());
            removed += 1;
        }
        removed
    }

    /// The earliest deadline of any: when [`expire`](Self::expire) next has work.
    pub fn next_expiry(&self) -> Instant {
        self.deadlines.first().map_or(Instant::NEVER, |d| d.0.header().expires)
    }

    /// Messages, expired ones that were not removed yet included.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Sum of [`Message::size`].
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What is on the account beside the messages.
    pub fn charged(&self) -> usize {
        self.charge.bytes()
    }

    fn has_room(&self, message: &Message) -> bool {
        let bytes = self.bytes.saturating_add(message.size());
        if self.messages.len() < self.limits.messages && bytes <= self.limits.bytes {
            return true;
        }
        // Near a limit it matters whether this is a replacement; elsewhere the look-up is saved.
        let old = self.held(message.topic()).map_or(0, Message::size);
        old > 0 && bytes - old <= self.limits.bytes
    }

    fn put(&mut self, message: Message) -> Option<Message> {
        let hasher = &self.hasher;
        let hash = |m: &Message| hasher.hash_one(m.topic());
        match self.messages.entry(hash(&message), |m| m.topic() == message.topic(), hash) {
            Entry::Occupied(mut entry) => Some(mem::replace(entry.get_mut(), message)),
            Entry::Vacant(entry) => {
                self.topics.insert(ordered(message.topic()));
                self.charge.add(message.topic().len() + TOPIC);
                entry.insert(message);
                None
            }
        }
    }

    /// Settles what is counted and noted besides for a message that is no longer retained.
    fn forget(&mut self, message: &Message) {
        self.bytes -= message.size();
        if let Some(deadline) = Deadline::of(message) {
            self.deadlines.remove(&deadline);
        }
    }

    /// Expired or not.
    fn held(&self, topic: &str) -> Option<&Message> {
        self.messages.find(self.hasher.hash_one(topic), |m| m.topic() == topic)
    }

    /// By a key of the ordered set.
    fn find_ordered(&self, key: &[u8], now: Instant, scratch: &mut Vec<u8>) -> Option<&Message> {
        scratch.clear();
        scratch.extend(key.iter().map(|b| if *b == 0 { b'/' } else { *b }));
        self.find(std::str::from_utf8(scratch).ok()?, now)
    }
}

impl Recount for Retained {
    fn recount(&self) -> Recounted {
        let held = self.topics.iter().map(|topic| topic.len() + TOPIC).sum();
        Recounted { held, charged: self.charge.bytes() }
    }
}

/// Where a look-up in parts goes on; the default is the beginning.
#[derive(Clone, Debug, Default)]
pub struct Cursor {
    /// The least key of the ordered set not yet looked at; empty at the beginning, since no topic is empty.
    at: Vec<u8>,
}

/// Whether a look-up in parts has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    More,
    Done,
}

/// A topic as the ordered set keeps it.
fn ordered(topic: &str) -> Box<[u8]> {
    topic.bytes().map(|b| if b == b'/' { 0 } else { b }).collect()
}

fn is_expired(message: &Message, now: Instant) -> bool {
    message.header().expires <= now
}

/// A message by when it expires, then by topic.
#[derive(Debug)]
struct Deadline(Message);

impl Deadline {
    /// None for a message that never expires.
    fn of(message: &Message) -> Option<Deadline> {
        (!message.header().expires.is_never()).then(|| Deadline(message.clone()))
    }

    fn key(&self) -> (Instant, &str) {
        (self.0.header().expires, self.0.topic())
    }
}

impl Ord for Deadline {
    fn cmp(&self, other: &Deadline) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Deadline {
    fn partial_cmp(&self, other: &Deadline) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Deadline {
    fn eq(&self, other: &Deadline) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Deadline {}
