//! One peer: the next peer batch, the batches that the peer has not answered yet,
//! and the bound on them.
//!
//! A peer batch carries publications, changes to subscriptions, and answers, in the order in which
//! they arose. Between two shards, peer batches arrive in order. Nothing between shards is dropped.
//! The sender remembers each batch with publications until its ticket comes, and stops reading
//! publishers while too many publications have no ticket.

use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::mqtt::outcome::Outcome;
use crate::persistence::records::Lsn;
use crate::routing::subscription_tree::ShardId;
use std::collections::{BTreeMap, VecDeque};

use crate::peers::peer_batch::{Item, PeerBatch, ReportTo};

/// Publishers wait while this many publications to one peer, or more, have no ticket. The ticket of
/// a peer does not wait for a third shard. A publication that the peer forwards to a third shard
/// counts between these two shards. Above QoS 0, the Receive Maximum of each
/// publisher bounds the publications that are forwarded and not answered.
const MOST_OUTSTANDING: usize = 8 * 1024;
/// Publishers wait while the publications to one peer without a ticket have this many bytes, or
/// more.
const MOST_OUTSTANDING_BYTES: usize = 16 * 1024 * 1024;

/// Maximum number of rows for which an empty table keeps its memory.
const KEPT_ROWS: usize = 256;

/// Bytes of an entry of `late`, in a node that is half full.
const LATE: usize = 2 * size_of::<((u64, u32), Late)>();

/// The place to report to when the answer to one publication comes. These publications have none: a
/// publication at QoS 0, a will, and a publication whose publisher was answered already. If a peer
/// sent the message here and this shard forwards it, the place is a [`ReportTo::Peer`].
#[derive(Debug)]
pub struct Waiter {
    /// The index of the publication among those of the peer batch.
    pub index: u32,
    /// The place.
    pub report_to: ReportTo,
}

/// Everything between this shard and one peer.
#[derive(Debug, Default)]
pub struct Peer {
    /// The items of the next peer batch.
    outgoing: Vec<Item>,
    /// Number of publications in `outgoing`.
    publications: u32,
    /// Bytes of these publications.
    bytes: usize,
    /// The gates that wait for these publications.
    waiters: Vec<Waiter>,
    /// The number of the last sealed batch.
    number: u64,
    /// The batches without a ticket, in order.
    outstanding: VecDeque<Outstanding>,
    /// Number of publications in `outstanding`.
    load: usize,
    /// Bytes of these publications.
    load_bytes: usize,
    /// Tickets to the peer that wait for the commit of their deliveries, in the order of their
    /// numbers. So the ticket of a peer batch is found without a walk.
    waiting_tickets: VecDeque<WaitingTicket>,
    /// Publications that the peer holds or has forwarded, with the number of deferred answers that
    /// are to come. The key is the number of the peer batch, and the index of the publication.
    late: BTreeMap<(u64, u32), Late>,
    /// Heap bytes of the items in `outgoing`.
    outgoing_heap: usize,
    /// Heap bytes of the items in `waiting_tickets`.
    waiting_heap: usize,
    /// Capacity of the waiters in `outstanding`.
    outstanding_waiters: usize,
    /// The charge of the rows that stay from turn to turn (see `rows`). `waiters` is not charged
    /// before its batch is sealed. A batch takes the charge of its items along.
    charge: Charge,
}

/// The condition for the answer to one publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The answer need not wait.
    Now,
    /// The answer waits for this commit.
    Committed(Lsn),
    /// The answer waits for this commit, or until every receiver has finished the message. The
    /// earlier event counts.
    Finished(Lsn),
}

/// The combined conditions of all publications of a peer batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needs {
    /// The latest commit to wait for; `None` if the answer need not wait.
    lsn: Option<Lsn>,
    /// Number of messages that some receiver has not finished.
    unfinished: u32,
    /// True if the answer must wait for the commit even when all messages are finished.
    commit: bool,
}

impl Needs {
    /// Returns conditions that are never met.
    fn never() -> Needs {
        Needs { lsn: Some(Lsn(u64::MAX)), unfinished: 0, commit: true }
    }

    /// Adds the condition of one publication.
    pub fn add(&mut self, one: Readiness) {
        match one {
            Readiness::Now => {}
            Readiness::Committed(lsn) => {
                self.lsn = Some(lsn);
                self.commit = true;
            }
            Readiness::Finished(lsn) => {
                self.lsn = Some(lsn);
                self.unfinished += 1;
            }
        }
    }
}

/// A ticket that waits for its conditions.
#[derive(Debug)]
struct WaitingTicket {
    /// The number of the peer batch.
    number: u64,
    needs: Needs,
    ticket: Item,
    /// Deferred answers to the peer batch, which leave behind the ticket.
    late: Vec<(u32, Outcome)>,
}

impl WaitingTicket {
    /// Returns the bytes on the heap that nothing else charges.
    fn heap(&self) -> usize {
        self.ticket.heap() + self.late.capacity() * size_of::<(u32, Outcome)>()
    }
}

/// A publication for which `answers` deferred answers are to come.
#[derive(Debug)]
struct Late {
    answers: u32,
    outcome: Outcome,
    report_to: ReportTo,
}

/// A peer batch without a ticket.
#[derive(Debug)]
struct Outstanding {
    number: u64,
    publications: u32,
    bytes: usize,
    waiters: Vec<Waiter>,
}

impl Peer {
    /// Adds an item other than a publication to the next peer batch.
    pub fn send(&mut self, item: Item) {
        self.outgoing_heap += item.heap();
        self.outgoing.push(item);
    }

    /// Adds the ticket of the peer batch `number`, or lets the ticket wait until its conditions are
    /// met.
    pub fn answer(&mut self, number: u64, ticket: Item, needs: Needs) {
        // A ticket without a condition overtakes tickets that wait for a commit, so that a full
        // store does not stop QoS 0.
        if needs.lsn.is_none() {
            return self.send(ticket);
        }
        self.add_waiting(WaitingTicket { number, needs, ticket, late: Vec::new() });
    }

    /// Lets a ticket wait. Peer batches are answered in the order of their numbers, so its place is
    /// the last one.
    fn add_waiting(&mut self, waiting: WaitingTicket) {
        debug_assert!(self.waiting_tickets.back().is_none_or(|last| last.number < waiting.number));
        self.waiting_heap += waiting.heap();
        self.waiting_tickets.push_back(waiting);
        self.account();
    }

    /// Reserves the place of a ticket that is added later, so that no deferred answer to its peer
    /// batch overtakes it.
    pub fn promise(&mut self, number: u64) {
        let ticket = Item::Ticket { number, not_taken: Vec::new(), deferred: Vec::new() };
        self.add_waiting(WaitingTicket { number, needs: Needs::never(), ticket, late: Vec::new() });
    }

    /// Adds a ticket that was promised. `committed` is the last commit, because the commit that the
    /// ticket needs may be done already.
    pub fn answer_promised(&mut self, peer_batch: u64, ticket: Item, mut needs: Needs, committed: Lsn) {
        if needs.lsn.is_none_or(|lsn| lsn <= committed) {
            needs = Needs::default();
        }
        if let Some(at) = self.place_of(peer_batch)
            && let Some(waiting) = self.waiting_tickets.get_mut(at)
        {
            // The promised ticket, which is replaced, has nothing on the heap.
            self.waiting_heap += ticket.heap();
            (waiting.needs, waiting.ticket) = (needs, ticket);
            self.let_go(at);
            self.account();
        }
    }

    /// Adds a deferred answer. If the ticket of its peer batch waits, the answer waits
    /// behind the ticket.
    pub fn send_late(&mut self, number: u64, index: u32, outcome: Outcome) {
        let at = self.place_of(number);
        let Some(waiting) = at.and_then(|at| self.waiting_tickets.get_mut(at)) else {
            return self.send(Item::Late { number, index, outcome });
        };
        let heap = waiting.heap();
        waiting.late.push((index, outcome));
        self.waiting_heap += waiting.heap() - heap;
        self.account();
    }

    /// Notes that the batch `lsn` and all before it are committed. Moves the answers that waited
    /// for this to the next peer batch. Costs one pass over the tickets that wait.
    pub fn committed(&mut self, lsn: Lsn) {
        let is_met = |waiting: &WaitingTicket| waiting.needs.lsn.is_none_or(|waits| waits <= lsn);
        if !self.waiting_tickets.iter().any(is_met) {
            return;
        }
        for waiting in std::mem::take(&mut self.waiting_tickets) {
            if is_met(&waiting) {
                self.send_ticket(waiting);
            } else {
                self.waiting_tickets.push_back(waiting);
            }
        }
        self.account();
    }

    /// Notes that every receiver has finished one message of this peer batch. Moves the ticket to
    /// the next peer batch if it needs nothing else.
    pub fn finished_one(&mut self, peer_batch: u64) {
        if let Some(at) = self.place_of(peer_batch)
            && let Some(waiting) = self.waiting_tickets.get_mut(at)
        {
            waiting.needs.unfinished = waiting.needs.unfinished.saturating_sub(1);
            if waiting.needs.unfinished == 0 && !waiting.needs.commit {
                waiting.needs.lsn = None;
            }
            self.let_go(at);
        }
    }

    /// Returns the place of the ticket of a peer batch, if it waits.
    fn place_of(&self, peer_batch: u64) -> Option<usize> {
        self.waiting_tickets.binary_search_by_key(&peer_batch, |waiting| waiting.number).ok()
    }

    /// Moves the ticket in this place to the next peer batch if its conditions are met, and its
    /// deferred answers behind it.
    fn let_go(&mut self, at: usize) {
        if self.waiting_tickets.get(at).is_some_and(|waiting| waiting.needs.lsn.is_none())
            && let Some(waiting) = self.waiting_tickets.remove(at)
        {
            self.send_ticket(waiting);
            self.account();
        }
    }

    fn send_ticket(&mut self, waiting: WaitingTicket) {
        self.waiting_heap -= waiting.heap();
        let WaitingTicket { number, ticket, late, .. } = waiting;
        self.send(ticket);
        for (index, outcome) in late {
            self.send(Item::Late { number, index, outcome });
        }
    }

    /// Updates the charge of the rows that stay here from turn to turn. Called whenever an answer
    /// waits or moved, when a batch is sealed or its ticket comes, and when deferred answers
    /// are awaited. Also called at the end of a turn in which no batch may be sent.
    pub fn account(&mut self) {
        self.charge.set(self.rows(self.outstanding_waiters));
    }

    /// Returns the bytes of all rows and their texts, with `waiters` waiters in `outstanding`.
    fn rows(&self, waiters: usize) -> usize {
        let items = self.outgoing.capacity() * size_of::<Item>() + self.outgoing_heap + self.waiting_heap;
        items
            + self.waiting_tickets.capacity() * size_of::<WaitingTicket>()
            + self.late.len() * LATE
            + self.outstanding.capacity() * size_of::<Outstanding>()
            + waiters * size_of::<Waiter>()
    }

    /// Adds a publication of `size` bytes, and the place to report the answer to.
    pub fn publish(&mut self, item: Item, size: usize, report_to: Option<ReportTo>) {
        self.outgoing.push(item);
        self.waiters.extend(report_to.map(|report_to| Waiter { index: self.publications, report_to }));
        self.publications += 1;
        self.bytes += size;
    }

    /// Returns the number of publications without a ticket, plus those that the peer holds or has
    /// forwarded.
    pub fn unsettled(&self) -> usize {
        self.load + self.publications as usize + self.late.len()
    }

    /// Returns the number of peer batches with publications that have no ticket yet.
    pub fn pending_batches(&self) -> usize {
        self.outstanding.len()
    }

    /// Returns true if there is an item for the next peer batch.
    pub fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Returns the bytes that the peer may have to store for publications without a ticket. The
    /// result is at least the sum of `stored_bytes` over these publications.
    pub fn unsettled_bytes(&self) -> usize {
        let (messages, bytes) = (self.load + self.publications as usize, self.load_bytes + self.bytes);
        bytes + bytes.min(8192 * messages) + 256 * messages
    }

    /// Returns true if no further publications should be added for now.
    pub fn is_full(&self) -> bool {
        self.load + self.publications as usize >= MOST_OUTSTANDING
            || self.load_bytes + self.bytes >= MOST_OUTSTANDING_BYTES
    }

    /// Returns true if publishers that waited may continue, because at least half of each bound is
    /// free.
    pub fn has_room(&self) -> bool {
        self.load + (self.publications as usize) < MOST_OUTSTANDING / 2
            && self.load_bytes + self.bytes < MOST_OUTSTANDING_BYTES / 2
    }

    /// Seals the next peer batch and returns it, or returns `None` if there is no item for it.
    pub fn seal(&mut self, from: ShardId) -> Option<PeerBatch> {
        if self.outgoing.is_empty() {
            return None;
        }
        self.number += 1;
        if self.publications > 0 {
            self.load += self.publications as usize;
            self.load_bytes += self.bytes;
            self.outstanding_waiters += self.waiters.capacity();
            self.outstanding.push_back(Outstanding {
                number: self.number,
                publications: std::mem::take(&mut self.publications),
                bytes: std::mem::take(&mut self.bytes),
                waiters: std::mem::take(&mut self.waiters),
            });
        }
        let items = std::mem::take(&mut self.outgoing);
        let heap = std::mem::take(&mut self.outgoing_heap);
        let charge = Charge::new(items.capacity() * size_of::<Item>() + heap);
        self.account();
        Some(PeerBatch { from, number: self.number, items, charge })
    }

    /// Takes in a ticket. Returns the gates that waited for it. Most tickets come in the order of
    /// their peer batches, but the search does not need that order.
    pub fn settle(&mut self, number: u64) -> Vec<Waiter> {
        let at = self.outstanding.binary_search_by_key(&number, |o| o.number);
        // A ticket comes once, for a batch that is outstanding.
        let Some(front) = at.ok().and_then(|at| self.outstanding.remove(at)) else { return Vec::new() };
        self.load -= front.publications as usize;
        self.load_bytes -= front.bytes;
        self.outstanding_waiters -= front.waiters.capacity();
        if self.outstanding.capacity() > KEPT_ROWS && self.outstanding.is_empty() {
            self.outstanding = VecDeque::new();
        }
        self.account();
        front.waiters
    }

    /// Notes that the peer holds or has forwarded the publication of a waiter. `answers` deferred
    /// answers follow.
    pub fn defer(&mut self, number: u64, waiter: &Waiter, answers: u32, outcome: Outcome) {
        let Waiter { index, report_to } = *waiter;
        self.late.insert((number, index), Late { answers, outcome, report_to });
        self.account();
    }

    /// Takes in a deferred answer. Returns the place to report to and the combined outcome if this
    /// was the last answer for the publication.
    pub fn late(&mut self, number: u64, index: u32, outcome: Outcome) -> Option<(ReportTo, Outcome)> {
        let late = self.late.get_mut(&(number, index))?;
        late.outcome = late.outcome.or(outcome);
        late.answers = late.answers.saturating_sub(1);
        if late.answers > 0 {
            return None;
        }
        let late = self.late.remove(&(number, index))?;
        self.account();
        Some((late.report_to, late.outcome))
    }
}

/// Compares nothing while `outgoing` has items, because the charge is out of date then. The steps
/// of the turns since the last update bound the difference.
impl Recount for Peer {
    fn recount(&self) -> Recounted {
        if self.has_outgoing() {
            return Recounted { in_use: self.charge.bytes(), charged: self.charge.bytes() };
        }
        let heap = |items: &mut dyn Iterator<Item = &'_ Item>| items.map(Item::heap).sum::<usize>();
        debug_assert_eq!(heap(&mut self.outgoing.iter()), self.outgoing_heap);
        let heap = self.waiting_tickets.iter().map(WaitingTicket::heap).sum::<usize>();
        let waiters = self.outstanding.iter().map(|sent| sent.waiters.capacity()).sum();
        let in_use = self.rows(waiters) - self.waiting_heap + heap;
        Recounted { in_use, charged: self.charge.bytes() }
    }
}

#[cfg(test)]
#[path = "outbound_tests.rs"]
mod tests;
