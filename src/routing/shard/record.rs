//! What the store is told of sessions.

use super::{ConnectionId, Resident, SessionId, Shard};
use crate::journal::ledger::{Account, Body, Entry, Owed};
use crate::journal::record::{Flight, Record, SessionState, StoredSession, StoredSubscription};
use crate::mqtt::packet::SubscriptionOptions;
use crate::mqtt::session::queue::{Delivery, Head};
use crate::routing::subscription_tree::PackedOptions;
use std::hash::BuildHasher;
use std::rc::Rc;

impl Resident {
    /// How much of a long queue is kept in memory.
    pub(super) fn head(&self) -> Head {
        match self.connection {
            _ if self.session.sender.terms().keep_what_waits() => Head::All,
            Some(_) => Head::Online,
            None => Head::Offline,
        }
    }

    /// A hash of all that is recorded of it but its comings and goings; never 0.
    pub(super) fn hash_of_terms(&self) -> u64 {
        let session = &self.session;
        let will = session.will.as_deref();
        let will = will.map(|w| {
            let options = (w.qos as u8, w.retain, w.delay, w.message_expiry);
            (&w.topic, options, &w.payload, &w.forwarded)
        });
        let terms = (session.version as u8, session.expiry, session.wishes(), will);
        session.account().map_or(0, |account| account.ledger.hasher.hash_one(terms)).max(1)
    }

    /// Records how it stands, if it is in the store.
    fn record(&self) {
        let session = &self.session;
        let Some(account) = session.account() else { return };
        let (retry_interval, ack_timeout) = session.wishes();
        account.record(Box::new(StoredSession {
            key: account.key,
            client_id: session.client_id.clone(),
            version: session.version,
            expiry: session.expiry,
            connected: self.connection.is_some(),
            ends: self.ends,
            will: session.will.clone(),
            will_due: self.will_due,
            retry_interval,
            ack_timeout,
        }));
    }
}

/// The row of a delivery to a session that is in the store; its message's row is made with the first.
pub(super) fn owe(
    account: Option<&Rc<Account>>,
    body: &mut Option<Rc<Body>>,
    delivery: &Delivery,
    flight: Option<Flight>,
) -> Option<Box<Entry>> {
    let Account { key, ledger, .. } = &**account?;
    let body = body.get_or_insert_with(|| ledger.body(&delivery.message));
    let Delivery { qos, retain, ids, share, .. } = delivery;
    Some(ledger.entry(*key, body, Owed { qos: *qos, retain: *retain, ids, share: share.as_ref(), flight }))
}

impl Shard {
    /// Gives a session that outlives its connection an account, if there is a store, and records how it stands.
    pub(super) fn record_session(&mut self, id: SessionId) {
        let ledger = self.ledger().cloned();
        let (Some(ledger), Some(resident)) = (ledger, self.sessions.get_mut(id)) else { return };
        if resident.session.account().is_none() && resident.session.expiry > 0 {
            let key = ledger.session_key();
            resident.session.keep_account(Account::new(key, Rc::clone(&ledger)));
        }
        let Some(account) = resident.session.account() else { return };
        let terms = resident.hash_of_terms();
        if account.recorded.replace(terms) == terms {
            let (key, connected) = (account.key, resident.connection.is_some());
            let state = SessionState { key, connected, ends: resident.ends, will_due: resident.will_due };
            account.record_state(state);
        } else {
            resident.record();
        }
    }

    /// What is written to a connection from here on leaves when what its session's CONNACK promises is committed.
    ///
    /// While the store has no room that is the session's row alone, which a known one has: nothing that waits for room keeps
    /// the client away whose acknowledgements make some. If the broker dies before there is any, the time of its absence may
    /// count from before this connection.
    pub(super) fn fence_session(&mut self, id: ConnectionId, session: SessionId) {
        if !self.is_store_full() {
            return self.fence(id);
        }
        let Some(account) = self.sessions.get(session).and_then(|r| r.session.account()) else { return };
        let (settled, committed) = (account.settled.get(), account.ledger.last_committed());
        if settled > committed
            && let Some(connection) = self.connections.get_mut(id)
        {
            connection.wire.outbox.fence(settled);
        }
    }

    /// Whether a session is in the store.
    pub(super) fn is_stored(&self, id: SessionId) -> bool {
        self.sessions.get(id).is_some_and(|r| r.session.account().is_some())
    }

    pub(super) fn record_subscription(
        &self,
        id: SessionId,
        filter: &str,
        options: &SubscriptionOptions,
        subscription_id: u32,
    ) {
        let Some(account) = self.sessions.get(id).and_then(|r| r.session.account()) else { return };
        account.ledger.record(Record::Subscribed(Box::new(StoredSubscription {
            session: account.key,
            filter: filter.into(),
            options: PackedOptions::new(options).bits(),
            subscription_id,
        })));
    }

    pub(super) fn record_unsubscription(&self, id: SessionId, filter: &str) {
        let Some(account) = self.sessions.get(id).and_then(|r| r.session.account()) else { return };
        account.ledger.record(Record::Unsubscribed { session: account.key, filter: filter.into() });
    }
}
