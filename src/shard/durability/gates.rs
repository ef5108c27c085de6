//! What waits until the store has it: acknowledgements, tickets, bytes in outboxes, pages to read
//! back.
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
//! The first two wait in their session ([`crate::session::inbound`]), which knows their order;
//! tickets in their peer; the others in the outbox, behind a mark that holds back what comes after
//! them too, since the stream has one order.

use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::QoS;
use crate::persistence::records::{Batch, BodyNumber, EntryNumber, Lsn, ReadEntry};
use crate::persistence::rows::Body;
use crate::persistence::write_buffer::{GateNumber, WriteBuffer};
use crate::routing::subscription_tree::ShardId;
use crate::shard::Shard;
use crate::shard::exchange::outbound::{Gate, Readiness};
use crate::shard::features::delayed::DelayedRequest;
use crate::shard::slots::{ConnectionId, SessionId};
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

/// Gates whose room is kept.
const KEPT_GATES: usize = 4096;

/// What a shard has of the store.
#[derive(Debug)]
pub(in crate::shard) struct Stored {
    pub write_buffer: Rc<WriteBuffer>,
    /// Number of the first of `gates`.
    first: GateNumber,
    gates: VecDeque<(Lsn, Option<Waits>)>,
    /// Of the row of gates: one for each message whose publisher or ticket waits for a commit.
    charge: Charge,
    /// Sessions that ended and are not known to be gone, by the hash of their client id: while
    /// there are any.
    ended: HashMap<u64, Lsn, FixedState>,
    /// Connections whose outbox waits for a commit, each once.
    pub held_until_commit: Vec<ConnectionId>,
    pages: VecDeque<(Lsn, PageRequest)>,
    /// Pages that were asked for and have not come.
    pages_on_their_way: usize,
    /// Sessions that wait for one of them to come: over the budget one page is read at a time.
    to_fetch: VecDeque<SessionId>,
    look_up: Option<(Lsn, DelayedRequest)>,
}

/// Who is told when a gate opens.
#[derive(Clone, Copy, Debug)]
pub(in crate::shard) enum Waits {
    /// The publisher, here or at a peer that was told that the message is held.
    Publisher { gate: Gate, outcome: Outcome },
    /// The ticket for a peer's peer batch of this number.
    Ticket { peer: ShardId, number: u64 },
}

/// Whether a publisher may be told as soon as every receiver has acknowledged, be it committed or
/// not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::shard) enum Early {
    Yes,
    No,
}

/// At QoS 2 the identifier has to be recorded all the same.
pub(in crate::shard) fn early(qos: QoS) -> Early {
    if qos == QoS::AtLeastOnce { Early::Yes } else { Early::No }
}

impl Stored {
    pub fn new(write_buffer: Rc<WriteBuffer>) -> Stored {
        Stored {
            write_buffer,
            first: 1,
            gates: VecDeque::new(),
            charge: Charge::NONE,
            ended: HashMap::default(),
            held_until_commit: Vec::new(),
            pages: VecDeque::new(),
            pages_on_their_way: 0,
            to_fetch: VecDeque::new(),
            look_up: None,
        }
    }

    /// A session of this client ends in the batch that is being filled.
    pub fn session_ended(&mut self, client: u64) {
        self.ended.insert(client, self.write_buffer.lsn());
    }

    /// Whether the end of a session of this client may not be committed yet.
    pub fn is_ending(&self, client: u64) -> bool {
        self.ended.contains_key(&client)
    }

    /// Something waits until what is recorded so far is committed; `body`: or until that is done
    /// with.
    pub fn gate(&mut self, waits: Waits, body: Option<&Rc<Body>>) {
        if let Some(body) = body {
            body.releases(self.first + self.gates.len() as GateNumber);
        }
        if self.gates.len() == self.gates.capacity() {
            self.add_room_for_gates();
        }
        self.gates.push_back((self.write_buffer.lsn(), Some(waits)));
    }

    /// Once for each doubling.
    #[cold]
    fn add_room_for_gates(&mut self) {
        self.gates.reserve(16);
        self.charge.set(self.rows());
    }

    fn give_back_room(&mut self) {
        if self.gates.capacity() > KEPT_GATES && self.gates.len() * 4 <= self.gates.capacity() {
            self.gates.shrink_to((self.gates.len() * 2).max(KEPT_GATES));
            self.charge.set(self.rows());
        }
    }

    fn rows(&self) -> usize {
        self.gates.capacity() * size_of::<(Lsn, Option<Waits>)>()
    }
}

impl Recount for Stored {
    fn recount(&self) -> Recounted {
        Recounted { held: self.rows(), charged: self.charge.bytes() }
    }
}

impl Shard {
    /// Keeps sessions that outlive their connections in a store. Before anything else is done with
    /// the shard; `next_number` is above every number that the store has seen.
    pub fn keep_in_store(&mut self, next_number: u64) {
        self.stored = Some(Box::new(Stored::new(WriteBuffer::new(self.here.0, next_number))));
    }

    pub(in crate::shard) fn write_buffer(&self) -> Option<&Rc<WriteBuffer>> {
        self.stored.as_ref().map(|s| &s.write_buffer)
    }

    /// What this turn has to have committed. Before the peer batches are sealed: a part of a
    /// transaction never comes before the transaction begins.
    pub fn seal_batch(&mut self, now: Instant) -> Option<Batch> {
        self.stored.as_ref()?;
        // Of what was given up since the flush began: a dead letter is in the batch in which its
        // message ends.
        self.publish_dead_letters(now);
        if self.holds_seals() {
            return None;
        }
        let full = self.is_store_full();
        let write_buffer = self.write_buffer()?;
        write_buffer.set_eager(full || self.stopping);
        write_buffer.seal()
    }

    /// Whether neither a batch nor a peer batch may be sealed: a publication that is committed as a
    /// whole goes on in a later turn, or a dead letter does.
    pub(in crate::shard) fn holds_seals(&self) -> bool {
        self.fans.holds_seals() || self.stored.is_some() && !self.dead_letters.is_empty()
    }

    /// The broker stops: what is recorded from here on goes to the store at once.
    pub fn begin_to_stop(&mut self) {
        self.stopping = true;
        if let Some(write_buffer) = self.write_buffer() {
            write_buffer.set_eager(true);
        }
    }

    /// Everything up to this batch is committed.
    pub fn committed(&mut self, now: Instant, lsn: Lsn) {
        let Some(stored) = &mut self.stored else { return };
        stored.write_buffer.committed(lsn);
        let open = stored.gates.iter().take_while(|(waits, _)| *waits <= lsn).count();
        let opened: Vec<Waits> = stored.gates.drain(..open).filter_map(|(_, waits)| waits).collect();
        stored.first += open as GateNumber;
        stored.give_back_room();
        if !stored.ended.is_empty() {
            stored.ended.retain(|_, waits| *waits > lsn);
        }
        while let Some((_, request)) = stored.pages.pop_front_if(|(waits, _)| *waits <= lsn) {
            self.effects.pages.push(request);
        }
        if let Some((_, request)) = stored.look_up.take_if(|(waits, _)| *waits <= lsn) {
            self.effects.delayed.push(request);
        }
        for id in std::mem::take(&mut stored.held_until_commit) {
            let Some(connection) = self.connections.get_mut(id) else { continue };
            connection.wire.outbox.committed(lsn);
            if connection.wire.outbox.writable() == 0 {
                if let Some(stored) = &mut self.stored {
                    stored.held_until_commit.push(id);
                }
                continue;
            }
            connection.release_committed(now);
            connection.mark_dirty(id, &mut self.effects.dirty);
            self.register_read_idle(id);
        }
        self.exchange.committed(lsn);
        for waits in opened {
            self.opened(now, waits);
        }
    }

    /// Messages with which every receiver has finished: whoever waits for them alone is told.
    pub(in crate::shard) fn release_finished(&mut self, now: Instant) {
        let Some(stored) = &mut self.stored else { return };
        if !stored.write_buffer.has_finished() {
            return;
        }
        for number in stored.write_buffer.take_finished() {
            let Some(stored) = &mut self.stored else { return };
            let at = number.wrapping_sub(stored.first) as usize;
            let Some(waits) = stored.gates.get_mut(at).and_then(|(_, waits)| waits.take()) else { continue };
            match waits {
                Waits::Publisher { .. } => self.opened(now, waits),
                Waits::Ticket { peer, number } => {
                    if let Some(peer) = self.exchange.peer(peer) {
                        peer.finished_one(number);
                    }
                }
            }
        }
    }

    /// What is written to a connection from here on leaves when all that was recorded so far is
    /// committed.
    pub(in crate::shard) fn hold_until_commit(&mut self, id: ConnectionId) {
        if let (Some(lsn), Some(connection)) =
            (self.write_buffer().and_then(|l| l.pending()), self.connections.get_mut(id))
        {
            connection.wire.outbox.hold_until_commit(lsn);
        }
    }

    fn opened(&mut self, now: Instant, waits: Waits) {
        // A ticket waits in its peer's row, which knows its order.
        if let Waits::Publisher { gate, outcome } = waits {
            self.answer_gate(now, gate, outcome);
        }
    }

    /// Tells a gate, when what was recorded so far is committed.
    pub(in crate::shard) fn answer_when_committed(&mut self, now: Instant, gate: Gate, outcome: Outcome) {
        let waits = Waits::Publisher { gate, outcome };
        match &mut self.stored {
            Some(stored) if stored.write_buffer.pending().is_some() => {
                stored.write_buffer.begin();
                stored.gate(waits, None);
            }
            _ => self.opened(now, waits),
        }
    }

    /// A stored message went to receivers here: how far the ticket for its peer batch has to wait
    /// for it.
    pub(in crate::shard) fn gate_ticket(
        &mut self,
        peer: ShardId,
        number: u64,
        body: &Rc<Body>,
        early: Early,
    ) -> Readiness {
        let Some(stored) = &mut self.stored else { return Readiness::Now };
        if early == Early::No {
            return Readiness::Committed(stored.write_buffer.lsn());
        }
        stored.gate(Waits::Ticket { peer, number }, Some(body));
        Readiness::Finished(stored.write_buffer.lsn())
    }

    /// Asks for what a session's queue wants read back next, once all of it is committed.
    pub(in crate::shard) fn fetch(&mut self, id: SessionId) {
        let Some(stored) = &mut self.stored else { return };
        let Some(session_entry) = self.sessions.get_mut(id) else { return };
        if !session_entry.session.sender.wants_page() {
            return;
        }
        if stored.pages_on_their_way > 0 && self.shared.budget.is_exceeded() {
            // A client that returns makes room, but only what is on its way already is sure to be
            // taken.
            if session_entry.session.sender.wait_for_page() {
                stored.to_fetch.push_back(id);
            }
            return;
        }
        if session_entry.session.sender.in_flight() > 0 && self.shared.budget.is_exceeded() {
            // Its client has to acknowledge first, and with that it asks again: else who takes
            // bytes and acknowledges none has page after page in memory.
            return;
        }
        let Some(wanted) = session_entry.session.sender.next_page() else { return };
        self.read_back(PageRequest { session: id, wanted });
    }

    /// Asks for something to be read back, once all that is recorded is committed.
    pub(in crate::shard) fn read_back(&mut self, request: PageRequest) {
        let Some(stored) = &mut self.stored else { return };
        stored.pages_on_their_way += 1;
        match stored.write_buffer.pending() {
            Some(lsn) => stored.pages.push_back((lsn, request)),
            None => self.effects.pages.push(request),
        }
    }

    /// Asks for delayed messages, once all that is recorded is committed.
    pub(in crate::shard) fn look_up(&mut self, request: DelayedRequest) {
        let Some(stored) = &mut self.stored else { return };
        match stored.write_buffer.pending() {
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
        // Each either asks for its page, or waits again behind the others, for a page that is on
        // its way.
        let waiting = self.stored.as_ref().map_or(0, |stored| stored.to_fetch.len());
        for _ in 0..waiting {
            let next = self.stored.as_mut().and_then(|stored| stored.to_fetch.pop_front());
            let Some(session_entry) = next.and_then(|id| self.sessions.get_mut(id)) else { continue };
            session_entry.session.sender.page_waited_for();
            next.into_iter().for_each(|id| self.fetch(id));
            let one_comes = self.stored.as_ref().is_some_and(|stored| stored.pages_on_their_way > 0);
            if one_comes && self.shared.budget.is_exceeded() {
                break;
            }
        }
    }

    fn take_in_page(&mut self, now: Instant, request: &PageRequest, read: Vec<ReadEntry>) {
        let Shard { connections, sessions, settings, counters, .. } = self;
        let Some(session_entry) = sessions.get_mut(request.session) else {
            return self.take_page_of_orphaned_queue(now, request, read);
        };
        session_entry.session.sender.take_page(&request.wanted, read, &mut counters.drops);
        let at = session_entry.connection.and_then(|id| connections.get_mut(id));
        // Without a connection nothing is sent, so no place became free. The next page is read when
        // the client returns.
        let Some(connection) = at else { return self.report_drops(request.session) };
        connection.wire.outbox.lend(&mut self.scratch.pool);
        session_entry.session.sender.pump(now, &mut connection.wire, &settings.session.send, counters);
        self.after_session_change(now, request.session);
    }
}
