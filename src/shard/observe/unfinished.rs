//! The unfinished messages of one session, page by page, each with the reason why it waits.
//!
//! A page begins at a message and not at an index, so acknowledgements between two pages hide no
//! message.

use crate::mqtt::message::Message;
use crate::mqtt::packet::PacketId;
use crate::session::outbound::in_flight_packet::InFlightView;
use crate::session::outbound::one_message::MessageName;
use crate::session::outbound::queue::Delivery;
use crate::session::outbound::stall::SocketView;
use crate::shard::core::Core;
use crate::shard::observe::message_summary::{MessageSummary, ROWS};
use crate::shard::observe::wait_reason::{WaitReason, Waiting};
use crate::shard::session_entry::SessionEntry;
use crate::shard::slots::{ConnectionId, SessionId};
use crate::time::Instant;
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
    /// The messages, at most [`ROWS`].
    pub rows: Vec<UnfinishedMessage>,
    /// The place at which the next page begins; `None` at the end.
    pub next: Option<u64>,
    /// The bytes that the socket took since the connection began.
    written: u64,
}

impl UnfinishedPage {
    /// Finds the holder of each sent packet. `view` is the socket's view of the bytes that were
    /// written to it.
    pub fn diagnose(&mut self, view: SocketView) {
        let peer_has = view.peer_has(self.written);
        for sent in self.rows.iter_mut().filter_map(|row| row.wait.sent_mut()) {
            sent.diagnose(peer_has, view);
        }
    }
}

/// An unfinished message.
#[derive(Clone, Debug)]
pub struct UnfinishedMessage {
    /// The name for commands; `None` for a message that waits for room in the queue.
    pub name: Option<MessageName>,
    /// The Packet Identifier; `None` if the message was never sent.
    pub packet_id: Option<PacketId>,
    /// The message; `None` once PUBREC has come, and if the message is in the store alone.
    pub message: Option<MessageSummary>,
    /// The message itself, if the question asks for payloads.
    pub body: Option<Message>,
    /// Transmissions over all connections.
    pub transmissions: u16,
    /// Time since the first transmission; `None` if there was none.
    pub age: Option<Duration>,
    /// The reason why the message waits.
    pub wait: WaitReason,
}

/// Number of the bit that separates the sections of a place from the number in the section.
const SECTION: u32 = 62;

/// Returns the place of a number in a section: 0 for PUBLISHes or the queue in memory, 1 for
/// PUBRELs or parked entries, 2 for held messages.
fn place(section: u64, number: u64) -> u64 {
    section << SECTION | number & ((1 << SECTION) - 1)
}

/// Collects rows until the page is full.
struct PageBuilder {
    from: u64,
    most: usize,
    payloads: PagePayloads,
    rows: Vec<UnfinishedMessage>,
    next: Option<u64>,
}

impl PageBuilder {
    /// Returns true if the page takes the row of this place. Notes the first row of the next page.
    fn wants(&mut self, place: u64) -> bool {
        if place < self.from || self.next.is_some() {
            return false;
        }
        if self.rows.len() >= self.most {
            self.next = Some(place);
            return false;
        }
        true
    }

    /// Adds the row of a message.
    fn push(&mut self, row: UnfinishedMessage, message: &Message) {
        let body = (self.payloads == PagePayloads::Shown).then(|| message.clone());
        self.rows.push(UnfinishedMessage { body, ..row });
    }
}

/// Returns the page of a part that begins at the place `from`; 0 is the first page. Costs a pass
/// over the part.
pub(crate) fn page(
    now: Instant,
    (part, payloads): (UnfinishedPart, PagePayloads),
    from: u64,
    most: usize,
    (id, entry): (SessionId, &SessionEntry),
    core: &Core,
) -> UnfinishedPage {
    let mut page = PageBuilder { from, most: most.clamp(1, ROWS), payloads, rows: Vec::new(), next: None };
    let waiting = Waiting::new(now, entry, core);
    match part {
        UnfinishedPart::InFlight => in_flight(now, entry, &waiting, &mut page),
        UnfinishedPart::Queue => queue(entry, &waiting, &mut page),
    }
    let connection = entry.connection.and_then(|id| core.connections.get(id));
    UnfinishedPage {
        session: id,
        connection: entry.connection,
        rows: page.rows,
        next: page.next,
        written: connection.map_or(0, |connection| connection.wire.outbox.written()),
    }
}

fn in_flight(now: Instant, entry: &SessionEntry, waiting: &Waiting<'_>, page: &mut PageBuilder) {
    let (mut releases, mut older) = (Vec::new(), 0);
    for view in entry.session.sender.view_in_flight() {
        let number = view.transmission.number();
        match view.delivery {
            None => releases.push(view),
            Some(delivery) if page.wants(place(0, number)) => {
                page.push(sent_row(now, &view, waiting.in_flight(&view, older)), &delivery.message);
            }
            Some(_) => {}
        }
        older += usize::from(!view.sent_here);
    }
    releases.sort_unstable_by_key(|view| view.transmission.number());
    for view in &releases {
        if page.wants(place(1, view.transmission.number())) {
            page.rows.push(sent_row(now, view, waiting.in_flight(view, 0)));
        }
    }
}

/// Returns the row of a message in flight.
pub(crate) fn sent_row(now: Instant, view: &InFlightView<'_>, wait: WaitReason) -> UnfinishedMessage {
    let number = view.transmission.number();
    UnfinishedMessage {
        name: Some(view.delivery.map_or(MessageName::InFlight(number), |delivery| {
            name_of(delivery, MessageName::InFlight(number))
        })),
        packet_id: Some(view.transmission.packet_id()),
        message: view.delivery.map(MessageSummary::of),
        body: None,
        transmissions: view.transmission.transmissions,
        age: Some(now.since(view.transmission.first_sent)),
        wait,
    }
}

/// Returns the row of a queued message. `place` names it if it is not stored.
pub(crate) fn queued_row(delivery: &Delivery, place: Option<u64>, wait: WaitReason) -> UnfinishedMessage {
    UnfinishedMessage {
        name: place.map(|place| name_of(delivery, MessageName::Queued(place))),
        packet_id: None,
        message: Some(MessageSummary::of(delivery)),
        body: None,
        transmissions: 0,
        age: None,
        wait,
    }
}

fn name_of(delivery: &Delivery, otherwise: MessageName) -> MessageName {
    delivery.stored.as_ref().map_or(otherwise, |stored| MessageName::Stored(stored.number()))
}

fn queue(entry: &SessionEntry, waiting: &Waiting<'_>, page: &mut PageBuilder) {
    let sender = &entry.session.sender;
    for (ahead, (number, delivery)) in sender.backlog.view().enumerate() {
        if page.wants(place(0, number)) {
            let row = queued_row(delivery, Some(number), waiting.queued(delivery.qos, ahead));
            page.push(row, &delivery.message);
        }
    }
    for parked in sender.backlog.view_parked() {
        if page.wants(place(1, parked.number().0)) {
            page.rows.push(UnfinishedMessage {
                name: Some(MessageName::Stored(parked.number())),
                packet_id: None,
                message: None,
                body: None,
                transmissions: 0,
                age: None,
                wait: waiting.parked(),
            });
        }
    }
    for (index, held) in entry.view_held().enumerate() {
        if page.wants(place(2, index as u64)) {
            let row = queued_row(&held.delivery, None, WaitReason::Held(held.until));
            page.push(row, &held.delivery.message);
        }
    }
}
