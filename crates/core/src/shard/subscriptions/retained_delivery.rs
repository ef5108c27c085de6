//! Searches and queues the retained messages behind a SUBACK.
//!
//! This is done in portions ([`AT_ONCE`]). If one turn is not enough, later turns continue, and the
//! connection is paused meanwhile. Which filters get any is decided before, by Retain Handling
//! (`sends_retained` in [`crate::session::subscriptions`]). A message that is retained after the
//! subscription was inserted arrives live, so the search leaves it out
//! ([`crate::routing::retained_order`]). The limits of the session hold for such a live message,
//! and the search does not bring back a dropped one.
//!
//! In the client's stream SUBACK is first. Live messages that were queued before a portion are
//! ahead of its retained messages, later ones are behind them. To a stored session SUBACK promises
//! the retained messages, so SUBACK waits in the outbox until the last portion is committed.

use crate::mqtt::message::Message;
use crate::mqtt::packet::QoS;
use crate::mqtt::retained_message::RetainedSource;
use crate::mqtt::subscription_ids::SubscriptionIds;
use crate::peers::answer::{RetainedDelivery, RetainedRequest};
use crate::routing::retained::{Cursor, SearchProgress};
use crate::session::drops::{DropReason, Dropped};
use crate::session::objectives::DeliveryMark;
use crate::session::outbound::delivery::Delivery;
use crate::shard::Shard;
use crate::shard::admission::Change;
use crate::shard::core::Core;
use crate::shard::features::redelivery_request::granted_message;
use crate::shard::turn::work::Job;
use crate::slots::SessionId;
use crate::time::Instant;
use std::sync::Arc;

/// Maximum number of retained messages that are searched under one lock.
const AT_ONCE: usize = 1_000;

/// Publications of the broker that one step looks at, for their marks.
const OWN_LOOKED_AT: usize = 64;

/// Bytes of retained messages that are written to the outbox for one step.
const SENT_BYTES: usize = 64;

impl RetainedDelivery {
    /// Continues with the retained messages of a SUBSCRIBE. Returns the job that is left. The
    /// session gets all of them, even if its connection is gone or replaced, because the client may
    /// have read SUBACK.
    pub(crate) fn go_on(mut self: Box<Self>, now: Instant, shard: &mut Shard) -> Option<Job> {
        let is_left = |this: &RetainedDelivery, shard: &Shard| {
            this.next < this.requests.len() && shard.core.sessions.get(this.session).is_some()
        };
        while is_left(&self, shard) {
            self.queue_retained(now, shard);
            if shard.core.turn.is_over() {
                break;
            }
        }
        self.send_retained(now, shard);
        if is_left(&self, shard) {
            return Some(Job::Retained(self));
        }
        if self.is_gated
            && let Some(write_buffer) = shard.core.durability.write_buffer()
        {
            // All deliveries are recorded, the last ones in the open batch. SUBACK may leave when
            // this batch is committed.
            write_buffer.begin();
            let lsn = write_buffer.lsn();
            if let Some(connection) = shard.core.connections.get_mut(self.connection) {
                connection.wire.outbox.release(lsn);
            }
            shard.core.connections.touch(self.connection, &mut shard.core.effects);
        }
        None
    }

    /// Queues the next portion of matching retained messages. They may go beyond the limit of the
    /// queue, by as many messages as are retained at all ([`Self::queue_found`]): each is only a
    /// reference. The window and the outbox pace them.
    // 3.1.1 [MQTT-3.3.1-8]
    fn queue_retained(&mut self, now: Instant, shard: &mut Shard) {
        let Shard { core, routes, fans, .. } = shard;
        // All requests are complete.
        let Some(request) = self.requests.get(self.next) else { return };
        let mut found = Vec::new();
        // A matching message costs up to four steps: one to find it, and three to store it. The
        // rules may decide about its source and about its receiver.
        let steps = 4 + core.access.most_steps("").saturating_mul(2);
        let most = AT_ONCE.min((core.turn.left() / steps).max(1) as usize);
        let mut left = most;
        core.turn.spend((fans.own() / OWN_LOOKED_AT) as u32);
        let waiting = fans.own_set_marks();
        let order = &routes.retained_order;
        let comes_live = |mark| {
            order.comes_live(mark, request.inserted, &self.reading) || waiting.binary_search(&mark).is_ok()
        };
        // All shards share the lock. Portions keep the time short for which other shards wait for
        // it.
        let retained = core.shared.retained();
        let (filter, cursor) = (&request.filter, &mut self.cursor);
        let progress = retained.search_from(cursor, filter, now, &mut left, |message, mark| {
            if !comes_live(mark) {
                found.push(message.clone());
            }
        });
        let sources = core.access.checks_retain_source().then(|| retained.sources(&found));
        drop(retained);
        drop_without_source(&mut found, sources.unwrap_or_default(), core);
        core.turn.spend(1 + (most - left) as u32);
        if progress == SearchProgress::Done {
            let connection = core.sessions.get(self.session).and_then(|r| r.connection);
            found.extend(connection.and_then(|id| granted_message(id, &request.filter, core)));
        }
        self.queue_found(request, found, core);
        if progress == SearchProgress::Done {
            self.next += 1;
            self.cursor = Cursor::default();
        }
    }

    /// Queues the messages that a portion found. Drops and counts those without room.
    fn queue_found(&self, request: &RetainedRequest, mut found: Vec<Message>, core: &mut Core) {
        let all = core.shared.retained().len();
        drop_beyond_room(self.session, request.qos, &mut found, core);
        let Core { sessions, access, settings, counters, turn, .. } = &mut *core;
        // The session has ended since SUBACK.
        let Some(session_entry) = sessions.get_mut(self.session) else { return };
        if access.are_on() {
            found.retain(|message| session_entry.may_read(access, message.topic(), turn));
        }
        // A delivery to a stored session is also a row in the store.
        let steps = if session_entry.session.row().is_some() { 3 } else { 1 };
        turn.spend(found.len() as u32 * steps);
        // A client may subscribe again and again without acknowledging anything. This bound lets it
        // queue each retained message only once.
        let most = session_entry.queue_limits(&settings.session.send).messages + all;
        let room = most.saturating_sub(session_entry.session.sender.queue.len());
        let beyond = found.split_off(room.min(found.len()));
        for message in beyond {
            counters.drops.lose(Dropped::unsent(DropReason::QueueRefused, message));
        }
        for message in found {
            let qos = message.header().qos.min(request.qos);
            let ids = SubscriptionIds::from_index(request.subscription_id);
            let mark = DeliveryMark::NONE.or_traced(message.audit());
            let mut delivery = Delivery { message, ids, qos, retain: true, mark, share: None, stored: None };
            if qos != QoS::AtMostOnce {
                delivery.record(session_entry.session.row(), &mut None, None);
            }
            let head = session_entry.head();
            session_entry.session.sender.queue.or_create().append(delivery, head);
        }
        core.report_drops(self.session);
    }

    /// Sends as many queued messages as the window and the outbox take.
    fn send_retained(&self, now: Instant, shard: &mut Shard) {
        // If the client is away, it gets the messages when it returns.
        let Some(mut client) = shard.core.client_of(self.session) else { return };
        let written = client.pump(now);
        shard.core.turn.spend((written / SENT_BYTES) as u32);
        shard.after_session_change(now, self.session);
    }
}

/// Drops the messages in `found` whose source may no longer publish to their topic. `sources` has
/// the source of each message, or is empty. The messages stay retained: the rules may change again.
fn drop_without_source(found: &mut Vec<Message>, sources: Vec<Option<Arc<RetainedSource>>>, core: &mut Core) {
    if sources.iter().all(Option::is_none) {
        return;
    }
    let Core { access, turn, .. } = core;
    let mut sources = sources.into_iter();
    found.retain(|message| {
        let source = sources.next().flatten();
        source.is_none_or(|source| turn.decide(access.admits_source(&source, message.topic())))
    });
}

/// Drops and counts the messages in `found` for which there is no memory or disk. Each message
/// takes a place of some 50 bytes in the queue, although its content is shared. In the store each
/// is a row of its own.
///
/// The subscription stays in force. A client that subscribes again at each return must not be
/// refused because the broker has no room for retained messages.
fn drop_beyond_room(session: SessionId, qos: QoS, found: &mut Vec<Message>, core: &mut Core) {
    if !core.shared.is_short() {
        return;
    }
    let (is_stored, mut bytes) = (core.sessions.is_stored(session), 0);
    for message in std::mem::take(found) {
        let stored = is_stored && message.header().qos.min(qos) != QoS::AtMostOnce;
        let more = if stored { bytes + message.size() } else { bytes };
        match core.admits(Change::Recall { bytes: more, stored }) {
            Ok(()) => {
                bytes = more;
                found.push(message);
            }
            Err(want) => core.counters.drops.lose(Dropped::unsent(want.cause(), message)),
        }
    }
}
