//! Sessions that have ended and still have something to hand on, as data. `leave.rs` hands it on.
//!
//! A session ends at once: its client identifier is free, its end is recorded, its will is
//! published, and no message reaches it any more. Its remains may be very many: filters in the
//! subscription tree, held messages, unfinished messages, a queue. They are worked off in portions,
//! over several turns if one is not enough. The order is the one of the steps below.
//!
//! The index names a session by its slot. So the slot is free when its last filter has left the
//! index, and not before: no session that begins in between is taken for this one.
//!
//! Each message that is owed ends on its own, in the batch that says who has it from then on. If
//! the broker dies in between, the store has the rest without its session: members of shared groups
//! get it after the start, as they get an
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
    /// True if its slot is free, because the subscription tree does not name it any more.
    pub is_out: bool,
    pub held: VecDeque<HeldMessage>,
    pub sender: Sender,
    /// Shared messages of the queue's head for which no member has room now.
    pub parked: VecDeque<Parked>,
    /// Of the struct and the client identifier. The other fields are charged by themselves.
    _charge: Charge,
}

impl EndedSession {
    /// Takes apart an entry whose session has ended.
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
