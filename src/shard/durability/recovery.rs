//! What the store had: sessions as they were when the broker ended.

use crate::mqtt::packet::QoS;
use crate::mqtt::topic::TopicFilter;
use crate::persistence::records::{
    BodyNumber, EntryNumber, ReadEntry, RecoveredBody, RecoveredEntry, RecoveredSession, StoredSession,
};
use crate::persistence::rows::{Body, SessionRow};
use crate::persistence::write_buffer::WriteBuffer;
use crate::routing::shared_group::Presence;
use crate::routing::subscription_tree::PackedOptions;
use crate::session::Session;
use crate::session::drops::{DropReason, Dropped};
use crate::session::outbound::queue::Delivery;
use crate::shard::Shard;
use crate::shard::session_entry::SessionEntry;
use crate::shard::slots::SessionId;
use crate::time::Instant;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::rc::Rc;
use std::time::Duration;

/// What was in flight, read back with its messages.
pub type InFlightRead = HashMap<EntryNumber, ReadEntry, FixedState>;

type Bodies = HashMap<BodyNumber, Rc<Body>, FixedState>;

impl Shard {
    /// Takes up the sessions that live here, after [`Shard::keep_in_store`]. `down`: how long the
    /// broker was, as far as is known.
    ///
    /// `orphaned`: what sessions that had ended left behind.
    ///
    /// Every session is without a connection: one that had one expires from when the broker ended,
    /// and its will goes out unless the client is back within the will delay from now. What was
    /// sent is sent again with DUP at its return, with the same identifiers in the same order.
    pub fn recover(
        &mut self,
        now: Instant,
        down: Duration,
        sessions: Vec<RecoveredSession>,
        orphaned: Vec<RecoveredEntry>,
        mut in_flight: InFlightRead,
    ) {
        let Some(write_buffer) = self.write_buffer().cloned() else { return };
        let mut bodies = Bodies::default();
        let left = orphaned.into_iter().filter_map(|entry| {
            let body = body(&write_buffer, &mut bodies, entry.body?);
            write_buffer.known_entry(entry.number, Some(body)).park()
        });
        self.leave_orphans(now, left.collect());
        for recovered in sessions {
            self.recover_session(now, down, recovered, &write_buffer, &mut bodies, &mut in_flight);
        }
    }

    fn recover_session(
        &mut self,
        now: Instant,
        down: Duration,
        recovered: RecoveredSession,
        write_buffer: &Rc<WriteBuffer>,
        bodies: &mut Bodies,
        in_flight: &mut InFlightRead,
    ) {
        let RecoveredSession { session: stored, subscriptions, incoming, mut entries } = recovered;
        // The user is not in the store: rules that name one hold again from the next CONNECT, and
        // not for what is given up before.
        let redelivery = self.rules.resolve(&stored.client_id, None);
        let mut session = Session::new(&stored.client_id, stored.expiry, redelivery);
        session.version = stored.version;
        session.set_row(SessionRow::new(stored.key, Rc::clone(write_buffer)));
        session.restore_requested_times(stored.retry_interval, stored.ack_timeout);
        incoming.into_iter().for_each(|id| session.receiver.restore(id));
        // Window before queue, each in its order.
        entries.sort_by_key(|e| (e.flight.is_none(), e.flight.map(|f| f.running), e.number));
        for entry in entries {
            let body = entry.body.map(|b| body(write_buffer, bodies, b));
            let message = in_flight.remove(&entry.number);
            if restore(now, &mut session, write_buffer, &entry, body, message).is_none() {
                self.counters.drops.lose(Dropped::new(DropReason::Unreadable, None));
            }
        }
        let was_connected = stored.connected;
        let (ends, will_due) = deadlines(now, down, &stored, session.expiry_interval());
        session.will = stored.will;
        self.shared.totals.sessions.add(1);
        let id = self.insert_session(SessionEntry::new(session, ends, will_due));
        self.report_drops(id);
        for subscription in subscriptions {
            let options = PackedOptions::from_bits(subscription.options);
            self.restore_subscription(id, &subscription.filter, options, subscription.subscription_id);
        }
        if let Some(session_entry) = self.sessions.get(id)
            && let Some(row) = session_entry.session.row()
        {
            row.recorded.set(session_entry.hash_of_terms());
        }
        if was_connected {
            // Counted from here should the broker end again. Of the others nothing has changed: on
            // a full disk there may be no room to write it all again.
            self.record_session(id);
        }
        self.register_session(id);
    }

    fn restore_subscription(&mut self, id: SessionId, full: &str, options: PackedOptions, identifier: u32) {
        let Ok(filter) = TopicFilter::parse(full, usize::MAX) else { return };
        if let Some(session_entry) = self.sessions.get_mut(id) {
            session_entry.session.subscriptions.insert(full);
        }
        match filter.share_name {
            // Entered as offline: to tell peers of it again for each filter would be quadratic in
            // the filters.
            Some(group) => {
                self.enter_group(id, group, filter.filter, options, identifier, Presence::Offline);
            }
            None => self.enter_index(id, filter.filter, options, identifier),
        }
    }
}

fn body(write_buffer: &Rc<WriteBuffer>, bodies: &mut Bodies, known: RecoveredBody) -> Rc<Body> {
    let RecoveredBody { number, size, expires } = known;
    let body = bodies.entry(number).or_insert_with(|| write_buffer.known_body(number, size, expires));
    Rc::clone(body)
}

/// Puts one entry where it was; `None` where its message should have been read and was not.
fn restore(
    now: Instant,
    session: &mut Session,
    write_buffer: &Rc<WriteBuffer>,
    entry: &RecoveredEntry,
    body: Option<Rc<Body>>,
    read: Option<ReadEntry>,
) -> Option<()> {
    let has_body = body.is_some();
    let stored = write_buffer.known_entry(entry.number, body);
    match (entry.flight, has_body) {
        (None, _) => session.sender.restore_queued(stored.park()?, entry.shared, entry.ids),
        (Some(flight), false) if entry.qos == QoS::ExactlyOnce => {
            session.sender.restore_release(now, stored, flight);
        }
        (Some(flight), _) => {
            let ReadEntry { message, qos, retain, ids, share, .. } = read?;
            let delivery = Delivery { message, ids, qos, retain, share, stored: Some(stored) };
            session.sender.restore_sent(now, delivery, flight);
        }
    }
    Some(())
}

/// When the session ends and when its will goes out.
fn deadlines(now: Instant, down: Duration, stored: &StoredSession, expiry: Duration) -> (Instant, Instant) {
    if !stored.connected {
        return (stored.ends, stored.will_due);
    }
    let ends = if expiry == Duration::MAX { Instant::NEVER } else { now + expiry.saturating_sub(down) };
    let will_due = stored.will.as_ref().map_or(Instant::NEVER, |will| now + will.delay.min(expiry));
    (ends, will_due)
}

/// Entries whose messages [`Shard::recover`] needs: those that were in flight.
pub fn in_flight(sessions: &[RecoveredSession]) -> Vec<(EntryNumber, BodyNumber)> {
    let entries = sessions.iter().flat_map(|s| &s.entries).filter(|e| e.flight.is_some());
    entries.filter_map(|e| Some((e.number, e.body?.number))).collect()
}
