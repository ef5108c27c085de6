//! Sessions in an order that is the same over all shards: by client identifier, or by a figure.
//!
//! A shard has no such order, so a page takes a look at every session. The caller narrows the range
//! while it collects the rows of a page. So most sessions cost one step, and a million sessions
//! some 250 questions.

use crate::mqtt::topic::first_chars;
use crate::named_enum::named_enum;
use crate::operators::budget::{Part, Question, Rows};
use crate::operators::session_rows::{SessionFilter, SessionSummary, row_within, window_steps};
use crate::session::outbox::Outbox;
use crate::shard::clients::connections::Traffic;
use crate::shard::clients::session_entry::SessionEntry;
use crate::shard::view::ShardView;
use crate::time::Instant;
use std::cmp::Ordering;

/// Characters of a client identifier that count for its place. Sessions whose identifiers begin
/// with the same characters stand in the order of their slots.
const NAME: usize = 128;

named_enum! {
    /// The order of a listing. The largest figure comes first, and client identifiers rise.
    pub enum SessionOrder {
        /// The client identifier.
        ClientId = "client_id",
        /// The age of the oldest unacknowledged message.
        OldestUnacknowledged = "oldest_unacked",
        /// The messages in the queue.
        Queued = "queued",
        /// The bytes of these messages.
        QueuedBytes = "queued_bytes",
        /// The messages in flight.
        InFlight = "in_flight",
        /// The messages that came from the client on the present connection.
        ReceivedMessages = "received_messages",
        /// The bytes that came from it.
        ReceivedBytes = "received_bytes",
        /// The messages that were written to it on the present connection.
        SentMessages = "sent_messages",
        /// The bytes that the client's side took on the present connection.
        SentBytes = "sent_bytes",
    }
}

/// The place of a session in an order. Places differ, also those of sessions in different shards.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionRank {
    /// Lower for a larger figure; 0 in the order of client identifiers.
    pub figure: u64,
    /// The beginning of the client identifier.
    pub name: Box<str>,
    /// The number of the shard.
    pub shard: u8,
    /// The slot of the session in the shard.
    pub slot: u32,
}

/// The part of an order that is wanted.
#[derive(Clone, Debug)]
pub struct RankRange {
    /// The order.
    pub order: SessionOrder,
    /// Only sessions behind this place.
    pub after: Option<SessionRank>,
    /// Only sessions before this place.
    pub until: Option<SessionRank>,
}

/// Sessions in a part of an order, as they came in their slots.
#[derive(Clone, Debug)]
pub struct RankedSessions {
    /// The sessions, each with its place, and the slot with which the next question begins.
    pub part: Part<(SessionRank, SessionSummary), u32>,
    /// The number of sessions that the filter admits, in the range and outside.
    pub admitted: usize,
    /// The number of admitted sessions up to [`RankRange::after`].
    pub before: usize,
}

impl SessionOrder {
    /// Returns the figure of a session for its rank.
    fn figure(self, now: Instant, entry: &SessionEntry, shard: ShardView<'_>) -> u64 {
        let sender = &entry.session.sender;
        let largest_first = |figure: usize| u64::MAX - figure as u64;
        let largest_of = |count: fn(&Outbox, Traffic) -> u64| {
            let of = |id| Some(count(&shard.connection(id)?.wire.outbox, shard.traffic(id)));
            u64::MAX - entry.connection.and_then(of).unwrap_or_default()
        };
        match self {
            SessionOrder::ClientId => 0,
            // The time of the first transmission, because it does not change while the wait goes
            // on.
            SessionOrder::OldestUnacknowledged => {
                let oldest = sender.oldest_unacknowledged(now);
                oldest.map_or(u64::MAX, |stall| now.millis_since(Instant::ZERO + stall.age.least))
            }
            SessionOrder::Queued => largest_first(sender.queue.len()),
            SessionOrder::QueuedBytes => largest_first(sender.queue.bytes()),
            SessionOrder::InFlight => largest_first(sender.window.len()),
            SessionOrder::ReceivedMessages => largest_of(|_, traffic| traffic.received_publishes),
            SessionOrder::ReceivedBytes => largest_of(|_, traffic| traffic.received_bytes),
            SessionOrder::SentMessages => largest_of(|_, traffic| traffic.sent_publishes),
            SessionOrder::SentBytes => largest_of(|outbox, _| outbox.written()),
        }
    }

    /// Returns true if the figure costs a pass over the messages in flight.
    fn looks_at_window(self) -> bool {
        self == SessionOrder::OldestUnacknowledged
    }
}

impl SessionRank {
    fn at((figure, name, shard, slot): (u64, &str, u8, u32)) -> SessionRank {
        SessionRank { figure, name: name.into(), shard, slot }
    }

    /// Compares with the place of a session.
    fn compare(&self, (figure, name, shard, slot): (u64, &str, u8, u32)) -> Ordering {
        (self.figure, &*self.name, self.shard, self.slot).cmp(&(figure, name, shard, slot))
    }
}

/// Returns the sessions in the slots from `from` on that a filter admits and that are in a range,
/// at most [`ROWS`](crate::operators::budget::ROWS), and counts all that the filter admits.
pub(super) fn ranked(
    question: &mut Question<'_>,
    from: u32,
    filter: &SessionFilter,
    range: &RankRange,
) -> RankedSessions {
    let (now, shard, budget) = (question.now, question.shard, &mut *question.budget);
    let (mut rows, mut next) = (Rows::new(usize::MAX), None);
    let (mut admitted, mut before) = (0, 0);
    for slot in from..shard.end_of_slots() {
        if rows.is_full(budget) {
            next = Some(slot);
            break;
        }
        budget.spend(1);
        let Some((id, entry)) = shard.session_at(slot) else { continue };
        if !filter.admits_within(now, entry, shard, budget) {
            continue;
        }
        admitted += 1;
        budget.spend(if range.order.looks_at_window() { window_steps(entry) } else { 0 });
        let name = first_chars(&entry.session.client_id, NAME);
        let place = (range.order.figure(now, entry, shard), name, shard.here().0, slot);
        if range.after.as_ref().is_some_and(|after| after.compare(place).is_ge()) {
            before += 1;
        } else if range.until.as_ref().is_none_or(|until| until.compare(place).is_gt()) {
            let rank = SessionRank::at(place);
            let row = row_within(now, (id, entry), shard, budget);
            let bytes = row.client_id.len();
            rows.push((rank, row), bytes);
        }
    }
    RankedSessions { part: rows.part(next), admitted, before }
}
