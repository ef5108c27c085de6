//! The messages that wait, in the windows and queues of all sessions: a question behind
//! `homing ctl where`.
//!
//! Each question looks at a bounded part of one shard. The caller asks for the next part until it
//! has all, or its time is over.

use crate::operators::budget::{Part, Question, ROWS};
use crate::operators::stored::StoredMessage;
use crate::operators::unfinished::{PageBuilder, PagePayloads, UnfinishedMessage, UnfinishedPart};
use crate::operators::wait_reason::{WaitReason, Waiting};
use crate::operators::wanted::Wanted;
use crate::persistence::records::EntryNumber;
use crate::shard::clients::session_entry::SessionEntry;
use crate::slots::{ConnectionId, SessionId};

/// A message that waits for its receiver.
#[derive(Clone, Debug)]
pub struct FoundMessage {
    /// The session.
    pub session: SessionId,
    /// The connection; `None` while the client is away.
    pub connection: Option<ConnectionId>,
    /// The receiver's Client Identifier.
    pub receiver: Box<str>,
    /// The message.
    pub message: UnfinishedMessage,
}

/// The messages of a session that are in the store alone. Their topics are not known here.
#[derive(Clone, Debug)]
pub struct InStore {
    /// The session.
    pub session: SessionId,
    /// The connection; `None` while the client is away.
    pub connection: Option<ConnectionId>,
    /// The receiver's Client Identifier.
    pub receiver: Box<str>,
    /// The number of messages.
    pub messages: usize,
    /// The first of them.
    pub first: EntryNumber,
    /// The reason why they wait.
    pub wait: WaitReason,
}

impl InStore {
    /// Returns the message of an entry, with its row in the store.
    pub(super) fn message(&self, number: EntryNumber, stored: StoredMessage) -> FoundMessage {
        FoundMessage {
            session: self.session,
            connection: self.connection,
            receiver: self.receiver.clone(),
            message: UnfinishedMessage::in_store(number, None, self.wait).with_stored(stored),
        }
    }
}

/// The place at which a part of the messages begins. The default is the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchPlace {
    slot: u32,
    /// The session in the slot, the part of its messages, and the place in the part; `None` at its
    /// beginning.
    within: Option<(SessionId, UnfinishedPart, u64)>,
}

/// Messages that wait, in a part of one shard.
#[derive(Clone, Debug, Default)]
pub struct FoundMessages {
    /// The messages.
    pub messages: Vec<FoundMessage>,
    /// The sessions with messages that are in the store alone.
    pub in_store: Vec<InStore>,
    /// The place at which the next part begins; `None` at the end.
    pub next: Option<SearchPlace>,
}

/// Looks for waiting messages from a place on.
pub(super) fn messages(question: &mut Question<'_>, wanted: &Wanted, from: SearchPlace) -> FoundMessages {
    let mut found = FoundMessages::default();
    let (mut at, end) = match &wanted.receiver {
        None => (from, question.shard.end_of_slots()),
        // A receiver is in one slot.
        Some(receiver) => match question.shard.find(receiver) {
            Some(id) if from == SearchPlace::default() => {
                (SearchPlace { slot: id.slot, within: None }, id.slot + 1)
            }
            _ => (from, if from.within.is_some() { from.slot + 1 } else { 0 }),
        },
    };
    while at.slot < end {
        if question.budget.is_spent() || found.messages.len() >= ROWS || found.in_store.len() >= ROWS {
            found.next = Some(at);
            break;
        }
        question.budget.spend(1);
        let session = question.shard.session_at(at.slot);
        let stopped = session.and_then(|session| messages_of(question, wanted, session, at, &mut found));
        if stopped.is_some() {
            found.next = stopped;
            break;
        }
        at = SearchPlace { slot: at.slot + 1, within: None };
    }
    found
}

/// Adds the wanted messages of one session. Returns the place at which the question ended; `None`
/// if all messages of the session were looked at.
fn messages_of<'q>(
    question: &mut Question<'q>,
    wanted: &Wanted,
    (id, entry): (SessionId, &'q SessionEntry),
    at: SearchPlace,
    found: &mut FoundMessages,
) -> Option<SearchPlace> {
    // Another session may have the slot by now.
    let within = at.within.filter(|(session, ..)| *session == id);
    let (begin, from) = within.map_or((UnfinishedPart::InFlight, 0), |(_, part, place)| (part, place));
    let mut parts = vec![(begin, from)];
    parts.extend((begin == UnfinishedPart::InFlight).then_some((UnfinishedPart::Queue, 0)));
    for (part, from) in parts {
        let room = ROWS.saturating_sub(found.messages.len()).max(1);
        let mut page = PageBuilder::new(question, entry, (from, room), PagePayloads::Hidden);
        page.look_for(wanted, part);
        let Part { rows, next } = page.finish();
        found.messages.extend(rows.into_iter().map(|message| FoundMessage {
            session: id,
            connection: entry.connection,
            receiver: entry.session.client_id.clone(),
            message,
        }));
        if let Some(place) = next {
            return Some(SearchPlace { slot: at.slot, within: Some((id, part, place)) });
        }
    }
    let queue = &entry.session.sender.queue;
    let first = queue.view_paged_out_from(EntryNumber(0)).next();
    found.in_store.extend(first.map(|first| InStore {
        session: id,
        connection: entry.connection,
        receiver: entry.session.client_id.clone(),
        messages: queue.paged_out(),
        first: first.number(),
        wait: Waiting::new(question.now, entry, question.shard).paged_out(),
    }));
    None
}
