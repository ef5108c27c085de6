//! The commit gates of one shard: acknowledgements, tickets, outboxes and page requests that wait
//! until the store has committed a batch.
//!
//! | leaves | waits for the commit of |
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
//! The first two wait in their session ([`crate::session::inbound`]), which knows their order.
//! Tickets wait in their peer. The others wait in the outbox, behind a mark that also holds back
//! the bytes after it, because a stream has one order.

use crate::mqtt::charge::{Budget, Charge, Recount, Recounted};
use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::QoS;
use crate::persistence::records::{Batch, Lsn};
use crate::persistence::rows::Body;
use crate::persistence::write_buffer::{GateNumber, WriteBuffer};
use crate::routing::subscription_tree::ShardId;
use crate::session::inbound::AckToken;
use crate::session::outbound::sender::Sender;
pub use crate::shard::effects::PageRequest;
use crate::shard::effects::{DelayedRequest, Effects};
use crate::shard::exchange::outbound::{Gate, Readiness};
use crate::shard::slots::{ConnectionId, SessionId};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::VecDeque;
use std::rc::Rc;

/// Number of gates whose room is kept when they are gone.
const KEPT_GATES: usize = 4096;

/// The durable side of one shard. Nothing waits in a shard without a store.
#[derive(Debug, Default)]
pub(crate) struct Durability {
    stored: Option<Box<Stored>>,
    stopping: bool,
}

/// The part that only a shard with a store has.
#[derive(Debug)]
struct Stored {
    write_buffer: Rc<WriteBuffer>,
    /// Number of the first of `gates`.
    first: GateNumber,
    /// One for each message whose publisher or ticket waits for a commit.
    gates: VecDeque<(Lsn, Option<Waits>)>,
    /// Of `gates`.
    charge: Charge,
    /// The end of sessions, by the hash of their client identifier, until it is committed.
    ended: HashMap<u64, Lsn, FixedState>,
    /// Connections whose outbox waits for a commit, each once.
    held_until_commit: Vec<ConnectionId>,
    /// Page requests that wait for a commit.
    pages: VecDeque<(Lsn, PageRequest)>,
    /// Page requests that have no answer yet.
    pages_requested: usize,
    /// Sessions that wait for such an answer. Over the memory budget one page is read at a time.
    to_fetch: VecDeque<SessionId>,
    /// A request for delayed messages that waits for a commit.
    look_up: Option<(Lsn, DelayedRequest)>,
}

/// Who is informed when a gate opens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waits {
    /// The publisher, here or at a peer.
    Publisher { gate: Gate, outcome: Outcome },
    /// The ticket for the batch of this number from a peer.
    Ticket { peer: ShardId, number: u64 },
}

/// Whether an acknowledgement may leave before the commit, once every receiver has acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Early {
    Yes,
    No,
}

/// Returns `Yes` for QoS 1. At QoS 2 the identifier has to be committed in any case.
pub(crate) fn early(qos: QoS) -> Early {
    if qos == QoS::AtLeastOnce { Early::Yes } else { Early::No }
}

/// Gates that a commit opened, and connections whose outbox it may release.
#[derive(Debug, Default)]
pub(crate) struct OpenedGates {
    pub gates: Vec<Waits>,
    pub connections: Vec<ConnectionId>,
}

impl Durability {
    /// Stores sessions that outlive their connections from here on. `next_number` is above every
    /// number that the store has seen.
    pub(crate) fn keep_in_store(&mut self, here: ShardId, next_number: u64) {
        self.stored = Some(Box::new(Stored {
            write_buffer: WriteBuffer::new(here.0, next_number),
            first: 1,
            gates: VecDeque::new(),
            charge: Charge::NONE,
            ended: HashMap::default(),
            held_until_commit: Vec::new(),
            pages: VecDeque::new(),
            pages_requested: 0,
            to_fetch: VecDeque::new(),
            look_up: None,
        }));
    }

    /// Returns true if there is a store.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.stored.is_some()
    }

    /// Returns the write buffer, if there is a store.
    #[inline]
    pub(crate) fn write_buffer(&self) -> Option<&Rc<WriteBuffer>> {
        self.stored.as_ref().map(|s| &s.write_buffer)
    }

    /// Returns true if the broker stops.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Notes that the broker stops: records go to the store at once from here on.
    pub(crate) fn begin_to_stop(&mut self) {
        self.stopping = true;
        if let Some(write_buffer) = self.write_buffer() {
            write_buffer.set_eager(true);
        }
    }

    /// Seals the batch of this turn, if it has to be committed. `hurry` is true if the store has no
    /// room: then records that free some go at once.
    pub(crate) fn seal(&self, hurry: bool) -> Option<Batch> {
        let write_buffer = self.write_buffer()?;
        write_buffer.set_eager(hurry || self.stopping);
        write_buffer.seal()
    }

    /// Returns the batch that everything recorded so far is in; `None` if all is committed.
    #[inline]
    pub(crate) fn pending(&self) -> Option<Lsn> {
        self.write_buffer()?.pending()
    }

    /// Makes the present batch one that is sealed, even if nothing else is recorded in it.
    pub(crate) fn begin(&self) {
        if let Some(write_buffer) = self.write_buffer() {
            write_buffer.begin();
        }
    }

    /// Notes that a session of this client ends in the present batch.
    pub(crate) fn session_ended(&mut self, client: u64) {
        if let Some(stored) = &mut self.stored {
            stored.ended.insert(client, stored.write_buffer.lsn());
        }
    }

    /// Returns true if the end of a session of this client may not be committed yet.
    pub(crate) fn is_ending(&self, client: u64) -> bool {
        self.stored.as_ref().is_some_and(|stored| stored.ended.contains_key(&client))
    }

    /// Notes a connection whose outbox waits for a commit.
    pub(crate) fn hold(&mut self, id: ConnectionId) {
        if let Some(stored) = &mut self.stored {
            stored.held_until_commit.push(id);
        }
    }

    /// Lets a publisher wait until the records so far are committed; `early`: or until every
    /// receiver of this message has acknowledged it. Returns the number of gates that it waits for
    /// more: 1, or 0 where nothing waits.
    pub(crate) fn gate_publisher(
        &mut self,
        token: Option<(SessionId, AckToken)>,
        early: Option<&Rc<Body>>,
    ) -> u32 {
        let (Some((session, token)), Some(stored)) = (token, &mut self.stored) else { return 0 };
        let (gate, outcome) = (Gate::Here { session, token }, Outcome::Unmatched);
        stored.gate(Waits::Publisher { gate, outcome }, early);
        1
    }

    /// Lets a gate wait until the records so far are committed. Returns false if all of them are:
    /// then the caller answers the gate.
    pub(crate) fn gate_answer(&mut self, gate: Gate, outcome: Outcome) -> bool {
        let Some(stored) = &mut self.stored else { return false };
        if stored.write_buffer.pending().is_none() {
            return false;
        }
        stored.write_buffer.begin();
        stored.gate(Waits::Publisher { gate, outcome }, None);
        true
    }

    /// Returns how far the ticket for a peer's batch has to wait for a stored message that it led
    /// to.
    pub(crate) fn gate_ticket(
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

    /// Notes that everything up to this batch is committed. Requests that waited for it go into the
    /// effects. Returns the gates that open.
    pub(crate) fn committed(&mut self, lsn: Lsn, effects: &mut Effects) -> OpenedGates {
        let Some(stored) = &mut self.stored else { return OpenedGates::default() };
        stored.write_buffer.committed(lsn);
        let open = stored.gates.iter().take_while(|(waits, _)| *waits <= lsn).count();
        let gates: Vec<Waits> = stored.gates.drain(..open).filter_map(|(_, waits)| waits).collect();
        stored.first += open as GateNumber;
        stored.give_back_room();
        if !stored.ended.is_empty() {
            stored.ended.retain(|_, waits| *waits > lsn);
        }
        while let Some((_, request)) = stored.pages.pop_front_if(|(waits, _)| *waits <= lsn) {
            effects.pages.push(request);
        }
        if let Some((_, request)) = stored.look_up.take_if(|(waits, _)| *waits <= lsn) {
            effects.delayed.push(request);
        }
        OpenedGates { gates, connections: std::mem::take(&mut stored.held_until_commit) }
    }

    /// Returns those who wait for a message that every receiver has acknowledged meanwhile.
    pub(crate) fn take_finished(&mut self) -> Vec<Waits> {
        match &mut self.stored {
            Some(stored) if stored.write_buffer.has_finished() => {
                let finished = stored.write_buffer.take_finished();
                finished.into_iter().filter_map(|number| stored.take_gate(number)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Requests the next page of a session's queue, if the queue wants one. Over the memory budget
    /// one page is read at a time, and only for a client that acknowledges.
    pub(crate) fn fetch(
        &mut self,
        id: SessionId,
        sender: &mut Sender,
        budget: &Budget,
        effects: &mut Effects,
    ) {
        let Some(stored) = &mut self.stored else { return };
        if !sender.wants_page() {
            return;
        }
        if stored.pages_requested > 0 && budget.is_exceeded() {
            // A client that returns makes room, but only a page that was requested is sure to be
            // taken.
            if sender.wait_for_page() {
                stored.to_fetch.push_back(id);
            }
            return;
        }
        if sender.in_flight() > 0 && budget.is_exceeded() {
            // The client has to acknowledge first, and then asks again. Otherwise a client that
            // takes bytes and acknowledges none has page after page in memory.
            return;
        }
        let Some(wanted) = sender.next_page() else { return };
        self.read_back(PageRequest { session: id, wanted }, effects);
    }

    /// Requests a page, once all records so far are committed.
    pub(crate) fn read_back(&mut self, request: PageRequest, effects: &mut Effects) {
        let Some(stored) = &mut self.stored else { return };
        stored.pages_requested += 1;
        match stored.write_buffer.pending() {
            Some(lsn) => stored.pages.push_back((lsn, request)),
            None => effects.pages.push(request),
        }
    }

    /// Requests delayed messages, once all records so far are committed.
    pub(crate) fn look_up(&mut self, request: DelayedRequest, effects: &mut Effects) {
        let Some(stored) = &mut self.stored else { return };
        match stored.write_buffer.pending() {
            Some(lsn) => stored.look_up = Some((lsn, request)),
            None => effects.delayed.push(request),
        }
    }

    /// Notes that a page came.
    pub(crate) fn page_came(&mut self) {
        if let Some(stored) = &mut self.stored {
            stored.pages_requested = stored.pages_requested.saturating_sub(1);
        }
    }

    /// Returns true if a page request has no answer yet.
    pub(crate) fn is_reading(&self) -> bool {
        self.stored.as_ref().is_some_and(|stored| stored.pages_requested > 0)
    }

    /// Returns the number of sessions that wait for a page of another one.
    pub(crate) fn waiting_to_fetch(&self) -> usize {
        self.stored.as_ref().map_or(0, |stored| stored.to_fetch.len())
    }

    /// Takes out the first session that waits for a page of another one.
    pub(crate) fn next_to_fetch(&mut self) -> Option<SessionId> {
        self.stored.as_mut()?.to_fetch.pop_front()
    }
}

impl Stored {
    fn gate(&mut self, waits: Waits, body: Option<&Rc<Body>>) {
        if let Some(body) = body {
            body.releases(self.first + self.gates.len() as GateNumber);
        }
        if self.gates.len() == self.gates.capacity() {
            self.add_room_for_gates();
        }
        self.gates.push_back((self.write_buffer.lsn(), Some(waits)));
    }

    fn take_gate(&mut self, number: GateNumber) -> Option<Waits> {
        let at = number.wrapping_sub(self.first) as usize;
        self.gates.get_mut(at)?.1.take()
    }

    /// Called once for each doubling.
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

impl Recount for Durability {
    fn recount(&self) -> Recounted {
        let count = |stored: &Stored| Recounted { held: stored.rows(), charged: stored.charge.bytes() };
        self.stored.as_deref().map_or_else(Recounted::default, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durability() -> Durability {
        let mut durability = Durability::default();
        durability.keep_in_store(ShardId(0), 1);
        durability
    }

    fn gate(index: u32) -> Gate {
        Gate::Peer { shard: ShardId(1), number: 1, index }
    }

    #[test]
    fn without_a_store_nothing_waits() {
        let mut durability = Durability::default();
        assert!(!durability.is_on() && !durability.gate_answer(gate(0), Outcome::Taken));
        assert!(durability.pending().is_none() && durability.seal(true).is_none());
    }

    #[test]
    fn a_gate_opens_with_the_commit_of_the_batch_that_it_was_made_in() {
        let (mut durability, mut effects) = (durability(), Effects::default());
        assert!(!durability.gate_answer(gate(0), Outcome::Taken), "nothing is recorded");
        let mut sealed = Vec::new();
        for index in 1..=2 {
            durability.begin();
            assert!(durability.gate_answer(gate(index), Outcome::Taken));
            sealed.extend(durability.pending());
            assert!(durability.seal(true).is_some());
        }
        for lsn in sealed {
            assert_eq!(durability.committed(lsn, &mut effects).gates.len(), 1);
        }
        assert!(durability.pending().is_none());
    }

    #[test]
    fn a_page_is_requested_when_the_records_before_it_are_committed() {
        let (mut durability, mut effects) = (durability(), Effects::default());
        let request = || PageRequest { session: SessionId::new(1, 0), wanted: Vec::new() };
        durability.begin();
        let lsn = durability.pending();
        durability.read_back(request(), &mut effects);
        assert!(effects.pages.is_empty() && durability.is_reading());
        assert!(durability.seal(true).is_some());
        durability.committed(lsn.expect("a batch"), &mut effects);
        assert_eq!(effects.pages, [request()]);
        durability.page_came();
        assert!(!durability.is_reading());
    }

    #[test]
    fn a_session_is_ending_until_its_end_is_committed() {
        let (mut durability, mut effects) = (durability(), Effects::default());
        durability.begin();
        durability.session_ended(7);
        let lsn = durability.pending().expect("a batch");
        assert!(durability.is_ending(7) && !durability.is_ending(8));
        assert!(durability.seal(true).is_some());
        durability.committed(lsn, &mut effects);
        assert!(!durability.is_ending(7));
    }
}
