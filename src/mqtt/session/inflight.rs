//! The in-flight window: QoS 1 and 2 deliveries that were given a Packet Identifier and are not finished.
//!
//! Two rows, because the standard orders two things: PUBLISHes stand in the order they were first sent, PUBRELs in
//! the order their PUBRECs came (3.1.1 [MQTT-4.6.0-1], [MQTT-4.6.0-4]; prudent in 5.0). A message's body is let go at
//! its PUBREC. Identifiers follow from a running number, so an acknowledgement is found by binary search, and one
//! that comes in order at once.

use super::loss::{LossCause, Lost, Sent};
use super::queue::Delivery;
use super::seldom::Empty;
use super::stall::{SocketView, Stall, StallCause};
use super::terms::Matched;
use crate::journal::ledger::Entry;
use crate::journal::record::Flight;
use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::mqtt::codec::AckKind;
use crate::mqtt::packet::{PacketId, QoS, ReasonCode};
use crate::time::Instant;
use std::collections::VecDeque;
use std::time::Duration;

/// Packet Identifiers there are.
const IDS: u64 = 65_535;

/// A PUBLISH without its PUBACK or PUBREC.
#[derive(Debug)]
pub struct Unacked {
    pub delivery: Delivery,
    /// How often it was sent again on this connection.
    pub attempts: u16,
    /// How often it was sent, over all connections; 0 where the only connection it was written to did not take all of it.
    pub transmissions: u16,
    /// When it is sent again on this connection, or found overdue (5.0), if it is.
    pub due: Instant,
    pub first_sent: Instant,
    /// Milliseconds from there to when it was sent last, up to 49 days.
    last_sent_after: u32,
    /// Where its last byte stands in the connection's stream.
    pub end_offset: u64,
    /// Whether the peer's kernel had not got it at the last look: its time has not begun.
    pub with_network: bool,
    number: u64,
}

impl Unacked {
    pub fn packet_id(&self) -> PacketId {
        packet_id(self.number)
    }

    /// Its place in the window, for the store.
    pub fn flight(&self) -> Flight {
        Flight { running: self.number, transmissions: self.transmissions }
    }

    /// Records where it stands now.
    pub fn record(&self) {
        if let Some(entry) = &self.delivery.stored {
            entry.sent(self.flight());
        }
    }

    /// Its place in the session.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// It was sent again.
    pub fn sent_again(&mut self, now: Instant) {
        self.transmissions = self.transmissions.saturating_add(1);
        self.last_sent_after = u32::try_from(now.since(self.first_sent).as_millis()).unwrap_or(u32::MAX);
    }

    /// It is given up.
    pub fn lost(self, cause: LossCause, code: Option<ReasonCode>) -> Lost {
        let last = self.first_sent + Duration::from_millis(self.last_sent_after.into());
        let sent = Sent { times: self.transmissions, first: self.first_sent, last };
        Lost { cause, message: Some(self.delivery.message), sent, code }
    }

    pub fn stall(&self, now: Instant, cause: StallCause) -> Stall {
        let Unacked { first_sent, transmissions, number, due, .. } = *self;
        let (packet_id, age, late) = (self.packet_id(), now.since(first_sent), now.since(due));
        Stall { packet_id, age, transmissions, cause, number, late, view: SocketView::default() }
    }
}

/// A PUBREL without its PUBCOMP.
#[derive(Debug)]
pub struct Release {
    /// How often it was sent again on this connection.
    pub attempts: u16,
    /// How often it was sent, over all connections.
    pub transmissions: u16,
    pub due: Instant,
    /// When its PUBLISH was.
    pub first_sent: Instant,
    pub end_offset: u64,
    /// As for a PUBLISH.
    pub with_network: bool,
    /// The rules that its message met.
    pub matched: Matched,
    /// Whether it holds a unit of the send quota: not when it was carried over from an earlier connection.
    pub in_quota: bool,
    /// Its row in the store, if it has one.
    pub stored: Option<Box<Entry>>,
    number: u64,
}

impl Release {
    pub fn packet_id(&self) -> PacketId {
        packet_id(self.number)
    }

    pub fn stall(&self, now: Instant, cause: StallCause) -> Stall {
        let Release { first_sent, transmissions, number, due, .. } = *self;
        let (packet_id, age, late) = (self.packet_id(), now.since(first_sent), now.since(due));
        Stall { packet_id, age, transmissions, cause, number, late, view: SocketView::default() }
    }
}

/// What a PUBREC met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The message is the receiver's; PUBREL is due.
    Release,
    /// It had been received before: PUBREL again.
    Again,
    /// No such exchange.
    Unknown,
}

/// What becomes of the unit of the send quota that a message given up held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// There is no quota (3.x), or the connection ends.
    Free,
    /// The client may still count it against its Receive Maximum.
    // 5.0 [MQTT-3.3.4-9]
    Forfeited,
}

/// The window of one session.
#[derive(Debug, Default)]
pub struct InFlight {
    publishes: VecDeque<Unacked>,
    /// How many of `publishes`, from the front, were sent on this connection.
    sent: usize,
    releases: VecDeque<Release>,
    /// Releases that hold no quota.
    outside_quota: usize,
    /// Units of the quota that messages given up on this connection hold until it ends: the client may still count them.
    forfeited: usize,
    /// The running number of the next message.
    next: u64,
    /// No number in use is below this; brought up to date only when the identifiers come round.
    oldest: u64,
    /// What the two rows take beside the messages.
    charge: Charge,
}

/// Places of a row that are kept when it is empty.
const KEPT: usize = 256;

impl Recount for InFlight {
    fn recount(&self) -> Recounted {
        Recounted { held: self.rows(), charged: self.charge.bytes() }
    }
}

fn packet_id(number: u64) -> PacketId {
    PacketId::new((number % IDS) as u16 + 1).unwrap_or(FIRST)
}

const FIRST: PacketId = PacketId::new(1).expect("1 is not 0");

thread_local! {
    static NOTHING: &'static InFlight = Box::leak(Box::default());
}

impl Empty for InFlight {
    fn empty() -> &'static InFlight {
        NOTHING.with(|nothing| *nothing)
    }
}

impl InFlight {
    /// Messages that are not finished.
    pub fn len(&self) -> usize {
        self.publishes.len() + self.releases.len()
    }

    pub fn is_empty(&self) -> bool {
        self.publishes.is_empty() && self.releases.is_empty()
    }

    /// Units of the send quota in use: PUBLISHes sent on this connection and not finished.
    // 5.0 [MQTT-4.9.0-2], [MQTT-3.3.4-9]
    pub fn quota_used(&self) -> usize {
        self.sent + self.releases.len() - self.outside_quota + self.forfeited
    }

    /// Whether PUBLISHes carried over from an earlier connection wait to be sent again.
    pub fn has_unsent(&self) -> bool {
        self.sent < self.publishes.len()
    }

    /// The first of those.
    pub fn first_unsent(&mut self) -> Option<&mut Unacked> {
        self.publishes.get_mut(self.sent)
    }

    /// The first unsent one was sent.
    pub fn mark_sent(&mut self) {
        debug_assert!(self.has_unsent());
        self.sent += 1;
    }

    /// The first unsent one is given up.
    pub fn give_up_unsent(&mut self) -> Option<Unacked> {
        self.publishes.remove(self.sent)
    }

    /// PUBLISHes sent on this connection, oldest first.
    pub fn sent_publishes(&mut self) -> impl Iterator<Item = &mut Unacked> {
        self.publishes.iter_mut().take(self.sent)
    }

    /// The one of those that was sent last.
    pub fn last_sent(&mut self) -> Option<&mut Unacked> {
        self.publishes.get_mut(self.sent.checked_sub(1)?)
    }

    /// PUBRELs, in the order of their PUBRECs.
    pub fn releases(&mut self) -> impl Iterator<Item = &mut Release> {
        self.releases.iter_mut()
    }

    /// When the first packet on this connection is to be sent again.
    pub fn earliest_due(&self) -> Instant {
        let publishes = self.publishes.iter().take(self.sent).map(|p| p.due);
        publishes.chain(self.releases.iter().map(|r| r.due)).min().unwrap_or(Instant::NEVER)
    }

    /// When the PUBLISH and the PUBREL that were added last are, whichever is first.
    pub fn newest_due(&self) -> Instant {
        let publish = self.sent.checked_sub(1).and_then(|at| self.publishes.get(at)).map(|p| p.due);
        let release = self.releases.back().map(|r| r.due);
        publish.into_iter().chain(release).min().unwrap_or(Instant::NEVER)
    }

    /// What was first sent before all else that is not finished; `cause` says who holds what ends at an offset of the
    /// stream.
    pub fn oldest(&self, now: Instant, cause: impl Fn(u64) -> StallCause) -> Option<Stall> {
        let publish = self.publishes.front().map(|p| p.stall(now, cause(p.end_offset)));
        let releases = self.releases.iter().map(|r| r.stall(now, cause(r.end_offset)));
        releases.chain(publish).max_by_key(|stall| stall.age)
    }

    /// Whether the message with this running number is not finished.
    pub fn holds(&self, number: u64) -> bool {
        self.publishes.binary_search_by_key(&number, |p| p.number).is_ok()
            || self.releases.iter().any(|r| r.number == number)
    }

    /// What was sent under this running number, while it waits for its PUBACK or PUBREC.
    pub fn delivery(&self, number: u64) -> Option<&Delivery> {
        let at = self.publishes.binary_search_by_key(&number, |p| p.number).ok()?;
        Some(&self.publishes.get(at)?.delivery)
    }

    /// Takes a new message in, behind all others, under a free identifier. Nothing older may be unsent.
    // 3.1.1 [MQTT-2.3.1-4], 5.0 [MQTT-2.2.1-4], [MQTT-4.3.2-1], [MQTT-4.3.3-1]
    pub fn push(&mut self, now: Instant, delivery: Delivery, due: Instant) -> &mut Unacked {
        debug_assert!(!self.has_unsent() && delivery.qos != QoS::AtMostOnce);
        let number = self.free_number();
        self.next = number + 1;
        self.sent += 1;
        self.publishes.push_back(Unacked {
            delivery,
            attempts: 0,
            transmissions: 1,
            due,
            first_sent: now,
            last_sent_after: 0,
            end_offset: 0,
            with_network: false,
            number,
        });
        self.account();
        let last = self.publishes.len() - 1;
        &mut self.publishes[last]
    }

    /// A delivery that was in flight when the broker ended, behind those before it.
    pub fn restore(&mut self, now: Instant, delivery: Delivery, flight: Flight) {
        let Flight { running: number, transmissions } = flight;
        self.restored(number);
        self.publishes.push_back(Unacked {
            delivery,
            attempts: 0,
            transmissions,
            due: Instant::NEVER,
            // When it was is not in the store.
            first_sent: now,
            last_sent_after: 0,
            end_offset: 0,
            with_network: false,
            number,
        });
        self.account();
    }

    /// A PUBREL, likewise.
    pub fn restore_release(&mut self, now: Instant, stored: Box<Entry>, flight: Flight) {
        let Flight { running: number, transmissions } = flight;
        self.restored(number);
        self.outside_quota += 1;
        self.releases.push_back(Release {
            attempts: 0,
            transmissions,
            due: Instant::NEVER,
            first_sent: now,
            end_offset: 0,
            // Its topic went with its message.
            matched: Matched::default(),
            in_quota: false,
            with_network: false,
            stored: Some(stored),
            number,
        });
        self.account();
    }

    /// The rows have grown or shrunk, perhaps. Where they have not: two multiplications and a comparison.
    fn account(&mut self) {
        self.charge.set(self.rows());
    }

    fn rows(&self) -> usize {
        self.publishes.capacity() * size_of::<Unacked>() + self.releases.capacity() * size_of::<Release>()
    }

    /// A row that was long and is empty gives its room back.
    fn give_back_rows(&mut self) {
        if self.publishes.is_empty() && self.publishes.capacity() > KEPT {
            self.publishes = VecDeque::new();
        }
        if self.releases.is_empty() && self.releases.capacity() > KEPT {
            self.releases = VecDeque::new();
        }
        self.account();
    }

    fn restored(&mut self, number: u64) {
        self.oldest = if self.is_empty() { number } else { self.oldest.min(number) };
        self.next = self.next.max(number + 1);
    }

    /// PUBACK: finishes a QoS 1 message.
    pub fn acknowledge(&mut self, id: PacketId) -> Option<Unacked> {
        let at = self.find(id).filter(|at| self.publishes[*at].delivery.qos == QoS::AtLeastOnce)?;
        self.remove(at)
    }

    /// PUBREC: from here on the message is the receiver's, and only the PUBREL is sent again.
    // 5.0 [MQTT-4.3.3-4], [MQTT-4.3.3-6]; 3.1.1 [MQTT-4.3.3-1]
    pub fn receive(&mut self, id: PacketId) -> Received {
        let Some(at) = self.find(id).filter(|at| self.publishes[*at].delivery.qos == QoS::ExactlyOnce) else {
            let again = self.releases.iter().any(|r| r.packet_id() == id);
            return if again { Received::Again } else { Received::Unknown };
        };
        let in_quota = at < self.sent;
        if let Some(mut p) = self.remove(at) {
            self.outside_quota += usize::from(!in_quota);
            let mut stored = p.delivery.stored.take();
            if let Some(entry) = &mut stored {
                entry.received();
            }
            self.releases.push_back(Release {
                attempts: 0,
                transmissions: 0,
                due: Instant::NEVER,
                first_sent: p.first_sent,
                end_offset: 0,
                with_network: false,
                matched: Matched::default(),
                in_quota,
                stored,
                number: p.number,
            });
            self.account();
        }
        Received::Release
    }

    /// PUBREC with an error: the message is finished.
    // 5.0 [MQTT-4.4.0-2]
    pub fn reject(&mut self, id: PacketId) -> Option<Unacked> {
        let at = self.find(id).filter(|at| self.publishes[*at].delivery.qos == QoS::ExactlyOnce)?;
        self.remove(at)
    }

    /// The acknowledgement that the packet with this identifier waits for; `None` if nothing was sent under it on this
    /// connection: an answer to an earlier transmission is not held against the client. Costs as much as
    /// [`Self::complete`], and is asked only about acknowledgements that finish nothing.
    pub fn awaited(&self, id: PacketId) -> Option<AckKind> {
        match self.find(id) {
            Some(at) if at < self.sent && self.publishes[at].delivery.qos == QoS::AtLeastOnce => {
                Some(AckKind::Puback)
            }
            Some(at) => (at < self.sent).then_some(AckKind::Pubrec),
            None => self.releases.iter().any(|r| r.packet_id() == id).then_some(AckKind::Pubcomp),
        }
    }

    /// The session's rules are others now; what topic a release had is not known any more.
    pub fn forget_rules(&mut self) {
        self.releases.iter_mut().for_each(|r| r.matched = Matched::default());
    }

    /// Takes a PUBLISH out that its receiver may yet acknowledge.
    pub fn give_up(&mut self, number: u64, quota: Quota) -> Option<Unacked> {
        let at = self.publishes.binary_search_by_key(&number, |p| p.number).ok()?;
        self.forfeited += usize::from(quota == Quota::Forfeited && at < self.sent);
        self.remove(at)
    }

    /// The topic of a PUBLISH that is not acknowledged.
    pub fn topic(&self, id: PacketId) -> Option<&str> {
        Some(self.publishes.get(self.find(id)?)?.delivery.message.topic())
    }

    /// The release of `id`.
    pub fn release_mut(&mut self, id: PacketId) -> Option<&mut Release> {
        // Most often the newest: its PUBREC came just now.
        self.releases.iter_mut().rev().find(|r| r.packet_id() == id)
    }

    /// PUBCOMP: finishes a QoS 2 message. Whether there was one.
    pub fn complete(&mut self, id: PacketId) -> bool {
        let Some(at) = self.releases.iter().position(|r| r.packet_id() == id) else { return false };
        if let Some(mut r) = self.releases.remove(at) {
            self.outside_quota -= usize::from(!r.in_quota);
            r.stored.iter_mut().for_each(|entry| entry.done());
        }
        if self.is_empty() {
            self.give_back_rows();
        }
        true
    }

    /// The connection is gone, and its socket took `written` bytes: what does not end within them never came whole to anybody.
    pub fn end_connection(&mut self, written: u64) {
        for p in self.publishes.iter_mut().take(self.sent) {
            if p.end_offset > written && p.transmissions == 1 {
                p.transmissions = 0;
            }
        }
    }

    /// A new connection: nothing counts as sent, and PUBRELs hold no quota.
    pub fn begin_connection(&mut self) {
        self.sent = 0;
        self.forfeited = 0;
        self.outside_quota = self.releases.len();
        for r in &mut self.releases {
            r.in_quota = false;
            r.attempts = 0;
        }
        for p in &mut self.publishes {
            p.attempts = 0;
        }
    }

    /// Takes all PUBLISHes out, oldest first, for a session that ends.
    pub fn drain_publishes(&mut self) -> impl Iterator<Item = Unacked> {
        self.sent = 0;
        let publishes = std::mem::take(&mut self.publishes);
        self.account();
        publishes.into_iter()
    }

    fn remove(&mut self, at: usize) -> Option<Unacked> {
        if at < self.sent {
            self.sent -= 1;
        }
        let removed = self.publishes.remove(at);
        if self.is_empty() {
            self.give_back_rows();
        }
        removed
    }

    /// Where the PUBLISH with this identifier stands.
    fn find(&self, id: PacketId) -> Option<usize> {
        let front = self.publishes.front()?.number;
        if packet_id(front) == id {
            return Some(0);
        }
        // The newest number with this identifier, then those a round of identifiers earlier.
        let next_id = u64::from(packet_id(self.next).get());
        let back = (next_id + IDS - u64::from(id.get())) % IDS;
        let mut number = self.next.checked_sub(if back == 0 { IDS } else { back })?;
        loop {
            if number < front {
                return None;
            }
            if let Ok(at) = self.publishes.binary_search_by_key(&number, |p| p.number) {
                return Some(at);
            }
            number = number.checked_sub(IDS)?;
        }
    }

    /// The next number whose identifier no unfinished message has. The sender leaves at most 60,000 unfinished, so there is
    /// one.
    fn free_number(&mut self) -> u64 {
        let mut number = self.next;
        if self.is_empty() {
            self.oldest = number;
        }
        if number - self.oldest >= IDS {
            let releases = self.releases.iter().map(|r| r.number);
            let front = self.publishes.front().map(|p| p.number);
            self.oldest = releases.chain(front).min().unwrap_or(number);
            while number - self.oldest >= IDS && self.is_used(packet_id(number)) {
                number += 1;
            }
        }
        number
    }

    fn is_used(&self, id: PacketId) -> bool {
        self.publishes.iter().any(|p| p.packet_id() == id)
            || self.releases.iter().any(|r| r.packet_id() == id)
    }
}

#[cfg(test)]
mod tests {
    use super::super::subscription::SubscriptionIds;
    use super::*;
    use crate::mqtt::message::{Message, Parts};

    fn message() -> Message {
        let parts = Parts {
            qos: QoS::ExactlyOnce,
            retain: false,
            expires: Instant::NEVER,
            topic: "t",
            forwarded: &[],
            payload: &[],
        };
        Message::new(parts, &mut Vec::new())
    }

    fn push(w: &mut InFlight, qos: QoS) -> PacketId {
        let delivery = Delivery {
            message: message(),
            ids: SubscriptionIds::None,
            qos,
            retain: false,
            share: None,
            stored: None,
        };
        w.push(Instant::ZERO, delivery, Instant::NEVER).packet_id()
    }

    #[test]
    fn mqtt5_2_2_1_4_identifier_in_use_is_passed_over_when_the_numbers_come_round() {
        let mut w = InFlight::default();
        let stuck = push(&mut w, QoS::AtLeastOnce);
        let released = push(&mut w, QoS::ExactlyOnce);
        assert_eq!(w.receive(released), Received::Release);
        for _ in 0..200_000 {
            let id = push(&mut w, QoS::AtLeastOnce);
            assert!(id != stuck && id != released && id.get() != 0);
            assert!(w.acknowledge(id).is_some());
        }
        assert_eq!(w.len(), 2);
        assert!(w.acknowledge(stuck).is_some());
        assert!(w.complete(released));
        assert!(w.is_empty());
    }

    #[test]
    fn acknowledgements_in_any_order_find_their_message() {
        let mut w = InFlight::default();
        let ids: Vec<_> = (0..100).map(|_| push(&mut w, QoS::AtLeastOnce)).collect();
        for id in ids.iter().rev().step_by(2).chain(ids.iter().step_by(2)) {
            assert_eq!(w.acknowledge(*id).map(|p| p.packet_id()), Some(*id));
            assert!(w.acknowledge(*id).is_none());
        }
        assert!(w.is_empty());
        assert_eq!(w.quota_used(), 0);
    }

    #[test]
    fn mqtt311_4_6_0_4_releases_stand_in_the_order_of_their_pubrecs() {
        let mut w = InFlight::default();
        let (a, b, c) =
            (push(&mut w, QoS::ExactlyOnce), push(&mut w, QoS::ExactlyOnce), push(&mut w, QoS::ExactlyOnce));
        assert_eq!(w.receive(b), Received::Release);
        assert_eq!(w.receive(a), Received::Release);
        assert_eq!(w.receive(b), Received::Again);
        assert_eq!(w.releases().map(|r| r.packet_id()).collect::<Vec<_>>(), [b, a]);
        assert_eq!(w.sent_publishes().map(|p| p.packet_id()).collect::<Vec<_>>(), [c]);
        assert_eq!(w.quota_used(), 3);
    }

    #[test]
    fn mqtt5_4_9_0_2_carried_over_pubrels_hold_no_quota_and_publishes_only_once_sent() {
        let mut w = InFlight::default();
        let ids: Vec<_> = (0..4).map(|_| push(&mut w, QoS::ExactlyOnce)).collect();
        assert_eq!(w.receive(ids[0]), Received::Release);
        w.begin_connection();
        assert_eq!(w.quota_used(), 0);
        assert_eq!(w.first_unsent().map(|p| p.packet_id()), Some(ids[1]));
        w.mark_sent();
        assert_eq!(w.quota_used(), 1);
        // An answer to one that was sent only on the earlier connection takes no quota either.
        assert_eq!(w.receive(ids[3]), Received::Release);
        assert_eq!(w.quota_used(), 1);
        assert!(w.complete(ids[3]) && w.complete(ids[0]));
        assert_eq!((w.quota_used(), w.len()), (1, 2));
    }

    #[test]
    fn what_was_not_sent_on_this_connection_is_not_held_against_the_client() {
        let mut w = InFlight::default();
        let (one, two) = (push(&mut w, QoS::AtLeastOnce), push(&mut w, QoS::ExactlyOnce));
        assert_eq!((w.awaited(one), w.awaited(two)), (Some(AckKind::Puback), Some(AckKind::Pubrec)));
        w.begin_connection();
        assert_eq!((w.awaited(one), w.awaited(two)), (None, None));
        w.mark_sent();
        assert_eq!((w.awaited(one), w.awaited(two)), (Some(AckKind::Puback), None));
        // Its PUBREC came all the same: from then on PUBCOMP is awaited.
        assert_eq!(w.receive(two), Received::Release);
        assert_eq!(w.awaited(two), Some(AckKind::Pubcomp));
        assert!(w.complete(two));
        assert_eq!(w.awaited(two), None);
    }

    #[test]
    fn puback_does_not_finish_qos_2_nor_pubrec_qos_1() {
        let mut w = InFlight::default();
        let (one, two) = (push(&mut w, QoS::AtLeastOnce), push(&mut w, QoS::ExactlyOnce));
        assert!(w.acknowledge(two).is_none());
        assert_eq!(w.receive(one), Received::Unknown);
        assert!(!w.complete(two));
        assert_eq!(w.len(), 2);
    }
}
