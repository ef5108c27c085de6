//! Commands of operators about one client and its messages.

use crate::letters::dead_letters::{PROPERTIES, dead_letter_topic};
use crate::mqtt::packet::QoS;
use crate::mqtt::topic::is_reserved;
use crate::named_enum::named_enum;
use crate::operators::command::{CarriedOut, Command, CommandOutcome};
use crate::operators::query::SessionName;
use crate::routing::subscription_tree::Subscriber;
use crate::session::drops::DropReason;
use crate::session::outbound::one_message::{MessageName, MessagePlace, NoMessage};
use crate::session::outbound::retry::Outlives;
use crate::session::outbound::stall::SocketView;
use crate::shard::Shard;
use crate::shard::control::{MatchExtent, ShardControl};
use crate::slots::{ConnectionId, SessionId};
use crate::time::Instant;

/// A command about a client.
#[derive(Clone, Debug)]
pub struct OperatorCommand {
    /// The session of the client.
    pub client: SessionName,
    /// The action.
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
    /// Sends the unacknowledged messages again.
    Redeliver(RedeliverBy),
    /// Drops one message. A policy may turn the message into a dead letter.
    Skip(MessageOf),
    /// Drops one message and publishes it as a dead letter, whatever the policy says.
    Park(MessageOf),
}

named_enum! {
    /// The way in which unacknowledged messages are sent again.
    pub enum RedeliverBy {
        /// On the connection if the version allows it, else by a disconnect.
        Auto = "auto",
        /// On the connection. 3.x only: 5.0 [MQTT-4.4.0-1] forbids it.
        Resend = "resend",
        /// By closing the connection. The messages are sent again when the client returns.
        Disconnect = "disconnect",
    }
}

/// A message of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageOf {
    /// The session in whose shard the name was given; `None` for the name of a stored delivery,
    /// which outlasts the process.
    pub session: Option<SessionId>,
    /// The name of the message.
    pub name: MessageName,
}

impl Command for OperatorCommand {
    type Outcome = CommandOutcome;

    fn client(&self) -> Option<&SessionName> {
        Some(&self.client)
    }

    fn carry_out(&self, now: Instant, view: SocketView, shard: &mut Shard) -> CarriedOut<CommandOutcome> {
        let mut shard = shard.control(now);
        let found = self.client.find(shard.view()).map(|(id, entry)| (id, entry.connection));
        let outcome = match found {
            Some((id, connection)) => act(id, connection, self.action, view, &mut shard),
            None => CommandOutcome::NoSuchClient,
        };
        CarriedOut::new(outcome, &mut shard)
    }
}

fn act(
    id: SessionId,
    connection: Option<ConnectionId>,
    action: OperatorAction,
    view: SocketView,
    shard: &mut ShardControl<'_>,
) -> CommandOutcome {
    match (action, connection) {
        (OperatorAction::Skip(message), _) => drop_message(id, message, DropReason::Skipped, shard),
        (OperatorAction::Park(message), _) => drop_message(id, message, DropReason::Parked, shard),
        (OperatorAction::EndSession, connection) => {
            if let Some(connection) = connection {
                shard.disconnect(connection);
            }
            // A session that ends with its connection is gone already.
            if shard.view().session(id).is_some() {
                shard.end_session(id);
            }
            CommandOutcome::Done
        }
        (_, None) => CommandOutcome::NotConnected,
        (OperatorAction::Disconnect, Some(connection)) => match shard.disconnect(connection) {
            true => CommandOutcome::Done,
            // The connection is closing already.
            false => CommandOutcome::NotConnected,
        },
        (OperatorAction::Redeliver(by), Some(connection)) => redeliver(id, connection, by, view, shard),
    }
}

fn redeliver(
    id: SessionId,
    connection: ConnectionId,
    by: RedeliverBy,
    view: SocketView,
    shard: &mut ShardControl<'_>,
) -> CommandOutcome {
    let Some(entry) = shard.view().session(id) else { return CommandOutcome::NoSuchClient };
    let is_v5 = entry.session.version.is_v5();
    let resends = match by {
        RedeliverBy::Auto => !is_v5,
        RedeliverBy::Resend if is_v5 => return CommandOutcome::ResendForbidden,
        RedeliverBy::Resend => true,
        RedeliverBy::Disconnect => false,
    };
    if resends {
        return CommandOutcome::Resent(shard.resend(id, connection, view));
    }
    if entry.session.outlives() == Outlives::No {
        return CommandOutcome::EndsWithConnection;
    }
    match shard.disconnect(connection) {
        true => CommandOutcome::Disconnected,
        false => CommandOutcome::NotConnected,
    }
}

/// Drops a message of a session for this reason.
fn drop_message(
    id: SessionId,
    message: MessageOf,
    cause: DropReason,
    shard: &mut ShardControl<'_>,
) -> CommandOutcome {
    if message.session.is_some_and(|session| session != id) {
        return CommandOutcome::NoSuchMessage;
    }
    if cause == DropReason::Parked
        && let Err(why) = can_park(id, message.name, shard)
    {
        return why;
    }
    shard.drop_message(id, message.name, cause).map_or_else(no_message, |()| CommandOutcome::Done)
}

fn no_message(why: NoMessage) -> CommandOutcome {
    match why {
        NoMessage::Gone => CommandOutcome::NoSuchMessage,
        NoMessage::Received => CommandOutcome::AlreadyReceived,
    }
}

/// Checks that a message can become a dead letter, before anything is dropped.
fn can_park(id: SessionId, name: MessageName, shard: &mut ShardControl<'_>) -> Result<(), CommandOutcome> {
    let view = shard.view();
    let entry = view.session(id).ok_or(CommandOutcome::NoSuchClient)?;
    let delivery = match entry.session.sender.place_of(name).map_err(no_message)? {
        MessagePlace::InFlight(_, delivery) | MessagePlace::Queued(_, delivery) => delivery,
        MessagePlace::PagedOut(_) => {
            let why = "its content is only in the store; it comes into memory when the client has taken what is before it";
            return Err(CommandOutcome::CannotPark(why));
        }
    };
    let (client_id, message) = (&entry.session.client_id, &delivery.message);
    if is_reserved(message.topic()) {
        return Err(CommandOutcome::CannotPark("a message of the broker itself makes no dead letter"));
    }
    let topic = dead_letter_topic(client_id, message.topic());
    if u16::try_from(topic.len()).is_err() {
        return Err(CommandOutcome::CannotPark("the topic of the dead letter would be too long"));
    }
    let size = message.size() + topic.len() + PROPERTIES;
    if !shard.has_room_for(QoS::AtLeastOnce, message.size()) {
        return Err(CommandOutcome::NoRoom);
    }
    if view.keeps_letter(client_id, message) {
        return Ok(());
    }
    has_subscriber(&topic, size, shard)
}

/// Checks that somebody may get a dead letter that would not be stored. Subscribers of other shards
/// and members of shared groups are not asked.
fn has_subscriber(topic: &str, size: usize, shard: &mut ShardControl<'_>) -> Result<(), CommandOutcome> {
    let (extent, receivers) = shard.match_topic(topic);
    let (is_unmatched, all) = (receivers.is_empty(), &receivers.subscribers);
    let is_taken = !receivers.peers.is_empty()
        || !receivers.groups.is_empty()
        || all.iter().any(|subscriber| may_take(subscriber, (topic, size), shard));
    shard.give_back(receivers);
    let why = if extent == MatchExtent::InPart {
        "too many filters match its dead letter, so it is not known at once if anybody would get it; raise limits.dead_letters and limits.dead_letter_bytes"
    } else if is_unmatched {
        "nobody is subscribed to its dead letter, so it would be lost; subscribe to $dead/# first, or raise limits.dead_letters and limits.dead_letter_bytes"
    } else if !is_taken {
        "no subscriber of its dead letter can take it now: all are away at QoS 0, have a full queue, or may not read the topic; raise limits.dead_letters and limits.dead_letter_bytes"
    } else {
        return Ok(());
    };
    Err(CommandOutcome::CannotPark(why))
}

/// Returns false if a subscriber of this shard does not take a message of this topic and size now.
fn may_take(subscriber: &Subscriber, (topic, size): (&str, usize), shard: &mut ShardControl<'_>) -> bool {
    if !shard.may_read(subscriber.session, topic) {
        return false;
    }
    let view = shard.view();
    let Some((_, entry)) = view.session_at(subscriber.session.0) else { return false };
    if subscriber.options.qos() == QoS::AtMostOnce {
        return entry.connection.is_some();
    }
    entry.may_take(shard.now, size, view.send_policy())
}
