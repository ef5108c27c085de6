//! The sending half of a session: from its queue into its in-flight window and onto the wire, and again.

use super::inflight::{InFlight, Quota, Received, Release, Unacked};
use super::loss::{LossCause, Losses, Lost};
use super::queue::{Delivery, Full, Head, Queue, QueueLimits, Unread};
use super::retry::{OnExhausted, RetryPolicy};
use super::rules::Rule;
use super::seldom::Seldom;
use super::stall::{SocketView, Stall, StallCause};
use super::terms::{SessionTerms, Terms};
use super::wire::{Sending, Wire};
use crate::journal::ledger::{Entry, Parked};
use crate::journal::record::{BodyNumber, EntryNumber, Flight, ReadEntry};
use crate::mqtt::charge::{Recount, Recounted};
use crate::mqtt::codec::AckKind;
use crate::mqtt::message::Message;
use crate::mqtt::packet::{PacketId, QoS, ReasonCode};
use crate::time::Instant;
use std::sync::Arc;

/// Windows of unfinished messages that a session may have over all its connections.
const CARRIED_OVER: usize = 4;

/// Unfinished messages at most, so that of the 65,535 identifiers some are always free.
const MOST_UNFINISHED: usize = 60_000;

/// What the operator settled for all sessions.
#[derive(Clone, Debug)]
pub struct SendPolicy {
    /// Bounds of a queue that is in memory alone.
    pub queue: QueueLimits,
    /// Bounds of a queue that is in the store; its policy is that of `queue`.
    pub stored_queue: QueueLimits,
    /// What holds of redelivery where no rule says otherwise; each session has its own [`SessionTerms`] of them.
    pub terms: Terms,
    pub rules: Vec<Rule>,
    /// Bytes in a connection's outbox beyond which QoS 0 is dropped and QoS 1 and 2 wait in the queue.
    pub outbox: usize,
    /// Unfinished deliveries per session at most.
    pub in_flight: u16,
}

/// What was done, for the counters.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// PUBLISH packets written.
    pub sent: u64,
    /// PUBLISH and PUBREL packets written again, live and at reconnect.
    pub redelivered: u64,
    /// Times that a connection was found to stall: an acknowledgement was overdue.
    pub stalled: u64,
    /// Connections cut for want of an acknowledgement.
    pub cut: u64,
    /// Acknowledgements of the wrong kind for what is in flight.
    pub contradictions: u64,
    /// Dead letters published.
    pub dead_letters: u64,
    /// CONNECTs refused for want of room: sessions, memory, disk.
    pub refused_connects: u64,
    /// Filters of SUBSCRIBE packets refused for the same.
    pub refused_subscriptions: u64,
    pub losses: Losses,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.sent += other.sent;
        self.redelivered += other.redelivered;
        self.stalled += other.stalled;
        self.cut += other.cut;
        self.contradictions += other.contradictions;
        self.dead_letters += other.dead_letters;
        self.refused_connects += other.refused_connects;
        self.refused_subscriptions += other.refused_subscriptions;
        self.losses.merge(&other.losses);
    }
}

/// What became of the packets whose time had come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retransmission {
    pub publishes: u32,
    pub releases: u32,
    /// The first of them, this transmission included.
    pub resent: Option<Stall>,
    /// The first of them that goes on though it had been sent as often as allowed.
    pub kept: Option<Stall>,
    /// The first that is not even with the peer's kernel: the network holds it, and no attempt was counted.
    pub network: Option<Stall>,
    /// The first packet that was sent as often as allowed, where that means that the connection is to be closed.
    pub exhausted: Option<Stall>,
    /// Messages that were sent as often as allowed, and given up.
    pub given_up: u32,
}

impl Retransmission {
    /// One that is about to be sent for the `attempts + 1`-th time again.
    fn note(&mut self, found: Stall, attempts: u16, view: SocketView, retry: &RetryPolicy) {
        let stall = Stall { transmissions: found.transmissions.saturating_add(1), view, ..found };
        self.resent.get_or_insert(stall);
        if retry.attempts > 0 && attempts == retry.attempts {
            self.kept.get_or_insert(stall);
        }
    }
}

/// Queue and window of one session.
#[derive(Debug)]
pub struct Sender {
    pub(super) window: Seldom<InFlight>,
    queue: Seldom<Queue>,
    pub(super) terms: Arc<SessionTerms>,
}

impl Sender {
    pub fn new(terms: Arc<SessionTerms>) -> Sender {
        Sender { window: Seldom::default(), queue: Seldom::default(), terms }
    }

    pub fn terms(&self) -> &Arc<SessionTerms> {
        &self.terms
    }

    /// The client is known: what holds for its messages from here on, those in flight among them.
    pub fn set_terms(&mut self, terms: Arc<SessionTerms>) {
        if !Arc::ptr_eq(&self.terms, &terms) && !self.window.is_empty() {
            self.window.forget_rules();
        }
        self.terms = terms;
    }

    /// Whether a new QoS 1 or 2 message can go out at once: nothing older waits, and window and outbox have room.
    pub fn is_clear(&self, wire: &Wire, policy: &SendPolicy) -> bool {
        self.queue.get().is_none_or(Queue::is_empty)
            && !self.window.has_unsent()
            && self.has_quota(wire, policy)
            && wire.outbox.len() < policy.outbox
    }

    /// Whether a QoS 0 message must go behind others in the queue to keep its order.
    pub fn holds_at_most_once(&self) -> bool {
        self.queue.get().is_some_and(Queue::has_at_most_once)
    }

    /// Takes a message into the window whose packet the caller writes now; answers its place there. Only when
    /// [`Self::is_clear`].
    pub fn begin(&mut self, now: Instant, delivery: Delivery, wire: &Wire) -> &mut Unacked {
        let due = self.terms.first_due(now, &delivery.message, wire);
        self.window.push(now, delivery, due)
    }

    /// The packet of the message taken in last is written: notes where it ends.
    pub fn written(&mut self, end_offset: u64) {
        if let Some(last) = self.window.last_sent() {
            last.end_offset = end_offset;
        }
    }

    /// The message taken in last could not be written after all.
    pub fn undo(&mut self, id: PacketId) -> Option<Message> {
        let undone = self.window.acknowledge(id).or_else(|| self.window.reject(id));
        undone.map(|p| p.delivery.message)
    }

    /// Puts a delivery behind all others.
    ///
    /// # Errors
    /// [`Full`], as [`Queue::push`] says.
    pub fn enqueue(
        &mut self,
        now: Instant,
        delivery: Delivery,
        head: Head,
        limits: &QueueLimits,
        losses: &mut Losses,
    ) -> Result<(), Full> {
        self.queue.push(now, delivery, head, limits, losses)
    }

    /// Whether the queue takes a message of this size, once what has expired is gone.
    pub fn make_room(
        &mut self,
        now: Instant,
        size: usize,
        limits: &QueueLimits,
        losses: &mut Losses,
    ) -> bool {
        self.queue.has_room(size, limits) || self.queue.make_room(now, size, limits, losses)
    }

    /// The same without a change: true also where something has expired, and room may come of that.
    pub fn may_have_room(&self, now: Instant, size: usize, limits: &QueueLimits) -> bool {
        self.queue.has_room(size, limits) || self.queue.may_have_expired(now)
    }

    /// Whether something waits that [`Self::pump`] may send.
    pub fn has_waiting(&self) -> bool {
        self.queue.get().is_some_and(|q| !q.is_empty()) || self.window.has_unsent()
    }

    /// Puts a delivery behind all others, whatever the limits: retained messages at a SUBSCRIBE.
    pub fn enqueue_retained(&mut self, delivery: Delivery) {
        self.queue.append(delivery, Head::Online);
    }

    /// What the store had of this session, one by one in the order of their numbers: a delivery that waits,
    pub fn restore_queued(&mut self, entry: Parked, shared: bool) {
        self.queue.restore(entry, shared);
    }

    /// one that was sent,
    pub fn restore_sent(&mut self, now: Instant, delivery: Delivery, flight: Flight) {
        self.window.restore(now, delivery, flight);
    }

    /// and one of which the client has the message and PUBCOMP is still to come.
    pub fn restore_release(&mut self, now: Instant, entry: Box<Entry>, flight: Flight) {
        self.window.restore_release(now, entry, flight);
    }

    /// Whether it is time to read entries back from the store.
    pub fn wants_page(&self) -> bool {
        self.queue.get().is_some_and(Queue::wants_page)
    }

    /// A page is wanted, and there is none for now. Whether this is said for the first time.
    pub fn wait_for_page(&mut self) -> bool {
        self.queue.wait_for_page()
    }

    /// It may be asked for.
    pub fn page_waited_for(&mut self) {
        self.queue.page_waited_for();
    }

    /// Entries to read back from the store, if it is time.
    pub fn next_page(&mut self) -> Option<Vec<(EntryNumber, BodyNumber)>> {
        // An empty queue is not allocated for being asked.
        if self.queue.get().is_none_or(Queue::is_empty) { None } else { self.queue.next_page() }
    }

    /// They came.
    pub fn take_page(
        &mut self,
        wanted: &[(EntryNumber, BodyNumber)],
        read: Vec<ReadEntry>,
        losses: &mut Losses,
    ) {
        self.queue.take_page(wanted, read, losses);
    }

    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Bytes of the messages that wait, each in full.
    pub fn queued_bytes(&self) -> usize {
        self.queue.bytes()
    }

    pub fn in_flight(&self) -> usize {
        self.window.len()
    }

    /// The connection is gone; `written`: bytes that its socket took.
    pub fn end_connection(&mut self, written: u64) {
        if !self.window.is_empty() {
            self.window.end_connection(written);
        }
    }

    /// A connection began: PUBRELs go out at once, outside the quota; PUBLISHes follow with [`Self::pump`].
    // 3.1.1 and 5.0 [MQTT-4.4.0-1]
    pub fn resume(&mut self, now: Instant, wire: &mut Wire, tally: &mut Tally) {
        if self.window.is_empty() && self.window.quota_used() == 0 {
            return;
        }
        self.window.begin_connection();
        for release in self.window.releases() {
            tally.redelivered += 1;
            write_release(now, release, wire, &self.terms.under(release.matched));
        }
    }

    /// Sends what window, outbox and the client's limits allow: first what was in flight before this connection, as it
    /// was, then the queue.
    pub fn pump(&mut self, now: Instant, wire: &mut Wire, policy: &SendPolicy, tally: &mut Tally) {
        while self.window.has_unsent() {
            if !self.has_quota(wire, policy) || wire.outbox.len() >= policy.outbox {
                return;
            }
            self.resend_carried_over(now, wire, tally);
        }
        while let Some(front) = self.queue.front() {
            if wire.outbox.len() >= policy.outbox {
                return;
            }
            if front.message.is_expired(now) {
                // 5.0 [MQTT-3.3.2-5]
                let expired = self.queue.pop();
                tally.losses.lose(Lost::new(LossCause::Expired, expired.map(|d| d.message)));
                continue;
            }
            if front.qos != QoS::AtMostOnce && !self.has_quota(wire, policy) {
                return;
            }
            if let Some(delivery) = self.queue.pop() {
                self.send(now, delivery, wire, tally);
            }
        }
    }

    /// PUBACK: whether it finished a message. The code of a 5.0 client may be negative.
    pub fn acknowledge(&mut self, id: PacketId, reason: ReasonCode, losses: &mut Losses) -> bool {
        let Some(mut finished) = self.window.acknowledge(id) else { return false };
        if let Some(entry) = finished.delivery.stored.as_mut().filter(|_| !reason.is_error()) {
            entry.done();
        }
        if reason.is_error() {
            losses.lose(finished.lost(LossCause::NegativelyAcknowledged, Some(reason)));
        }
        true
    }

    /// PUBREC: answers with PUBREL where the exchange is known. Returns whether it is.
    pub fn receive(
        &mut self,
        now: Instant,
        id: PacketId,
        reason: ReasonCode,
        wire: &mut Wire,
        losses: &mut Losses,
    ) -> bool {
        if reason.is_error() {
            let Some(finished) = self.window.reject(id) else { return false };
            losses.lose(finished.lost(LossCause::NegativelyAcknowledged, Some(reason)));
            return true;
        }
        let topic = if self.terms.differ_by_topic() { self.window.topic(id) } else { None };
        let matched = topic.map(|topic| self.terms.matched(topic));
        match self.window.receive(id) {
            Received::Release | Received::Again => {
                if let Some(release) = self.window.release_mut(id) {
                    release.matched = matched.unwrap_or(release.matched);
                    write_release(now, release, wire, &self.terms.under(release.matched));
                }
                true
            }
            Received::Unknown => false,
        }
    }

    /// The acknowledgement that the packet sent under this identifier waits for, if it is not one of the kind `came`,
    /// which finished nothing. A PUBREC that is repeated while PUBCOMP is awaited is lawful.
    pub fn contradicts(&self, came: AckKind, id: PacketId) -> Option<AckKind> {
        let awaited = self.window.get()?.awaited(id)?;
        (awaited != came && (came, awaited) != (AckKind::Pubrec, AckKind::Pubcomp)).then_some(awaited)
    }

    /// PUBCOMP: whether it finished a message.
    pub fn complete(&mut self, id: PacketId) -> bool {
        self.window.complete(id)
    }

    /// When the first packet is to be sent again.
    pub fn earliest_due(&self) -> Instant {
        self.window.earliest_due()
    }

    /// When the packets sent last are: an upper bound for what [`Self::earliest_due`] can have become by them.
    pub fn newest_due(&self) -> Instant {
        self.window.newest_due()
    }

    /// Sends again what is due, in order, a bounded number.
    ///
    /// `view` says how far the peer's kernel took the stream of this connection: what ends behind that is with the
    /// network, is not sent a second time, and counts no attempt; its time begins when it is first found with the peer.
    /// `outlives`: whether the session outlives the
    /// connection, so that closing it leads to a redelivery.
    pub fn retransmit(
        &mut self,
        now: Instant,
        view: SocketView,
        outlives: bool,
        wire: &mut Wire,
        policy: &SendPolicy,
        losses: &mut Losses,
    ) -> Retransmission {
        let Sender { window, terms, .. } = self;
        let (peer_has, mut done) = (view.peer_has(wire), Retransmission::default());
        let mut exhausted = Vec::new();
        let mut budget = terms.own.retry.resends_per_tick;
        // No older packet was sent again fewer times than this. 3.1.1 [MQTT-4.6.0-1], [MQTT-4.6.0-6]
        let mut floor = u16::MAX;
        // The tick's budget is spent: what is due waits for the next.
        let mut spent = false;
        for p in window.sent_publishes() {
            if p.due <= now {
                let terms = terms.of(p.delivery.message.topic());
                if peer_has < p.end_offset {
                    let stall = p.stall(now, StallCause::of_network(view));
                    done.network.get_or_insert(Stall { view, ..stall });
                    p.with_network = true;
                    p.due = terms.due(now, p.attempts, wire);
                } else if std::mem::take(&mut p.with_network) {
                    // It arrived since the last look: its time begins.
                    p.due = terms.due(now, p.attempts, wire);
                } else if terms.gives_up(p.transmissions) {
                    exhausted.push(p.number());
                    continue;
                } else if is_exhausted(p.attempts, outlives, &terms.retry) {
                    done.exhausted = Some(Stall { view, ..p.stall(now, StallCause::Application) });
                    break;
                } else if spent || budget == 0 || wire.outbox.len() >= policy.outbox {
                    spent = true;
                } else if floor > p.attempts {
                    budget -= 1;
                    done.publishes += 1;
                    done.note(p.stall(now, StallCause::Application), p.attempts, view, &terms.retry);
                    resend(now, p, wire, &terms);
                } else {
                    // An elder with a longer spacing is not there yet: a spacing later, for it may be acknowledged by then.
                    p.due = terms.due(now, p.attempts, wire);
                }
            }
            floor = floor.min(lowest(p.due, p.attempts));
        }
        for number in exhausted {
            if let Some(p) = window.give_up(number, Quota::Free) {
                done.given_up += 1;
                losses.lose(p.lost(LossCause::Exhausted, None));
            }
        }
        if done.exhausted.is_some() {
            return done;
        }
        floor = u16::MAX;
        for r in window.releases() {
            if r.due <= now {
                let terms = terms.under(r.matched);
                if peer_has < r.end_offset {
                    let stall = r.stall(now, StallCause::of_network(view));
                    done.network.get_or_insert(Stall { view, ..stall });
                    r.with_network = true;
                    r.due = terms.due(now, r.attempts, wire);
                } else if std::mem::take(&mut r.with_network) {
                    // It arrived since the last look: its time begins.
                    r.due = terms.due(now, r.attempts, wire);
                } else if is_exhausted(r.attempts, outlives, &terms.retry) {
                    done.exhausted = Some(Stall { view, ..r.stall(now, StallCause::Application) });
                    return done;
                } else if spent || budget == 0 || wire.outbox.len() >= policy.outbox {
                    spent = true;
                } else if floor > r.attempts {
                    budget -= 1;
                    done.releases += 1;
                    done.note(r.stall(now, StallCause::Application), r.attempts, view, &terms.retry);
                    r.attempts = r.attempts.saturating_add(1);
                    write_release(now, r, wire, &terms);
                } else {
                    r.due = terms.due(now, r.attempts, wire);
                }
            }
            floor = floor.min(lowest(r.due, r.attempts));
        }
        done
    }

    /// Gives up a message that its receiver has and does not acknowledge.
    pub(super) fn give_up(&mut self, number: u64, quota: Quota, losses: &mut Losses) {
        if let Some(p) = self.window.give_up(number, quota) {
            losses.lose(p.lost(LossCause::Exhausted, None));
        }
    }

    /// The session ends: what is not finished, oldest first, unsent or not, and what the store alone has.
    pub fn drain(&mut self) -> (impl Iterator<Item = Unacked>, impl Iterator<Item = Delivery>, Unread) {
        let (queued, unread) = self.queue.drain();
        (self.window.drain_publishes(), queued, unread)
    }

    /// Whether another PUBLISH may go out: within the client's Receive Maximum, and within what one session may leave
    /// unfinished over all its connections. PUBRELs carried over hold no quota, so a client that never sends PUBCOMP would
    /// else use up the identifiers.
    fn has_quota(&self, wire: &Wire, policy: &SendPolicy) -> bool {
        let most = (usize::from(policy.in_flight) * CARRIED_OVER).min(MOST_UNFINISHED);
        self.window.quota_used() < usize::from(wire.window)
            && (self.window.has_unsent() || self.window.len() < most)
    }

    fn resend_carried_over(&mut self, now: Instant, wire: &mut Wire, tally: &mut Tally) {
        let Some(p) = self.window.first_unsent() else { return };
        // 3.1.1 and 5.0 [MQTT-3.3.1-1]; what never left the broker is sent for the first time.
        let dup = p.transmissions > 0;
        let sending = Sending { dup, ..sending(&p.delivery, Some(p.packet_id())) };
        if wire.put_publish(now, &p.delivery.message, sending).is_err() {
            // 5.0 [MQTT-3.1.2-25]
            if let Some(p) = self.window.give_up_unsent() {
                tally.losses.lose(p.lost(LossCause::TooLarge, None));
            }
            return;
        }
        p.sent_again(now);
        p.due = self.terms.first_due(now, &p.delivery.message, wire);
        p.end_offset = wire.outbox.end_offset();
        p.record();
        p.with_network = false;
        tally.sent += 1;
        tally.redelivered += 1;
        self.window.mark_sent();
    }

    fn send(&mut self, now: Instant, delivery: Delivery, wire: &mut Wire, tally: &mut Tally) {
        if delivery.qos == QoS::AtMostOnce {
            match wire.put_publish(now, &delivery.message, sending(&delivery, None)) {
                Ok(()) => tally.sent += 1,
                Err(_) => tally.losses.lose(Lost::unsent(LossCause::TooLarge, delivery.message)),
            }
            return;
        }
        let due = self.terms.first_due(now, &delivery.message, wire);
        let p = self.window.push(now, delivery, due);
        let id = p.packet_id();
        p.record();
        if p.delivery.qos == QoS::ExactlyOnce {
            // Its identifier is recorded before it is shown.
            wire.wait_for(p.delivery.stored.as_deref());
        }
        if wire.put_publish(now, &p.delivery.message, sending(&p.delivery, Some(id))).is_err() {
            let message = self.undo(id);
            tally.losses.lose(Lost::new(LossCause::TooLarge, message));
            return;
        }
        p.end_offset = wire.outbox.end_offset();
        tally.sent += 1;
    }
}

impl Recount for Sender {
    fn recount(&self) -> Recounted {
        let queue = self.queue.get().map_or_else(Recounted::default, Recount::recount);
        let window = self.window.get().map_or_else(Recounted::default, Recount::recount);
        Recounted { held: queue.held + window.held, charged: queue.charged + window.charged }
    }
}

/// A delivery for the first time.
fn sending(delivery: &Delivery, packet_id: Option<PacketId>) -> Sending<'_> {
    let Delivery { qos, retain, ids, .. } = delivery;
    Sending { dup: false, qos: *qos, retain: *retain, packet_id, ids: ids.as_slice() }
}

fn is_exhausted(attempts: u16, outlives: bool, retry: &RetryPolicy) -> bool {
    retry.attempts > 0 && attempts >= retry.attempts && outlives && retry.on_exhausted != OnExhausted::Keep
}

/// What a packet allows those behind it: one that is never sent again holds nobody up.
fn lowest(due: Instant, attempts: u16) -> u16 {
    if due.is_never() { u16::MAX } else { attempts }
}

fn resend(now: Instant, p: &mut Unacked, wire: &mut Wire, terms: &Terms) {
    // 3.1.1 [MQTT-3.3.1-1]
    let sending = Sending { dup: true, ..sending(&p.delivery, Some(p.packet_id())) };
    // 3.x clients announce no Maximum Packet Size, so it fits as it did before.
    let _ = wire.put_publish(now, &p.delivery.message, sending);
    p.attempts = p.attempts.saturating_add(1);
    p.sent_again(now);
    p.due = terms.due(now, p.attempts, wire);
    p.end_offset = wire.outbox.end_offset();
    p.record();
    p.with_network = false;
}

fn write_release(now: Instant, r: &mut Release, wire: &mut Wire, terms: &Terms) {
    // That its PUBREC came is recorded before it is answered.
    wire.wait_for(r.stored.as_deref());
    wire.put_acknowledgement(AckKind::Pubrel, r.packet_id(), ReasonCode::SUCCESS);
    r.transmissions = r.transmissions.saturating_add(1);
    r.due = terms.due(now, r.attempts, wire);
    r.end_offset = wire.outbox.end_offset();
    r.with_network = false;
}

#[cfg(test)]
#[path = "sender_tests.rs"]
mod tests;
