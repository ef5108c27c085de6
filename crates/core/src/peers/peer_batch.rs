//! A peer batch as data: its items, and the fields of a shared message between shards.

use crate::mqtt::charge::Charge;
use crate::mqtt::message::Message;
use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::QoS;
use crate::persistence::records::TransactionNumber;
use crate::routing::retained::SetMark;
use crate::routing::shared_group::{Member, MemberAddress, Presence};
use crate::routing::subscription_tree::{Interest, SessionSlot, ShardId, ShardSet};
use crate::session::inbound::AckToken;
use crate::slots::SessionId;
use std::sync::Arc;

/// The session that published a message, for No Local.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publisher {
    /// The shard in which the session lives.
    pub shard: ShardId,
    /// The slot of the session in that shard.
    pub session: SessionSlot,
}

/// The number of a message that an operator published. Numbers count up for each shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicationNumber(pub u64);

/// The place to which the outcome of a publication is reported.
#[derive(Clone, Copy, Debug)]
pub enum ReportTo {
    /// A publisher of this shard.
    Here {
        /// The publisher's session.
        session: SessionId,
        /// The pending acknowledgement of the PUBLISH.
        token: AckToken,
    },
    /// An orphaned queue of this shard.
    OrphanedQueue,
    /// A message that an operator published in this shard.
    Operator(PublicationNumber),
    /// A publication in a peer's batch.
    Peer {
        /// The peer that sent the batch.
        shard: ShardId,
        /// The number of the batch.
        number: u64,
        /// The index of the publication among those of the batch.
        index: u32,
    },
}

/// All items from one shard to another in one turn.
#[derive(Debug)]
pub struct PeerBatch {
    /// The shard that sends the batch.
    pub from: ShardId,
    /// The number of the batch. Counts up per pair of shards.
    pub number: u64,
    /// The items, in the order in which they arose.
    pub items: Vec<Item>,
    /// The charge of `items` and their texts, until the receiver has handled the batch. Messages
    /// have charges of their own.
    pub charge: Charge,
}

/// One item of a peer batch.
#[derive(Debug)]
pub enum Item {
    /// A publication for every subscriber that the peer finds.
    Publish {
        /// The message.
        message: Message,
        /// The publisher, for No Local; `None` for a message of the broker, such as a delayed one.
        publisher: Option<Publisher>,
        /// The transaction of which the deliveries are a part. No packet of a transaction leaves
        /// before its commit.
        transaction: Option<TransactionNumber>,
        /// The mark of the message if it was retained with this publication.
        set_mark: SetMark,
    },
    /// A publication for one member of a shared group.
    Share(SharedMessage),
    /// The answer to the peer batch of this number.
    Ticket {
        /// The number of the peer batch.
        number: u64,
        /// The publications that no receiver took: their index in the peer batch, and the outcome.
        not_taken: Vec<(u32, Outcome)>,
        /// The publications that have deferred answers: their index, and the number of
        /// deferred answers ([`Item::Late`]) that follow.
        deferred: Vec<(u32, u32)>,
    },
    /// A deferred answer to one publication.
    Late {
        /// The number of the peer batch.
        number: u64,
        /// The index of the publication among those of the batch.
        index: u32,
        /// The outcome.
        outcome: Outcome,
    },
    /// The sender has subscribers to this filter, or has none any more.
    Interest {
        /// The Topic Filter.
        filter: Box<str>,
        /// Says if there are subscribers.
        interest: Interest,
    },
    /// A member joined a shared group, or changed its options.
    Join {
        /// The name of the group.
        group: Box<str>,
        /// The Topic Filter, without `$share/...`.
        filter: Box<str>,
        /// The member.
        member: Member,
    },
    /// A member left a shared group.
    Leave {
        /// The name of the group.
        group: Box<str>,
        /// The Topic Filter, without `$share/...`.
        filter: Box<str>,
        /// The member's session.
        address: MemberAddress,
    },
    /// A session with shared subscriptions connected or disconnected. Sent once, for all its
    /// groups.
    Presence {
        /// The session.
        address: MemberAddress,
        /// The new presence.
        presence: Presence,
    },
    /// A peer barrier. The receiver answers with [`Item::Passed`] when everything before it is in
    /// force.
    PeerBarrier {
        /// The number of the barrier.
        token: u64,
    },
    /// The answer to a peer barrier.
    Passed {
        /// The number of the barrier.
        token: u64,
        /// The place at which the sender passed it, in its order of retained messages. Messages
        /// that the sender sets later come to the subscriptions before the barrier.
        at: u64,
    },
}

impl Item {
    /// Returns the bytes on the heap that nothing else charges.
    pub(super) fn heap(&self) -> usize {
        match self {
            Item::Ticket { not_taken, deferred, .. } => {
                not_taken.capacity() * size_of::<(u32, Outcome)>()
                    + deferred.capacity() * size_of::<(u32, u32)>()
            }
            Item::Interest { filter, .. } => filter.len(),
            Item::Join { group, filter, .. } | Item::Leave { group, filter, .. } => {
                group.len() + filter.len()
            }
            // A message has a charge of its own. The list of members in a share is short, and the
            // group has the filter.
            Item::Publish { .. } | Item::Share(_) => 0,
            Item::Late { .. } | Item::Presence { .. } | Item::PeerBarrier { .. } | Item::Passed { .. } => 0,
        }
    }
}

/// The members of a shared group that may read a message, as far as its offers show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readers {
    /// No member that was looked at may read the message.
    #[default]
    NotFound,
    /// The same, and some members were not looked at, because there are too many.
    NotAllAsked,
    /// The shard of the last member that may read the message and refused it.
    In(ShardId),
}

impl Readers {
    /// Notes that some members were not looked at.
    pub(crate) fn note_unasked(&mut self) {
        if *self == Readers::NotFound {
            *self = Readers::NotAllAsked;
        }
    }
}

/// A message on its way to a member of a shared group.
#[derive(Debug)]
pub struct SharedMessage {
    /// The message.
    pub message: Message,
    /// The full filter, `$share/...`.
    pub filter: Arc<Box<str>>,
    /// The members to which the message was offered. If the chosen member refuses the message, its
    /// shard continues the list.
    pub offered: Offered,
    /// True if an ended session of another member had the message before.
    pub is_orphaned: bool,
    /// The members that may read the message, as far as the offers show.
    pub readers: Readers,
    /// The member that was chosen. If `None`, the receiving shard chooses.
    pub chosen: Option<Chosen>,
    /// The transaction of which the delivery is a part, as in [`Item::Publish`].
    pub transaction: Option<TransactionNumber>,
}

/// A member that was chosen in another shard.
#[derive(Clone, Copy, Debug)]
pub struct Chosen {
    /// The slot of the member's session.
    pub session: SessionSlot,
    /// The generation of the slot.
    pub generation: u32,
    /// The lower one of the published QoS and the granted QoS.
    pub qos: QoS,
    /// The RETAIN flag of the delivery.
    pub retain: bool,
    /// The Subscription Identifier; 0 without one.
    pub subscription_id: u32,
}

/// The members to which a shared message was offered.
#[derive(Clone, Debug)]
pub enum Offered {
    /// These members, a few at most, one after the other. The last one is the chosen member.
    InTurn(Vec<MemberAddress>),
    /// More members than the list may have. The shards take turns, and each offers the message to
    /// its own members.
    ByShard {
        /// The present round.
        round: Round,
        /// The shards that have finished this round.
        seen: ShardSet,
    },
    /// All members, and all of them refused. Under the policy `hold`, a member of the receiving
    /// shard holds the message. Otherwise the message is dropped.
    ToAll,
}

/// The members to which a message is offered in one round. The rounds are in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// Online members that can take more.
    Ready,
    /// The other online members. The queue policy of each member decides.
    Online,
    /// Offline members. The session of an offline member outlives its connection.
    Offline,
}
