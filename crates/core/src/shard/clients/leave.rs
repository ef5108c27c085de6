//! Ends connections and sessions. `detach_session` carries out what an ending means for the will
//! ([`crate::session::will`] decides) and for the expiry of the session, whose interval CONNECT
//! ([`crate::session::connect`]) or DISCONNECT ([`crate::session::disconnect`]) has set.

use crate::events::client_counts::SessionEnd;
use crate::events::client_events::{ClientEvent, DisconnectCause, Occurrence, Revocation};
use crate::events::refusals::RefusedKind;
use crate::mqtt::packet::ReasonCode;
use crate::persistence::records;
use crate::routing::shared_group::Presence;
use crate::session::Violation;
use crate::session::publish_refusal;
use crate::session::will::{Ending, WillTime};
use crate::shard::Shard;
use crate::shard::clients::connection::Leaves;
use crate::shard::clients::ended_session::EndedSession;
use crate::shard::clients::rates;
use crate::shard::clients::session_entry::SessionEntry;
use crate::shard::clients::will_publication::DueWill;
use crate::shard::observe::notes::request_of;
use crate::slots::client_table::hash;
use crate::slots::{ConnectionId, SessionId};
use crate::time::Instant;

impl Shard {
    /// Ends the connection of a client that broke a rule. A 5.0 client gets a DISCONNECT with the
    /// reason.
    pub(crate) fn fail(&mut self, now: Instant, id: ConnectionId, violation: Violation) {
        let why = DisconnectCause::Violation(violation.reason, violation.what.into());
        self.disconnect(now, id, Some(violation.reason), why);
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
        let ending = match why {
            DisconnectCause::Shutdown if self.core.durability.is_stopping() => Ending::Shutdown,
            DisconnectCause::Shutdown => Ending::ShutOut,
            _ => Ending::Abnormal,
        };
        self.core.note_disconnected(now, id, why);
        self.detach_session(now, id, ending);
        self.core.begin_closing(now, id, Leaves::Broker);
        is_client
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
                DueWill::publish_for(now, session_id, will, self);
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
            if !matches!(ending, Ending::Shutdown | Ending::ShutOut) && !taken_over {
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
        let will = DueWill::new(id, will, &mut self.core);
        if let Some(session) = self.core.sessions.get(id).map(|entry| &entry.session)
            && let Some(row) = session.row()
        {
            row.write_buffer.record(records::Record::SessionEnded(row.key));
            self.core.durability.session_ended(hash(&session.client_id));
        }
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
            if let Some(mut due) = will
                && let Some(cause) = due.publish(now, self)
            {
                let request = request_of(&session_entry, RefusedKind::Will, &due.will.topic, cause.name());
                self.core.figures.refusals.note(&request, || publish_refusal::bound(cause).to_owned());
            }
            EndedSession::new(id, *session_entry).hand_on(now, self);
        }
    }
}

/// Removes a connection whose socket is gone. Detaches its session, unless the session is
/// detached already. `network` says why the socket closed. The text is the cause in events and
/// in the log.
pub(crate) fn socket_closed(now: Instant, id: ConnectionId, network: &str, shard: &mut Shard) {
    if shard.core.connections.get(id).is_some_and(|c| c.session.is_some()) {
        shard.core.note_disconnected(now, id, DisconnectCause::Network(network.into()));
        // A PUBLISH beyond the bytes that the socket took counts as never sent, so its first
        // resend has no DUP. If the broker, a DISCONNECT or another connection of the client has
        // ended the connection, the rest of the outbox was still written, and the connection has
        // no session here.
        if let Some(client) = shard.core.client(id)
            && let Some(window) = client.entry.session.sender.window.get_mut()
        {
            window.end_connection(client.connection.wire.outbox.written());
        }
        shard.detach_session(now, id, Ending::Abnormal);
    }
    shard.core.connections.remove(id);
}
