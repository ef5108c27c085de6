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
}

impl AfterDeliveries {
    /// Returns true if there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.overfull.is_empty() && self.to_admit.is_empty()
    }
}
