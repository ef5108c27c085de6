//! The in-flight window: QoS 1 and 2 deliveries with a Packet Identifier that are not finished.
//! `Sender::has_quota` decides if one more may enter.
//!
//! The window has two rows, because the standard orders two things. PUBLISHes are in the order of
//! their first transmission, PUBRELs in the order of their PUBRECs (3.1.1 [MQTT-4.6.0-1],
//! [MQTT-4.6.0-4]; prudent in 5.0). A message's body is released at its PUBREC. Identifiers follow
//! from a running number, so a PUBACK or PUBREC is found by binary search, and at once if it comes
//! in order. A PUBCOMP costs a pass over the PUBRELs.

use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::mqtt::codec::AckKind;
use crate::mqtt::message::Message;
use crate::mqtt::packet::{PacketId, QoS};
use crate::persistence::records::{EntryNumber, Flight};
use crate::persistence::rows::Entry;
use crate::session::objectives::DeliveryMark;
use crate::session::outbound::delivery::Delivery;
use crate::session::outbound::in_flight_packet::{InFlightPacket, InFlightView, Release, Unacked};
use crate::session::outbound::on_demand::Empty;
use crate::session::outbound::portion::{Portion, take_portion};
use crate::session::outbound::stall::{Stall, StallCause};
use crate::session::outbound::transmission::{IDS, Transmission, packet_id};
use crate::session::outbound::withheld::WithheldIds;
use crate::session::session_redelivery::PolicyRules;
use crate::time::Instant;
use std::collections::VecDeque;

/// The result of a PUBREC.
#[derive(Debug)]
pub enum Received {
    /// The receiver has the message now, and PUBREL is due.
    Release {
        /// The mark of the delivery.
        mark: DeliveryMark,
        /// The message, which the window has no more.
        message: Message,
    },
    /// The message was dropped. The receiver may hold its identifier, and PUBREL is due.
    Dropped,
    /// PUBREC came before: PUBREL is due again.
    Again,
    /// No QoS 2 message has this identifier. A QoS 1 message may have it.
    Unknown,
}

/// The fate of the send quota that a dropped message held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// The unit is free: there is no quota (3.x), or the connection ends.
    Free,
    /// The unit stays in use, because the client may still count the message against its Receive
    /// Maximum.
    // 5.0 [MQTT-3.3.4-9]
    Forfeited,
}

/// The in-flight window of one session.
#[derive(Debug)]
pub struct InFlight {
    publishes: VecDeque<Unacked>,
    /// Number of `publishes`, from the front, that were sent on this connection.
    sent: usize,
    releases: VecDeque<Release>,
    /// Number of PUBRELs that hold no quota.
    outside_quota: usize,
    /// Identifiers of dropped messages that still hold a unit of the quota, because the client may
    /// count them. The unit is free when the client acknowledges the message after all, or with the
    /// end of the connection.
    forfeited: Vec<PacketId>,
    /// Identifiers of dropped messages that their receiver may still hold.
    withheld: WithheldIds,
    /// The lowest running number that the next message may get.
    next: u64,
    /// A lower bound of the numbers in use. Set anew in an empty window, at a restore, and when the
    /// identifiers come round.
    oldest: u64,
    /// The charge of the four lists, without the messages.
    charge: Charge,
}

/// Places that an empty row keeps allocated.
const KEPT: usize = 256;

impl Empty for InFlight {
    const NEW: InFlight = InFlight {
        publishes: VecDeque::new(),
        sent: 0,
        releases: VecDeque::new(),
        outside_quota: 0,
        forfeited: Vec::new(),
        withheld: WithheldIds::NONE,
        next: 0,
        oldest: 0,
        charge: Charge::NONE,
    };
    const UNUSED: &InFlight = &InFlight::NEW;
}

impl Recount for InFlight {
    fn recount(&self) -> Recounted {
        Recounted { in_use: self.rows(), charged: self.charge.bytes() }
    }
}

impl InFlight {
    /// Returns the number of messages that are not finished.
    pub fn len(&self) -> usize {
        self.publishes.len() + self.releases.len()
    }

    /// True if every message is finished.
    pub fn is_empty(&self) -> bool {
        self.publishes.is_empty() && self.releases.is_empty()
    }

    /// Returns the units of the send quota in use: PUBLISHes and PUBRELs of this connection that
    /// are not finished, and dropped messages that the client may still count.
    // 5.0 [MQTT-4.9.0-2], [MQTT-3.3.4-9]
    pub fn quota_used(&self) -> usize {
        self.sent + self.releases.len() - self.outside_quota + self.forfeited.len()
    }

    /// True if PUBLISHes of an earlier connection wait to be sent again.
    pub fn has_unsent(&self) -> bool {
        self.sent < self.publishes.len()
    }

    /// Returns the first PUBLISH that waits to be sent again.
    pub fn first_unsent(&mut self) -> Option<&mut Unacked> {
        self.publishes.get_mut(self.sent)
    }

    /// Records that the first unsent PUBLISH was sent.
    pub fn mark_sent(&mut self) {
        debug_assert!(self.has_unsent());
        self.sent += 1;
    }

    /// Removes the first unsent PUBLISH, which is dropped.
    pub fn remove_unsent(&mut self) -> Option<Unacked> {
        let mut dropped = self.publishes.remove(self.sent)?;
        self.withheld.withhold(&mut dropped);
        self.account();
        Some(dropped)
    }

    /// Iterates over the packets sent on this connection: PUBLISHes oldest first, then PUBRELs in
    /// the order of their PUBRECs.
    pub fn packets(&mut self) -> impl Iterator<Item = InFlightPacket<'_>> {
        let publishes = self.publishes.iter_mut().take(self.sent).map(InFlightPacket::Publish);
        publishes.chain(self.releases.iter_mut().map(InFlightPacket::Release))
    }

    /// Iterates over all unfinished packets: PUBLISHes oldest first, then PUBRELs.
    pub fn view(&self) -> impl Iterator<Item = InFlightView<'_>> {
        self.view_publishes_from(0).map(|(_, view)| view).chain(self.view_releases())
    }

    /// Iterates over the unfinished PUBLISHes from the one with this running number on, each with
    /// the number of PUBLISHes that are sent again before it. Costs a binary search.
    pub fn view_publishes_from(&self, number: u64) -> impl Iterator<Item = (usize, InFlightView<'_>)> {
        let first = self.publishes.partition_point(|publish| publish.transmission.number() < number);
        (first..).zip(self.publishes.range(first..)).map(|(index, publish)| {
            let (transmission, delivery) = (&publish.transmission, Some(&publish.delivery));
            let view = InFlightView { transmission, delivery, sent_here: index < self.sent };
            (index.saturating_sub(self.sent), view)
        })
    }

    /// Iterates over the unfinished PUBRELs in the order of their PUBRECs.
    pub fn view_releases(&self) -> impl Iterator<Item = InFlightView<'_>> {
        let releases = self.releases.iter().map(|release| &release.transmission);
        releases.map(|transmission| InFlightView { transmission, delivery: None, sent_here: true })
    }

    /// Returns the PUBLISH that was sent last on this connection.
    pub fn last_sent(&mut self) -> Option<&mut Unacked> {
        self.publishes.get_mut(self.sent.checked_sub(1)?)
    }

    /// Iterates over the PUBRELs in the order of their PUBRECs.
    pub fn releases(&mut self) -> impl Iterator<Item = &mut Release> {
        self.releases.iter_mut()
    }

    /// Returns the earliest due time on this connection, or [`Instant::NEVER`]. Costs a pass over
    /// the window.
    pub fn earliest_due(&self) -> Instant {
        let publishes = self.publishes.iter().take(self.sent).map(|p| p.transmission.due);
        publishes.chain(self.releases.iter().map(|r| r.transmission.due)).min().unwrap_or(Instant::NEVER)
    }

    /// Returns the earlier due time of the newest PUBLISH and the newest PUBREL, or
    /// [`Instant::NEVER`].
    pub fn newest_due(&self) -> Instant {
        let publish = self.sent.checked_sub(1).and_then(|at| self.publishes.get(at));
        let publish = publish.map_or(Instant::NEVER, |p| p.transmission.due);
        self.releases.back().map_or(publish, |r| publish.min(r.transmission.due))
    }

    /// Returns the unfinished packet that was first sent before all others. `cause` maps a stream
    /// offset to the holder of the packet that ends there.
    pub fn oldest(&self, now: Instant, cause: impl Fn(u64) -> StallCause) -> Option<Stall> {
        let stall = |t: &Transmission| t.stall(now, cause(t.end_offset));
        let publish = self.publishes.front().map(|p| stall(&p.transmission));
        let releases = self.releases.iter().map(|r| stall(&r.transmission));
        releases.chain(publish).max_by_key(|stall| stall.age)
    }

    /// True if the message with this running number is not finished.
    pub fn contains(&self, number: u64) -> bool {
        self.index_of(number).is_some() || self.releases.iter().any(|r| r.transmission.number() == number)
    }

    /// Returns the delivery with this running number while it waits for PUBACK or PUBREC.
    pub fn delivery(&self, number: u64) -> Option<&Delivery> {
        Some(&self.publishes.get(self.index_of(number)?)?.delivery)
    }

    /// Returns the delivery that waits for PUBACK or PUBREC under an identifier, and its running
    /// number.
    pub fn delivery_under(&self, id: PacketId) -> Option<(&Delivery, u64)> {
        let publish = self.publishes.get(self.find(id)?)?;
        Some((&publish.delivery, publish.transmission.number()))
    }

    /// Returns the index of the PUBLISH with this running number.
    #[inline]
    fn index_of(&self, number: u64) -> Option<usize> {
        self.publishes.binary_search_by_key(&number, |p| p.transmission.number()).ok()
    }

    /// Appends a new message under a free identifier. No older message may be unsent.
    // 3.1.1 [MQTT-2.3.1-4], 5.0 [MQTT-2.2.1-4], [MQTT-4.3.2-1], [MQTT-4.3.3-1]
    pub fn push(&mut self, now: Instant, delivery: Delivery, due: Instant) -> &mut Unacked {
        debug_assert!(!self.has_unsent() && delivery.qos != QoS::AtMostOnce);
        let number = self.free_number();
        self.next = number + 1;
        self.sent += 1;
        let grows = self.publishes.len() == self.publishes.capacity();
        self.publishes.push_back(Unacked {
            delivery,
            transmission: Transmission::new(number, now, due, 1),
            last_sent_after: 0,
        });
        if grows {
            self.account();
        }
        let last = self.publishes.len() - 1;
        &mut self.publishes[last]
    }

    /// Restores a delivery that was in flight when the broker ended. Call in the order of the
    /// numbers.
    pub fn restore(&mut self, delivery: Delivery, flight: Flight) {
        let transmission = self.restored(flight);
        self.publishes.push_back(Unacked { delivery, transmission, last_sent_after: 0 });
        self.account();
    }

    /// Restores a PUBREL that was in flight when the broker ended.
    pub fn restore_release(&mut self, stored: Box<Entry>, flight: Flight) {
        let transmission = self.restored(flight);
        self.outside_quota += 1;
        self.releases.push_back(Release {
            transmission,
            // The topic is gone with the message.
            matched: PolicyRules::default(),
            in_quota: false,
            stored: Some(stored),
        });
        self.account();
    }

    /// Restores the identifier of a message that was dropped before the broker ended.
    pub fn restore_withheld(&mut self, stored: Box<Entry>, flight: Flight) {
        self.next = self.next.max(flight.running + 1);
        self.withheld.restore(flight.running, Some(stored));
        self.account();
    }

    /// Charges the rows, which may have grown or shrunk. If they have not, this costs four
    /// multiplications and a comparison.
    fn account(&mut self) {
        self.charge.set(self.rows());
    }

    fn rows(&self) -> usize {
        self.publishes.capacity() * size_of::<Unacked>()
            + self.releases.capacity() * size_of::<Release>()
            + self.forfeited.capacity() * size_of::<PacketId>()
            + self.withheld.row()
    }

    /// True if every message is finished, and one of the two rows has more than [`KEPT`] places.
    fn is_long_and_empty(&self) -> bool {
        self.is_empty() && (self.publishes.capacity() > KEPT || self.releases.capacity() > KEPT)
    }

    /// Frees the room of long rows that are empty.
    fn give_back_rows(&mut self) {
        if self.publishes.is_empty() && self.publishes.capacity() > KEPT {
            self.publishes = VecDeque::new();
        }
        if self.releases.is_empty() && self.releases.capacity() > KEPT {
            self.releases = VecDeque::new();
        }
        self.account();
    }

    /// Returns the transmissions of a packet that was in flight when the broker ended. The store
    /// does not have the time of the first one, which would cost bytes for each message. So the
    /// packet was first sent before the start of the process, and its age has a lower bound only.
    fn restored(&mut self, flight: Flight) -> Transmission {
        let Flight { running: number, transmissions } = flight;
        self.note_number(number);
        Transmission::new(number, Instant::ZERO, Instant::NEVER, transmissions)
    }

    /// Counts a number as in use that is not the next one.
    fn note_number(&mut self, number: u64) {
        self.oldest = if self.is_empty() { number } else { self.oldest.min(number) };
        self.next = self.next.max(number + 1);
    }

    /// Handles a PUBACK: removes the QoS 1 message. Returns `None` if the identifier has none.
    pub fn acknowledge(&mut self, id: PacketId) -> Option<Unacked> {
        match self.find(id).filter(|at| self.publishes[*at].delivery.qos == QoS::AtLeastOnce) {
            Some(at) => self.remove(at),
            None => self.free_forfeited(id),
        }
    }

    /// Frees the unit of the quota that a dropped message held, because the client has finished it.
    /// Returns `None`: no message is finished by that.
    // 5.0 section 4.9: PUBACK, PUBCOMP and a PUBREC with an error add to the send quota.
    #[cold]
    fn free_forfeited(&mut self, id: PacketId) -> Option<Unacked> {
        self.forfeited.retain(|forfeited| *forfeited != id);
        self.account();
        None
    }

    /// Handles a PUBREC: the receiver has the message from now on, and only the PUBREL is sent
    /// again.
    // 5.0 [MQTT-4.3.3-4], [MQTT-4.3.3-6]; 3.1.1 [MQTT-4.3.3-1]
    pub fn receive(&mut self, now: Instant, id: PacketId) -> Received {
        let Some(at) = self.find(id).filter(|at| self.publishes[*at].delivery.qos == QoS::ExactlyOnce) else {
            return self.receive_again(now, id);
        };
        let in_quota = at < self.sent;
        let Some(Unacked { delivery, transmission, .. }) = self.remove(at) else { return Received::Unknown };
        let Delivery { mark, message, mut stored, .. } = delivery;
        self.outside_quota += usize::from(!in_quota);
        if let Some(entry) = &mut stored {
            entry.received();
        }
        let (number, first_sent) = (transmission.number(), transmission.first_sent);
        self.releases.push_back(Release {
            transmission: Transmission::new(number, first_sent, Instant::NEVER, 0),
            matched: PolicyRules::default(),
            in_quota,
            stored,
        });
        self.account();
        Received::Release { mark, message }
    }

    /// Handles a PUBREC for which no QoS 2 PUBLISH waits.
    #[cold]
    fn receive_again(&mut self, now: Instant, id: PacketId) -> Received {
        if self.releases.iter().any(|r| r.transmission.packet_id() == id) {
            return Received::Again;
        }
        let Some((number, stored)) = self.withheld.receive(id) else { return Received::Unknown };
        // The unit of the quota goes from the dropped message to its PUBREL, if there was one.
        // 5.0 section 4.9
        let before = self.forfeited.len();
        self.forfeited.retain(|forfeited| *forfeited != id);
        let in_quota = self.forfeited.len() < before;
        self.outside_quota += usize::from(!in_quota);
        self.note_number(number);
        self.releases.push_back(Release {
            // The time of the first transmission is gone with the message.
            transmission: Transmission::new(number, now, Instant::NEVER, 0),
            matched: PolicyRules::default(),
            in_quota,
            stored,
        });
        self.account();
        Received::Dropped
    }

    /// Handles a PUBREC with an error: removes the QoS 2 message. Returns `None` if the identifier
    /// has none.
    // 5.0 [MQTT-4.4.0-2]
    pub fn reject(&mut self, id: PacketId) -> Option<Unacked> {
        match self.find(id).filter(|at| self.publishes[*at].delivery.qos == QoS::ExactlyOnce) {
            Some(at) => self.remove(at),
            None => {
                self.withheld.free(id);
                self.free_forfeited(id)
            }
        }
    }

    /// Returns the acknowledgement that the packet with this identifier waits for. Returns `None`
    /// if nothing was sent under the identifier on this connection: a late answer to an earlier
    /// transmission is not held against the client. Costs as much as [`Self::complete`], and is
    /// called only for acknowledgements that finish nothing.
    pub fn awaited(&self, id: PacketId) -> Option<AckKind> {
        match self.find(id) {
            Some(at) if at < self.sent && self.publishes[at].delivery.qos == QoS::AtLeastOnce => {
                Some(AckKind::Puback)
            }
            Some(at) => (at < self.sent).then_some(AckKind::Pubrec),
            None => {
                self.releases.iter().any(|r| r.transmission.packet_id() == id).then_some(AckKind::Pubcomp)
            }
        }
    }

    /// Forgets the rules of all PUBRELs, because the session has new rules. Their topics are not
    /// known any more.
    pub fn forget_rules(&mut self) {
        self.releases.iter_mut().for_each(|r| r.matched = PolicyRules::default());
    }

    /// Removes a PUBLISH that its receiver may still acknowledge. `quota` says if its unit of the
    /// send quota is free. Returns `None` if the number is not in flight.
    pub fn remove_publish(&mut self, number: u64, quota: Quota) -> Option<Unacked> {
        let at = self.index_of(number)?;
        if quota == Quota::Forfeited && at < self.sent {
            self.forfeited.push(packet_id(number));
        }
        let mut dropped = self.remove(at)?;
        self.withheld.withhold(&mut dropped);
        self.account();
        Some(dropped)
    }

    /// Returns the running number of the message with this number in the store; `None` if it is not
    /// in the window. Costs a pass over the window.
    pub fn number_of(&self, entry: EntryNumber) -> Option<u64> {
        let publish = self.publishes.iter().find(|p| p.delivery.is_entry(entry));
        let is_it = |r: &&Release| r.stored.as_ref().is_some_and(|stored| stored.number() == entry);
        let release = || self.releases.iter().find(is_it).map(|r| r.transmission.number());
        publish.map(|p| p.transmission.number()).or_else(release)
    }

    /// Looks at `most` PUBLISHes, from the one with this running number on, and removes those for
    /// which `is_taken` returns true. Ends behind the first shared one that is removed. Called only
    /// while no PUBLISH was sent on the present connection.
    pub fn take_where(
        &mut self,
        number: u64,
        most: usize,
        mut is_taken: impl FnMut(&Message) -> bool,
    ) -> Portion<Unacked> {
        let from = self.publishes.partition_point(|p| p.transmission.number() < number);
        let select = |p: &Unacked| p.delivery.selection(&mut is_taken);
        let mut portion = take_portion(&mut self.publishes, from, most, select);
        if !portion.taken.is_empty() {
            self.sent = 0;
            portion.taken.iter_mut().for_each(|unacked| self.withheld.withhold(unacked));
            self.give_back_rows();
        }
        let next = self.publishes.get(from + portion.looked_at - portion.taken.len());
        portion.next = next.map(|p| p.transmission.number());
        portion
    }

    /// True if a PUBLISH was sent on the present or last connection.
    pub fn has_sent(&self) -> bool {
        self.sent > 0
    }

    /// Returns the topic of the unacknowledged PUBLISH with this identifier.
    pub fn topic(&self, id: PacketId) -> Option<&str> {
        Some(self.publishes.get(self.find(id)?)?.delivery.message.topic())
    }

    /// Returns the PUBREL with this identifier.
    pub fn release_mut(&mut self, id: PacketId) -> Option<&mut Release> {
        // The newest is the usual case: its PUBREC came just now.
        self.releases.iter_mut().rev().find(|r| r.transmission.packet_id() == id)
    }

    /// Handles a PUBCOMP: finishes a QoS 2 message. Returns true if there was one.
    pub fn complete(&mut self, id: PacketId) -> bool {
        let Some(at) = self.releases.iter().position(|r| r.transmission.packet_id() == id) else {
            self.withheld.free(id);
            return self.free_forfeited(id).is_some();
        };
        if let Some(mut r) = self.releases.remove(at) {
            self.outside_quota -= usize::from(!r.in_quota);
            r.stored.iter_mut().for_each(|entry| entry.done());
        }
        if self.is_long_and_empty() {
            self.give_back_rows();
        }
        true
    }

    /// Takes note of the end of the connection, whose socket took `written` bytes in all. A PUBLISH
    /// that was sent only once and does not end within them counts as never sent.
    pub fn end_connection(&mut self, written: u64) {
        for p in self.publishes.iter_mut().take(self.sent) {
            if p.transmission.end_offset > written && p.transmission.transmissions == 1 {
                p.transmission.transmissions = 0;
            }
        }
    }

    /// Begins a connection: no PUBLISH counts as sent, and PUBRELs hold no quota.
    pub fn begin_connection(&mut self) {
        self.sent = 0;
        self.forfeited = Vec::new();
        self.outside_quota = self.releases.len();
        for r in &mut self.releases {
            r.in_quota = false;
            r.transmission.begin_connection();
        }
        for p in &mut self.publishes {
            p.transmission.begin_connection();
        }
        self.account();
    }

    /// Removes the PUBLISH that was pushed last.
    pub fn remove_newest(&mut self) -> Option<Unacked> {
        self.remove(self.publishes.len().checked_sub(1)?)
    }

    /// Removes the oldest PUBLISH of a session that has ended.
    pub fn pop_publish(&mut self) -> Option<Unacked> {
        if self.publishes.is_empty() { None } else { self.remove(0) }
    }

    /// Removes the oldest PUBREL of a session that has ended, and after the last PUBREL a withheld
    /// identifier. Returns true if there was one.
    pub fn pop_release(&mut self) -> bool {
        self.releases.pop_front().is_some() || self.withheld.pop()
    }

    fn remove(&mut self, at: usize) -> Option<Unacked> {
        if at < self.sent {
            self.sent -= 1;
        }
        // Acknowledgements usually come in order, and a general removal moves the neighbours.
        let removed = if at == 0 { self.publishes.pop_front() } else { self.publishes.remove(at) };
        if self.is_long_and_empty() {
            self.give_back_rows();
        }
        removed
    }

    /// Returns the index of the PUBLISH with this identifier.
    fn find(&self, id: PacketId) -> Option<usize> {
        let front = self.publishes.front()?.transmission.number();
        if packet_id(front) == id {
            return Some(0);
        }
        // The newest number with this identifier, then the numbers one round of identifiers earlier
        // each.
        let next_id = u64::from(packet_id(self.next).get());
        let back = (next_id + IDS - u64::from(id.get())) % IDS;
        let mut number = self.next.checked_sub(if back == 0 { IDS } else { back })?;
        loop {
            if number < front {
                return None;
            }
            if let Some(at) = self.index_of(number) {
                return Some(at);
            }
            number = number.checked_sub(IDS)?;
        }
    }

    /// Returns the next number whose identifier is neither withheld nor in use by an unfinished
    /// message.
    fn free_number(&mut self) -> u64 {
        if self.is_empty() {
            self.oldest = self.next;
        }
        let comes_round = self.next - self.oldest >= IDS;
        if comes_round || !self.withheld.is_empty() { self.search_free_number() } else { self.next }
    }

    /// As [`Self::free_number`], if the next number's identifier may be in use or withheld. Costs a
    /// pass over the withheld identifiers, and one over the window if the identifiers come round.
    ///
    /// There always is a free number. The sender adds a message only to fewer than 60,000
    /// unfinished ones, and at most 1,024 identifiers are withheld. So no more than 61,024 are in
    /// use together, also when a PUBREC moves one from the withheld to the unfinished.
    // Apart from `free_number`, because inlined into `push` it costs each message 100 instructions.
    #[cold]
    #[inline(never)]
    fn search_free_number(&mut self) -> u64 {
        let mut number = self.next;
        if number - self.oldest >= IDS {
            // The identifiers came round to those of the oldest message.
            let releases = self.releases.iter().map(|r| r.transmission.number());
            let front = self.publishes.front().map(|p| p.transmission.number());
            self.oldest = releases.chain(front).min().unwrap_or(number);
        }
        while self.withheld.has(packet_id(number))
            || number - self.oldest >= IDS && self.is_used(packet_id(number))
        {
            number += 1;
        }
        number
    }

    fn is_used(&self, id: PacketId) -> bool {
        self.publishes.iter().any(|p| p.transmission.packet_id() == id)
            || self.releases.iter().any(|r| r.transmission.packet_id() == id)
    }
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
