//! Recovery rebuilds the sessions and queues of the broker's end from the store.

pub mod placement;

use crate::access::grant::SessionRules;
use crate::access::identity::{Identity, IdentitySource};
use crate::login::access_rules::AccessRules;
use crate::login::acl_files::RuleSource;
use crate::mqtt::packet::QoS;
use crate::mqtt::topic::TopicFilter;
use crate::persistence::records::{
    BodyNumber, EntryNumber, ReadEntry, RecoveredBody, RecoveredEntry, RecoveredSession, StoredAccess,
    StoredSession,
};
use crate::persistence::rows::{Body, SessionRow};
use crate::persistence::write_buffer::WriteBuffer;
use crate::routing::shared_group::Presence;
use crate::routing::subscription_tree::PackedOptions;
use crate::session::Session;
use crate::session::drops::{DropReason, Dropped};
use crate::session::objectives::DeliveryMark;
use crate::session::outbound::delivery::Delivery;
use crate::session::outbound::sender::Sender;
use crate::shard::clients::session_entry::SessionEntry;
use crate::shard::core::Core;
use crate::shard::subscriptions::routes::Routes;
use crate::slots::SessionId;
use crate::time::Instant;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Entries that were in flight, with the messages that were read back.
pub type InFlightRead = HashMap<EntryNumber, ReadEntry, FixedState>;

type Bodies = HashMap<BodyNumber, Rc<Body>, FixedState>;

/// The recovery of one shard: the values that all its sessions need.
struct SessionRecovery<'a> {
    now: Instant,
    /// The known downtime of the broker.
    down: Duration,
    write_buffer: &'a Rc<WriteBuffer>,
    bodies: Bodies,
    in_flight: InFlightRead,
}

/// Adds the recovered sessions to this shard. `down` is the known downtime of the broker.
/// `orphaned` has the deliveries that ended sessions left in the store.
///
/// No recovered session has a connection. The expiry of a session that was connected counts from
/// the time when the broker ended. Its will is published after the will delay, counted from now,
/// unless the client returns before. When the client returns, packets in flight are sent again with
/// the same identifiers and in the same order. DUP is set for each: the socket may have taken it.
pub(crate) fn recover(
    now: Instant,
    down: Duration,
    sessions: impl Iterator<Item = RecoveredSession>,
    orphaned: Vec<RecoveredEntry>,
    in_flight: InFlightRead,
    routes: &mut Routes,
    core: &mut Core,
) {
    // Without a store there is nothing to recover.
    let Some(write_buffer) = core.durability.write_buffer().cloned() else { return };
    let bodies = Bodies::default();
    let mut recovery = SessionRecovery { now, down, write_buffer: &write_buffer, bodies, in_flight };
    let left = orphaned.into_iter().filter_map(|entry| {
        let body = body(&write_buffer, &mut recovery.bodies, entry.body?);
        write_buffer.known_entry(entry.number, Some(body)).page_out()
    });
    let left = left.collect();
    routes.leave_orphans(now, left, core);
    for recovered in sessions {
        recovery.session(recovered, routes, core);
    }
}

impl SessionRecovery<'_> {
    /// Adds one session, with its subscriptions and its deliveries.
    fn session(&mut self, recovered: RecoveredSession, routes: &mut Routes, core: &mut Core) {
        let SessionRecovery { now, down, write_buffer, ref mut bodies, ref mut in_flight } = *self;
        let RecoveredSession { session: stored, subscriptions, incoming, mut entries } = recovered;
        let user = user_of(&stored);
        let name = core.access.name_in_redelivery_rules(user.as_deref());
        let redelivery = core.sessions.redelivery_of(&stored.client_id, name);
        let mut session = Session::new(&stored.client_id, stored.expiry, redelivery);
        session.version = stored.version;
        session.set_row(SessionRow::new(stored.key, Rc::clone(write_buffer)));
        session.restore_requested_times(stored.retry_interval, stored.ack_timeout);
        incoming.into_iter().for_each(|id| session.receiver.restore(id));
        // The entries of the window come first, then those of the queue, each in their order.
        entries.sort_by_key(|e| (e.flight.is_none(), e.flight.map(|f| f.running), e.number));
        for entry in entries {
            let body = entry.body.map(|b| body(write_buffer, bodies, b));
            let message = in_flight.remove(&entry.number);
            if restore(&mut session, write_buffer, &entry, body, message).is_none() {
                core.counters.drops.lose(Dropped::new(DropReason::Unreadable, None));
            }
        }
        let was_connected = stored.connected;
        let (ends, will_due) = deadlines(now, down, &stored, session.expiry_interval());
        session.will = stored.will;
        core.shared.totals.sessions.add(1);
        let mut entry = SessionEntry::new(session, ends, will_due);
        entry.find_objectives(&core.counters.objectives);
        restore_user(&mut entry, user, &stored.access, &mut core.access);
        let id = core.sessions.insert(entry);
        core.report_drops(id);
        for subscription in subscriptions {
            let options = PackedOptions::from_bits(subscription.options);
            restore_subscription(
                id,
                &subscription.filter,
                options,
                subscription.subscription_id,
                routes,
                core,
            );
        }
        if let Some(session_entry) = core.sessions.get(id)
            && let Some(row) = session_entry.session.row()
        {
            row.recorded.set(session_entry.hash_of_terms());
        }
        if was_connected {
            // If the broker ends again, the client's absence must count from this start. The other
            // sessions did not change, and on a full disk there may be no room to write all of them
            // again.
            core.record_session(id);
        }
        core.sessions.register(id, &mut core.effects);
    }
}

/// Returns the user of a stored session.
fn user_of(stored: &StoredSession) -> Option<Arc<Identity>> {
    // The proof of a verified name does not matter: it is not asked for without a connection.
    let owner = stored.user_name.as_deref().map(|name| Identity::new(name, IdentitySource::Password));
    let claimed = stored.access.claimed_name.as_deref();
    owner.or_else(|| Some(Identity::new(claimed?, IdentitySource::Claim))).map(Arc::new)
}

/// Gives a session its stored user and rules, so that its messages are judged as before.
fn restore_user(
    entry: &mut SessionEntry,
    user: Option<Arc<Identity>>,
    stored: &StoredAccess,
    access: &mut AccessRules,
) {
    entry.set_user(user);
    entry.set_mount_point(stored.mount_point.as_ref().and_then(|text| text.parse().ok()).map(Arc::new));
    entry.set_rule_source(RuleSource::of_name(stored.listener.as_deref()));
    if let Some(rules) = &stored.rules {
        let rules = SessionRules::of_text(rules);
        access.note_own_rules(&rules);
        entry.set_own_rules(Some(rules));
    }
}

fn restore_subscription(
    id: SessionId,
    full: &str,
    options: PackedOptions,
    identifier: u32,
    routes: &mut Routes,
    core: &mut Core,
) {
    // The filter was checked when the client subscribed.
    let Ok(filter) = TopicFilter::parse(full, usize::MAX) else { return };
    if let Some(session_entry) = core.sessions.get_mut(id) {
        session_entry.session.subscriptions.insert(full);
    }
    // A member of a shared group joins offline. When its client returns, one message to the peers
    // changes its presence in all its groups. A message for each filter would cost the square of
    // the number of filters.
    routes.insert_filter(id, &filter, options, identifier, Presence::Offline, core);
}

fn body(write_buffer: &Rc<WriteBuffer>, bodies: &mut Bodies, known: RecoveredBody) -> Rc<Body> {
    let RecoveredBody { number, size, expires } = known;
    let body = bodies.entry(number).or_insert_with(|| write_buffer.known_body(number, size, expires));
    Rc::clone(body)
}

/// Puts one entry back into the window or the queue. Returns `None` if the message of the entry
/// could not be read.
fn restore(
    session: &mut Session,
    write_buffer: &Rc<WriteBuffer>,
    entry: &RecoveredEntry,
    body: Option<Rc<Body>>,
    read: Option<ReadEntry>,
) -> Option<()> {
    let has_body = body.is_some();
    let stored = write_buffer.known_entry(entry.number, body);
    let Sender { window, queue, .. } = &mut session.sender;
    match (entry.flight, has_body) {
        (None, _) => queue.or_create().restore(stored.page_out()?, entry),
        (Some(flight), false) if flight.is_withheld() => {
            window.or_create().restore_withheld(stored, flight);
        }
        (Some(flight), false) if entry.qos == QoS::ExactlyOnce => {
            window.or_create().restore_release(stored, flight);
        }
        (Some(flight), _) => {
            let ReadEntry { message, qos, retain, ids, share, .. } = read?;
            let delivery =
                Delivery { message, ids, qos, retain, mark: DeliveryMark::NONE, share, stored: Some(stored) };
            window.or_create().restore(delivery, flight);
        }
    }
    Some(())
}

/// Returns the time at which the session ends, and the time at which its will is published.
fn deadlines(now: Instant, down: Duration, stored: &StoredSession, expiry: Duration) -> (Instant, Instant) {
    if !stored.connected {
        return (stored.ends, stored.will_due);
    }
    let ends = if expiry == Duration::MAX { Instant::NEVER } else { now + expiry.saturating_sub(down) };
    let will_due = stored.will.as_ref().map_or(Instant::NEVER, |will| now + will.delay.min(expiry));
    (ends, will_due)
}

/// Returns the entries that were in flight. A recovery needs their messages at once.
pub fn in_flight(sessions: &[RecoveredSession]) -> Vec<(EntryNumber, BodyNumber)> {
    let entries = sessions.iter().flat_map(|s| &s.entries).filter(|e| e.flight.is_some());
    entries.filter_map(|e| Some((e.number, e.body?.number))).collect()
}
