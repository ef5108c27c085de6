//! Notes events of clients, and refused requests. An event is noted while connection and session
//! still belong together.

use crate::access::denial::DeniedAccess;
use crate::access::identity::shown_name;
use crate::events::client_events::{
    ClientEvent, DisconnectCause, EventDetail, ExhaustedAction, Occurrence, RedeliveryTime,
};
use crate::events::refusals::{RefusedKind, RefusedRequest};
use crate::mqtt::packet::ReasonCode;
use crate::session::drops::DropReason;
use crate::session::outbound::stall::Stall;
use crate::session::publish_refusal;
use crate::shard::clients::session_entry::SessionEntry;
use crate::shard::core::Core;
use crate::slots::{ConnectionId, SessionId};
use crate::time::Instant;
use std::time::Duration;

impl Core {
    /// Notes an event.
    pub(crate) fn note(&mut self, event: ClientEvent) {
        self.figures.counts.count(&event.occurrence);
        self.effects.events.push(event);
    }

    /// Notes a refused first packet. `client_id` is `None` if the packet is no valid CONNECT.
    pub(crate) fn note_refused(
        &mut self,
        id: ConnectionId,
        client_id: Option<&str>,
        user_name: Option<&str>,
        reason: ReasonCode,
        what: &str,
    ) {
        let (what, user_name) = (what.into(), user_name.map(Into::into));
        let refused = Occurrence::Refused { reason, what, user_name };
        self.note(ClientEvent { connection: Some(id), ..ClientEvent::new(client_id, refused) });
    }

    /// Notes a refused PUBLISH or Will Message of a session. `topic` is the Topic Name.
    #[cold]
    pub(crate) fn note_refused_message(
        &mut self,
        id: SessionId,
        kind: RefusedKind,
        topic: &str,
        cause: DropReason,
    ) {
        let Core { sessions, access, figures, turn, .. } = self;
        let Some(entry) = sessions.get(id) else { return };
        figures.refusals.note(&request_of(entry, kind, topic, cause.name()), || match cause {
            DropReason::NotAuthorized => turn.explain(entry.why_denied(access, DeniedAccess::Publish(topic))),
            _ => publish_refusal::bound(cause).to_owned(),
        });
    }

    /// Notes an event of a session. `packet` is the packet that the event is about, for the event
    /// topics.
    pub(crate) fn note_of(&mut self, id: SessionId, occurrence: Occurrence, packet: Option<Stall>) {
        let diagnosed = packet.filter(|_| occurrence.is_diagnosed());
        if let Some(stall) = diagnosed {
            self.figures.note_stall(id, stall.number);
        }
        let Some(entry) = self.sessions.get(id) else { return };
        let late = diagnosed.map(|stall| stall.late);
        let detail = self
            .settings
            .event_topics
            .then(|| Box::new(EventDetail::new(&entry.session.sender, packet, late)));
        let (connection, version) = (entry.connection, Some(entry.session.version));
        let event = ClientEvent::new(Some(&entry.session.client_id), occurrence);
        self.note(ClientEvent { connection, version, detail, ..event });
    }

    /// Notes the packets that were sent again because the client returned. Only the packets count
    /// that were sent at once, as far as its window allowed.
    pub(crate) fn note_return(&mut self, now: Instant, id: SessionId, publishes: u64, releases: u64) {
        let Some(entry) = self.sessions.get(id).filter(|_| publishes + releases > 0) else { return };
        let oldest = entry.session.sender.oldest_unacknowledged(now);
        let when = RedeliveryTime::AtReturn;
        self.note_of(id, Occurrence::Redelivered { publishes, releases, when }, oldest);
    }

    /// Notes the end of a connection. Call it before the session is detached.
    pub(crate) fn note_disconnected(&mut self, now: Instant, id: ConnectionId, cause: DisconnectCause) {
        let Some(connection) = self.connections.get(id) else { return };
        if let (Some(session), Some(stall)) = (connection.session, cause.stall()) {
            self.figures.note_stall(session, stall.number);
        }
        let entry = connection.session.and_then(|session| self.sessions.get(session));
        let is_heard = self.settings.last_disconnects > 0 || self.settings.event_topics;
        let detail = entry.filter(|_| is_heard && cause.needs_explanation()).map(|entry| {
            let oldest = entry.session.sender.oldest_unacknowledged(now);
            let late = self.lateness(now, id, &cause);
            let mut detail = EventDetail::new(&entry.session.sender, cause.stall().or(oldest), late);
            detail.oldest_unacknowledged = oldest;
            detail.silent = Some(now.since(connection.keep_alive.last_heard()));
            Box::new(detail)
        });
        let client_id = entry.map(|entry| &*entry.session.client_id);
        let is_exhausted = matches!(cause, DisconnectCause::Exhausted(_));
        let (connection, version) = (Some(id), Some(connection.version()));
        let event = ClientEvent::new(client_id, Occurrence::Disconnected(cause));
        let event = ClientEvent { connection, version, detail, ..event };
        if is_exhausted {
            let occurrence = Occurrence::Exhausted(ExhaustedAction::Disconnect);
            self.note(ClientEvent { occurrence, ..event.clone() });
        }
        self.note(event);
    }

    /// Returns the time from the deadline of a connection to its end, or `None` without a deadline.
    fn lateness(&self, now: Instant, id: ConnectionId, cause: &DisconnectCause) -> Option<Duration> {
        match cause {
            DisconnectCause::KeepAlive { .. } => Some(now.since(self.connections.read_deadline(id))),
            DisconnectCause::WriteTimeout { .. } => Some(now.since(self.connections.write_deadline(id))),
            _ => cause.stall().map(|stall| stall.late),
        }
    }
}

/// Returns the request of a session that is refused.
pub(in crate::shard) fn request_of<'a>(
    entry: &'a SessionEntry,
    kind: RefusedKind,
    topic: &'a str,
    cause: &'static str,
) -> RefusedRequest<'a> {
    let user = entry.user().map(|user| shown_name(user.user()));
    RefusedRequest { client_id: &entry.session.client_id, user, kind, topic, cause }
}
