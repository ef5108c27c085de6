//! The commit gates of one shard. This module knows which gate, outbox or page request waits for
//! which commit of the store. It has no packets and no tickets.
//!
//! The section Durability of `docs/architecture.md` has the table of packets and the commits that
//! they wait for. The packets and tickets wait in these places:
//!
//! | packet | waits in |
//! |---|---|
//! | PUBACK, PUBREC for a routed message | its session ([`crate::session::inbound`]) |
//! | a ticket to a peer | its peer, which knows the order of tickets |
//! | all others | the outbox, behind a mark that also gates all later bytes |
//!
//! Whether an acknowledgement needs a gate is decided in `Published::end_transaction`
//! (`shard/delivery/published.rs`), for `$delayed` in `publish.rs` beside it. Whether a commit is on the disk
//! is decided by `store.durability`, in `LoggedStore::append` (`src/store/logged/mod.rs`).
//!
//! A gate opens with the commit of its batch. The gate of a QoS 1 message can open before: when
//! every receiver has finished the message, its storage is not needed any more.

use crate::durability::read_requests::{DelayedRequest, PageRequest, ReadRequests};
use crate::mqtt::charge::{Budget, Charge, Recount, Recounted};
use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::QoS;
use crate::peers::outbound::Readiness;
use crate::peers::peer_batch::ReportTo;
use crate::persistence::records::{Batch, Lsn};
use crate::persistence::rows::Body;
use crate::persistence::write_buffer::{GateNumber, SealTime, WriteBuffer};
use crate::routing::subscription_tree::ShardId;
use crate::session::outbound::sender::Sender;
use crate::session::policy::SendPolicy;
use crate::slots::{ConnectionId, NoSession, SessionId};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::VecDeque;
use std::rc::Rc;

/// Number of gates whose memory is kept when the gates are gone.
const KEPT_GATES: usize = 4096;

/// The durable side of one shard. In a shard without a store, nothing waits.
#[derive(Debug, Default)]
pub(crate) struct Durability {
    stored: Option<Box<Stored>>,
    stopping: bool,
}

/// The part that only a shard with a store has.
#[derive(Debug)]
struct Stored {
    write_buffer: Rc<WriteBuffer>,
    /// The number of the first gate in `gates`. The numbers of the others follow without a gap.
    first: GateNumber,
    /// One gate for each message whose publisher or ticket waits for a commit: the batch, and the
    /// owner to inform. The owner is `None` if the gate opened before the commit.
    gates: VecDeque<(Lsn, Option<Waits>)>,
    /// The charge for the memory of `gates`.
    charge: Charge,
    /// For each client whose session ended: the batch that records the end, until its commit. The
    /// key is the hash of the client identifier.
    ended: HashMap<u64, Lsn, FixedState>,
    /// The connections whose outbox waits for a commit. Each is here once, or in `to_release`.
    gated_until_commit: Vec<ConnectionId>,
    /// The connections among them whose outbox the last commit may release.
    to_release: VecDeque<ConnectionId>,
    /// True while a job opens gates and releases outboxes in later turns.
    is_opening: bool,
    /// Page requests that wait for a commit.
    pages: VecDeque<(Lsn, PageRequest)>,
    /// The number of page requests whose page has not come yet.
    pages_requested: usize,
    /// The sessions that wait until the page of another session has come, to request their own. One
    /// page is read at a time while the memory budget is exceeded.
    to_fetch: VecDeque<SessionId>,
    /// A request for delayed messages that waits for a commit.
    look_up: Option<(Lsn, DelayedRequest)>,
}

/// The owner of a gate, which is informed when the gate opens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waits {
    /// The answer to a gate: a publisher in this shard, a publication of a peer, or an orphaned
    /// queue. The gate gets this outcome.
    Publisher { gate: ReportTo, outcome: Outcome },
    /// The ticket for the peer batch with this number.
    Ticket { peer: ShardId, number: u64 },
}

/// The permission to acknowledge a message before the commit, when every receiver has finished it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Early {
    Yes,
    No,
}

/// Returns `Yes` for QoS 1. At QoS 2 the Packet Identifier must be committed in any case, so the
/// result is `No`.
pub(crate) fn early(qos: QoS) -> Early {
    if qos == QoS::AtLeastOnce { Early::Yes } else { Early::No }
}

/// A thing that waited for a commit, which is done.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Opened {
    /// The commit may release the outbox of this connection.
    Connection(ConnectionId),
    /// A gate opens.
    ReportTo(Waits),
}

impl Drop for Stored {
    /// The rows of dropped messages lead back to the write buffer, so it would never end.
    fn drop(&mut self) {
        self.write_buffer.give_up_unread();
    }
}

impl Durability {
    /// Turns the store on: sessions that outlive their connections are stored from now on.
    /// `next_number` is above every number that the store has seen.
    pub(crate) fn keep_in_store(&mut self, here: ShardId, next_number: u64) {
        self.stored = Some(Box::new(Stored {
            write_buffer: WriteBuffer::new(here.0, next_number),
            first: 1,
            gates: VecDeque::new(),
            charge: Charge::NONE,
            ended: HashMap::default(),
            gated_until_commit: Vec::new(),
            to_release: VecDeque::new(),
            is_opening: false,
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

    /// Returns the size of the largest message, in bytes, that some queue of this shard may take.
    pub(crate) fn largest_queue_bytes(&self, policy: &SendPolicy) -> usize {
        let of_stored = if self.is_on() { policy.stored_queue.bytes } else { 0 };
        policy.queue.bytes.max(of_stored)
    }

    /// Returns the write buffer, if there is a store.
    #[inline]
    pub(crate) fn write_buffer(&self) -> Option<&Rc<WriteBuffer>> {
        self.stored.as_ref().map(|s| &s.write_buffer)
    }

    /// Returns true if the broker is stopping.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Notes that the broker stops. From now on each turn seals its batch, without a wait for the
    /// last commit.
    pub(crate) fn begin_to_stop(&mut self) {
        self.stopping = true;
        if let Some(write_buffer) = self.write_buffer() {
            write_buffer.set_seal_time(SealTime::AtOnce);
            write_buffer.give_up_unread();
        }
    }

    /// Seals the batch of this turn and returns it, if it is due. While the broker stops, each
    /// batch is sealed at once.
    pub(crate) fn seal(&self, time: SealTime) -> Option<Batch> {
        let write_buffer = self.write_buffer()?;
        write_buffer.set_seal_time(if self.stopping { SealTime::AtOnce } else { time });
        write_buffer.seal()
    }

    /// Returns the batch whose commit makes everything recorded so far safe, or `None` if all of it
    /// is committed.
    #[inline]
    pub(crate) fn pending(&self) -> Option<Lsn> {
        self.write_buffer()?.pending()
    }

    /// Lets the open batch be sealed and committed, even if nothing else is recorded in it.
    pub(crate) fn begin(&self) {
        if let Some(write_buffer) = self.write_buffer() {
            write_buffer.begin();
        }
    }

    /// Notes that a session of this client ends in the open batch. `client` is the hash of the
    /// client identifier.
    pub(crate) fn session_ended(&mut self, client: u64) {
        if let Some(stored) = &mut self.stored {
            stored.ended.insert(client, stored.write_buffer.lsn());
        }
    }

    /// Returns true if the end of an earlier session of this client may not be committed yet. Two
    /// clients with the same hash may lead to a needless `true`.
    pub(crate) fn is_ending(&self, client: u64) -> bool {
        self.stored.as_ref().is_some_and(|stored| stored.ended.contains_key(&client))
    }

    /// Notes a connection whose outbox waits for a commit.
    pub(crate) fn gate_outbox(&mut self, id: ConnectionId) {
        if let Some(stored) = &mut self.stored {
            stored.gated_until_commit.push(id);
        }
    }

    /// Lets an acknowledgement wait for the commit of the open batch. The caller makes sure that
    /// the batch is begun. Returns the number of gates that this adds: 1, or 0 if there is no gate
    /// or no store.
    ///
    /// With `body`, the gate also opens before the commit, when every receiver has finished the
    /// message: each receiver's [`Entry`](crate::persistence::rows::Entry) is dropped, the last one
    /// drops the [`Body`], and the body's `Drop` reports the gate. The turn then takes it with
    /// [`Self::take_finished`].
    pub(crate) fn gate_publisher(&mut self, gate: Option<ReportTo>, body: Option<&Rc<Body>>) -> u32 {
        let (Some(gate), Some(stored)) = (gate, &mut self.stored) else { return 0 };
        stored.gate(Waits::Publisher { gate, outcome: Outcome::Unmatched }, body);
        1
    }

    /// Lets a gate wait for the commit of everything recorded so far. Returns false if all of it is
    /// committed, so that the caller gives the outcome at once.
    pub(crate) fn gate_answer(&mut self, gate: ReportTo, outcome: Outcome) -> bool {
        let Some(stored) = &mut self.stored else { return false };
        if stored.write_buffer.pending().is_none() {
            return false;
        }
        stored.write_buffer.begin();
        stored.gate(Waits::Publisher { gate, outcome }, None);
        true
    }

    /// Adds one message to the conditions of a peer batch's ticket, and returns the condition.
    /// `number` is the number of the peer batch, and `body` is the stored body of the message.
    /// Without a store, the ticket need not wait. Otherwise the ticket waits for the commit of the
    /// open batch. If `early` allows it, the ticket also becomes ready when every receiver has
    /// finished the message.
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

    /// Handles the commit of all batches up to `lsn`. Requests that waited for the commit go into
    /// `reads`. [`Self::next_opened`] has the gates that open.
    pub(crate) fn committed(&mut self, lsn: Lsn, reads: &mut ReadRequests) {
        let Some(stored) = &mut self.stored else { return };
        stored.write_buffer.committed(lsn);
        stored.to_release.extend(stored.gated_until_commit.drain(..));
        if !stored.ended.is_empty() {
            stored.ended.retain(|_, waits| *waits > lsn);
        }
        while let Some((_, request)) = stored.pages.pop_front_if(|(waits, _)| *waits <= lsn) {
            reads.pages.push(request);
        }
        if let Some((_, request)) = stored.look_up.take_if(|(waits, _)| *waits <= lsn) {
            reads.delayed.push(request);
        }
    }

    /// Removes and returns the next thing whose commit is done, if any. First come the connections,
    /// then the gates in their order.
    pub(crate) fn next_opened(&mut self) -> Option<Opened> {
        let stored = self.stored.as_mut()?;
        if let Some(id) = stored.to_release.pop_front() {
            return Some(Opened::Connection(id));
        }
        let committed = stored.write_buffer.last_committed();
        while let Some((_, waits)) = stored.gates.pop_front_if(|(waits, _)| *waits <= committed) {
            stored.first += 1;
            if let Some(waits) = waits {
                return Some(Opened::ReportTo(waits));
            }
        }
        stored.give_back_room();
        None
    }

    /// Notes that a job opens gates, in later turns too. Returns true if there was such a job
    /// before.
    pub(crate) fn begin_opening(&mut self) -> bool {
        self.stored.as_mut().is_some_and(|stored| std::mem::replace(&mut stored.is_opening, true))
    }

    /// Notes that no job opens gates any more.
    pub(crate) fn end_opening(&mut self) {
        self.stored.iter_mut().for_each(|stored| stored.is_opening = false);
    }

    /// Removes and returns the owners of gates whose message every receiver finished before the
    /// commit.
    pub(crate) fn take_finished(&mut self) -> Vec<Waits> {
        match &mut self.stored {
            Some(stored) if stored.write_buffer.has_finished() => {
                let finished = stored.write_buffer.take_finished();
                finished.into_iter().filter_map(|number| stored.take_gate(number)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Requests the next page of a session's queue, if the queue needs one. While the memory budget
    /// is nearly exceeded, one page is read at a time, and only for a client that has nothing in
    /// flight.
    pub(crate) fn fetch(
        &mut self,
        id: SessionId,
        sender: &mut Sender,
        budget: &Budget,
        reads: &mut ReadRequests,
    ) {
        let Some(stored) = &mut self.stored else { return };
        let Some(queue) = sender.queue.get_mut().filter(|queue| queue.wants_page()) else { return };
        if stored.pages_requested > 0 && budget.is_nearly_exceeded() {
            // One page at a time bounds the memory of the pages. The session waits in a queue. So a
            // returning client, whose acknowledgements make room, surely gets its page.
            if queue.wait_for_page() {
                stored.to_fetch.push_back(id);
            }
            return;
        }
        if !sender.window.is_empty() && budget.is_nearly_exceeded() {
            // The client has to acknowledge first, and `fetch` is called again then. Otherwise a
            // client that reads but never acknowledges would bring page after page into memory.
            return;
        }
        if let Some(wanted) = queue.next_page() {
            self.read_back(PageRequest { session: id, wanted }, reads);
        }
    }

    /// Requests a page when everything recorded so far is committed.
    pub(crate) fn read_back(&mut self, request: PageRequest, reads: &mut ReadRequests) {
        let Some(stored) = &mut self.stored else { return };
        stored.pages_requested += 1;
        match stored.write_buffer.pending() {
            Some(lsn) => stored.pages.push_back((lsn, request)),
            None => reads.pages.push(request),
        }
    }

    /// Requests the topics of dropped messages that are in the store alone. Gives them up if memory
    /// or disk is short, because their rows take both, or if the broker stops.
    pub(crate) fn read_topics(&mut self, is_short: bool, reads: &mut ReadRequests) {
        let Some(write_buffer) = self.write_buffer() else { return };
        if is_short || self.stopping {
            write_buffer.give_up_unread();
        } else if let Some(wanted) = write_buffer.begin_unread_page() {
            self.read_back(PageRequest { session: NoSession::Drops.id(), wanted }, reads);
        }
    }

    /// Notes that the topics came.
    pub(crate) fn topics_came(&self) {
        if let Some(write_buffer) = self.write_buffer() {
            write_buffer.end_unread_page();
        }
    }

    /// Requests delayed messages when everything recorded so far is committed.
    pub(crate) fn look_up(&mut self, request: DelayedRequest, reads: &mut ReadRequests) {
        let Some(stored) = &mut self.stored else { return };
        match stored.write_buffer.pending() {
            Some(lsn) => stored.look_up = Some((lsn, request)),
            None => reads.delayed.push(request),
        }
    }

    /// Notes that a requested page came.
    pub(crate) fn page_came(&mut self) {
        if let Some(stored) = &mut self.stored {
            stored.pages_requested = stored.pages_requested.saturating_sub(1);
        }
    }

    /// Returns true if a requested page has not come yet.
    pub(crate) fn is_reading(&self) -> bool {
        self.stored.as_ref().is_some_and(|stored| stored.pages_requested > 0)
    }

    /// Returns the number of sessions that wait until the page of another session has come.
    pub(crate) fn waiting_to_fetch(&self) -> usize {
        self.stored.as_ref().map_or(0, |stored| stored.to_fetch.len())
    }

    /// Removes and returns the first session that waits until the page of another session has come.
    pub(crate) fn next_to_fetch(&mut self) -> Option<SessionId> {
        self.stored.as_mut()?.to_fetch.pop_front()
    }
}

impl Stored {
    /// Adds a gate for the open batch. If `body` is given, its drop opens the gate earlier.
    fn gate(&mut self, waits: Waits, body: Option<&Rc<Body>>) {
        if let Some(body) = body {
            body.releases(self.first + self.gates.len() as GateNumber);
        }
        if self.gates.len() == self.gates.capacity() {
            self.add_room_for_gates();
        }
        self.gates.push_back((self.write_buffer.lsn(), Some(waits)));
    }

    /// Takes the owner of a gate before its commit. Returns `None` if the gate is open already.
    fn take_gate(&mut self, number: GateNumber) -> Option<Waits> {
        let at = number.wrapping_sub(self.first) as usize;
        self.gates.get_mut(at)?.1.take()
    }

    /// Makes room for more gates, and charges it. Called once for each doubling.
    #[cold]
    fn add_room_for_gates(&mut self) {
        self.gates.reserve(16);
        self.charge.set(self.rows());
    }

    /// Frees memory after many gates are gone, but keeps room for [`KEPT_GATES`].
    fn give_back_room(&mut self) {
        if self.gates.capacity() > KEPT_GATES && self.gates.len() * 4 <= self.gates.capacity() {
            self.gates.shrink_to((self.gates.len() * 2).max(KEPT_GATES));
            self.charge.set(self.rows());
        }
    }

    /// Returns the bytes of memory of `gates`.
    fn rows(&self) -> usize {
        self.gates.capacity() * size_of::<(Lsn, Option<Waits>)>()
    }
}

impl Recount for Durability {
    fn recount(&self) -> Recounted {
        let count = |stored: &Stored| Recounted { in_use: stored.rows(), charged: stored.charge.bytes() };
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

    fn gate(index: u32) -> ReportTo {
        ReportTo::Peer { shard: ShardId(1), number: 1, index }
    }

    #[test]
    fn without_a_store_nothing_waits() {
        let mut durability = Durability::default();
        assert!(!durability.is_on() && !durability.gate_answer(gate(0), Outcome::Taken));
        assert!(durability.pending().is_none() && durability.seal(SealTime::AtOnce).is_none());
    }

    #[test]
    fn a_gate_opens_with_the_commit_of_the_batch_that_it_was_made_in() {
        let (mut durability, mut reads) = (durability(), ReadRequests::default());
        assert!(!durability.gate_answer(gate(0), Outcome::Taken), "nothing is recorded");
        let mut sealed = Vec::new();
        for index in 1..=2 {
            durability.begin();
            assert!(durability.gate_answer(gate(index), Outcome::Taken));
            sealed.extend(durability.pending());
            assert!(durability.seal(SealTime::AtOnce).is_some());
        }
        for lsn in sealed {
            durability.committed(lsn, &mut reads);
            assert!(matches!(durability.next_opened(), Some(Opened::ReportTo(_))));
            assert!(durability.next_opened().is_none());
        }
        assert!(durability.pending().is_none());
    }

    #[test]
    fn a_page_is_requested_when_the_records_before_it_are_committed() {
        let (mut durability, mut reads) = (durability(), ReadRequests::default());
        let request = || PageRequest { session: SessionId::new(1, 0), wanted: Vec::new() };
        durability.begin();
        let lsn = durability.pending();
        durability.read_back(request(), &mut reads);
        assert!(reads.pages.is_empty() && durability.is_reading());
        assert!(durability.seal(SealTime::AtOnce).is_some());
        durability.committed(lsn.expect("a batch"), &mut reads);
        assert_eq!(reads.pages, [request()]);
        durability.page_came();
        assert!(!durability.is_reading());
    }

    #[test]
    fn a_session_is_ending_until_its_end_is_committed() {
        let (mut durability, mut reads) = (durability(), ReadRequests::default());
        durability.begin();
        durability.session_ended(7);
        let lsn = durability.pending().expect("a batch");
        assert!(durability.is_ending(7) && !durability.is_ending(8));
        assert!(durability.seal(SealTime::AtOnce).is_some());
        durability.committed(lsn, &mut reads);
        assert!(!durability.is_ending(7));
    }
}
