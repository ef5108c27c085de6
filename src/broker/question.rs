//! Questions and commands of operators to one shard, and the answers with facts of the sockets.

use crate::events::trace::TraceWatch;
use crate::mqtt::packet::ReasonCode;
use crate::operators::command::Command;
use crate::operators::publish_command::{NotPublished, PublishCommand};
use crate::operators::query::{Query, QueryAnswer};
use crate::session::outbound::stall::Stall;
use crate::slots::SessionId;
use actix::Message;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Asks a shard. The answer comes after the turn that is under way.
#[derive(Clone, Debug)]
pub struct AskShard(pub Query);

impl Message for AskShard {
    type Result = ShardAnswer;
}

/// Carries out a command of an operator in a shard. The answer is `None` if the broker ended before
/// the store had committed the change.
#[derive(Clone, Debug)]
pub struct CommandShard<C>(pub C);

impl<C: Command<Outcome: 'static>> Message for CommandShard<C> {
    type Result = Option<C::Outcome>;
}

/// Publishes a message of an operator in a shard. The answer comes in two parts: the first when the
/// message is routed, the second when a client would get its PUBACK.
#[derive(Clone, Debug)]
pub struct PublishInShard(pub PublishCommand);

impl Message for PublishInShard {
    type Result = Result<oneshot::Receiver<ReasonCode>, NotPublished>;
}

/// The answer of a shard.
#[derive(Debug)]
pub struct ShardAnswer {
    /// The answer of the shard's core.
    pub answer: QueryAnswer,
    /// The sockets of the connected sessions in the answer.
    pub sockets: Vec<SocketFacts>,
}

impl ShardAnswer {
    /// Returns the facts of a session's socket; `None` while its client is away.
    pub fn socket_of(&self, id: SessionId) -> Option<&SocketFacts> {
        self.sockets.iter().find(|facts| facts.session == id)
    }
}

/// The socket of a connected session.
#[derive(Clone, Debug)]
pub struct SocketFacts {
    /// The session.
    pub session: SessionId,
    /// The address of the client.
    pub address: String,
    /// The oldest unacknowledged message with its diagnosed cause; `None` if all is acknowledged.
    pub stall: Option<Stall>,
}

/// Sets the clients and topics that a shard traces; `None` for nothing.
#[derive(Clone, Debug)]
pub struct TraceShard(pub Option<Arc<TraceWatch>>);

impl Message for TraceShard {
    type Result = ();
}
