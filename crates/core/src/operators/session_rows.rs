//! Sessions in answers to operators: the rows of a listing, and one session with its messages.

use crate::access::identity::shown_name;
use crate::events::refusals::Refusal;
use crate::login::listener_terms::ListenerConnections;
use crate::mqtt::packet::{PacketId, ProtocolVersion, QoS};
use crate::operators::budget::{BYTES, Part, Question, QuestionBudget, ROWS, Rows};
use crate::operators::message_summary::MessageSummary;
use crate::operators::redelivery::SourcedRedelivery;
use crate::operators::stored::{StoredPlace, stored_place};
use crate::routing::shared_group::{MemberAddress, Presence};
use crate::routing::subscription_tree::{PackedOptions, SessionSlot};
use crate::session::outbound::in_flight_packet::InFlightView;
use crate::session::outbound::queue::Queue;
use crate::session::outbound::stall::Stall;
use crate::shard::clients::connections::Traffic;
use crate::shard::clients::pause::Pause;
use crate::shard::clients::session_entry::SessionEntry;
use crate::shard::view::ShardView;
use crate::slots::{ConnectionId, SessionId};
use crate::time::Instant;
use crate::time::age::Age;
use std::sync::Arc;
use std::time::Duration;

/// Steps of one row of a session.
const ROW: usize = 8;

/// Steps of the look at a socket: two system calls of 1 us, as in [`crate::shard::turn`].
const SOCKET: usize = 16;

/// Messages of a window that are looked at for one step.
const WINDOW: usize = 8;

/// Refused requests in the answer about one session, at most.
const REFUSED: usize = 16;

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
    /// The label of the listener of the connection; `None` for any. A session without a
    /// connection has none.
    pub listener: Option<Box<str>>,
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
    /// As [`Self::admits`], and spends its steps. The age of the oldest message costs a pass over
    /// the messages in flight.
    pub(super) fn admits_within(
        &self,
        now: Instant,
        entry: &SessionEntry,
        shard: ShardView<'_>,
        budget: &mut QuestionBudget,
    ) -> bool {
        budget.spend(if self.min_unacked_age.is_zero() { 0 } else { window_steps(entry) });
        self.admits(now, entry, shard)
    }

    /// Returns true if a session is wanted.
    fn admits(&self, now: Instant, entry: &SessionEntry, shard: ShardView<'_>) -> bool {
        let (session, sender) = (&entry.session, &entry.session.sender);
        self.connected.is_none_or(|connected| connected == entry.connection.is_some())
            && session.client_id.starts_with(&*self.prefix)
            && self.user.as_deref().is_none_or(|name| entry.user().is_some_and(|user| user.user() == name))
            && self.version.is_none_or(|version| version == session.version)
            && self.listener.as_deref().is_none_or(|label| {
                let connection = shard.connection_of(entry);
                connection.is_some_and(|connection| connection.listener.connections.label() == label)
            })
            && sender.queue.len() >= self.min_queued
            && sender.queue.bytes() >= self.min_queued_bytes
            && sender.window.len() >= self.min_in_flight
            && (self.min_unacked_age.is_zero()
                || sender
                    .oldest_unacknowledged(now)
                    .is_some_and(|stall| stall.age.least >= self.min_unacked_age))
    }
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
    /// The listener of the connection; `None` while the client is away.
    pub listener: Option<Arc<ListenerConnections>>,
    /// The connection as its client asked for it; `None` while the client is away.
    pub connected: Option<ConnectionFacts>,
    /// The time for which the client is away; `None` while it is connected. No configuration has a
    /// session that never ends, of which the time would not be known.
    pub away: Option<Duration>,
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
    /// Time for which the oldest message of the queue waits; `None` without one, or if only the
    /// store knows it.
    pub oldest_queued: Option<Duration>,
    /// The place of that message in the store, if `oldest_queued` does not say.
    pub oldest_stored: Option<StoredPlace>,
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

/// The connection of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionFacts {
    /// The time at which CONNECT was accepted.
    pub since: Instant,
    /// True if CONNECT asked for a new session: Clean Start, or Clean Session in 3.x.
    pub clean_start: bool,
    /// The Keep Alive in seconds; 0 is none.
    pub keep_alive_secs: u16,
    /// The time of the last whole packet of the client. A pause that the broker makes moves it.
    pub last_packet: Instant,
    /// Bytes of MQTT that the socket took on this connection.
    pub sent_bytes: u64,
    /// What was counted on this connection.
    pub traffic: Traffic,
}

impl ConnectionFacts {
    fn of(entry: &SessionEntry, shard: ShardView<'_>) -> Option<ConnectionFacts> {
        let connection = shard.connection_of(entry)?;
        Some(ConnectionFacts {
            since: connection.connected_since()?,
            clean_start: connection.clean_start(),
            keep_alive_secs: connection.keep_alive.secs(),
            last_packet: connection.keep_alive.last_heard(),
            sent_bytes: connection.wire.outbox.written(),
            traffic: shard.traffic(entry.connection?),
        })
    }
}

/// Returns the time for which the client of a session is away. A session ends its expiry after its
/// client has left.
fn away_for(now: Instant, entry: &SessionEntry) -> Option<Duration> {
    let is_known = entry.connection.is_none() && !entry.ends.is_never();
    is_known.then(|| entry.session.expiry_interval().saturating_sub(entry.ends.since(now)))
}

impl SessionSummary {
    /// Returns the presence of the session.
    pub fn presence(&self) -> Presence {
        if self.connection.is_some() { Presence::Online } else { Presence::Offline }
    }
}

/// A session with its messages.
#[derive(Clone, Debug)]
pub struct SessionDetail {
    /// The session.
    pub row: SessionSummary,
    /// The messages in flight, in their order, the first [`ROWS`] and fewer with long topics.
    pub in_flight: Vec<InFlightSummary>,
    /// The messages in the queue, in their order, the first that are in memory, as many.
    pub queue: Vec<MessageSummary>,
    /// The subscriptions, as many, by their filters.
    pub subscriptions: Vec<OwnSubscription>,
    /// The redelivery settings, with their sources.
    pub redelivery: SourcedRedelivery,
    /// The last refused requests of the client, the newest first, at most 16.
    pub refused: Vec<Refusal>,
}

/// A subscription of a session. Retain Handling is not here, because only the SUBSCRIBE needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnSubscription {
    /// The Topic Filter, of a shared subscription with its `$share/...`.
    pub filter: Box<str>,
    /// The QoS and the other options.
    pub options: PackedOptions,
    /// The 5.0 Subscription Identifier; 0 without one.
    pub id: u32,
}

impl OwnSubscription {
    /// Returns the subscription of a session with one of its filters. Costs a look-up and a binary
    /// search.
    pub(super) fn of(shard: ShardView<'_>, id: SessionId, filter: &str) -> OwnSubscription {
        let (router, session) = (shard.router(), SessionSlot(id.slot));
        let member = || {
            let address = MemberAddress { shard: shard.here(), session };
            let member = router.group(router.group_of(filter)?)?.member(address)?;
            Some((member.options, member.subscription_id))
        };
        let own =
            || router.tree().subscription(filter, session).map(|one| (one.options, one.subscription_id));
        let (options, id) = member().or_else(own).unwrap_or_default();
        OwnSubscription { filter: filter.into(), options, id }
    }
}

/// A message in flight.
#[derive(Clone, Debug)]
pub struct InFlightSummary {
    /// The Packet Identifier.
    pub packet_id: PacketId,
    /// The message; `None` at QoS 2 once PUBREC has come, because only PUBCOMP is awaited then.
    pub message: Option<MessageSummary>,
    /// Time since the first transmission.
    pub age: Age,
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

/// Returns the sessions in the slots from `from` on that a filter admits, at most `most`, and the
/// slot with which the next question begins; `None` at the end.
pub(super) fn sessions(
    question: &mut Question<'_>,
    from: u32,
    most: usize,
    filter: &SessionFilter,
) -> Part<SessionSummary, u32> {
    let (now, shard, budget) = (question.now, question.shard, &mut *question.budget);
    let mut rows = Rows::new(most);
    for slot in from..shard.end_of_slots() {
        if rows.is_full(budget) {
            return rows.part(Some(slot));
        }
        budget.spend(1);
        let Some((id, entry)) = shard.session_at(slot) else { continue };
        if filter.admits_within(now, entry, shard, budget) {
            let row = row_within(now, (id, entry), shard, budget);
            let bytes = row.client_id.len();
            rows.push(row, bytes);
        }
    }
    rows.part(None)
}

/// Returns the sessions of these clients, from a place in the list on.
pub(super) fn named(
    question: &mut Question<'_>,
    clients: &[Box<str>],
    from: u32,
) -> Part<SessionSummary, u32> {
    let (now, shard, budget) = (question.now, question.shard, &mut *question.budget);
    let mut rows = Rows::new(clients.len());
    for (place, client_id) in (from..).zip(clients.iter().skip(from as usize)) {
        if rows.is_full(budget) {
            return rows.part(Some(place));
        }
        budget.spend(1);
        let found = shard.find(client_id).and_then(|id| Some((id, shard.session(id)?)));
        if let Some(found) = found {
            rows.push(row_within(now, found, shard, budget), client_id.len());
        }
    }
    rows.part(None)
}

/// Returns the steps of a pass over the messages in flight of a session.
pub(super) fn window_steps(entry: &SessionEntry) -> usize {
    entry.session.sender.window.len() / WINDOW
}

/// Returns the row of a session, and spends its steps. The earliest deadline costs a pass over the
/// messages in flight.
pub(super) fn row_within(
    now: Instant,
    (id, entry): (SessionId, &SessionEntry),
    shard: ShardView<'_>,
    budget: &mut QuestionBudget,
) -> SessionSummary {
    let row = row(now, (id, entry), shard);
    budget.spend(ROW + window_steps(entry) + if row.oldest.is_some() { SOCKET } else { 0 });
    row
}

/// Returns the row of a session.
pub(super) fn row(
    now: Instant,
    (id, entry): (SessionId, &SessionEntry),
    shard: ShardView<'_>,
) -> SessionSummary {
    let (session, sender) = (&entry.session, &entry.session.sender);
    let connection = shard.connection_of(entry);
    let (oldest_queued, oldest_stored) = oldest_queued(now, &sender.queue);
    SessionSummary {
        id,
        client_id: session.client_id.clone(),
        user: entry.user().map(|user| shown_name(user.user()).into()),
        version: session.version,
        connection: entry.connection,
        listener: connection.map(|connection| Arc::clone(&connection.listener.connections)),
        connected: ConnectionFacts::of(entry, shard),
        away: away_for(now, entry),
        ends: entry.ends,
        expiry: session.expiry,
        in_flight: sender.window.len(),
        queued: sender.queue.len(),
        queued_bytes: sender.queue.bytes(),
        oldest_queued,
        oldest_stored,
        held: entry.held_messages(),
        unanswered: session.receiver.unanswered(),
        waits_for_peer: connection.is_some_and(|connection| connection.pauses.has(Pause::Peer)),
        subscriptions: session.subscriptions.len(),
        oldest: sender.oldest_unacknowledged(now),
        due: if entry.connection.is_some() { sender.window.earliest_due() } else { Instant::NEVER },
    }
}

/// Returns for how long the oldest message of a queue waits, or the place in the store that says
/// so.
fn oldest_queued(now: Instant, queue: &Queue) -> (Option<Duration>, Option<StoredPlace>) {
    let Some(oldest) = queue.front() else { return (None, queue.first_paged_out()) };
    match oldest.mark.waits_since() {
        Some(since) => (Some(now.since(since)), None),
        None => (None, stored_place(oldest)),
    }
}

/// Returns a session with its first messages and filters. One session is not divided.
pub(super) fn detail(question: &Question<'_>, (id, entry): (SessionId, &SessionEntry)) -> SessionDetail {
    let (now, shard, sender) = (question.now, question.shard, &entry.session.sender);
    let in_flight = |view: InFlightView<'_>| InFlightSummary {
        packet_id: view.transmission.packet_id(),
        message: view.delivery.map(MessageSummary::of),
        age: view.transmission.age(now),
        transmissions: view.transmission.transmissions,
        due: view.transmission.due,
        sent_here: view.sent_here,
    };
    let queued = sender.queue.view_from(0).map(|(.., delivery)| MessageSummary::of(delivery));
    let topic = |message: &MessageSummary| message.topic.len();
    let own = entry.session.subscriptions.iter().map(|filter| OwnSubscription::of(shard, id, filter));
    let mut subscriptions = first(own, |own| own.filter.len());
    subscriptions.sort_unstable_by(|one, other| one.filter.cmp(&other.filter));
    SessionDetail {
        row: row(now, (id, entry), shard),
        in_flight: first(sender.window.view().map(in_flight), |row| row.message.as_ref().map_or(0, topic)),
        queue: first(queued, topic),
        subscriptions,
        redelivery: SourcedRedelivery::of(entry, shard),
        refused: shard.refusals().of_client(&entry.session.client_id).take(REFUSED).cloned().collect(),
    }
}

/// Returns the first [`ROWS`], and fewer if their texts have [`BYTES`].
fn first<T>(all: impl Iterator<Item = T>, bytes_of: impl Fn(&T) -> usize) -> Vec<T> {
    let mut bytes = 0;
    let has_room = |row: &T| {
        let before = bytes;
        bytes += bytes_of(row);
        before < BYTES
    };
    all.take(ROWS).take_while(has_room).collect()
}
