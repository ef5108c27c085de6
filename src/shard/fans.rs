//! Publications that take more than one turn, and everything that waits behind one, as data.
//!
//! There is one such publication at a time in a shard (`fan_out.rs` says what may pass it).

use crate::mqtt::charge::Charge;
use crate::mqtt::message::Message;
use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::{PacketId, QoS};
use crate::persistence::records::{SessionKey, TransactionNumber};
use crate::persistence::rows::Body;
use crate::routing::subscription_tree::{Matches, SessionSlot, ShardSet, Walk};
use crate::session::inbound::AckToken;
use crate::shard::exchange::outbound::{Gate, PeerBatch, Publisher};
use crate::shard::exchange::underway::Underway;
use crate::shard::slots::{ConnectionId, SessionId};
use std::collections::{HashSet, VecDeque};
use std::rc::Rc;

/// A publication that takes more than one turn, and its position.
#[derive(Debug)]
pub(crate) struct Fan {
    pub message: Message,
    pub publisher: Option<Publisher>,
    pub gate: Option<Gate>,
    pub body: Option<Rc<Body>>,
    pub atomic: bool,
    pub transaction: Option<TransactionNumber>,
    /// `None` once all receivers are known.
    pub walk: Option<Walk>,
    pub matches: Box<Matches>,
    /// Number of subscribers that are delivered to, and that are in order.
    pub at: usize,
    pub ordered: usize,
    pub outcome: Outcome,
    /// True once it is in the peer batches.
    pub forwarded: bool,
    /// Number of shared groups that are served.
    pub groups_served: usize,
    /// Number of receivers for which it is held.
    pub held: u32,
    /// Gates that the publisher's acknowledgement waits for, with those of held messages.
    pub gates: u32,
    /// Peers whose batch is full.
    pub full: ShardSet,
    pub origin: PublicationOrigin,
}

/// The source of a publication, which is informed at its end.
#[derive(Debug)]
pub(crate) enum PublicationOrigin {
    /// A client of this shard. It is paused.
    Client(Published),
    /// The batch of a peer that is taken apart.
    PeerBatch,
    /// The broker. Nobody is informed.
    Broker,
}

/// A publication of the broker's own that waits.
#[derive(Debug)]
pub(crate) struct OwnPublication {
    pub message: Message,
    /// The session, if the message is its will.
    pub of: Option<SessionId>,
    pub atomic: bool,
    pub _charge: Charge,
}

/// The large publication of a shard, and everything that waits behind it.
#[derive(Debug, Default)]
pub(crate) struct Fans {
    present: Option<Box<Fan>>,
    /// Slots of sessions that ended since the present publication began.
    gone: HashSet<u32, foldhash::fast::RandomState>,
    /// Clients whose next packet is a PUBLISH.
    waiting: Vec<ConnectionId>,
    /// The batch of a peer that is taken apart, and those behind it.
    underway: Option<Box<Underway>>,
    peer_batches: VecDeque<PeerBatch>,
    /// Publications of the broker's own, in their order.
    own: VecDeque<OwnPublication>,
    /// Number of `own` that are committed as a whole.
    own_atomic: usize,
    /// Number of wills among `own`.
    wills: usize,
}

impl Fans {
    /// Returns true if there is something to continue.
    pub(crate) fn any(&self) -> bool {
        self.len() > 0
    }

    /// Returns how many publications and batches are to be continued.
    pub(crate) fn len(&self) -> usize {
        usize::from(self.present.is_some())
            + usize::from(self.underway.is_some())
            + self.peer_batches.len()
            + self.own.len()
    }

    /// Returns true if a large publication is not complete.
    pub(crate) fn is_fanning(&self) -> bool {
        self.present.is_some()
    }

    /// Returns true if no client's PUBLISH may begin.
    pub(crate) fn holds_publishes(&self) -> bool {
        self.present.is_some() || self.wills > 0
    }

    /// Returns true if publications of the broker, and what leads to them, have to wait.
    pub(crate) fn holds_own(&self) -> bool {
        self.present.is_some() || !self.own.is_empty()
    }

    /// Returns true if neither a batch nor a peer batch may be sealed.
    pub(crate) fn holds_seals(&self) -> bool {
        self.own_atomic > 0 || self.present.as_ref().is_some_and(|fan| fan.atomic)
    }

    /// Returns true if the present publication is one of this session.
    pub(crate) fn is_publisher(&self, publisher: Publisher) -> bool {
        self.present.as_ref().is_some_and(|fan| fan.publisher == Some(publisher))
    }

    /// Begins a large publication. There is none yet.
    pub(crate) fn begin(&mut self, fan: Fan) {
        debug_assert!(self.present.is_none(), "there is one at a time");
        self.gone.clear();
        self.present = Some(Box::new(fan));
    }

    /// Takes out the present publication, to continue it.
    pub(crate) fn take_present(&mut self) -> Option<Box<Fan>> {
        self.present.take()
    }

    /// Puts the present publication back, to continue it later.
    pub(crate) fn put_back(&mut self, fan: Box<Fan>) {
        self.present = Some(fan);
    }

    /// Notes that a session ended. The present publication leaves out its slot.
    pub(crate) fn session_ended(&mut self, slot: u32) {
        if self.present.is_some() {
            self.gone.insert(slot);
        }
    }

    /// Returns true if the session in this slot ended since the present publication began.
    pub(crate) fn is_gone(&self, session: SessionSlot) -> bool {
        self.gone.contains(&session.0)
    }

    /// Lets a client wait until a PUBLISH may begin.
    pub(crate) fn wait(&mut self, id: ConnectionId) {
        self.waiting.push(id);
    }

    /// Returns true if a client waits.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes out the clients that wait.
    pub(crate) fn take_waiting(&mut self) -> impl Iterator<Item = ConnectionId> {
        self.waiting.drain(..)
    }

    /// Lets the batch that is taken apart wait for a later turn.
    pub(crate) fn put_off_batch(&mut self, underway: Box<Underway>) {
        self.underway = Some(underway);
    }

    /// Takes out the batch that is taken apart.
    pub(crate) fn take_underway(&mut self) -> Option<Box<Underway>> {
        self.underway.take()
    }

    /// Lets a batch of a peer wait behind the others.
    pub(crate) fn push_batch(&mut self, peer_batch: PeerBatch) {
        self.peer_batches.push_back(peer_batch);
    }

    /// Takes out the next batch to continue with.
    pub(crate) fn pop_batch(&mut self) -> Option<Box<Underway>> {
        let next = |fans: &mut Fans| Some(Box::new(Underway::new(fans.peer_batches.pop_front()?)));
        self.underway.take().or_else(|| next(self))
    }

    /// Returns the number of the broker's own publications that wait.
    pub(crate) fn own(&self) -> usize {
        self.own.len()
    }

    /// Lets a publication of the broker's own wait.
    pub(crate) fn push_own(&mut self, own: OwnPublication) {
        self.own_atomic += usize::from(own.atomic);
        self.wills += usize::from(own.of.is_some());
        self.own.push_back(own);
    }

    /// Takes out the next of the broker's own publications.
    pub(crate) fn pop_own(&mut self) -> Option<OwnPublication> {
        let own = self.own.pop_front()?;
        self.own_atomic -= usize::from(own.atomic);
        self.wills -= usize::from(own.of.is_some());
        Some(own)
    }
}

/// A client's PUBLISH that is being routed.
#[derive(Debug)]
pub(crate) struct Published {
    pub connection: ConnectionId,
    /// Of its acknowledgement.
    pub token: Option<(SessionId, AckToken)>,
    /// The Packet Identifier that is recorded with it.
    pub incoming: Option<(SessionKey, PacketId)>,
    /// True if the acknowledgement waits for the store, whoever receives the message.
    pub waits: bool,
    pub qos: QoS,
    /// True if it led to dead letters in an earlier turn.
    pub dead_letters: bool,
}

/// The result of matching a publication within one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatchedReceivers {
    /// All receivers are known.
    All,
    /// All receivers are known, and they are more than the turn delivers to.
    Many,
    /// Matching visits more nodes than the turn allows.
    InPart,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::charge::Charge;
    use crate::mqtt::message::Parts;
    use crate::time::Instant;

    fn message() -> Message {
        let parts = Parts {
            qos: QoS::AtMostOnce,
            retain: false,
            expires: Instant::NEVER,
            topic: "t",
            forwarded: &[],
            payload: b"p",
        };
        Message::new(parts, &mut Vec::new())
    }

    fn own(of: Option<SessionId>, atomic: bool) -> OwnPublication {
        OwnPublication { message: message(), of, atomic, _charge: Charge::NONE }
    }

    #[test]
    fn a_will_that_waits_holds_publishes_and_an_atomic_one_holds_seals() {
        let mut fans = Fans::default();
        fans.push_own(own(None, false));
        assert!(fans.holds_own() && !fans.holds_publishes() && !fans.holds_seals());
        fans.push_own(own(Some(SessionId::new(1, 0)), true));
        assert!(fans.holds_publishes() && fans.holds_seals());
        assert!(fans.pop_own().is_some_and(|own| own.of.is_none()));
        assert!(fans.holds_publishes());
        assert!(fans.pop_own().is_some_and(|own| own.of.is_some()));
        assert!(!fans.any() && !fans.holds_publishes() && !fans.holds_seals());
    }

    #[test]
    fn a_session_that_ends_is_gone_only_for_a_present_publication() {
        let mut fans = Fans::default();
        fans.session_ended(7);
        assert!(!fans.is_gone(SessionSlot(7)));
    }
}
