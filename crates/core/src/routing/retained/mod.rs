//! Retained messages: one for each topic.
//!
//! Four structures hold them:
//!
//! - A hash table of the messages, keyed by topic. The most frequent operation is a replacement,
//!   which is one look-up under the lock that all shards share.
//! - An ordered set of the topics, with `/` written as U+0000, which no topic contains. So byte
//!   order is the order of the topic tree, and a topic comes directly before all topics below it.
//! - An ordered set of deadlines, for messages with a Message Expiry Interval only.
//! - A hash table of the sources, for messages that have one. The table is empty without rules
//!   about topics.
//!
//! A filter with wildcards walks the ordered set of topics by seeks. At a topic that does not
//! match, the walk knows a prefix of the next topic that can match, and seeks to it. So a search
//! costs its matches, plus one seek for each level that a `+` accepts but the rest of the filter
//! does not.
//!
//! Not here: Retain Handling, QoS, and the meaning of an empty payload, for which the caller calls
//! [`Retained::remove`].

mod filter_walk;
mod set_mark;

#[cfg(test)]
mod tests;

use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::mqtt::message::Message;
use crate::mqtt::owner::{OwnedMessage, Owner};
use crate::mqtt::retained_message::{RetainedMessage, RetainedSource};
use crate::mqtt::topic;
use crate::persistence::records::RetainedRecord;
use crate::routing::limit_shares::{Amount, LimitShares, ShareRules};
use crate::routing::split_table::SplitTable;
use crate::time::Instant;
use filter_walk::{FilterWalk, Step};
use foldhash::fast::RandomState;
pub use set_mark::SetMark;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::mem;
use std::ops::Bound;
use std::sync::Arc;
use thiserror::Error;

/// The largest number of expired messages that a `set` without room evicts. The lock is held
/// meanwhile.
const EVICTED_FOR_ROOM: usize = 32;

/// Bytes of a retained message beside the message and its topic in the ordered set: its places in
/// the table and in both sets, which are half full at worst, and the allocator's rounding.
const TOPIC: usize = 112;

/// Bytes of a topic that a search looks at, for one more step of its budget.
const TOPIC_STEP: usize = 128;

/// Bytes of the place of a source in the table of sources, which is half full at worst. The source
/// itself has a charge of its own, because messages share it.
const SOURCE: usize = 40;

/// The limits of retained messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetainedLimits {
    /// The largest number of messages.
    pub messages: usize,
    /// The largest sum of [`Message::size`].
    pub bytes: usize,
}

impl RetainedLimits {
    /// No limits.
    pub const UNLIMITED: RetainedLimits = RetainedLimits { messages: usize::MAX, bytes: usize::MAX };
}

/// A message was not retained, because a limit is reached. Nothing is retained for its topic any
/// more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no room for another retained message")]
pub struct RetainedFull;

/// The retained messages.
#[derive(Debug)]
pub struct Retained {
    limits: RetainedLimits,
    messages: SplitTable<MarkedMessage>,
    hasher: RandomState,
    /// The topics, as [`ordered`] writes them.
    topics: BTreeSet<Box<[u8]>>,
    /// The messages that expire.
    deadlines: BTreeSet<Deadline>,
    /// The sources of messages.
    sources: SplitTable<Sourced>,
    /// The use of the limits by each client and listener.
    shares: LimitShares,
    /// The sum of [`Message::size`].
    bytes: usize,
    /// The number of the broker's own messages.
    own: usize,
    /// The bytes of the tables and the two sets, without the messages.
    charge: Charge,
    /// Changes that the store does not know yet, in order. `None` without a store.
    changes: Option<Vec<RetainedRecord>>,
    /// True if the store may have messages that are not here.
    left_out: bool,
}

/// Returns true if retained messages of a topic are stored. The broker's own below `$SYS` and
/// `$homing` are not.
pub fn is_kept(topic: &str) -> bool {
    !(topic.starts_with("$SYS/") || topic.starts_with("$homing/"))
}

impl Retained {
    /// Changes the limits. Messages beyond them stay.
    pub fn limit(&mut self, limits: RetainedLimits) {
        self.limits = limits;
    }

    /// Changes the parts of clients and listeners. Messages beyond them stay.
    pub fn limit_shares(&mut self, rules: ShareRules) {
        self.shares.limit(rules);
    }

    /// Returns an empty store with these limits.
    pub fn new(limits: RetainedLimits) -> Retained {
        Retained {
            limits,
            messages: SplitTable::default(),
            hasher: RandomState::default(),
            topics: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            sources: SplitTable::default(),
            shares: LimitShares::default(),
            bytes: 0,
            own: 0,
            charge: Charge::NONE,
            changes: None,
            left_out: false,
        }
    }

    /// Records all changes from now on.
    ///
    /// `left_out` is the number of stored messages that had no room here. These messages stay in
    /// the store for a start with more room. So a publish to their topics replaces or erases them
    /// in the store too.
    pub fn record_changes(&mut self, left_out: usize) {
        self.changes.get_or_insert_default();
        self.left_out = left_out > 0;
    }

    /// Returns the changes since the last call, in order.
    pub fn take_changes(&mut self) -> Vec<RetainedRecord> {
        self.changes.as_mut().map(mem::take).unwrap_or_default()
    }

    /// Retains a message that no shard has set, such as a message from the store. Otherwise as
    /// [`set_by`](Self::set_by).
    ///
    /// # Errors
    /// [`RetainedFull`] if a limit is reached. Then neither message is retained.
    pub fn set(
        &mut self,
        retained: impl Into<RetainedMessage>,
        now: Instant,
    ) -> Result<Option<Message>, RetainedFull> {
        self.set_by(SetMark::NONE, retained, now)
    }

    /// Retains a message for its topic, and returns the message that it replaces. `mark` has the
    /// shard that sets the message.
    ///
    /// # Errors
    /// [`RetainedFull`] if a limit is reached. Then neither message is retained.
    pub fn set_by(
        &mut self,
        mark: SetMark,
        retained: impl Into<RetainedMessage>,
        now: Instant,
    ) -> Result<Option<Message>, RetainedFull> {
        let RetainedMessage { message, source, owner } = retained.into();
        if !self.has_room(&message, owner.as_deref()) {
            // Expired messages make room before a new one is refused.
            self.expire(now, EVICTED_FOR_ROOM);
            if !self.has_room(&message, owner.as_deref()) {
                // The old message is outdated, and a subscriber could not know that.
                self.remove(message.topic());
                return Err(RetainedFull);
            }
        }
        let deadline = Deadline::of(&message);
        if let Some(changes) = self.changes.as_mut().filter(|_| is_kept(message.topic())) {
            changes.push(RetainedRecord::Set(RetainedMessage {
                message: message.clone(),
                source: source.clone(),
                owner: owner.clone(),
            }));
        }
        self.set_source(&message, source);
        self.bytes += message.size();
        self.own += usize::from(!is_kept(message.topic()));
        let owner = owner.map(|owner| self.shares.add(owner, message.size()));
        let replaced = self.put(MarkedMessage { owned: OwnedMessage { message, owner }, mark });
        if let Some(old) = &replaced {
            self.forget(&old.owned);
        }
        // After the removal of the old deadline, which may be equal.
        self.deadlines.extend(deadline);
        Ok(replaced.map(|old| old.owned.message))
    }

    /// Removes the message of exactly this topic and returns it.
    pub fn remove(&mut self, topic: &str) -> Option<Message> {
        let hasher = &self.hasher;
        let hash = |m: &MarkedMessage| hasher.hash_one(m.topic());
        let is_it = |m: &MarkedMessage| m.topic() == topic;
        let Some(removed) = self.messages.remove(hasher.hash_one(topic), is_it, hash) else {
            if self.left_out {
                self.record_removed(topic);
            }
            return None;
        };
        self.topics.remove(&*ordered(topic));
        self.charge.sub(topic.len() + TOPIC);
        self.remove_source(topic);
        self.forget(&removed.owned);
        self.record_removed(topic);
        Some(removed.owned.message)
    }

    /// Returns the [`Message::size`] of the message of exactly this topic, expired or not. Returns
    /// 0 for a topic without a message.
    pub fn size_of(&self, topic: &str) -> usize {
        self.marked(topic).map_or(0, |marked| marked.owned.message.size())
    }

    fn record_removed(&mut self, topic: &str) {
        if let Some(changes) = self.changes.as_mut().filter(|_| is_kept(topic)) {
            changes.push(RetainedRecord::Removed(topic.into()));
        }
    }

    /// Returns the message of exactly this topic, unless it has expired.
    pub fn find(&self, topic: &str, now: Instant) -> Option<&Message> {
        self.find_marked(topic, now).map(|marked| &marked.owned.message)
    }

    fn find_marked(&self, topic: &str, now: Instant) -> Option<&MarkedMessage> {
        self.marked(topic).filter(|marked| !is_expired(&marked.owned.message, now))
    }

    /// Appends every message whose topic matches a filter, in the order of the topic tree. The
    /// filter has no `$share` prefix.
    pub fn matching(&self, filter: &str, now: Instant, out: &mut Vec<Message>) {
        self.matching_from(&mut Cursor::default(), filter, now, &mut { usize::MAX }, out);
    }

    /// Searches as [`matching`](Self::matching) does, in parts, so that the lock is held for a
    /// short time.
    ///
    /// A part begins at the cursor and looks at no more than `budget` topics, matching or not. Each
    /// topic is subtracted from `budget`, and a long one counts as several. A change between two
    /// parts is seen if it is ahead of the cursor.
    pub fn matching_from(
        &self,
        cursor: &mut Cursor,
        filter: &str,
        now: Instant,
        budget: &mut usize,
        out: &mut Vec<Message>,
    ) -> SearchProgress {
        self.search_from(cursor, filter, now, budget, |message, _| out.push(message.clone()))
    }

    /// As [`Self::matching_from`], but passes each message with its mark to `found`. The lock is
    /// held meanwhile.
    pub fn search_from(
        &self,
        cursor: &mut Cursor,
        filter: &str,
        now: Instant,
        budget: &mut usize,
        mut found: impl FnMut(&Message, SetMark),
    ) -> SearchProgress {
        let mut pass = |marked: Option<&MarkedMessage>| {
            if let Some(marked) = marked {
                found(&marked.owned.message, marked.mark);
            }
        };
        if !topic::has_wildcard(filter) {
            pass(self.find_marked(filter, now));
            return SearchProgress::Done;
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
                    return SearchProgress::More;
                }
                *budget = budget.saturating_sub(1 + topic.len() / TOPIC_STEP);
                match walk.step(topic, at) {
                    Step::Matches => pass(self.find_ordered(topic, now, &mut scratch)),
                    Step::Seek => {
                        seek = true;
                        break;
                    }
                    Step::Done => return SearchProgress::Done,
                }
            }
            if !seek {
                return SearchProgress::Done;
            }
        }
    }

    /// Returns the source of each message; `None` for a message that has none, or that is no longer
    /// retained. Costs a look-up for each message.
    pub fn sources(&self, messages: &[Message]) -> Vec<Option<Arc<RetainedSource>>> {
        let source = |message: &Message| {
            let hash = self.hasher.hash_one(message.topic());
            let found = self.sources.find(hash, |s| s.message.topic() == message.topic());
            found.map(|sourced| Arc::clone(&sourced.source))
        };
        messages.iter().map(source).collect()
    }

    /// Removes at most `budget` expired messages, the earliest first, and returns their number. If
    /// it is less than `budget`, no expired message is left.
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

    /// Returns the number of messages, with expired ones that were not removed yet.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Returns the number of messages without the broker's own, which [`is_kept`] leaves out.
    pub fn of_clients(&self) -> usize {
        self.len().saturating_sub(self.own)
    }

    /// Returns true if nothing is retained.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns the sum of [`Message::size`].
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the bytes charged for the table and the sets, without the messages.
    pub fn charged(&self) -> usize {
        self.charge.bytes()
    }

    /// Returns true if the limits, and the parts of the owner and its listener, admit the message.
    fn has_room(&self, message: &Message, owner: Option<&Owner>) -> bool {
        let RetainedLimits { messages, bytes } = self.limits;
        let most = Amount { messages, bytes };
        let is_within = |more| owner.is_none_or(|owner| self.shares.admits(owner, more, most));
        let all = self.bytes.saturating_add(message.size());
        if self.messages.len() < messages && all <= bytes && is_within(Amount::one(message.size())) {
            return true;
        }
        // Near a limit a replacement may fit where a new message does not. Elsewhere the look-up is
        // saved.
        let Some(MarkedMessage { owned: old, .. }) = self.marked(message.topic()) else { return false };
        let size = old.message.size();
        let more = match old.owner.as_deref() == owner {
            true => Amount { messages: 0, bytes: message.size().saturating_sub(size) },
            false => Amount::one(message.size()),
        };
        all - size <= bytes && is_within(more)
    }

    /// Puts a message into the table and its topic into the set. Returns the replaced message.
    fn put(&mut self, marked: MarkedMessage) -> Option<MarkedMessage> {
        let hasher = &self.hasher;
        let hash = |m: &MarkedMessage| hasher.hash_one(m.topic());
        let (at, topic) = (hash(&marked), marked.topic());
        if let Some(old) = self.messages.find_mut(at, |m| m.topic() == topic) {
            return Some(mem::replace(old, marked));
        }
        self.topics.insert(ordered(topic));
        self.charge.add(topic.len() + TOPIC);
        self.messages.insert_unique(at, marked, hash);
        None
    }

    /// Notes the source of a message that is retained now, in place of that of the message before.
    fn set_source(&mut self, message: &Message, source: Option<Arc<RetainedSource>>) {
        let Some(source) = source else {
            self.remove_source(message.topic());
            return;
        };
        let hasher = &self.hasher;
        let hash = |s: &Sourced| hasher.hash_one(s.message.topic());
        let sourced = Sourced { message: message.clone(), source };
        let key = hash(&sourced);
        match self.sources.find_mut(key, |s| s.message.topic() == message.topic()) {
            Some(before) => *before = sourced,
            None => {
                self.charge.add(SOURCE);
                self.sources.insert_unique(key, sourced, hash);
            }
        }
    }

    /// Removes the source of the message of a topic, if it has one.
    fn remove_source(&mut self, topic: &str) {
        if self.sources.is_empty() {
            return;
        }
        let hasher = &self.hasher;
        let hash = |s: &Sourced| hasher.hash_one(s.message.topic());
        let removed = self.sources.remove(hasher.hash_one(topic), |s| s.message.topic() == topic, hash);
        if removed.is_some() {
            self.charge.sub(SOURCE);
        }
    }

    /// Updates the sums and the deadlines for a message that is no longer retained.
    fn forget(&mut self, OwnedMessage { message, owner }: &OwnedMessage) {
        self.bytes -= message.size();
        self.own -= usize::from(!is_kept(message.topic()));
        if let Some(owner) = owner {
            self.shares.remove(owner, message.size());
        }
        if let Some(deadline) = Deadline::of(message) {
            self.deadlines.remove(&deadline);
        }
    }

    /// Returns the entry of exactly this topic, expired or not.
    fn marked(&self, topic: &str) -> Option<&MarkedMessage> {
        self.messages.find(self.hasher.hash_one(topic), |m| m.topic() == topic)
    }

    /// Returns the entry of a key of the ordered set, unless its message has expired.
    fn find_ordered(&self, key: &[u8], now: Instant, scratch: &mut Vec<u8>) -> Option<&MarkedMessage> {
        scratch.clear();
        scratch.extend(key.iter().map(|b| if *b == 0 { b'/' } else { *b }));
        self.find_marked(std::str::from_utf8(scratch).ok()?, now)
    }
}

impl Recount for Retained {
    fn recount(&self) -> Recounted {
        let topics: usize = self.topics.iter().map(|topic| topic.len() + TOPIC).sum();
        let sources = self.sources.len() * SOURCE;
        Recounted { in_use: topics + sources, charged: self.charge.bytes() }
    }
}

/// The place at which the next part of a search begins. The default is the beginning.
#[derive(Clone, Debug, Default)]
pub struct Cursor {
    /// The least key of the ordered set that was not looked at. Empty at the beginning, since no
    /// topic is empty.
    at: Vec<u8>,
}

impl Cursor {
    /// Returns the cursor of a key that [`Self::key`] returned. Any other key is a place, too.
    pub fn at(key: Vec<u8>) -> Cursor {
        Cursor { at: key }
    }

    /// Returns the cursor behind the message of a topic: the least key that is greater.
    pub fn behind(topic: &str) -> Cursor {
        let mut at = ordered(topic).into_vec();
        at.push(0);
        Cursor { at }
    }

    /// Returns the key of the place.
    pub fn key(&self) -> &[u8] {
        &self.at
    }
}

/// The progress of a search in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchProgress {
    /// More topics remain to be looked at.
    More,
    /// The search is complete.
    Done,
}

/// Returns a topic as the ordered set keeps it, with U+0000 for `/`.
fn ordered(topic: &str) -> Box<[u8]> {
    topic.bytes().map(|b| if b == b'/' { 0 } else { b }).collect()
}

fn is_expired(message: &Message, now: Instant) -> bool {
    message.header().expires <= now
}

/// A retained message with its mark.
#[derive(Debug)]
struct MarkedMessage {
    owned: OwnedMessage,
    mark: SetMark,
}

impl MarkedMessage {
    fn topic(&self) -> &str {
        self.owned.message.topic()
    }
}

/// The source of a retained message. The message has the topic, which is the key.
#[derive(Debug)]
struct Sourced {
    message: Message,
    source: Arc<RetainedSource>,
}

/// A message that expires, ordered by deadline, then by topic.
#[derive(Debug)]
struct Deadline(Message);

impl Deadline {
    /// Returns `None` for a message that never expires.
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
