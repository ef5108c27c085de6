//! Handles expired deadlines of connections. Those of sessions (their end, a delayed will) are
//! handled in `session_deadlines`.
//!
//! The connection or its session has the true deadline. An expired deadline only says that it is
//! time to compare, so a stale one does no harm. A deadline that has moved is registered again
//! then.

use crate::events::client_events::{DisconnectCause, ExhaustedAction, Occurrence, RedeliveryTime};
use crate::login::authentication::AuthDecision;
use crate::mqtt::packet::ReasonCode;
use crate::session::connect::ConnectRefusal;
use crate::session::outbound::overdue::StalledPackets;
use crate::session::outbound::retransmission::Retransmission;
use crate::session::outbound::stall::SocketView;
use crate::shard::Shard;
use crate::shard::clients::auth_exchange;
use crate::shard::clients::client::Client;
use crate::shard::clients::connection::Phase;
use crate::shard::clients::pause::Pause;
use crate::shard::core::Core;
use crate::slots::{ConnectionId, SessionId};
use crate::time::Instant;

/// The action of a connection's actor when a deadline has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadlineAction {
    /// Unacknowledged packets are due. The actor reads the bytes that came, because
    /// acknowledgements may be among them. The actor asks the socket which bytes the peer's kernel
    /// has, then calls [`Input::AcknowledgementDue`](crate::shard::Input).
    Retransmit(ConnectionId),
    /// The Keep Alive or the time for a CONNECT is over, or the client took no bytes for too long.
    /// A client that does not acknowledge comes by [`Self::Retransmit`]. The actor reads the bytes
    /// that came while
    /// [`is_silent`](crate::shard::clients::connection_view::ConnectionView::is_silent), then calls
    /// [`IdleConnection::check`].
    Disconnect(ConnectionId),
}

/// Unacknowledged packets of a connection that are due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OverdueAcknowledgement {
    pub now: Instant,
    pub connection: ConnectionId,
    /// The socket's view of the bytes that were written to it.
    pub view: SocketView,
}

impl OverdueAcknowledgement {
    /// Sends packets again to a 3.x client, if its host has received them. Reports or disconnects a
    /// 5.0 client. Does nothing if the connection is gone. Decides nothing in this tick if the
    /// acknowledgements may be among bytes of the client that lie on this side.
    pub(crate) fn handle(&self, shard: &mut Shard) {
        let OverdueAcknowledgement { now, connection, view } = *self;
        // The connection has ended since the deadline expired.
        let Some(mut client) = shard.core.client(connection) else { return };
        let session = client.session_id;
        if view.arrived > 0 || client.connection.has_unsearched() {
            client.register_retransmit(now);
        } else if client.connection.version().is_v5() {
            let found = overdue(now, view, &mut client);
            self.report(session, &found, shard);
        } else {
            let done = retransmit(now, view, &mut client);
            self.after_retransmission(session, &done, shard);
        }
    }

    /// Reports the overdue packets of a 5.0 client, or disconnects it. Nothing is sent again.
    fn report(&self, session: SessionId, found: &StalledPackets, shard: &mut Shard) {
        let OverdueAcknowledgement { now, connection: id, .. } = *self;
        if let Some(stall) = found.disconnect {
            shard.core.report_drops(session);
            let (reason, cause) = (ReasonCode::QUOTA_EXCEEDED, DisconnectCause::AckTimeout(stall));
            shard.disconnect(now, id, Some(reason), cause);
            return;
        }
        for stall in [found.application, found.network].into_iter().flatten() {
            shard.core.counters.stalled.count(stall.cause);
            shard.core.note_of(session, Occurrence::Stalled(stall), Some(stall));
        }
        // Nothing was sent and no Packet Identifier became free. So the other steps of
        // `after_session_change` have nothing to do.
        shard.core.report_drops(session);
    }

    /// Notes the resends to a 3.x client, or disconnects it.
    fn after_retransmission(&self, session: SessionId, done: &Retransmission, shard: &mut Shard) {
        note_retransmission(session, done, &mut shard.core);
        match done.exhausted {
            Some(stall) => {
                // The connection ends, so nothing more is sent on it. The next page is read when
                // the client returns.
                shard.core.report_drops(session);
                let cause = DisconnectCause::Exhausted(stall);
                shard.disconnect(self.now, self.connection, None, cause);
            }
            None => shard.after_session_change(self.now, session),
        }
    }
}

/// Finds and counts the overdue packets of a 5.0 client. Registers the next deadline.
fn overdue(now: Instant, view: SocketView, client: &mut Client<'_>) -> StalledPackets {
    let Client { connection, entry, counters, .. } = &mut *client;
    let session = &mut entry.session;
    let outlives = session.outlives();
    let found = session.sender.overdue(now, view, outlives, &connection.wire, &mut counters.drops);
    if let Some(stall) = found.disconnect {
        session.record_disconnect_for(stall.number);
        counters.stalled.count(stall.cause);
        counters.disconnected += 1;
    } else {
        client.register_retransmit(now);
    }
    found
}

/// Sends packets to a 3.x client again. Registers the next deadline.
fn retransmit(now: Instant, view: SocketView, client: &mut Client<'_>) -> Retransmission {
    let before = client.begin_write();
    let Client { connection, entry, counters, settings, .. } = &mut *client;
    let outlives = entry.session.outlives();
    let (wire, policy) = (&mut connection.wire, &settings.session.send);
    let done = entry.session.sender.retransmit(now, view, outlives, wire, policy, counters);
    if let Some(stall) = done.exhausted.or(done.resent).or(done.network) {
        counters.stalled.count(stall.cause);
    }
    counters.disconnected += u64::from(done.exhausted.is_some());
    client.end_write(before);
    if done.exhausted.is_none() {
        if done.drop_reports > 0 {
            client.pump(now);
        }
        client.register_retransmit(now);
    }
    done
}

/// The refusal of a client that does not answer a challenge.
const EXCHANGE_TIMEOUT: ConnectRefusal = ConnectRefusal::new(
    ReasonCode::NOT_AUTHORIZED,
    "the exchange of AUTH packets was not complete within network.connect_timeout",
);

/// The outcome for a connection that was silent or took no bytes until its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleConnection {
    /// Bytes came in the meantime, or the deadline had moved.
    NotYet,
    /// The connection is flushed and then closed.
    Disconnected,
    /// The client is paused for its rate. More of its acknowledgements may be handled now. If its
    /// socket is closed, the connection can end.
    Paused,
    /// The socket takes no bytes, or not in time what a client that has closed its side is owed. It
    /// is closed at once.
    Abandon,
}

impl IdleConnection {
    /// Disconnects a connection whose read or write deadline has passed. Before the call, the
    /// caller has read the bytes that came from a silent client.
    pub fn check(now: Instant, id: ConnectionId, shard: &mut Shard) -> IdleConnection {
        let connections = &shard.core.connections;
        let Some(connection) = connections.get(id) else { return IdleConnection::Abandon };
        if connections.write_deadline(id) <= now {
            // A client that has closed its side ended the connection itself.
            if connection.half_closed().is_none() {
                let waiting_bytes = connection.wire.outbox.len();
                shard.disconnect(now, id, None, DisconnectCause::WriteTimeout { waiting_bytes });
            }
            return IdleConnection::Abandon;
        }
        if connections.read_deadline(id) <= now {
            if connection.rate_pause_ends() <= now {
                let Core { connections, effects, .. } = &mut shard.core;
                connections.end_rate_pause(now, id, effects);
                return IdleConnection::NotYet;
            }
            if connection.is_look_due(now) {
                let Core { connections, effects, .. } = &mut shard.core;
                connections.looked(now, id, effects);
                return IdleConnection::Paused;
            }
            if connection.phase() == Phase::Authenticating {
                let silent =
                    AuthDecision::Unavailable("the authenticator did not decide within auth.timeout");
                shard.core.connections.decide(id, silent);
                shard.core.unpause(now, id, Pause::Authentication);
                return IdleConnection::NotYet;
            }
            if connection.has_expired(now) {
                let reason = ReasonCode::MAXIMUM_CONNECT_TIME;
                let cause = DisconnectCause::MaximumConnectTime("the client's credentials have expired");
                shard.disconnect(now, id, Some(reason), cause);
                return IdleConnection::Disconnected;
            }
            if connection.phase() == Phase::Exchanging {
                auth_exchange::refuse_exchange(now, id, &EXCHANGE_TIMEOUT, shard);
                return IdleConnection::Disconnected;
            }
            let silent = now.since(connection.keep_alive.last_heard());
            let (reason, cause) = if connection.phase() == Phase::AwaitingConnect {
                (None, DisconnectCause::NoConnect)
            } else if connections.authentication_deadline(id) <= now {
                let reason = ReasonCode::NOT_AUTHORIZED;
                (Some(reason), DisconnectCause::Violation(reason, EXCHANGE_TIMEOUT.what.into()))
            } else if connections.keep_alive_deadline(id) > now {
                let partial_bytes = connection.partial_len();
                (Some(ReasonCode::UNSPECIFIED_ERROR), DisconnectCause::PacketTimeout { partial_bytes })
            } else {
                (Some(ReasonCode::KEEP_ALIVE_TIMEOUT), DisconnectCause::KeepAlive { silent })
            };
            shard.disconnect(now, id, reason, cause);
            return IdleConnection::Disconnected;
        }
        let core = &mut shard.core;
        core.connections.register_read_idle(id, &mut core.effects);
        core.connections.register_write_idle(id, &mut core.effects);
        IdleConnection::NotYet
    }
}

/// Notes the events of one retransmission.
fn note_retransmission(id: SessionId, done: &Retransmission, core: &mut Core) {
    let Retransmission { publishes, releases, resent, kept, network, .. } = *done;
    if publishes + releases > 0 {
        let (publishes, releases) = (publishes.into(), releases.into());
        let when = RedeliveryTime::Live;
        core.note_of(id, Occurrence::Redelivered { publishes, releases, when }, resent);
    } else if let Some(stall) = network {
        core.note_of(id, Occurrence::Stalled(stall), network);
    }
    if kept.is_some() {
        core.note_of(id, Occurrence::Exhausted(ExhaustedAction::Keep), kept);
    }
}
