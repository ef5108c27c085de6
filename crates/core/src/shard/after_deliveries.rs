//! Receivers that deliveries found full.

use crate::shard::slots::{ConnectionId, SessionId};

/// Receivers that deliveries found full. They are handled at the end of the turn, because a will or
/// an acknowledgement would lead to another publication in the midst of the present one.
#[derive(Debug, Default)]
pub(crate) struct AfterDeliveries {
    /// Receivers to disconnect, under the policy `disconnect`.
    pub overfull: Vec<ConnectionId>,
    /// Receivers whose queue may have room for held messages.
    pub to_admit: Vec<SessionId>,
    /// Connected receivers that lost as many messages of their queues as one turn drops. Messages
    /// behind these may have to be sent.
    pub to_send: Vec<SessionId>,
}

impl AfterDeliveries {
    /// Returns true if there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.overfull.is_empty() && self.to_admit.is_empty() && self.to_send.is_empty()
    }
}
