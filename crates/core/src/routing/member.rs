//! A member of a shared subscription, its address, and its presence.

use crate::named_enum::named_enum;
use crate::routing::subscription_tree::{PackedOptions, SessionSlot, ShardId};

/// The shard and slot of a member's session. A session is in a group once, whatever its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberAddress {
    /// The shard in which the session lives.
    pub shard: ShardId,
    /// The slot of the session in that shard.
    pub session: SessionSlot,
}

/// One session's subscription through a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The shard in which the session lives.
    pub shard: ShardId,
    /// The slot of the session in that shard.
    pub session: SessionSlot,
    /// The generation of the slot. The member's shard drops messages for a former session of the
    /// slot.
    pub generation: u32,
    /// The options of this member's own SUBSCRIBE.
    // 5.0 [MQTT-4.8.2-3]: each member has its own granted QoS.
    pub options: PackedOptions,
    /// The 5.0 Subscription Identifier; 0 without one.
    pub subscription_id: u32,
    /// True if the session has a Network Connection. An offline member has a session that outlives
    /// its connection.
    pub online: bool,
}

impl Member {
    /// Returns the shard and slot of the member's session.
    pub fn address(&self) -> MemberAddress {
        MemberAddress { shard: self.shard, session: self.session }
    }
}

named_enum! {
    /// The presence of a session: it is online if it has a Network Connection. The names are those
    /// that operators see.
    pub enum Presence {
        /// The session has a Network Connection.
        Online = "connected",
        /// The session has none.
        Offline = "away",
    }
}
