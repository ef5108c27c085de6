//! Decides which batches may be committed together.
//!
//! The batches of a shard are committed in their order. A batch that began a
//! [`Transaction`](crate::persistence::records::Transaction) must be committed together with all
//! participants of the transaction. Participants are in later batches of other shards. If such a
//! batch cannot be committed yet, its participant is pulled out, and the rest of the batch waits
//! for the transaction.
//!
//! A participant may call for more participants: a shared message that one member refuses goes on
//! to the next member within the same transaction. All outcomes together decide about the packet
//! identifier that the transaction takes over: if no receiver took the message, the publisher's
//! identifier is not stored either.
//!
//! So a batch waits for batches that arrived earlier, and for participants that only have to
//! arrive. One pass in the order of arrival finds the largest set that may be committed. Two shards
//! that send messages to each other without a pause never block each other.

use crate::mqtt::outcome::Outcome;
use crate::persistence::records::{Batch, Committed, Participant, Record, TransactionNumber};
use crate::store::coalesce::CommitGroup;
use crate::time::Instant;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::VecDeque;

/// The size from which a commit group takes no further batch. A batch is never split, so a group
/// may be larger.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Records.
    pub records: u64,
    /// Bytes, as [`CommitGroup::size`] estimates them.
    pub bytes: usize,
}

/// Batches that are not committed yet.
#[derive(Debug, Default)]
pub struct CommitQueue {
    /// One queue for each shard, in the order of its batches.
    shards: Vec<ShardQueue>,
    /// Every transaction whose batch is not committed.
    transactions: HashMap<TransactionNumber, Gathering, FixedState>,
    arrived: u64,
    records: usize,
    /// Transactions that the present call of [`CommitQueue::take`] has folded in, whose
    /// participants may be in batches that stay.
    taken: Vec<Gathering>,
}

#[derive(Debug, Default)]
struct ShardQueue {
    waiting: VecDeque<WaitingBatch>,
    /// True if the first batch must wait, so that the present call of [`CommitQueue::take`] takes
    /// no more batches of this shard.
    stopped: bool,
}

#[derive(Debug)]
struct WaitingBatch {
    arrival: u64,
    /// The time of the arrival.
    since: Instant,
    batch: Batch,
}

/// The state of one transaction: its participants so far.
#[derive(Debug)]
struct Gathering {
    missing: u32,
    /// The shard and arrival of each batch that holds a participant.
    participants: Vec<(u8, u64)>,
    number: TransactionNumber,
    /// The outcome of the batch and of those participants together.
    outcome: Outcome,
}

impl CommitQueue {
    /// Adds a batch that arrived now. Earlier batches of its shard, and the batches that began the
    /// transactions of its participants, come before it.
    ///
    /// # Panics
    /// If a participant comes before its transaction: committed alone, it would be half a
    /// transaction.
    pub fn push(&mut self, now: Instant, batch: Batch) {
        let arrival = self.arrived;
        self.arrived += 1;
        self.records += records(&batch);
        for begun in &batch.transactions {
            let (number, outcome) = (begun.number, begun.outcome);
            let gathering =
                Gathering { missing: begun.participants, participants: Vec::new(), number, outcome };
            self.transactions.insert(number, gathering);
        }
        for participant in &batch.participants {
            let gathering = self
                .transactions
                .get_mut(&participant.of)
                .expect("a participant comes after its transaction");
            let missing =
                gathering.missing.checked_sub(1).expect("a transaction has the participants that it named");
            gathering.missing = missing + participant.more;
            gathering.outcome = gathering.outcome.or(participant.outcome);
            gathering.participants.push((batch.shard, arrival));
        }
        let shard = usize::from(batch.shard);
        if self.shards.len() <= shard {
            self.shards.resize_with(shard + 1, ShardQueue::default);
        }
        self.shards[shard].waiting.push_back(WaitingBatch { arrival, since: now, batch });
    }

    /// Returns true if no batch waits.
    pub fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.waiting.is_empty())
    }

    /// Returns the number of records that wait.
    pub fn records(&self) -> usize {
        self.records
    }

    /// Returns the time at which the oldest batch that waits arrived; [`Instant::NEVER`] if none
    /// waits. Costs a look at each shard.
    pub fn oldest(&self) -> Instant {
        let fronts = self.shards.iter().filter_map(|shard| shard.waiting.front());
        fronts.map(|front| front.since).min().unwrap_or(Instant::NEVER)
    }

    /// Folds batches that may be committed together into the group, until the group reaches the
    /// bounds.
    ///
    /// Writes into `committed` the last batch of each shard that is in the group, one entry for
    /// each shard. Returns true if the group has a new batch.
    pub fn take(&mut self, bounds: Bounds, group: &mut CommitGroup, committed: &mut Vec<Committed>) -> bool {
        self.shards.iter_mut().for_each(|shard| shard.stopped = false);
        let mut any = false;
        while group.recorded() < bounds.records && group.size() < bounds.bytes {
            let Some(shard) = self.next_shard() else { break };
            if !self.may_go(shard) {
                self.shards[shard].stopped = true;
                continue;
            }
            let Some(WaitingBatch { batch, .. }) = self.shards[shard].waiting.pop_front() else { continue };
            any = true;
            self.records -= records(&batch);
            note(committed, Committed { shard: batch.shard, lsn: batch.lsn });
            self.fold(batch, group);
        }
        self.pull_participants(group);
        any
    }

    /// Returns the shard whose next batch arrived first.
    fn next_shard(&self) -> Option<usize> {
        let fronts = self.shards.iter().enumerate().filter(|(_, shard)| !shard.stopped);
        let arrivals = fronts.filter_map(|(at, shard)| Some((shard.waiting.front()?.arrival, at)));
        arrivals.min().map(|(_, at)| at)
    }

    /// Returns true if every transaction that the first batch of this shard began is complete, and
    /// every transaction that it participates in is committed or folded in. A transaction leaves
    /// the map when it is folded in.
    fn may_go(&self, shard: usize) -> bool {
        let Some(WaitingBatch { batch, .. }) = self.shards[shard].waiting.front() else { return false };
        let whole = batch
            .transactions
            .iter()
            .all(|m| self.transactions.get(&m.number).is_none_or(|g| g.missing == 0));
        whole && batch.participants.iter().all(|participant| !self.transactions.contains_key(&participant.of))
    }

    fn fold(&mut self, batch: Batch, group: &mut CommitGroup) {
        group.take_charge(&batch.charge);
        let participants = batch.participants.into_iter().flat_map(|participant| participant.records);
        participants.chain(batch.records).for_each(|record| group.fold(record));
        for begun in batch.transactions {
            let gathered = self.transactions.remove(&begun.number);
            let refused = gathered.as_ref().is_some_and(|g| g.outcome.reason().is_error());
            if let Some((session, packet_id)) = begun.incoming.filter(|_| refused) {
                group.fold(Record::IncomingRefused { session, packet_id });
            }
            self.taken.extend(gathered);
        }
    }

    /// Folds in the participants from batches that stay. These participants come last, as their
    /// batches would.
    fn pull_participants(&mut self, group: &mut CommitGroup) {
        while let Some(gathering) = self.taken.pop() {
            for (shard, arrival) in gathering.participants {
                let waiting = &mut self.shards[usize::from(shard)].waiting;
                let Ok(at) = waiting.binary_search_by_key(&arrival, |waiting| waiting.arrival) else {
                    continue;
                };
                let participants = &mut waiting[at].batch.participants;
                let pulled = participants.extract_if(.., |participant| participant.of == gathering.number);
                for record in pulled.flat_map(|participant: Participant| participant.records) {
                    self.records -= 1;
                    group.fold(record);
                }
            }
        }
    }
}

fn records(batch: &Batch) -> usize {
    batch.records.len()
        + batch.participants.iter().map(|participant| participant.records.len()).sum::<usize>()
}

/// Notes a batch as the last one of its shard, on behalf of all earlier batches of the shard.
fn note(committed: &mut Vec<Committed>, next: Committed) {
    match committed.iter_mut().find(|before| before.shard == next.shard) {
        Some(before) => before.lsn = next.lsn,
        None => committed.push(next),
    }
}

#[cfg(test)]
mod tests;
