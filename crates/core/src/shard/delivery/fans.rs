//! Large publications (longer than a turn) and the work that waits behind them, as data.
//!
//! A shard has one large publication at a time. The module `fan_out` has the code, and the rules
//! for work that may pass a large publication.

use crate::mqtt::charge::Charge;
use crate::mqtt::message::Message;
use crate::mqtt::outcome::Outcome;
use crate::peers::peer_batch::{PeerBatch, Publisher, ReportTo};
use crate::peers::underway::Underway;
use crate::persistence::records::TransactionNumber;
use crate::persistence::rows::Body;
use crate::routing::retained::SetMark;
use crate::routing::subscription_tree::{Matches, SessionSlot, ShardId, ShardSet, Walk};
use crate::shard::clients::connections::Connections;
use crate::shard::clients::pause::Pause;
use crate::shard::delivery::own_publications::publisher;
use crate::shard::delivery::published::Published;
use crate::slots::{ConnectionId, SessionId};
use crate::time::Instant;
use std::collections::{HashSet, VecDeque};
use std::rc::Rc;

/// A large publication, and its position.
#[derive(Debug)]
pub(crate) struct Fan {
    pub message: Message,
    pub publisher: Option<Publisher>,
    pub gate: Option<ReportTo>,
    pub body: Option<Rc<Body>>,
    /// True if one commit covers all deliveries
    /// ([`Publication::atomic`](crate::durability::publication::Publication)).
    pub atomic: bool,
    pub transaction: Option<TransactionNumber>,
    /// The mark of the message if it was retained with this publication.
    pub set_mark: SetMark,
    /// The position in the subscription tree; `None` once all receivers are known.
    pub walk: Option<Walk>,
    pub matches: Box<Matches>,
    /// Number of subscribers that were delivered to.
    pub at: usize,
    /// Number of subscribers, from the first, that are in order.
    pub ordered: usize,
    pub outcome: Outcome,
    /// True once the publication is in the peer batches.
    pub forwarded: bool,
    /// Number of shared groups to which the publication was delivered.
    pub groups_served: usize,
    /// Number of receivers for which the message is held.
    pub held: u32,
    /// Number of answers that the publisher's acknowledgement waits for. Held messages count too.
    pub gates: u32,
    /// The peers whose batch is full.
    pub full: ShardSet,
    pub origin: PublicationOrigin,
}

/// The source of a publication. The source is informed when the publication is complete.
#[derive(Debug)]
pub(crate) enum PublicationOrigin {
    /// A client of this shard, whose connection is paused meanwhile, or an operator.
    Publisher(Published),
    /// The peer batch that is being taken apart.
    PeerBatch,
    /// The broker. Nothing is informed.
    Broker,
}

/// A publication of the broker that waits for a later turn.
#[derive(Debug)]
pub(crate) struct OwnPublication {
    pub message: Message,
    /// The session of the will, if the message is a will.
    pub of: Option<SessionId>,
    /// True if one commit covers all deliveries.
    pub atomic: bool,
    /// The mark of the message if it is retained already.
    pub set_mark: SetMark,
    pub _charge: Charge,
}

/// The large publication of a shard, and everything that waits behind it.
#[derive(Debug, Default)]
pub(crate) struct Fans {
    /// The large publication, if there is one.
    present: Option<Box<Fan>>,
    /// Slots of sessions that ended since the large publication began.
    gone: HashSet<u32, foldhash::fast::RandomState>,
    /// Connections of which the next packet is a PUBLISH.
    waiting: Vec<ConnectionId>,
    /// The peer batch that is being taken apart.
    underway: Option<Box<Underway>>,
    /// The peer batches behind `underway`, in the order in which they came.
    peer_batches: VecDeque<PeerBatch>,
    /// Publications of the broker, in the order in which they arose.
    own: VecDeque<OwnPublication>,
    /// Number of atomic publications among `own`.
    own_atomic: usize,
    /// Number of wills among `own`.
    wills: usize,
}

impl Fans {
    /// Returns true if no publication and no peer batch is to be continued.
    pub(crate) fn is_empty(&self) -> bool {
        self.present.is_none()
            && self.own.is_empty()
            && self.underway.is_none()
            && self.peer_batches.is_empty()
    }

    /// Returns the number of publications and peer batches that are to be continued.
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

    /// Returns true if no client's PUBLISH may begin, because a large publication or a will must be
    /// complete first.
    pub(crate) fn blocks_publishes(&self) -> bool {
        self.present.is_some() || self.wills > 0
    }

    /// Returns true if the broker's publications must wait. Work that leads to such publications,
    /// such as the end of a session, must wait too.
    pub(crate) fn blocks_own(&self) -> bool {
        self.present.is_some() || !self.own.is_empty()
    }

    /// Returns true if neither a batch nor a peer batch may be sealed, because an atomic
    /// publication is not complete.
    pub(crate) fn blocks_seals(&self) -> bool {
        self.own_atomic > 0 || self.present.as_ref().is_some_and(|fan| fan.atomic)
    }

    /// Returns true if this session published the large publication.
    pub(crate) fn fans_out_for(&self, here: ShardId, id: SessionId) -> bool {
        self.present.as_ref().is_some_and(|fan| fan.publisher == Some(publisher(here, id)))
    }

    /// Begins a large publication. The caller makes sure that none is present.
    pub(crate) fn begin(&mut self, fan: Fan) {
        debug_assert!(self.present.is_none(), "there is one at a time");
        self.gone.clear();
        self.present = Some(Box::new(fan));
    }

    /// Takes out the large publication, to continue it.
    pub(crate) fn take_present(&mut self) -> Option<Box<Fan>> {
        self.present.take()
    }

    /// Puts the large publication back, to continue it in a later turn.
    pub(crate) fn put_back(&mut self, fan: Box<Fan>) {
        self.present = Some(fan);
    }

    /// Notes that the session in this slot ended. The large publication then skips the slot, so
    /// that a later session in the slot does not get the message.
    pub(crate) fn session_ended(&mut self, slot: u32) {
        if self.present.is_some() {
            self.gone.insert(slot);
        }
    }

    /// Returns true if the session in this slot ended since the large publication began.
    pub(crate) fn is_gone(&self, session: SessionSlot) -> bool {
        self.gone.contains(&session.0)
    }

    /// Pauses a client whose next packet must wait until a large publication is complete.
    pub(crate) fn pause(&mut self, now: Instant, id: ConnectionId, connections: &mut Connections) {
        if connections.pause(id, Pause::Work, now) {
            self.waiting.push(id);
        }
    }

    /// Returns true if a client waits.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes out the clients that wait.
    pub(crate) fn take_waiting(&mut self) -> impl Iterator<Item = ConnectionId> {
        self.waiting.drain(..)
    }

    /// Puts back the peer batch that is being taken apart, for a later turn.
    pub(crate) fn put_off_batch(&mut self, underway: Box<Underway>) {
        self.underway = Some(underway);
    }

    /// Takes out the peer batch that is being taken apart.
    pub(crate) fn take_underway(&mut self) -> Option<Box<Underway>> {
        self.underway.take()
    }

    /// Adds a peer batch behind the others.
    pub(crate) fn push_batch(&mut self, peer_batch: PeerBatch) {
        self.peer_batches.push_back(peer_batch);
    }

    /// Takes out the peer batch to continue with: the unfinished one, or else the next.
    pub(crate) fn pop_batch(&mut self) -> Option<Box<Underway>> {
        let next = |fans: &mut Fans| Some(Box::new(Underway::new(fans.peer_batches.pop_front()?)));
        self.underway.take().or_else(|| next(self))
    }

    /// Returns the number of the broker's publications that wait.
    pub(crate) fn own(&self) -> usize {
        self.own.len()
    }

    /// Returns the marks of the retained messages among the broker's publications that wait, in
    /// ascending order.
    pub(crate) fn own_set_marks(&self) -> Vec<SetMark> {
        let mut marks: Vec<_> = self.own.iter().map(|own| own.set_mark).filter(|m| m.is_some()).collect();
        marks.sort_unstable();
        marks
    }

    /// Adds a publication of the broker behind the others.
    pub(crate) fn push_own(&mut self, own: OwnPublication) {
        self.own_atomic += usize::from(own.atomic);
        self.wills += usize::from(own.of.is_some());
        self.own.push_back(own);
    }

    /// Takes out the next publication of the broker.
    pub(crate) fn pop_own(&mut self) -> Option<OwnPublication> {
        let own = self.own.pop_front()?;
        self.own_atomic -= usize::from(own.atomic);
        self.wills -= usize::from(own.of.is_some());
        Some(own)
    }
}

/// The result of matching a publication within one turn, and of the deliveries that followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatchExtent {
    /// All receivers are known.
    All,
    /// All receivers are known, but this turn cannot deliver to all of them.
    Many,
    /// The receivers are not known, because matching visits more nodes than this turn allows.
    InPart,
    /// All receivers are known, and the first `at` subscribers of this shard have the message. The
    /// deliveries dropped so many messages of full queues that the others wait for a later turn.
    /// `outcome` is that of these deliveries.
    Begun { at: usize, outcome: Outcome },
}

/// The number of turns that the deliveries of one publication may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeliveryTurns {
    /// Only this turn, because the shard has a large publication already, or because the outcome is
    /// needed now.
    ThisOne,
    /// As many as they need.
    Several,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::charge::Charge;
    use crate::mqtt::message::Parts;
    use crate::mqtt::packet::QoS;
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
        OwnPublication { message: message(), of, atomic, set_mark: SetMark::NONE, _charge: Charge::NONE }
    }

    #[test]
    fn a_will_that_waits_blocks_publishes_and_an_atomic_one_blocks_seals() {
        let mut fans = Fans::default();
        fans.push_own(own(None, false));
        assert!(fans.blocks_own() && !fans.blocks_publishes() && !fans.blocks_seals());
        fans.push_own(own(Some(SessionId::new(1, 0)), true));
        assert!(fans.blocks_publishes() && fans.blocks_seals());
        assert!(fans.pop_own().is_some_and(|own| own.of.is_none()));
        assert!(fans.blocks_publishes());
        assert!(fans.pop_own().is_some_and(|own| own.of.is_some()));
        assert!(fans.is_empty() && !fans.blocks_publishes() && !fans.blocks_seals());
    }

    #[test]
    fn retained_messages_that_wait_to_be_routed_are_known_by_their_marks() {
        let mut fans = Fans::default();
        assert_eq!(fans.own_set_marks(), []);
        let marks = [9, 4].map(|number| SetMark::new(ShardId(0), number));
        for set_mark in [marks[0], SetMark::NONE, marks[1]] {
            fans.push_own(OwnPublication { set_mark, ..own(None, false) });
        }
        assert_eq!(fans.own_set_marks(), [marks[1], marks[0]]);
        fans.pop_own();
        assert_eq!(fans.own_set_marks(), [marks[1]]);
    }

    #[test]
    fn a_session_that_ends_is_gone_only_for_a_present_publication() {
        let mut fans = Fans::default();
        fans.session_ended(7);
        assert!(!fans.is_gone(SessionSlot(7)));
    }
}
