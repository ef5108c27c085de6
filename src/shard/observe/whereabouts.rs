//! The messages that wait, in the windows and queues of all sessions: a question behind
//! `homing ctl where`.
//!
//! Each question looks at a bounded part of one shard. The caller asks for the next part until it
//! has all, or its time is over.

use crate::session::outbound::stall::SocketView;
use crate::shard::core::Core;
use crate::shard::observe::budget::QuestionBudget;
use crate::shard::observe::message_summary::ROWS;
use crate::shard::observe::unfinished::{PageBuilder, PagePayloads, UnfinishedMessage, UnfinishedPart};
use crate::shard::observe::wait_reason::WaitReason;
use crate::shard::observe::wanted::Wanted;
use crate::shard::session_entry::SessionEntry;
use crate::shard::slots::{ConnectionId, SessionId};
use crate::time::Instant;

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
    /// The bytes that the socket took since the connection began.
    written: u64,
}

impl FoundMessage {
    /// Finds the holder of a sent packet. `view` is the socket's view of the bytes that were
    /// written to it.
    pub fn diagnose(&mut self, view: SocketView) {
        if let Some(sent) = self.message.wait.sent_mut() {
            sent.diagnose(view.peer_has(self.written), view);
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
    /// The sessions with messages that are in the store alone, so that their topics are not known:
    /// the Client Identifier, the number of messages, and why they wait.
    pub in_store: Vec<(Box<str>, usize, WaitReason)>,
    /// The place at which the next part begins; `None` at the end.
    pub next: Option<SearchPlace>,
}

/// Looks for waiting messages from a place on.
pub(super) fn messages(
    now: Instant,
    wanted: &Wanted,
    from: SearchPlace,
    budget: &mut QuestionBudget,
    core: &Core,
) -> FoundMessages {
    let mut found = FoundMessages::default();
    let (mut at, end) = match &wanted.receiver {
        None => (from, core.sessions.end_of_slots()),
        // A receiver is in one slot.
        Some(receiver) => match core.sessions.find(receiver) {
            Some(id) if from == SearchPlace::default() => {
                (SearchPlace { slot: id.slot, within: None }, id.slot + 1)
            }
            _ => (from, if from.within.is_some() { from.slot + 1 } else { 0 }),
        },
    };
    while at.slot < end {
        if budget.is_spent() || found.messages.len() >= ROWS || found.in_store.len() >= ROWS {
            found.next = Some(at);
            break;
        }
        budget.spend(1);
        let session = core.sessions.at(at.slot);
        let stopped =
            session.and_then(|session| messages_of(now, wanted, session, at, budget, core, &mut found));
        if stopped.is_some() {
            found.next = stopped;
            break;
        }
        at = SearchPlace { slot: at.slot + 1, within: None };
    }
    found
}

/// Adds the wanted messages of one session. Returns the place at which the question ended; `None`
/// if it has looked at all of them.
fn messages_of(
    now: Instant,
    wanted: &Wanted,
    (id, entry): (SessionId, &SessionEntry),
    at: SearchPlace,
    budget: &mut QuestionBudget,
    core: &Core,
    found: &mut FoundMessages,
) -> Option<SearchPlace> {
    // Another session may have the slot by now.
    let within = at.within.filter(|(session, ..)| *session == id);
    let (begin, from) = within.map_or((UnfinishedPart::InFlight, 0), |(_, part, place)| (part, place));
    let mut parts = vec![(begin, from)];
    parts.extend((begin == UnfinishedPart::InFlight).then_some((UnfinishedPart::Queue, 0)));
    for (part, from) in parts {
        let room = ROWS.saturating_sub(found.messages.len()).max(1);
        let mut page = PageBuilder::new(now, (entry, core), (from, room), PagePayloads::Hidden, budget);
        page.look_for(wanted, part);
        let (rows, next) = page.finish();
        let connection = entry.connection.and_then(|id| core.connections.get(id));
        let written = connection.map_or(0, |connection| connection.wire.outbox.written());
        found.messages.extend(rows.into_iter().map(|message| FoundMessage {
            session: id,
            connection: entry.connection,
            receiver: entry.session.client_id.clone(),
            message,
            written,
        }));
        if let Some(place) = next {
            return Some(SearchPlace { slot: at.slot, within: Some((id, part, place)) });
        }
    }
    let parked = entry.session.sender.queue.parked();
    if parked > 0 {
        let reason = WaitReason::of_parked(now, entry, core);
        found.in_store.push((entry.session.client_id.clone(), parked, reason));
    }
    None
}
