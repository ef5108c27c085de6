//! Incoming QoS 1 and 2 messages, and the acknowledgements that their publisher gets.
//! [`Receiver::report`] decides if PUBACK or PUBREC leaves now. `shard/delivery/published.rs` adds
//! the gate of a commit, and in a cluster `shard/clients/flush.rs` waits for the lease.
//!
//! A QoS 2 identifier is remembered from its PUBLISH until its PUBREL, whatever the DUP flag says.
//! Acknowledgements leave in the order of the PUBLISHes. Each waits until all its gates have
//! answered: peers that got the message, and the store. On one shard without a store there is
//! usually no gate. Then the acknowledgement leaves at once, and nothing is stored here.

use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::{PacketId, QoS, ReasonCode};
use crate::persistence::records::Lsn;
use crate::persistence::rows::SessionRow;
use crate::session::id_set::IdSet;
use std::collections::VecDeque;
use std::rc::Rc;

/// Identifies a pending acknowledgement, for the answers of its gates. Counts up per session, and
/// wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckToken(u32);

/// An acknowledgement that may leave now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// The Packet Identifier of the PUBLISH.
    pub packet_id: PacketId,
    /// The QoS of the PUBLISH: PUBACK for 1, PUBREC for 2.
    pub qos: QoS,
    /// The reason code; 3.x leaves it out.
    pub reason: ReasonCode,
    /// True if the message was held too long. 3.x has no reason code for this, so a 3.x connection
    /// is closed instead.
    pub held_too_long: bool,
    /// The commit that the acknowledgement waits for, because it frees the identifier; `None` if it
    /// frees none.
    pub waits: Option<Lsn>,
    /// Number of additional copies to write: one for each copy of the PUBLISH that came in the
    /// meantime.
    pub again: u8,
}

/// The decision about an incoming QoS 2 PUBLISH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The identifier is new: route the message.
    New,
    /// The message was accepted before: send PUBREC again, and do nothing else.
    Repeated,
    /// The message was accepted before, and its first PUBREC has not left yet.
    Pending,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    packet_id: PacketId,
    qos: QoS,
    /// Gates that have not answered.
    gates: u32,
    outcome: Outcome,
    /// The reason code that overrides the outcome's own.
    refused: Option<ReasonCode>,
    ack_state: AckState,
    /// Copies of a QoS 2 PUBLISH that came since on this connection, up to 255. Each copy gets a
    /// PUBREC of its own, in the same write.
    again: u8,
}

/// Pending acknowledgements, in the order of their PUBLISHes.
///
/// A client may leave 65,535 of them unanswered, and each PUBLISH asks for their number. So the
/// numbers are kept, and the row is not searched.
#[derive(Debug, Default)]
struct Row {
    pending: VecDeque<Pending>,
    /// Number of acknowledgements that are [`AckState::Current`].
    current: usize,
    /// Number of these at QoS 1.
    current_at_least_once: usize,
    /// No acknowledgement in front of this place is [`AckState::Current`].
    first_current: usize,
    charge: Charge,
}

/// Places that an empty row keeps allocated.
const KEPT: usize = 64;

impl Row {
    #[inline]
    fn push(&mut self, pending: Pending) {
        if self.pending.len() == self.pending.capacity() {
            self.grow();
        }
        self.count(&pending);
        self.pending.push_back(pending);
    }

    fn count(&mut self, current: &Pending) {
        self.current += 1;
        self.current_at_least_once += usize::from(current.qos == QoS::AtLeastOnce);
    }

    fn uncount(&mut self, current: &Pending) {
        self.current -= 1;
        self.current_at_least_once -= usize::from(current.qos == QoS::AtLeastOnce);
    }

    /// Removes and returns the oldest acknowledgement, if its gates have answered.
    fn pop_answered(&mut self) -> Option<Pending> {
        let oldest = self.pending.pop_front_if(|p| p.gates == 0)?;
        self.first_current = self.first_current.saturating_sub(1);
        if oldest.ack_state == AckState::Current {
            self.uncount(&oldest);
        }
        Some(oldest)
    }

    /// Returns the oldest current acknowledgement, if its gates have answered. The acknowledgement
    /// counts as written from now on. Each acknowledgement that is not current is passed over once.
    fn write_first_current(&mut self) -> Option<Pending> {
        let first = loop {
            let p = self.pending.get_mut(self.first_current)?;
            if p.ack_state == AckState::Current {
                break p;
            }
            self.first_current += 1;
        };
        if first.gates > 0 {
            return None;
        }
        first.ack_state = AckState::Written;
        let first = *first;
        self.uncount(&first);
        Some(first)
    }

    /// Gives the pending PUBREC of an identifier to the present connection. Returns false without
    /// such a PUBREC. Costs a pass over the row, for which the caller spends steps.
    fn repeat(&mut self, id: PacketId) -> bool {
        let same =
            |p: &Pending| p.qos == QoS::ExactlyOnce && p.packet_id == id && p.ack_state != AckState::Written;
        let Some(at) = self.pending.iter().position(same) else { return false };
        let Some(p) = self.pending.get_mut(at) else { return false };
        if p.ack_state == AckState::Current {
            // The first copy on this connection gets the pending PUBREC, and each further copy gets
            // one more. 3.1.1 [MQTT-4.3.3-2], 5.0 [MQTT-4.3.3-8]
            p.again = p.again.saturating_add(1);
            return true;
        }
        p.ack_state = AckState::Current;
        let p = *p;
        self.count(&p);
        self.first_current = self.first_current.min(at);
        true
    }

    /// Ends the connection of all current acknowledgements.
    fn detach(&mut self) {
        for p in &mut self.pending {
            if p.ack_state == AckState::Current {
                p.ack_state = AckState::Detached;
                p.again = 0;
            }
        }
        (self.current, self.current_at_least_once) = (0, 0);
        self.first_current = self.pending.len();
    }

    /// Called once for each doubling of the row.
    #[cold]
    fn grow(&mut self) {
        self.pending.reserve(4);
        self.charge.set(self.in_use());
    }

    fn give_back_room(&mut self) {
        if self.pending.is_empty() && self.pending.capacity() > KEPT {
            self.pending = VecDeque::new();
            self.charge.set(self.in_use());
        }
    }

    fn in_use(&self) -> usize {
        size_of::<Row>() + self.pending.capacity() * size_of::<Pending>()
    }
}

/// The relation between an acknowledgement and the present connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AckState {
    /// The acknowledgement is for the present connection.
    Current,
    /// The connection of the acknowledgement is gone. At QoS 2, a repeated PUBLISH on the next
    /// connection makes it [`AckState::Current`] again.
    Detached,
    /// The acknowledgement has left before an older detached one that still waits.
    Written,
}

/// Limits of packets from a client. CONNACK tells them to a 5.0 client, so they hold as long as its
/// connection, whatever the operator changes meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnnouncedLimits {
    /// The Receive Maximum.
    pub receive_maximum: u16,
    /// The Topic Alias Maximum; 0 is no alias.
    pub topic_alias_maximum: u16,
}

/// The receiving half of one session.
#[derive(Debug, Default)]
pub struct Receiver {
    /// QoS 2 identifiers of this connection between PUBLISH and PUBREL. `None` for a client that
    /// never used QoS 2.
    exactly_once: Option<Box<IdSet>>,
    /// QoS 2 identifiers of earlier connections. Receive Maximum counts anew with each
    /// connection, so these do not count.
    carried_over: Option<Box<IdSet>>,
    /// Pending acknowledgements; the first has the token `first`. `None` if none was ever pending.
    pending: Option<Box<Row>>,
    first: u32,
    /// The limits in the CONNACK of this connection; all 0 before the first connection.
    announced: AnnouncedLimits,
    /// The row that records the identifiers of a stored session.
    row: Option<Rc<SessionRow>>,
}

impl Receiver {
    /// Begins a connection.
    pub fn begin_connection(&mut self, announced: AnnouncedLimits) {
        self.announced = announced;
    }

    /// Returns the limits of this connection.
    pub fn announced(&self) -> AnnouncedLimits {
        self.announced
    }

    /// Returns the unfinished QoS 1 and 2 PUBLISHes of this connection, as Receive Maximum counts
    /// them.
    // 5.0 [MQTT-3.3.4-7]
    pub fn unfinished(&self) -> usize {
        let at_least_once = self.pending.as_ref().map_or(0, |row| row.current_at_least_once);
        self.exactly_once.as_ref().map_or(0, |ids| ids.len()) + at_least_once
    }

    /// True if the unfinished PUBLISHes of this connection have reached Receive Maximum.
    pub fn is_at_maximum(&self) -> bool {
        self.unfinished() >= usize::from(self.announced.receive_maximum)
    }

    /// Returns the number of PUBLISHes of this connection whose PUBACK or PUBREC is pending.
    pub fn unanswered(&self) -> usize {
        self.pending.as_ref().map_or(0, |row| row.current)
    }

    /// True if as many answers are pending as Receive Maximum allows. The broker stops to read a
    /// 3.x client then, because 3.x has no such limit.
    pub fn owes_the_most(&self) -> bool {
        self.unanswered() >= usize::from(self.announced.receive_maximum)
    }

    /// Decides about an incoming QoS 2 PUBLISH, and remembers its identifier.
    // 5.0 [MQTT-4.3.3-10], 3.1.1 [MQTT-4.3.3-2]
    pub fn admit(&mut self, id: PacketId) -> Admission {
        if !self.is_known(id) {
            self.exactly_once.get_or_insert_default().insert_absent(id);
            return Admission::New;
        }
        let is_pending = self.pending.as_mut().is_some_and(|row| row.repeat(id));
        if is_pending { Admission::Pending } else { Admission::Repeated }
    }

    /// Returns the number of acknowledgements that [`Self::admit`] looks at for a repetition, at
    /// most.
    pub fn looked_at(&self) -> usize {
        self.pending.as_ref().map_or(0, |row| row.pending.len())
    }

    /// True if this QoS 2 identifier is between its PUBLISH and its PUBREL.
    pub fn is_known(&self, id: PacketId) -> bool {
        let sets = self.exactly_once.iter().chain(&self.carried_over);
        sets.into_iter().any(|ids| ids.contains(id))
    }

    /// Handles a PUBREL. Returns true if the identifier was known. From now on the identifier
    /// denotes a new message.
    // 5.0 [MQTT-4.3.3-11], [MQTT-4.3.3-12]
    pub fn release(&mut self, id: PacketId) -> bool {
        let known = self.forget(id);
        if let (true, Some(row)) = (known, &self.row) {
            row.incoming_done(id);
        }
        known
    }

    /// Forgets every QoS 2 identifier, because the client has lost its session: its identifiers
    /// denote new messages. Returns their number. Costs 65,535 steps if there are many.
    pub fn release_all(&mut self) -> usize {
        let mut released = 0;
        let sets = [self.exactly_once.take(), self.carried_over.take()];
        for set in sets.into_iter().flatten() {
            set.for_each(|id| {
                released += 1;
                self.row.iter().for_each(|row| row.incoming_done(id));
            });
        }
        released
    }

    /// Undoes [`Self::admit`] for a PUBLISH that was never recorded. Returns true if the identifier
    /// was known.
    pub fn forget(&mut self, id: PacketId) -> bool {
        let sets = self.exactly_once.iter_mut().chain(&mut self.carried_over);
        sets.into_iter().any(|ids| ids.remove(id))
    }

    /// Sets the row of a session that is stored from now on.
    pub fn set_row(&mut self, row: Rc<SessionRow>) {
        self.row = Some(row);
    }

    /// Restores an identifier from the store. Its message was accepted before the broker ended.
    pub fn restore(&mut self, id: PacketId) {
        self.carried_over.get_or_insert_default().insert(id);
    }

    /// Records the outcome of a message so far, and the number of gates that have not answered.
    /// Returns the acknowledgement of a message without gates, or `None` if it must wait for gates
    /// or behind older ones. If `refused` is given, the publisher is sent this reason code,
    /// whatever the outcome is.
    // With `#[inline]` alone the function stays a call, because it has three callers: 25
    // instructions a message.
    #[inline(always)]
    pub fn report(
        &mut self,
        packet_id: PacketId,
        qos: QoS,
        outcome: Outcome,
        gates: u32,
        refused: Option<ReasonCode>,
    ) -> Option<Due> {
        if gates == 0 && self.unanswered() == 0 {
            return Some(self.due(packet_id, qos, outcome, refused, 0));
        }
        let ack_state = AckState::Current;
        let pending = Pending { packet_id, qos, gates, outcome, refused, ack_state, again: 0 };
        self.pending.get_or_insert_default().push(pending);
        None
    }

    /// Returns the token of the acknowledgement that the next call of [`Self::report`] adds.
    pub fn next_token(&self) -> AckToken {
        AckToken(self.first.wrapping_add(self.pending.as_ref().map_or(0, |row| row.pending.len()) as u32))
    }

    /// Adds gates to an acknowledgement that still waits for at least one. Stale tokens are
    /// ignored.
    pub fn expect(&mut self, token: AckToken, gates: u32) {
        let at = token.0.wrapping_sub(self.first) as usize;
        if let Some(p) = self.pending.as_mut().and_then(|row| row.pending.get_mut(at)) {
            p.gates = p.gates.saturating_add(gates);
        }
    }

    /// Records the answer of one gate. Stale tokens are ignored.
    pub fn answer(&mut self, token: AckToken, outcome: Outcome) {
        let at = token.0.wrapping_sub(self.first) as usize;
        if let Some(p) = self.pending.as_mut().and_then(|row| row.pending.get_mut(at)) {
            p.gates = p.gates.saturating_sub(1);
            p.outcome = p.outcome.or(outcome);
        }
    }

    /// Returns the next acknowledgement that may leave now, if any.
    pub fn next_due(&mut self) -> Option<Due> {
        loop {
            let row = self.pending.as_mut()?;
            row.give_back_room();
            let Some(p) = row.pop_answered() else {
                // Detached acknowledgements do not block later ones: the first current one may
                // leave before them.
                let Pending { packet_id, qos, outcome, refused, again, .. } = row.write_first_current()?;
                return Some(self.due(packet_id, qos, outcome, refused, again));
            };
            self.first = self.first.wrapping_add(1);
            if p.ack_state != AckState::Written {
                let due = self.due(p.packet_id, p.qos, p.outcome, p.refused, p.again);
                if p.ack_state == AckState::Current {
                    return Some(due);
                }
            }
        }
    }

    /// Ends the connection. Pending acknowledgements stay, because their gates belong to the
    /// session, but they are not written unless a PUBLISH is repeated. QoS 2 identifiers stay too.
    pub fn end_connection(&mut self) {
        if let Some(row) = &mut self.pending {
            row.detach();
        }
        match (&mut self.carried_over, self.exactly_once.take()) {
            (_, None) => {}
            (Some(carried), Some(ids)) => ids.for_each(|id| {
                carried.insert(id);
            }),
            (carried, ids) => *carried = ids,
        }
    }

    #[inline]
    fn due(
        &mut self,
        packet_id: PacketId,
        qos: QoS,
        outcome: Outcome,
        refused: Option<ReasonCode>,
        again: u8,
    ) -> Due {
        let reason = refused.unwrap_or(outcome.reason());
        let held_too_long = outcome == Outcome::HeldTooLong;
        if qos == QoS::ExactlyOnce && reason.is_error() {
            let waits = self.free_refused(packet_id);
            // A refusal frees the identifier. A second refusal could meet the next message under
            // it.
            return Due { packet_id, qos, reason, held_too_long, waits, again: 0 };
        }
        Due { packet_id, qos, reason, held_too_long, waits: None, again }
    }

    /// Frees the identifier of a refused QoS 2 PUBLISH. Returns the commit that its PUBREC waits
    /// for.
    // 5.0 [MQTT-4.3.3-9]
    #[cold]
    fn free_refused(&mut self, packet_id: PacketId) -> Option<Lsn> {
        if let (true, Some(row)) = (self.forget(packet_id), &self.row) {
            row.incoming_refused(packet_id);
        }
        // Without this wait, a crash could make the next message under the identifier look like
        // this one.
        self.row.as_ref().and_then(|row| row.pending())
    }
}

impl Recount for Receiver {
    fn recount(&self) -> Recounted {
        let mut all = Recounted::default();
        let mut add = |in_use: usize, charge: &Charge| {
            all.in_use += in_use;
            all.charged += charge.bytes();
        };
        self.pending.iter().for_each(|row| add(row.in_use(), &row.charge));
        let sets = self.exactly_once.iter().chain(&self.carried_over);
        sets.for_each(|set| add(set.in_use(), &set.charge));
        all
    }
}

#[cfg(test)]
#[path = "inbound_tests.rs"]
mod tests;
