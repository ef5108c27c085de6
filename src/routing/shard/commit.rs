//! What waits until the store has it: acknowledgements, tickets, bytes in outboxes, pages to read back.
//!
//! | what leaves | waits for |
//! |---|---|
//! | PUBACK | the message for its stored receivers, or all of them have acknowledged it |
//! | PUBREC | the same, and the identifier; so does everything that the message leads to |
//! | PUBCOMP, PUBREC that refuses | the identifier's removal |
//! | PUBLISH at QoS 2 | its own identifier |
//! | PUBREL | that PUBREC came |
//! | SUBACK, UNSUBACK | the subscriptions |
//! | CONNACK | the session, and the removal of one before it, whenever that ended |
//! | a ticket to a peer | what its publications led to here |
//!
//! The first two wait in their session ([`crate::mqtt::session::receiver`]), which knows their order; tickets in their
//! peer; the others in the outbox, behind a fence that holds back what comes after them too, since the stream has one order.

use super::delayed::DelayedRequest;
use super::exchange::{Gate, Readiness};
use super::{ConnectionId, SessionId, Shard};
use crate::journal::ledger::{Body, GateNumber, Ledger};
use crate::journal::record::{Batch, BodyNumber, EntryNumber, Lsn, ReadEntry};
use crate::mqtt::packet::QoS;
use crate::mqtt::session::receiver::Outcome;
use crate::routing::subscription_tree::ShardId;
use crate::time::Instant;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::VecDeque;
use std::rc::Rc;

/// Entries to read back for a session.
#[derive(Debug, PartialEq, Eq)]
pub struct PageRequest {
    pub session: SessionId,
    pub wanted: Vec<(EntryNumber, BodyNumber)>,
}

/// What a shard has of the store.
#[derive(Debug)]
pub(super) struct Stored {
    pub ledger: Rc<Ledger>,
    /// Number of the first of `gates`.
    first: GateNumber,
    gates: VecDeque<(Lsn, Option<Waits>)>,
    /// Sessions that ended and are not known to be gone, by the hash of their client id: while there are any.
    ended: HashMap<u64, Lsn, FixedState>,
    /// Connections whose outbox waits behind a fence, each once.
    pub fenced: Vec<ConnectionId>,
    pages: VecDeque<(Lsn, PageRequest)>,
    /// Pages that were asked for and have not come.
    pages_on_their_way: usize,
    /// Sessions that wait for one of them to come: over the budget one page is read at a time.
    to_fetch: VecDeque<SessionId>,
    look_up: Option<(Lsn, DelayedRequest)>,
}

/// Who is told when a gate opens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Waits {
    /// The publisher, here or at a peer that was told that the message is held.
    Publisher { gate: Gate, outcome: Outcome },
    /// The ticket for a peer's parcel of this number.
    Ticket { peer: ShardId, number: u64 },
}

/// Whether a publisher may be told as soon as every receiver has acknowledged, be it committed or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Early {
    Yes,
    No,
}

/// At QoS 2 the identifier has to be recorded all the same.
pub(super) fn early(qos: QoS) -> Early {
    if qos == QoS::AtLeastOnce { Early::Yes } else { Early::No }
}

impl Stored {
    pub fn new(ledger: Rc<Ledger>) -> Stored {
        Stored {
            ledger,
            first: 1,
            gates: VecDeque::new(),
            ended: HashMap::default(),
            fenced: Vec::new(),
            pages: VecDeque::new(),
            pages_on_their_way: 0,
            to_fetch: VecDeque::new(),
            look_up: None,
        }
    }

    /// A session of this client ends in the batch that is being filled.
    pub fn session_ended(&mut self, client: u64) {
        self.ended.insert(client, self.ledger.lsn());
    }

    /// Whether the end of a session of this client may not be committed yet.
    pub fn is_ending(&self, client: u64) -> bool {
        self.ended.contains_key(&client)
    }

    /// Something waits until what is recorded so far is committed; `body`: or until that is done with.
    pub fn gate(&mut self, waits: Waits, body: Option<&Rc<Body>>) {
        if let Some(body) = body {
            body.releases(self.first + self.gates.len() as GateNumber);
        }
        self.gates.push_back((self.ledger.lsn(), Some(waits)));
    }
}

impl Shard {
    /// Keeps sessions that outlive their connections in a store. Before anything else is done with the shard; `next_number`
    /// is above every number that the store has seen.
    pub fn keep_in_store(&mut self, next_number: u64) {
        self.stored = Some(Box::new(Stored::new(Ledger::new(self.here.0, next_number))));
    }

    pub(super) fn ledger(&self) -> Option<&Rc<Ledger>> {
        self.stored.as_ref().map(|s| &s.ledger)
    }

    /// What this turn has to have committed. Before the parcels are sealed: a part of a move never comes before its move.
    pub fn seal_batch(&mut self, now: Instant) -> Option<Batch> {
        if self.fans.holds_seals() {
            return None;
        }
        self.stored.as_ref()?;
        // Of what was given up since the flush began: a dead letter is in the batch in which its message ends.
        self.post_letters(now);
        let full = self.is_store_full();
        let ledger = self.ledger()?;
        ledger.set_eager(full || self.stopping);
        ledger.seal()
    }

    /// The broker stops: what is recorded from here on goes to the store at once.
    pub fn begin_to_stop(&mut self) {
        self.stopping = true;
        if let Some(ledger) = self.ledger() {
            ledger.set_eager(true);
        }
    }

    /// Everything up to this batch is committed.
    pub fn committed(&mut self, now: Instant, lsn: Lsn) {
        let Some(stored) = &mut self.stored else { return };
        stored.ledger.committed(lsn);
        let open = stored.gates.iter().take_while(|(waits, _)| *waits <= lsn).count();
        let opened: Vec<Waits> = stored.gates.drain(..open).filter_map(|(_, waits)| waits).collect();
        stored.first += open as GateNumber;
        if !stored.ended.is_empty() {
            stored.ended.retain(|_, waits| *waits > lsn);
        }
        while let Some((_, request)) = stored.pages.pop_front_if(|(waits, _)| *waits <= lsn) {
            self.effects.pages.push(request);
        }
        if let Some((_, request)) = stored.look_up.take_if(|(waits, _)| *waits <= lsn) {
            self.effects.delayed.push(request);
        }
        for id in std::mem::take(&mut stored.fenced) {
            let Some(connection) = self.connections.get_mut(id) else { continue };
            connection.wire.outbox.committed(lsn);
            if connection.wire.outbox.writable() == 0 {
                if let Some(stored) = &mut self.stored {
                    stored.fenced.push(id);
                }
                continue;
            }
            connection.unfence(now);
            connection.mark_dirty(id, &mut self.effects.dirty);
            self.register_read_idle(id);
        }
        for peer in &mut self.peers {
            peer.committed(lsn);
        }
        for waits in opened {
            self.opened(now, waits);
        }
    }

    /// Messages with which every receiver has finished: whoever waits for them alone is told.
    pub(super) fn release_finished(&mut self, now: Instant) {
        let Some(stored) = &mut self.stored else { return };
        if !stored.ledger.has_finished() {
            return;
        }
        for number in stored.ledger.take_finished() {
            let Some(stored) = &mut self.stored else { return };
            let at = number.wrapping_sub(stored.first) as usize;
            let Some(waits) = stored.gates.get_mut(at).and_then(|(_, waits)| waits.take()) else { continue };
            match waits {
                Waits::Publisher { .. } => self.opened(now, waits),
                Waits::Ticket { peer, number } => {
                    if let Some(peer) = self.peers.get_mut(usize::from(peer.0)) {
                        peer.finished_one(number);
                    }
                }
            }
        }
    }

    /// What is written to a connection from here on leaves when all that was recorded so far is committed.
    pub(super) fn fence(&mut self, id: ConnectionId) {
        if let (Some(lsn), Some(connection)) =
            (self.ledger().and_then(|l| l.pending()), self.connections.get_mut(id))
        {
            connection.wire.outbox.fence(lsn);
        }
    }

    fn opened(&mut self, now: Instant, waits: Waits) {
        // A ticket waits in its peer's row, which knows its order.
        if let Waits::Publisher { gate, outcome } = waits {
            self.answer_gate(now, gate, outcome);
        }
    }

    /// Tells a gate, when what was recorded so far is committed.
    pub(super) fn answer_when_committed(&mut self, now: Instant, gate: Gate, outcome: Outcome) {
        let waits = Waits::Publisher { gate, outcome };
        match &mut self.stored {
            Some(stored) if stored.ledger.pending().is_some() => {
                stored.ledger.begin();
                stored.gate(waits, None);
            }
            _ => self.opened(now, waits),
        }
    }

    /// A stored message went to receivers here: how far the ticket for its parcel has to wait for it.
    pub(super) fn gate_ticket(
        &mut self,
        peer: ShardId,
        number: u64,
        body: &Rc<Body>,
        early: Early,
    ) -> Readiness {
        let Some(stored) = &mut self.stored else { return Readiness::Now };
        if early == Early::No {
            return Readiness::Committed(stored.ledger.lsn());
        }
        stored.gate(Waits::Ticket { peer, number }, Some(body));
        Readiness::Finished(stored.ledger.lsn())
    }

    /// Asks for what a session's queue wants read back next, once all of it is committed.
    pub(super) fn fetch(&mut self, id: SessionId) {
        let Some(stored) = &mut self.stored else { return };
        let Some(resident) = self.sessions.get_mut(id) else { return };
        if !resident.session.sender.wants_page() {
            return;
        }
        if stored.pages_on_their_way > 0 && self.common.budget.is_exceeded() {
            // A client that returns makes room, but only what is on its way already is sure to be taken.
            if resident.session.sender.wait_for_page() {
                stored.to_fetch.push_back(id);
            }
            return;
        }
        let Some(wanted) = resident.session.sender.next_page() else { return };
        self.read_back(PageRequest { session: id, wanted });
    }

    /// Asks for something to be read back, once all that is recorded is committed.
    pub(super) fn read_back(&mut self, request: PageRequest) {
        let Some(stored) = &mut self.stored else { return };
        stored.pages_on_their_way += 1;
        match stored.ledger.pending() {
            Some(lsn) => stored.pages.push_back((lsn, request)),
            None => self.effects.pages.push(request),
        }
    }

    /// Asks for delayed messages, once all that is recorded is committed.
    pub(super) fn look_up(&mut self, request: DelayedRequest) {
        let Some(stored) = &mut self.stored else { return };
        match stored.ledger.pending() {
            Some(lsn) => stored.look_up = Some((lsn, request)),
            None => self.effects.delayed.push(request),
        }
    }

    /// What was asked for came.
    pub fn take_page(&mut self, now: Instant, request: &PageRequest, read: Vec<ReadEntry>) {
        if let Some(stored) = &mut self.stored {
            stored.pages_on_their_way = stored.pages_on_their_way.saturating_sub(1);
        }
        self.take_in_page(now, request, read);
        // Each either asks for its page, or waits again behind the others, for a page that is on its way.
        let waiting = self.stored.as_ref().map_or(0, |stored| stored.to_fetch.len());
        for _ in 0..waiting {
            let next = self.stored.as_mut().and_then(|stored| stored.to_fetch.pop_front());
            let Some(resident) = next.and_then(|id| self.sessions.get_mut(id)) else { continue };
            resident.session.sender.page_waited_for();
            next.into_iter().for_each(|id| self.fetch(id));
            let one_comes = self.stored.as_ref().is_some_and(|stored| stored.pages_on_their_way > 0);
            if one_comes && self.common.budget.is_exceeded() {
                break;
            }
        }
    }

    fn take_in_page(&mut self, now: Instant, request: &PageRequest, read: Vec<ReadEntry>) {
        let Shard { connections, sessions, settings, tally, .. } = self;
        let Some(resident) = sessions.get_mut(request.session) else {
            return self.take_page_of_estate(now, request, read);
        };
        resident.session.sender.take_page(&request.wanted, read, &mut tally.losses);
        let at = resident.connection.and_then(|id| Some((id, connections.get_mut(id)?)));
        let Some((id, connection)) = at else { return self.settle_losses(request.session) };
        connection.wire.outbox.lend(&mut self.pool);
        resident.session.sender.pump(now, &mut connection.wire, &settings.session.send, tally);
        self.settle_losses(request.session);
        self.admit_held(now, request.session);
        self.touch(id);
        self.register_retransmit(now, id);
        self.fetch(request.session);
    }
}
