//! Messages that are in the store alone: the places of their rows, and what a look at the rows
//! returns.
//!
//! A shard knows the numbers of these messages and nothing else. So it answers with the numbers,
//! and the caller has the store looked at. No shard waits for the store.

use crate::mqtt::message::Message;
use crate::operators::budget::Question;
use crate::operators::message_summary::MessageSummary;
use crate::operators::wanted::Wanted;
use crate::persistence::records::{BodyNumber, EntryNumber};
use crate::session::outbound::delivery::Delivery;
use crate::slots::SessionId;
use std::time::Duration;

/// Places in one answer at most, and in one look at the store: 32 KiB.
pub const PLACES: usize = 2_048;

/// The rows of a delivery in the store.
pub type StoredPlace = (EntryNumber, BodyNumber);

/// Places of the messages of one session that are in the store alone.
#[derive(Clone, Debug)]
pub struct PagedOutPart {
    /// The session.
    pub session: SessionId,
    /// The places, in the order of their numbers.
    pub places: Vec<StoredPlace>,
    /// The number with which the next part begins; `None` at the end.
    pub next: Option<EntryNumber>,
}

/// A message, as the store has it.
#[derive(Clone, Debug)]
pub struct StoredMessage {
    /// The message.
    pub message: MessageSummary,
    /// Time since the broker took the message. It counts while the broker is down.
    pub age: Duration,
}

/// The messages to look for at some places.
#[derive(Clone, Debug, Default)]
pub struct StoreLookup {
    /// The places, at most [`PLACES`].
    pub places: Vec<StoredPlace>,
    /// The messages that are wanted. The receiver does not count.
    pub wanted: Wanted,
    /// Number of messages at most of which the answer has more than the number.
    pub rows: usize,
}

/// The result of a look at the store.
#[derive(Clone, Debug, Default)]
pub struct StoreLooked {
    /// The places that were looked at. Fewer than were asked for if the time was over.
    pub numbers: Vec<EntryNumber>,
    /// The places among these that the store does not have: their commit is pending, or they are
    /// finished since.
    pub missing: Vec<EntryNumber>,
    /// The messages that are wanted, in their order.
    pub found: Vec<EntryNumber>,
    /// The first of these. Fewer with long topics.
    pub rows: Vec<(EntryNumber, StoredMessage)>,
}

/// A stored message with its payload.
pub type StoredBody = (EntryNumber, Message);

/// Returns the place of a delivery in memory; `None` if it is not stored.
pub(super) fn stored_place(delivery: &Delivery) -> Option<StoredPlace> {
    let stored = delivery.stored.as_ref()?;
    Some((stored.number(), stored.body()?))
}

/// Returns the places of messages in the store of these sessions, each from a number on. Sessions
/// for which there is no room are left out.
pub(super) fn paged_out(
    question: &mut Question<'_>,
    sessions: &[(SessionId, EntryNumber)],
) -> Vec<PagedOutPart> {
    let (mut parts, mut room) = (Vec::new(), PLACES);
    for (session, from) in sessions {
        if room == 0 || question.budget.is_spent() {
            break;
        }
        question.budget.spend(1);
        let mut part = PagedOutPart { session: *session, places: Vec::new(), next: None };
        if let Some(entry) = question.shard.session(*session) {
            for paged_out in entry.session.sender.queue.view_paged_out_from(*from) {
                if room == 0 || question.budget.is_spent() {
                    part.next = Some(paged_out.number());
                    break;
                }
                question.budget.spend(1);
                let Some(body) = paged_out.body() else { continue };
                part.places.push((paged_out.number(), body));
                room -= 1;
            }
        }
        parts.push(part);
    }
    parts
}
