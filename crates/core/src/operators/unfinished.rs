//! The unfinished messages of one session, page by page, each with the reason why it waits.
//!
//! A page begins at a message and not at an index, so acknowledgements between two pages hide no
//! message.

use crate::mqtt::message::Message;
use crate::mqtt::packet::PacketId;
use crate::operators::budget::{Part, Question, Rows};
use crate::operators::message_summary::MessageSummary;
use crate::operators::stored::{StoredBody, StoredMessage, StoredPlace, stored_place};
use crate::operators::wait_reason::{WaitReason, Waiting};
use crate::operators::wanted::Wanted;
use crate::persistence::records::{BodyNumber, EntryNumber};
use crate::session::outbound::delivery::Delivery;
use crate::session::outbound::in_flight_packet::InFlightView;
use crate::session::outbound::one_message::MessageName;
use crate::shard::clients::session_entry::SessionEntry;
use crate::slots::{ConnectionId, SessionId};
use crate::time::Instant;
use crate::time::age::Age;
use std::cmp::Ordering;
use std::time::Duration;

/// A part of the unfinished messages of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnfinishedPart {
    /// The in-flight window: PUBLISHes in their order, then PUBRELs by their numbers.
    InFlight,
    /// The queue in its order, then the messages that wait for room in it.
    Queue,
}

/// The payloads in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PagePayloads {
    /// No row has its payload.
    Hidden,
    /// Each row has its message, with the payload, if the message is in memory.
    Shown,
}

/// A page of unfinished messages.
#[derive(Clone, Debug)]
pub struct UnfinishedPage {
    /// The session.
    pub session: SessionId,
    /// The connection; `None` while the client is away.
    pub connection: Option<ConnectionId>,
    /// The messages, at most [`ROWS`](crate::operators::budget::ROWS), and fewer with long topics.
    pub rows: Vec<UnfinishedMessage>,
    /// The place at which the next page begins; `None` at the end.
    pub next: Option<u64>,
}

/// An unfinished message.
#[derive(Clone, Debug)]
pub struct UnfinishedMessage {
    /// The name for commands; `None` for a message that waits for room in the queue.
    pub name: Option<MessageName>,
    /// The Packet Identifier; `None` if the message was never sent.
    pub packet_id: Option<PacketId>,
    /// The rows in the store; `None` if the message is not stored, or PUBREC has come.
    pub stored: Option<StoredPlace>,
    /// The message; `None` once PUBREC has come, and if the message is in the store alone and was
    /// not read from there.
    pub message: Option<MessageSummary>,
    /// The message itself, if the question asks for payloads.
    pub body: Option<Message>,
    /// Transmissions over all connections.
    pub transmissions: u16,
    /// Time since the first transmission; `None` if there was none.
    pub age: Option<Age>,
    /// Time for which the message waits in the queue; `None` in flight, or if only the store knows
    /// it.
    pub queued_for: Option<Duration>,
    /// The reason why the message waits.
    pub wait: WaitReason,
}

impl UnfinishedMessage {
    /// Returns the row of a message in the store alone.
    pub(super) fn in_store(
        number: EntryNumber,
        body: Option<BodyNumber>,
        wait: WaitReason,
    ) -> UnfinishedMessage {
        UnfinishedMessage {
            name: Some(MessageName::Stored(number)),
            packet_id: None,
            stored: body.map(|body| (number, body)),
            message: None,
            body: None,
            transmissions: 0,
            age: None,
            queued_for: None,
            wait,
        }
    }

    /// Adds what the store has of the message. What is known stays.
    pub(super) fn with_stored(self, stored: StoredMessage) -> UnfinishedMessage {
        let message = self.message.or(Some(stored.message));
        UnfinishedMessage { message, queued_for: Some(stored.age), ..self }
    }
}

impl UnfinishedPage {
    /// Returns the places in the store of the messages of which the page has not all.
    pub fn places(&self) -> Vec<StoredPlace> {
        self.rows.iter().filter(|row| row.queued_for.is_none()).filter_map(|row| row.stored).collect()
    }

    /// Returns the places in the store of the messages without a payload.
    pub fn places_without_body(&self) -> Vec<StoredPlace> {
        self.rows.iter().filter(|row| row.body.is_none()).filter_map(|row| row.stored).collect()
    }

    /// Adds what the store has of the messages, in their order. An answer of the store is bounded
    /// in bytes, so messages with long topics may be missing. The page ends before the first of
    /// them.
    pub fn add_stored(&mut self, found: &[EntryNumber], rows: Vec<(EntryNumber, StoredMessage)>) {
        let cut = found.get(rows.len()).copied();
        let mut stored = rows.into_iter().peekable();
        for row in &mut self.rows {
            let Some((number, _)) = row.stored else { continue };
            if let Some((_, stored)) = stored.next_if(|(of, _)| *of == number) {
                *row = row.clone().with_stored(stored);
            }
        }
        let is_cut = |row: &UnfinishedMessage| cut.is_some() && row.stored.map(|(number, _)| number) == cut;
        if let (Some(number), Some(at)) = (cut, self.rows.iter().position(is_cut))
            && at > 0
            && self.rows[at].message.is_none()
        {
            self.rows.truncate(at);
            self.next = Some(place(PAGED_OUT, number.0));
        }
    }

    /// Adds messages with their payloads.
    pub fn add_bodies(&mut self, bodies: Vec<StoredBody>) {
        for (number, body) in bodies {
            let is_same = |row: &&mut UnfinishedMessage| row.stored.is_some_and(|(of, _)| of == number);
            if let Some(row) = self.rows.iter_mut().find(is_same) {
                row.body = Some(body);
            }
        }
    }
}

/// Number of the bit that separates the sections of a place from the number in the section.
const SECTION: u32 = 62;

/// Returns the place of a number in a section: 0 for PUBLISHes or the queue in memory, 1 for
/// PUBRELs or paged-out entries, 2 for held messages.
fn place(section: u64, number: u64) -> u64 {
    section << SECTION | number & ((1 << SECTION) - 1)
}

/// Returns the number of a place in its section.
fn number_of(place: u64) -> u64 {
    place & ((1 << SECTION) - 1)
}

/// Steps of one row: its texts, and why it waits.
const ROW: usize = 8;

/// PUBRELs that are looked at for one step.
const RELEASES: usize = 8;

/// The first section of a part, and the sections that follow it.
const PUBLISHES: u64 = 0;
const RELEASED: u64 = 1;
const QUEUED: u64 = 0;
const PAGED_OUT: u64 = 1;
const HELD: u64 = 2;

/// Collects the rows of one session from a place on, until the page is full or the question has
/// spent its budget.
pub(super) struct PageBuilder<'a, 'q> {
    question: &'a mut Question<'q>,
    entry: &'q SessionEntry,
    waiting: Waiting<'q>,
    from: u64,
    payloads: PagePayloads,
    rows: Rows<UnfinishedMessage>,
    next: Option<u64>,
}

impl<'a, 'q> PageBuilder<'a, 'q> {
    /// Returns an empty page of a session, which begins at the place `from` and has at most `most`
    /// rows.
    pub(super) fn new(
        question: &'a mut Question<'q>,
        entry: &'q SessionEntry,
        (from, most): (u64, usize),
        payloads: PagePayloads,
    ) -> PageBuilder<'a, 'q> {
        let waiting = Waiting::new(question.now, entry, question.shard);
        PageBuilder { question, entry, waiting, from, payloads, rows: Rows::new(most), next: None }
    }

    /// Adds the messages of a part that are wanted. The topics of paged-out ones are not known, so
    /// these are left out.
    pub(super) fn look_for(&mut self, wanted: &Wanted, part: UnfinishedPart) {
        match part {
            UnfinishedPart::InFlight => {
                self.publishes(Some(wanted));
                if wanted.is_release() {
                    self.releases();
                }
            }
            UnfinishedPart::Queue => {
                self.queued(Some(wanted));
                self.held(Some(wanted));
            }
        }
    }

    /// Returns the rows, and the place at which the next page begins.
    pub(super) fn finish(self) -> Part<UnfinishedMessage, u64> {
        self.rows.part(self.next)
    }

    fn all(&mut self, part: UnfinishedPart) {
        match part {
            UnfinishedPart::InFlight => {
                self.publishes(None);
                self.releases();
            }
            UnfinishedPart::Queue => {
                self.queued(None);
                self.paged_out();
                self.held(None);
            }
        }
    }

    /// Returns the number at which the page begins in a section; `None` if it begins behind the
    /// section, or has ended.
    fn begin(&self, section: u64) -> Option<u64> {
        match (self.from >> SECTION).cmp(&section) {
            _ if self.next.is_some() => None,
            Ordering::Less => Some(0),
            Ordering::Equal => Some(number_of(self.from)),
            Ordering::Greater => None,
        }
    }

    /// Returns true if the page may go on with the message of this place. Else the next page
    /// begins there.
    fn goes_on(&mut self, place: u64) -> bool {
        let is_full = self.rows.is_full(self.question.budget);
        if is_full {
            self.next = Some(place);
        }
        self.question.budget.spend(1);
        !is_full
    }

    fn is_wanted(&mut self, wanted: Option<&Wanted>, message: &Message) -> bool {
        wanted.is_none_or(|wanted| wanted.is_within(message, self.question.budget))
    }

    /// Adds the row of a message.
    fn push(&mut self, row: UnfinishedMessage, message: Option<&Message>) {
        let bytes = message.map_or(0, |message| message.topic().len());
        self.question.budget.spend(ROW);
        // Copied, and compared with the rules of redelivery.
        self.question.budget.spend_bytes(2 * bytes);
        let body = message.filter(|_| self.payloads == PagePayloads::Shown).cloned();
        self.rows.push(UnfinishedMessage { body, ..row }, bytes);
    }

    fn publishes(&mut self, wanted: Option<&Wanted>) {
        let Some(begin) = self.begin(PUBLISHES) else { return };
        let sender = &self.entry.session.sender;
        for (older, view) in sender.window.view_publishes_from(begin) {
            let Some(delivery) = view.delivery else { continue };
            if !self.goes_on(place(PUBLISHES, view.transmission.number())) {
                return;
            }
            if self.is_wanted(wanted, &delivery.message) {
                let row = sent_row(self.question.now, &view, self.waiting.in_flight(&view, older));
                self.push(row, Some(&delivery.message));
            }
        }
    }

    /// Adds the PUBRELs by their numbers. Costs a pass over the PUBRELs, because their order is
    /// that of the PUBRECs.
    fn releases(&mut self) {
        let Some(begin) = self.begin(RELEASED) else { return };
        let sender = &self.entry.session.sender;
        let room = self.rows.room() + 1;
        let mut views: Vec<_> = sender.window.view_releases().collect();
        self.question.budget.spend(views.len() / RELEASES);
        views.retain(|view| view.transmission.number() >= begin);
        let number = |view: &InFlightView<'_>| view.transmission.number();
        if views.len() > room {
            views.select_nth_unstable_by_key(room, number);
            views.truncate(room);
        }
        views.sort_unstable_by_key(number);
        for view in &views {
            if !self.goes_on(place(RELEASED, number(view))) {
                return;
            }
            let row = sent_row(self.question.now, view, self.waiting.in_flight(view, 0));
            self.push(row, None);
        }
    }

    fn queued(&mut self, wanted: Option<&Wanted>) {
        let Some(begin) = self.begin(QUEUED) else { return };
        for (ahead, number, delivery) in self.entry.session.sender.queue.view_from(begin) {
            if !self.goes_on(place(QUEUED, number)) {
                return;
            }
            if self.is_wanted(wanted, &delivery.message) {
                let now = self.question.now;
                let wait = self.waiting.queued(delivery.qos, ahead);
                let row = queued_row(now, delivery, Some(number), wait);
                self.push(row, Some(&delivery.message));
            }
        }
    }

    fn paged_out(&mut self) {
        let Some(begin) = self.begin(PAGED_OUT) else { return };
        for paged_out in self.entry.session.sender.queue.view_paged_out_from(EntryNumber(begin)) {
            if !self.goes_on(place(PAGED_OUT, paged_out.number().0)) {
                return;
            }
            let (number, body) = (paged_out.number(), paged_out.body());
            self.push(UnfinishedMessage::in_store(number, body, self.waiting.paged_out()), None);
        }
    }

    fn held(&mut self, wanted: Option<&Wanted>) {
        let Some(begin) = self.begin(HELD) else { return };
        let first = usize::try_from(begin).unwrap_or(usize::MAX);
        for (index, held) in self.entry.view_held().enumerate().skip(first) {
            if !self.goes_on(place(HELD, index as u64)) {
                return;
            }
            let message = &held.delivery.message;
            if self.is_wanted(wanted, message) {
                let row = queued_row(self.question.now, &held.delivery, None, WaitReason::Held(held.until));
                self.push(row, Some(message));
            }
        }
    }
}

/// Returns the page of a part that begins at the place `from`; 0 is the first page. The page is
/// short if the question has spent its budget.
pub(super) fn page<'q>(
    question: &mut Question<'q>,
    (part, payloads): (UnfinishedPart, PagePayloads),
    (from, most): (u64, usize),
    (id, entry): (SessionId, &'q SessionEntry),
) -> UnfinishedPage {
    let mut page = PageBuilder::new(question, entry, (from, most), payloads);
    page.all(part);
    let Part { rows, next } = page.finish();
    UnfinishedPage { session: id, connection: entry.connection, rows, next }
}

/// Returns the row of a message in flight.
fn sent_row(now: Instant, view: &InFlightView<'_>, wait: WaitReason) -> UnfinishedMessage {
    let number = view.transmission.number();
    UnfinishedMessage {
        name: Some(view.delivery.map_or(MessageName::InFlight(number), |delivery| {
            name_of(delivery, MessageName::InFlight(number))
        })),
        packet_id: Some(view.transmission.packet_id()),
        stored: view.delivery.and_then(stored_place),
        message: view.delivery.map(MessageSummary::of),
        body: None,
        transmissions: view.transmission.transmissions,
        age: Some(view.transmission.age(now)),
        queued_for: None,
        wait,
    }
}

/// Returns the row of a queued message. `place` names a message that is not stored.
fn queued_row(now: Instant, delivery: &Delivery, place: Option<u64>, wait: WaitReason) -> UnfinishedMessage {
    UnfinishedMessage {
        name: place.map(|place| name_of(delivery, MessageName::Queued(place))),
        packet_id: None,
        stored: stored_place(delivery),
        message: Some(MessageSummary::of(delivery)),
        body: None,
        transmissions: 0,
        age: None,
        queued_for: delivery.mark.waits_since().map(|since| now.since(since)),
        wait,
    }
}

fn name_of(delivery: &Delivery, otherwise: MessageName) -> MessageName {
    delivery.stored.as_ref().map_or(otherwise, |stored| MessageName::Stored(stored.number()))
}
