//! Incoming QoS 1 and 2: what is owed to the publisher.
//!
//! A QoS 2 identifier is remembered from its PUBLISH until its PUBREL, whatever the DUP flag says. An acknowledgement
//! leaves when every gate it waits for has answered (other shards, the store), in the order the PUBLISHes came; where
//! nothing is waited for, which is the rule on one shard, it leaves at once and nothing is kept.

use crate::journal::ledger::Account;
use crate::journal::record::Lsn;
use crate::mqtt::charge::Charge;
use crate::mqtt::packet::{PacketId, QoS, ReasonCode};
use std::collections::VecDeque;
use std::rc::Rc;

/// Which waiting acknowledgement a gate's answer is for; counts up per session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckToken(u32);

/// What a gate found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Somebody took the message.
    Taken,
    /// Nobody behind this gate is subscribed.
    Unmatched,
    /// Everybody behind this gate who should have it refused it.
    Refused,
    /// It was held for a receiver whose queue was full, and no room came in time.
    HeldTooLong,
}

impl Outcome {
    /// Of two gates the better answer: a message that one receiver took is not refused.
    pub fn or(self, other: Outcome) -> Outcome {
        match (self, other) {
            (Outcome::Taken, _) | (_, Outcome::Taken) => Outcome::Taken,
            (Outcome::HeldTooLong, _) | (_, Outcome::HeldTooLong) => Outcome::HeldTooLong,
            (Outcome::Refused, _) | (_, Outcome::Refused) => Outcome::Refused,
            _ => Outcome::Unmatched,
        }
    }

    /// What a 5.0 publisher is told.
    pub fn reason(self) -> ReasonCode {
        match self {
            Outcome::Taken => ReasonCode::SUCCESS,
            Outcome::Unmatched => ReasonCode::NO_MATCHING_SUBSCRIBERS,
            Outcome::Refused | Outcome::HeldTooLong => ReasonCode::QUOTA_EXCEEDED,
        }
    }
}

/// An acknowledgement that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    pub packet_id: PacketId,
    pub qos: QoS,
    pub reason: ReasonCode,
    /// 3.x, which cannot be told, gets no acknowledgement for this: its connection is closed.
    pub held_too_long: bool,
    /// It frees the identifier, and leaves when that is committed.
    pub waits: Option<Lsn>,
    /// How often more it is said: once for each copy of the PUBLISH that came while it waited.
    pub again: u8,
}

/// What to do with an incoming QoS 2 PUBLISH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is new.
    New,
    /// It was taken over already: PUBREC again, and nothing more.
    Repeated,
    /// It was taken over, and its first PUBREC has yet to leave.
    Pending,
}

#[derive(Debug)]
struct Pending {
    packet_id: PacketId,
    qos: QoS,
    /// Gates that have not answered.
    gates: u32,
    outcome: Outcome,
    /// What to say in place of what the outcome says.
    refused: Option<ReasonCode>,
    voice: Voice,
    /// Copies of a QoS 2 PUBLISH that came since on this connection, up to 255: each gets a PUBREC of its own, in one write.
    again: u8,
}

/// Whether an acknowledgement is for the present connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Voice {
    Speaks,
    /// Its connection is gone; at QoS 2 the repeated PUBLISH on the next makes it speak again.
    Silent,
    /// It has left already, before an older silent one that still waits.
    Spoken,
}

/// The receiving half of one session.
#[derive(Debug, Default)]
pub struct Receiver {
    /// Identifiers between PUBLISH and PUBREL that came on this connection; nothing for a client that never used QoS 2.
    exactly_once: Option<Box<IdSet>>,
    /// Those of earlier connections: they hold nothing of Receive Maximum, whose count begins anew with a connection.
    carried_over: Option<Box<IdSet>>,
    /// Acknowledgements in the order of their PUBLISHes; the first has the token `first`. Nothing where none ever waited.
    #[expect(
        clippy::box_collection,
        reason = "8 bytes in every session where 32 would nearly always be empty"
    )]
    pending: Option<Box<VecDeque<Pending>>>,
    first: u32,
    /// Where the identifiers are recorded, of a session that the store has.
    account: Option<Rc<Account>>,
}

impl Receiver {
    /// QoS 1 and 2 PUBLISHes of this connection that are not finished, as Receive Maximum counts them.
    // 5.0 [MQTT-3.3.4-7]
    pub fn unfinished(&self) -> usize {
        let at_least_once = self.speaking().filter(|p| p.qos == QoS::AtLeastOnce).count();
        self.exactly_once.as_ref().map_or(0, |ids| ids.len()) + at_least_once
    }

    /// PUBLISHes of this connection whose PUBACK or PUBREC waits.
    pub fn unanswered(&self) -> usize {
        self.speaking().count()
    }

    fn speaking(&self) -> impl Iterator<Item = &Pending> {
        self.pending.iter().flat_map(|p| p.iter()).filter(|p| p.voice == Voice::Speaks)
    }

    /// A QoS 2 PUBLISH came.
    // 5.0 [MQTT-4.3.3-10], 3.1.1 [MQTT-4.3.3-2]
    pub fn admit(&mut self, id: PacketId) -> Admission {
        if !self.is_known(id) {
            self.exactly_once.get_or_insert_default().insert(id);
            return Admission::New;
        }
        let mut pending = self.pending.iter_mut().flat_map(|p| p.iter_mut());
        let same =
            |p: &&mut Pending| p.qos == QoS::ExactlyOnce && p.packet_id == id && p.voice != Voice::Spoken;
        match pending.find(same) {
            Some(p) => {
                // The first on this connection is answered as it was to be; each further one on top of that.
                // 3.1.1 [MQTT-4.3.3-2], 5.0 [MQTT-4.3.3-8]
                p.again = p.again.saturating_add(u8::from(p.voice == Voice::Speaks));
                p.voice = Voice::Speaks;
                Admission::Pending
            }
            None => Admission::Repeated,
        }
    }

    /// Whether this QoS 2 identifier stands between PUBLISH and PUBREL.
    pub fn is_known(&self, id: PacketId) -> bool {
        let sets = self.exactly_once.iter().chain(&self.carried_over);
        sets.into_iter().any(|ids| ids.contains(id))
    }

    /// PUBREL: whether the identifier was known. From here on it denotes a new message.
    // 5.0 [MQTT-4.3.3-11], [MQTT-4.3.3-12]
    pub fn release(&mut self, id: PacketId) -> bool {
        let known = self.forget(id);
        if let (true, Some(account)) = (known, &self.account) {
            account.incoming_done(id);
        }
        known
    }

    /// Takes back what [`Self::admit`] did, of a PUBLISH that was never recorded; whether the identifier was known.
    pub fn forget(&mut self, id: PacketId) -> bool {
        let sets = self.exactly_once.iter_mut().chain(&mut self.carried_over);
        sets.into_iter().any(|ids| ids.remove(id))
    }

    /// The session is in the store from here on.
    pub fn keep_account(&mut self, account: Rc<Account>) {
        self.account = Some(account);
    }

    /// An identifier that the store had: its message is taken over.
    pub fn restore(&mut self, id: PacketId) {
        self.carried_over.get_or_insert_default().insert(id);
    }

    /// A message was routed: its acknowledgement now, if no gate is waited for and none before it waits.
    pub fn routed(&mut self, packet_id: PacketId, qos: QoS, outcome: Outcome) -> Option<Due> {
        self.settled(packet_id, qos, outcome, None)
    }

    /// A message was not routed: what its publisher is told, now if none before it waits.
    pub fn refuse(&mut self, packet_id: PacketId, qos: QoS, reason: ReasonCode) -> Option<Due> {
        self.settled(packet_id, qos, Outcome::Refused, Some(reason))
    }

    fn settled(
        &mut self,
        packet_id: PacketId,
        qos: QoS,
        outcome: Outcome,
        refused: Option<ReasonCode>,
    ) -> Option<Due> {
        if self.unanswered() == 0 {
            return Some(self.due(packet_id, qos, outcome, refused, 0));
        }
        self.push(Pending { packet_id, qos, gates: 0, outcome, refused, voice: Voice::Speaks, again: 0 });
        None
    }

    /// A message was routed and waits for `gates` answers (at least one). `told`: what its publisher is told whatever they are.
    pub fn wait(
        &mut self,
        packet_id: PacketId,
        qos: QoS,
        outcome: Outcome,
        gates: u32,
        told: Option<ReasonCode>,
    ) -> AckToken {
        let token = self.next_token();
        let (refused, voice) = (told, Voice::Speaks);
        self.push(Pending { packet_id, qos, gates, outcome, refused, voice, again: 0 });
        token
    }

    fn push(&mut self, pending: Pending) {
        self.pending.get_or_insert_default().push_back(pending);
    }

    /// The token the next call of [`Self::wait`] will give.
    pub fn next_token(&self) -> AckToken {
        AckToken(self.first.wrapping_add(self.pending.as_ref().map_or(0, |p| p.len()) as u32))
    }

    /// It waits for so many gates more; it waits for one still. Stale tokens are ignored.
    pub fn expect(&mut self, token: AckToken, gates: u32) {
        let at = token.0.wrapping_sub(self.first) as usize;
        if let Some(p) = self.pending.as_mut().and_then(|p| p.get_mut(at)) {
            p.gates = p.gates.saturating_add(gates);
        }
    }

    /// A gate answered. Stale tokens are ignored.
    pub fn answer(&mut self, token: AckToken, outcome: Outcome) {
        let at = token.0.wrapping_sub(self.first) as usize;
        if let Some(p) = self.pending.as_mut().and_then(|p| p.get_mut(at)) {
            p.gates = p.gates.saturating_sub(1);
            p.outcome = p.outcome.or(outcome);
        }
    }

    /// The next acknowledgement that may leave.
    pub fn next_due(&mut self) -> Option<Due> {
        loop {
            let pending = self.pending.as_mut()?;
            let Some(p) = pending.pop_front_if(|p| p.gates == 0) else {
                // The first that speaks, if none but silent ones wait before it.
                let p = pending.iter_mut().find(|p| p.voice == Voice::Speaks).filter(|p| p.gates == 0)?;
                p.voice = Voice::Spoken;
                let Pending { packet_id, qos, outcome, refused, again, .. } = *p;
                return Some(self.due(packet_id, qos, outcome, refused, again));
            };
            self.first = self.first.wrapping_add(1);
            if p.voice != Voice::Spoken {
                let due = self.due(p.packet_id, p.qos, p.outcome, p.refused, p.again);
                if p.voice == Voice::Speaks {
                    return Some(due);
                }
            }
        }
    }

    /// The connection is gone: what waits goes on waiting, for its gates belong to the session, but says nothing unless a
    /// PUBLISH is repeated. QoS 2 identifiers stay.
    pub fn end_connection(&mut self) {
        for p in self.pending.iter_mut().flat_map(|p| p.iter_mut()) {
            if p.voice == Voice::Speaks {
                p.voice = Voice::Silent;
                p.again = 0;
            }
        }
        match (&mut self.carried_over, self.exactly_once.take()) {
            (_, None) => {}
            (Some(carried), Some(ids)) => ids.for_each(|id| {
                carried.insert(id);
            }),
            (carried, ids) => *carried = ids,
        }
    }

    fn due(
        &mut self,
        packet_id: PacketId,
        qos: QoS,
        outcome: Outcome,
        refused: Option<ReasonCode>,
        again: u8,
    ) -> Due {
        let reason = refused.unwrap_or(outcome.reason());
        let (mut waits, mut again) = (None, again);
        if qos == QoS::ExactlyOnce && reason.is_error() {
            // 5.0 [MQTT-4.3.3-9]
            if let (true, Some(account)) = (self.forget(packet_id), &self.account) {
                account.incoming_refused(packet_id);
            }
            // Else the next message under it could be taken for this one after a crash.
            waits = self.account.as_ref().and_then(|account| account.pending());
            // The refusal frees the identifier, and its next use must not meet a second one.
            again = 0;
        }
        Due { packet_id, qos, reason, held_too_long: outcome == Outcome::HeldTooLong, waits, again }
    }
}

/// A set of identifiers: a short row while it is small, as it nearly always is, then a bitmap of 8 KiB.
#[derive(Debug)]
enum IdSet {
    Few(VecDeque<u16>),
    Many { bits: Box<[u64; 1024]>, len: usize, charge: Charge },
}

const FEW: usize = 128;

impl Default for IdSet {
    fn default() -> IdSet {
        IdSet::Few(VecDeque::new())
    }
}

impl IdSet {
    fn len(&self) -> usize {
        match self {
            IdSet::Few(ids) => ids.len(),
            IdSet::Many { len, .. } => *len,
        }
    }

    fn contains(&self, id: PacketId) -> bool {
        match self {
            IdSet::Few(ids) => ids.contains(&id.get()),
            IdSet::Many { bits, .. } => bits[usize::from(id.get() >> 6)] >> (id.get() & 63) & 1 == 1,
        }
    }

    fn for_each(&self, mut each: impl FnMut(PacketId)) {
        match self {
            IdSet::Few(ids) => ids.iter().filter_map(|id| PacketId::new(*id)).for_each(&mut each),
            IdSet::Many { .. } => {
                let all = (1..=u16::MAX).filter_map(PacketId::new);
                all.filter(|id| self.contains(*id)).for_each(&mut each);
            }
        }
    }

    /// Whether it was not there.
    fn insert(&mut self, id: PacketId) -> bool {
        if self.contains(id) {
            return false;
        }
        if let IdSet::Few(ids) = self {
            if ids.len() < FEW {
                ids.push_back(id.get());
                return true;
            }
            let mut bits = Box::new([0u64; 1024]);
            for id in ids.iter() {
                bits[usize::from(id >> 6)] |= 1 << (id & 63);
            }
            *self = IdSet::Many { bits, len: FEW, charge: Charge::new(size_of::<[u64; 1024]>()) };
        }
        if let IdSet::Many { bits, len, .. } = self {
            bits[usize::from(id.get() >> 6)] |= 1 << (id.get() & 63);
            *len += 1;
        }
        true
    }

    fn remove(&mut self, id: PacketId) -> bool {
        match self {
            IdSet::Few(ids) => {
                // PUBRELs come in the order of the PUBLISHes: the front.
                let Some(at) = ids.iter().position(|i| *i == id.get()) else { return false };
                ids.remove(at);
                true
            }
            IdSet::Many { bits, len, charge } => {
                let word = &mut bits[usize::from(id.get() >> 6)];
                let bit = 1 << (id.get() & 63);
                let was = *word & bit != 0;
                *word &= !bit;
                *len -= usize::from(was);
                if *len == 0 {
                    charge.set(0);
                    *self = IdSet::default();
                }
                was
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u16) -> PacketId {
        PacketId::new(n).unwrap_or_else(|| unreachable!())
    }

    #[test]
    fn mqtt5_4_3_3_10_repeated_publish_is_known_until_its_pubrel() {
        let mut r = Receiver::default();
        for n in 1..=1000 {
            assert_eq!(r.admit(id(n)), Admission::New);
            assert_eq!(r.routed(id(n), QoS::ExactlyOnce, Outcome::Taken).map(|d| d.packet_id), Some(id(n)));
            assert_eq!(r.admit(id(n)), Admission::Repeated);
        }
        assert_eq!(r.unfinished(), 1000);
        for n in 1..=1000 {
            assert!(r.release(id(n)));
            assert!(!r.release(id(n)));
        }
        assert_eq!(r.unfinished(), 0);
        assert_eq!(r.admit(id(7)), Admission::New);
    }

    #[test]
    fn acknowledgements_leave_in_order_each_when_its_gates_have_answered() {
        let mut r = Receiver::default();
        let first = r.wait(id(1), QoS::AtLeastOnce, Outcome::Unmatched, 2, None);
        let second = r.wait(id(2), QoS::AtLeastOnce, Outcome::Unmatched, 1, None);
        assert_eq!(r.routed(id(3), QoS::AtLeastOnce, Outcome::Unmatched), None);
        r.answer(second, Outcome::Refused);
        assert_eq!(r.next_due(), None);
        r.answer(first, Outcome::Unmatched);
        assert_eq!(r.next_due(), None);
        r.answer(first, Outcome::Taken);
        let due: Vec<_> = std::iter::from_fn(|| r.next_due()).map(|d| d.reason).collect();
        assert_eq!(
            due,
            [ReasonCode::SUCCESS, ReasonCode::QUOTA_EXCEEDED, ReasonCode::NO_MATCHING_SUBSCRIBERS]
        );
    }

    #[test]
    fn late_answers_after_the_connection_meet_nothing() {
        let mut r = Receiver::default();
        let stale = r.wait(id(1), QoS::AtLeastOnce, Outcome::Taken, 1, None);
        r.end_connection();
        let token = r.wait(id(1), QoS::AtLeastOnce, Outcome::Taken, 1, None);
        r.answer(stale, Outcome::Taken);
        assert_eq!(r.next_due(), None);
        r.answer(token, Outcome::Taken);
        assert!(r.next_due().is_some());
    }

    #[test]
    fn qos_2_repeated_on_the_next_connection_waits_for_the_same_gates() {
        let mut r = Receiver::default();
        assert_eq!(r.admit(id(1)), Admission::New);
        let token = r.wait(id(1), QoS::ExactlyOnce, Outcome::Unmatched, 1, None);
        r.end_connection();
        assert_eq!((r.unfinished(), r.unanswered()), (0, 0));
        // What comes meanwhile is not kept waiting by it.
        assert!(r.routed(id(9), QoS::AtLeastOnce, Outcome::Taken).is_some());
        assert_eq!(r.admit(id(1)), Admission::Pending);
        r.answer(token, Outcome::Refused);
        assert_eq!(r.next_due().map(|d| d.reason), Some(ReasonCode::QUOTA_EXCEEDED));
        assert_eq!(r.admit(id(1)), Admission::New);
    }

    #[test]
    fn mqtt5_4_3_3_8_each_copy_that_comes_while_the_first_waits_gets_a_pubrec_of_its_own() {
        let mut r = Receiver::default();
        assert_eq!(r.admit(id(1)), Admission::New);
        let token = r.wait(id(1), QoS::ExactlyOnce, Outcome::Unmatched, 1, None);
        for _ in 0..300 {
            assert_eq!(r.admit(id(1)), Admission::Pending);
        }
        r.end_connection();
        // Copies on a connection that is gone are not answered on the next.
        for _ in 0..3 {
            assert_eq!(r.admit(id(1)), Admission::Pending);
        }
        assert_eq!(r.next_due(), None);
        r.answer(token, Outcome::Taken);
        assert_eq!(r.next_due().map(|due| due.again), Some(2));
        assert_eq!(r.admit(id(1)), Admission::Repeated);
    }

    #[test]
    fn a_refusal_is_said_once_for_it_frees_the_identifier() {
        let mut r = Receiver::default();
        assert_eq!(r.admit(id(1)), Admission::New);
        let token = r.wait(id(1), QoS::ExactlyOnce, Outcome::Unmatched, 1, None);
        assert_eq!(r.admit(id(1)), Admission::Pending);
        r.answer(token, Outcome::Refused);
        assert_eq!(r.next_due().map(|due| due.again), Some(0));
        assert_eq!(r.admit(id(1)), Admission::New);
    }

    #[test]
    fn silent_acknowledgements_keep_later_ones_waiting_neither_before_nor_after_their_gates_answer() {
        let mut r = Receiver::default();
        let old = r.wait(id(1), QoS::AtLeastOnce, Outcome::Taken, 1, None);
        r.end_connection();
        let new = r.wait(id(2), QoS::AtLeastOnce, Outcome::Taken, 1, None);
        r.answer(new, Outcome::Taken);
        assert_eq!(r.next_due().map(|d| d.packet_id), Some(id(2)));
        assert_eq!(r.next_due(), None);
        r.answer(old, Outcome::Taken);
        assert_eq!(r.next_due(), None);
        assert!(r.pending.as_ref().is_none_or(|p| p.is_empty()));
    }

    #[test]
    fn mqtt5_4_3_3_9_refused_qos_2_identifier_denotes_a_new_message() {
        let mut r = Receiver::default();
        assert_eq!(r.admit(id(5)), Admission::New);
        let due = r.routed(id(5), QoS::ExactlyOnce, Outcome::Refused);
        assert_eq!(due.map(|d| d.reason), Some(ReasonCode::QUOTA_EXCEEDED));
        assert_eq!(r.admit(id(5)), Admission::New);
    }
}
