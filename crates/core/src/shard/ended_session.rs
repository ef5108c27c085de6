//! The remains of an ended session, as data. `leave.rs` hands them on.
//!
//! A session ends at once: its client identifier is free, its end is recorded, its will is
//! published, and it gets no more messages. Its remains may be very many: filters in the
//! subscription tree, held messages, unfinished deliveries, a queue. They are handed on in
//! portions, in this order, over several turns if one is not enough.
//!
//! The subscription tree identifies a session by its slot. So the slot is freed only after the last
//! filter has left the tree. Otherwise a new session in the same slot would get the messages of the
//! ended one.
//!
//! Each delivery ends in the batch that records its new owner or its drop. If the broker dies in
//! between, the store still has the other deliveries, without their session. After the start,
//! members of shared groups get them from an
//! [`crate::shard::features::orphaned_queues::OrphanedQueue`].

use crate::mqtt::charge::Charge;
use crate::persistence::rows::Parked;
use crate::session::Session;
use crate::session::outbound::sender::Sender;
use crate::session::session_redelivery::SessionRedelivery;
use crate::session::subscriptions::Drained;
use crate::shard::session_entry::{HeldMessage, SessionEntry};
use crate::shard::slots::SessionId;
use std::collections::VecDeque;
use std::sync::Arc;

/// The remains of a session that has ended.
#[derive(Debug)]
pub(crate) struct EndedSession {
    pub id: SessionId,
    pub client_id: Box<str>,
    pub redelivery: Arc<SessionRedelivery>,
    pub stored: bool,
    pub filters: Drained,
    /// True if the slot was freed, because the subscription tree has no filter of the session.
    pub is_out: bool,
    pub held: VecDeque<HeldMessage>,
    pub sender: Sender,
    /// Shared messages of the queue's head for which no member has room now.
    pub parked: VecDeque<Parked>,
    /// The bytes of this struct and of the client identifier. The other fields have their own
    /// charges.
    _charge: Charge,
}

impl EndedSession {
    /// Returns the remains of a session that was just removed from the shard.
    pub(crate) fn new(id: SessionId, session_entry: SessionEntry) -> EndedSession {
        let (session, held) = session_entry.into_parts();
        let stored = session.row().is_some();
        let Session { client_id, sender, subscriptions, .. } = session;
        EndedSession {
            id,
            redelivery: Arc::clone(sender.redelivery()),
            stored,
            filters: subscriptions.drain(),
            is_out: false,
            held,
            sender,
            parked: VecDeque::new(),
            _charge: Charge::new(size_of::<EndedSession>() + client_id.len()),
            client_id,
        }
    }
}
