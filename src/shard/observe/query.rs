//! Questions of operators about the sessions of one shard, and their answers.
//!
//! A question changes nothing. Its cost is bounded by [`SLOTS`] and [`ROWS`], whatever the number
//! of sessions and messages: a listing of many sessions takes many questions, between which the
//! shard does its work.

use crate::access::identity::shown_name;
use crate::mqtt::packet::{PacketId, ProtocolVersion, QoS};
use crate::persistence::letter::{LetterPlace, StoredLetter};
use crate::session::outbound::in_flight_packet::InFlightView;
use crate::session::outbound::stall::Stall;
use crate::session::packet_notes::cut;
use crate::session::slow_deliveries::SlowDelivery;
use crate::shard::arrival::ListenerNumber;
use crate::shard::connection::Pause;
use crate::shard::core::Core;
use crate::shard::features::delayed::{Delayed, DelayedPlace};
use crate::shard::observe::by_filter::{self, SharedGroups};
use crate::shard::observe::letters::{LetterFilter, LetterPage};
use crate::shard::observe::recent_drops::RecentDrop;
use crate::shard::observe::redelivery::SessionRule;
use crate::shard::observe::unfinished::{self, PagePayloads, UnfinishedPage, UnfinishedPart};
use crate::shard::observe::whereabouts::{self, FoundMessages, MatchedReceivers, Wanted};
use crate::shard::routes::Routes;
use crate::shard::session_entry::SessionEntry;
use crate::shard::slots::{ConnectionId, SessionId};
use crate::time::Instant;
use std::sync::Arc;
use std::time::Duration;

pub use crate::shard::observe::message_summary::{BYTES, MessageSummary, ROWS};

/// Slots of sessions that one question visits at most: 0.1 ms at 100 ns each.
pub const SLOTS: u32 = 1_024;

/// A question.
#[derive(Clone, Debug)]
pub enum Query {
    /// The sessions in the slots from `from` on that `filter` admits, at most `most` and [`ROWS`].
    Sessions {
        /// The first slot; 0 at the beginning.
        from: u32,
        /// Maximum number of sessions in the answer.
        most: usize,
        /// The sessions that are wanted.
        filter: SessionFilter,
    },
    /// The session of a client, with its first messages and filters.
    Session {
        /// The session.
        client: SessionName,
    },
    /// A page of the unfinished messages of a client.
    Unfinished {
        /// The session.
        client: SessionName,
        /// The part of the messages.
        part: UnfinishedPart,
        /// The payloads in the answer.
        payloads: PagePayloads,
        /// The place at which the page begins; 0 at the beginning.
        from: u64,
        /// Maximum number of messages in the answer; at most [`ROWS`].
        most: usize,
    },
    /// The receivers of a topic in this shard.
    Receivers {
        /// The Topic Name.
        topic: Box<str>,
    },
    /// The sessions of this shard that have a filter, as a SUBSCRIBE names it.
    Subscribers {
        /// The Topic Filter, of a shared subscription with its `$share/...`.
        filter: Box<str>,
    },
    /// The shared groups of all shards, in the places from `from` on.
    SharedGroups {
        /// The first place; 0 at the beginning.
        from: u32,
        /// Maximum number of groups in the answer; at most [`ROWS`].
        most: usize,
    },
    /// The messages in windows and queues, in the sessions from a slot on.
    Messages {
        /// The messages that are looked for.
        wanted: Wanted,
        /// The first slot; 0 at the beginning.
        from: u32,
    },
    /// The delayed messages in memory, and the last dropped messages.
    Elsewhere {
        /// The messages that are looked for. The publisher does not count.
        wanted: Wanted,
        /// Maximum number of each kind in the answer; at most [`ROWS`].
        most: usize,
    },
    /// The rows with a slow delivery in the last hour, the slowest first.
    SlowDeliveries {
        /// The Topic Name; `None` for any.
        topic: Option<Box<str>>,
        /// The Client Identifier of the receiver; `None` for any.
        receiver: Option<Box<str>>,
        /// Maximum number of rows in the answer. A thousand rows cost 0.2 ms.
        most: usize,
    },
    /// The stored dead letters of the shard, the newest first.
    Letters {
        /// The place before which the letters are; `None` at the beginning.
        before: Option<LetterPlace>,
        /// Maximum number of letters in the answer; at most [`ROWS`].
        most: usize,
        /// The letters that are wanted.
        filter: LetterFilter,
    },
    /// One stored dead letter.
    Letter(LetterPlace),
}

/// The name of a session in its shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionName {
    /// The Client Identifier.
    Client(Box<str>),
    /// The place of the session, for client identifiers that are too long for a URL.
    At(SessionId),
}

impl SessionName {
    /// Returns the session; `None` if the shard does not have it.
    pub(crate) fn find(&self, core: &Core) -> Option<SessionId> {
        match self {
            SessionName::Client(client_id) => core.sessions.find(client_id),
            SessionName::At(id) => core.sessions.get(*id).map(|_| *id),
        }
    }
}

/// The sessions that an operator wants to see. The default admits all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SessionFilter {
    /// Connected sessions, or those without a connection.
    pub connected: Option<bool>,
    /// The beginning of the Client Identifier.
    pub prefix: Box<str>,
    /// The user name.
    pub user: Option<Box<str>>,
    /// The protocol version of the last connection.
    pub version: Option<ProtocolVersion>,
    /// The numbers of the listener of the connection; `None` for any. A session without a
    /// connection has none.
    pub listener: Option<Vec<ListenerNumber>>,
    /// Messages in the queue, at least.
    pub min_queued: usize,
    /// Bytes of the messages in the queue, at least.
    pub min_queued_bytes: usize,
    /// Messages in flight, at least.
    pub min_in_flight: usize,
    /// Age of the oldest unacknowledged message, at least.
    pub min_unacked_age: Duration,
}

impl SessionFilter {
    /// Returns true if a session is wanted.
    fn admits(&self, now: Instant, entry: &SessionEntry, core: &Core) -> bool {
        let (session, sender) = (&entry.session, &entry.session.sender);
        self.connected.is_none_or(|connected| connected == entry.connection.is_some())
            && session.client_id.starts_with(&*self.prefix)
            && self.user.as_deref().is_none_or(|name| entry.user().is_some_and(|user| user.user() == name))
            && self.version.is_none_or(|version| version == session.version)
            && self.listener.as_ref().is_none_or(|numbers| {
                listener_of(entry, core).is_some_and(|listener| numbers.contains(&listener))
            })
            && sender.backlog.len() >= self.min_queued
            && sender.backlog.bytes() >= self.min_queued_bytes
            && sender.in_flight() >= self.min_in_flight
            && (self.min_unacked_age.is_zero()
                || sender.oldest_unacknowledged(now).is_some_and(|stall| stall.age >= self.min_unacked_age))
    }
}

/// Returns the listener of the connection of a session; `None` without a connection.
fn listener_of(entry: &SessionEntry, core: &Core) -> Option<ListenerNumber> {
    core.connections.get(entry.connection?).map(|connection| connection.listener)
}

/// An answer, in the order of [`Query`].
#[derive(Clone, Debug)]
pub enum QueryAnswer {
    /// Sessions, and the slot with which the next question begins; `None` at the end.
    Sessions(Vec<SessionSummary>, Option<u32>),
    /// The session; `None` if the shard has none of this client.
    Session(Option<Box<SessionDetail>>),
    /// The page; `None` if the shard has no session of this client.
    Unfinished(Option<Box<UnfinishedPage>>),
    /// The receivers of a topic, or the sessions with a filter.
    Receivers(Box<MatchedReceivers>),
    /// The shared groups.
    SharedGroups(SharedGroups),
    /// The messages.
    Messages(Box<FoundMessages>),
    /// Delayed messages, each with its place, and dropped messages.
    Elsewhere(Vec<(DelayedPlace, MessageSummary)>, Vec<RecentDrop>),
    /// The slow deliveries.
    SlowDeliveries(Vec<SlowDelivery>),
    /// The letters.
    Letters(LetterPage),
    /// The letter; `None` if the shard does not have it.
    Letter(Option<Arc<StoredLetter>>),
}

/// A session in a list.
#[derive(Clone, Debug)]
pub struct SessionSummary {
    /// The session's place in the shard.
    pub id: SessionId,
    /// The Client Identifier.
    pub client_id: Box<str>,
    /// The user name of the client; `None` for an anonymous client.
    pub user: Option<Box<str>>,
    /// The protocol version of the last connection.
    pub version: ProtocolVersion,
    /// The connection; `None` while the client is away.
    pub connection: Option<ConnectionId>,
    /// The listener of the connection; that of number 0 without one.
    pub listener: ListenerNumber,
    /// The time at which the session ends; [`Instant::NEVER`] while the client is connected.
    pub ends: Instant,
    /// The Session Expiry Interval, in seconds. 0xFFFF_FFFF is never.
    pub expiry: u32,
    /// Messages in flight.
    pub in_flight: usize,
    /// Messages in the queue.
    pub queued: usize,
    /// Bytes of the messages in the queue.
    pub queued_bytes: usize,
    /// Messages that wait for room in the queue.
    pub held: usize,
    /// PUBLISHes of the present connection whose PUBACK or PUBREC is pending.
    pub unanswered: usize,
    /// True if the client is not read until another shard has caught up.
    pub waits_for_peer: bool,
    /// Subscriptions.
    pub subscriptions: usize,
    /// The oldest unacknowledged message. Its cause is not diagnosed; the driver does that.
    pub oldest: Option<Stall>,
    /// The earliest time at which a message in flight is sent again or counts as overdue;
    /// [`Instant::NEVER`] if none is.
    pub due: Instant,
}

impl SessionSummary {
    /// Returns "connected" or "away".
    pub fn state(&self) -> &'static str {
        if self.connection.is_some() { "connected" } else { "away" }
    }
}

/// A session with its messages.
#[derive(Clone, Debug)]
pub struct SessionDetail {
    /// The session.
    pub row: SessionSummary,
    /// The messages in flight, in their order, the first [`ROWS`].
    pub in_flight: Vec<InFlightSummary>,
    /// The messages in the queue, in their order, the first [`ROWS`] that are in memory.
    pub queue: Vec<MessageSummary>,
    /// The Topic Filters, the first [`ROWS`], cut as topics are.
    pub filters: Vec<Box<str>>,
    /// The redelivery settings, with their sources.
    pub redelivery: SessionRule,
}

/// A message in flight.
#[derive(Clone, Debug)]
pub struct InFlightSummary {
    /// The Packet Identifier.
    pub packet_id: PacketId,
    /// The message; `None` at QoS 2 once PUBREC has come, because only PUBCOMP is awaited then.
    pub message: Option<MessageSummary>,
    /// Time since the first transmission.
    pub age: Duration,
    /// Transmissions over all connections.
    pub transmissions: u16,
    /// The time at which it is sent again or counts as overdue; [`Instant::NEVER`] for neither.
    pub due: Instant,
    /// True if the message was sent on the present connection.
    pub sent_here: bool,
}

impl InFlightSummary {
    /// Returns the name of the packet that the broker waits for.
    pub fn waits_for(&self) -> &'static str {
        match &self.message {
            None => "PUBCOMP",
            Some(message) if message.qos == QoS::ExactlyOnce => "PUBREC",
            Some(_) => "PUBACK",
        }
    }
}

/// Answers a question.
pub(crate) fn answer(
    now: Instant,
    query: &Query,
    core: &Core,
    routes: &Routes,
    delayed: &Delayed,
) -> QueryAnswer {
    match query {
        Query::Receivers { topic } => {
            QueryAnswer::Receivers(Box::new(whereabouts::receivers(topic, core, routes)))
        }
        Query::Subscribers { filter } => {
            QueryAnswer::Receivers(Box::new(by_filter::subscribers(filter, core, routes)))
        }
        Query::SharedGroups { from, most } => {
            QueryAnswer::SharedGroups(by_filter::shared_groups(*from, *most, routes))
        }
        Query::Messages { wanted, from } => {
            QueryAnswer::Messages(Box::new(whereabouts::messages(now, wanted, *from, core)))
        }
        Query::Elsewhere { wanted, most } => {
            let (topic, most) = (wanted.topic.as_deref(), (*most).min(ROWS));
            let waits =
                delayed.view().filter(|(_, message)| topic.is_none_or(|name| name == message.topic()));
            let waits = waits.take(most).map(|(place, message)| (place, MessageSummary::of_message(message)));
            let dropped = core.recent_drops.find(topic, wanted.receiver.as_deref(), most);
            QueryAnswer::Elsewhere(waits.collect(), dropped)
        }
        Query::SlowDeliveries { topic, receiver, most } => {
            let slow = &core.counters.slow;
            QueryAnswer::SlowDeliveries(slow.find(now, topic.as_deref(), receiver.as_deref(), *most))
        }
        Query::Letters { before, most, filter } => {
            QueryAnswer::Letters(LetterPage::before(*before, *most, filter, core))
        }
        Query::Letter(place) => QueryAnswer::Letter(core.letters.find(*place).cloned()),
        Query::Sessions { from, most, filter } => {
            let (rows, next) = sessions(now, *from, (*most).min(ROWS), filter, core);
            QueryAnswer::Sessions(rows, next)
        }
        Query::Session { client } => {
            let found = found(client, core);
            QueryAnswer::Session(found.map(|(id, entry)| Box::new(detail(now, id, entry, core))))
        }
        Query::Unfinished { client, part, payloads, from, most } => {
            let page = |found| Box::new(unfinished::page(now, (*part, *payloads), *from, *most, found, core));
            QueryAnswer::Unfinished(found(client, core).map(page))
        }
    }
}

fn found<'a>(name: &SessionName, core: &'a Core) -> Option<(SessionId, &'a SessionEntry)> {
    let id = name.find(core)?;
    Some((id, core.sessions.get(id)?))
}

fn sessions(
    now: Instant,
    from: u32,
    most: usize,
    filter: &SessionFilter,
    core: &Core,
) -> (Vec<SessionSummary>, Option<u32>) {
    let end = core.sessions.end_of_slots();
    let until = end.min(from.saturating_add(SLOTS));
    let (mut rows, mut bytes) = (Vec::new(), 0);
    for slot in from..until {
        if rows.len() >= most.max(1) || bytes >= BYTES {
            return (rows, Some(slot));
        }
        if let Some((id, entry)) = core.sessions.at(slot).filter(|(_, entry)| filter.admits(now, entry, core))
        {
            bytes += entry.session.client_id.len();
            rows.push(row(now, id, entry, core));
        }
    }
    (rows, (until < end).then_some(until))
}

fn row(now: Instant, id: SessionId, entry: &SessionEntry, core: &Core) -> SessionSummary {
    let (session, sender) = (&entry.session, &entry.session.sender);
    let connection = entry.connection.and_then(|id| core.connections.get(id));
    SessionSummary {
        id,
        client_id: session.client_id.clone(),
        user: entry.user().map(|user| shown_name(user.user()).into()),
        version: session.version,
        connection: entry.connection,
        listener: connection.map_or(ListenerNumber(0), |connection| connection.listener),
        ends: entry.ends,
        expiry: session.expiry,
        in_flight: sender.in_flight(),
        queued: sender.backlog.len(),
        queued_bytes: sender.backlog.bytes(),
        held: entry.held_messages(),
        unanswered: session.receiver.unanswered(),
        waits_for_peer: connection.is_some_and(|connection| connection.pauses.has(Pause::Peer)),
        subscriptions: session.subscriptions.len(),
        oldest: sender.oldest_unacknowledged(now),
        due: if entry.connection.is_some() { sender.earliest_due() } else { Instant::NEVER },
    }
}

fn detail(now: Instant, id: SessionId, entry: &SessionEntry, core: &Core) -> SessionDetail {
    let sender = &entry.session.sender;
    let in_flight = |view: InFlightView<'_>| InFlightSummary {
        packet_id: view.transmission.packet_id(),
        message: view.delivery.map(MessageSummary::of),
        age: now.since(view.transmission.first_sent),
        transmissions: view.transmission.transmissions,
        due: view.transmission.due,
        sent_here: view.sent_here,
    };
    SessionDetail {
        row: row(now, id, entry, core),
        in_flight: sender.view_in_flight().take(ROWS).map(in_flight).collect(),
        queue: sender.backlog.view().take(ROWS).map(|(_, delivery)| MessageSummary::of(delivery)).collect(),
        filters: entry.session.subscriptions.iter().take(ROWS).map(cut).collect(),
        redelivery: SessionRule::of(entry, core),
    }
}
