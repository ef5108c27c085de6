//! Where a message is: the questions behind `homing ctl where`.
//!
//! Each question looks at a bounded part of one shard. The caller asks for the next part until it
//! has all, or its time is over.

use crate::mqtt::message::Message;
use crate::mqtt::packet::QoS;
use crate::mqtt::topic::matches;
use crate::routing::subscription_tree::Matches;
use crate::session::outbound::stall::SocketView;
use crate::session::packet_notes::cut;
use crate::shard::core::Core;
use crate::shard::observe::message_summary::{BYTES, ROWS};
use crate::shard::observe::unfinished::{UnfinishedMessage, queued_row, sent_row};
use crate::shard::observe::wait_reason::{WaitReason, Waiting};
use crate::shard::routes::Routes;
use crate::shard::session_entry::SessionEntry;
use crate::shard::slots::{ConnectionId, SessionId};
use crate::time::Instant;

/// Steps of one question at most: a session and a message are one step each.
const STEPS: usize = 8_192;

/// Filters of one session that are compared with a topic at most.
const FILTERS: usize = 1_000;

/// Nodes of the subscription tree that one question visits at most.
const NODES: u32 = 16_384;

/// The messages that are looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The Topic Name; `None` for any.
    pub topic: Option<Box<str>>,
    /// The publisher's Client Identifier; `None` for any. Messages keep it only if a redelivery
    /// policy asks for dead letters; a message without it fits any publisher.
    pub publisher: Option<Box<str>>,
    /// The receiver's Client Identifier; `None` for any.
    pub receiver: Option<Box<str>>,
}

impl Wanted {
    /// Returns true if a message is one of those.
    pub fn is(&self, message: &Message) -> bool {
        let publisher = message.publisher();
        self.topic.as_deref().is_none_or(|topic| topic == message.topic())
            && self.publisher.as_deref().is_none_or(|name| publisher.is_empty() || publisher == name)
    }

    /// Returns true if a session is one whose messages are looked at.
    fn is_receiver(&self, client_id: &str) -> bool {
        self.receiver.as_deref().is_none_or(|receiver| receiver == client_id)
    }
}

/// A session whose subscriptions match a topic.
#[derive(Clone, Debug)]
pub struct MatchedSession {
    /// The Client Identifier.
    pub client_id: Box<str>,
    /// True if the client is connected.
    pub connected: bool,
    /// The highest QoS of the subscriptions that match.
    pub qos: QoS,
    /// The Topic Filters that match.
    pub filters: Vec<Box<str>>,
}

impl MatchedSession {
    /// Returns "connected" or "away".
    pub fn state(&self) -> &'static str {
        if self.connected { "connected" } else { "away" }
    }
}

/// The receivers of a topic.
#[derive(Clone, Debug, Default)]
pub struct MatchedReceivers {
    /// The sessions, at most [`ROWS`] of each shard.
    pub sessions: Vec<MatchedSession>,
    /// Bytes of the client identifiers of `sessions`.
    bytes: usize,
    /// The shared groups in full, each with its number of members in all shards.
    pub groups: Vec<(Box<str>, usize)>,
    /// True if there are more than the answer has.
    pub more: bool,
}

impl MatchedReceivers {
    /// Adds a session.
    pub fn add(&mut self, session: MatchedSession) {
        self.bytes += session.client_id.len();
        self.sessions.push(session);
    }

    /// Returns true if the client identifiers have [`BYTES`] or more. Each may have 64 KiB.
    pub fn has_all_bytes(&self) -> bool {
        self.bytes >= BYTES
    }

    /// Returns true if the answer of one shard takes no further session.
    pub(crate) fn is_full(&self) -> bool {
        self.sessions.len() >= ROWS || self.has_all_bytes()
    }
}

/// Returns the receivers of a topic in this shard.
pub(crate) fn receivers(topic: &str, core: &Core, routes: &Routes) -> MatchedReceivers {
    let (mut matched, mut found) = (Matches::default(), MatchedReceivers::default());
    if !routes.router.tree().matches_within(topic, NODES, &mut matched) {
        found.more = true;
        return found;
    }
    matched.subscribers.sort_unstable_by_key(|subscriber| subscriber.session.0);
    for same in matched.subscribers.chunk_by(|a, b| a.session == b.session) {
        if found.is_full() {
            found.more = true;
            break;
        }
        let slot = same.first().map_or(0, |subscriber| subscriber.session.0);
        let Some((_, entry)) = core.sessions.at(slot) else { continue };
        let filters = entry.session.subscriptions.iter().take(FILTERS);
        found.add(MatchedSession {
            client_id: entry.session.client_id.clone(),
            connected: entry.connection.is_some(),
            qos: same.iter().map(|subscriber| subscriber.options.qos()).max().unwrap_or_default(),
            filters: filters.filter(|filter| matches(filter, topic)).take(4).map(cut).collect(),
        });
    }
    let group = |id: &_| {
        let members = routes.router.group(*id).map_or(0, |group| group.len());
        Some((cut(routes.router.full_filter(*id)?), members))
    };
    found.groups = matched.groups.iter().take(ROWS).filter_map(group).collect();
    found
}

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
        let peer_has = view.peer_has(self.written);
        if let Some(sent) = self.message.wait.sent_mut() {
            sent.diagnose(peer_has, view);
        }
    }
}

/// The waiting messages in a part of the sessions of a shard.
#[derive(Clone, Debug, Default)]
pub struct FoundMessages {
    /// The messages, at most [`ROWS`].
    pub messages: Vec<FoundMessage>,
    /// The sessions with messages whose topic is not known, because they are in the store alone:
    /// the Client Identifier, the number of messages, and why they wait.
    pub in_store: Vec<(Box<str>, usize, WaitReason)>,
    /// The slot at which the next part begins; `None` at the end.
    pub next: Option<u32>,
    /// True if a session has more messages than were looked at.
    pub more: bool,
}

/// Looks for waiting messages in the sessions from the slot `from` on.
pub(crate) fn messages(now: Instant, wanted: &Wanted, from: u32, core: &Core) -> FoundMessages {
    let mut found = FoundMessages::default();
    if let Some(receiver) = &wanted.receiver {
        let id = core.sessions.find(receiver);
        if let Some((id, entry)) = id.and_then(|id| Some((id, core.sessions.get(id)?))) {
            messages_of(now, wanted, (id, entry), core, &mut found);
        }
        return found;
    }
    let (end, mut steps) = (core.sessions.end_of_slots(), 0);
    for slot in from..end {
        if steps >= STEPS || found.messages.len() >= ROWS {
            found.next = Some(slot);
            break;
        }
        steps += 1;
        if let Some(session) = core.sessions.at(slot) {
            steps += messages_of(now, wanted, session, core, &mut found);
        }
    }
    found
}

/// Adds the wanted messages of one session. Returns the number of messages that were looked at.
fn messages_of(
    now: Instant,
    wanted: &Wanted,
    (id, entry): (SessionId, &SessionEntry),
    core: &Core,
    found: &mut FoundMessages,
) -> usize {
    let client_id = &entry.session.client_id;
    if !wanted.is_receiver(client_id) {
        return 0;
    }
    let (sender, waiting) = (&entry.session.sender, Waiting::new(now, entry, core));
    let (mut looked, mut older, mut rows) = (0, 0, Vec::new());
    for view in sender.view_in_flight().take(STEPS) {
        let is_wanted = match view.delivery {
            Some(delivery) => wanted.is(&delivery.message),
            // The topic is gone with the message.
            None => wanted.topic.is_none() && wanted.publisher.is_none(),
        };
        if is_wanted {
            rows.push(sent_row(now, &view, waiting.in_flight(&view, older)));
        }
        older += usize::from(!view.sent_here);
        looked += 1;
    }
    for (ahead, (place, delivery)) in sender.backlog.view().enumerate().take(STEPS) {
        if wanted.is(&delivery.message) {
            rows.push(queued_row(delivery, Some(place), waiting.queued(delivery.qos, ahead)));
        }
        looked += 1;
    }
    for held in entry.view_held().filter(|held| wanted.is(&held.delivery.message)) {
        rows.push(queued_row(&held.delivery, None, WaitReason::Held(held.until)));
    }
    let parked = sender.backlog.view_parked().count();
    if parked > 0 && found.in_store.len() < ROWS {
        found.in_store.push((client_id.clone(), parked, waiting.parked()));
    }
    found.more |= looked < sender.in_flight() + sender.backlog.len() - parked;
    let room = ROWS.saturating_sub(found.messages.len());
    found.more |= rows.len() > room;
    let connection = entry.connection.and_then(|id| core.connections.get(id));
    let written = connection.map_or(0, |connection| connection.wire.outbox.written());
    found.messages.extend(rows.into_iter().take(room).map(|message| FoundMessage {
        session: id,
        connection: entry.connection,
        receiver: client_id.clone(),
        message,
        written,
    }));
    looked
}
