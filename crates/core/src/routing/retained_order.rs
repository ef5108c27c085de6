//! The order between subscriptions and retained messages, so that a SUBSCRIBE does not read a
//! message that its subscription gets live.
//!
//! A subscription is in force here at once. Its retained messages are read later: behind a peer
//! barrier, and in portions. A message that is retained meanwhile is routed too. The subscription
//! gets it live in these cases:
//!
//! | the message was set by | it comes live if |
//! |---|---|
//! | this shard | it was set after the subscription was inserted |
//! | a peer that had passed the barrier | always, perhaps later |
//! | a peer that had not passed it | it came from the peer after the subscription was inserted |
//!
//! In the last case, the peer may not have known the filter, and then the message is only read. So
//! the marks of such messages are noted as they come. For the other cases two numbers suffice: this
//! shard's number at the begin of the subscription, and the peer's number at the barrier. The
//! numbers are those of the marks ([`SetMark`]).
//!
//! A message that is not retained costs nothing. A noted mark costs some 50 bytes until the last
//! SUBSCRIBE that may look for it has read its messages. If that takes unusually long, old marks
//! are dropped, and their messages may come twice.
//!
//! One more case is left. If matching a retained message takes several turns, a client that
//! subscribes meanwhile may get the message twice, because nobody knows if the rest of the match
//! finds the new subscription.

use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::routing::retained::SetMark;
use crate::routing::subscription_tree::ShardId;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

/// Largest number of marks that are noted.
const MOST_NOTED: usize = 32 * 1024;

/// Bytes of a noted mark: its place in the order, and its place in the table, half full at worst.
const NOTED: usize = 56;

/// The place of an event in the order of one shard.
pub(crate) type Place = u64;

/// The order of events in one shard: its own retained messages, retained messages from peers while
/// a SUBSCRIBE is to read, and subscriptions.
#[derive(Debug)]
pub(crate) struct RetainedOrder {
    here: ShardId,
    /// The place of the latest event.
    last: Place,
    /// The SUBSCRIBEs that are to read, by the place at which they began. A weak reference, because
    /// a SUBSCRIBE may end in many ways.
    readers: VecDeque<(Place, Weak<()>)>,
    /// The marks of messages that came from peers, in their order.
    noted: VecDeque<(Place, SetMark)>,
    /// The place of each mark in `noted`.
    places: HashMap<SetMark, Place, RandomState>,
    charge: Charge,
}

impl RetainedOrder {
    /// Returns the order of the shard `here`, in which nothing happened yet.
    pub(crate) fn new(here: ShardId) -> RetainedOrder {
        RetainedOrder {
            here,
            last: 0,
            readers: VecDeque::new(),
            noted: VecDeque::new(),
            places: HashMap::default(),
            charge: Charge::NONE,
        }
    }

    /// Returns the mark of a retained message that this shard sets now.
    pub(crate) fn set(&mut self) -> SetMark {
        self.last += 1;
        SetMark::new(self.here, self.last)
    }

    /// Returns the place of the latest event.
    pub(crate) fn last(&self) -> Place {
        self.last
    }

    /// Begins to note marks for a SUBSCRIBE, until the returned value is dropped.
    pub(crate) fn begin_reading(&mut self) -> Reading {
        let is_read = Rc::new(());
        self.readers.push_back((self.last, Rc::downgrade(&is_read)));
        Reading { _is_read: is_read, peers: Vec::new() }
    }

    /// Notes that a message with this mark is routed now, a while after it was set.
    #[inline]
    pub(crate) fn note_routed(&mut self, mark: SetMark) {
        if mark.is_some() && !self.readers.is_empty() {
            self.note(mark);
        }
    }

    #[cold]
    fn note(&mut self, mark: SetMark) {
        self.last += 1;
        self.noted.push_back((self.last, mark));
        self.places.insert(mark, self.last);
        if self.noted.len() > MOST_NOTED {
            self.drop_oldest();
        }
        self.charge.set(self.noted.len() * NOTED);
    }

    fn drop_oldest(&mut self) {
        if let Some((place, mark)) = self.noted.pop_front()
            && self.places.get(&mark) == Some(&place)
        {
            self.places.remove(&mark);
        }
    }

    /// Drops the marks that no SUBSCRIBE looks for any more. Called at the end of each turn.
    #[inline]
    pub(crate) fn trim(&mut self) {
        if !self.readers.is_empty() {
            self.trim_read();
        }
    }

    #[cold]
    fn trim_read(&mut self) {
        while self.readers.front().is_some_and(|(_, is_read)| is_read.strong_count() == 0) {
            self.readers.pop_front();
        }
        match self.readers.front().map(|(begin, _)| *begin) {
            Some(begin) => {
                while self.noted.front().is_some_and(|(place, _)| *place <= begin) {
                    self.drop_oldest();
                }
            }
            // The memory is returned, because most of the time nobody reads.
            None => *self = RetainedOrder { last: self.last, ..RetainedOrder::new(self.here) },
        }
        self.charge.set(self.noted.len() * NOTED);
    }

    /// Returns true if a subscription that was inserted at the place `inserted` gets the message
    /// with this mark live.
    pub(crate) fn comes_live(&self, mark: SetMark, inserted: Place, reading: &Reading) -> bool {
        if !mark.is_some() {
            return false;
        }
        let bound = match mark.shard() {
            shard if shard == self.here => Some(inserted),
            shard => reading.peers.get(usize::from(shard.0)).copied(),
        };
        bound.is_some_and(|bound| mark.number() > bound)
            || self.places.get(&mark).is_some_and(|place| *place > inserted)
    }
}

impl Recount for RetainedOrder {
    fn recount(&self) -> Recounted {
        Recounted { in_use: self.noted.len() * NOTED, charged: self.charge.bytes() }
    }
}

/// A SUBSCRIBE that is to read retained messages.
#[derive(Debug)]
pub(crate) struct Reading {
    _is_read: Rc<()>,
    /// The place of each peer in its own order when it passed the barrier, by the peer's number.
    peers: Vec<Place>,
}

impl Reading {
    /// Notes that a peer passed the barrier at this place of its own order.
    pub(crate) fn passed_by(&mut self, peer: ShardId, at: Place) {
        let peer = usize::from(peer.0);
        if self.peers.len() <= peer {
            // The places in between are those of peers that pass later, and of this shard.
            self.peers.resize(peer + 1, Place::MAX);
        }
        self.peers[peer] = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: ShardId = ShardId(1);
    const PEER: ShardId = ShardId(2);

    #[test]
    fn a_message_of_this_shard_comes_live_if_it_was_set_after_the_subscription() {
        let mut order = RetainedOrder::new(HERE);
        let before = order.set();
        let (inserted, reading) = (order.last(), order.begin_reading());
        let after = order.set();
        assert!(!order.comes_live(before, inserted, &reading));
        assert!(order.comes_live(after, inserted, &reading));
        assert!(!order.comes_live(SetMark::NONE, inserted, &reading));
    }

    #[test]
    fn a_message_of_a_peer_comes_live_if_it_was_set_after_the_barrier() {
        let order = &mut RetainedOrder::new(HERE);
        let mut reading = order.begin_reading();
        let is_live = |number, reading: &Reading| order.comes_live(SetMark::new(PEER, number), 0, reading);
        assert!(!is_live(9, &reading), "the peer has not passed it");
        reading.passed_by(PEER, 7);
        assert!(!is_live(7, &reading) && is_live(8, &reading));
        reading.passed_by(ShardId(0), 3);
        assert!(!is_live(7, &reading) && is_live(8, &reading));
    }

    #[test]
    fn a_message_that_was_set_before_the_barrier_comes_live_if_it_came_behind_the_subscription() {
        let mut order = RetainedOrder::new(HERE);
        let mut reading = order.begin_reading();
        reading.passed_by(PEER, 7);
        let marks: Vec<_> = (1..=3).map(|number| SetMark::new(PEER, number)).collect();
        order.note_routed(marks[0]);
        let inserted = order.last();
        order.note_routed(marks[1]);
        let live: Vec<_> = marks.iter().map(|mark| order.comes_live(*mark, inserted, &reading)).collect();
        assert_eq!(live, [false, true, false]);
    }

    #[test]
    fn marks_are_noted_while_somebody_reads() {
        let mut order = RetainedOrder::new(HERE);
        let mark = |number| SetMark::new(PEER, number);
        order.note_routed(mark(1));
        assert_eq!(order.recount(), Recounted { in_use: 0, charged: 0 });
        let first = order.begin_reading();
        order.note_routed(mark(2));
        let second = order.begin_reading();
        let inserted = order.last();
        order.note_routed(mark(3));
        drop(first);
        order.trim();
        assert_eq!(order.recount(), Recounted { in_use: NOTED, charged: NOTED });
        assert!(order.comes_live(mark(3), inserted, &second) && !order.comes_live(mark(2), 0, &second));
        drop(second);
        order.trim();
        assert_eq!(order.recount(), Recounted { in_use: 0, charged: 0 });
        assert!(order.set().number() > inserted, "numbers grow");
    }

    #[test]
    fn a_reader_that_does_not_end_costs_a_bounded_number_of_marks() {
        let mut order = RetainedOrder::new(HERE);
        let reading = order.begin_reading();
        let mark = |number| SetMark::new(PEER, number);
        (1..=MOST_NOTED as u64 + 1).for_each(|number| order.note_routed(mark(number)));
        assert_eq!(order.recount().in_use, MOST_NOTED * NOTED);
        assert!(!order.comes_live(mark(1), 0, &reading) && order.comes_live(mark(2), 0, &reading));
    }
}
