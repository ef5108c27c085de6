//! The search for messages that wait, in all shards and in the store, step by step.
//!
//! The search does no I/O. It names the next step: a question to a shard, or a look at the store.
//! The caller takes the step and hands the result in. Windows and queues in memory come first. Then
//! the messages that are in the store alone are looked at there.
//!
//! A queue reads its messages back from the store while the search goes on, and writes none out
//! again. A session that has read some meanwhile is searched in memory once more. So the search
//! misses no message that waits all the time.

use crate::operators::budget::{BYTES, ROWS};
use crate::operators::query::{Query, QueryAnswer};
use crate::operators::stored::{PagedOutPart, StoreLooked, StoreLookup, StoredPlace};
use crate::operators::wait_reason::WaitReason;
use crate::operators::wanted::Wanted;
use crate::operators::whereabouts::{FoundMessage, FoundMessages, InStore, SearchPlace};
use crate::persistence::records::EntryNumber;
use crate::session::outbound::one_message::MessageName;
use std::collections::{BTreeMap, HashSet, VecDeque};

/// Sessions with messages in the store that one search looks at. The messages of further ones are
/// counted.
const SESSIONS: usize = 4_096;

/// Receivers whose further messages in memory are counted apart. An answer has a sentence for each.
pub const RECEIVERS: usize = 1_024;

/// Messages that one search looks at in the store.
pub const LOOKED_AT: usize = 50_000;

/// Sessions in one question for places.
const AT_ONCE: usize = 256;

/// The next step of a search.
#[derive(Clone, Debug)]
pub enum SearchStep {
    /// A question to the shard with this number. [`MessageSearch::answered`] takes the answer.
    Ask(usize, Query),
    /// A look at the store. [`MessageSearch::looked`] takes the result.
    Look(StoreLookup),
}

/// The messages of one receiver that are in the store alone.
#[derive(Clone, Debug)]
pub struct InStoreFound {
    /// The receiver's Client Identifier.
    pub receiver: Box<str>,
    /// The number of messages, wanted or not.
    pub messages: usize,
    /// The number of wanted messages that were found.
    pub found: usize,
    /// The number of found messages that are not among [`Searched::messages`].
    pub unlisted: usize,
    /// The number of messages that were not looked at.
    pub unseen: usize,
    /// The reason why the messages wait.
    pub wait: WaitReason,
}

/// The result of a search.
#[derive(Clone, Debug, Default)]
pub struct Searched {
    /// The messages: the first [`ROWS`] of those in memory, with one of each receiver for as many
    /// receivers, and [`ROWS`] of those in the store.
    pub messages: Vec<FoundMessage>,
    /// The number of further ones in memory, by the receiver's Client Identifier: of the first
    /// [`RECEIVERS`] receivers.
    pub unlisted: BTreeMap<Box<str>, usize>,
    /// The number of further ones of other receivers.
    pub unlisted_of_others: usize,
    /// The receivers with messages in the store alone.
    pub in_store: Vec<InStoreFound>,
    /// Messages in the store that were not looked at, beside those of `in_store`: there are too
    /// many receivers.
    pub unseen_of_others: usize,
    /// False if some windows and queues in memory were not looked at.
    pub is_complete: bool,
    /// The reason why the store did not answer.
    pub store_error: Option<String>,
}

/// A session with messages in the store, and how far they were looked at.
#[derive(Debug)]
struct SearchedSession {
    shard: usize,
    in_store: InStore,
    /// The number with which the next part begins; `None` if all were asked for.
    next: Option<EntryNumber>,
    asked: usize,
    /// Messages that the store had.
    seen: usize,
    found: usize,
    /// Wanted messages that found no room in the answer.
    unlisted: HashSet<EntryNumber>,
    /// True if messages came into memory meanwhile.
    has_moved: bool,
}

#[derive(Debug)]
enum SearchStage {
    /// The shards that were not searched to the end. The first one is under way, from the place on.
    Memory(VecDeque<usize>, SearchPlace),
    /// The sessions that are to be looked at in the store, in this order.
    Store(VecDeque<usize>),
    /// The sessions that are searched in memory once more. The last one is under way, from the
    /// place on.
    Again(Vec<usize>, SearchPlace),
}

/// A search under way.
#[derive(Debug)]
pub struct MessageSearch {
    wanted: Wanted,
    stage: SearchStage,
    messages: Vec<FoundMessage>,
    unlisted: BTreeMap<Box<str>, usize>,
    unlisted_of_others: usize,
    /// Bytes of the topics of `messages`, and the number of those that came from the store.
    bytes: usize,
    from_store: usize,
    sessions: Vec<SearchedSession>,
    unseen_of_others: usize,
    looked_at: usize,
    /// The sessions of the question or the look under way, each with the number of its places.
    batch: Vec<(usize, usize)>,
    /// The places that are looked at next.
    places: Vec<StoredPlace>,
    store_error: Option<String>,
}

impl MessageSearch {
    /// Begins a search in these shards.
    pub fn new(wanted: &Wanted, shards: impl Iterator<Item = usize>) -> MessageSearch {
        MessageSearch {
            wanted: wanted.clone(),
            stage: SearchStage::Memory(shards.collect(), SearchPlace::default()),
            messages: Vec::new(),
            unlisted: BTreeMap::new(),
            unlisted_of_others: 0,
            bytes: 0,
            from_store: 0,
            sessions: Vec::new(),
            unseen_of_others: 0,
            looked_at: 0,
            batch: Vec::new(),
            places: Vec::new(),
            store_error: None,
        }
    }

    /// Returns the next step; `None` at the end. Receivers for which `is_first` returns true are
    /// looked for in the store before all others.
    pub fn next_step(&mut self, is_first: impl Fn(&str) -> bool) -> Option<SearchStep> {
        loop {
            match &mut self.stage {
                SearchStage::Memory(shards, at) => match shards.front() {
                    Some(shard) => {
                        let query = Query::Messages { wanted: self.wanted.clone(), from: *at };
                        return Some(SearchStep::Ask(*shard, query));
                    }
                    None => self.stage = SearchStage::Store(self.in_order(&is_first)),
                },
                SearchStage::Store(_) if !self.places.is_empty() => {
                    let (places, wanted) = (std::mem::take(&mut self.places), self.wanted.clone());
                    let rows = if self.bytes < BYTES { ROWS.saturating_sub(self.from_store) } else { 0 };
                    return Some(SearchStep::Look(StoreLookup { places, wanted, rows }));
                }
                SearchStage::Store(pending) => match pending.front() {
                    Some(first) if self.looked_at < LOOKED_AT => {
                        let shard = self.sessions[*first].shard;
                        return Some(self.ask_for_places(shard));
                    }
                    _ => {
                        let has_moved = |at: &usize| self.sessions[*at].has_moved;
                        let again = (0..self.sessions.len()).filter(has_moved).collect();
                        self.stage = SearchStage::Again(again, SearchPlace::default());
                    }
                },
                SearchStage::Again(sessions, at) => {
                    let session = &self.sessions[*sessions.last()?];
                    if *at == SearchPlace::default() {
                        // They are counted once more.
                        self.unlisted.remove(&session.in_store.receiver);
                    }
                    let receiver = Some(session.in_store.receiver.clone());
                    let query =
                        Query::Messages { wanted: Wanted { receiver, ..self.wanted.clone() }, from: *at };
                    return Some(SearchStep::Ask(session.shard, query));
                }
            }
        }
    }

    /// Returns the sessions in the order in which the store is looked at. All messages of a
    /// receiver are wanted if nothing but the receiver is, and none is looked at then.
    fn in_order(&self, is_first: impl Fn(&str) -> bool) -> VecDeque<usize> {
        if self.wanted.is_release() {
            return VecDeque::new();
        }
        let all = 0..self.sessions.len();
        let (first, others): (Vec<usize>, Vec<usize>) =
            all.partition(|at| is_first(&self.sessions[*at].in_store.receiver));
        first.into_iter().chain(others).collect()
    }

    /// Returns the question for places of the next sessions, as far as they are in this shard.
    fn ask_for_places(&mut self, shard: usize) -> SearchStep {
        self.batch.clear();
        let mut sessions = Vec::new();
        if let SearchStage::Store(pending) = &mut self.stage {
            while sessions.len() < AT_ONCE
                && let Some(at) = pending.pop_front_if(|at| self.sessions[*at].shard == shard)
            {
                let SearchedSession { in_store, next, .. } = &self.sessions[at];
                if let Some(from) = next {
                    sessions.push((in_store.session, *from));
                    self.batch.push((at, 0));
                }
            }
        }
        SearchStep::Ask(shard, Query::PagedOut { sessions })
    }

    /// Takes the answer to a question.
    pub fn answered(&mut self, answer: QueryAnswer) {
        match answer {
            QueryAnswer::Messages(part) => self.found_in_memory(*part),
            QueryAnswer::PagedOut(parts) => self.found_places(parts),
            _ => debug_assert!(false, "no question of a search has such an answer"),
        }
    }

    fn found_in_memory(&mut self, part: FoundMessages) {
        let FoundMessages { messages, in_store, next } = part;
        match &mut self.stage {
            SearchStage::Memory(shards, at) => {
                let shard = shards.front().copied().unwrap_or_default();
                *at = next.unwrap_or_default();
                if next.is_none() {
                    shards.pop_front();
                }
                messages.into_iter().for_each(|row| self.list(row));
                for in_store in in_store {
                    self.remember(shard, in_store);
                }
            }
            SearchStage::Again(sessions, at) => {
                let session = sessions.last().copied().unwrap_or_default();
                *at = next.unwrap_or_default();
                if next.is_none() {
                    sessions.pop();
                }
                messages.into_iter().for_each(|row| self.found_again(session, row));
            }
            SearchStage::Store(_) => {}
        }
    }

    /// Adds a message in memory to the answer, or counts it.
    fn list(&mut self, row: FoundMessage) {
        // The messages of a session come one after the other.
        let is_first = self.messages.last().is_none_or(|last| last.session != row.session)
            && !self.unlisted.contains_key(&row.receiver);
        let most = if is_first { 2 * ROWS } else { ROWS };
        if self.messages.len() - self.from_store < most && self.bytes < BYTES {
            self.bytes += row.message.message.as_ref().map_or(0, |message| message.topic.len());
            self.messages.push(row);
        } else if let Some(count) = self.unlisted.get_mut(&row.receiver) {
            *count += 1;
        } else if self.unlisted.len() < RECEIVERS {
            self.unlisted.insert(row.receiver, 1);
        } else {
            self.unlisted_of_others += 1;
        }
    }

    fn remember(&mut self, shard: usize, in_store: InStore) {
        if self.sessions.len() >= SESSIONS {
            self.unseen_of_others += in_store.messages;
            return;
        }
        self.sessions.push(SearchedSession {
            shard,
            next: Some(in_store.first),
            in_store,
            asked: 0,
            seen: 0,
            found: 0,
            unlisted: HashSet::new(),
            has_moved: false,
        });
    }

    /// Adds a message that was in the store alone, or puts it in the place of an earlier row.
    fn found_again(&mut self, session: usize, row: FoundMessage) {
        let is_same =
            |known: &FoundMessage| known.session == row.session && known.message.name == row.message.name;
        if let Some(known) = self.messages.iter_mut().find(|known| is_same(known)) {
            *known = row;
            return;
        }
        let session = &mut self.sessions[session];
        if let Some(MessageName::Stored(number)) = row.message.name
            && session.unlisted.remove(&number)
        {
            session.found -= 1;
        }
        self.list(row);
    }

    fn found_places(&mut self, parts: Vec<PagedOutPart>) {
        let SearchStage::Store(pending) = &mut self.stage else { return };
        let mut asked = std::mem::take(&mut self.batch).into_iter();
        for PagedOutPart { places, next, .. } in parts {
            let Some((at, _)) = asked.next() else { break };
            let session = &mut self.sessions[at];
            session.has_moved |= places.first().map(|(number, _)| *number) != session.next;
            session.next = next;
            session.asked += places.len();
            self.batch.push((at, places.len()));
            self.places.extend(places);
            if next.is_some() {
                pending.push_front(at);
            }
        }
        // There was no room for the rest.
        asked.rev().for_each(|(at, _)| pending.push_front(at));
    }

    /// Takes the result of a look at the store. A look that was not finished ends the search there.
    pub fn looked(&mut self, looked: StoreLooked) {
        let StoreLooked { numbers, missing, found, rows } = looked;
        self.looked_at += numbers.len();
        let batch = std::mem::take(&mut self.batch);
        if numbers.len() < batch.iter().map(|(_, places)| places).sum() {
            self.end_in_store(None);
        }
        let (missing, found): (HashSet<_>, HashSet<_>) =
            (missing.into_iter().collect(), found.into_iter().collect());
        let (mut numbers, mut rows) = (numbers.into_iter(), rows.into_iter().peekable());
        for (at, places) in batch {
            let session = &mut self.sessions[at];
            for number in numbers.by_ref().take(places) {
                session.seen += usize::from(!missing.contains(&number));
                if !found.contains(&number) {
                    continue;
                }
                session.found += 1;
                match rows.next_if(|(of, _)| *of == number) {
                    Some((_, stored)) => {
                        self.bytes += stored.message.topic.len();
                        self.from_store += 1;
                        self.messages.push(session.in_store.message(number, stored));
                    }
                    None => drop(session.unlisted.insert(number)),
                }
            }
        }
    }

    /// Ends the looks at the store: it does not answer, for this reason, or the time is over.
    pub fn end_in_store(&mut self, why: Option<String>) {
        self.store_error = why;
        self.places.clear();
        self.batch.clear();
        if let SearchStage::Store(pending) = &mut self.stage {
            pending.clear();
        }
    }

    /// Ends the search and returns what it has found.
    pub fn finish(self) -> Searched {
        let is_searched = match &self.stage {
            SearchStage::Memory(shards, _) => shards.is_empty(),
            SearchStage::Store(_) => !self.sessions.iter().any(|session| session.has_moved),
            SearchStage::Again(sessions, _) => sessions.is_empty(),
        };
        let is_of_receiver = self.wanted.is_release();
        let found = |session: SearchedSession| {
            let InStore { receiver, messages, wait, .. } = session.in_store;
            if is_of_receiver {
                return InStoreFound {
                    receiver,
                    messages,
                    found: messages,
                    unlisted: messages,
                    unseen: 0,
                    wait,
                };
            }
            let asked = if session.next.is_some() { session.asked.max(messages) } else { session.asked };
            let (found, unlisted) = (session.found, session.unlisted.len());
            InStoreFound { receiver, messages, found, unlisted, unseen: asked - session.seen, wait }
        };
        Searched {
            messages: self.messages,
            unlisted: self.unlisted,
            unlisted_of_others: self.unlisted_of_others,
            in_store: self.sessions.into_iter().map(found).collect(),
            unseen_of_others: self.unseen_of_others,
            is_complete: is_searched,
            store_error: self.store_error,
        }
    }
}
