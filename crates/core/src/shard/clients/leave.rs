//! Ends connections and sessions, and publishes their wills.

use crate::mqtt::message::Parts;
use crate::mqtt::owner::Owner;
use crate::mqtt::packet::{Disconnect, ReasonCode};
use crate::mqtt::publisher_name::PublisherName;
use crate::mqtt::retained_message::RetainedSource;
use crate::mqtt::will::Will;
use crate::persistence::records;
use crate::routing::shared_group::Presence;
use crate::routing::subscription_tree::SessionSlot;
use crate::session::Violation;
use crate::session::drops::DropReason;
use crate::session::publish_refusal;
use crate::session::will::{Ending, WillTime};
use crate::shard::Shard;
use crate::shard::admission::{Change, Want};
use crate::shard::clients::client_table::hash;
use crate::shard::clients::connection::Leaves;
use crate::shard::clients::ended_session::EndedSession;
use crate::shard::clients::rates;
use crate::shard::clients::session_entry::SessionEntry;
use crate::shard::clients::slots::{ConnectionId, SessionId};
use crate::shard::core::Core;
use crate::shard::delivery::publication::Publication;
use crate::shard::delivery::publication::expires;
use crate::shard::observe::client_counts::SessionEnd;
use crate::shard::observe::client_events::{ClientEvent, DisconnectCause, Occurrence, Revocation};
use crate::shard::observe::notes::request_of;
use crate::shard::observe::refusals::RefusedKind;
use crate::time::Instant;
use std::sync::Arc;

impl Shard {
    /// Ends the connection of a client that broke a rule. A 5.0 client gets a DISCONNECT with the
    /// reason.
    pub(crate) fn fail(&mut self, now: Instant, id: ConnectionId, violation: Violation) {
        let why = DisconnectCause::Violation(violation.reason, violation.what.into());
        self.disconnect(now, id, Some(violation.reason), why);
    }

    /// Records how many bytes the socket took. A PUBLISH beyond these bytes counts as never sent,
    /// so its first resend has no DUP. Called only if the socket closed before the broker or a
    /// DISCONNECT ended the connection. If the broker ends the connection, the rest of the outbox
    /// is still written.
    fn note_unwritten(&mut self, id: ConnectionId) {
        if let Some(client) = self.core.client(id) {
            let written = client.connection.wire.outbox.written();
            if let Some(window) = client.entry.session.sender.window.get_mut() {
                window.end_connection(written);
            }
        }
    }

    /// Detaches the session of a connection whose socket closed, unless the session is detached
    /// already. `network` says why the socket closed. The text is the cause in events and in the
    /// log.
    pub(crate) fn socket_closed(&mut self, now: Instant, id: ConnectionId, network: &str) {
        if self.core.connections.get(id).is_some_and(|c| c.session.is_some()) {
            self.core.note_disconnected(now, id, DisconnectCause::Network(network.into()));
            self.note_unwritten(id);
            self.detach_session(now, id, Ending::Abnormal);
        }
    }

    /// Ends a connection from the broker's side. A 5.0 client gets a DISCONNECT if `reason` is
    /// given. `why` is the cause for events and the log. Does nothing if the connection is closing
    /// already. Returns true if a client was connected by it.
    pub fn disconnect(
        &mut self,
        now: Instant,
        id: ConnectionId,
        reason: Option<ReasonCode>,
        why: DisconnectCause,
    ) -> bool {
        let Some(connection) = self.core.connections.get(id).filter(|c| !c.is_closing()) else {
            return false;
        };
        let is_client = connection.session.is_some();
        if let Some(reason) = reason {
            let text = match &why {
                DisconnectCause::Violation(_, what)
                | DisconnectCause::Revoked(Revocation::Certificate(what)) => Some(what.clone()),
                DisconnectCause::MaximumConnectTime(what) => Some((*what).into()),
                DisconnectCause::AckTimeout(stall) => Some(stall.to_string().into()),
                _ => None,
            };
            self.core.write_disconnect(id, reason, text.as_deref());
        }
        if why.stall().is_some() {
            self.bans.forgive_connect(id, &self.core);
        }
        let ending = if why == DisconnectCause::Shutdown { Ending::Shutdown } else { Ending::Abnormal };
        self.core.note_disconnected(now, id, why);
        self.detach_session(now, id, ending);
        self.core.begin_closing(now, id, Leaves::Broker);
        is_client
    }

    /// Handles a DISCONNECT, and closes the connection. The reason 0x00 discards the will. With any
    /// other reason, the will is published or delayed.
    pub(crate) fn client_leaves(&mut self, now: Instant, id: ConnectionId, disconnect: &Disconnect<'_>) {
        // The drops of the packets before this one may have ended the connection.
        let Some(client) = self.core.client(id) else { return };
        let connect = &client.settings.session.connect;
        let ending = client.entry.session.client_disconnects(disconnect, connect);
        self.core.note_disconnected(now, id, DisconnectCause::Client(disconnect.reason));
        self.detach_session(now, id, ending);
        self.core.begin_closing(now, id, Leaves::Client);
    }

    /// Detaches the session from a connection that ends. Publishes, delays or discards the will.
    /// Ends the session if its Session Expiry Interval is 0 and no new connection takes the session
    /// over. Otherwise registers the deadline of session expiry. `ending` says how the connection
    /// ended.
    pub(crate) fn detach_session(&mut self, now: Instant, id: ConnectionId, ending: Ending) {
        rates::end(now, id, &self.core);
        // A connection has no session before CONNECT, and a client that closes has left already.
        let Some(session_id) = self.core.connections.detach_session(id) else { return };
        let waits = self.fans.own_waits(Some(session_id), &self.core);
        // A session is detached from its connection before it ends, so it is there.
        let Some(session_entry) = self.core.sessions.get_mut(session_id) else { return };
        session_entry.leave_connection();
        let when = session_entry.session.end_connection(ending);
        let expiry = session_entry.session.expiry_interval();
        let outlives = !expiry.is_zero();
        session_entry.ends = if outlives { now + expiry } else { now };
        match when {
            WillTime::Never => {}
            WillTime::After(delay) => session_entry.set_will_due(now + delay),
            // The session ends now. `end_session` publishes the will, after it has removed the
            // session from delivery.
            WillTime::Now if !outlives || ending == Ending::TakenOverAfresh => {}
            WillTime::Now if waits => session_entry.set_will_due(now),
            WillTime::Now => {
                let will = session_entry.session.will.take();
                self.publish_will(now, session_id, will);
            }
        }
        self.routes.set_presence(session_id, Presence::Offline, &mut self.core);
        // A take-over resumes the session, or ends it itself. In both cases the code that handles
        // CONNECT decides, not this function.
        let taken_over = matches!(ending, Ending::TakenOverAfresh | Ending::TakenOverResumed);
        if !outlives && !taken_over {
            self.end_session(now, session_id, SessionEnd::Disconnected);
        } else {
            // A stop does not change the stored session. After the restart it looks as if the
            // broker had crashed, and its will is published then. After a take-over, CONNECT
            // records the session in the same batch.
            if ending != Ending::Shutdown && !taken_over {
                self.core.record_session(session_id);
            }
            if waits && self.core.sessions.get(session_id).is_some_and(|r| r.will_due() <= now) {
                self.work.session_due(session_id);
            }
            self.core.sessions.register(session_id, &mut self.core.effects);
        }
    }

    /// Ends a session: frees its client identifier, records its end, and publishes its will. Its
    /// remains are handed on in portions (see [`crate::shard::clients::ended_session`]). `cause` is
    /// counted.
    pub(crate) fn end_session(&mut self, now: Instant, id: SessionId, cause: SessionEnd) {
        // The session has ended already.
        let Some(session_entry) = self.core.sessions.get_mut(id) else { return };
        let will = session_entry.session.will.take();
        let will = self.admitted_will(id, will);
        let (source, owner) = self.source_of_will(id, will.as_deref());
        let stored = self.core.sessions.is_stored(id);
        if let Some(session) = self.core.sessions.get(id).map(|entry| &entry.session)
            && let Some(row) = session.row()
        {
            row.write_buffer.record(records::Record::SessionEnded(row.key));
            self.core.durability.session_ended(hash(&session.client_id));
        }
        let publisher = self.core.publisher_name(id);
        // From here on no message reaches the session, not even its own will. Its filters leave the
        // subscription tree later.
        if let Some(session_entry) = self.core.sessions.retire(id) {
            self.core.shared.totals.sessions.give_back(1);
            self.core.figures.counts.session_ended(cause);
            let SessionEntry { session, ends, .. } = &*session_entry;
            if *ends <= now && session.expiry > 0 {
                let unfinished = session.sender.window.len() + session.sender.queue.len();
                let expired = Occurrence::SessionExpired { unfinished };
                let event = ClientEvent::new(Some(&session.client_id), expired);
                self.core.note(ClientEvent { version: Some(session.version), ..event });
            }
            let of = WillOf { session: id, publisher, stored, source, owner };
            if let Some(will) = will
                && let Some(cause) = self.publish_will_of(now, of, &will)
            {
                let request = request_of(&session_entry, RefusedKind::Will, &will.topic, cause.name());
                self.core.figures.refusals.note(&request, || (publish_refusal::bound(cause).to_owned(), 0));
            }
            EndedSession::new(id, *session_entry).hand_on(now, self);
        }
    }

    /// Returns the source and the owner of a will that will be retained.
    fn source_of_will(
        &mut self,
        id: SessionId,
        will: Option<&Will>,
    ) -> (Option<Arc<RetainedSource>>, Option<Arc<Owner>>) {
        match will {
            Some(will) if will.retain => (self.core.retained_source(id), self.core.owner_of(id)),
            _ => (None, None),
        }
    }

    /// Returns the will if the rules still allow it. The rules may have changed since CONNECT. A
    /// will against the rules is dropped and counted.
    fn admitted_will(&mut self, id: SessionId, will: Option<Arc<Will>>) -> Option<Arc<Will>> {
        let Core { sessions, access, turn, .. } = &mut self.core;
        let will = will?;
        let is_denied = access.are_on()
            && sessions.get_mut(id).is_some_and(|entry| !entry.may_write_once(access, &will.topic, turn));
        if is_denied {
            self.core.counters.drops.count(DropReason::NotAuthorized);
            self.core.counters.refused_wills.add(DropReason::NotAuthorized, 1);
            self.core.note_refused_message(id, RefusedKind::Will, &will.topic, DropReason::NotAuthorized);
            return None;
        }
        Some(will)
    }

    /// Publishes a will, if there is one.
    pub(crate) fn publish_will(&mut self, now: Instant, id: SessionId, will: Option<Arc<Will>>) {
        // The client had no will, or the will was not admitted.
        let Some(will) = self.admitted_will(id, will) else { return };
        let (publisher, stored) = (self.core.publisher_name(id), self.core.sessions.is_stored(id));
        let (source, owner) = self.source_of_will(id, Some(&will));
        let of = WillOf { session: id, publisher, stored, source, owner };
        if let Some(cause) = self.publish_will_of(now, of, &will) {
            self.core.note_refused_message(id, RefusedKind::Will, &will.topic, cause);
        }
    }

    /// Publishes the will of a session that may have ended. A will without room, or whose topic is
    /// refused, is dropped and counted. Returns why the will is refused, or is not retained.
    fn publish_will_of(&mut self, now: Instant, of: WillOf, will: &Will) -> Option<DropReason> {
        let WillOf { session: id, publisher, stored, source, owner } = of;
        let frees =
            if will.retain && will.payload.is_empty() { self.core.shared.frees(&will.topic) } else { 0 };
        let change = Change::Publish { qos: will.qos, bytes: will.size(), frees };
        let refused =
            self.core.settings.topic_refusal(&will.topic).or(self.core.admits(change).err().map(Want::cause));
        if let Some(cause) = refused {
            self.core.counters.drops.count(cause);
            self.core.counters.refused_wills.add(cause, 1);
            return refused;
        }
        let expires = expires(now, will.message_expiry);
        let parts = Parts {
            qos: will.qos,
            retain: will.retain,
            expires,
            topic: &will.topic,
            forwarded: &will.forwarded,
            payload: &will.payload,
        };
        let mut publication = Publication::new(parts, Some(SessionSlot(id.slot)), self.core.here);
        publication.publisher_name = publisher;
        publication.atomic = stored;
        if publication.atomic {
            // The end of the will is recorded in this batch, with the deliveries of the will. No
            // delivery leaves before the batch is committed.
            self.core.durability.begin();
        }
        let mut unretained = None;
        if will.retain {
            unretained = self.routes.retain(now, &mut publication, source, owner, &mut self.core).refused;
            unretained.inspect(|cause| self.core.counters.refused_wills.add(*cause, 1));
        }
        self.fans.route_own(now, &mut publication, Some(id), &mut self.routes, &mut self.core);
        unretained
    }
}

/// The session of a will. The session may have ended.
struct WillOf {
    session: SessionId,
    /// The name of the client, for dead letters.
    publisher: Option<PublisherName>,
    /// True if the session was stored. Then the end of the will is committed together with its
    /// deliveries.
    stored: bool,
    /// The client as the source of a retained message.
    source: Option<Arc<RetainedSource>>,
    /// The client for which a retained message counts.
    owner: Option<Arc<Owner>>,
}
