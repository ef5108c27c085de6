//! Commands of operators about one client.

use crate::mqtt::packet::ReasonCode;
use crate::shard::lifecycle::Lifecycle;
use crate::shard::observe::client_events::DisconnectCause;
use crate::time::Instant;

/// A command about a client.
#[derive(Clone, Debug)]
pub struct OperatorCommand {
    /// The Client Identifier.
    pub client_id: Box<str>,
    /// What is done.
    pub action: OperatorAction,
}

/// An action of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorAction {
    /// Closes the connection: in 5.0 with DISCONNECT 0x98 (administrative action). The session
    /// stays as long as it would after any other loss of its connection.
    Disconnect,
    /// Ends the session at once, with its queue. Unfinished messages are dropped with the cause
    /// `session_ended`.
    EndSession,
}

/// The result of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandOutcome {
    /// It is done.
    Done,
    /// The shard has no session of this client.
    NoSuchClient,
    /// The client is away, so there is no connection to close.
    NotConnected,
}

/// Carries out a command.
pub(crate) fn carry_out(now: Instant, command: &OperatorCommand, life: &mut Lifecycle<'_>) -> CommandOutcome {
    let Some(id) = life.core.sessions.find(&command.client_id) else { return CommandOutcome::NoSuchClient };
    let connection = life.core.sessions.get(id).and_then(|entry| entry.connection);
    if command.action == OperatorAction::Disconnect && connection.is_none() {
        return CommandOutcome::NotConnected;
    }
    if let Some(connection) = connection {
        let reason = Some(ReasonCode::ADMINISTRATIVE_ACTION);
        life.disconnect(now, connection, reason, DisconnectCause::Operator);
    }
    // A session that ends with its connection is gone already.
    if command.action == OperatorAction::EndSession && life.core.sessions.get(id).is_some() {
        life.end_session(now, id);
    }
    CommandOutcome::Done
}
