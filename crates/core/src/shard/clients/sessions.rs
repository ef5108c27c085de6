//! The sessions of one shard. A session is found by its identifier, its slot or its client
//! identifier.
//!
//! `Sessions` has no connections, only their identifiers. The slot of an ended session stays in use
//! until [`Sessions::release`], because the subscription tree identifies a session by its slot.

use crate::expiry::deadline::{DeadlineKind, Registration};
use crate::mqtt::packet::SubscriptionOptions;
use crate::persistence::records::SessionState;
use crate::persistence::rows::SessionRow;
use crate::persistence::write_buffer::WriteBuffer;
use crate::routing::subscription_tree::PackedOptions;
use crate::session::policy::SendPolicy;
use crate::session::redelivery_rules::Rules;
use crate::session::session_redelivery::SessionRedelivery;
use crate::shard::clients::session_entry::SessionEntry;
use crate::shard::settings::{OwnQueues, ShardSettings};
use crate::shard::turn::effects::Effects;
use crate::slots::client_table::ClientTable;
use crate::slots::{OfSession, SessionId, Slots};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The sessions of one shard.
#[derive(Debug)]
pub(crate) struct Sessions {
    slots: Slots<SessionEntry, OfSession>,
    clients: ClientTable,
    /// The redelivery policy of each client.
    rules: Rules,
    own_queues: Arc<OwnQueues>,
    expiry_interval: Duration,
}

impl Sessions {
    /// Returns an empty set of sessions.
    pub(crate) fn new(settings: &ShardSettings) -> Sessions {
        Sessions {
            slots: Slots::default(),
            clients: ClientTable::new(),
            rules: Rules::new(&settings.session.send.redelivery, &settings.session.send.rules),
            own_queues: Arc::clone(&settings.own_queues),
            expiry_interval: settings.expiry_interval,
        }
    }

    /// Adds a session, and gives its queue the bounds that it alone has. Its client must have no other
    /// session in this shard.
    pub(crate) fn insert(&mut self, mut session_entry: SessionEntry) -> SessionId {
        if let Some(own) = self.own_queues.get(&*session_entry.session.client_id) {
            session_entry.set_queue_bounds(*own);
        }
        let id = self.slots.insert(session_entry);
        if let Some(session_entry) = self.slots.get(id) {
            self.clients.insert(&session_entry.session.client_id, id);
        }
        id
    }

    /// Removes and returns an ending session. Its client identifier is free at once. Its slot is
    /// free after [`Self::release`].
    pub(crate) fn retire(&mut self, id: SessionId) -> Option<Box<SessionEntry>> {
        let session_entry = self.slots.retire(id)?;
        self.clients.remove(&session_entry.session.client_id, id);
        Some(session_entry)
    }

    /// Frees the slot of a session that [`Self::retire`] removed. Call it once for each such
    /// session.
    pub(crate) fn release(&mut self, slot: u32) {
        self.slots.release(slot);
    }

    /// Returns the session of a client, if there is one.
    pub(crate) fn find(&self, client_id: &str) -> Option<SessionId> {
        let slots = &self.slots;
        let is_it = |slot| slots.at(slot).is_some_and(|(_, r)| &*r.session.client_id == client_id);
        self.clients.find(client_id, is_it).and_then(|slot| Some(slots.at(slot)?.0))
    }

    #[inline]
    pub(crate) fn get(&self, id: SessionId) -> Option<&SessionEntry> {
        self.slots.get(id)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: SessionId) -> Option<&mut SessionEntry> {
        self.slots.get_mut(id)
    }

    /// Returns the session that uses a slot now.
    #[inline]
    pub(crate) fn at(&self, slot: u32) -> Option<(SessionId, &SessionEntry)> {
        self.slots.at(slot)
    }

    /// Returns the session that uses a slot now, to change it.
    #[inline]
    pub(crate) fn at_mut(&mut self, slot: u32) -> Option<(SessionId, &mut SessionEntry)> {
        self.slots.at_mut(slot)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SessionId, &SessionEntry)> {
        self.slots.iter()
    }

    /// Returns one more than the highest slot that was ever used.
    pub(crate) fn end_of_slots(&self) -> u32 {
        self.slots.end()
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns the number of entries of the table of client identifiers.
    pub(crate) fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Returns the redelivery policies.
    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Replaces the redelivery policies. Sessions keep theirs until they ask again.
    pub(crate) fn replace_rules(&mut self, policy: &SendPolicy) {
        self.rules = Rules::new(&policy.redelivery, &policy.rules);
    }

    /// Replaces the bounds of the queues that have their own. Takes a look-up for each of them, of
    /// which a configuration has 2,000 at most.
    pub(crate) fn replace_own_queues(&mut self, new: &Arc<OwnQueues>) {
        let old = std::mem::replace(&mut self.own_queues, Arc::clone(new));
        for client_id in old.keys().chain(new.keys()) {
            if let Some(session_entry) = self.find(client_id).and_then(|id| self.get_mut(id)) {
                session_entry.set_queue_bounds(new.get(client_id).copied().unwrap_or_default());
            }
        }
    }

    /// Returns the redelivery policy of a client. `user_name` is `None` if it is not known.
    pub(crate) fn redelivery_of(
        &mut self,
        client_id: &str,
        user_name: Option<&str>,
    ) -> Arc<SessionRedelivery> {
        self.rules.resolve(client_id, user_name)
    }

    /// Returns true if the session is stored.
    pub(crate) fn is_stored(&self, id: SessionId) -> bool {
        self.get(id).is_some_and(|r| r.session.row().is_some())
    }

    /// Registers the earliest of session expiry, will delay and the end of a hold, unless the
    /// registered deadline is early enough.
    pub(crate) fn register(&mut self, id: SessionId, effects: &mut Effects) {
        let Some(session_entry) = self.slots.get_mut(id) else { return };
        let deadline = session_entry.deadline();
        if session_entry.registered.needs(deadline, self.expiry_interval) {
            let (slot, generation) = (id.slot, id.generation);
            let kind = DeadlineKind::Session;
            effects.registrations.push(Registration { kind, slot, generation, deadline });
        }
    }

    /// Records a session that outlives its connection. A session without a row in the store gets
    /// one. If only its connection, expiry or will time changed since the last record, the record
    /// has only these fields. Does nothing without a store.
    pub(crate) fn record(&mut self, id: SessionId, write_buffer: Option<&Rc<WriteBuffer>>) {
        let (Some(write_buffer), Some(session_entry)) = (write_buffer, self.slots.get_mut(id)) else {
            return;
        };
        if session_entry.session.row().is_none() && session_entry.session.expiry > 0 {
            let key = write_buffer.session_key();
            session_entry.session.set_row(SessionRow::new(key, Rc::clone(write_buffer)));
        }
        // The session ends with its connection.
        let Some(row) = session_entry.session.row() else { return };
        let terms = session_entry.hash_of_terms();
        if row.recorded.replace(terms) == terms {
            let (key, connected) = (row.key, session_entry.connection.is_some());
            let (ends, will_due) = (session_entry.ends, session_entry.will_due());
            let state = SessionState { key, connected, ends, will_due };
            row.record_state(state);
        } else {
            session_entry.record();
        }
    }

    /// Records a subscription, if the session is stored.
    pub(crate) fn record_subscription(
        &self,
        id: SessionId,
        filter: &str,
        options: &SubscriptionOptions,
        subscription_id: u32,
    ) {
        if let Some(row) = self.get(id).and_then(|r| r.session.row()) {
            row.subscribed(filter, PackedOptions::new(options).bits(), subscription_id);
        }
    }

    /// Records the end of a subscription, if the session is stored.
    pub(crate) fn record_unsubscription(&self, id: SessionId, filter: &str) {
        if let Some(row) = self.get(id).and_then(|r| r.session.row()) {
            row.unsubscribed(filter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Session;
    use crate::session::outbound::retry::{AckPolicy, OnAckTimeout, OnExhausted, RetryPolicy};
    use crate::session::redelivery_policy::RedeliveryPolicy;
    use crate::time::Instant;

    fn policy() -> RedeliveryPolicy {
        let retry = RetryPolicy {
            interval: Duration::ZERO,
            min_interval: Duration::from_millis(100),
            backoff: 2.0,
            max_interval: Duration::from_secs(8),
            jitter: 0.0,
            attempts: 0,
            on_exhausted: OnExhausted::Disconnect,
            resends_per_tick: 10,
        };
        let ack = AckPolicy {
            timeout: Duration::ZERO,
            max_timeout: Duration::from_secs(300),
            on_timeout: OnAckTimeout::Auto,
        };
        RedeliveryPolicy::new(retry, ack)
    }

    fn sessions() -> Sessions {
        Sessions {
            slots: Slots::default(),
            clients: ClientTable::new(),
            rules: Rules::new(&policy(), &[]),
            own_queues: Arc::default(),
            expiry_interval: Duration::from_millis(100),
        }
    }

    fn begin(sessions: &mut Sessions, client_id: &str) -> SessionId {
        let session = Session::new(client_id, 60, Arc::clone(sessions.rules().nobody()));
        sessions.insert(SessionEntry::new(session, Instant::NEVER, Instant::NEVER))
    }

    #[test]
    fn a_client_id_is_free_when_its_session_is_retired_and_the_slot_when_it_is_released() {
        let mut sessions = sessions();
        let a = begin(&mut sessions, "a");
        assert_eq!(sessions.find("a"), Some(a));
        assert!(sessions.retire(a).is_some());
        assert_eq!((sessions.find("a"), sessions.clients(), sessions.len()), (None, 0, 0));
        let again = begin(&mut sessions, "a");
        assert_ne!(again.slot, a.slot);
        sessions.release(a.slot);
        assert_eq!(begin(&mut sessions, "b").slot, a.slot);
        assert_eq!(sessions.find("a"), Some(again));
    }

    #[test]
    fn a_deadline_is_registered_once_for_its_bucket() {
        let (mut sessions, mut effects) = (sessions(), Effects::default());
        let id = begin(&mut sessions, "a");
        sessions.register(id, &mut effects);
        assert!(effects.registrations.is_empty());
        if let Some(entry) = sessions.get_mut(id) {
            entry.ends = Instant::from_millis(5_000);
        }
        sessions.register(id, &mut effects);
        sessions.register(id, &mut effects);
        assert_eq!(effects.registrations.len(), 1);
    }
}
