//! Which batches may be committed together.
//!
//! A shard's batches are committed in their order. A batch that began a [`Move`](super::record::Move) needs all of the
//! move's parts in the same transaction. Those stand in later batches of other shards, and are pulled out of them where the
//! batch itself cannot go yet; the rest of such a batch waits for the move. A part may call for more: so a shared message that
//! its member refuses goes on to the next within the same transaction. And what the parts come to together decides about the
//! identifier that the move takes over: a message that nobody took is not taken over either.
//!
//! So what a batch waits for is either earlier in the order of arrival, or a part that only has to have arrived: one
//! pass in that order finds the largest set that may go, and shards that move messages to each other without a pause
//! never wait for a moment when neither does.

use super::group::Group;
use super::record::{Batch, Committed, MoveNumber, Part, Record};
use crate::mqtt::session::receiver::Outcome;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::VecDeque;

/// How much one transaction takes, in whole batches: it ends with the batch that reaches either.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub records: u64,
    pub bytes: usize,
}

/// Batches that are not committed yet.
#[derive(Debug, Default)]
pub struct Backlog {
    /// One queue for each shard, in the order of its batches.
    shards: Vec<Queue>,
    /// Every move whose batch waits.
    moves: HashMap<MoveNumber, Gathering, FixedState>,
    arrived: u64,
    records: usize,
    /// Moves of the set that is being taken, whose parts stand in batches that are not.
    taken: Vec<Gathering>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// No more of it in this set: its first batch cannot go.
    stopped: bool,
}

#[derive(Debug)]
struct Waiting {
    arrival: u64,
    batch: Batch,
}

/// What has come of a move so far.
#[derive(Debug)]
struct Gathering {
    missing: u32,
    /// The shard and arrival of each batch that holds a part.
    parts: Vec<(u8, u64)>,
    number: MoveNumber,
    /// Of the batch and those parts.
    outcome: Outcome,
}

impl Backlog {
    /// Takes in a batch, which comes after the batches of its shard before it and of the moves it has parts of.
    ///
    /// # Panics
    /// If a part comes before its move: committed alone, it would be half a move.
    pub fn push(&mut self, batch: Batch) {
        let arrival = self.arrived;
        self.arrived += 1;
        self.records += records(&batch);
        for begun in &batch.moves {
            let (number, outcome) = (begun.number, begun.outcome);
            let gathering = Gathering { missing: begun.parts, parts: Vec::new(), number, outcome };
            self.moves.insert(number, gathering);
        }
        for part in &batch.parts {
            let gathering = self.moves.get_mut(&part.of).expect("a part comes after its move");
            let missing = gathering.missing.checked_sub(1).expect("a move has the parts that it named");
            gathering.missing = missing + part.more;
            gathering.outcome = gathering.outcome.or(part.outcome);
            gathering.parts.push((batch.shard, arrival));
        }
        let shard = usize::from(batch.shard);
        if self.shards.len() <= shard {
            self.shards.resize_with(shard + 1, Queue::default);
        }
        self.shards[shard].waiting.push_back(Waiting { arrival, batch });
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.waiting.is_empty())
    }

    /// Records that wait.
    pub fn records(&self) -> usize {
        self.records
    }

    /// Folds what may be committed together into the group, until that reaches the bounds, and says in `committed` how
    /// far that takes each shard: one entry a shard. Whether anything was taken.
    pub fn take(&mut self, bounds: Bounds, group: &mut Group, committed: &mut Vec<Committed>) -> bool {
        self.shards.iter_mut().for_each(|shard| shard.stopped = false);
        let mut any = false;
        while group.recorded() < bounds.records && group.bytes() < bounds.bytes {
            let Some(shard) = self.next_shard() else { break };
            if !self.may_go(shard) {
                self.shards[shard].stopped = true;
                continue;
            }
            let Some(Waiting { batch, .. }) = self.shards[shard].waiting.pop_front() else { continue };
            any = true;
            self.records -= records(&batch);
            note(committed, Committed { shard: batch.shard, lsn: batch.lsn });
            self.fold(batch, group);
        }
        self.pull_parts(group);
        any
    }

    /// The shard whose next batch arrived first.
    fn next_shard(&self) -> Option<usize> {
        let fronts = self.shards.iter().enumerate().filter(|(_, shard)| !shard.stopped);
        let arrivals = fronts.filter_map(|(at, shard)| Some((shard.waiting.front()?.arrival, at)));
        arrivals.min().map(|(_, at)| at)
    }

    /// Every move it began is whole, and every move it has a part of is committed or in the set: it is in the set exactly
    /// if it has left the map, for its batch arrived before this one.
    fn may_go(&self, shard: usize) -> bool {
        let Some(Waiting { batch, .. }) = self.shards[shard].waiting.front() else { return false };
        let whole = batch.moves.iter().all(|m| self.moves.get(&m.number).is_none_or(|g| g.missing == 0));
        whole && batch.parts.iter().all(|part| !self.moves.contains_key(&part.of))
    }

    fn fold(&mut self, batch: Batch, group: &mut Group) {
        group.hold(&batch.charge);
        let parts = batch.parts.into_iter().flat_map(|part| part.records);
        parts.chain(batch.records).for_each(|record| group.fold(record));
        for begun in batch.moves {
            let gathered = self.moves.remove(&begun.number);
            let refused = gathered.as_ref().is_some_and(|g| g.outcome.reason().is_error());
            if let Some((session, packet_id)) = begun.incoming.filter(|_| refused) {
                group.fold(Record::IncomingRefused { session, packet_id });
            }
            self.taken.extend(gathered);
        }
    }

    /// The parts of the moves taken that stand in batches which were not: behind all else, as those batches are.
    fn pull_parts(&mut self, group: &mut Group) {
        while let Some(gathering) = self.taken.pop() {
            for (shard, arrival) in gathering.parts {
                let waiting = &mut self.shards[usize::from(shard)].waiting;
                let Ok(at) = waiting.binary_search_by_key(&arrival, |waiting| waiting.arrival) else {
                    continue;
                };
                let parts = &mut waiting[at].batch.parts;
                let pulled = parts.extract_if(.., |part| part.of == gathering.number);
                for record in pulled.flat_map(|part: Part| part.records) {
                    self.records -= 1;
                    group.fold(record);
                }
            }
        }
    }
}

fn records(batch: &Batch) -> usize {
    batch.records.len() + batch.parts.iter().map(|part| part.records.len()).sum::<usize>()
}

/// A shard's later batch stands for those before it.
fn note(committed: &mut Vec<Committed>, next: Committed) {
    match committed.iter_mut().find(|before| before.shard == next.shard) {
        Some(before) => before.lsn = next.lsn,
        None => committed.push(next),
    }
}

#[cfg(test)]
mod tests;
