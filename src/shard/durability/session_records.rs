//! What the store is told of sessions.

use crate::mqtt::packet::SubscriptionOptions;
use crate::persistence::records::{Flight, Record, SessionState, StoredSubscription};
use crate::persistence::rows::{Body, Entry, NewDelivery, SessionRow};
use crate::routing::subscription_tree::PackedOptions;
use crate::session::outbound::queue::Delivery;
use crate::shard::Shard;
use crate::shard::slots::{ConnectionId, SessionId};
use std::rc::Rc;

/// The row of a delivery to a session that is in the store; its message's row is made with the
/// first.
pub(in crate::shard) fn record_delivery(
    row: Option<&Rc<SessionRow>>,
    body: &mut Option<Rc<Body>>,
    delivery: &Delivery,
    flight: Option<Flight>,
) -> Option<Box<Entry>> {
    let SessionRow { key, write_buffer, .. } = &**row?;
    let body = body.get_or_insert_with(|| write_buffer.body(&delivery.message));
    let Delivery { qos, retain, ids, share, .. } = delivery;
    Some(write_buffer.entry(
        *key,
        body,
        NewDelivery { qos: *qos, retain: *retain, ids, share: share.as_ref(), flight },
    ))
}

impl Shard {
    /// Gives a session that outlives its connection a row, if there is a store, and records how it
    /// stands.
    pub(in crate::shard) fn record_session(&mut self, id: SessionId) {
        let write_buffer = self.write_buffer().cloned();
        let (Some(write_buffer), Some(session_entry)) = (write_buffer, self.sessions.get_mut(id)) else {
            return;
        };
        if session_entry.session.row().is_none() && session_entry.session.expiry > 0 {
            let key = write_buffer.session_key();
            session_entry.session.set_row(SessionRow::new(key, Rc::clone(&write_buffer)));
        }
        let Some(row) = session_entry.session.row() else { return };
        let redelivery = session_entry.hash_of_terms();
        if row.recorded.replace(redelivery) == redelivery {
            let (key, connected) = (row.key, session_entry.connection.is_some());
            let state =
                SessionState { key, connected, ends: session_entry.ends, will_due: session_entry.will_due };
            row.record_state(state);
        } else {
            session_entry.record();
        }
    }

    /// What is written to a connection from here on leaves when what its session's CONNACK promises
    /// is committed.
    ///
    /// While the store has no room that is the session's row alone, which a known one has: nothing
    /// that waits for room keeps the client away whose acknowledgements make some. If the broker
    /// dies before there is any, the time of its absence may count from before this connection.
    pub(in crate::shard) fn fence_session(&mut self, id: ConnectionId, session: SessionId) {
        if !self.is_store_full() {
            return self.hold_until_commit(id);
        }
        let Some(row) = self.sessions.get(session).and_then(|r| r.session.row()) else { return };
        let (settled, committed) = (row.settled.get(), row.write_buffer.last_committed());
        if settled > committed
            && let Some(connection) = self.connections.get_mut(id)
        {
            connection.wire.outbox.hold_until_commit(settled);
        }
    }

    /// Whether a session is in the store.
    pub(in crate::shard) fn is_stored(&self, id: SessionId) -> bool {
        self.sessions.get(id).is_some_and(|r| r.session.row().is_some())
    }

    pub(in crate::shard) fn record_subscription(
        &self,
        id: SessionId,
        filter: &str,
        options: &SubscriptionOptions,
        subscription_id: u32,
    ) {
        let Some(row) = self.sessions.get(id).and_then(|r| r.session.row()) else { return };
        row.write_buffer.record(Record::Subscribed(Box::new(StoredSubscription {
            session: row.key,
            filter: filter.into(),
            options: PackedOptions::new(options).bits(),
            subscription_id,
        })));
    }

    pub(in crate::shard) fn record_unsubscription(&self, id: SessionId, filter: &str) {
        let Some(row) = self.sessions.get(id).and_then(|r| r.session.row()) else { return };
        row.write_buffer.record(Record::Unsubscribed { session: row.key, filter: filter.into() });
    }
}
