//! A command of an operator to one shard, and its result.
//!
//! A command that changes something stored is carried out once its records are committed. The
//! driver answers then, so that a crash leaves no answer without its change.

use crate::operators::query::SessionName;
use crate::persistence::records::Lsn;
use crate::session::outbound::stall::SocketView;
use crate::shard::Shard;
use crate::shard::control::ShardControl;
use crate::time::Instant;

/// A command to one shard.
pub trait Command {
    /// The result.
    type Outcome;

    /// Returns the client whose socket the driver looks at before; `None` if no socket matters.
    fn client(&self) -> Option<&SessionName> {
        None
    }

    /// Carries out the command. `view` is the state of the socket of [`Self::client`]; the default
    /// without a socket.
    fn carry_out(&self, now: Instant, view: SocketView, shard: &mut Shard) -> CarriedOut<Self::Outcome>;
}

/// The result of a command, and the commit that makes it safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarriedOut<T> {
    /// The result.
    pub outcome: T,
    /// The batch that must be committed before the answer; `None` if nothing waits.
    pub commit: Option<Lsn>,
}

impl CarriedOut<CommandOutcome> {
    /// Returns the result with the commit that it waits for, if something changed.
    pub(super) fn new(outcome: CommandOutcome, shard: &mut ShardControl<'_>) -> Self {
        let is_change = matches!(
            outcome,
            CommandOutcome::Done | CommandOutcome::Resent(_) | CommandOutcome::Disconnected
        );
        CarriedOut { outcome, commit: if is_change { shard.commit() } else { None } }
    }
}

/// The result of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandOutcome {
    /// The command is done.
    Done,
    /// This number of packets was sent again.
    Resent(u32),
    /// The connection is closed, so that the messages are sent again when the client returns.
    Disconnected,
    /// The shard has no session of this client.
    NoSuchClient,
    /// The client is away, so there is no connection to close.
    NotConnected,
    /// A 5.0 client is sent nothing again on its connection.
    // 5.0 [MQTT-4.4.0-1]
    ResendForbidden,
    /// The session ends with its connection, so a disconnect would drop the messages.
    EndsWithConnection,
    /// The message is finished, or has another place.
    NoSuchMessage,
    /// PUBREC came: the receiver has the message.
    AlreadyReceived,
    /// The message cannot become a dead letter, for this reason.
    CannotPark(&'static str),
    /// The message is not published again, for this reason. The message is still a dead letter.
    CannotRepublish(&'static str),
    /// Memory or disk has no room for a dead letter.
    NoRoom,
    /// The topic is reserved for the broker.
    Reserved,
}
