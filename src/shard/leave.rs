//! Connections and sessions that end, and the wills they leave.

use crate::mqtt::message::Parts;
use crate::mqtt::packet::{Disconnect, ReasonCode};
use crate::mqtt::topic::TopicFilter;
use crate::mqtt::will::Will;
use crate::persistence::records;
use crate::routing::shared_group::{MemberAddress, Presence};
use crate::routing::subscription_tree::SessionSlot;
use crate::session::will::{Ending, WillTime};
use crate::shard::Shard;
use crate::shard::admission::{Change, Want};
use crate::shard::connection::{Leaves, Phase};
use crate::shard::ended::EndedSession;
use crate::shard::observe::client_events::{ClientEvent, DisconnectCause, Occurrence};
use crate::shard::route::Publication;
use crate::shard::session_entry::SessionEntry;
use crate::shard::slots::{ConnectionId, SessionId};
use crate::time::Instant;
use std::sync::Arc;
use std::time::Duration;

/// How long a closing connection may take to read what it was told, and to close in turn: a close
/// with unread input makes the kernel throw away what the peer has not read yet.
const LINGER: Duration = Duration::from_secs(2);

impl Shard {
    /// The socket is gone: closed by the peer, failed, or finished after [`Self::cut`].
    pub fn closed(&mut self, now: Instant, id: ConnectionId, network: &str) {
        if self.connections.get(id).is_some_and(|c| c.session.is_some()) {
            self.note_disconnected(now, id, DisconnectCause::Network(network.into()));
            self.note_unwritten(id);
            self.part(now, id, Ending::Abnormal);
        }
        if let Some(connection) = self.connections.remove(id) {
            self.partial_bytes -= connection.partial_len();
        }
    }

    /// The socket is gone with bytes that it never took. Not said where the broker ends a
    /// connection: what waits then is still written.
    fn note_unwritten(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get(id) else { return };
        let written = connection.wire.outbox.written();
        if let Some(session_entry) = connection.session.and_then(|s| self.sessions.get_mut(s)) {
            session_entry.session.sender.end_connection(written);
        }
    }

    /// The connection's socket moved to another shard.
    pub fn moved(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.remove(id) {
            self.partial_bytes -= connection.partial_len();
        }
    }

    /// Ends a connection from this side; `reason` is for DISCONNECT, where the version has one.
    pub fn cut(&mut self, now: Instant, id: ConnectionId, reason: Option<ReasonCode>, why: DisconnectCause) {
        if self.connections.get(id).is_none_or(|c| c.is_closing()) {
            return;
        }
        if let Some(reason) = reason {
            let text = match &why {
                DisconnectCause::Violation(_, what) => Some(what.clone()),
                DisconnectCause::AckTimeout(stall) => Some(stall.to_string().into()),
                _ => None,
            };
            self.say_disconnect(id, reason, text.as_deref());
        }
        let ending = if why == DisconnectCause::Shutdown { Ending::Shutdown } else { Ending::Abnormal };
        self.note_disconnected(now, id, why);
        self.part(now, id, ending);
        self.begin_closing(now, id, Leaves::Broker);
    }

    /// The broker stops.
    pub fn shut_down(&mut self, now: Instant, id: ConnectionId) {
        self.cut(now, id, Some(ReasonCode::SERVER_SHUTTING_DOWN), DisconnectCause::Shutdown);
    }

    /// DISCONNECT came.
    pub(super) fn client_leaves(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session: SessionId,
        disconnect: &Disconnect<'_>,
    ) {
        let Some(session_entry) = self.sessions.get_mut(session) else { return };
        let ending = session_entry.session.client_disconnects(disconnect, &self.settings.session.connect);
        self.note_disconnected(now, id, DisconnectCause::Client(disconnect.reason));
        self.part(now, id, ending);
        self.begin_closing(now, id, Leaves::Client);
    }

    /// Tells a 5.0 client why it is disconnected.
    // 5.0 [MQTT-3.14.0-1]
    pub(super) fn say_disconnect(&mut self, id: ConnectionId, reason: ReasonCode, text: Option<&str>) {
        let Shard { connections, scratch, .. } = self;
        let Some(connection) = connections.get_mut(id) else { return };
        if connection.phase != Phase::Established {
            return;
        }
        connection.wire.outbox.lend(&mut scratch.pool);
        connection.wire.put_disconnect(reason, text);
    }

    /// Nothing more is read; what waits is written, then the socket is closed.
    // 5.0 [MQTT-3.14.4-1], [MQTT-3.14.4-2]
    pub(super) fn begin_closing(&mut self, now: Instant, id: ConnectionId, leaves: Leaves) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.phase =
                Phase::Closing { until: now + LINGER.min(self.settings.write_timeout), leaves };
            self.partial_bytes -= connection.partial_len();
            connection.forget_unread();
        }
        self.touch(id);
        self.register_write_idle(id);
    }

    /// Takes connection and session apart: will, waiting acknowledgements, expiry.
    pub(super) fn part(&mut self, now: Instant, id: ConnectionId, ending: Ending) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let Some(session_id) = connection.session.take() else { return };
        self.connected -= 1;
        let waits = self.own_waits(Some(session_id));
        let Some(session_entry) = self.sessions.get_mut(session_id) else { return };
        session_entry.connection = None;
        let when = session_entry.session.end_connection(ending);
        let expiry = session_entry.session.expiry_interval();
        let outlives = !expiry.is_zero();
        session_entry.ends = if outlives { now + expiry } else { now };
        match when {
            WillTime::Never => {}
            WillTime::After(delay) => session_entry.will_due = now + delay,
            // With the session: after its own subscriptions.
            WillTime::Now if !outlives || ending == Ending::TakenOverAfresh => {}
            WillTime::Now if waits => session_entry.will_due = now,
            WillTime::Now => {
                let will = session_entry.session.will.take();
                self.publish_will(now, session_id, will);
            }
        }
        self.set_presence(session_id, Presence::Offline);
        // A session that is taken over goes on, or is ended by who takes it over.
        let taken_over = matches!(ending, Ending::TakenOverAfresh | Ending::TakenOverResumed);
        if !outlives && !taken_over {
            self.end_session(now, session_id);
        } else {
            // At a stop it stays as it was: to the store it ends as in a crash, and its will waits
            // for the restart. Who takes it over records it in the same batch.
            if ending != Ending::Shutdown && !taken_over {
                self.record_session(session_id);
            }
            if waits && self.sessions.get(session_id).is_some_and(|r| r.will_due <= now) {
                self.look_later(session_id);
            }
            self.register_session(session_id);
        }
    }

    /// Ends a session: its client id is free, the store is told, its will goes out. What it leaves
    /// is handed on in portions ([`crate::shard::ended`]).
    pub(super) fn end_session(&mut self, now: Instant, id: SessionId) {
        let Some(session_entry) = self.sessions.get_mut(id) else { return };
        let will = session_entry.session.will.take();
        let stored = session_entry.session.row().is_some();
        if let Some(row) = session_entry.session.row() {
            row.write_buffer.record(records::Record::SessionEnded(row.key));
            let client = crate::shard::connect::hash(&session_entry.session.client_id);
            if let Some(stored) = &mut self.stored {
                stored.session_ended(client);
            }
        }
        let publisher = self.publisher_name(id);
        self.forget_client(id);
        // From here on nothing reaches it, its own will neither, though its filters are in the
        // index.
        if let Some(session_entry) = self.sessions.retire(id) {
            self.shared.totals.sessions.give_back(1);
            let SessionEntry { session, ends, .. } = &*session_entry;
            if *ends <= now && session.expiry > 0 {
                let unfinished = session.sender.in_flight() + session.sender.queued();
                self.note(ClientEvent {
                    connection: None,
                    client_id: Some(session.client_id.clone()),
                    version: Some(session.version),
                    occurrence: Occurrence::SessionExpired { unfinished },
                    detail: None,
                });
            }
            self.publish_will_of(now, id, &publisher, stored, will);
            self.hand_on(now, EndedSession::new(id, *session_entry));
        }
        self.scratch.publisher = publisher;
    }

    /// Takes the session out of the table of clients.
    fn forget_client(&mut self, id: SessionId) {
        let Shard { sessions, clients, .. } = self;
        if let Some(session_entry) = sessions.get(id) {
            clients.remove(&session_entry.session.client_id, id);
        }
    }

    /// Takes one filter of a session out of the index, and tells the peers where they must know.
    pub(super) fn leave_filter(&mut self, id: SessionId, full: &str) -> bool {
        let Ok(filter) = TopicFilter::parse(full, usize::MAX) else { return false };
        match filter.share_name {
            Some(group) => {
                let address = MemberAddress { shard: self.here, session: SessionSlot(id.slot) };
                self.leave_group(group, filter.filter, address)
            }
            None => self.leave_index(filter.filter, id),
        }
    }

    /// Publishes a will, if there is one.
    pub(super) fn publish_will(&mut self, now: Instant, id: SessionId, will: Option<Arc<Will>>) {
        if will.is_some() {
            let (publisher, stored) = (self.publisher_name(id), self.is_stored(id));
            self.publish_will_of(now, id, &publisher, stored, will);
            self.scratch.publisher = publisher;
        }
    }

    /// The same of a session that may be gone; `stored`: it was in the store.
    fn publish_will_of(
        &mut self,
        now: Instant,
        id: SessionId,
        publisher: &str,
        stored: bool,
        will: Option<Arc<Will>>,
    ) {
        let Some(will) = will else { return };
        let frees = if will.retain && will.payload.is_empty() { self.frees(&will.topic) } else { 0 };
        let change = Change::Publish { qos: will.qos, bytes: will.size(), frees };
        let refused = self.topic_refusal(&will.topic).or(self.admits(change).err().map(Want::cause));
        if let Some(cause) = refused {
            self.counters.drops.count(cause);
            return;
        }
        let expires = crate::shard::publish::expires(now, will.message_expiry);
        let parts = Parts {
            qos: will.qos,
            retain: will.retain,
            expires,
            topic: &will.topic,
            forwarded: &will.forwarded,
            payload: &will.payload,
        };
        let mut publication = Publication::new(parts, Some(SessionSlot(id.slot)), self.here);
        publication.publisher_name = publisher;
        publication.atomic = stored;
        if let (true, Some(write_buffer)) = (publication.atomic, self.write_buffer()) {
            // That it goes out is recorded with what it leads to, in this batch, if not yet:
            // nothing of it leaves before.
            write_buffer.begin();
        }
        if will.retain {
            self.retain(now, &mut publication);
        }
        self.route_own(now, &mut publication, Some(id));
    }
}
