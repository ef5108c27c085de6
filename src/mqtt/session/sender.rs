//! The sending half of a session: from its queue into its in-flight window and onto the wire, and again.

use super::inflight::{InFlight, Received, Release, Unacked};
use super::loss::{LossCause, Losses};
use super::queue::{Delivery, Full, Head, Queue, QueueLimits};
use super::retry::{AckPolicy, OnExhausted, RetryPolicy};
use super::seldom::Seldom;
use super::stall::{SocketView, Stall, StallCause};
use super::wire::{Sending, Wire};
use crate::journal::ledger::Entry;
use crate::journal::record::{BodyNumber, EntryNumber, Flight, ReadEntry};
use crate::mqtt::codec::AckKind;
use crate::mqtt::packet::{PacketId, QoS, ReasonCode};
use crate::time::Instant;

/// Windows of unfinished messages that a session may have over all its connections.
const CARRIED_OVER: usize = 4;

/// Unfinished messages at most, so that of the 65,535 identifiers some are always free.
const MOST_UNFINISHED: usize = 60_000;

/// What the operator settled for all sessions.
#[derive(Clone, Debug)]
pub struct SendPolicy {
    pub queue: QueueLimits,
    pub retry: RetryPolicy,
    pub ack: AckPolicy,
    /// Bytes in a connection's outbox beyond which QoS 0 is dropped and QoS 1 and 2 wait in the queue.
    pub outbox: usize,
    /// Unfinished deliveries per session at most.
    pub in_flight: u16,
}

impl SendPolicy {
    /// When a packet that was sent for the `round`-th time again is to be sent once more on this connection, or in 5.0 to
    /// be found overdue.
    // 5.0 [MQTT-4.4.0-1]; 3.1 and 3.1.1 leave it open.
    pub fn due(&self, now: Instant, round: u16, wire: &Wire) -> Instant {
        if wire.patience.is_zero() {
            Instant::NEVER
        } else if wire.version.is_v5() {
            now + wire.patience
        } else {
            now + self.retry.delay(wire.patience, round, wire.seed)
        }
    }
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
    pub losses: Losses,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.sent += other.sent;
        self.redelivered += other.redelivered;
        self.stalled += other.stalled;
        self.cut += other.cut;
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
#[derive(Debug, Default)]
pub struct Sender {
    pub(super) window: Seldom<InFlight>,
    queue: Seldom<Queue>,
}

impl Sender {
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
    pub fn begin(
        &mut self,
        now: Instant,
        delivery: Delivery,
        wire: &Wire,
        policy: &SendPolicy,
    ) -> &mut Unacked {
        let due = policy.due(now, 0, wire);
        self.window.push(now, delivery, due)
    }

    /// The packet of the message taken in last is written: notes where it ends.
    pub fn written(&mut self, end_offset: u64) {
        if let Some(last) = self.window.last_sent() {
            last.end_offset = end_offset;
        }
    }

    /// The message taken in last could not be written after all.
    pub fn undo(&mut self, id: PacketId) {
        self.window.acknowledge(id).or_else(|| self.window.reject(id));
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

    /// Whether something waits that [`Self::pump`] may send.
    pub fn has_waiting(&self) -> bool {
        self.queue.get().is_some_and(|q| !q.is_empty()) || self.window.has_unsent()
    }

    /// Puts a delivery behind all others, whatever the limits: retained messages at a SUBSCRIBE.
    pub fn enqueue_retained(&mut self, delivery: Delivery) {
        self.queue.append(delivery, Head::Online);
    }

    /// What the store had of this session, one by one in the order of their numbers: a delivery that waits,
    pub fn restore_queued(&mut self, entry: Box<Entry>) {
        self.queue.restore(entry);
    }

    /// one that was sent,
    pub fn restore_sent(&mut self, now: Instant, delivery: Delivery, flight: Flight) {
        self.window.restore(now, delivery, flight);
    }

    /// and one of which the client has the message and PUBCOMP is still to come.
    pub fn restore_release(&mut self, now: Instant, entry: Box<Entry>, flight: Flight) {
        self.window.restore_release(now, entry, flight);
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
    pub fn resume(&mut self, now: Instant, wire: &mut Wire, policy: &SendPolicy, tally: &mut Tally) {
        if self.window.is_empty() {
            return;
        }
        self.window.begin_connection();
        for release in self.window.releases() {
            tally.redelivered += 1;
            write_release(now, release, wire, policy);
        }
    }

    /// Sends what window, outbox and the client's limits allow: first what was in flight before this connection, as it
    /// was, then the queue.
    pub fn pump(&mut self, now: Instant, wire: &mut Wire, policy: &SendPolicy, tally: &mut Tally) {
        while self.window.has_unsent() {
            if !self.has_quota(wire, policy) || wire.outbox.len() >= policy.outbox {
                return;
            }
            self.resend_carried_over(now, wire, policy, tally);
        }
        while let Some(front) = self.queue.front() {
            if wire.outbox.len() >= policy.outbox {
                return;
            }
            if front.message.is_expired(now) {
                // 5.0 [MQTT-3.3.2-5]
                tally.losses.count(LossCause::Expired);
                self.queue.pop();
                continue;
            }
            if front.qos != QoS::AtMostOnce && !self.has_quota(wire, policy) {
                return;
            }
            if let Some(delivery) = self.queue.pop() {
                self.send(now, delivery, wire, policy, tally);
            }
        }
    }

    /// PUBACK: whether it finished a message. The code of a 5.0 client may be negative.
    pub fn acknowledge(&mut self, id: PacketId, reason: ReasonCode, losses: &mut Losses) -> bool {
        let finished = self.window.acknowledge(id).is_some();
        if finished && reason.is_error() {
            losses.count(LossCause::NegativelyAcknowledged);
        }
        finished
    }

    /// PUBREC: answers with PUBREL where the exchange is known, or where 5.0 wants the client told.
    pub fn receive(
        &mut self,
        now: Instant,
        id: PacketId,
        reason: ReasonCode,
        wire: &mut Wire,
        policy: &SendPolicy,
        losses: &mut Losses,
    ) {
        if reason.is_error() {
            if self.window.reject(id).is_some() {
                losses.count(LossCause::NegativelyAcknowledged);
            }
            return;
        }
        match self.window.receive(id) {
            Received::Release | Received::Again => {
                if let Some(release) = self.window.release_mut(id) {
                    write_release(now, release, wire, policy);
                }
            }
            // 3.x has no code for it; PUBREL lets the client finish all the same.
            Received::Unknown => {
                wire.put_acknowledgement(AckKind::Pubrel, id, ReasonCode::PACKET_IDENTIFIER_NOT_FOUND)
            }
        }
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
    /// `peer_has` is how far the peer's kernel took the stream of this connection: what ends behind it is with the
    /// network, is not sent a second time, and counts no attempt; its time begins when it is first found with the peer. `outlives`: whether the session outlives the
    /// connection, so that closing it leads to a redelivery.
    pub fn retransmit(
        &mut self,
        now: Instant,
        peer_has: u64,
        view: SocketView,
        outlives: bool,
        wire: &mut Wire,
        policy: &SendPolicy,
    ) -> Retransmission {
        let mut done = Retransmission::default();
        let mut budget = policy.retry.resends_per_tick;
        // No older packet was sent again fewer times than this. 3.1.1 [MQTT-4.6.0-1], [MQTT-4.6.0-6]
        let mut floor = u16::MAX;
        for p in self.window.sent_publishes() {
            if p.due <= now {
                if peer_has < p.end_offset {
                    let stall = p.stall(now, StallCause::of_network(view));
                    done.network.get_or_insert(Stall { view, ..stall });
                    p.with_network = true;
                    p.due = policy.due(now, p.attempts, wire);
                } else if std::mem::take(&mut p.with_network) {
                    // It arrived since the last look: its time begins.
                    p.due = policy.due(now, p.attempts, wire);
                } else if is_exhausted(p.attempts, outlives, &policy.retry) {
                    done.exhausted = Some(Stall { view, ..p.stall(now, StallCause::Application) });
                    return done;
                } else if floor > p.attempts && budget > 0 && wire.outbox.len() < policy.outbox {
                    budget -= 1;
                    done.publishes += 1;
                    done.note(p.stall(now, StallCause::Application), p.attempts, view, &policy.retry);
                    resend(now, p, wire, policy);
                } else {
                    // Its elders are not there yet, or the tick's budget is spent: the next tick.
                    floor = 0;
                }
            }
            floor = floor.min(p.attempts);
        }
        floor = u16::MAX;
        for r in self.window.releases() {
            if r.due <= now {
                if peer_has < r.end_offset {
                    let stall = r.stall(now, StallCause::of_network(view));
                    done.network.get_or_insert(Stall { view, ..stall });
                    r.with_network = true;
                    r.due = policy.due(now, r.attempts, wire);
                } else if std::mem::take(&mut r.with_network) {
                    // It arrived since the last look: its time begins.
                    r.due = policy.due(now, r.attempts, wire);
                } else if is_exhausted(r.attempts, outlives, &policy.retry) {
                    done.exhausted = Some(Stall { view, ..r.stall(now, StallCause::Application) });
                    return done;
                } else if floor > r.attempts && budget > 0 && wire.outbox.len() < policy.outbox {
                    budget -= 1;
                    done.releases += 1;
                    done.note(r.stall(now, StallCause::Application), r.attempts, view, &policy.retry);
                    r.attempts = r.attempts.saturating_add(1);
                    write_release(now, r, wire, policy);
                } else {
                    floor = 0;
                }
            }
            floor = floor.min(r.attempts);
        }
        done
    }

    /// The session ends: what is not finished, oldest first, unsent or not, and how many more the store alone has.
    pub fn drain(&mut self) -> (impl Iterator<Item = Unacked>, impl Iterator<Item = Delivery>, usize) {
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

    fn resend_carried_over(&mut self, now: Instant, wire: &mut Wire, policy: &SendPolicy, tally: &mut Tally) {
        let Some(p) = self.window.first_unsent() else { return };
        // 3.1.1 and 5.0 [MQTT-3.3.1-1]; what never left the broker is sent for the first time.
        let dup = p.transmissions > 0;
        let sending = Sending { dup, ..sending(&p.delivery, Some(p.packet_id())) };
        if wire.put_publish(now, &p.delivery.message, sending).is_err() {
            // 5.0 [MQTT-3.1.2-25]
            tally.losses.count(LossCause::TooLarge);
            self.window.give_up_unsent();
            return;
        }
        p.transmissions = p.transmissions.saturating_add(1);
        p.due = policy.due(now, 0, wire);
        p.end_offset = wire.outbox.end_offset();
        p.record();
        p.with_network = false;
        tally.sent += 1;
        tally.redelivered += 1;
        self.window.mark_sent();
    }

    fn send(
        &mut self,
        now: Instant,
        delivery: Delivery,
        wire: &mut Wire,
        policy: &SendPolicy,
        tally: &mut Tally,
    ) {
        let due = policy.due(now, 0, wire);
        if delivery.qos == QoS::AtMostOnce {
            match wire.put_publish(now, &delivery.message, sending(&delivery, None)) {
                Ok(()) => tally.sent += 1,
                Err(_) => tally.losses.count(LossCause::TooLarge),
            }
            return;
        }
        let p = self.window.push(now, delivery, due);
        let id = p.packet_id();
        p.record();
        if p.delivery.qos == QoS::ExactlyOnce {
            // Its identifier is recorded before it is shown.
            wire.wait_for(p.delivery.stored.as_deref());
        }
        if wire.put_publish(now, &p.delivery.message, sending(&p.delivery, Some(id))).is_err() {
            tally.losses.count(LossCause::TooLarge);
            self.undo(id);
            return;
        }
        p.end_offset = wire.outbox.end_offset();
        tally.sent += 1;
    }
}

/// A delivery for the first time.
fn sending(delivery: &Delivery, packet_id: Option<PacketId>) -> Sending<'_> {
    let Delivery { qos, retain, ids, .. } = delivery;
    Sending { dup: false, qos: *qos, retain: *retain, packet_id, ids: ids.as_slice() }
}

fn is_exhausted(attempts: u16, outlives: bool, retry: &RetryPolicy) -> bool {
    retry.attempts > 0
        && attempts >= retry.attempts
        && outlives
        && retry.on_exhausted == OnExhausted::Disconnect
}

fn resend(now: Instant, p: &mut Unacked, wire: &mut Wire, policy: &SendPolicy) {
    // 3.1.1 [MQTT-3.3.1-1]
    let sending = Sending { dup: true, ..sending(&p.delivery, Some(p.packet_id())) };
    // 3.x clients announce no Maximum Packet Size, so it fits as it did before.
    let _ = wire.put_publish(now, &p.delivery.message, sending);
    p.attempts = p.attempts.saturating_add(1);
    p.transmissions = p.transmissions.saturating_add(1);
    p.due = policy.due(now, p.attempts, wire);
    p.end_offset = wire.outbox.end_offset();
    p.record();
    p.with_network = false;
}

fn write_release(now: Instant, r: &mut Release, wire: &mut Wire, policy: &SendPolicy) {
    // That its PUBREC came is recorded before it is answered.
    wire.wait_for(r.stored.as_deref());
    wire.put_acknowledgement(AckKind::Pubrel, r.packet_id(), ReasonCode::SUCCESS);
    r.transmissions = r.transmissions.saturating_add(1);
    r.due = policy.due(now, r.attempts, wire);
    r.end_offset = wire.outbox.end_offset();
    r.with_network = false;
}

#[cfg(test)]
#[path = "sender_tests.rs"]
mod tests;
