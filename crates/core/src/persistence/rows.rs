//! The rows of the store, each as a value that lives as long as its row.
//!
//! An [`Entry`] that is dropped, at any place and for any reason, records the end of its delivery.
//! A [`Body`] records its end with its last entry. So no way out of a queue or a window can forget
//! its row.
//!
//! A publisher may be answered before the commit once every receiver is done with its message. An
//! entry is done only if [`Entry::done`] was called. Any other end may mean that someone else owes
//! the message from then on: another member of a group, an orphaned queue, a dead letter. Then only
//! the commit opens the publisher's gate.

use crate::mqtt::charge;
use crate::mqtt::message::Message;
use crate::mqtt::packet::{PacketId, QoS};
use crate::mqtt::subscription_ids::SubscriptionIds;
use crate::persistence::open_batch::RecordPlace;
use crate::persistence::records::{
    BodyNumber, EntryNumber, Flight, Lsn, Record, SessionKey, SessionState, StoredEntry, StoredSession,
    StoredSubscription,
};
use crate::persistence::write_buffer::{GateNumber, WriteBuffer};
use crate::time::Instant;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

impl WriteBuffer {
    /// Records a message that entries will share.
    pub fn body(self: &Rc<WriteBuffer>, message: &Message) -> Rc<Body> {
        let number = BodyNumber(self.next_number());
        let place = self.put(Record::Body { number, message: message.clone() });
        self.placed_body(number, message.size() as u32, message.header().expires, place)
    }

    /// Returns the body of a message that is in the store already.
    pub fn known_body(self: &Rc<WriteBuffer>, number: BodyNumber, size: u32, expires: Instant) -> Rc<Body> {
        self.placed_body(number, size, expires, RecordPlace::default())
    }

    fn placed_body(
        self: &Rc<WriteBuffer>,
        number: BodyNumber,
        size: u32,
        expires: Instant,
        place: RecordPlace,
    ) -> Rc<Body> {
        charge::add(BODY);
        Rc::new(Body { write_buffer: Rc::clone(self), number, size, expires, gate: Cell::new(0), place })
    }

    /// Records a delivery.
    ///
    /// A participant does not contain the place in the window. The participant may be committed
    /// before the rest of this batch, which has the places of messages that were sent before. After
    /// a crash the delivery would then be sent ahead of them.
    pub fn entry(
        self: &Rc<WriteBuffer>,
        session: SessionKey,
        body: &Rc<Body>,
        delivery: NewDelivery<'_>,
    ) -> Box<Entry> {
        let number = EntryNumber(self.next_number());
        let sent_in_transaction = delivery.flight.filter(|_| self.is_participating());
        let place = self.put(Record::Entry(Box::new(StoredEntry {
            number,
            session,
            body: body.number,
            qos: delivery.qos,
            retain: delivery.retain,
            ids: delivery.ids.clone(),
            share: delivery.share.cloned(),
            flight: delivery.flight.filter(|_| sent_in_transaction.is_none()),
        })));
        if let Some(flight) = sent_in_transaction {
            self.record(Record::Sent { number, flight });
        }
        charge::add(ENTRY);
        let body = Some(Rc::clone(body));
        Box::new(Entry { write_buffer: Rc::clone(self), number, body, place, end: End::PassedOn })
    }

    /// Returns the entry of a delivery that is in the store already.
    pub fn known_entry(self: &Rc<WriteBuffer>, number: EntryNumber, body: Option<Rc<Body>>) -> Box<Entry> {
        charge::add(ENTRY);
        let place = RecordPlace::default();
        Box::new(Entry { write_buffer: Rc::clone(self), number, body, place, end: End::PassedOn })
    }
}

/// Bytes of a body with its counts, and of an entry, charged while each lives. A [`charge::Charge`]
/// in each would cost 8 bytes more.
const BODY: i64 = size_of::<Body>() as i64 + 16;
const ENTRY: i64 = size_of::<Entry>() as i64;

/// The fields that a delivery adds to its message.
#[derive(Clone, Copy, Debug)]
pub struct NewDelivery<'a> {
    /// The lower of published and granted QoS.
    pub qos: QoS,
    /// The RETAIN flag.
    pub retain: bool,
    /// The Subscription Identifiers.
    pub ids: &'a SubscriptionIds,
    /// The shared subscription that the message came by, in full.
    pub share: Option<&'a Arc<Box<str>>>,
    /// The place in the window, if the delivery is sent at once.
    pub flight: Option<Flight>,
}

/// A message in the store, for as long as an entry refers to it.
#[derive(Debug)]
pub struct Body {
    write_buffer: Rc<WriteBuffer>,
    number: BodyNumber,
    size: u32,
    expires: Instant,
    /// The gate that opens when every entry is done, even before the commit; [`Body::COMMIT_OPENS`]
    /// if only the commit may open it.
    gate: Cell<GateNumber>,
    place: RecordPlace,
}

impl Body {
    /// Returns the message's number.
    pub fn number(&self) -> BodyNumber {
        self.number
    }

    /// In place of a gate: another record may concern the message now.
    const COMMIT_OPENS: GateNumber = GateNumber::MAX;

    /// Sets the gate to open when every entry is done. Has no effect once an entry was passed on.
    pub fn releases(&self, gate: GateNumber) {
        if self.gate.get() != Body::COMMIT_OPENS {
            self.gate.set(gate);
        }
    }

    /// Records that an entry ended and its message may go on. From now on only the commit opens the
    /// gate.
    fn passed_on(&self) {
        self.gate.set(Body::COMMIT_OPENS);
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        charge::add(-BODY);
        let is_released = self.gate.get() != Body::COMMIT_OPENS;
        let end = if is_released { Record::BodyReleased } else { Record::BodyDone };
        self.write_buffer.end(self.place, end(self.number));
        if !matches!(self.gate.get(), 0 | Body::COMMIT_OPENS) {
            self.write_buffer.finish(self.gate.get());
        }
    }
}

/// A delivery in the store, until it is finished.
#[derive(Debug)]
pub struct Entry {
    write_buffer: Rc<WriteBuffer>,
    number: EntryNumber,
    /// The message; `None` once PUBREC came.
    body: Option<Rc<Body>>,
    place: RecordPlace,
    end: End,
}

/// The meaning of an entry's end for its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The message may go on to someone else. This variant is the default, so that a forgotten call
    /// never opens a gate too early.
    PassedOn,
    /// Nobody waits for the message of this entry any more.
    Done,
}

impl Entry {
    /// Returns the delivery's number.
    pub fn number(&self) -> EntryNumber {
        self.number
    }

    /// Returns the message's number; `None` once PUBREC came.
    pub fn body(&self) -> Option<BodyNumber> {
        self.body.as_ref().map(|body| body.number)
    }

    /// Marks the entry as done: the receiver acknowledged the message, or its queue refused it.
    pub fn done(&mut self) {
        self.end = End::Done;
    }

    /// Records the place in the window. [`Self::pending`] is the commit of this record.
    pub fn placed(&mut self, flight: Flight) {
        let in_place = self.write_buffer.change(self.place, self.number, flight);
        // A record in a part of a transaction stays where it can be taken back. The flight was
        // recorded in the same batch.
        if !in_place && !self.place.is_in(self.write_buffer.lsn()) {
            self.place = RecordPlace::left(self.write_buffer.lsn());
        }
    }

    /// Records a further transmission.
    pub fn sent(&self, flight: Flight) {
        self.write_buffer.resent(self.place, self.number, flight);
    }

    /// Records a PUBREC. The body is released. [`Self::pending`] is the commit of this record.
    pub fn received(&mut self) {
        self.write_buffer.record(Record::Received(self.number));
        // The entry has more than one record from now on.
        self.place = RecordPlace::left(self.write_buffer.lsn());
        self.body = None;
    }

    /// Records that the message was dropped and its Packet Identifier stays in use. The body is
    /// released, and the message may go on to someone else.
    pub fn withheld(&mut self, running: u64) {
        if let (End::PassedOn, Some(body)) = (self.end, &self.body) {
            body.passed_on();
        }
        self.write_buffer.record(Record::Sent { number: self.number, flight: Flight::withheld(running) });
        self.received();
    }

    /// Records the PUBREC of a message that was dropped. The row is that of any other PUBREL from
    /// now on, so a restart sends the PUBREL again. [`Self::pending`] is the commit of this record.
    pub fn withheld_received(&mut self, running: u64) {
        self.write_buffer.record(Record::Sent { number: self.number, flight: Flight::dropped(running) });
        self.received();
    }

    /// Returns the commit that must happen before the Packet Identifier or the PUBREL may be sent;
    /// `None` if it has happened.
    ///
    /// The client may come back while the store has no room. The resend waits for this commit only,
    /// and for no later record, because its acknowledgements free space.
    pub fn pending(&self) -> Option<Lsn> {
        Some(self.place.lsn).filter(|lsn| *lsn > self.write_buffer.last_committed())
    }

    /// Reduces the entry to its number and body. Returns `None` if its PUBREC came.
    pub fn page_out(mut self) -> Option<PagedOut> {
        let body = self.body.take()?;
        let paged_out = PagedOut { number: self.number, body: Some(body) };
        self.place.at = RecordPlace::PAGED_OUT;
        Some(paged_out)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        charge::add(-ENTRY);
        if self.place.at == RecordPlace::PAGED_OUT {
            return;
        }
        let end = if self.end == End::Done { Record::EntryAcknowledged } else { Record::EntryDone };
        self.write_buffer.end(self.place, end(self.number));
        if let (End::PassedOn, Some(body)) = (self.end, &self.body) {
            body.passed_on();
        }
    }
}

/// An [`Entry`] whose message is in the store alone: 16 bytes, and those of its body. Its end is
/// recorded like an entry's.
#[derive(Debug)]
pub struct PagedOut {
    number: EntryNumber,
    /// The message; `None` once the value is an entry again.
    body: Option<Rc<Body>>,
}

impl PagedOut {
    /// Returns the delivery's number.
    pub fn number(&self) -> EntryNumber {
        self.number
    }

    /// Returns the message's number.
    pub fn body(&self) -> Option<BodyNumber> {
        self.body.as_ref().map(|b| b.number)
    }

    /// Returns the bytes of the message.
    pub fn size(&self) -> usize {
        self.body.as_ref().map_or(0, |b| b.size as usize)
    }

    /// Returns when the message expires, or [`Instant::NEVER`].
    pub fn expires(&self) -> Instant {
        self.body.as_ref().map_or(Instant::NEVER, |b| b.expires)
    }

    /// Ends the delivery, at once or when its topic was read from the store. Returns the number
    /// under which the topic will come.
    pub fn end_when_read(self) -> Option<EntryNumber> {
        let (number, body) = (self.number, self.body.clone()?);
        body.write_buffer.keep_until_read(self).is_none().then_some(number)
    }

    /// Turns the value back into an entry, because its message is in memory again.
    pub fn fetched(mut self) -> Option<Box<Entry>> {
        let body = self.body.take()?;
        let write_buffer = Rc::clone(&body.write_buffer);
        Some(write_buffer.known_entry(self.number, Some(body)))
    }
}

impl Drop for PagedOut {
    fn drop(&mut self) {
        if let Some(body) = &self.body {
            body.write_buffer.record(Record::EntryDone(self.number));
            body.passed_on();
        }
    }
}

/// The row of a session in its shard's write buffer.
#[derive(Debug)]
pub struct SessionRow {
    /// The session's key.
    pub key: SessionKey,
    /// The write buffer of the session's shard.
    pub write_buffer: Rc<WriteBuffer>,
    /// The place of the session's own record.
    place: Cell<RecordPlace>,
    /// A hash of the recorded session, without its connection state; 0 if nothing is recorded.
    pub recorded: Cell<u64>,
    /// The batch that has the last full record.
    pub full_record: Cell<Lsn>,
}

impl SessionRow {
    /// Creates the row of a session without any record.
    pub fn new(key: SessionKey, write_buffer: Rc<WriteBuffer>) -> SessionRow {
        let (place, recorded, full_record) = (Cell::default(), Cell::new(0), Cell::new(Lsn(0)));
        SessionRow { key, write_buffer, place, recorded, full_record }
    }

    /// Records the session with all its fields.
    pub fn record(&self, session: Box<StoredSession>) {
        self.full_record.set(self.write_buffer.lsn());
        self.write_buffer.record_session(&self.place, Record::Session(session));
    }

    /// Records the connection state of a session whose other fields have not changed.
    pub fn record_state(&self, state: SessionState) {
        self.write_buffer.record_session(&self.place, Record::SessionState(state));
    }

    /// Records a subscription, in place of an earlier one with the same filter.
    pub fn subscribed(&self, filter: &str, options: u8, subscription_id: u32) {
        let (session, filter) = (self.key, filter.into());
        let subscription = StoredSubscription { session, filter, options, subscription_id };
        self.write_buffer.record_subscription(Record::Subscribed(Box::new(subscription)));
    }

    /// Records the end of a subscription.
    pub fn unsubscribed(&self, filter: &str) {
        let (session, filter) = (self.key, filter.into());
        self.write_buffer.record_subscription(Record::Unsubscribed { session, filter });
    }

    /// Records that a QoS 2 PUBLISH was accepted.
    pub fn incoming(&self, packet_id: PacketId) {
        self.write_buffer.record(Record::Incoming { session: self.key, packet_id });
    }

    /// Records that an identifier is free after PUBREL.
    pub fn incoming_done(&self, packet_id: PacketId) {
        self.write_buffer.record(Record::IncomingDone { session: self.key, packet_id });
    }

    /// Records that an identifier is free because no receiver took the message.
    pub fn incoming_refused(&self, packet_id: PacketId) {
        self.write_buffer.record(Record::IncomingRefused { session: self.key, packet_id });
    }

    /// Returns the batch whose commit makes everything recorded so far safe; `None` if all is safe.
    pub fn pending(&self) -> Option<Lsn> {
        self.write_buffer.pending()
    }
}
