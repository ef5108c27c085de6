//! One client: a session and its connection, looked up once for an input.
//!
//! Packets are written in three ways: to a [`Client`], with [`Core::write`] to a connection that
//! may have no session, and by a delivery ([`Core::deliver`]). Each begins with
//! [`Connection::begin_write`] and ends with [`Connection::end_write`].

use crate::mqtt::outcome::Outcome;
use crate::session::Violation;
use crate::session::counters::Counters;
use crate::session::inbound::AckToken;
use crate::session::outbox::Pool;
use crate::session::wire::Wire;
use crate::shard::clients::connection::Connection;
use crate::shard::clients::pause::Pause;
use crate::shard::clients::session_entry::SessionEntry;
use crate::shard::core::Core;
use crate::shard::settings::ShardSettings;
use crate::shard::turn::Turn;
use crate::shard::turn::effects::Effects;
use crate::slots::{ConnectionId, SessionId};
use crate::time::Instant;

/// A session and its connection, with the parts of the shard that a packet for them changes.
pub(crate) struct Client<'s> {
    pub id: ConnectionId,
    pub session_id: SessionId,
    pub connection: &'s mut Connection,
    pub entry: &'s mut SessionEntry,
    pub counters: &'s mut Counters,
    pub settings: &'s ShardSettings,
    pub turn: &'s mut Turn,
    pool: &'s mut Pool,
    effects: &'s mut Effects,
}

impl Core {
    /// Returns the client of a connection. Returns `None` if the connection is gone, or if it has
    /// no session because its CONNECT is not accepted yet or because it closes.
    #[inline]
    pub(crate) fn client(&mut self, id: ConnectionId) -> Option<Client<'_>> {
        let Core { connections, sessions, counters, settings, scratch, effects, turn, .. } = self;
        let connection = connections.get_mut(id)?;
        let session_id = connection.session?;
        let entry = sessions.get_mut(session_id);
        debug_assert!(entry.is_some(), "a session is detached from its connection before it ends");
        let pool = &mut scratch.pool;
        Some(Client { id, session_id, connection, entry: entry?, counters, settings, turn, pool, effects })
    }

    /// Returns the client of a session. Returns `None` if the session has ended or its client is
    /// away.
    pub(crate) fn client_of(&mut self, session: SessionId) -> Option<Client<'_>> {
        let connection = self.sessions.get(session)?.connection?;
        self.client(connection)
    }

    /// Writes to a connection, which may have no session. Returns `None` if it is gone.
    pub(crate) fn write<T>(
        &mut self,
        id: ConnectionId,
        put: impl FnOnce(&mut Wire, &mut Counters) -> T,
    ) -> Option<T> {
        let connection = self.connections.get_mut(id)?;
        let before = connection.begin_write(&mut self.scratch.pool);
        let result = put(&mut connection.wire, &mut self.counters);
        connection.end_write(before, id, &mut self.effects);
        Some(result)
    }

    /// Gives the outcome of one gate to a PUBLISH that is not acknowledged, and sends the
    /// acknowledgements that are due then. Reads the client again if it may send another PUBLISH.
    ///
    /// # Errors
    /// The connection that must end, and why: as
    /// [`Session::gate_answered`](crate::session::Session::gate_answered).
    pub(crate) fn answer(
        &mut self,
        now: Instant,
        session: SessionId,
        token: AckToken,
        outcome: Outcome,
    ) -> Result<(), (ConnectionId, Violation)> {
        let Some(mut client) = self.client_of(session) else {
            // Without a connection, due acknowledgements are discarded. The client sends its
            // PUBLISH again when it returns.
            if let Some(entry) = self.sessions.get_mut(session) {
                entry.session.receiver.answer(token, outcome);
                while entry.session.receiver.next_due().is_some() {}
            }
            return Ok(());
        };
        let (id, before) = (client.id, client.begin_write());
        let Client { entry, connection, counters, .. } = &mut client;
        let sent = &mut counters.packets_sent;
        let answered = entry.session.gate_answered(token, outcome, &mut connection.wire, sent);
        // The turn flushes what was written.
        if client.end_write(before) == 0 {
            client.flush_later();
        }
        let is_paused = client.connection.pauses.any();
        let has_room = answered.map_err(|violation| (id, violation))?;
        if has_room && is_paused {
            self.unpause(now, id, Pause::Unanswered);
        }
        Ok(())
    }
}

impl Client<'_> {
    /// Begins to write. Returns the value for [`Self::end_write`].
    #[inline]
    pub(crate) fn begin_write(&mut self) -> usize {
        self.connection.begin_write(self.pool)
    }

    /// Ends the write that [`Self::begin_write`] began. Returns the number of bytes that were
    /// written.
    #[inline]
    pub(crate) fn end_write(&mut self, before: usize) -> usize {
        self.connection.end_write(before, self.id, self.effects)
    }

    /// Sends as many messages of the queue as the window and the outbox take. Returns the number of
    /// bytes that were written. The turn flushes the outbox even if nothing was.
    pub(crate) fn pump(&mut self, now: Instant) -> usize {
        let before = self.begin_write();
        let (sender, wire) = (&mut self.entry.session.sender, &mut self.connection.wire);
        sender.pump(now, wire, &self.settings.session.send, self.counters);
        self.register_retransmit(now);
        self.flush_later();
        self.end_write(before)
    }

    /// Lets the turn flush the outbox, if there is something in it.
    pub(crate) fn flush_later(&mut self) {
        if !self.connection.wire.outbox.is_empty() {
            self.connection.mark_dirty(self.id, &mut self.effects.dirty);
        }
    }

    /// Registers the due time of the first unacknowledged packet.
    #[inline]
    pub(crate) fn register_retransmit(&mut self, now: Instant) {
        let (sender, interval) = (&self.entry.session.sender, self.settings.expiry_interval);
        self.connection.register_retransmit(now, self.id, sender, interval, self.effects);
    }
}
